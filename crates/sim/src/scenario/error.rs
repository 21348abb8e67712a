//! What is wrong with a scenario: where, what, and what would be right.

use thiserror::Error;

/// A scenario that cannot be run.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{file}{}: `{key}` {problem}; allowed: {allowed}", .line.map_or_else(String::new, |line| format!(":{line}")))]
pub struct ScenarioError {
    /// The scenario's file, as it was named.
    pub file: String,
    /// The line, from 1; none where the file has no say.
    pub line: Option<usize>,
    /// The key, from the top of the file.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
    /// What would be right.
    pub allowed: String,
}
