//! `sidelane-lab bench parity SCENARIO`: runs one scenario on the machine and in simulation, and compares the two.
//!
//! The service is the lab's search service, batch the lab's kernel that the scenario names. First the service's
//! requests are recorded; a scenario with `file = "requests.jsonl"` gets them as its demand. Then each setting runs on
//! the machine at the model's rate. Rounds repeat until it is decided whether the medians agree with the model.

pub(super) mod compare;
pub(super) mod model;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use sidelane_sim::{Choices, Experiment, Model};

use crate::experiment::comparison::Report;
use crate::experiment::fixture::Fixture;
use crate::experiment::learn::LearningOptions;
use crate::experiment::load::{LoadPattern, RunningClient, Shape};
use crate::experiment::place::ExperimentCpus;
use crate::experiment::run::RunSpec;
use crate::experiment::sibling::{EmulatedSibling, SlowdownMechanism};
use crate::experiment::{batch, run, search};
use crate::note::LabNote;
use compare::SettingComparison;
use sidelane_diagnostics::note::{Note, notes_as_text};
use sidelane_host::service::Target;
use sidelane_host::topology::{Lanes, PairKind};
use sidelane_report::{Check, ResultFile};
use sidelane_requests::watch;
use sidelane_requests::watch::WatchOptions;
use sidelane_stats::rounds::{Limit, RoundOptions, Turn, run_until_decided};

/// Options of `sidelane-lab bench parity`.
#[derive(Clone, Debug)]
pub struct ParityOptions {
    /// File of the scenario.
    pub scenario: PathBuf,
    /// Limit of rounds, and whether to use the short runs of the scenario's `[quick]`.
    pub round_options: RoundOptions,
    /// Lane pair from `--lanes`; by default SMT siblings if there are any, else CPUs 0 and 1.
    pub lanes: Option<String>,
    /// Emulation of the sibling from `--sibling`, if given.
    pub sibling: Option<SlowdownMechanism>,
    /// Folder that keeps index and queries between runs.
    pub cache: PathBuf,
}

/// File name of the recorded requests in a scenario.
const RECORDED: &str = "requests.jsonl";
/// Length of the recording, for some thousand requests: the model's p99 depends on 1 % of them.
const RECORD: Duration = Duration::from_secs(22);
/// Time that the recording runs before the load and after it.
const RECORD_MARGIN: Duration = Duration::from_secs(1);
/// Load during the recording, as a fraction. It is high enough that caches are as warm as in the measured runs; service
/// times do not depend on it.
const RECORD_LOAD: f64 = 0.4;
const ROUNDS: Limit = Limit { first: 6, rounds: 24, time: Duration::from_secs(1_200) };
const ROUNDS_QUICK: Limit = Limit { first: 6, rounds: 9, time: Duration::from_secs(120) };
/// Time for which batch is measured alone on its lane.
const BATCH_ALONE: Duration = Duration::from_millis(300);

/// Runs the scenario on the machine and in simulation.
pub fn run(options: &ParityOptions) -> Result<ResultFile> {
    let place = ExperimentCpus::choose(options.lanes.as_deref())?;
    let mut fixture = search::start_search_service(place, options.sibling, &options.cache)
        .context("cannot start the search service")?;
    let recorded = record_requests(&fixture).context("cannot record the service's requests")?;
    let experiment = load_scenario(&options.scenario, options.round_options.quick, &recorded)?;
    let lanes = fixture.placement()?.lanes;
    let all = experiment.points.iter().flat_map(|point| &point.runs);
    let (left_out, runs): (Vec<&Model>, Vec<&Model>) =
        all.partition(|model| model::saturated_utilisation(model).is_some());
    let mut notes = parity_notes(&lanes, place, fixture.sibling.is_some());
    notes.extend(
        left_out
            .iter()
            .filter_map(|model| Some(Note::from(saturated_setting_note(model, model::saturated_utilisation(model)?)))),
    );
    let mut both = ParityComparisons { compared: runs.iter().map(|model| comparison_of_model(model)).collect(), notes };
    let limit = options.round_options.limit(ROUNDS_QUICK, ROUNDS);
    let round = |both: &mut ParityComparisons, turn: Turn<'_>| both.measure_round(&mut fixture, &lanes, &runs, turn);
    let rounds = run_until_decided("parity", limit, &mut both, round, ParityComparisons::checks)?;
    let report = Report {
        rows: both.compared.iter().flat_map(SettingComparison::rows).collect(),
        checks: both.checks(),
        notes: notes_as_text(&both.notes),
        ..Report::with_settings(settings(options, &experiment, fixture.sibling.as_ref(), rounds))
    };
    Ok(report.into_result_file(lanes.kind, options.round_options, rounds))
}

/// Records the service's requests under load, and returns the log.
fn record_requests(fixture: &Fixture) -> Result<String> {
    let log = fixture.scratch.path().join(RECORDED);
    let watched = WatchOptions { target: Target::Pid(fixture.pid), length: RECORD, log: Some(log.clone()) };
    let run = RECORD - 2 * RECORD_MARGIN;
    let rhythm = LoadPattern {
        rate_per_s: fixture.rate_per_s(RECORD_LOAD),
        run,
        warm_up: Duration::ZERO,
        seed: 1,
        shape: Shape::Steady,
    };
    thread::scope(|scope| -> Result<()> {
        let watch = scope.spawn(|| watch::run(&watched).map(drop));
        thread::sleep(RECORD_MARGIN);
        RunningClient::start(fixture, rhythm)?.finish()?;
        watch.join().map_err(|_| anyhow!("the watch has panicked"))?
    })?;
    Ok(fs::read_to_string(log)?)
}

fn load_scenario(scenario: &Path, quick: bool, recorded: &str) -> Result<Experiment> {
    let text = fs::read_to_string(scenario).with_context(|| format!("cannot read {}", scenario.display()))?;
    let beside = scenario.parent().unwrap_or(Path::new(".")).to_owned();
    let files = |file: &str| match file {
        RECORDED => Ok(recorded.to_owned()),
        file => fs::read_to_string(beside.join(file)).map_err(|why| why.to_string()),
    };
    Ok(Experiment::parse(&scenario.display().to_string(), &text, Choices { seed: None, quick }, &files)?)
}

/// Returns the comparison of one setting at one load, with simulated figures and without measurements yet.
fn comparison_of_model(model: &Model) -> SettingComparison {
    SettingComparison {
        name: comparison_name(model),
        load_percent: 100.0 * model.service.load(),
        measured: Vec::new(),
        simulated: model::simulate_figures(model),
        client: 0.0,
    }
}

/// Returns the name of a comparison, such as `60 %, borrow-idle`.
fn comparison_name(model: &Model) -> String {
    format!("{:.0} %, {}", 100.0 * model.service.load(), model.setting.name)
}

fn saturated_setting_note(model: &Model, utilisation: f64) -> LabNote {
    let percent = |part: f64| (100.0 * part).round() as u64;
    LabNote::ParityLeftOut { run: comparison_name(model), busy: percent(utilisation), most: percent(model::BUSY_MOST) }
}

/// Comparisons of all settings, and the notes.
struct ParityComparisons {
    compared: Vec<SettingComparison>,
    notes: BTreeSet<Note>,
}

impl ParityComparisons {
    fn checks(&self) -> Vec<Check> {
        self.compared.iter().flat_map(SettingComparison::checks).collect()
    }

    /// Runs each setting once on the machine.
    fn measure_round(&mut self, fixture: &mut Fixture, lanes: &Lanes, models: &[&Model], turn: Turn<'_>) -> Result<()> {
        for (model, compared) in models.iter().zip(&mut self.compared) {
            turn.bar.set_message(compared.name.clone());
            let real = model::machine_run(model)?;
            if let Some(sibling) = &mut fixture.sibling {
                sibling.begin(model::slowdown(model)?)?;
                self.notes.insert(sibling.note().into());
            }
            let fixture = &*fixture;
            let batch_alone_per_s = match real.setting.beside {
                Some(_) => batch::measure_batch_alone_per_s(fixture, real.batch, BATCH_ALONE, turn.round)?,
                None => 0.0,
            };
            let rhythm = LoadPattern { seed: turn.round + 1, ..real.rhythm };
            let task = RunSpec {
                fixture,
                rhythm,
                batch: real.batch,
                batch_alone_per_s,
                draw: false,
                experience: LearningOptions::default(),
            };
            let figures = run::run(task, &real.setting).with_context(|| real.setting.title.to_owned())?;
            self.notes.extend(figures.beside.iter().flat_map(|beside| beside.notes.iter().cloned()));
            if fixture.place.is_client_on_batch_lane() {
                compared.client = compared.client.max(figures.latencies.cpu_percent / 100.0);
            }
            compared.measured.push(model::comparable_figures(&figures, lanes));
        }
        Ok(())
    }
}

fn settings(options: &ParityOptions, experiment: &Experiment, sibling: Option<&EmulatedSibling>, rounds: u64) -> Value {
    json!({
        "title": experiment.title,
        "explanation": experiment.explanation,
        "scenario": options.scenario.display().to_string(),
        "sibling": sibling.map(EmulatedSibling::title),
        "rounds_count": rounds,
        "quick": options.round_options.quick,
    })
}

fn parity_notes(lanes: &Lanes, place: ExperimentCpus, emulated: bool) -> BTreeSet<Note> {
    let mut notes = BTreeSet::from([Note::from(LabNote::SimulatedRows)]);
    if lanes.kind == PairKind::Declared && !emulated {
        notes.insert(LabNote::PairWithoutSlowdown.into());
    }
    if place.is_client_on_batch_lane() {
        notes.insert(LabNote::ClientWidensBound.into());
    }
    notes
}
