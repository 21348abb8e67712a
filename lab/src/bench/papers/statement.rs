//! A statement of a paper, and the number from the simulation that supports or contradicts it.

use super::evidence::Evidence;
use sidelane_report::{Check, Unit};

/// Relative tolerance of a number that the paper's text reads off a curve: the number has two digits, and the paper's
/// own repetitions differ by 2 % (§4).
pub(super) const READ: f64 = 0.05;
/// Relative tolerance of a number that the paper's text calls "about" or "around".
pub(super) const ABOUT: f64 = 0.1;

/// Bound that the paper gives for the number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PaperBound {
    AtMost(f64),
    AtLeast(f64),
}

/// Conclusion that the paper draws from a figure. `E` is the type of the figure's runs.
pub(super) struct Statement<E = Evidence> {
    /// Place of the statement in the paper.
    pub(super) source: &'static str,
    /// Text of the statement, with its number if it has one.
    pub(super) says: &'static str,
    pub(super) wanted: PaperBound,
    pub(super) unit: Unit,
    /// Function that computes the number; it returns `None` if a run is missing.
    pub(super) measured: fn(&E) -> Option<f64>,
}

impl<E> Statement<E> {
    pub(super) fn check(&self, evidence: &E) -> Check {
        let name = format!("{}: {}", self.source, self.says);
        let measured = (self.measured)(evidence);
        match self.wanted {
            PaperBound::AtMost(limit) => Check::at_most(name, measured, rounded_bound(limit), self.unit),
            PaperBound::AtLeast(limit) => Check::at_least(name, measured, rounded_bound(limit), self.unit),
        }
    }
}

/// Rounds a bound, to print 50.35 instead of 50.349999999999994.
fn rounded_bound(limit: f64) -> f64 {
    (limit * 1e4).round() / 1e4
}

/// Returns the statements that do not hold.
#[cfg(test)]
pub(super) fn failing_statements<E>(statements: &[Statement<E>], evidence: &E) -> Vec<&'static str> {
    statements.iter().filter(|statement| !statement.check(evidence).ok).map(|statement| statement.says).collect()
}
