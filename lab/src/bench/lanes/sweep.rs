//! The sweep: every setting, load and batch kernel in turn, round by round.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Result;

use super::checks::undecided_loads;
use super::objective::ServiceObjective;
use super::plan::SweepPlan;
use super::samples::{Figures, SampleKey, Samples};
use crate::experiment::comparison::Experiment;
use crate::experiment::fixture::Fixture;
use crate::experiment::learn::LearningOptions;
use crate::experiment::load::{LoadPattern, Shape};
use crate::experiment::run::{BesideFigures, RunSpec};
use crate::experiment::setting::Setting;
use crate::experiment::{batch, run};
use crate::note::with_setting_name;
use sidelane_diagnostics::note::Note;
use sidelane_host::topology::Lanes;
use sidelane_lanes::lending_limits::LearnedLimits;
use sidelane_report::Check;

/// Time for which batch is measured alone on its lane.
const BATCH_ALONE: Duration = Duration::from_millis(300);
/// Factor by which the runs that measure the service alone are longer: one such run per load determines the budget.
const CALIBRATION_TIMES: u32 = 2;

/// Plan of a sweep, with the latency objective that its service must keep.
pub(super) struct Sweep {
    pub(super) plan: SweepPlan,
    pub(super) objective: ServiceObjective,
    /// Share of its time beside batch by which the emulation slows a request, as a fraction of 1; `None` without
    /// emulation.
    pub(super) emulated_contention_cost: Option<f64>,
}

/// Results of a sweep over loads and batch kernels.
pub(super) struct SweepResult {
    pub(super) sweep: Sweep,
    pub(super) samples: Samples,
    pub(super) mean_service_us: f64,
    pub(super) seen: SweepHistory,
}

/// Figures of earlier runs that later runs and the notes need.
#[derive(Default)]
pub(super) struct SweepHistory {
    /// Largest CPU time of the client in any run, in percent of one CPU.
    pub(super) client_percent: f64,
    /// p99 of the sending delay at the client in its worst run, in microseconds.
    pub(super) send_lag_us: f64,
    pub(super) notes: BTreeSet<Note>,
    /// Speed of the batch kernels with the lane to themselves, by round.
    alone_per_s: BTreeMap<(u64, &'static str), f64>,
    /// Limits that sessions have learned, by batch kernel and setting. Sessions at other loads start from them, too,
    /// since batch's cost to a request does not depend on the load.
    learned: BTreeMap<(&'static str, &'static str), LearnedLimits>,
}

/// One run in a round.
#[derive(Clone, Copy, Debug)]
struct Turn {
    load: u8,
    batch: &'static str,
    setting: Setting,
}

/// Runs `plan` on the service of `fixture` until each of `checks` is decided. The objective is `slo_us`; without it the
/// objective is computed from runs of the service alone.
pub(super) fn run_sweep(
    fixture: &Fixture,
    plan: &SweepPlan,
    slo_us: Option<f64>,
    checks: fn(&Sweep, &Samples) -> Vec<Check>,
) -> Result<SweepResult> {
    let sweep = Sweep {
        objective: ServiceObjective::from_p99_alone(slo_us, measure_p99_alone(fixture, plan)?, plan.moderate_load()),
        plan: plan.clone(),
        emulated_contention_cost: fixture.sibling.as_ref().map(|sibling| sibling.service_loss()),
    };
    let lanes = fixture.placement()?.lanes;
    let turns = |round, samples: &Samples| sweep.turns(round, samples);
    let title = |turn: &Turn| format!("{} %, {}, {}", turn.load, turn.batch, turn.setting.title);
    let checks = |samples: &Samples| checks(&sweep, samples);
    let sharing = Experiment { name: plan.service, limit: plan.limit, turns: &turns, title, checks: &checks };
    let mut seen = SweepHistory::default();
    let (samples, _) = sharing.run(|Turn { load, batch, setting }, round, samples| {
        let task = RunSpec {
            fixture,
            rhythm: round_load_pattern(fixture, plan, load, round + 1),
            batch,
            batch_alone_per_s: seen.batch_alone_per_s(fixture, batch, round)?,
            draw: false,
            experience: seen.learning_options(plan, batch, &setting),
        };
        let run = run::run(task, &setting)?;
        seen.record_run(batch, &setting, &run);
        samples.add(round, SampleKey::new(load, batch, setting.name), figures_of_run(&run, &lanes));
        Ok(())
    })?;
    Ok(SweepResult { samples, mean_service_us: fixture.mean_service_us, seen, sweep })
}

/// Measures the p99 of the service alone at each load.
fn measure_p99_alone(fixture: &Fixture, plan: &SweepPlan) -> Result<BTreeMap<u8, f64>> {
    let mut p99_us = BTreeMap::new();
    for load in &plan.loads {
        let rhythm = LoadPattern { run: plan.run * CALIBRATION_TIMES, ..round_load_pattern(fixture, plan, *load, 0) };
        let alone = RunSpec {
            fixture,
            rhythm,
            batch: plan.batches[0],
            batch_alone_per_s: 0.0,
            draw: false,
            experience: LearningOptions::default(),
        };
        p99_us.insert(*load, run::run(alone, &Setting::ALONE)?.p99_us());
    }
    Ok(p99_us)
}

/// Returns the same requests at the same times for all runs of a round.
fn round_load_pattern(fixture: &Fixture, plan: &SweepPlan, load: u8, seed: u64) -> LoadPattern {
    let rate_per_s = fixture.rate_per_s(f64::from(load) / 100.0);
    LoadPattern { rate_per_s, run: plan.run, warm_up: plan.warm_up, seed, shape: Shape::Steady }
}

impl Sweep {
    /// Returns the turns of a round. The first rounds have all loads, later rounds only loads with an undecided check.
    fn turns(&self, round: u64, samples: &Samples) -> Vec<Turn> {
        let loads = match round < self.plan.limit.first {
            true => self.plan.loads.clone(),
            false => undecided_loads(self, samples),
        };
        let of_load = |load| {
            let turns = turns(load, &self.settings_of_round(round, load), &self.plan.batches);
            let first = round as usize % turns.len();
            let all = turns.len();
            turns.into_iter().cycle().skip(first * 3).take(all).collect::<Vec<_>>()
        };
        loads.into_iter().flat_map(of_load).collect()
    }

    /// Returns the settings at a load, with the budget or age that its objective leaves.
    pub(super) fn settings(&self, load: u8) -> Vec<Setting> {
        let ns = |us: f64| (us * 1e3) as u64;
        self.plan.settings(ns(self.objective.budget_us(load)), ns(self.objective.age_limit_us(load)))
    }

    /// Returns the settings of a round. Settings without a check take part in every second round.
    fn settings_of_round(&self, round: u64, load: u8) -> Vec<Setting> {
        let is_judged = |setting: &Setting| match setting.beside {
            None => true,
            Some(_) => {
                setting.runs_with_every_batch()
                    && setting.has_lending_policy()
                    && setting.name != Setting::freezing_daemon().name
            }
        };
        let settings = self.settings(load).into_iter();
        settings.filter(|setting| round.is_multiple_of(2) || is_judged(setting)).collect()
    }
}

/// Returns the turns at one load. The service alone and the paper's own rules take one turn, every other setting one
/// turn per batch kernel.
fn turns(load: u8, settings: &[Setting], batches: &[&'static str]) -> Vec<Turn> {
    let with = |(place, batch): (usize, &&'static str)| {
        let (is_first, batch) = (place == 0, *batch);
        let taking_part = settings.iter().filter(move |setting| setting.runs_with_every_batch() || is_first);
        taking_part.map(move |setting| Turn { load, batch, setting: *setting })
    };
    batches.iter().enumerate().flat_map(with).collect()
}

impl SweepHistory {
    /// Returns the speed of a batch kernel alone, which is measured once in a round.
    fn batch_alone_per_s(&mut self, fixture: &Fixture, batch: &'static str, round: u64) -> Result<f64> {
        Ok(match self.alone_per_s.entry((round, batch)) {
            Entry::Occupied(measured) => *measured.get(),
            Entry::Vacant(none) => *none.insert(batch::measure_batch_alone_per_s(fixture, batch, BATCH_ALONE, round)?),
        })
    }

    /// Returns the limits that earlier sessions have learned. Without any, it returns the time in which this session
    /// may learn them.
    fn learning_options(&self, plan: &SweepPlan, batch: &'static str, setting: &Setting) -> LearningOptions {
        let taken_over = self.learned.get(&(batch, setting.name)).copied();
        let learning = if taken_over.is_some() { Duration::ZERO } else { plan.learning };
        LearningOptions { taken_over, learning }
    }

    fn record_run(&mut self, batch: &'static str, setting: &Setting, run: &run::Figures) {
        let learned = run.beside.as_ref().and_then(|beside| beside.learned);
        self.learned.extend(learned.map(|learned| ((batch, setting.name), learned)));
        self.client_percent = self.client_percent.max(run.latencies.cpu_percent);
        self.send_lag_us = self.send_lag_us.max(run.latencies.send_lag_p99_us);
        let notes = run.beside.iter().flat_map(|beside| &beside.notes).filter(|_| setting.has_lending_policy());
        self.notes.extend(notes.map(|note| with_setting_name(note.clone(), setting.title)));
    }
}

fn figures_of_run(run_figures: &run::Figures, lanes: &Lanes) -> Figures {
    let beside = run_figures.beside.as_ref();
    let batch_utilisation =
        |beside: &BesideFigures| beside.accounting.batch_ns(lanes) as f64 / beside.accounting.at_ns.max(1) as f64;
    Figures {
        requests: run_figures.latencies.requests as f64,
        p50_us: run_figures.p50_us(),
        p95_us: run_figures.p95_us(),
        p99_us: run_figures.p99_us(),
        client_p99_us: run_figures.at_socket.as_ref().map(|_| run_figures.latencies.p99_us),
        lc_utilisation: run_figures.lc_utilisation,
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
        let turns = turns(50, &settings, &["loop", "flush"]);
        let names: Vec<(&str, &str)> = turns.iter().map(|turn| (turn.setting.name, turn.batch)).collect();
        let wanted = [
            ("alone", "loop"),
            ("sched_idle", "loop"),
            ("borrow_idle", "loop"),
            ("sched_idle", "flush"),
            ("borrow_idle", "flush"),
        ];
        assert_eq!(names, wanted);
    }
}
