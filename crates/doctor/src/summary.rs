//! Summary of a run of the doctor: the verdict for users, the results as JSON.

use serde_json::{Map, Value, json};

use super::finding::{self, Finding, Group, State};
use super::gates::Gate;
use super::siblings;
use crate::reaction::pair::TestPair;
use sidelane_diagnostics::machine;
use sidelane_host::topology::PairKind;
use sidelane_report::ResultFile;

/// Number of problems that are shown below the verdict.
const PROBLEMS_SHOWN: usize = 3;

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

    /// Returns the verdict in words: whether `sidelane run` works on this machine, and what it can gain on `pair`.
    pub fn verdict(&self, pair: Option<&TestPair>) -> String {
        let blockers: Vec<&str> = self.blocking_findings().iter().map(|finding| finding.name).collect();
        if !blockers.is_empty() {
            return format!("`sidelane run` does not work here. It needs: {}.", blockers.join(", "));
        }
        let gain = pair.map_or_else(String::new, |pair| format!(" {}", self.gain_sentence(pair)));
        format!("`sidelane run` works here.{gain}")
    }

    /// Returns what Sidelane can gain on these lanes.
    fn gain_sentence(&self, pair: &TestPair) -> String {
        let (request, batch) = (pair.request, pair.batch);
        let percent = self.slowdown_percent.map(|percent| percent.max(0.0).round());
        let measured = percent.map_or_else(String::new, |percent| format!(" by {percent} %"));
        match pair.kind == PairKind::Smt || siblings::is_sibling(self.slowdown_percent) {
            true => format!(
                "It can gain much: CPUs {request} and {batch} slow each other down{measured}, and Sidelane keeps batch \
                 off while the service works."
            ),
            false => format!(
                "It can gain little: CPUs {request} and {batch} share no core and slow each other down{measured}. A \
                 figure for your service: sidelane compare --service port:PORT --lanes {request}:{batch} -- COMMAND"
            ),
        }
    }

    /// Returns the problems that matter most: first those that prevent `sidelane run`.
    pub fn top_problems(&self) -> Vec<&Finding> {
        let gates = self.gates.iter().filter_map(Gate::why_unmeasured);
        let degrading = finding::all_findings(&self.groups).chain(gates).filter(|one| one.state == State::Degrades);
        self.blocking_findings().into_iter().chain(degrading).take(PROBLEMS_SHOWN).collect()
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
        assert_eq!((works.exit_code(), works.verdict(None).as_str()), (0, "`sidelane run` works here."));
        let blocked = summary([fine.clone(), vec![Finding::blocks("SCHED_FIFO", "refused", "root")]].concat(), idle);
        assert_eq!(blocked.exit_code(), 1);
        assert!(blocked.verdict(None).ends_with("It needs: SCHED_FIFO."));
        let problems: Vec<&str> = blocked.top_problems().iter().map(|problem| problem.name).collect();
        assert_eq!(problems, ["SCHED_FIFO", "cpuset"], "what prevents a run comes first");
        let unheld = summary(fine, Finding::blocks("lane holder", "refused", "root"));
        assert_eq!(unheld.exit_code(), 1);
    }

    #[test]
    fn verdict_names_what_the_lanes_can_gain() {
        let verdict = |kind, slowdown_percent| {
            let summary = Summary { slowdown_percent: Some(slowdown_percent), ..Summary::default() };
            summary.verdict(Some(&TestPair { request: 0, batch: 1, kind }))
        };
        assert!(verdict(PairKind::Declared, 0.4).contains("It can gain little: CPUs 0 and 1 share no core"));
        assert!(
            verdict(PairKind::Declared, 31.0).contains("It can gain much: CPUs 0 and 1 slow each other down by 31 %")
        );
        assert!(verdict(PairKind::Smt, 3.0).contains("It can gain much"));
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
