//! Preflight errors: all obstacles to a run at once, and the command that would work.

use std::ffi::OsStr;
use std::fmt;

use super::placement::PlacementError;
use sidelane_host::capabilities::Capabilities;
use sidelane_host::topology::LaneError;

/// Advice for an unprivileged user on how to get all privileges needed.
pub const GRANT: &str =
    "run as root, or `setcap cap_bpf,cap_perfmon,cap_sys_nice,cap_ipc_lock+ep` on the sidelane binary";

/// Index of the first argument after the program and its verb.
const AFTER_VERB: usize = 2;

/// Errors for all obstacles to a run.
#[derive(Debug, Default)]
pub struct PreflightErrors {
    problems: Vec<anyhow::Error>,
    lacks_privileges: bool,
}

impl PreflightErrors {
    /// Makes a list with an error for the privileges that this process lacks, or an empty list.
    pub fn from_missing_privileges() -> Self {
        let mut errors = Self::default();
        errors.add_missing_privileges(&Capabilities::own().missing_for_bpf());
        errors
    }

    /// Returns the value, or adds the error and returns `None`.
    pub fn collect_error<T, E: Into<anyhow::Error>>(&mut self, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.problems.push(error.into())).ok()
    }

    /// Adds an error for missing privileges. Without them, objects that exist may not be seen.
    fn add_missing_privileges(&mut self, missing: &[&str]) {
        if !missing.is_empty() {
            self.lacks_privileges = true;
            self.problems.insert(0, anyhow::anyhow!("this process lacks {}; {GRANT}", missing.join(" and ")));
        }
    }

    /// Returns whether privileges are missing.
    pub fn lacks_privileges(&self) -> bool {
        self.lacks_privileges
    }

    /// Returns `found` if there are no errors.
    ///
    /// # Errors
    /// All obstacles; there is at least one if nothing was found.
    pub fn into_result<T>(self, found: Option<T>) -> Result<T, Self> {
        match self.problems[..] {
            [] => Ok(found.expect("nothing was in the way")),
            _ => Err(self),
        }
    }

    /// Returns the command line with options added that remove all obstacles; `None` if such options are unknown.
    pub fn corrected_command_line<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Option<String> {
        let needs_pin = |error: &anyhow::Error| {
            matches!(error.downcast_ref::<PlacementError>(), Some(PlacementError::ServiceOnBatchLane { .. }))
        };
        let lanes: Vec<(u32, u32, bool)> = self.problems.iter().filter_map(declarable_lanes).collect();
        let pins = self.problems.iter().filter(|error| needs_pin(error)).count();
        // With several services, each needs lanes of its own.
        if lanes.len() > 1 || pins + lanes.len() + usize::from(self.lacks_privileges) != self.problems.len() {
            return None;
        }
        let mut words: Vec<String> = arguments.into_iter().map(|word| quoted(word.as_ref())).collect();
        let at = AFTER_VERB.min(words.len());
        if pins > 0 || lanes.iter().any(|(.., needs_pin)| *needs_pin) {
            words.insert(at, "--pin-service".to_owned());
        }
        for (request, batch, _) in lanes {
            words.splice(at..at, ["--lanes".to_owned(), format!("{request}:{batch}")]);
        }
        let sudo = if self.lacks_privileges { "sudo " } else { "" };
        Some(format!("{sudo}{}", words.join(" ")))
    }
}

/// Returns the pair of lanes that can be declared where no core has two, and whether the service has to be pinned for it.
fn declarable_lanes(error: &anyhow::Error) -> Option<(u32, u32, bool)> {
    let Some(PlacementError::Lanes(LaneError::NoSmt { service, pair, .. })) = error.downcast_ref() else { return None };
    let (request, batch) = (*pair)?;
    Some((request, batch, service.contains(batch)))
}

/// Returns the text quoted as one word for a shell.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

impl std::error::Error for PreflightErrors {}

impl fmt::Display for PreflightErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problems[..] {
            [only] => write!(f, "{only:#}"),
            several => {
                write!(f, "{} problems:", several.len())?;
                several.iter().enumerate().try_for_each(|(at, error)| write!(f, "\n  {}. {error:#}", at + 1))
            }
        }?;
        self.corrected_command_line(std::env::args_os()).map_or(Ok(()), |command| write!(f, "\ntry: {command}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidelane_host::service::Target;

    fn service_on_batch_lane_error() -> PlacementError {
        let cpus = |text: &str| text.parse().unwrap();
        let (allowed, shared, requests) = (cpus("0-1"), cpus("1"), cpus("0"));
        PlacementError::ServiceOnBatchLane { target: Target::Port(7000), allowed, shared, requests }
    }

    #[test]
    fn run_without_preflight_errors_is_not_refused() {
        let mut errors = PreflightErrors::default();
        assert_eq!(errors.collect_error(Ok::<_, PlacementError>(7)), Some(7));
        errors.add_missing_privileges(&[]);
        assert_eq!(errors.into_result(Some(7)).unwrap(), 7);
    }

    #[test]
    fn all_errors_are_reported_with_a_command_that_works() {
        let mut errors = PreflightErrors::default();
        assert_eq!(errors.collect_error(Err::<(), _>(service_on_batch_lane_error())), None);
        errors.add_missing_privileges(&["CAP_BPF", "CAP_PERFMON"]);
        let command = ["sidelane", "run", "--service", "port:7000", "--", "sh", "-c", "it's on"];
        let mended = errors.corrected_command_line(command).unwrap();
        assert_eq!(mended, r"sudo sidelane run --pin-service --service port:7000 -- sh -c 'it'\''s on'");
        let said = errors.into_result(None::<()>).unwrap_err().to_string();
        assert!(said.contains("1. this process lacks CAP_BPF and CAP_PERFMON; run as root"), "{said}");
        assert!(said.contains("2. cannot lend lane(s) 1: port:7000 may run on CPUs 0-1"), "{said}");
    }

    #[test]
    fn command_declares_a_pair_where_no_core_has_two_lanes() {
        let command = |service: &str| {
            let (service, fix, pair) = (service.parse().unwrap(), String::new(), Some((0, 1)));
            let mut errors = PreflightErrors::default();
            errors.collect_error(Err::<(), _>(PlacementError::from(LaneError::NoSmt { service, fix, pair })));
            errors.corrected_command_line(["sidelane", "run", "--service", "port:7000"]).unwrap()
        };
        assert_eq!(command("0"), "sidelane run --lanes 0:1 --service port:7000");
        assert_eq!(command("0-1"), "sidelane run --lanes 0:1 --pin-service --service port:7000");
    }

    #[test]
    fn no_command_is_given_if_one_error_has_no_known_fix() {
        let mut errors = PreflightErrors::default();
        errors.collect_error(Err::<(), _>(service_on_batch_lane_error()));
        errors.collect_error(Err::<(), _>(anyhow::anyhow!("there is no such group")));
        assert_eq!(errors.corrected_command_line(["sidelane", "run"]), None);
    }
}
