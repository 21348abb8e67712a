//! Commands on a pseudo-terminal, and the lines that it shows.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::process::kill_with_test;

/// Rows of a pseudo-terminal.
const ROWS: u16 = 50;

/// Opens a pseudo-terminal of `columns` columns. Returns this test's end, and the end that a program writes to.
pub fn open_pseudo_terminal(columns: u16) -> (OwnedFd, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    let size = libc::winsize { ws_row: ROWS, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
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

/// Returns the rows of a terminal after these bytes: text, movements of the cursor to a place, and clearing.
fn rows_of(written: &str, columns: u16) -> Vec<String> {
    let empty = || vec![vec![' '; usize::from(columns)]; usize::from(ROWS)];
    let (mut cells, mut row, mut column) = (empty(), 0, 0);
    for (index, part) in written.split("\x1b[").enumerate() {
        let command = part.find(|letter: char| letter.is_ascii_alphabetic()).filter(|_| index > 0);
        let (text, numbers) = command.map_or((part, ""), |end| (&part[end + 1..], &part[..end]));
        match command.map(|end| &part[end..=end]) {
            Some("H") => {
                let mut places = numbers.split(';').map(|number| number.parse::<usize>().unwrap_or(1) - 1);
                (row, column) = (places.next().unwrap_or(0), places.next().unwrap_or(0));
            }
            Some("J") => cells = empty(),
            _ => {}
        }
        for letter in text.chars().filter(|letter| !letter.is_control()) {
            if let Some(cell) = cells.get_mut(row).and_then(|cells| cells.get_mut(column)) {
                *cell = letter;
            }
            column += 1;
        }
    }
    cells.into_iter().map(String::from_iter).collect()
}

/// Time limit for an output on a terminal, and for the end of a program there.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Program on a pseudo-terminal that is its own, with a keyboard. It is killed when the value is dropped.
pub struct Interactive {
    child: Child,
    keyboard: File,
    /// The program's end of the terminal.
    theirs: OwnedFd,
    output: Receiver<Vec<u8>>,
    written: String,
    columns: u16,
}

impl Interactive {
    /// Starts a command on a terminal of `columns` columns.
    pub fn start(command: &mut Command, columns: u16) -> Self {
        let (ours, theirs) = open_pseudo_terminal(columns);
        let copy = || theirs.try_clone().expect("a copy of a descriptor");
        command.stdin(copy()).stdout(copy()).stderr(copy()).env_remove("NO_COLOR").env("TERM", "xterm-256color");
        let child = kill_with_test(command).spawn().expect("the program starts");
        let keyboard = File::from(ours);
        let mut screen = keyboard.try_clone().expect("a copy of a descriptor");
        let (sender, output) = channel();
        // The thread ends when no process has the terminal open any more.
        thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut part) {
                if sender.send(part[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keyboard, theirs, output, written: String::new(), columns }
    }

    /// Returns the settings of the terminal, as text.
    pub fn settings(&self) -> String {
        format!("{:?}", rustix::termios::tcgetattr(&self.theirs).expect("it is a terminal"))
    }

    /// Waits until the program has written these bytes.
    #[track_caller]
    pub fn wait_for(&mut self, bytes: &str) {
        self.wait_until(bytes, |program| program.written.contains(bytes));
    }

    /// Waits until the terminal shows `text` in a row.
    #[track_caller]
    pub fn wait_to_see(&mut self, text: &str) {
        self.wait_until(text, |program| {
            rows_of(&program.written, program.columns).iter().any(|row| row.contains(text))
        });
    }

    #[track_caller]
    fn wait_until(&mut self, what: &str, is_met: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is_met(self) {
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(part) => self.written.push_str(&String::from_utf8_lossy(&part)),
                Err(_) => {
                    let rows = rows_of(&self.written, self.columns).join("\n");
                    panic!("no {what:?} on the terminal within {TIMEOUT:?}:\n{rows}")
                }
            }
        }
    }

    /// Types these bytes.
    pub fn type_keys(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).expect("a terminal can be written to");
    }

    /// Returns the process id of the program.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of the program. Returns its exit code.
    #[track_caller]
    pub fn wait_for_end(&mut self) -> Option<i32> {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status.code();
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the program does not end within {TIMEOUT:?}: {:?}", self.written)
    }
}

impl Drop for Interactive {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
