//! A finding: one thing that this machine can or cannot do, and what to do about it.

use serde_json::{Map, Value, json};

/// What a finding means to somebody who wants to use Sidelane here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is there.
    Works,
    /// It is missing, and `sidelane run` cannot do without it.
    Blocks,
    /// It is missing; `sidelane run` works, but less well.
    Degrades,
    /// It is missing or merely worth knowing; nothing here needs it.
    Optional,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Works => "works",
            State::Blocks => "blocks",
            State::Degrades => "degrades",
            State::Optional => "optional",
        }
    }
}

/// One line of the doctor's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// What it means.
    pub state: State,
    /// What was seen.
    pub detail: String,
    /// What to do about it.
    pub fix: Option<String>,
}

impl Finding {
    /// It is there.
    pub fn works(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, state: State::Works, detail: detail.into(), fix: None }
    }

    /// `sidelane run` cannot do without it.
    pub fn blocks(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, state: State::Blocks, detail: detail.into(), fix: Some(fix.into()) }
    }

    /// `sidelane run` works, but less well.
    pub fn degrades(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, state: State::Degrades, detail: detail.into(), fix: Some(fix.into()) }
    }

    /// Worth knowing.
    pub fn optional(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, state: State::Optional, detail: detail.into(), fix: None }
    }

    /// With what to do about it.
    pub fn with_fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "ok": self.state == State::Works,
            "state": self.state.word(),
            "detail": self.detail,
            "fix": self.fix,
        })
    }

    /// The finding as a note in results, if it is of something missing.
    pub fn to_note(&self) -> Option<String> {
        let missing = matches!(self.state, State::Blocks | State::Degrades);
        let fix = self.fix.as_ref().map_or_else(String::new, |fix| format!("; {fix}"));
        missing.then(|| format!("{}: {}{fix}", self.name, self.detail))
    }
}

/// Findings of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What they have in common.
    pub title: &'static str,
    /// In the order in which they are shown.
    pub findings: Vec<Finding>,
}

/// Every finding, first to last.
pub fn all(groups: &[Group]) -> impl Iterator<Item = &Finding> {
    groups.iter().flat_map(|group| &group.findings)
}

/// By name, for programs.
pub fn to_json(groups: &[Group]) -> Map<String, Value> {
    all(groups).map(|finding| (finding.name.to_owned(), finding.to_json())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(findings: Vec<Finding>) -> [Group; 1] {
        [Group { title: "Kernel", findings }]
    }

    #[test]
    fn programs_get_name_state_and_fix() {
        let json =
            to_json(&group(vec![Finding::degrades("cpuset", "none", "mount it"), Finding::works("BTF", "5 MB")]));
        assert_eq!(json["cpuset"]["ok"], false);
        assert_eq!(json["cpuset"]["fix"], "mount it");
        assert_eq!(json["BTF"]["state"], "works");
        assert_eq!(json["BTF"]["fix"], Value::Null);
    }

    #[test]
    fn results_note_only_what_is_missing() {
        assert_eq!(Finding::works("BTF", "there").to_note(), None);
        assert_eq!(Finding::optional("sched_ext", "none").with_fix("newer kernel").to_note(), None);
        let note = Finding::degrades("cpuset", "none", "mount it").to_note();
        assert_eq!(note.as_deref(), Some("cpuset: none; mount it"));
    }
}
