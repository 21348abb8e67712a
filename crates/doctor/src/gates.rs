//! Gates: all mechanisms that make batch leave a lane and let it return, with their measured latencies on this machine.

use std::thread;

use anyhow::{Context, Result};

use super::finding::Finding;
use crate::reaction::holder::WokenBy;
use crate::reaction::latency::{Figures, ReactionPlan};
use crate::reaction::pair::TestPair;
use crate::reaction::victim::StopMethod;
use crate::reaction::{holder, instrumented, victim};
use sidelane_host::cgroup::{BatchGroup, Hierarchy};
use sidelane_host::procfs::own_cpus;
use sidelane_host::topology::PairKind;
use sidelane_lanes::gate::{Gate as LaneGate, sched_ext};
use sidelane_report::Row;

/// Gate that was tested.
#[derive(Clone, Debug)]
pub struct Gate {
    /// Name of the gate in results.
    pub name: &'static str,
    /// Outcome of the test.
    pub outcome: Outcome,
}

/// Outcome of the test of a gate.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The gate works, with these latencies.
    Measured(Figures),
    /// The gate was not measured; the finding has the reason.
    Unmeasured(Finding),
}

impl Gate {
    fn from_measurement(
        name: &'static str,
        figures: Result<Option<Figures>>,
        to_finding: impl FnOnce(String) -> Finding,
    ) -> Self {
        let outcome = match figures {
            Ok(Some(figures)) => Outcome::Measured(figures),
            Ok(None) => {
                Outcome::Unmeasured(to_finding("batch was not stopped and resumed within the time limit".to_owned()))
            }
            Err(error) => Outcome::Unmeasured(to_finding(format!("{error:#}"))),
        };
        Self { name, outcome }
    }

    /// Returns the reason why there are no figures; `None` if there are.
    pub fn why_unmeasured(&self) -> Option<&Finding> {
        match &self.outcome {
            Outcome::Measured(_) => None,
            Outcome::Unmeasured(lack) => Some(lack),
        }
    }

    /// Returns the gate as a row of results; without a measurement its figures are missing.
    pub fn to_row(&self) -> Row {
        match &self.outcome {
            Outcome::Measured(figures) => figures.to_row(self.name),
            Outcome::Unmeasured(_) => row_without_figures(self.name),
        }
    }
}

fn row_without_figures(gate: &str) -> Row {
    let mut row = Row::new(gate);
    for key in ["off_p50_ns", "off_p99_ns", "on_p50_ns", "on_p99_ns"] {
        row.put(key, None);
    }
    row.put("samples_count", 0.0);
    row
}

/// Tests every gate except the instrumented one on `pair`, in order of preference; the holder only if `can_hold`.
/// Temporary cgroups get the name `cgroup_name`.
pub fn measure_all(pair: &TestPair, cgroup_name: &str, can_hold: bool, effort: &ReactionPlan) -> Vec<Gate> {
    let hold = if can_hold { measure_holder_gate } else { untested_holder_gate };
    vec![
        measure_sched_ext_gate("sched_ext scheduler", pair, effort),
        hold("lane holder (service woken by its own CPU)", WokenBy::OwnCpu, pair, effort),
        hold("lane holder (service woken from the batch lane)", WokenBy::BatchLane, pair, effort),
        measure_affinity_gate("affinity", pair, effort),
        measure_freezer_gate("cgroup v2 freezer", &V2, cgroup_name, pair, effort),
        measure_freezer_gate("cgroup v1 freezer", &V1, cgroup_name, pair, effort),
        measure_sigstop_gate("SIGSTOP", pair, effort),
        unmeasured_idle_class_gate("SCHED_IDLE", pair),
    ]
}

/// Runs a measurement on a thread of its own, so that changes of affinity and class end with it.
fn run_on_own_thread<T: Send>(measure: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(measure).join().expect("measurements do not panic"))
}

fn measure_holder_gate(name: &'static str, woken_by: WokenBy, pair: &TestPair, effort: &ReactionPlan) -> Gate {
    let fix = "try again on a quieter machine, or choose other lanes with --lanes";
    let figures = run_on_own_thread(|| holder::measure_gate(LaneGate::Holder, pair, woken_by, effort));
    Gate::from_measurement(name, figures, |why| Finding::blocks(name, why, fix))
}

/// Tests the instrumented gate, the best one. The test needs a whole session and the gate's library.
pub fn measure_instrumented_gate(pair: &TestPair, effort: &ReactionPlan) -> Gate {
    let name = "instrumented check (programs built with -pg)";
    Gate::from_measurement(name, run_on_own_thread(|| instrumented::measure_gate(pair, effort)), |why| {
        Finding::optional(name, why)
    })
}

/// Tests the gate of sched_ext. If the kernel cannot load a scheduler, the finding has the reason.
fn measure_sched_ext_gate(name: &'static str, pair: &TestPair, effort: &ReactionPlan) -> Gate {
    let lack = |why| Finding::optional(name, why);
    if let Err(why) = sched_ext::check_sched_ext_available() {
        return Gate::from_measurement(name, Err(why.into()), lack);
    }
    Gate::from_measurement(
        name,
        run_on_own_thread(|| holder::measure_gate(LaneGate::SchedExt, pair, WokenBy::OwnCpu, effort)),
        lack,
    )
}

fn untested_holder_gate(name: &'static str, _: WokenBy, _: &TestPair, _: &ReactionPlan) -> Gate {
    let lack = Finding::optional(name, "not tried, because of the lines marked ✗ above");
    Gate { name, outcome: Outcome::Unmeasured(lack) }
}

fn measure_affinity_gate(name: &'static str, pair: &TestPair, effort: &ReactionPlan) -> Gate {
    let switch = StopMethod::Affinity { elsewhere: pair.cpu_off_pair(&own_cpus()) };
    let fix = "allow this process a second CPU (taskset, cpuset)";
    Gate::from_measurement(name, measure_stop_method(&switch, pair, effort), |why| Finding::degrades(name, why, fix))
}

fn measure_sigstop_gate(name: &'static str, pair: &TestPair, effort: &ReactionPlan) -> Gate {
    Gate::from_measurement(name, measure_stop_method(&StopMethod::Signal, pair, effort), |why| {
        Finding::optional(name, why)
    })
}

fn measure_stop_method(method: &StopMethod, pair: &TestPair, effort: &ReactionPlan) -> Result<Option<Figures>> {
    Ok(run_on_own_thread(|| victim::measure_stop_method(method, pair, effort))?)
}

/// Freezer of one cgroup version: its hierarchy, control file, and the values to freeze and to thaw.
pub struct CgroupFreezer {
    wanted: fn(&Hierarchy) -> bool,
    file: &'static str,
    values: [&'static str; 2],
}

pub const V2: CgroupFreezer = CgroupFreezer { wanted: Hierarchy::is_v2, file: "cgroup.freeze", values: ["1", "0"] };
pub const V1: CgroupFreezer = CgroupFreezer {
    wanted: |found| found.has_controller("freezer"),
    file: "freezer.state",
    values: ["FROZEN", "THAWED"],
};

fn measure_freezer_gate(
    name: &'static str,
    freezer: &CgroupFreezer,
    cgroup_name: &str,
    pair: &TestPair,
    effort: &ReactionPlan,
) -> Gate {
    let figures = with_freezer_cgroup(freezer, cgroup_name, |switch| measure_stop_method(switch, pair, effort));
    Gate::from_measurement(name, figures, |why| Finding::optional(name, why))
}

/// Runs `measure` with the stop method that freezes a new cgroup `cgroup_name`. The cgroup is removed afterwards.
pub fn with_freezer_cgroup<T>(
    freezer: &CgroupFreezer,
    cgroup_name: &str,
    measure: impl FnOnce(&StopMethod) -> Result<T>,
) -> Result<T> {
    let hierarchy = Hierarchy::all()
        .into_iter()
        .find(freezer.wanted)
        .context("no cgroup hierarchy with this freezer is mounted")?;
    let leaf = BatchGroup::create(&hierarchy, cgroup_name)
        .with_context(|| format!("cannot make the cgroup {cgroup_name}; run as root"))?;
    let measured = measure(&StopMethod::Freezer { leaf: leaf.clone(), file: freezer.file, values: freezer.values });
    leaf.remove()?;
    measured
}

/// Returns the scheduling class as a gate that is not measured: it decides only between threads of the same lane.
fn unmeasured_idle_class_gate(name: &'static str, pair: &TestPair) -> Gate {
    let why = match pair.kind {
        PairKind::Smt => "none: batch goes on beside the service, on the other lane of its core",
        PairKind::Declared => "none: batch goes on, because the service is on another CPU",
    };
    Gate { name, outcome: Outcome::Unmeasured(Finding::optional(name, why)) }
}
