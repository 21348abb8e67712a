//! What one server did with the requests that it was sent.

use serde::Serialize;
use sidelane_policy::Nanos;

use super::record::Quality;

/// How a server answered a request, or failed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A response of HTTP with this status.
    Status(u16),
    /// A reply of Redis.
    Reply(Reply),
    /// No answer.
    Error(ServerError),
}

/// A reply of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// No error.
    Value,
    /// An error that is the command's own.
    Error,
    /// An error that another server might not give. The server does its work.
    Refusal,
    /// An error of a server that cannot do its work.
    Failing,
}

/// Why a server gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerError {
    /// No connection could be made.
    Connect,
    /// None came in time.
    Timeout,
    /// The connection was closed or reset before.
    Reset,
    /// What came is no answer.
    Malformed,
}

impl ServerError {
    /// All of them, in the order of [`ServerCounts::errors`].
    pub const ALL: [Self; 4] = [Self::Connect, Self::Timeout, Self::Reset, Self::Malformed];

    /// As it is written in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Reset => "reset",
            Self::Malformed => "malformed",
        }
    }
}

impl Outcome {
    /// Quality of the answer: another server might do better than 5xx and 429.
    pub fn quality(self) -> Quality {
        match self {
            Self::Status(status) if status >= 500 || status == 429 => Quality::Failure,
            Self::Reply(Reply::Refusal | Reply::Failing) | Self::Error(_) => Quality::Failure,
            Self::Status(_) | Self::Reply(_) => Quality::Success,
        }
    }

    /// Whether it is a failure of the server, and not of the request. A server that does not know a method (501) or
    /// limits a client (429) does its work.
    pub fn is_fault(self) -> bool {
        match self {
            Self::Status(status) => status >= 500 && status != 501,
            Self::Reply(reply) => reply == Reply::Failing,
            Self::Error(_) => true,
        }
    }
}

/// Upper bounds of the buckets of [`Durations`], from 0.5 ms to 30 s.
pub const BOUNDS_NS: [Nanos; 14] = {
    const MS: Nanos = 1_000_000;
    let half_ms = MS / 2;
    [
        half_ms,
        MS,
        5 * half_ms,
        5 * MS,
        10 * MS,
        25 * MS,
        50 * MS,
        100 * MS,
        250 * MS,
        500 * MS,
        1_000 * MS,
        2_500 * MS,
        10_000 * MS,
        30_000 * MS,
    ]
};

/// A histogram of durations.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Durations {
    /// How many lie up to each of [`BOUNDS_NS`] and above the one before; the last are above all.
    pub buckets: [u64; BOUNDS_NS.len() + 1],
    /// All together.
    pub sum_ns: Nanos,
}

impl Durations {
    pub(super) fn record(&mut self, duration: Nanos) {
        self.buckets[BOUNDS_NS.partition_point(|bound| *bound < duration)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(duration);
    }

    pub(super) fn add(&mut self, other: &Self) {
        add_each(&mut self.buckets, &other.buckets);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }
}

pub(super) fn add_each(sums: &mut [u64], more: &[u64]) {
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

/// Counted of one server since the start. Requests that warm it up are left out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServerCounts {
    /// Responses of HTTP by the first digit of their status, 1 to 5.
    pub responses: [u64; 5],
    /// Replies of Redis: values, and errors.
    pub replies: [u64; 2],
    /// Requests without an answer, in the order of [`ServerError::ALL`]; connects.
    pub errors: [u64; ServerError::ALL.len()],
    /// How often it was taken out of service because it failed its requests.
    pub ejections: u64,
    /// The last failure of the server.
    #[serde(skip)]
    pub last_fault: Option<Outcome>,
    /// From the moment when a request was sent to the begin of its answer, if that is no failure.
    pub response_time: Durations,
}

impl ServerCounts {
    /// Adds what another table counted of the same server.
    pub fn add(&mut self, other: &Self) {
        let Self { responses, replies, errors, ejections, last_fault: _, response_time } = other;
        add_each(&mut self.responses, responses);
        add_each(&mut self.replies, replies);
        add_each(&mut self.errors, errors);
        self.ejections += ejections;
        self.response_time.add(response_time);
    }

    pub(super) fn note(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Status(status) => {
                let class = usize::from(status / 100).clamp(1, self.responses.len());
                self.responses[class - 1] += 1;
            }
            Outcome::Reply(reply) => self.replies[usize::from(reply != Reply::Value)] += 1,
            Outcome::Error(error) => self.errors[error as usize] += 1,
        }
        if outcome.is_fault() {
            self.last_fault = Some(outcome);
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => write!(f, "status {status}"),
            Self::Reply(Reply::Value) => f.write_str("a value"),
            Self::Reply(_) => f.write_str("an error such as LOADING"),
            Self::Error(ServerError::Connect) => f.write_str("no connection"),
            Self::Error(ServerError::Timeout) => f.write_str("no answer in time"),
            Self::Error(ServerError::Reset) => f.write_str("connection closed before the answer"),
            Self::Error(ServerError::Malformed) => f.write_str("an answer that cannot be read"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_the_server_are_told_from_those_of_the_request() {
        assert!([500, 502, 503, 504, 599].map(Outcome::Status).into_iter().all(Outcome::is_fault));
        assert!(![101, 200, 302, 404, 429, 501].map(Outcome::Status).into_iter().any(Outcome::is_fault));
        assert!(ServerError::ALL.map(Outcome::Error).into_iter().all(Outcome::is_fault));
        let replies = [Reply::Value, Reply::Error, Reply::Refusal, Reply::Failing];
        assert_eq!(replies.map(|reply| Outcome::Reply(reply).is_fault()), [false, false, false, true]);
        assert_eq!(Outcome::Status(501).quality(), Quality::Failure, "the other server may know the method");
    }

    #[test]
    fn durations_are_counted_up_to_each_bound() {
        let mut all = Durations::default();
        [0, 500_000, 500_001, 30_000_000_000, 30_000_000_001].into_iter().for_each(|ns| all.record(ns));
        assert_eq!((all.buckets[0], all.buckets[1], all.buckets[13], all.buckets[14]), (2, 1, 1, 1));
        assert!(BOUNDS_NS.is_sorted());
    }

    #[test]
    fn errors_are_numbered_as_they_are_listed() {
        assert!(ServerError::ALL.into_iter().enumerate().all(|(place, error)| error as usize == place));
    }
}
