//! Failures of work that is tried again and again: each is printed once.

use sidelane_report::terminal::{Level, eprint_with_level};

/// Failure that was printed last.
#[derive(Default)]
pub struct Warnings {
    printed: Option<String>,
}

impl Warnings {
    /// Prints a failure, unless it was printed last. Returns whether it is one: `None` is a success.
    pub fn print(&mut self, failure: Option<String>) -> bool {
        if let Some(failure) = failure.as_ref().filter(|_| self.printed != failure) {
            warn(failure);
        }
        self.printed = failure;
        self.printed.is_some()
    }
}

/// Prints a warning.
pub fn warn(text: &str) {
    eprint_with_level(Level::Warning, &format!("sidelane-kube: {text}"));
}
