//! The audit log of lanes: each decision for a lane, its reason, and the observation of its core.

use serde_json::{Map, Value, json};
use sidelane_policy::borrow::{Decision, LaneObservation, LaneState};

use sidelane_diagnostics::audit::{Audit, Line, decision_fields};

/// Audit log of a lane's decisions.
pub type LaneAudit = Audit<LaneDecision>;

/// Decision for a batch lane, with its reason and observation.
#[derive(Clone, Copy, Debug)]
pub struct LaneDecision {
    /// CPU of the batch lane.
    pub cpu: u32,
    /// State that was wanted before this decision.
    pub before: LaneState,
    /// State that is wanted now, with the reason.
    pub decision: Decision,
    /// Observation of the lane's core.
    pub seen: LaneObservation,
}

impl Line for LaneDecision {
    /// Returns whether the decision evicts or restores batch.
    fn is_event(&self) -> bool {
        [self.before, self.decision.state].contains(&LaneState::Evicted)
    }

    fn fields(&self) -> Map<String, Value> {
        decision_fields(("lane", self.cpu), self.action(), self.decision.why, observed_values(&self.seen))
    }
}

impl LaneDecision {
    /// Returns the name of the decision's change of state.
    fn action(&self) -> &'static str {
        match (self.before, self.decision.state) {
            (_, LaneState::Held) => "hold",
            (_, LaneState::Evicted) => "evict",
            (LaneState::Evicted, LaneState::Released | LaneState::Lent) => "restore",
            (_, LaneState::Released) => "release",
            (_, LaneState::Lent) => "lend",
        }
    }
}

/// Returns the observed values that are known, by name.
fn observed_values(seen: &LaneObservation) -> Map<String, Value> {
    let mut values = Map::new();
    let mut put = |name: &str, value: Value| drop(values.insert(name.to_owned(), value));
    put("request_busy", json!(seen.request_busy));
    put("request_since_ns", json!(seen.request_since));
    put("service_on_batch_lane", json!(seen.service_on_batch_lane));
    let Some(requests) = seen.requests else { return values };
    put("queue_len", json!(requests.queue_len));
    if let Some(running) = requests.running {
        put("request", json!(running.number));
        put("arrived_ns", json!(running.arrived));
        put("started_ns", json!(running.started));
        put("waited", json!(running.waited));
    }
    put("budget_ns", json!(seen.limits.budget_ns));
    put("contention_cost_ppm", json!(seen.limits.contention_cost.ppm()));
    values
}

#[cfg(test)]
mod tests {
    use sidelane_policy::borrow::{LaneReason, Requests, RunningRequest};

    use super::*;

    #[test]
    fn unknown_values_are_left_out() {
        let seen = LaneObservation { request_busy: true, request_since: 7, ..LaneObservation::default() };
        let values = Value::Object(observed_values(&seen));
        assert_eq!(values, json!({ "request_busy": true, "request_since_ns": 7, "service_on_batch_lane": false }));
    }

    #[test]
    fn running_request_is_in_the_log() {
        let running = RunningRequest { number: 3, arrived: 1, started: 2, waited: true };
        let requests = Some(Requests { queue_len: 4, running: Some(running) });
        let values = observed_values(&LaneObservation { requests, ..LaneObservation::default() });
        let told = ["queue_len", "request", "arrived_ns", "started_ns"].map(|name| values[name].as_u64());
        assert_eq!(told, [Some(4), Some(3), Some(1), Some(2)]);
        assert_eq!(values["waited"], true);
    }

    #[test]
    fn only_a_change_to_or_from_an_eviction_is_an_event() {
        use LaneState::{Evicted, Held, Lent, Released};
        for (before, state, action, is_event) in [
            (Released, Held, "hold", false),
            (Held, Released, "release", false),
            (Released, Lent, "lend", false),
            (Held, Evicted, "evict", true),
            (Evicted, Released, "restore", true),
            (Evicted, Lent, "restore", true),
        ] {
            let decision = Decision { state, why: LaneReason::Start };
            let line = LaneDecision { cpu: 1, before, decision, seen: LaneObservation::default() };
            assert_eq!((line.fields()["action"].as_str(), line.is_event()), (Some(action), is_event));
        }
    }
}
