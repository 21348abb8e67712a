//! Running an experiment: each point with each setting, on all CPU cores.

use crate::engine::Engine;
use crate::fleet::{self, FleetFigures};
use crate::model::{Beside, Budget, Lending, Model};
use crate::parallel;
use crate::result::Figures;
use crate::scenario::{Experiment, Point, PointValue};
use crate::time::Nanos;

/// What one run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What was swept, by its path.
    pub at: Vec<(String, PointValue)>,
    /// The name of the setting.
    pub setting: String,
    /// What the machine came to; of a fleet, all of them.
    pub figures: Figures,
    /// What requests to all came to, in a fleet.
    pub fleet: Option<FleetFigures>,
}

impl Outcome {
    /// The number that `path` had.
    pub fn number(&self, path: &str) -> Option<f64> {
        self.at.iter().find_map(|(swept, value)| match value {
            PointValue::Number(number) if swept == path => Some(*number),
            _ => None,
        })
    }

    /// The name that `path` had.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.at.iter().find_map(|(swept, value)| match value {
            PointValue::Text(text) if swept == path => Some(text.as_str()),
            _ => None,
        })
    }
}

/// How far an experiment is.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'o> {
    /// So many more machines have come to their end, of [`Experiment::machines`].
    Machines(usize),
    /// A run is done.
    Run(&'o Outcome),
}

/// Told of progress, from any thread.
pub type Tell<'t> = &'t (dyn Fn(Progress) + Sync);

/// Runs all of `experiment` on `threads` threads.
pub fn run(experiment: &Experiment, threads: usize, tell: Tell) -> Vec<Outcome> {
    // A fleet uses all threads by itself.
    let fleets = experiment.points.iter().any(|point| point.fleet.is_some());
    let (outside, inside) = if fleets { (1, threads) } else { (threads, 1) };
    let points =
        parallel::map(experiment.points.len(), outside, |index| run_point(&experiment.points[index], inside, tell));
    points.into_iter().flatten().collect()
}

fn run_point(point: &Point, threads: usize, tell: Tell) -> Vec<Outcome> {
    let mut alone_ns = None;
    let mut outcomes = Vec::new();
    for model in &point.runs {
        let mut model = model.clone();
        settle_budget(point, &mut model, &mut alone_ns, threads);
        tune_budget(point, &mut model, threads);
        let outcome = run_model(point, &model, threads, tell);
        tell(Progress::Run(&outcome));
        outcomes.push(outcome);
    }
    outcomes
}

/// Runs one setting at one point.
fn run_model(point: &Point, model: &Model, threads: usize, tell: Tell) -> Outcome {
    let (figures, fleet) = match point.fleet {
        Some(fleet) => {
            let (leaves, roots) = fleet::run(fleet, model, threads, &|machines| tell(Progress::Machines(machines)));
            (leaves, Some(roots))
        }
        None => {
            let figures = run_machine(model);
            tell(Progress::Machines(1));
            (figures, None)
        }
    };
    Outcome { at: point.at.clone(), setting: model.setting.name.clone(), figures, fleet }
}

/// Runs one machine to its end.
pub fn run_machine(model: &Model) -> Figures {
    let mut engine = Engine::new(model.clone(), ());
    engine.run();
    Figures::of(&engine)
}

/// §3.4: what 99 % of requests take alone, at this load, leaves of the objective so much.
fn settle_budget(point: &Point, model: &mut Model, alone_ns: &mut Option<Nanos>, threads: usize) {
    let (Beside::Lent(lending), Some(objective)) = (&model.setting.beside, model.objective) else { return };
    if lending.budget != Budget::SloLessAlone {
        return;
    }
    let alone_ns = *alone_ns.get_or_insert_with(|| objective_ns(point, &model.alone(), threads));
    model.setting.beside = given(lending, objective.limit_ns.saturating_sub(alone_ns));
}

/// Of a run with such a budget.
fn given(lending: &Lending, budget_ns: Nanos) -> Beside {
    Beside::Lent(Lending { budget: Budget::Given(budget_ns), ..*lending })
}

/// What whole requests take at the objective's percentile.
fn objective_ns(point: &Point, model: &Model, threads: usize) -> Nanos {
    let outcome = run_model(point, model, threads, &|_| ());
    let at_root = outcome.fleet.and_then(|fleet| fleet.objective_ns);
    at_root.or(outcome.figures.objective_ns).unwrap_or(0)
}

/// Halvings of the range in which a budget is sought, which is twice the objective's limit.
const TUNING_STEPS: u32 = 11;

/// The most with which the objective is kept, over the same requests: more is never faster, but for
/// requests that change places, which is within a step.
fn tune_budget(point: &Point, model: &mut Model, threads: usize) {
    let (Beside::Lent(lending), Some(objective)) = (model.setting.beside, model.objective) else { return };
    if lending.budget != Budget::Tuned {
        return;
    }
    let mut keeps = |budget_ns| {
        model.setting.beside = given(&lending, budget_ns);
        objective_ns(point, model, threads) <= objective.limit_ns
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
    model.setting.beside = given(&lending, kept_ns);
}
