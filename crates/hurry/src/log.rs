//! Audit log of thread moves: the thread, the action, the reason, and the start of its request.

use serde_json::{Map, Value, json};
use sidelane_policy::hurryup::{HurryAction, HurryReason};

use super::pool::NotMoved;
use sidelane_diagnostics::audit::{Audit, Line, decision_fields};

/// Audit log of the mapper.
pub type ThreadAudit = Audit<ThreadDecision>;

/// Decision for one thread, with its reason and the observed state.
#[derive(Clone, Copy, Debug)]
pub struct ThreadDecision {
    /// Id of the thread.
    pub thread: u32,
    /// Action that was taken.
    pub action: HurryAction,
    /// Reason for the action.
    pub why: HurryReason,
    /// State of the thread at the decision.
    pub seen: ThreadState,
}

impl Line for ThreadDecision {
    fn fields(&self) -> Map<String, Value> {
        let (action, cpu) = match self.action {
            HurryAction::Map { cpu, .. } => ("bind", Some(cpu)),
            HurryAction::Hurry { .. } => ("bind_to_big", None),
            HurryAction::Restore { .. } => ("restore", None),
        };
        let mut fields = decision_fields(("thread", self.thread), action, self.why, self.seen.json_fields());
        fields.extend(cpu.map(|cpu| ("cpu".to_owned(), json!(cpu))));
        fields
    }
}

/// State of a thread when it was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// Start time of the thread's request; `None` if it worked on none.
    pub since_ns: Option<u64>,
    /// Present threshold: the time on a little core after which a request is long.
    pub threshold_ns: u64,
    /// Reason why the move failed; `None` if it succeeded.
    pub failed: Option<NotMoved>,
}

impl ThreadState {
    fn json_fields(&self) -> Map<String, Value> {
        let since = self.since_ns.map(|since_ns| ("since_ns", json!(since_ns)));
        let failed = self.failed.map(|failed| ("failed", json!(failed.as_str())));
        let all = since.into_iter().chain([("threshold_ns", json!(self.threshold_ns))]).chain(failed);
        all.map(|(key, value)| (key.to_owned(), value)).collect()
    }
}
