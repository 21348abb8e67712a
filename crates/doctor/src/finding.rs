//! Finding: one property of this machine, and what the user can do about it.

use serde_json::{Map, Value, json};

/// Meaning of a finding for the use of Sidelane on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The property works.
    Works,
    /// The property is missing, and `sidelane run` needs it.
    Blocks,
    /// The property is missing; `sidelane run` works, but less well.
    Degrades,
    /// The property is missing or only informative; `sidelane run` does not need it.
    Optional,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            State::Works => "works",
            State::Blocks => "blocks",
            State::Degrades => "degrades",
            State::Optional => "optional",
        }
    }
}

/// Finding about one property, a line of the doctor's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the tested property.
    pub name: &'static str,
    /// State of the property.
    pub state: State,
    /// Details of the finding, in words.
    pub detail: String,
    /// Advice for the user; `None` if there is nothing to do.
    pub fix: Option<String>,
}

impl Finding {
    /// Creates a finding on a property that works.
    pub fn works(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, state: State::Works, detail: detail.into(), fix: None }
    }

    /// Creates a finding on a missing property that `sidelane run` needs.
    pub fn blocks(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, state: State::Blocks, detail: detail.into(), fix: Some(fix.into()) }
    }

    /// Creates a finding on a missing property without which `sidelane run` works less well.
    pub fn degrades(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, state: State::Degrades, detail: detail.into(), fix: Some(fix.into()) }
    }

    /// Creates an informative finding.
    pub fn optional(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, state: State::Optional, detail: detail.into(), fix: None }
    }

    /// Adds advice for the user to the finding.
    pub fn with_fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }

    /// Returns the finding as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "ok": self.state == State::Works,
            "state": self.state.as_str(),
            "detail": self.detail,
            "fix": self.fix,
        })
    }

    /// Returns the finding as a note in results, if the property is missing; else `None`.
    pub fn to_note(&self) -> Option<String> {
        let missing = matches!(self.state, State::Blocks | State::Degrades);
        let fix = self.fix.as_ref().map_or_else(String::new, |fix| format!("; {fix}"));
        missing.then(|| format!("{}: {}{fix}", self.name, self.detail))
    }
}

/// Findings about one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Subject of the findings, displayed as a title.
    pub title: &'static str,
    /// Findings in display order.
    pub findings: Vec<Finding>,
}

/// Returns all findings of all groups, in order.
pub fn all_findings(groups: &[Group]) -> impl Iterator<Item = &Finding> {
    groups.iter().flat_map(|group| &group.findings)
}

/// Returns the findings as JSON, by their names.
pub fn findings_to_json(groups: &[Group]) -> Map<String, Value> {
    all_findings(groups).map(|finding| (finding.name.to_owned(), finding.to_json())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single_group_with(findings: Vec<Finding>) -> [Group; 1] {
        [Group { title: "Kernel", findings }]
    }

    #[test]
    fn json_has_name_state_and_fix() {
        let json = findings_to_json(&single_group_with(vec![
            Finding::degrades("cpuset", "none", "mount it"),
            Finding::works("BTF", "5 MB"),
        ]));
        assert_eq!(json["cpuset"]["ok"], false);
        assert_eq!(json["cpuset"]["fix"], "mount it");
        assert_eq!(json["BTF"]["state"], "works");
        assert_eq!(json["BTF"]["fix"], Value::Null);
    }

    #[test]
    fn only_missing_properties_become_notes() {
        assert_eq!(Finding::works("BTF", "there").to_note(), None);
        assert_eq!(Finding::optional("sched_ext", "none").with_fix("newer kernel").to_note(), None);
        let note = Finding::degrades("cpuset", "none", "mount it").to_note();
        assert_eq!(note.as_deref(), Some("cpuset: none; mount it"));
    }
}
