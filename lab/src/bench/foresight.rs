//! `sidelane-lab bench estimate`: what `sidelane estimate` says beside a service, and what a run then does.
//!
//! The service has the same load twice in a row: first alone, while an estimate records it, then beside batch under
//! borrow idle. Both are compared within the round, so a machine that is slow for a while is slow in both.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde_json::json;
use sidelane_estimate::observe::{ObserveOptions, observe};
use sidelane_estimate::outcome::{self, simulate};
use sidelane_host::service::Target;
use sidelane_policy::borrow::{Objective, PolicyKind};
use sidelane_report::{Check, ResultFile, Row, Unit};
use sidelane_sim::recording::Recording;
use sidelane_sim::tasks::Tasks;
use sidelane_stats::interval::median_interval;
use sidelane_stats::ranks::median;
use sidelane_stats::rounds::{Limit, RoundOptions, Turn, run_until_decided};

use crate::bench::parity::compare::ratio_of_larger;
use crate::bench::parity::model::comparable_figures;
use crate::experiment::comparison::Report;
use crate::experiment::fixture::Fixture;
use crate::experiment::learn::LearningOptions;
use crate::experiment::load::{LoadPattern, RunningClient, Shape};
use crate::experiment::place::ExperimentCpus;
use crate::experiment::run::{self, RunSpec};
use crate::experiment::setting::Setting;
use crate::experiment::sibling::SlowdownMechanism;
use crate::experiment::store::{Mix, Store};
use crate::experiment::{search, store};
use crate::programs::LabBinary;

/// Options of `sidelane-lab bench estimate`.
#[derive(Clone, Debug)]
pub struct ForesightOptions {
    /// Limit of rounds.
    pub round_options: RoundOptions,
    /// Lane pair from `--lanes`; by default SMT siblings if there are any, else CPUs 0 and 1.
    pub lanes: Option<String>,
    /// Emulation of the sibling from `--sibling`, if given.
    pub sibling: Option<SlowdownMechanism>,
    /// Folder that keeps index and queries between runs.
    pub cache: PathBuf,
}

const LOADS: [f64; 3] = [0.2, 0.4, 0.6];
const LOADS_QUICK: [f64; 1] = [0.4];
const RUN: Duration = Duration::from_secs(6);
const WARM_UP: Duration = Duration::from_secs(1);
const ROUNDS: Limit = Limit { first: 6, rounds: 12, time: Duration::from_secs(1_500) };
const ROUNDS_QUICK: Limit = Limit { first: 2, rounds: 2, time: Duration::from_secs(120) };
const BATCH: &str = "matrix";
/// Objective of the estimate, which borrow idle does not use.
const ANY_OBJECTIVE: Objective = Objective { percentile: 99.0, limit_ns: 1_000_000 };
/// CPU time of the service by which its load has begun.
const LOAD_BEGAN_NS: u64 = 20_000_000;

/// A figure of an estimate and of a run: its name in rows and checks, and the largest ratio between both.
const FIGURES: [(&str, &str, f64); 3] =
    [("batch_utilisation_ratio", "batch's CPU time", 1.1), ("p50_us", "p50", 1.1), ("p99_us", "p99", 1.25)];

type Measured = [f64; FIGURES.len()];

/// Estimates and runs of one service at one load.
struct Compared {
    name: String,
    load: f64,
    estimated: Vec<Measured>,
    run: Vec<Measured>,
}

impl Compared {
    fn checks(&self) -> Vec<Check> {
        let check = |(index, (_, title, bound)): (usize, &(&str, &str, f64))| {
            let ratios = self.run.iter().zip(&self.estimated).map(|(run, estimated)| run[index] / estimated[index]);
            let ratio = median_interval(ratios.filter(|ratio| ratio.is_finite()));
            let larger = ratio.map(|ratio| ratio.distance_from(1.0, ratio_of_larger));
            Check::interval_at_most(
                format!("{title} of {}: run over estimate, whichever is more", self.name),
                larger,
                *bound,
                Unit::Ratio,
            )
        };
        FIGURES.iter().enumerate().map(check).collect()
    }

    fn rows(&self) -> [Row; 2] {
        [("estimated", &self.estimated), ("run", &self.run)].map(|(from, all)| {
            let mut row = Row::new(format!("{}, {from}", self.name));
            row.put("load_percent", 100.0 * self.load);
            for (index, (key, ..)) in FIGURES.iter().enumerate() {
                row.put(key, median(all.iter().map(|figures| figures[index])));
            }
            row
        })
    }
}

/// A service with the slowdown that batch causes to it.
struct Subject {
    name: &'static str,
    fixture: Fixture,
    slowdown: f64,
}

/// Compares estimates with runs.
pub fn run(options: &ForesightOptions) -> Result<ResultFile> {
    let place = ExperimentCpus::choose(options.lanes.as_deref())?;
    let subjects = start_services(options, place)?;
    let kind = subjects[0].fixture.placement()?.lanes.kind;
    let loads: &[f64] = if options.round_options.quick { &LOADS_QUICK } else { &LOADS };
    let mut compared: Vec<Compared> = Vec::new();
    for subject in &subjects {
        compared.extend(loads.iter().map(|load| Compared {
            name: format!("{} at {:.0} %", subject.name, 100.0 * load),
            load: *load,
            estimated: Vec::new(),
            run: Vec::new(),
        }));
    }
    let limit = options.round_options.limit(ROUNDS_QUICK, ROUNDS);
    let round = |compared: &mut Vec<Compared>, turn: Turn<'_>| {
        for (index, one) in compared.iter_mut().enumerate() {
            turn.bar.set_message(one.name.clone());
            let subject = &subjects[index / loads.len()];
            let rhythm = LoadPattern {
                rate_per_s: subject.fixture.rate_per_s(one.load),
                run: RUN,
                warm_up: WARM_UP,
                seed: turn.round + 1,
                shape: Shape::Steady,
            };
            let estimated = estimate(subject, rhythm, place).with_context(|| format!("estimate of {}", one.name))?;
            let run = measure(subject, rhythm).with_context(|| format!("run of {}", one.name))?;
            one.estimated.push(estimated);
            one.run.push(run);
        }
        Ok(())
    };
    let checks = |compared: &Vec<Compared>| compared.iter().flat_map(Compared::checks).collect();
    let rounds = run_until_decided("estimate", limit, &mut compared, round, checks)?;
    let slowdowns: Vec<String> =
        subjects.iter().map(|subject| format!("{}: {:.2}", subject.name, subject.slowdown)).collect();
    let report = Report {
        rows: compared.iter().flat_map(Compared::rows).collect(),
        checks: checks(&compared),
        ..Report::with_settings(json!({
            "batch": BATCH,
            "given_slowdown": slowdowns,
            "rounds_count": rounds,
            "quick": options.round_options.quick,
        }))
    };
    Ok(report.into_result_file(kind, options.round_options, rounds))
}

/// Starts the search service beside the emulated sibling, and Redis, which the built-in emulation cannot slow.
fn start_services(options: &ForesightOptions, place: ExperimentCpus) -> Result<Vec<Subject>> {
    let fixture = search::start_search_service(place, options.sibling, &options.cache)
        .context("cannot start the search service")?;
    let loss = fixture.sibling.as_ref().map_or(0.0, |sibling| sibling.service_loss());
    let search = Subject { name: "search", fixture, slowdown: 1.0 / (1.0 - loss) };
    let lab = LabBinary::find()?;
    if options.round_options.quick || Store::Redis.ensure_installed(&lab).is_err() {
        return Ok(vec![search]);
    }
    let fixture = store::start_measured_store(place, lab, None, Store::Redis, Mix::PLAIN)?;
    Ok(vec![search, Subject { name: "redis", fixture, slowdown: 1.0 }])
}

/// Records the service alone under load, and returns the figures of borrow idle beside it.
fn estimate(subject: &Subject, rhythm: LoadPattern, place: ExperimentCpus) -> Result<Measured> {
    let recording = record(&subject.fixture, rhythm, place)?;
    let tasks = Tasks::new(&recording);
    let lent = outcome::Setting::Lent(PolicyKind::BorrowIdle);
    let outcome = simulate(&recording, &tasks, lent, ANY_OBJECTIVE, subject.slowdown);
    let figures = &outcome.figures;
    Ok([outcome.batch_share(), figures.p50_ns as f64 / 1e3, figures.p99_ns as f64 / 1e3])
}

fn record(fixture: &Fixture, rhythm: LoadPattern, place: ExperimentCpus) -> Result<Recording> {
    let options =
        ObserveOptions { target: Target::Pid(fixture.pid), lanes: Some(place.lanes()), length: rhythm.run, keep: None };
    let before_ns = fixture.service_cpu_ns()?;
    let load = RunningClient::start(fixture, LoadPattern { run: rhythm.run + WARM_UP, ..rhythm })?;
    while fixture.service_cpu_ns()? < before_ns + LOAD_BEGAN_NS && !load.wait_for_exit(Duration::from_millis(10))? {}
    let observed = thread::scope(|scope| {
        let observer = scope.spawn(|| observe(&options));
        observer.join().map_err(|_| anyhow!("the observation has panicked"))?
    });
    load.finish()?;
    Ok(observed?.0)
}

/// Runs batch under borrow idle beside the service under load.
fn measure(subject: &Subject, rhythm: LoadPattern) -> Result<Measured> {
    let fixture = &subject.fixture;
    let task = RunSpec {
        fixture,
        rhythm,
        batch: BATCH,
        batch_alone_per_s: 1.0,
        draw: false,
        experience: LearningOptions::default(),
    };
    let figures = run::run(task, &Setting::borrow_idle())?;
    let figures = comparable_figures(&figures, &fixture.placement()?.lanes);
    Ok([figures.batch_utilisation.unwrap_or(f64::NAN), figures.p50_us, figures.p99_us])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_within_their_bounds_hold_above_and_below() {
        let compared = |factor: f64| Compared {
            name: "redis at 40 %".to_owned(),
            load: 0.4,
            estimated: vec![[0.5, 100.0, 300.0]; 6],
            run: vec![[0.5 * factor, 100.0 / factor, 300.0 * factor]; 6],
        };
        let failing = |factor| compared(factor).checks().iter().filter(|check| !check.ok).count();
        assert_eq!((failing(1.05), failing(1.2), failing(0.7)), (0, 2, 3));
    }
}
