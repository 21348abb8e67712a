//! How an exchange ends.

use super::client::Gone;

/// What becomes of the client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Goes,
    Close,
}

/// No answer came.
#[derive(Debug)]
pub(super) enum Failure {
    /// The client is told so.
    Error(u16, &'static str),
    /// The client is gone.
    Gone,
}

impl From<Gone> for Failure {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

pub(super) const LOST: Failure = Failure::Error(502, "no server could be reached, or the one that was asked was lost");
pub(super) const MALFORMED: Failure = Failure::Error(502, "what the server answered is no HTTP");
pub(super) const LATE: Failure = Failure::Error(504, "no server answered in time");
