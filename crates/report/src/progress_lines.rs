//! Progress in plain lines, for a standard error that is no terminal and shows no bar.

use std::io::{IsTerminal, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::terminal::eprint_fitted;

/// Time from the beginning of the work to the first line; shorter work prints no line.
const FIRST_AFTER: Duration = Duration::from_secs(2);
/// Time from one line to the next.
const EVERY: Duration = Duration::from_secs(10);

/// Progress of work that any thread may count.
pub struct ProgressLines {
    what: String,
    things: &'static str,
    counted: Mutex<Counted>,
}

struct Counted {
    done: u64,
    due: Instant,
}

impl ProgressLines {
    /// Creates the progress of the work `what`, which consists of `things`, such as "rounds". None of them is done yet.
    pub fn new(work_name: &str, things: &'static str) -> Self {
        let counted = Counted { done: 0, due: Instant::now() + FIRST_AFTER };
        Self { what: work_name.to_owned(), things, counted: Mutex::new(counted) }
    }

    /// Counts `more` of the `all` things as finished, and prints a line if one is due.
    pub fn count_done(&self, newly_done: u64, total: u64) {
        if let Some(line) = self.due_line(newly_done, total, Instant::now())
            && !stderr().is_terminal()
        {
            eprint_fitted(&line);
        }
    }

    /// Counts as `count_done` does, and returns the line if one is due. When all is done no line is due, since the
    /// result follows.
    fn due_line(&self, newly_done: u64, total: u64, now: Instant) -> Option<String> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.done += newly_done;
        if now < counted.due || counted.done >= total {
            return None;
        }
        counted.due = now + EVERY;
        Some(format!("sidelane: {}: {} of {total} {}", self.what, counted.done, self.things))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_line_comes_after_2_s_then_one_every_10_s() {
        let lines = ProgressLines::new("demo", "rounds");
        let at = |s: u64| Instant::now() + Duration::from_secs(s);
        assert_eq!(lines.due_line(1, 6, Instant::now()), None);
        assert_eq!(lines.due_line(1, 6, at(3)).as_deref(), Some("sidelane: demo: 2 of 6 rounds"));
        assert_eq!(lines.due_line(1, 6, at(4)), None);
        assert_eq!(lines.due_line(1, 6, at(20)).as_deref(), Some("sidelane: demo: 4 of 6 rounds"));
        assert_eq!(lines.due_line(2, 6, at(60)), None, "all is done");
    }
}
