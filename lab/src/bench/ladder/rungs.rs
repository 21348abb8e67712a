//! The rungs of the ladder in order of preference: the available ones, and what is missing for the others.

use anyhow::{Context, Result};

use super::sleeper::Sleeper;
use super::{Latency, Rung, apart, gate, voluntary};
use crate::bench::estimate::Estimate;
use sidelane_doctor::gates::{Freezing, V1, V2, in_group};
use sidelane_doctor::reaction::holder::WokenBy;
use sidelane_doctor::reaction::latency::ReactionPlan;
use sidelane_doctor::reaction::pair::TestPair;
use sidelane_doctor::reaction::victim::Switch;
use sidelane_doctor::reaction::{holder, victim};
use sidelane_host::nap::Nap;
use sidelane_host::procfs::own_cpus;
use sidelane_lanes::gate::Gate;
use sidelane_tracker::histogram::Histogram;

/// Naps that this CPU or kernel may lack, by the beginning of their names, with the missing feature.
const NAPS: [(&str, &str); 3] = [
    ("UMWAIT", "this CPU has no WAITPKG (Intel since Alder Lake and Sapphire Rapids), or its hypervisor hides it"),
    ("MWAITX", "this CPU has no MONITORX (AMD since Excavator), or its hypervisor hides it"),
    ("nanonap", "there is no /dev/nanonap: build and load kmod/nanonap, where MWAIT may be used"),
];

/// Returns all rungs of the ladder of naps; an unavailable rung holds the reason.
pub(super) fn all(pair: &TestPair, name: &str, effort: &ReactionPlan, cycles_per_ns: f64, checked: Rung) -> Vec<Rung> {
    let here = [Nap::probe(), Nap::PAUSE];
    let naps = here.iter().take(if here[0] == here[1] { 1 } else { 2 }).map(|nap| Sleeper::Nap(*nap));
    let missing = NAPS.iter().filter(|(name, _)| here.iter().all(|nap| !nap.to_string().starts_with(name)));
    let missing = missing.map(|(name, why)| Rung { name: (*name).to_owned(), outcome: Err((*why).to_owned()) });
    let voluntary = naps.chain([Sleeper::Futex]).map(|sleeper| nap(sleeper, pair, effort, cycles_per_ns));
    let held = [("lane holder, own CPU wakes", WokenBy::OwnCpu), ("lane holder, batch lane wakes", WokenBy::BatchLane)];
    let held =
        held.map(|(name, by)| rung(name, apart(|| holder::reactions(Gate::Holder, pair, by, effort)).map(of_kernel)));
    let mut rungs: Vec<Rung> = missing.chain(voluntary).collect();
    rungs.push(checked);
    rungs.extend(held);
    rungs.extend([
        frozen("cgroup v2 freezer", &V2, name, pair, effort),
        frozen("cgroup v1 freezer", &V1, name, pair, effort),
        rung("SIGSTOP", switched(&Switch::Signal, pair, effort)),
        rung("affinity", switched(&Switch::Affinity { elsewhere: pair.elsewhere(&own_cpus()) }, pair, effort)),
    ]);
    rungs
}

/// Measures the rung of the instrumented gate.
pub(super) fn checked(pair: &TestPair, effort: &ReactionPlan) -> Rung {
    rung(gate::NAME, apart(|| gate::measure(pair, effort)))
}

fn rung(name: &str, measured: Result<Option<Latency>>) -> Rung {
    let outcome = match measured {
        Ok(Some(latency)) => Ok(latency),
        Ok(None) => Err("T2 was never seen to sleep and wake: measure again on a quieter machine".to_owned()),
        Err(error) => Err(format!("{error:#}")),
    };
    Rung { name: name.to_owned(), outcome }
}

fn nap(sleeper: Sleeper, pair: &TestPair, effort: &ReactionPlan, cycles_per_ns: f64) -> Rung {
    let rounds = apart(|| voluntary::measure(sleeper, pair, effort)).context("cannot run on both lanes");
    let latency = rounds.map(|rounds| {
        let (sleep, wake) = rounds.iter().map(|round| (round.sleep as f64, round.wake as f64)).unzip();
        of_samples(sleep, wake).map(|latency| Latency {
            sleep: latency.sleep.times(1.0 / cycles_per_ns),
            wake: latency.wake.times(1.0 / cycles_per_ns),
        })
    });
    rung(&sleeper.to_string(), latency)
}

/// Returns the latency estimates from samples of the times to sleep and to wake.
pub(super) fn of_samples(sleep: Vec<f64>, wake: Vec<f64>) -> Option<Latency> {
    Some(Latency { sleep: Estimate::of(sleep)?, wake: Estimate::of(wake)? })
}

pub(super) fn of_kernel((off, on): (Histogram, Histogram)) -> Option<Latency> {
    let of = |histogram: &Histogram| Estimate::of_counted(histogram.values().map(|(ns, count)| (ns as f64, count)));
    Some(Latency { sleep: of(&off)?, wake: of(&on)? })
}

fn switched(switch: &Switch, pair: &TestPair, effort: &ReactionPlan) -> Result<Option<Latency>> {
    let rounds = apart(|| victim::rounds(switch, pair, effort))?;
    let (sleep, wake) = rounds.into_iter().map(|(off_ns, on_ns)| (off_ns as f64, on_ns as f64)).unzip();
    Ok(of_samples(sleep, wake))
}

fn frozen(title: &str, how: &Freezing, name: &str, pair: &TestPair, effort: &ReactionPlan) -> Rung {
    rung(title, in_group(how, name, |switch| switched(switch, pair, effort)))
}
