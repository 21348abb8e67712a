//! The audit log of lanes: what was decided for a lane, why, and what was seen of its core.

use serde_json::{Map, Value, json};
use sidelane_policy::borrow::{Action, Observation, Reason};

use crate::audit::{Audit, Decision, Seen, Weight};

/// What was decided for one batch lane.
pub type LaneDecision = Decision<Observation, Action, Reason>;
/// The pen of a lane's decider.
pub type LaneAudit = Audit<LaneDecision>;

/// `action` for the batch lane `cpu`.
pub fn decision(cpu: u32, action: Action, why: Reason, seen: Observation) -> LaneDecision {
    Decision { on: ("lane", cpu), action, why, seen }
}

impl Weight for Action {
    fn is_event(&self) -> bool {
        matches!(self, Action::Evict | Action::Restore)
    }
}

impl Seen for Observation {
    fn values(&self) -> Map<String, Value> {
        let mut values = Map::new();
        let mut put = |name: &str, value: Value| drop(values.insert(name.to_owned(), value));
        put("request_busy", json!(self.request_busy));
        put("request_since_ns", json!(self.request_since));
        put("service_on_batch_lane", json!(self.service_on_batch_lane));
        let Some(requests) = self.requests else { return values };
        put("queue_len", json!(requests.queue_len));
        if let Some(running) = requests.running {
            put("request", json!(running.number));
            put("arrived_ns", json!(running.arrived));
            put("started_ns", json!(running.started));
            put("waited", json!(running.waited));
        }
        put("budget_ns", json!(self.terms.budget_ns));
        put("harm_ppm", json!(self.terms.harm.ppm()));
        values
    }
}

#[cfg(test)]
mod tests {
    use sidelane_policy::borrow::{Requests, Running};

    use super::*;

    #[test]
    fn what_is_not_known_is_left_out() {
        let seen = Observation { request_busy: true, request_since: 7, ..Observation::default() };
        let values = Value::Object(seen.values());
        assert_eq!(values, json!({ "request_busy": true, "request_since_ns": 7, "service_on_batch_lane": false }));
    }

    #[test]
    fn the_request_that_runs_is_told() {
        let running = Running { number: 3, arrived: 1, started: 2, waited: true };
        let requests = Some(Requests { queue_len: 4, running: Some(running) });
        let values = Observation { requests, ..Observation::default() }.values();
        let told = ["queue_len", "request", "arrived_ns", "started_ns"].map(|name| values[name].as_u64());
        assert_eq!(told, [Some(4), Some(3), Some(1), Some(2)]);
        assert_eq!(values["waited"], true);
    }
}
