//! The terminal: taken at the start, and restored at the end, after a panic, and after a POSIX signal.

use std::io::{self, BufWriter, IsTerminal, Stdout, stdin, stdout};
use std::panic;

use anyhow::{Context, Result, ensure};
use crossterm::clipboard::CopyToClipboard;
use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use sidelane_report::terminal::should_use_color;

use crate::draw::{Paint, draw};
use crate::view::View;

/// Size of a buffer that holds the changes of most pictures. The terminal gets them in one call then.
const PICTURE_BYTES: usize = 1 << 16;

/// Terminal that shows the view. Dropping it restores the terminal.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    paint: Paint,
    size: (u16, u16),
}

impl Screen {
    /// Returns an error if the view cannot be shown: input and output have to be a terminal.
    pub fn check_terminal() -> Result<()> {
        let are_terminals = stdin().is_terminal() && stdout().is_terminal();
        ensure!(
            are_terminals,
            "cannot show a live view: this is no terminal; read the status with `sidelane status --json`"
        );
        Ok(())
    }

    /// Takes the terminal.
    pub fn open() -> Result<Self> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            before(info);
        }));
        let failed = "cannot set up the terminal; read the status with `sidelane status --json`";
        enable_raw_mode().context(failed)?;
        let terminal = execute!(stdout(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(PICTURE_BYTES, stdout()))))
            .inspect_err(|_| restore())
            .context(failed)?;
        Ok(Self { terminal, paint: Paint { has_color: should_use_color() }, size: (0, 0) })
    }

    /// Draws the view.
    pub fn draw(&mut self, view: &View) -> Result<()> {
        let paint = self.paint;
        self.size = size().unwrap_or_default();
        let drawn = self.terminal.draw(|frame| draw(view, paint, frame.area(), frame.buffer_mut()));
        drawn.map(drop).context("cannot write to the terminal; check that it still exists")
    }

    /// Returns whether the terminal has another size than the picture.
    pub fn has_changed_size(&self) -> bool {
        size().is_ok_and(|size| size != self.size)
    }

    /// Puts a text into the clipboard of the terminal (OSC 52).
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        execute!(stdout(), CopyToClipboard::to_clipboard_from(text))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal. An error is ignored, because there is no other place to show it.
fn restore() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}
