//! Progress of a watch of a known length: a line that is updated on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use crate::terminal::eprint_fitted;
use indicatif::{ProgressBar, ProgressStyle};

/// Time between two updates of the line on a terminal.
const SHOW_EVERY: Duration = Duration::from_millis(500);
/// Time until the first plain line; a shorter watch has none.
const FIRST_LINE_AFTER: Duration = Duration::from_secs(2);
/// Time from one plain line to the next.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Progress of a watch that is under way.
pub struct WatchProgress {
    /// Progress bar; `None` if standard error is no terminal.
    bar: Option<ProgressBar>,
    length: Duration,
    began: Instant,
    due: Duration,
}

impl WatchProgress {
    /// Begins the progress of a watch of this length.
    pub fn new(length: Duration) -> Self {
        let bar = stderr().is_terminal().then(|| bar(length));
        let due = if bar.is_some() { SHOW_EVERY } else { FIRST_LINE_AFTER };
        Self { bar, length, began: Instant::now(), due }
    }

    /// Shows what has been found so far, if an update is due.
    pub fn show(&mut self, status_text: impl FnOnce() -> String) {
        let elapsed = self.began.elapsed();
        if let Some(line) = self.due_line(elapsed, status_text) {
            eprint_fitted(&line);
        }
    }

    /// Returns the plain line, if one is due. The end has no line, since the result follows.
    fn due_line(&mut self, elapsed: Duration, status_text: impl FnOnce() -> String) -> Option<String> {
        if elapsed < self.due || elapsed >= self.length {
            return None;
        }
        let Some(bar) = &self.bar else {
            self.due = elapsed + LINE_EVERY;
            return Some(format!("sidelane: {} of {:?}: {}", format_seconds(elapsed), self.length, status_text()));
        };
        self.due = elapsed + SHOW_EVERY;
        bar.set_position(elapsed.as_millis() as u64);
        bar.set_message(status_text());
        None
    }

    /// Removes the line from the terminal.
    pub fn clear(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

fn format_seconds(time: Duration) -> String {
    format!("{:.0}s", time.as_secs_f64())
}

fn bar(length: Duration) -> ProgressBar {
    let bar = ProgressBar::new(length.as_millis() as u64);
    let style = ProgressStyle::with_template("{elapsed} [{bar:20}] {wide_msg}");
    bar.with_style(style.expect("the template is right"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_line_comes_after_2_s_then_one_every_10_s() {
        let length = Duration::from_secs(30);
        let mut progress = WatchProgress { bar: None, length, began: Instant::now(), due: FIRST_LINE_AFTER };
        let mut line = |s: u64| progress.due_line(Duration::from_secs(s), || "7 requests".to_owned());
        assert_eq!(line(1), None);
        assert_eq!(line(3).as_deref(), Some("sidelane: 3s of 30s: 7 requests"));
        assert_eq!(line(12), None);
        assert_eq!(line(14).as_deref(), Some("sidelane: 14s of 30s: 7 requests"));
        assert_eq!(line(30), None, "all is done");
    }
}
