//! Runs an experiment: each point with each setting, on all CPU cores.

use crate::engine::Engine;
use crate::fleet::{self, FleetFigures};
use crate::model::{BatchMode, Budget, Lending, Model};
use crate::parallel;
use crate::result::Figures;
use crate::scenario::{Experiment, Point, PointValue};
use crate::time::Nanos;

/// Result of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome<F = Figures> {
    /// Swept values of the run, by path.
    pub at: Vec<(String, PointValue)>,
    /// Name of the run's setting.
    pub setting: String,
    /// Results of the machine, or of all machines of a fleet.
    pub figures: F,
    /// Results of the requests that go to a whole group of a fleet; `None` without a fleet.
    pub fleet: Option<FleetFigures>,
}

impl<F> Outcome<F> {
    /// Returns the swept number at `path`.
    pub fn number(&self, path: &str) -> Option<f64> {
        self.at.iter().find_map(|(swept, value)| match value {
            PointValue::Number(number) if swept == path => Some(*number),
            _ => None,
        })
    }

    /// Returns the swept name at `path`.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.at.iter().find_map(|(swept, value)| match value {
            PointValue::Text(text) if swept == path => Some(text.as_str()),
            _ => None,
        })
    }
}

/// Progress of an experiment.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'o> {
    /// Number of further machines that have ended, out of [`Experiment::machines`].
    Machines(usize),
    /// A run has ended: the name of its setting.
    Run(&'o str),
}

/// Function that receives progress, from any thread.
pub type ReportProgress<'t> = &'t (dyn Fn(Progress) + Sync);

/// Runs all of `experiment` on `threads` threads.
pub fn run(experiment: &Experiment, threads: usize, report: ReportProgress) -> Vec<Outcome> {
    // A fleet already uses all threads, so the points of such an experiment run one after another.
    let fleets = experiment.points.iter().any(|point| point.fleet.is_some());
    let (outside, inside) = if fleets { (1, threads) } else { (threads, 1) };
    let points =
        parallel::map(experiment.points.len(), outside, |index| run_point(&experiment.points[index], inside, report));
    points.into_iter().flatten().collect()
}

fn run_point(point: &Point, threads: usize, report: ReportProgress) -> Vec<Outcome> {
    let mut alone_ns = None;
    let mut outcomes = Vec::new();
    for model in &point.runs {
        let mut model = model.clone();
        set_budget_from_run_alone(point, &mut model, &mut alone_ns, threads);
        tune_budget(point, &mut model, threads);
        let outcome = run_model(point, &model, threads, report);
        report(Progress::Run(&outcome.setting));
        outcomes.push(outcome);
    }
    outcomes
}

/// Runs one setting at one point.
fn run_model(point: &Point, model: &Model, threads: usize, report: ReportProgress) -> Outcome {
    let (figures, fleet) = match &point.fleet {
        Some(fleet) => {
            let (leaves, roots) = fleet::run(fleet, model, threads, &|machines| report(Progress::Machines(machines)));
            (leaves, Some(roots))
        }
        None => {
            let figures = run_machine(model);
            report(Progress::Machines(1));
            (figures, None)
        }
    };
    Outcome { at: point.at.clone(), setting: model.setting.name.clone(), figures, fleet }
}

/// Runs one machine to its end.
pub fn run_machine(model: &Model) -> Figures {
    let mut engine = Engine::new(model.clone(), ());
    engine.run();
    Figures::from_engine(&engine)
}

/// Sets a budget `SloLessAlone`: the objective less the latency of the service alone, at the same load and percentile
/// (Elfen §3.4).
fn set_budget_from_run_alone(point: &Point, model: &mut Model, alone_ns: &mut Option<Nanos>, threads: usize) {
    let (BatchMode::Lent(lending), Some(objective)) = (&model.setting.beside, model.objective) else { return };
    if lending.budget != Budget::SloLessAlone {
        return;
    }
    let alone_ns = *alone_ns.get_or_insert_with(|| latency_at_objective_ns(point, &model.without_batch(), threads));
    model.setting.beside = with_budget(lending, objective.limit_ns.saturating_sub(alone_ns));
}

/// Returns batch under the same lending, with this budget.
fn with_budget(lending: &Lending, budget_ns: Nanos) -> BatchMode {
    BatchMode::Lent(Lending { budget: Budget::Given(budget_ns), ..*lending })
}

/// Returns the latency at the objective's percentile. In a fleet it is that of fan-out requests, which wait for all
/// leaves.
fn latency_at_objective_ns(point: &Point, model: &Model, threads: usize) -> Nanos {
    let outcome = run_model(point, model, threads, &|_| ());
    let at_root = outcome.fleet.and_then(|fleet| fleet.objective_ns);
    at_root.or(outcome.figures.objective_ns).unwrap_or(0)
}

/// Number of halvings in the search of a budget; the range is twice the objective's limit.
const TUNING_STEPS: u32 = 11;

/// Finds the largest budget with which the same requests meet the objective, by bisection. A larger budget never makes
/// requests faster. A different order of requests is the exception, by less than one step.
fn tune_budget(point: &Point, model: &mut Model, threads: usize) {
    let (BatchMode::Lent(lending), Some(objective)) = (model.setting.beside, model.objective) else { return };
    if lending.budget != Budget::Tuned {
        return;
    }
    let mut keeps = |budget_ns| {
        model.setting.beside = with_budget(&lending, budget_ns);
        latency_at_objective_ns(point, model, threads) <= objective.limit_ns
    };
    let (mut kept_ns, mut step_ns) = (0, 2 * objective.limit_ns);
    if keeps(step_ns) {
        return;
    }
    for _ in 0..TUNING_STEPS {
        step_ns /= 2;
        if keeps(kept_ns + step_ns) {
            kept_ns += step_ns;
        }
    }
    model.setting.beside = with_budget(&lending, kept_ns);
}
