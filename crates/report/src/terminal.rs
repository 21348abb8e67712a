//! Size and colours of standard output, and text that fits into it.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use crate::grid::fit_to_width;

/// Number of columns to fill if standard output is not a terminal.
const WIDTH_WITHOUT_TERMINAL: usize = 100;
/// Smallest width used; lines wrap on a narrower terminal.
const WIDTH_MIN: usize = 40;

/// Number of lines to fill if standard output is not a terminal.
const HEIGHT_WITHOUT_TERMINAL: usize = 24;

/// Returns the columns of standard output; if it is not a terminal, the value of `COLUMNS`.
pub fn stdout_width() -> usize {
    let said = env::var("COLUMNS").ok().and_then(|columns| columns.parse::<usize>().ok());
    let said = said.filter(|_| !io::stdout().is_terminal());
    said.map_or_else(|| terminal_size(io::stdout()).0, |columns| columns.max(WIDTH_MIN))
}

/// Returns columns and lines of the terminal that `stream` goes to.
pub fn terminal_size(stream: impl AsFd) -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(stream).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    size.map_or((WIDTH_WITHOUT_TERMINAL, HEIGHT_WITHOUT_TERMINAL), |size| {
        (usize::from(size.ws_col).max(WIDTH_MIN), usize::from(size.ws_row))
    })
}

/// Returns whether to use colours: on a terminal, unless NO_COLOR is set to a non-empty value.
pub fn should_use_color() -> bool {
    io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes to standard output. A pipe that its reader has closed is no error, since the command may have work besides
/// its output.
///
/// # Errors
/// If standard output accepts no more, such as a file on a full disk.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        kind => Err(io::Error::new(kind, format!("cannot write to standard output: {error}"))),
    })
}

/// Writes to standard error. A failure is ignored: there is no other place to report it.
pub fn eprint(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Prints text that already has a layout. A line that is longer than the terminal is wide continues on the next line.
///
/// # Errors
/// If standard output accepts no more, as in [`print()`].
pub fn print_fitted(text: &str) -> io::Result<()> {
    print(&fit_to_width(text, stdout_width()))
}

/// Prints text to standard error as [`print_fitted`] does to standard output. If standard error is no terminal, no line
/// is broken.
pub fn eprint_fitted(text: &str) {
    let width = if io::stderr().is_terminal() { terminal_size(io::stderr()).0 } else { usize::MAX };
    eprint(&fit_to_width(text, width));
}

/// Importance of a message, by the numbers of syslog.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Level {
    Error = 3,
    Warning = 4,
}

/// Prints text as [`eprint_fitted`] does. If standard error is the journal of systemd, each line begins with its level.
pub fn eprint_with_level(level: Level, text: &str) {
    if !is_stderr_journal() {
        return eprint_fitted(text);
    }
    eprint(&text.lines().map(|line| format!("<{}>{line}\n", level as u8)).collect::<String>());
}

/// Returns whether standard error is the journal: `JOURNAL_STREAM` has its device and inode.
fn is_stderr_journal() -> bool {
    let Some(journal) = env::var_os("JOURNAL_STREAM") else { return false };
    let stderr = rustix::fs::fstat(io::stderr());
    stderr.is_ok_and(|stderr| journal.to_str() == Some(&format!("{}:{}", stderr.st_dev, stderr.st_ino)))
}
