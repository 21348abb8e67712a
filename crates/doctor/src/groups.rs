//! Cgroups: which of them can be created here, and which control files they have.

use std::io;

use super::finding::Finding;
use sidelane_host::cgroup::{BatchGroup, Hierarchy};

/// Names of the control files that Sidelane uses.
const FREEZE: &str = "cgroup.freeze";
const KILL: &str = "cgroup.kill";
const CPUS: &str = "cpuset.cpus";
const STATE: &str = "freezer.state";

/// Control files of a new cgroup, or the reason why it could not be created; `None` if this machine has no such
/// hierarchy.
type Attempt = Option<Result<Vec<&'static str>, String>>;

/// Result of creating a cgroup in each hierarchy.
#[derive(Debug)]
struct CgroupAttempts {
    v2: Attempt,
    v1_cpuset: Attempt,
    v1_freezer: Attempt,
}

/// Creates cgroups with the name `cgroup_name`, removes them again, and returns the findings about them.
pub fn check_cgroups(cgroup_name: &str) -> Vec<Finding> {
    let all = Hierarchy::all();
    let attempt = |wanted: &dyn Fn(&Hierarchy) -> bool| {
        let hierarchy = all.iter().find(|found| wanted(found))?;
        Some(
            try_cgroup(hierarchy, cgroup_name)
                .map_err(|error| format!("no group in {}: {error}", hierarchy.mount.display())),
        )
    };
    let tried = CgroupAttempts {
        v2: attempt(&Hierarchy::is_v2),
        v1_cpuset: attempt(&|found| found.has_controller("cpuset")),
        v1_freezer: attempt(&|found| found.has_controller("freezer")),
    };
    tried.findings()
}

/// Returns the control files of a new cgroup in the hierarchy.
fn try_cgroup(hierarchy: &Hierarchy, name: &str) -> io::Result<Vec<&'static str>> {
    let leaf = BatchGroup::create(hierarchy, name)?;
    let files = [FREEZE, KILL, CPUS, STATE].into_iter().filter(|file| leaf.has_control_file(file)).collect();
    leaf.remove()?;
    Ok(files)
}

impl CgroupAttempts {
    fn findings(&self) -> Vec<Finding> {
        vec![self.freezer_finding(), self.kill_finding(), self.cpuset_finding()]
    }

    fn freezer_finding(&self) -> Finding {
        const NAME: &str = "cgroup freezer";
        match (has_control_file(&self.v2, FREEZE), has_control_file(&self.v1_freezer, STATE)) {
            (true, true) => Finding::works(NAME, "v2 (v1 is there too and not needed)"),
            (true, false) => Finding::works(NAME, "v2"),
            (false, true) => Finding::works(NAME, "v1"),
            (false, false) => Finding::degrades(
                NAME,
                format!(
                    "none: on a lane that is held for more than 1 s, batch still runs for up to 5 % of the time ({})",
                    failure_reasons([&self.v2, &self.v1_freezer])
                ),
                "mount cgroup v2, and give this process write access to its own group",
            ),
        }
    }

    fn kill_finding(&self) -> Finding {
        const NAME: &str = "cgroup kill";
        match has_control_file(&self.v2, KILL) {
            true => Finding::works(NAME, "v2"),
            false => {
                Finding::optional(NAME, "none: batch is ended process by process").with_fix("cgroup v2, kernel 5.14")
            }
        }
    }

    /// Returns the finding on whether a cgroup can confine batch commands. Adopted batch is confined by its own cgroup,
    /// or thread by thread.
    fn cpuset_finding(&self) -> Finding {
        const NAME: &str = "cgroup cpuset";
        let for_commands =
            |version| format!("{version}, for batch commands; adopted batch needs a group with a cpuset of its own");
        match (has_control_file(&self.v2, CPUS), has_control_file(&self.v1_cpuset, CPUS)) {
            (true, _) => Finding::works(NAME, for_commands("v2")),
            (false, true) => Finding::works(NAME, for_commands("v1")),
            (false, false) => Finding::degrades(
                NAME,
                format!(
                    "none: batch is confined by CPU affinity, which it can change itself ({})",
                    failure_reasons([&self.v2, &self.v1_cpuset])
                ),
                "enable the cpuset controller for this process's group (`echo +cpuset > …/cgroup.subtree_control` \
                 in the group above it, or Delegate=cpuset in its systemd unit)",
            ),
        }
    }
}

/// Returns the reasons why none of `attempts` can be used.
fn failure_reasons(attempts: [&Attempt; 2]) -> String {
    let reasons: Vec<&str> =
        attempts.into_iter().flatten().filter_map(|tried| tried.as_ref().err().map(String::as_str)).collect();
    if reasons.is_empty() { "no hierarchy that has it is mounted".to_owned() } else { reasons.join("; ") }
}

fn has_control_file(attempt: &Attempt, file: &str) -> bool {
    matches!(attempt, Some(Ok(files)) if files.contains(&file))
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    fn finding_states(tried: &CgroupAttempts) -> [State; 3] {
        tried.findings().iter().map(|finding| finding.state).collect::<Vec<_>>().try_into().unwrap()
    }

    #[test]
    fn either_cgroup_version_suffices() {
        let v2 = CgroupAttempts { v2: Some(Ok(vec![FREEZE, KILL, CPUS])), v1_cpuset: None, v1_freezer: None };
        assert_eq!(finding_states(&v2), [State::Works; 3]);
        let v1 = CgroupAttempts { v2: None, v1_cpuset: Some(Ok(vec![CPUS])), v1_freezer: Some(Ok(vec![STATE])) };
        assert_eq!(finding_states(&v1), [State::Works, State::Optional, State::Works]);
    }

    #[test]
    fn refusal_is_reported_with_its_reason() {
        let refused =
            CgroupAttempts { v2: Some(Err("no group in /cg: denied".into())), v1_cpuset: None, v1_freezer: None };
        assert_eq!(finding_states(&refused), [State::Degrades, State::Optional, State::Degrades]);
        assert!(refused.freezer_finding().detail.contains("denied"));
        let none = CgroupAttempts { v2: None, v1_cpuset: None, v1_freezer: None };
        assert!(none.cpuset_finding().detail.contains("no hierarchy"));
    }
}
