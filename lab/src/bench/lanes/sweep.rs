//! The sweep: every setting, load and batch kernel in turn, round by round.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result};

use super::checks::undecided_loads;
use super::objective::Promise;
use super::plan::SweepPlan;
use super::samples::{Figures, Run, Samples};
use crate::experiment::fixture::Fixture;
use crate::experiment::learn::Experience;
use crate::experiment::load::{Rhythm, Shape};
use crate::experiment::run::{BesideFigures, Task};
use crate::experiment::setting::Setting;
use crate::experiment::{batch, run};
use crate::note::in_setting;
use sidelane_diagnostics::note::Note;
use sidelane_host::topology::Lanes;
use sidelane_lanes::lending_limits::LearnedLimits;
use sidelane_report::Check;
use sidelane_stats::rounds::{Turn, until_decided};

/// Time for which batch is measured alone on its lane.
const BATCH_ALONE: Duration = Duration::from_millis(300);
/// Factor by which runs of the service alone are longer, since budgets are computed from one run per load.
const CALIBRATION_TIMES: u32 = 2;

/// Results of a sweep over loads and batch kernels.
pub(super) struct Sweep {
    pub(super) plan: SweepPlan,
    pub(super) promise: Promise,
    pub(super) samples: Samples,
    pub(super) mean_service_us: f64,
    /// Largest CPU time of the client in any run, in percent of one CPU.
    pub(super) client_percent: f64,
    /// p99 of the sending delay at the client in its worst run, in microseconds.
    pub(super) send_lag_us: f64,
    pub(super) notes: BTreeSet<Note>,
    /// Emulated loss of a request for each moment beside batch, as a fraction of 1; `None` without emulation.
    pub(super) emulated_contention_cost: Option<f64>,
    /// Knowledge of the sessions, by batch kernel and setting. Batch's cost to a request and a request's demand do not
    /// depend on the load.
    pub(super) learned: BTreeMap<(String, &'static str), LearnedLimits>,
}

/// Runs `plan` on the service of `fixture`, until each of `checks` is decided. The objective is
/// `slo_us`, or is computed from the service alone.
pub(super) fn run(
    fixture: &Fixture,
    plan: &SweepPlan,
    slo_us: Option<f64>,
    checks: fn(&Sweep) -> Vec<Check>,
) -> Result<Sweep> {
    let alone_p99_us = calibrate(fixture, plan)?;
    let mut sweep = Sweep {
        promise: Promise::of(slo_us, alone_p99_us, plan.moderate()),
        plan: plan.clone(),
        samples: Samples::default(),
        mean_service_us: fixture.mean_service_us,
        client_percent: 0.0,
        send_lag_us: 0.0,
        notes: BTreeSet::new(),
        emulated_contention_cost: fixture.sibling.as_ref().map(|sibling| sibling.service_loss()),
        learned: BTreeMap::new(),
    };
    let lanes = fixture.beside()?.lanes;
    let round = |sweep: &mut Sweep, turn: Turn<'_>| sweep.round(fixture, &lanes, turn);
    until_decided(plan.service, plan.limit, &mut sweep, round, checks)?;
    Ok(sweep)
}

/// Measures the p99 of the service alone at each load.
fn calibrate(fixture: &Fixture, plan: &SweepPlan) -> Result<BTreeMap<u8, f64>> {
    let mut p99_us = BTreeMap::new();
    for load in &plan.loads {
        let rhythm = Rhythm { run: plan.run * CALIBRATION_TIMES, ..rhythm(fixture, plan, *load, 0) };
        let alone = Task {
            fixture,
            rhythm,
            batch: &plan.batches[0],
            batch_alone_per_s: 0.0,
            draw: false,
            experience: Experience::default(),
        };
        p99_us.insert(*load, run::run(alone, &Setting::ALONE)?.p99_us());
    }
    Ok(p99_us)
}

/// Returns the same requests at the same times for all runs of a round.
fn rhythm(fixture: &Fixture, plan: &SweepPlan, load: u8, seed: u64) -> Rhythm {
    let rate_per_s = fixture.rate_per_s(f64::from(load) / 100.0);
    Rhythm { rate_per_s, run: plan.run, warm_up: plan.warm_up, seed, shape: Shape::Steady }
}

impl Sweep {
    /// Runs one round. The first rounds have all loads, later ones only those with an undecided check.
    fn round(&mut self, fixture: &Fixture, lanes: &Lanes, turn: Turn<'_>) -> Result<()> {
        let round = turn.round;
        let loads = match round < self.plan.limit.first {
            true => self.plan.loads.clone(),
            false => undecided_loads(self),
        };
        let batches = self.plan.batches.clone();
        let alone_per_s =
            |kernel: &String| Ok((kernel.clone(), batch::alone_per_s(fixture, kernel, BATCH_ALONE, round)?));
        let alone_per_s: Vec<(String, f64)> = batches.iter().map(alone_per_s).collect::<Result<_>>()?;
        for load in loads {
            let rhythm = rhythm(fixture, &self.plan, load, round + 1);
            let turns = turns(&self.settings_of(round, load), &alone_per_s);
            let first = round as usize % turns.len();
            for (setting, kernel) in turns.iter().cycle().skip(first * 3).take(turns.len()) {
                turn.bar.set_message(format!("{load} %, {}, {}", kernel.0, setting.title));
                let experience = self.experience(&kernel.0, setting);
                let task =
                    Task { fixture, rhythm, batch: &kernel.0, batch_alone_per_s: kernel.1, draw: false, experience };
                let figures = run::run(task, setting).with_context(|| format!("{} at {load} %", setting.title))?;
                self.take(round, load, setting, &kernel.0, &figures, lanes);
            }
        }
        Ok(())
    }

    /// Returns the settings at a load, with the budget or age that its objective leaves.
    pub(super) fn settings(&self, load: u8) -> Vec<Setting> {
        let ns = |us: f64| (us * 1e3) as u64;
        self.plan.settings(ns(self.promise.budget_us(load)), ns(self.promise.age_us(load)))
    }

    /// Returns the settings of a round. Settings without a check take part in every second round.
    fn settings_of(&self, round: u64, load: u8) -> Vec<Setting> {
        let is_judged = |setting: &Setting| match setting.beside {
            None => true,
            Some(_) => setting.compares_everywhere() && setting.is_lent() && setting.name != Setting::freezer().name,
        };
        let settings = self.settings(load).into_iter();
        settings.filter(|setting| round.is_multiple_of(2) || is_judged(setting)).collect()
    }

    /// Returns the knowledge of the earlier sessions; the first session gets time to learn.
    fn experience(&self, kernel: &str, setting: &Setting) -> Experience {
        let taken_over = self.learned.get(&(kernel.to_owned(), setting.name)).copied();
        let learning = if taken_over.is_some() { Duration::ZERO } else { self.plan.learning };
        Experience { taken_over, learning }
    }

    fn take(&mut self, round: u64, load: u8, setting: &Setting, kernel: &str, seen: &run::Figures, lanes: &Lanes) {
        let batch = setting.beside.map(|_| kernel.to_owned());
        let figures = figures(seen, lanes);
        let learned = seen.beside.as_ref().and_then(|beside| beside.learned);
        self.learned.extend(learned.map(|learned| ((kernel.to_owned(), setting.name), learned)));
        self.samples.0.push(Run { round, load, batch, setting: setting.name, figures });
        self.client_percent = self.client_percent.max(seen.latencies.cpu_percent);
        self.send_lag_us = self.send_lag_us.max(seen.latencies.send_lag_p99_us);
        let lends = setting.beside.is_some_and(|mode| mode.hold.is_some());
        let notes = seen.beside.iter().flat_map(|beside| &beside.notes).filter(|_| lends);
        self.notes.extend(notes.map(|note| in_setting(note.clone(), setting.title)));
    }
}

/// Returns the turns at one load. The service alone and the paper's own rules take one turn, every other setting one
/// turn per kernel.
fn turns<'a>(settings: &[Setting], kernels: &'a [(String, f64)]) -> Vec<(Setting, &'a (String, f64))> {
    let with = |kernel: &'a (String, f64)| {
        let first = std::ptr::eq(kernel, &kernels[0]);
        let taking_part = move |setting: &&Setting| setting.compares_everywhere() || first;
        settings.iter().filter(taking_part).map(move |setting| (*setting, kernel)).collect::<Vec<_>>()
    };
    kernels.iter().flat_map(with).collect()
}

fn figures(seen: &run::Figures, lanes: &Lanes) -> Figures {
    let beside = seen.beside.as_ref();
    let batch_utilisation =
        |beside: &BesideFigures| beside.accounting.batch_ns(lanes) as f64 / beside.accounting.at_ns.max(1) as f64;
    Figures {
        requests: seen.latencies.requests as f64,
        p50_us: seen.p50_us(),
        p95_us: seen.p95_us(),
        p99_us: seen.p99_us(),
        client_p99_us: seen.at_socket.as_ref().map(|_| seen.latencies.p99_us),
        lc_utilisation: seen.lc_utilisation,
        batch_utilisation: beside.map(batch_utilisation),
        batch_work_ratio: beside.map(|beside| beside.batch_work_ratio),
        overlap_percent: beside.and_then(|beside| beside.accounting.overlap_percent(lanes)),
        lent_overlap_percent: beside.and_then(|beside| beside.accounting.lent_overlap_percent(lanes)),
        contention_cost: beside.and_then(|beside| beside.learned.as_ref()?.contention_cost()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baseline_runs_once_and_others_with_every_batch() {
        let settings = [Setting::ALONE, Setting::SCHED_IDLE, Setting::borrow_idle()];
        let kernels = [("loop".to_owned(), 1.0), ("flush".to_owned(), 1.0)];
        let turns: Vec<(&str, String)> =
            turns(&settings, &kernels).iter().map(|(setting, kernel)| (setting.name, kernel.0.clone())).collect();
        let wanted = [
            ("alone", "loop"),
            ("sched_idle", "loop"),
            ("borrow_idle", "loop"),
            ("sched_idle", "flush"),
            ("borrow_idle", "flush"),
        ];
        assert_eq!(turns, wanted.map(|(setting, kernel)| (setting, kernel.to_owned())));
    }
}
