//! How an exchange ends.

use super::client::Gone;

/// What becomes of the client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Goes,
    Close,
    /// The proxy drains: the connection is closed once the client has closed its side, which may have sent more.
    Dismiss,
    /// It is closed once the client has sent the rest of its request, which is dropped.
    Linger,
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
pub(super) const SLOW: Failure = Failure::Error(
    408,
    "the body of the request came too slowly: less than 500 bytes a second on average, or nothing within the idle time",
);
pub(super) const LATE: Failure = Failure::Error(504, "no server answered in time");
