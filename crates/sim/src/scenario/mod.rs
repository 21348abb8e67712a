//! Scenario files: each is one experiment, with a machine, the programs on it, the settings that are compared, and
//! the swept keys.
//!
//! `[sweep]` has a list for each key that varies, by its whole path. The experiment has a point for each combination,
//! in which those values replace the file's. `[[case]]` has values that change together. `[quick]` has the changes of
//! a short run in the same form, and `[quick.sweep]` shorter lists. All points are parsed before any of them runs,
//! and all errors of a point are reported at once, each with its line.
//!
//! `[service]` describes cores that one service shares with batch ([`crate::engine`]). A list of `[[service]]`
//! describes a whole machine ([`crate::machine`]). The same code reads all else that both have.

mod axes;
mod fleet;
mod inputs;
mod parts;
mod service;
mod settings;
mod whole;

use std::fmt;
use std::path::Path;

use sidelane_toml::{Document, Problems, Reader, to_number, value_as_text};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use axes::{Axis, Case, combinations, quick_overrides, read_axes, read_cases};
pub use inputs::{Choices, Files, NamedFiles};
use inputs::{FilesBeside, Result, read_seed, read_warm_up_and_end};

use crate::fleet::Fleet;
use crate::gate::Gate;
use crate::machine;
use crate::model::{BatchMode, Budget, Lending, LendingDecider, Machine, Model, Setting};

/// Value of a swept key.
#[derive(Clone, Debug, PartialEq)]
pub enum PointValue {
    /// A number, such as a rate.
    Number(f64),
    /// A name, or several names joined by `+`.
    Text(String),
}

impl fmt::Display for PointValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Properties that runs of cores and of whole machines have in common.
pub trait Run {
    /// Returns the name of the run's setting.
    fn setting(&self) -> &str;
    /// Returns the hardware of the run.
    fn machine(&self) -> &Machine;
    /// Returns the seed of the run.
    fn seed(&self) -> u64;
}

impl Run for Model {
    fn setting(&self) -> &str {
        &self.setting.name
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn seed(&self) -> u64 {
        self.seed
    }
}

impl Run for machine::model::MachineModel {
    fn setting(&self) -> &str {
        &self.setting.name
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn seed(&self) -> u64 {
        self.seed
    }
}

/// One combination of swept values, with a run for each setting.
#[derive(Clone, Debug)]
pub struct Point<R = Model> {
    /// Swept values by path, in the order of the file.
    pub at: Vec<(String, PointValue)>,
    /// Runs with each setting, in the order of the file.
    pub runs: Vec<R>,
    /// Fleet of the scenario, if it has one.
    pub fleet: Option<Fleet>,
}

impl<R> Point<R> {
    /// Returns the value of `path` at this point.
    pub fn value(&self, path: &str) -> Option<&PointValue> {
        self.at.iter().find(|(swept, _)| swept == path).map(|(_, value)| value)
    }
}

/// An experiment: all points and runs of a scenario.
#[derive(Clone, Debug)]
pub struct Experiment<R = Model> {
    /// Title of the experiment.
    pub title: String,
    /// Explanation of the experiment, in paragraphs.
    pub explanation: Vec<String>,
    /// Swept keys, by path.
    pub swept: Vec<String>,
    /// Points of the sweep.
    pub points: Vec<Point<R>>,
}

/// A scenario of cores, or of whole machines.
#[derive(Clone, Debug)]
pub enum Scenario {
    /// Cores that one service shares with batch.
    Cores(Experiment),
    /// Whole machines with services and containers.
    Machine(Experiment<machine::model::MachineModel>),
}

impl Scenario {
    /// Reads the scenario at `path`, and the files that it names.
    pub fn load(path: &Path, choices: Choices) -> std::result::Result<Self, Problems> {
        let name = path.display().to_string();
        Self::parse(&name, &read_scenario_text(path)?, choices, &FilesBeside(path))
    }

    /// Parses a scenario. `file` is the scenario's name in messages.
    pub fn parse(file: &str, text: &str, choices: Choices, files: Files) -> std::result::Result<Self, Problems> {
        let root = parse_toml(file, text)?;
        if root.get_ref().get("service").is_some_and(|service| service.get_ref().is_array()) {
            return Ok(Self::Machine(parse_experiment(file, text, choices, &|top| {
                whole::read_machine_models(top, choices, files)
            })?));
        }
        Ok(Self::Cores(Experiment::parse(file, text, choices, files)?))
    }
}

impl Experiment {
    /// Reads the scenario at `path`, and the files that it names.
    pub fn load(path: &Path, choices: Choices) -> std::result::Result<Self, Problems> {
        let name = path.display().to_string();
        Self::parse(&name, &read_scenario_text(path)?, choices, &FilesBeside(path))
    }

    /// Parses a scenario. `file` is the scenario's name in messages.
    pub fn parse(file: &str, text: &str, choices: Choices, files: Files) -> std::result::Result<Self, Problems> {
        parse_experiment(file, text, choices, &|top| read_core_models(top, choices, files))
    }
}

impl<R: Run> Experiment<R> {
    /// Returns the number of runs.
    pub fn runs(&self) -> usize {
        self.points.iter().map(|point| point.runs.len()).sum()
    }

    /// Returns the number of machines; a run of a fleet counts all of its machines.
    pub fn machines(&self) -> usize {
        self.points.iter().map(|point| point.runs.len() * point.fleet.as_ref().map_or(1, |fleet| fleet.nodes)).sum()
    }

    /// Returns the first run of the first point.
    pub fn first(&self) -> Option<&R> {
        self.points.first()?.runs.first()
    }

    /// Returns the names of the settings, in order.
    pub fn settings(&self) -> impl Iterator<Item = &str> {
        self.points.first().into_iter().flat_map(|point| point.runs.iter().map(Run::setting))
    }
}

fn read_scenario_text(path: &Path) -> std::result::Result<String, Problems> {
    let unreadable = |why| {
        Problems::unreadable(
            &path.display().to_string(),
            &why,
            "name a scenario file, as in \
                                                                                    lab/scenarios/elfen-fig11.toml",
        )
    };
    std::fs::read_to_string(path).map_err(unreadable)
}

fn parse_toml<'t>(file: &str, text: &'t str) -> std::result::Result<Spanned<DeTable<'t>>, Problems> {
    sidelane_toml::parse(file, text, "write TOML as in the files of lab/scenarios/")
}

/// Function that reads the runs of one point.
type Read<'r, R> = &'r dyn Fn(&Reader) -> Result<(Vec<R>, Option<Fleet>)>;

fn parse_experiment<R>(
    file: &str,
    text: &str,
    choices: Choices,
    read: Read<R>,
) -> std::result::Result<Experiment<R>, Problems> {
    let root = parse_toml(file, text)?;
    let document = |over| Document::new(text, root.get_ref(), over);
    let bare = document(Vec::new());
    let shortened = if choices.quick { quick_overrides(&bare) } else { Vec::new() };
    let swept = read_axes(&bare, choices.quick).and_then(|axes| Ok((axes, read_cases(&bare)?)));
    let (axes, cases) = value_or_problems(file, &bare, swept)?;
    let mut points = Vec::new();
    for case in cases_or_none(&cases) {
        let of_case = case.map_or(&[][..], |case| &case.values);
        for combination in combinations(&axes) {
            let over = of_case.iter().chain(&shortened).chain(&combination).cloned().collect();
            let document = document(over);
            points.push(value_or_problems(file, &document, read_point(&document, &axes, case, read))?);
        }
    }
    let (title, explanation) = read_title_and_explanation(&bare.top());
    let swept = cases.first().map(|_| CASE.to_owned()).into_iter().chain(axes.into_iter().map(|axis| axis.path));
    Ok(Experiment { title, explanation, swept: swept.collect(), points })
}

/// Returns the value that was read, or all problems of the document if it has any.
fn value_or_problems<T>(file: &str, document: &Document, read: Result<T>) -> std::result::Result<T, Problems> {
    let problems = document.problems.take();
    read.ok().filter(|_| problems.is_empty()).ok_or_else(|| Problems::new(file, problems))
}

/// Path under which a point has the name of its case.
const CASE: &str = "case";

/// Returns each case; a single `None` if the scenario has no cases.
fn cases_or_none<'c, 't>(cases: &'c [Case<'t>]) -> Vec<Option<&'c Case<'t>>> {
    if cases.is_empty() { vec![None] } else { cases.iter().map(Some).collect() }
}

fn read_title_and_explanation(top: &Reader) -> (String, Vec<String>) {
    let title = top.text("title", "write a title").unwrap_or("simulated").to_owned();
    let explanation = top.text_or_list("explanation", "write a text or several").unwrap_or_default();
    (title, explanation.into_iter().map(str::to_owned).collect())
}

fn read_point<R>(document: &Document, axes: &[Axis], case: Option<&Case>, read: Read<R>) -> Result<Point<R>> {
    let top = document.top();
    let (runs, fleet) = read(&top)?;
    read_title_and_explanation(&top);
    for known in [CASE, "sweep", "quick"] {
        top.value(known);
    }
    top.record_unknown_keys();
    if let Some((path, value)) = document.unread_override() {
        let allowed = "write the path of a key that this scenario can have, such as service.arrivals.rate_per_s";
        return Err(document.record_problem_at(
            &value.span(),
            path,
            "is in [sweep], but is not a key of this scenario",
            allowed,
        ));
    }
    let swept = document.overriding_values().iter().filter(|(path, _)| axes.iter().any(|axis| axis.path == *path));
    let swept = swept.map(|(path, value)| (path.clone(), point_value(value.get_ref())));
    let case = case.map(|case| (CASE.to_owned(), PointValue::Text(case.name.to_owned())));
    Ok(Point { at: case.into_iter().chain(swept).collect(), runs, fleet })
}

fn point_value(value: &DeValue) -> PointValue {
    let text = |value: &DeValue| value.as_str().map_or_else(|| value_as_text(value), str::to_owned);
    match (to_number(value), value) {
        (Some(number), _) => PointValue::Number(number),
        (None, DeValue::Array(list)) => {
            PointValue::Text(list.iter().map(|value| text(value.get_ref())).collect::<Vec<_>>().join("+"))
        }
        (None, value) => PointValue::Text(text(value)),
    }
}

/// Reads a scenario of cores: a run for each setting.
fn read_core_models(top: &Reader, choices: Choices, files: Files) -> Result<(Vec<Model>, Option<Fleet>)> {
    let machine = parts::read_machine(top.table("machine"))?;
    let smt = parts::read_interference(top, parts::read_classes(top));
    let service = service::read_service(top.table("service"), machine.cores(), &smt, files);
    let (batch, length) = (parts::read_batch_jobs(top, &smt), read_warm_up_and_end(top));
    let (service, batch, (warm_up_ns, until)) = (service?, batch?, length?);
    if machine.power.core_busy_w.len() > 1 {
        return Err(top.record_problem(
            "machine.power.core_busy_w",
            "is a list",
            "write one number, or a whole machine ([[service]])",
        ));
    }
    let gate = settings::read_gate(top.table("gate"), files)?.unwrap_or_else(Gate::holder);
    let objective = parts::read_objective(top.table("slo"))?;
    let faults = top.numbered_tables("fault").into_iter().map(parts::read_fault).collect::<Result<Vec<_>>>()?;
    let seed = read_seed(top, choices);
    let run = |setting: Setting| Model {
        machine: machine.clone(),
        service: service.clone(),
        batch: batch.clone(),
        smt: smt.clone(),
        setting,
        objective,
        faults: faults.clone(),
        warm_up_ns,
        until,
        seed,
        node: 0,
    };
    let runs: Vec<Model> = settings::read_settings(top, &gate, files)?.into_iter().map(run).collect();
    runs.iter().try_for_each(|run| check_run(top, run))?;
    let fleet = fleet::read_fleet(top, runs.first(), files)?;
    Ok((runs, fleet))
}

/// Checks rules that involve several tables of the scenario, such as a budget that needs `[slo]`.
fn check_run(top: &Reader, run: &Model) -> Result<()> {
    let budget = match run.setting.beside {
        BatchMode::Lent(lending) => lending.budget,
        _ => Budget::None,
    };
    let oracle = matches!(run.setting.beside, BatchMode::Lent(Lending { by: LendingDecider::Oracle, .. }));
    let needs_objective = oracle || matches!(budget, Budget::Slo | Budget::SloLessAlone | Budget::Tuned);
    if needs_objective && run.objective.is_none() {
        let name = &run.setting.name;
        return Err(
            top.record_missing("slo", format!("write [slo] with limit_ms, from which the budget of {name} follows"))
        );
    }
    if run.setting.beside == BatchMode::Nothing {
        return Ok(());
    }
    if oracle && run.service.workers > 1 {
        return Err(top.record_problem(
            "service.workers",
            "is more than 1, but the oracle knows the requests of one worker only",
            "write 1, or leave the setting oracle out",
        ));
    }
    if run.batch.is_empty() {
        return Err(top.record_missing(
            "batch",
            format!("write at least one [[batch]], or leave the setting {} out", run.setting.name),
        ));
    }
    match run.machine.lanes_per_core {
        1 => Err(top.record_problem("machine.lanes_per_core", "is 1", "write 2 or more, so that batch has a lane")),
        _ => Ok(()),
    }
}
