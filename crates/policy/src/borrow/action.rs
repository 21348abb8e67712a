//! What a borrowing policy answers: what to do to a batch lane, and why.

use core::fmt;

/// One thing to do to a batch lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Keep the lane empty, from now on.
    Hold,
    /// Let batch run until the service starts.
    Release,
    /// Let batch run, and go on when the service starts; where [`super::PolicyKind::spares_waited`],
    /// not with a request that had to wait. The policy looks again by itself.
    Lend,
    /// Send batch away from the lane and leave the lane to the kernel.
    Evict,
    /// Bring batch back to the lane it was evicted from, and let it run.
    Restore,
}

/// Why a policy last did, or did not do, something. Goes into the audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// Nothing has been seen yet.
    #[default]
    Start,
    /// The service runs on a request lane.
    RequestBusy,
    /// The request lanes are idle, but not yet for as long as a release is worth.
    IdleTooShort,
    /// The request lanes have been idle for `min_idle_ns`.
    RequestIdle,
    /// The lane was held so long that the kernel would soon give time to batch by itself.
    HeldTooLong,
    /// The service has threads on the batch lane.
    ServiceOnBatchLane,
    /// Batch runs beside a request, on its budget.
    CoRunning,
    /// Batch ran beside a request for as long as its budget allows.
    BudgetSpent,
    /// A request runs that had to wait: it has nothing to give away.
    RequestWaited,
    /// A request runs that is too old, or has too many behind it.
    RequestTooOld,
    /// Batch is kept off the lane, whatever the service does: [`super::Terms::kept_off`].
    KeptOff,
    /// Batch's time on the lane is over: whoever kept it leaves.
    End,
}

impl Reason {
    /// All of them, each at its number.
    pub const ALL: [Self; 12] = [
        Self::Start,
        Self::RequestBusy,
        Self::IdleTooShort,
        Self::RequestIdle,
        Self::HeldTooLong,
        Self::ServiceOnBatchLane,
        Self::CoRunning,
        Self::BudgetSpent,
        Self::RequestWaited,
        Self::RequestTooOld,
        Self::KeptOff,
        Self::End,
    ];
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Start => "nothing seen yet",
            Reason::RequestBusy => "the service runs",
            Reason::IdleTooShort => "the service stopped a moment ago",
            Reason::RequestIdle => "the service is idle",
            Reason::HeldTooLong => "held too long to stay out of the kernel's way",
            Reason::ServiceOnBatchLane => "the service has threads on the batch lane",
            Reason::CoRunning => "a request has budget left",
            Reason::BudgetSpent => "the request's budget is spent",
            Reason::RequestWaited => "a request that had to wait runs",
            Reason::RequestTooOld => "a request runs that is too old, or has too many behind it",
            Reason::End => "the run is over",
            Reason::KeptOff => "batch is kept off, to compare requests without it or to spare them",
        })
    }
}

impl crate::Reason for Reason {}

/// The actions of one observation.
pub type Actions = crate::Actions<Action>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_at_its_number() {
        Reason::ALL.iter().enumerate().for_each(|(place, why)| assert_eq!(*why as usize, place));
    }
}
