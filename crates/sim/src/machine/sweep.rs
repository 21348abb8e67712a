//! Runs an experiment with whole machines: each point with each setting, on all CPU cores.

use super::MachineEngine;
use super::figures::MachineFigures;
use super::model::MachineModel;
use crate::parallel;
use crate::scenario::{Experiment, Point};
use crate::sweep::{Outcome, Progress, ReportProgress};
use crate::time::Nanos;

/// Latency limit of each service at one point of the sweep. `alone` has the figures of the run without batch, if one
/// was needed to compute a limit.
struct Limits {
    limits_ns: Vec<Option<Nanos>>,
    alone: Option<MachineFigures>,
}

/// Runs all of `experiment` on `threads` threads.
pub fn run(
    experiment: &Experiment<MachineModel>,
    threads: usize,
    report: ReportProgress,
) -> Vec<Outcome<MachineFigures>> {
    let points = &experiment.points;
    let limits = parallel::map(points.len(), threads, |at| latency_limits(&points[at]));
    let of_point = |(at, point): (usize, &Point<MachineModel>)| (0..point.runs.len()).map(move |run| (at, run));
    let runs: Vec<(usize, usize)> = points.iter().enumerate().flat_map(of_point).collect();
    parallel::map(runs.len(), threads, |index| {
        let (at, run) = runs[index];
        let model = &points[at].runs[run];
        let figures = run_or_reuse_alone(model, &limits[at]);
        report(Progress::Machines(1));
        report(Progress::Run(&model.setting.name));
        Outcome { at: points[at].at.clone(), setting: model.setting.name.clone(), figures, fleet: None }
    })
}

fn run_or_reuse_alone(model: &MachineModel, limits: &Limits) -> MachineFigures {
    match &limits.alone {
        Some(alone) if model.setting.has_only_services() => alone.clone(),
        _ => run_machine(model, &limits.limits_ns),
    }
}

/// Runs one machine to its end. `limits_ns` has the latency limit of each service, for a request with all of its calls.
pub fn run_machine(model: &MachineModel, limits_ns: &[Option<Nanos>]) -> MachineFigures {
    let mut engine = MachineEngine::new(model.clone());
    engine.run();
    MachineFigures::from_engine(&engine, limits_ns)
}

/// Returns the latency limits of a point. A limit that the scenario does not give is the 90th percentile of the
/// service alone (Holmes §6.2).
fn latency_limits(point: &Point<MachineModel>) -> Limits {
    let Some(model) = point.runs.first() else { return Limits { limits_ns: Vec::new(), alone: None } };
    let given: Vec<_> = model.services.iter().map(|service| service.limit_ns).collect();
    if given.iter().all(Option::is_some) {
        return Limits { limits_ns: given, alone: None };
    }
    let mut engine = MachineEngine::new(model.without_containers());
    engine.run();
    let alone = MachineFigures::from_engine(&engine, &given);
    let of_service = |(given, alone): (&Option<Nanos>, &super::figures::ServiceFigures)| {
        given.or((alone.whole.count > 0).then_some(alone.whole.p90_ns))
    };
    let limits_ns: Vec<_> = given.iter().zip(&alone.services).map(of_service).collect();
    Limits { alone: Some(MachineFigures::from_engine(&engine, &limits_ns)), limits_ns }
}
