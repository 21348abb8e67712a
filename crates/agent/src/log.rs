//! The audit log of CPUs: each decision, its target, its reason, and the observation.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sidelane_policy::Nanos;
use sidelane_policy::cpus::{CpuAction, CpuReason, MachineObservation};

use super::tracked::Tracked;
use crate::status::DecisionStatus;
use sidelane_diagnostics::audit::{Audit, Line};
use sidelane_rollback::cpu_mask::to_cpu_set;

/// Writer of the agent's decisions on CPUs.
pub type CpuAudit = Audit<CpuLine>;

/// Line of the audit log: a decision with its circumstances.
#[derive(Clone, Debug)]
pub struct CpuLine {
    /// Action that was decided.
    pub action: CpuAction,
    /// Name of the container or service, from the file or the machine.
    pub name: Arc<str>,
    /// Reason of the decision.
    pub why: CpuReason,
    /// Observation on which the decision was made.
    pub seen: LoggedObservation,
}

/// Last decisions, the newest last.
#[derive(Debug, Default)]
pub struct LastDecisions(VecDeque<(Nanos, CpuLine)>);

impl LastDecisions {
    /// Number of decisions that are kept.
    const KEPT: usize = 32;

    /// Adds a decision.
    pub fn add(&mut self, at_ns: Nanos, line: CpuLine) {
        if self.0.len() == Self::KEPT {
            self.0.pop_front();
        }
        self.0.push_back((at_ns, line));
    }

    /// Returns the decisions as text.
    pub fn status(&self, now_ns: Nanos) -> Vec<DecisionStatus> {
        let status = self.0.iter().map(|(at_ns, line)| DecisionStatus {
            ago_s: now_ns.saturating_sub(*at_ns) as f64 / 1e9,
            action: sentence(line.action, &line.name),
            why: line.why.to_string(),
        });
        status.collect()
    }
}

/// Observed values of the whole machine, as logged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoggedObservation {
    /// Highest interference on any CPU, with the number of this CPU; `None` if unknown.
    pub interference: Option<(f64, u32)>,
    /// Interference threshold; `None` if the policy does not use interference.
    pub threshold: Option<f64>,
    /// CPU time of all tasks, in CPUs.
    pub busy: f64,
    /// CPU time of services, in CPUs.
    pub serving: f64,
    /// Number of CPUs that are online and claimed by the agent.
    pub cpus: usize,
}

impl LoggedObservation {
    /// Returns the values of an observation that are logged.
    pub fn from_observation(observation: &MachineObservation, threshold: Option<f64>) -> Self {
        let online = || observation.cpus.iter().enumerate().filter(|(_, cpu)| cpu.online);
        let most = online().filter_map(|(number, cpu)| Some((cpu.interference?, number as u32)));
        Self {
            interference: most.max_by(|one, other| one.0.total_cmp(&other.0)),
            threshold,
            busy: online().map(|(_, cpu)| cpu.busy).sum(),
            serving: online().map(|(_, cpu)| cpu.serving).sum(),
            cpus: online().count(),
        }
    }

    fn values(&self) -> Map<String, Value> {
        let mut values = Map::new();
        let mut put = |name: &str, value: Value| drop(values.insert(name.to_owned(), value));
        if let Some((value, cpu)) = self.interference {
            put("interference", json!(value));
            put("interference_cpu", json!(cpu));
        }
        self.threshold.into_iter().for_each(|e| put("threshold", json!(e)));
        put("busy_cpus", json!(self.busy));
        put("serving_cpus", json!(self.serving));
        put("cpus_count", json!(self.cpus));
        values
    }
}

impl Line for CpuLine {
    fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
        let (whom, word, cpus) = describe_action(self.action);
        put(whom, json!(&*self.name));
        put("action", json!(word));
        cpus.into_iter().for_each(|cpus| put("cpus", json!(cpus)));
        put("why", json!(self.why.to_string()));
        put("seen", Value::Object(self.seen.values()));
        fields
    }
}

/// Returns the kind of the action's target, a word for the action, and the CPUs if the action has any.
pub fn describe_action(action: CpuAction) -> (&'static str, &'static str, Option<String>) {
    match action {
        CpuAction::Confine { cpus, .. } => ("container", "confine", Some(cpus.to_string())),
        CpuAction::Pause { .. } => ("container", "pause", None),
        CpuAction::Place { cpus, .. } => ("service", "place", Some(cpus.to_string())),
    }
}

/// Returns the action as a sentence; `name` is its target.
pub fn sentence(action: CpuAction, name: &str) -> String {
    match action {
        CpuAction::Confine { cpus, .. } => format!("run {name} on CPUs {}", to_cpu_set(&cpus)),
        CpuAction::Pause { .. } => format!("pause {name}"),
        CpuAction::Place { cpus, .. } => format!("place {name} on CPUs {}", to_cpu_set(&cpus)),
    }
}

/// Returns the name of the action's target.
pub fn target_name(action: CpuAction, tracked: &Tracked) -> Arc<str> {
    let container = |place| tracked.containers.get(place).map(|contained| contained.container.name.as_str());
    let service = |place| tracked.services.get(place).map(|served| served.found.name.as_str());
    let name = match action {
        CpuAction::Confine { container: place, .. } | CpuAction::Pause { container: place } => container(place),
        CpuAction::Place { service: place, .. } => service(place),
    };
    name.unwrap_or("(already removed)").into()
}

#[cfg(test)]
mod tests {
    use sidelane_policy::cpus::{CpuMask, CpuObservation};

    use super::*;

    #[test]
    fn log_line_has_container_action_reason_and_observation() {
        let mut seen = MachineObservation::default();
        seen.cpus[3] = CpuObservation { online: true, busy: 1.0, serving: 0.5, interference: Some(41.5) };
        let cpus: CpuMask = [1, 2].into_iter().collect();
        let action = CpuAction::Confine { container: 7, cpus };
        let seen = LoggedObservation::from_observation(&seen, Some(40.0));
        let line = CpuLine { action, name: "/batch/a".into(), why: CpuReason::Interference, seen };
        let told = Value::Object(line.fields());
        let expected = json!({
            "container": "/batch/a", "action": "confine", "cpus": "1-2",
            "why": "interference reached the threshold on a CPU of a service",
            "seen": { "interference": 41.5, "interference_cpu": 3, "threshold": 40.0, "busy_cpus": 1.0,
                      "serving_cpus": 0.5, "cpus_count": 1 }
        });
        assert_eq!(told, expected);
    }
}
