//! What standard output can show.

use std::env;
use std::io::{self, IsTerminal};

/// Columns to fill where there is no terminal to ask.
const WIDTH_WITHOUT_TERMINAL: usize = 120;
/// Narrower terminals get lines that wrap.
const WIDTH_MIN: usize = 40;

/// How many columns standard output has.
pub fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.map_or(WIDTH_WITHOUT_TERMINAL, |size| usize::from(size.ws_col).max(WIDTH_MIN))
}

/// Whether colours are wanted: on a terminal, unless NO_COLOR is set to anything.
pub fn color_wanted() -> bool {
    io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
