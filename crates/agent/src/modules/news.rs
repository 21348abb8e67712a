//! What modules tell.

use sidelane_diagnostics::note::Note;

/// What is to be told of a module beside a service.
#[derive(Debug, PartialEq)]
pub enum News {
    /// What it said.
    Said(String),
    /// What is degraded: it could not go on, for example.
    Noted(Note),
}
