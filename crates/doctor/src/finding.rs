//! A finding: one property of this machine, and what the user can do about it.

use serde_json::{Map, Value, json};

/// What a finding means for using Sidelane here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It works.
    Works,
    /// It is missing, and `sidelane run` needs it.
    Blocks,
    /// It is missing; `sidelane run` works, but less well.
    Degrades,
    /// It is missing or only informative; `sidelane run` does not need it.
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
    /// The name of the tested property.
    pub name: &'static str,
    /// Its state.
    pub state: State,
    /// The details.
    pub detail: String,
    /// What the user can do about it.
    pub fix: Option<String>,
}

impl Finding {
    /// A property that works.
    pub fn works(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, state: State::Works, detail: detail.into(), fix: None }
    }

    /// A missing property that `sidelane run` needs.
    pub fn blocks(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, state: State::Blocks, detail: detail.into(), fix: Some(fix.into()) }
    }

    /// A missing property without which `sidelane run` works less well.
    pub fn degrades(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, state: State::Degrades, detail: detail.into(), fix: Some(fix.into()) }
    }

    /// An informative finding.
    pub fn optional(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, state: State::Optional, detail: detail.into(), fix: None }
    }

    /// Adds what the user can do about it.
    pub fn with_fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }

    /// The finding as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "ok": self.state == State::Works,
            "state": self.state.word(),
            "detail": self.detail,
            "fix": self.fix,
        })
    }

    /// The finding as a note in results, if the property is missing.
    pub fn to_note(&self) -> Option<String> {
        let missing = matches!(self.state, State::Blocks | State::Degrades);
        let fix = self.fix.as_ref().map_or_else(String::new, |fix| format!("; {fix}"));
        missing.then(|| format!("{}: {}{fix}", self.name, self.detail))
    }
}

/// Findings of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The subject of the findings.
    pub title: &'static str,
    /// The findings in display order.
    pub findings: Vec<Finding>,
}

/// All findings, in order.
pub fn all(groups: &[Group]) -> impl Iterator<Item = &Finding> {
    groups.iter().flat_map(|group| &group.findings)
}

/// The findings by name, as JSON.
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
