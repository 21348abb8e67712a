//! Gates: all mechanisms that get batch off a lane and back, with their measured latencies on this machine.

use std::thread;

use anyhow::{Context, Result};

use super::finding::Finding;
use crate::reaction::holder::WokenBy;
use crate::reaction::latency::{Figures, ReactionPlan};
use crate::reaction::pair::TestPair;
use crate::reaction::victim::Switch;
use crate::reaction::{holder, instrumented, victim};
use sidelane_host::cgroup::{Hierarchy, Leaf};
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
    fn new(name: &'static str, figures: Result<Option<Figures>>, lack: impl FnOnce(String) -> Finding) -> Self {
        let outcome = match figures {
            Ok(Some(figures)) => Outcome::Measured(figures),
            Ok(None) => Outcome::Unmeasured(lack("batch never stopped and came back".to_owned())),
            Err(error) => Outcome::Unmeasured(lack(format!("{error:#}"))),
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
            Outcome::Unmeasured(_) => without_figures(self.name),
        }
    }
}

fn without_figures(gate: &str) -> Row {
    let mut row = Row::new(gate);
    for key in ["off_p50_ns", "off_p99_ns", "on_p50_ns", "on_p99_ns"] {
        row.put(key, None);
    }
    row.put("samples_count", 0.0);
    row
}

/// Tests every gate except the instrumented one on `pair`, in order of preference; the holder only if `can_hold`.
/// Temporary cgroups get the name `name`.
pub fn measure_all(pair: &TestPair, name: &str, can_hold: bool, effort: &ReactionPlan) -> Vec<Gate> {
    let hold = if can_hold { held } else { unheld };
    vec![
        scheduled("sched_ext scheduler", pair, effort),
        hold("lane holder (service woken by its own CPU)", WokenBy::OwnCpu, pair, effort),
        hold("lane holder (service woken from the batch lane)", WokenBy::BatchLane, pair, effort),
        affinity("affinity", pair, effort),
        frozen("cgroup v2 freezer", &V2, name, pair, effort),
        frozen("cgroup v1 freezer", &V1, name, pair, effort),
        stopped("SIGSTOP", pair, effort),
        outranked("SCHED_IDLE", pair),
    ]
}

/// Runs a measurement on a thread of its own, so that changes of affinity and class end with it.
fn apart<T: Send>(measure: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(measure).join().expect("measurements do not panic"))
}

fn held(name: &'static str, woken_by: WokenBy, pair: &TestPair, effort: &ReactionPlan) -> Gate {
    let fix = "try again on a quieter machine, or choose other lanes with --lanes";
    let figures = apart(|| holder::measure(LaneGate::Holder, pair, woken_by, effort));
    Gate::new(name, figures, |why| Finding::blocks(name, why, fix))
}

/// Tests the instrumented gate, the best one. The test needs a whole session and the gate's library.
pub fn checked(pair: &TestPair, effort: &ReactionPlan) -> Gate {
    let name = "instrumented check (programs built with -pg)";
    Gate::new(name, apart(|| instrumented::measure(pair, effort)), |why| Finding::optional(name, why))
}

/// Tests the gate of sched_ext. If the kernel cannot load a scheduler, the finding has the reason.
fn scheduled(name: &'static str, pair: &TestPair, effort: &ReactionPlan) -> Gate {
    let lack = |why| Finding::optional(name, why);
    if let Err(why) = sched_ext::available() {
        return Gate::new(name, Err(why.into()), lack);
    }
    Gate::new(name, apart(|| holder::measure(LaneGate::SchedExt, pair, WokenBy::OwnCpu, effort)), lack)
}

fn unheld(name: &'static str, _: WokenBy, _: &TestPair, _: &ReactionPlan) -> Gate {
    let lack = Finding::optional(name, "not tried, because of the lines marked ✗ above");
    Gate { name, outcome: Outcome::Unmeasured(lack) }
}

fn affinity(name: &'static str, pair: &TestPair, effort: &ReactionPlan) -> Gate {
    let switch = Switch::Affinity { elsewhere: pair.elsewhere(&own_cpus()) };
    let fix = "allow this process a second CPU (taskset, cpuset)";
    Gate::new(name, switched(&switch, pair, effort), |why| Finding::degrades(name, why, fix))
}

fn stopped(name: &'static str, pair: &TestPair, effort: &ReactionPlan) -> Gate {
    Gate::new(name, switched(&Switch::Signal, pair, effort), |why| Finding::optional(name, why))
}

fn switched(switch: &Switch, pair: &TestPair, effort: &ReactionPlan) -> Result<Option<Figures>> {
    Ok(apart(|| victim::measure(switch, pair, effort))?)
}

/// Freezer of one cgroup version: its hierarchy, control file, and the values to freeze and to thaw.
pub struct Freezing {
    wanted: fn(&Hierarchy) -> bool,
    file: &'static str,
    values: [&'static str; 2],
}

pub const V2: Freezing = Freezing { wanted: Hierarchy::is_v2, file: "cgroup.freeze", values: ["1", "0"] };
pub const V1: Freezing =
    Freezing { wanted: |found| found.controls("freezer"), file: "freezer.state", values: ["FROZEN", "THAWED"] };

fn frozen(name: &'static str, how: &Freezing, leaf_name: &str, pair: &TestPair, effort: &ReactionPlan) -> Gate {
    let figures = in_group(how, leaf_name, |switch| switched(switch, pair, effort));
    Gate::new(name, figures, |why| Finding::optional(name, why))
}

/// Runs `measure` with a switch that freezes a cgroup `leaf_name`. The cgroup is removed afterwards.
pub fn in_group<T>(how: &Freezing, leaf_name: &str, measure: impl FnOnce(&Switch) -> Result<T>) -> Result<T> {
    let hierarchy = Hierarchy::all().into_iter().find(how.wanted).context("not mounted here")?;
    let leaf = Leaf::make(&hierarchy, leaf_name).context("cannot make a group")?;
    let measured = measure(&Switch::Freezer { leaf: leaf.clone(), file: how.file, values: how.values });
    leaf.remove()?;
    measured
}

/// Returns the scheduling class as a gate that is not measured: it decides only between threads of the same lane.
fn outranked(name: &'static str, pair: &TestPair) -> Gate {
    let why = match pair.kind {
        PairKind::Smt => "none: batch goes on beside the service, on the other lane of its core",
        PairKind::Declared => "none: batch goes on, because the service is on another CPU",
    };
    Gate { name, outcome: Outcome::Unmeasured(Finding::optional(name, why)) }
}
