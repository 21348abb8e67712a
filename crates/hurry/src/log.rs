//! The audit log of threads: which was moved, why, and since when its request was there.

use serde_json::{Map, Value, json};
use sidelane_policy::hurryup::{Action, Reason};

use super::pool::NotMoved;
use sidelane_diagnostics::audit::{Audit, Line, decision};

/// The audit log of the mapper.
pub type ThreadAudit = Audit<ThreadDecision>;

/// What was decided for one thread, why, and what was seen.
#[derive(Clone, Copy, Debug)]
pub struct ThreadDecision {
    /// The thread.
    pub thread: u32,
    /// What was done.
    pub action: Action,
    /// Why.
    pub why: Reason,
    /// What was seen.
    pub seen: AtWork,
}

impl Line for ThreadDecision {
    fn fields(&self) -> Map<String, Value> {
        decision(("thread", self.thread), self.action, self.why, self.seen.values())
    }
}

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

impl AtWork {
    fn values(&self) -> Map<String, Value> {
        let since = self.since_ns.map(|since_ns| ("since_ns", json!(since_ns)));
        let failed = self.failed.map(|failed| ("failed", json!(failed.word())));
        let all = since.into_iter().chain([("threshold_ns", json!(self.threshold_ns))]).chain(failed);
        all.map(|(key, value)| (key.to_owned(), value)).collect()
    }
}
