//! Counts of the outcomes of requests at one server.

use serde::Serialize;
use sidelane_policy::Nanos;

use super::record::Quality;

/// Outcome of a request at a server: an answer, or an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerOutcome {
    /// HTTP response with this status.
    Status(u16),
    /// Redis reply.
    Reply(ReplyKind),
    /// No usable answer, for this reason.
    Error(ServerError),
}

/// Kind of a Redis reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// Reply without an error.
    Value,
    /// Error that the command itself causes.
    Error,
    /// Error that another server might not return, although this server works.
    Refusal,
    /// Error of a server that cannot work.
    Failing,
}

/// Reason for which a server gave no usable answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerError {
    /// The connect to the server failed.
    Connect,
    /// The server did not answer in time.
    Timeout,
    /// The connection was closed or reset before the answer.
    Reset,
    /// The answer cannot be parsed.
    Malformed,
}

impl ServerError {
    /// All errors, in the order of [`ServerCounts::errors`].
    pub const ALL: [Self; 4] = [Self::Connect, Self::Timeout, Self::Reset, Self::Malformed];

    /// Returns the name of the error in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Reset => "reset",
            Self::Malformed => "malformed",
        }
    }
}

impl ServerOutcome {
    /// Returns the quality of the answer. Another server might do better for HTTP statuses of 500 and above, and for
    /// 429.
    pub fn quality(self) -> Quality {
        match self {
            Self::Status(status) if status >= 500 || status == 429 => Quality::Failure,
            Self::Reply(ReplyKind::Refusal | ReplyKind::Failing) | Self::Error(_) => Quality::Failure,
            Self::Status(_) | Self::Reply(_) => Quality::Success,
        }
    }

    /// Returns whether the server is at fault, and not the request. A server that does not know a method (501) or
    /// limits a client (429) works as it should.
    pub fn is_fault(self) -> bool {
        match self {
            Self::Status(status) => status >= 500 && status != 501,
            Self::Reply(reply) => reply == ReplyKind::Failing,
            Self::Error(_) => true,
        }
    }
}

/// Upper bounds of the buckets of [`Durations`] in nanoseconds, from 0.5 ms to 30 s.
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

/// Histogram of durations.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Durations {
    /// Number of durations in each bucket. Bucket n ends with bound n of [`BOUNDS_NS`]; the last bucket has no upper
    /// bound.
    pub buckets: [u64; BOUNDS_NS.len() + 1],
    /// Sum of all durations.
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

/// Counts of one server since the start, without warm-up requests.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServerCounts {
    /// Number of HTTP responses by the first digit of their status, 1 to 5.
    pub responses: [u64; 5],
    /// Number of Redis replies: values, and errors.
    pub replies: [u64; 2],
    /// Number of requests without an answer and of failed connects, in the order of [`ServerError::ALL`].
    pub errors: [u64; ServerError::ALL.len()],
    /// Number of ejections of the server after failed requests.
    pub ejections: u64,
    /// Last outcome for which the server was at fault.
    #[serde(skip)]
    pub last_fault: Option<ServerOutcome>,
    /// Histogram of the times from the sending of a request to the begin of its answer, without failures.
    pub response_time: Durations,
}

impl ServerCounts {
    /// Adds the counts of another table for the same server. Leaves `last_fault` unchanged.
    pub fn add(&mut self, other: &Self) {
        let Self { responses, replies, errors, ejections, last_fault: _, response_time } = other;
        add_each(&mut self.responses, responses);
        add_each(&mut self.replies, replies);
        add_each(&mut self.errors, errors);
        self.ejections += ejections;
        self.response_time.add(response_time);
    }

    pub(super) fn record_outcome(&mut self, outcome: ServerOutcome) {
        match outcome {
            ServerOutcome::Status(status) => {
                let class = usize::from(status / 100).clamp(1, self.responses.len());
                self.responses[class - 1] += 1;
            }
            ServerOutcome::Reply(reply) => self.replies[usize::from(reply != ReplyKind::Value)] += 1,
            ServerOutcome::Error(error) => self.errors[error as usize] += 1,
        }
        if outcome.is_fault() {
            self.last_fault = Some(outcome);
        }
    }
}

impl std::fmt::Display for ServerOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => write!(f, "status {status}"),
            Self::Reply(ReplyKind::Value) => f.write_str("a value"),
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
    fn server_faults_are_distinguished_from_request_faults() {
        assert!([500, 502, 503, 504, 599].map(ServerOutcome::Status).into_iter().all(ServerOutcome::is_fault));
        assert!(![101, 200, 302, 404, 429, 501].map(ServerOutcome::Status).into_iter().any(ServerOutcome::is_fault));
        assert!(ServerError::ALL.map(ServerOutcome::Error).into_iter().all(ServerOutcome::is_fault));
        let replies = [ReplyKind::Value, ReplyKind::Error, ReplyKind::Refusal, ReplyKind::Failing];
        assert_eq!(replies.map(|reply| ServerOutcome::Reply(reply).is_fault()), [false, false, false, true]);
        assert_eq!(ServerOutcome::Status(501).quality(), Quality::Failure, "another server may know the method");
    }

    #[test]
    fn bucket_includes_its_upper_bound() {
        let mut all = Durations::default();
        [0, 500_000, 500_001, 30_000_000_000, 30_000_000_001].into_iter().for_each(|ns| all.record(ns));
        assert_eq!((all.buckets[0], all.buckets[1], all.buckets[13], all.buckets[14]), (2, 1, 1, 1));
        assert!(BOUNDS_NS.is_sorted());
    }

    #[test]
    fn error_numbers_follow_the_listed_order() {
        assert!(ServerError::ALL.into_iter().enumerate().all(|(place, error)| error as usize == place));
    }
}
