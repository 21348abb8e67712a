//! The oracle: a decider that knows the work of each request that has arrived. It is an upper bound for policies,
//! which do not know that work.
//!
//! Batch may run as long as every request in the system still meets the objective if batch leaves at that time. The
//! oracle gives up two kinds of requests and does not protect them: those that could not meet the objective even if
//! batch left now, and those with the most work, which are the most expensive to protect. An objective for 99 % of
//! requests allows that for one in a hundred. The oracle's budget determines how much work is too much: the
//! objective's limit less the budget. It knows nothing of requests that have not arrived.

use super::Engine;
use super::watch::Watch;
use crate::time::{NEVER, Nanos};

/// Safety margin of the oracle, in nanoseconds: batch has to leave when a request's slack is down to this, since
/// leaving takes time.
const MARGIN_NS: Nanos = 50_000;

impl<W: Watch> Engine<W> {
    /// Returns for how long batch may run beside the running and the waiting requests of a core, whose work is booked
    /// up to now; `NEVER` without a limit.
    pub(super) fn permitted_batch_time_ns(&self, core: usize, budget_ns: Nanos) -> Nanos {
        let (core, machine) = (&self.cores[core], &self.model.machine);
        let (Some(request), Some(objective)) = (&core.request, self.model.objective) else { return NEVER };
        let alone_ns = |work_ns: f64| (work_ns / machine.speed_of(0)) as Nanos;
        let running = (request.arrived, request.work.ns(), request.left.ns());
        let waiting =
            self.queues.waiting_in_first_queue().map(|next| (next.arrived, next.work_ns as f64, next.work_ns as f64));
        let (mut done_at, mut slack_ns) = (self.now, NEVER);
        for (arrived, work_ns, left_ns) in std::iter::once(running).chain(waiting) {
            done_at = done_at.saturating_add(alone_ns(left_ns));
            let in_time = (arrived + objective.limit_ns).checked_sub(done_at);
            let protected = alone_ns(work_ns) <= objective.limit_ns.saturating_sub(budget_ns);
            slack_ns = slack_ns.min(in_time.filter(|_| protected).unwrap_or(NEVER));
        }
        self.batch_time_until_delay_ns(slack_ns)
    }

    /// Returns how long batch may run until it has delayed requests by `slack_ns`, less the margin; `NEVER` if batch
    /// does not delay them.
    fn batch_time_until_delay_ns(&self, slack_ns: Nanos) -> Nanos {
        let classes = self.model.batch.iter().filter_map(|job| job.first_computing_class());
        let extra =
            classes.map(|class| self.model.smt.extra_slowdown(self.model.service.class, class)).fold(0.0, f64::max);
        let contention_cost = extra / (1.0 + extra);
        match slack_ns {
            NEVER => NEVER,
            _ if contention_cost == 0.0 => NEVER,
            _ => (slack_ns.saturating_sub(MARGIN_NS) as f64 / contention_cost) as Nanos,
        }
    }
}
