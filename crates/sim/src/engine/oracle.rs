//! The oracle: who knows how much work each request is that has come. A bound for policies, which do not.
//!
//! Batch may go on as long as every request that is here can still keep the objective if batch leaves
//! then. Two kinds are given up, and protect nobody: those that could not keep it any more if batch left
//! now, and those with the most work, which are the dearest to protect; an objective for 99 % of requests
//! leaves one in a hundred for that. How much work is too much is the oracle's budget: the objective's
//! limit less that. Of requests that have not come it knows nothing.

use super::Engine;
use super::watch::Watch;
use crate::time::{NEVER, Nanos};

/// What is left of a request when batch has to go: for the gate to take effect.
const MARGIN_NS: Nanos = 50_000;

impl<W: Watch> Engine<W> {
    /// For how long batch may go on beside what runs on a settled core and what waits for it.
    pub(super) fn foreseen_ns(&self, core: usize, budget_ns: Nanos) -> Nanos {
        let (core, machine) = (&self.cores[core], &self.model.machine);
        let (Some(request), Some(objective)) = (&core.request, self.model.objective) else { return NEVER };
        let alone_ns = |work_ns: f64| (work_ns / machine.speed_of(0)) as Nanos;
        let running = (request.arrived, request.work.ns(), request.left.ns());
        let waiting = self.queues.waiting().map(|next| (next.arrived, next.work_ns as f64, next.work_ns as f64));
        let (mut done_at, mut slack_ns) = (self.now, NEVER);
        for (arrived, work_ns, left_ns) in std::iter::once(running).chain(waiting) {
            done_at = done_at.saturating_add(alone_ns(left_ns));
            let in_time = (arrived + objective.limit_ns).checked_sub(done_at);
            let protected = alone_ns(work_ns) <= objective.limit_ns.saturating_sub(budget_ns);
            slack_ns = slack_ns.min(in_time.filter(|_| protected).unwrap_or(NEVER));
        }
        self.until_lost_ns(slack_ns)
    }

    /// How long batch takes to cost so much, less the margin.
    fn until_lost_ns(&self, slack_ns: Nanos) -> Nanos {
        let classes = self.model.batch.iter().filter_map(|job| job.class());
        let extra = classes.map(|class| self.model.smt.extra(self.model.service.class, class)).fold(0.0, f64::max);
        let harm = extra / (1.0 + extra);
        match slack_ns {
            NEVER => NEVER,
            _ if harm == 0.0 => NEVER,
            _ => (slack_ns.saturating_sub(MARGIN_NS) as f64 / harm) as Nanos,
        }
    }
}
