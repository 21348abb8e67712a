//! The rungs of the ladder in order of preference: the available ones, and what is missing for the others.

use anyhow::{Context, Result};

use super::sleeper::SleepMechanism;
use super::{Latency, Rung, gate, run_on_new_thread, voluntary};
use crate::bench::estimate::Estimate;
use sidelane_doctor::gates::{CgroupFreezer, V1, V2, with_freezer_cgroup};
use sidelane_doctor::reaction::holder::WokenBy;
use sidelane_doctor::reaction::latency::ReactionPlan;
use sidelane_doctor::reaction::pair::TestPair;
use sidelane_doctor::reaction::victim::StopMethod;
use sidelane_doctor::reaction::{holder, victim};
use sidelane_host::nap::Nap;
use sidelane_host::procfs::own_cpus;
use sidelane_lanes::gate::Gate;
use sidelane_tracker::histogram::Histogram;

/// Nap mechanisms that a machine may lack: the prefix of the rung's name, and the message about the missing CPU or
/// kernel feature.
const NAPS: [(&str, &str); 3] = [
    ("UMWAIT", "this CPU has no WAITPKG (Intel since Alder Lake and Sapphire Rapids), or its hypervisor hides it"),
    ("MWAITX", "this CPU has no MONITORX (AMD since Excavator), or its hypervisor hides it"),
    ("nanonap", "there is no /dev/nanonap: build and load kmod/nanonap, where MWAIT may be used"),
];

/// Returns all rungs of the ladder of naps; an unavailable rung holds the reason.
pub(super) fn measure_all_rungs(
    pair: &TestPair,
    group_name: &str,
    plan: &ReactionPlan,
    cycles_per_ns: f64,
    instrumented: Rung,
) -> Vec<Rung> {
    let here = [Nap::probe(), Nap::PAUSE];
    let naps = here.iter().take(if here[0] == here[1] { 1 } else { 2 }).map(|nap| SleepMechanism::Nap(*nap));
    let missing = NAPS.iter().filter(|(name, _)| here.iter().all(|nap| !nap.to_string().starts_with(name)));
    let missing = missing.map(|(name, why)| Rung { name: (*name).to_owned(), outcome: Err((*why).to_owned()) });
    let voluntary = naps.chain([SleepMechanism::Futex]).map(|sleeper| measure_nap(sleeper, pair, plan, cycles_per_ns));
    let held = [("lane holder, own CPU wakes", WokenBy::OwnCpu), ("lane holder, batch lane wakes", WokenBy::BatchLane)];
    let held = held.map(|(name, by)| {
        rung_from_result(
            name,
            run_on_new_thread(|| holder::reaction_histograms(Gate::Holder, pair, by, plan))
                .map(latency_from_histograms),
        )
    });
    let mut rungs: Vec<Rung> = missing.chain(voluntary).collect();
    rungs.push(instrumented);
    rungs.extend(held);
    rungs.extend([
        measure_freezer("cgroup v2 freezer", &V2, group_name, pair, plan),
        measure_freezer("cgroup v1 freezer", &V1, group_name, pair, plan),
        rung_from_result("SIGSTOP", measure_stop_method(&StopMethod::Signal, pair, plan)),
        rung_from_result(
            "affinity",
            measure_stop_method(&StopMethod::Affinity { elsewhere: pair.cpu_off_pair(&own_cpus()) }, pair, plan),
        ),
    ]);
    rungs
}

/// Measures the rung of the instrumented gate.
pub(super) fn measure_instrumented_rung(pair: &TestPair, plan: &ReactionPlan) -> Rung {
    rung_from_result(gate::NAME, run_on_new_thread(|| gate::measure_nap_latency(pair, plan)))
}

fn rung_from_result(name: &str, measured: Result<Option<Latency>>) -> Rung {
    let outcome = match measured {
        Ok(Some(latency)) => Ok(latency),
        Ok(None) => Err("T2 was never seen to sleep and wake: measure again on a quieter machine".to_owned()),
        Err(error) => Err(format!("{error:#}")),
    };
    Rung { name: name.to_owned(), outcome }
}

fn measure_nap(sleeper: SleepMechanism, pair: &TestPair, plan: &ReactionPlan, cycles_per_ns: f64) -> Rung {
    let rounds = run_on_new_thread(|| voluntary::measure_naps(sleeper, pair, plan)).context("cannot run on both lanes");
    let latency = rounds.map(|rounds| {
        let (sleep, wake) = rounds.iter().map(|round| (round.sleep as f64, round.wake as f64)).unzip();
        latency_from_samples(sleep, wake).map(|latency| Latency {
            sleep: latency.sleep.scaled_by(1.0 / cycles_per_ns),
            wake: latency.wake.scaled_by(1.0 / cycles_per_ns),
        })
    });
    rung_from_result(&sleeper.to_string(), latency)
}

/// Returns the latency estimates from samples of the times to sleep and to wake.
pub(super) fn latency_from_samples(sleep: Vec<f64>, wake: Vec<f64>) -> Option<Latency> {
    Some(Latency { sleep: Estimate::from_samples(sleep)?, wake: Estimate::from_samples(wake)? })
}

pub(super) fn latency_from_histograms((off, on): (Histogram, Histogram)) -> Option<Latency> {
    let of = |histogram: &Histogram| {
        Estimate::from_counted_samples(histogram.latency_counts().map(|(ns, count)| (ns as f64, count)))
    };
    Some(Latency { sleep: of(&off)?, wake: of(&on)? })
}

fn measure_stop_method(switch: &StopMethod, pair: &TestPair, plan: &ReactionPlan) -> Result<Option<Latency>> {
    let rounds = run_on_new_thread(|| victim::measure_rounds(switch, pair, plan))?;
    let (sleep, wake) = rounds.into_iter().map(|(off_ns, on_ns)| (off_ns as f64, on_ns as f64)).unzip();
    Ok(latency_from_samples(sleep, wake))
}

fn measure_freezer(
    rung_name: &str,
    freezing: &CgroupFreezer,
    group_name: &str,
    pair: &TestPair,
    plan: &ReactionPlan,
) -> Rung {
    rung_from_result(
        rung_name,
        with_freezer_cgroup(freezing, group_name, |switch| measure_stop_method(switch, pair, plan)),
    )
}
