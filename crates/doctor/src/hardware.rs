//! Properties of the hardware: CPUs, lanes, and features of the processor and the hypervisor.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use super::finding::Finding;
use sidelane_diagnostics::machine::{cpu_flags, has_pmu, is_virtual_machine};
use sidelane_host::cores::Cores;
use sidelane_host::energy::Energy;
use sidelane_host::nap::Nap;
use sidelane_host::procfs::own_cpus;
use sidelane_host::topology::{LaneError, Topology};

/// Returns findings about the machine that need no measurement.
pub fn check_hardware(topology: &Topology) -> Vec<Finding> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpu_flags(&cpuinfo);
    vec![
        check_cpus(topology),
        check_siblings(topology),
        check_virtualisation(&flags),
        check_nap(Nap::probe(), &flags, topology.has_smt()),
        check_pmu(has_pmu()),
        finding_from_result("core sizes", Cores::find(Path::new("/sys"))),
        finding_from_result("energy", Energy::open(Path::new("/sys"))),
    ]
}

fn check_cpus(topology: &Topology) -> Finding {
    const NAME: &str = "CPUs";
    let usable = topology.online().intersection(&own_cpus());
    match usable.len() {
        0 | 1 => Finding::blocks(
            NAME,
            format!("{}; this process may use CPU {usable} only", topology.describe()),
            "allow this process a second CPU (taskset, cpuset): batch needs one beside the service's",
        ),
        _ => Finding::works(NAME, topology.describe()),
    }
}

fn check_siblings(topology: &Topology) -> Finding {
    const NAME: &str = "SMT siblings";
    match topology.smt_pairs(&topology.online()) {
        Ok(lanes) => {
            let pair = |lane: &sidelane_host::topology::BatchLane| format!("{}:{}", lane.request_lanes, lane.cpu);
            let pairs: Vec<String> = lanes.batch.iter().map(pair).collect();
            Finding::works(NAME, format!("lane pairs {}", pairs.join(" ")))
        }
        Err(LaneError::NoSmt { fix, .. }) => {
            Finding::optional(NAME, "none: the kernel shows no core with two lanes online").with_fix(fix)
        }
        Err(error) => Finding::optional(NAME, error.to_string()),
    }
}

fn check_virtualisation(flags: &[&str]) -> Finding {
    const NAME: &str = "virtual machine";
    match is_virtual_machine(flags) {
        true => Finding::optional(
            NAME,
            "yes: waking another CPU exits to the hypervisor and costs microseconds; these figures do not apply to \
             bare metal",
        ),
        false => Finding::works(NAME, "no: bare metal"),
    }
}

fn check_nap(nap: Nap, flags: &[&str], has_smt: bool) -> Finding {
    const NAME: &str = "nap";
    let has = |flag: &str| if flags.contains(&flag) { "yes" } else { "no" };
    let offered = format!("WAITPKG {}, MONITORX {}, MWAIT {}", has("waitpkg"), has("mwaitx"), has("monitor"));
    match (nap, has_smt) {
        (Nap::PAUSE, false) => Finding::optional(
            NAME,
            format!(
                "{nap} ({offered}); no lanes share a core, so a held lane costs the \
                                             service nothing"
            ),
        ),
        (Nap::PAUSE, true) => Finding::degrades(
            NAME,
            format!("{nap} ({offered}): a held lane takes a little of the service's core"),
            better_nap_advice(flags.contains(&"monitor")),
        ),
        _ => Finding::works(NAME, format!("{nap} ({offered})")),
    }
}

/// Returns advice for better naps than a PAUSE loop.
fn better_nap_advice(has_mwait: bool) -> &'static str {
    match has_mwait {
        true => "build and load kmod/nanonap (its README says how): it lets holders use MWAIT",
        false => "let the hypervisor pass WAITPKG (Intel) or MONITORX (AMD) through, if this is a virtual machine",
    }
}

fn check_pmu(is_present: bool) -> Finding {
    const NAME: &str = "PMU";
    match is_present {
        true => Finding::works(NAME, "hardware counters are there"),
        false => Finding::optional(
            NAME,
            "no hardware counters: dynamic-refresh estimates the contention cost from server times",
        )
        .with_fix("in a virtual machine, ask its host for a virtual PMU"),
    }
}

/// Returns a finding about hardware that `sidelane run` does not need. `found` is the hardware, or an error that says
/// why it was not found and what to do.
fn finding_from_result(name: &'static str, found: Result<impl Display, impl Into<anyhow::Error>>) -> Finding {
    match found {
        Ok(found) => Finding::works(name, found.to_string()),
        Err(error) => Finding::optional(name, format!("{:#}", error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn cpu_flags_match_whole_words_only() {
        let flags = cpu_flags("processor\t: 0\nflags\t\t: fpu hypervisor mwaitx\nbugs\t\t: x\n");
        assert_eq!(flags, ["fpu", "hypervisor", "mwaitx"]);
        assert_eq!(check_virtualisation(&flags).state, State::Optional);
        assert_eq!(check_virtualisation(&cpu_flags("flags : hypervisor2")).state, State::Works);
    }

    #[test]
    fn naps_by_pause_loop_degrade_only_with_smt() {
        assert_eq!(check_nap(Nap::PAUSE, &[], false).state, State::Optional);
        assert_eq!(check_nap(Nap::PAUSE, &[], true).state, State::Degrades);
        let found = check_nap(Nap::User(sidelane_formats::nap::Nap::Mwaitx), &["mwaitx"], true);
        assert_eq!((found.state, found.detail.as_str()), (State::Works, "MWAITX (WAITPKG no, MONITORX yes, MWAIT no)"));
    }

    #[test]
    fn advice_on_naps_depends_on_the_cpu_flags() {
        let fix = |flags| check_nap(Nap::PAUSE, flags, true).fix.unwrap();
        assert!(fix(&["monitor"]).contains("kmod/nanonap"));
        assert!(fix(&[]).contains("hypervisor"));
        assert_eq!(check_nap(Nap::Device, &["monitor"], true).state, State::Works);
    }
}
