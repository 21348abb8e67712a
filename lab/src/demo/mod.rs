//! `sidelane-lab demo`: a real search service and a batch job on one core, with and without Sidelane.
//!
//! Four settings run in turns for several rounds: the service *alone*, batch beside it *unmanaged*, batch in the
//! kernel's own *SCHED_IDLE* class, and Sidelane's *borrow idle*. In each round every setting gets the same requests at
//! the same intended times. Latencies are therefore compared in pairs, and a slow period of the machine affects all
//! settings. No check and no finding uses SCHED_IDLE, so it takes part in every second round. The other settings run in
//! every round: a median of pairs becomes more exact with each pair. Rounds go on until every check is decided, up to a
//! limit.

mod adaptation;
mod screen;
mod settings;
mod verdict;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::experiment::fixture::Fixture;
use crate::experiment::learn::LearningOptions;
use crate::experiment::load::{LoadPattern, Shape};
use crate::experiment::place::ExperimentCpus;
use crate::experiment::run::{Figures, RunSpec};
use crate::experiment::setting::Setting;
use crate::experiment::sibling::SlowdownMechanism;
use crate::experiment::{batch, run, search};
use adaptation::Adaptation;
use sidelane_report::terminal::eprint_fitted;
use sidelane_report::{ResultFile, html};
use sidelane_stats::rounds::{Limit, RoundOptions, Turn, run_until_decided};

/// Options of `sidelane-lab demo`.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Limit of rounds, if the user gave one.
    pub round_options: RoundOptions,
    /// Lane pair from `--lanes`; by default SMT siblings if there are any, else CPUs 0 and 1.
    pub lanes: Option<String>,
    /// Share of the request lane that the load keeps busy; `None`: as this machine allows.
    pub load: Option<f64>,
    /// Whether the checks judge, by bounds that do not depend on the machine's noise.
    pub judges: bool,
    /// Emulation of the sibling from `--sibling`, if given.
    pub sibling: Option<SlowdownMechanism>,
    /// Name of the lab's batch kernel: loop, matrix, flush or zstd.
    pub batch: String,
    /// Directory for the files of the result.
    pub out: PathBuf,
    /// Folder that keeps index and queries between runs.
    pub cache: PathBuf,
}

/// Columns of the demo's table on a terminal; the HTML page shows all columns.
pub const COLUMNS: [&str; 10] = [
    "p50_us",
    "p99_us",
    "socket_p99_us",
    "max_us",
    "p99_over_alone",
    "batch_work_ratio",
    "batch_share_of_idle_percent",
    "overlap_percent",
    "reaction_off_p50_ns",
    "reaction_off_p99_ns",
];

/// Lengths and number of the measurements.
#[derive(Clone, Copy, Debug)]
struct DemoPlan {
    limit: Limit,
    run: Duration,
    warm_up: Duration,
    batch_alone: Duration,
}

impl DemoPlan {
    /// Returns the plan: a minute of rounds for a first look, or as many as a verdict needs.
    fn from_options(options: &DemoOptions) -> Self {
        let limit = |first, rounds, time_s| Limit { first, rounds, time: Duration::from_secs(time_s) };
        let (run_ms, batch_alone_ms, usual) = match options.judges {
            true => (4_000, 500, limit(10, 40, 600)),
            false => (1_200, 300, limit(6, 9, 60)),
        };
        Self {
            limit: options.round_options.limit(usual, usual),
            run: Duration::from_millis(run_ms),
            warm_up: Duration::from_millis(500),
            batch_alone: Duration::from_millis(batch_alone_ms),
        }
    }
}

/// Figures of one setting in one round.
struct Run {
    round: u64,
    setting: Setting,
    figures: Figures,
}

/// Runs the demo and writes `result.json` and `index.html`.
pub fn run(options: &DemoOptions) -> Result<ResultFile> {
    let mut pace = DemoPlan::from_options(options);
    eprint_fitted("sidelane: building the search index, if it is not there yet");
    let fixture = search::start_search_service(
        ExperimentCpus::choose(options.lanes.as_deref())?,
        options.sibling,
        &options.cache,
    )?;
    let lanes = fixture.placement()?.lanes;
    let adaptation =
        if options.judges { Adaptation::fixed(options) } else { adaptation::adapt(options, &fixture, pace)? };
    adaptation.sentence().iter().for_each(|sentence| eprint_fitted(&format!("sidelane: demo: {sentence}")));
    pace.run = pace.run.mul_f64(adaptation.longer);
    let mut runs = Vec::new();
    let subject = Subject { options, fixture: &fixture, plan: pace, adaptation };
    let round = |runs: &mut Vec<Run>, turn: Turn<'_>| measure_round(&subject, turn, runs);
    let checks = |runs: &Vec<Run>| verdict::checks(runs, &lanes, adaptation.p99_bound());
    let rounds = run_until_decided("demo", pace.limit, &mut runs, round, checks)?;
    let result = verdict::build_result(&subject, (&runs, rounds), &lanes);
    write_result_files(options, &result)?;
    Ok(result)
}

/// Subject of all rounds.
struct Subject<'demo> {
    options: &'demo DemoOptions,
    fixture: &'demo Fixture,
    plan: DemoPlan,
    adaptation: Adaptation,
}

fn measure_round(subject: &Subject<'_>, turn: Turn<'_>, runs: &mut Vec<Run>) -> Result<()> {
    turn.bar.set_message("batch alone");
    let task = run_spec(subject, turn.round)?;
    for setting in settings::settings_of_round(turn.round) {
        turn.bar.set_message(setting.title);
        runs.push(Run { round: turn.round, setting, figures: run::run(task, &setting)? });
    }
    Ok(())
}

/// Returns the specification of a run that all settings of a round share: the same requests at the same times.
fn run_spec<'demo>(subject: &Subject<'demo>, round: u64) -> Result<RunSpec<'demo>> {
    let Subject { options, fixture, plan, adaptation } = *subject;
    let rhythm = load_pattern(fixture, plan, adaptation.load, round + 1);
    let batch_alone_per_s = batch::measure_batch_alone_per_s(fixture, &options.batch, plan.batch_alone, round)?;
    Ok(RunSpec {
        fixture,
        rhythm,
        batch: &options.batch,
        batch_alone_per_s,
        draw: round == 0,
        experience: LearningOptions::default(),
    })
}

fn load_pattern(fixture: &Fixture, plan: DemoPlan, load: f64, seed: u64) -> LoadPattern {
    let rate_per_s = fixture.rate_per_s(load);
    LoadPattern { rate_per_s, run: plan.run, warm_up: plan.warm_up, seed, shape: Shape::Steady }
}

/// Returns the first screen: what was done, three numbers, two pictures, and the page's address.
pub fn first_screen(result: &ResultFile, options: &DemoOptions, color: bool) -> String {
    screen::render(result, &options.out.join("index.html").display().to_string(), color)
}

fn write_result_files(options: &DemoOptions, result: &ResultFile) -> Result<()> {
    let dir = &options.out;
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    result.write_json(&dir.join("result.json"))?;
    html::write_page(result, &dir.join("index.html"))?;
    Ok(())
}
