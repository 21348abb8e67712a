//! Conclusions about jobs that a scheduler placed: a sentence for each setting, and checks.

use sidelane_report::{Check, Unit};

use super::rows::text_value;
use crate::fleet::{FleetFigures, PlacementFigures};
use crate::time::Nanos;
use crate::{Experiment, Outcome};

/// Outcome of a fleet whose scheduler placed jobs.
struct Placed<'o> {
    /// Name of the case and setting.
    name: String,
    /// Largest age of the scheduler's view of offers.
    offers_every_ns: Nanos,
    outcome: &'o Outcome,
    fleet: FleetFigures,
    jobs: PlacementFigures,
    /// 99th percentile of whole requests of the setting `alone`, in nanoseconds.
    alone_p99_ns: Option<u64>,
}

fn placed<'o>(experiment: &Experiment, outcomes: &'o [Outcome]) -> Vec<Placed<'o>> {
    let of_outcome = |(index, outcome): (usize, &'o Outcome)| {
        let settings = experiment.settings().count().max(1);
        let point = &outcomes[index - index % settings..];
        let alone = point.iter().take(settings).find(|other| other.setting == "alone");
        let fleet = outcome.fleet?;
        let names = outcome.at.iter().filter_map(|(_, value)| text_value(value));
        let name: Vec<&str> = names.chain([outcome.setting.as_str()]).collect();
        Some(Placed {
            name: name.join(", "),
            offers_every_ns: experiment.points[index / settings].fleet.as_ref()?.placement.as_ref()?.offers_every_ns,
            outcome,
            fleet,
            jobs: fleet.placement?,
            alone_p99_ns: alone.and_then(|alone| Some(alone.fleet?.p99_ns)),
        })
    };
    outcomes.iter().enumerate().filter_map(of_outcome).collect()
}

/// Returns a sentence for each case and setting: what placing saves, and what old offers cost.
pub(super) fn findings(experiment: &Experiment, outcomes: &[Outcome]) -> Vec<String> {
    let all = placed(experiment, outcomes);
    let mut names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().filter_map(|name| finding(name, &all)).collect()
}

fn finding(name: &str, all: &[Placed]) -> Option<String> {
    let of_name = || all.iter().filter(|one| one.name == name);
    let age = |one: &&Placed| one.offers_every_ns;
    let (newest, oldest) = (of_name().min_by_key(age)?, of_name().max_by_key(age)?);
    let time = |ns: u64| Unit::Ns.human(ns as f64);
    let alone = newest.alone_p99_ns.map_or(String::new(), |ns| format!(", {} alone", time(ns)));
    let saved = |one: &Placed| Unit::Count.human(one.fleet.servers_saved().round());
    let mut text = format!(
        "{name}: {} servers saved beside {} machines; p99 of whole requests {}{alone}.",
        saved(newest),
        Unit::Count.human(newest.fleet.nodes as f64),
        time(newest.fleet.p99_ns),
    );
    if oldest.offers_every_ns > newest.offers_every_ns {
        let wait = |one: &Placed| Unit::Ms.human(one.jobs.wait_p99_ms as f64);
        let lost = |one: &Placed| Unit::S.human(one.jobs.lost_work_ns / 1e9);
        let every = |one: &Placed| match one.offers_every_ns {
            0 => "at each step".to_owned(),
            ns => format!("every {}", Unit::S.human(ns as f64 / 1e9)),
        };
        text += &format!(
            " If the scheduler sees offers {} instead of {}: {} servers saved; p99 of the jobs' wait {} instead of {}; \
             lost work {} instead of {}.",
            every(oldest),
            every(newest),
            saved(oldest),
            wait(oldest),
            wait(newest),
            lost(oldest),
            lost(newest),
        );
    }
    Some(text)
}

/// Returns the checks of each case and setting, of the worst point.
pub(super) fn checks(experiment: &Experiment, outcomes: &[Outcome]) -> Vec<Check> {
    let all = placed(experiment, outcomes);
    let worst = |number: fn(&Placed) -> Option<f64>| all.iter().filter_map(number).reduce(f64::max);
    let objective = experiment.first().and_then(|model| model.objective);
    let unaccounted = worst(|one| {
        let jobs = &one.jobs;
        Some((jobs.submitted as f64 - (jobs.done + jobs.waiting + jobs.running) as f64).abs())
    });
    let rejected = worst(|one| (one.offers_every_ns == 0).then_some(one.jobs.rejected as f64));
    let late_ns = worst(|one| Some(one.fleet.objective_ns? as f64));
    let refused = worst(|one| Some((one.outcome.figures.refused + one.fleet.failed) as f64));
    let mut checks = Vec::new();
    let mut at_most = |name: &str, measured: Option<f64>, limit: f64, unit| {
        checks.extend(measured.map(|measured| Check::at_most(name, measured, limit, unit)));
    };
    at_most("jobs that are neither done nor running nor waiting", unaccounted, 0.0, Unit::Count);
    at_most("jobs placed on a withdrawn lane, with fresh offers", rejected, 0.0, Unit::Count);
    at_most("requests refused beside batch", refused, 0.0, Unit::Count);
    if let Some(objective) = objective {
        let name = format!("p{} of whole requests beside batch, at the worst point", objective.percentile);
        at_most(&name, late_ns.map(|ns| ns / 1e3), objective.limit_ns as f64 / 1e3, Unit::Us);
    }
    checks
}
