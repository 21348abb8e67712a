//! Summary of a run of the doctor: the verdict for users, the results as JSON.

use serde_json::{Map, Value, json};

use super::finding::{self, Finding, Group, State};
use super::gates::Gate;
use crate::reaction::pair::TestPair;
use sidelane_diagnostics::machine;
use sidelane_host::topology::PairKind;
use sidelane_report::ResultFile;

/// All findings and measurements of a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Findings about the machine, by subject.
    pub groups: Vec<Group>,
    /// Tested gates with their latencies; empty if none could be tested.
    pub gates: Vec<Gate>,
    /// Slowdown of two CPUs by each other, in percent; `None` if it was not measured.
    pub slowdown_percent: Option<f64>,
}

impl Summary {
    /// Returns whether no finding up to now prevents `sidelane run`.
    pub fn allows_run(&self) -> bool {
        self.blocking_findings().is_empty()
    }

    /// Returns the findings that prevent `sidelane run`.
    fn blocking_findings(&self) -> Vec<&Finding> {
        let gates = self.gates.iter().filter_map(Gate::why_unmeasured);
        finding::all_findings(&self.groups).chain(gates).filter(|finding| finding.state == State::Blocks).collect()
    }

    /// Returns 0 if `sidelane run` would work here, else 1.
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.allows_run())
    }

    /// Returns the verdict in words.
    pub fn verdict(&self) -> String {
        let blockers: Vec<&str> = self.blocking_findings().iter().map(|finding| finding.name).collect();
        match blockers.is_empty() {
            true => "`sidelane run` works here.\n".to_owned(),
            false => format!("`sidelane run` does not work here. It needs: {}.\n", blockers.join(", ")),
        }
    }

    /// Returns the results; `pair` is the measured pair of lanes.
    pub fn to_result(&self, pair: Option<&TestPair>, quick: bool) -> ResultFile {
        let kind = pair.map_or(PairKind::Declared, |pair| pair.kind);
        let mut result = ResultFile::new(machine::describe(kind), self.settings(pair, quick));
        result.rows = self.gates.iter().map(Gate::to_row).collect();
        let findings = finding::all_findings(&self.groups).chain(self.gates.iter().filter_map(Gate::why_unmeasured));
        result.notes = findings.filter_map(Finding::to_note).collect();
        result
    }

    fn settings(&self, pair: Option<&TestPair>, quick: bool) -> Map<String, Value> {
        let mut settings = Map::new();
        settings.insert("title".into(), json!("Sidelane doctor"));
        settings.insert("lanes".into(), json!(pair.map(|pair| format!("{}:{}", pair.request, pair.batch))));
        settings.insert("quick".into(), json!(quick));
        settings.insert("run_works".into(), json!(self.allows_run()));
        settings.insert("sibling_slowdown_percent".into(), json!(self.slowdown_percent));
        settings.insert("capabilities".into(), Value::Object(finding::findings_to_json(&self.groups)));
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gates::Outcome;

    fn summary(findings: Vec<Finding>, gate: Finding) -> Summary {
        let gates = vec![Gate { name: gate.name, outcome: Outcome::Unmeasured(gate) }];
        Summary { groups: vec![Group { title: "Kernel", findings }], gates, slowdown_percent: None }
    }

    #[test]
    fn only_blocking_findings_give_exit_code_1() {
        let fine = vec![Finding::works("BTF", "there"), Finding::degrades("cpuset", "none", "mount it")];
        let idle = Finding::optional("SCHED_IDLE", "none");
        let works = summary(fine.clone(), idle.clone());
        assert_eq!((works.exit_code(), works.verdict().as_str()), (0, "`sidelane run` works here.\n"));
        let blocked = summary([fine.clone(), vec![Finding::blocks("SCHED_FIFO", "refused", "root")]].concat(), idle);
        assert_eq!(blocked.exit_code(), 1);
        assert!(blocked.verdict().ends_with("It needs: SCHED_FIFO.\n"));
        let unheld = summary(fine, Finding::blocks("lane holder", "refused", "root"));
        assert_eq!(unheld.exit_code(), 1);
    }

    #[test]
    fn json_has_capabilities_gates_and_missing_features() {
        let findings = vec![Finding::degrades("cpuset", "none", "mount it")];
        let pair = TestPair { request: 0, batch: 1, kind: PairKind::Declared };
        let result = summary(findings, Finding::optional("SCHED_IDLE", "none")).to_result(Some(&pair), true);
        assert_eq!(result.settings["lanes"], "0:1");
        assert_eq!(result.settings["capabilities"]["cpuset"]["fix"], "mount it");
        assert_eq!(result.rows[0].setting(), "SCHED_IDLE");
        assert_eq!(result.rows[0].get("samples_count"), Some(0.0));
        assert_eq!(result.notes, ["cpuset: none; mount it"]);
    }
}
