//! Commands on a pseudo-terminal, and the lines that it shows.

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Command;

use super::process::kill_with_test;

/// Opens a pseudo-terminal of `columns` columns. Returns this test's end, and the end that a program writes to.
pub fn open_pseudo_terminal(columns: u16) -> (OwnedFd, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    let size = libc::winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: both descriptors are written; a name and attributes are not asked for.
    let opened = unsafe { libc::openpty(&mut ours, &mut theirs, std::ptr::null_mut(), std::ptr::null(), &size) };
    assert_eq!(opened, 0, "no pseudo-terminal");
    // SAFETY: openpty has just opened both.
    unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

/// Returns the lines that this command writes to a terminal of `columns` columns, until it and all its descendants have
/// ended. A line that is overwritten counts as a line.
pub fn lines_of(command: &[&str], columns: u16) -> Vec<String> {
    let (ours, theirs) = open_pseudo_terminal(columns);
    let copy = || theirs.try_clone().expect("a copy of a descriptor");
    let mut child = Command::new(command[0]);
    child.args(&command[1..]).stdin(copy()).stdout(copy()).stderr(copy()).env_remove("COLUMNS");
    let mut running = kill_with_test(&mut child).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    // This process closes its copies of the terminal's write end, also those in `child`. So only the running command
    // keeps the terminal open.
    drop((theirs, child));
    let (mut ours, mut shown, mut part) = (File::from(ours), Vec::new(), [0; 4096]);
    // The read fails at the end, when no process has the terminal open any more.
    while let Ok(length @ 1..) = ours.read(&mut part) {
        shown.extend_from_slice(&part[..length]);
    }
    running.wait().expect("it has ended");
    let text = without_escapes(&String::from_utf8_lossy(&shown));
    text.split(['\n', '\r']).map(str::to_owned).collect()
}

/// Removes colours and movements of the cursor from a text.
fn without_escapes(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| {
        plain + part.split_once(|letter: char| letter.is_ascii_alphabetic()).map_or("", |(_, rest)| rest)
    })
}
