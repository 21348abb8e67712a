//! An error in a scenario: its place, the error, and the allowed values.

use thiserror::Error;

/// A scenario that cannot be run.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{file}{}: `{key}` {problem}; allowed: {allowed}", .line.map_or_else(String::new, |line| format!(":{line}")))]
pub struct ScenarioError {
    /// The scenario's file, as the user named it.
    pub file: String,
    /// The line, from 1 on; `None` if no line of the file is the cause.
    pub line: Option<usize>,
    /// The key, with its whole path.
    pub key: String,
    /// The error.
    pub problem: String,
    /// The allowed values.
    pub allowed: String,
}
