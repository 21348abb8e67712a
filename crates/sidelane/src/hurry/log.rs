//! The audit log of threads: which was moved, why, and since when its request was there.

use serde_json::{Map, Value, json};
use sidelane_policy::hurryup::{Action, Reason};

use super::pool::NotMoved;
use crate::audit::{Audit, Decision, Seen, Weight};

/// What was decided for one thread.
pub type ThreadDecision = Decision<AtWork, Action, Reason>;
/// The pen.
pub type ThreadAudit = Audit<ThreadDecision>;

/// A thread when it was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtWork {
    /// Since when it worked on its request, if it did.
    pub since_ns: Option<u64>,
    /// The time on a little core after which a request is long.
    pub threshold_ns: u64,
    /// Why it is where it was before, if it is.
    pub failed: Option<NotMoved>,
}

impl Weight for Action {}

impl Seen for AtWork {
    fn values(&self) -> Map<String, Value> {
        let since = self.since_ns.map(|since_ns| ("since_ns", json!(since_ns)));
        let failed = self.failed.map(|failed| ("failed", json!(failed.word())));
        let all = since.into_iter().chain([("threshold_ns", json!(self.threshold_ns))]).chain(failed);
        all.map(|(key, value)| (key.to_owned(), value)).collect()
    }
}
