//! Helpers for hand-computed histories in the rules' tests, in a notation as short as in Elfen's figure.

extern crate std;

use std::vec::Vec;

use crate::Nanos;
use crate::borrow::lane::Rule;
use crate::borrow::observation::{ContentionCost, LaneObservation, LendingLimits, Requests, RunningRequest};

/// State of the request lane at one check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneObservationBuilder {
    busy: bool,
    since: Nanos,
    queue_len: u32,
    running: Option<RunningRequest>,
}

/// Time of a check, and the state of the lane then.
pub(crate) type TimedBuilder = (Nanos, LaneObservationBuilder);

/// Returns a request lane that has been idle since `since`.
pub(crate) fn idle_lane(since: Nanos) -> LaneObservationBuilder {
    LaneObservationBuilder { busy: false, since, queue_len: 0, running: None }
}

/// Returns a request lane that has been busy since `since`, when request `number` arrived and started.
pub(crate) fn busy_lane(number: u64, since: Nanos) -> LaneObservationBuilder {
    LaneObservationBuilder {
        busy: true,
        since,
        queue_len: 0,
        running: Some(RunningRequest { number, arrived: since, started: since, waited: false }),
    }
}

impl LaneObservationBuilder {
    pub(crate) fn with_start(mut self, started: Nanos) -> Self {
        self.running = self.running.map(|running| RunningRequest { started, ..running });
        self
    }

    pub(crate) fn with_arrival(mut self, arrived: Nanos) -> Self {
        self.running = self.running.map(|running| RunningRequest { arrived, ..running });
        self
    }

    pub(crate) fn with_waited_request(mut self) -> Self {
        self.running = self.running.map(|running| RunningRequest { waited: true, ..running });
        self
    }

    pub(crate) fn with_queue_len(mut self, queue_len: u32) -> Self {
        self.queue_len = queue_len;
        self
    }

    pub(crate) fn build(self, budget_ns: Nanos, contention_cost_ppm: u32) -> LaneObservation {
        LaneObservation {
            request_busy: self.busy,
            request_since: self.since,
            last_idle_ns: 0,
            service_on_batch_lane: false,
            requests: Some(Requests { queue_len: self.queue_len, running: self.running }),
            limits: LendingLimits {
                budget_ns,
                contention_cost: ContentionCost::from_ppm(contention_cost_ppm),
                ..LendingLimits::default()
            },
        }
    }
}

/// Passes each observation of `looks` to `rule`. Returns its answers: the times until which batch may run.
pub(crate) fn rule_answers(
    rule: &mut impl Rule,
    budget_ns: Nanos,
    contention_cost_ppm: u32,
    looks: &[TimedBuilder],
) -> Vec<Option<Nanos>> {
    looks.iter().map(|(now, scene)| rule.co_run_until(*now, &scene.build(budget_ns, contention_cost_ppm))).collect()
}
