//! The effect of the emulated sibling on the search service's p99: batch has to harm it, and Sidelane has to prevent
//! the harm.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};

use super::SiblingOptions;
use crate::experiment::fixture::Fixture;
use crate::experiment::learn::LearningOptions;
use crate::experiment::load::{LoadPattern, Shape};
use crate::experiment::place::ExperimentCpus;
use crate::experiment::run::{Figures, RunSpec};
use crate::experiment::setting::Setting;
use crate::experiment::{batch, run, search};
use crate::note::LabNote;
use sidelane_diagnostics::note::Note;
use sidelane_report::{Check, Interval, Row, Unit};
use sidelane_stats::interval::median_interval;
use sidelane_stats::ranks::median;
use sidelane_stats::rounds::{Limit, Turn, run_until_decided};

const LOAD: f64 = 0.5;
const BATCH: &str = "matrix";
const BATCH_ALONE: Duration = Duration::from_millis(300);
const ROUNDS: Limit = Limit { first: 11, rounds: 44, time: Duration::from_secs(600) };
const ROUNDS_QUICK: Limit = Limit { first: 6, rounds: 12, time: Duration::from_secs(80) };
/// Smallest ratio of the p99 beside unmanaged batch to the p99 alone that the check requires.
const UNMANAGED_OVER_ALONE: f64 = 1.4;
const BORROW_IDLE_OVER_ALONE: f64 = 1.05;

/// Figures of the settings in each round: the service alone, unmanaged batch, and borrow idle. All settings of a round
/// get the same requests.
pub(super) struct SearchRuns {
    rounds: Vec<[Figures; 3]>,
    note: Option<LabNote>,
}

fn settings() -> [Setting; 3] {
    [Setting::ALONE, Setting::UNMANAGED, Setting::borrow_idle()]
}

pub(super) fn run_search(place: ExperimentCpus, options: &SiblingOptions) -> Result<SearchRuns> {
    let fixture =
        search::start_search_service(place, None, &options.cache).context("cannot start the search service")?;
    let length = Duration::from_millis(if options.round_options.quick { 1_500 } else { 4_000 });
    let mut runs = SearchRuns { rounds: Vec::new(), note: fixture.sibling.as_ref().map(|sibling| sibling.note()) };
    let round = |runs: &mut SearchRuns, turn: Turn<'_>| {
        runs.rounds.push(measure_round(&fixture, turn.round, length)?);
        Ok(())
    };
    run_until_decided(
        "search",
        options.round_options.limit(ROUNDS_QUICK, ROUNDS),
        &mut runs,
        round,
        SearchRuns::checks,
    )?;
    Ok(runs)
}

fn measure_round(fixture: &Fixture, round: u64, length: Duration) -> Result<[Figures; 3]> {
    let rhythm = LoadPattern {
        rate_per_s: fixture.rate_per_s(LOAD),
        run: length,
        warm_up: Duration::from_millis(400),
        seed: round + 1,
        shape: Shape::Steady,
    };
    let batch_alone_per_s = batch::measure_batch_alone_per_s(fixture, BATCH, BATCH_ALONE, round)?;
    let task = RunSpec {
        fixture,
        rhythm,
        batch: BATCH,
        batch_alone_per_s,
        draw: false,
        experience: LearningOptions::default(),
    };
    let [alone, unmanaged, borrow_idle] = settings();
    Ok([run::run(task, &alone)?, run::run(task, &unmanaged)?, run::run(task, &borrow_idle)?])
}

impl SearchRuns {
    fn p99_over_alone(&self, setting_index: usize) -> Option<Interval> {
        median_interval(self.rounds.iter().map(|round| round[setting_index].p99_us() / round[0].p99_us()))
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        let row = |(number, setting): (usize, Setting)| {
            let of = |figure: fn(&Figures) -> f64| median(self.rounds.iter().map(|round| figure(&round[number])));
            let mut row = Row::new(format!("search, {}", setting.title));
            row.put("load_percent", LOAD * 100.0);
            row.put("p50_us", of(Figures::p50_us)).put("p99_us", of(Figures::p99_us));
            row.put("p99_over_alone", self.p99_over_alone(number).map(|over| over.measured));
            row.put(
                "batch_work_ratio",
                median(self.rounds.iter().filter_map(|round| Some(round[number].beside.as_ref()?.batch_work_ratio))),
            );
            row
        };
        settings().into_iter().enumerate().map(row).collect()
    }

    pub(super) fn checks(&self) -> Vec<Check> {
        let name = |what| format!("search at 50 % load, {what}: p99 over alone, median of pairs");
        vec![
            Check::interval_at_least(
                name("batch unmanaged"),
                self.p99_over_alone(1),
                UNMANAGED_OVER_ALONE,
                Unit::OverAlone,
            ),
            Check::interval_at_most(
                name("borrow idle"),
                self.p99_over_alone(2),
                BORROW_IDLE_OVER_ALONE,
                Unit::OverAlone,
            ),
        ]
    }

    pub(super) fn notes(&self, place: ExperimentCpus) -> BTreeSet<Note> {
        let mut notes: BTreeSet<Note> = self.note.iter().cloned().map(Note::from).collect();
        let beside = self.rounds.iter().flat_map(|round| round.iter().filter_map(|run| run.beside.as_ref()));
        notes.extend(beside.flat_map(|beside| beside.notes.iter().cloned()));
        if place.is_client_on_batch_lane() {
            notes.insert(LabNote::ClientOnBatchLaneAsleep.into());
        }
        notes
    }
}
