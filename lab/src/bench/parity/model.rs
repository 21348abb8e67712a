//! The conversion of a model to a real run, and of both results to comparable figures.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use sidelane_policy::borrow::{self, PolicyKind};
use sidelane_sim::arrivals::Arrivals;
use sidelane_sim::model::{BatchMode, Budget, Job, LendingDecider, RunEnd};
use sidelane_sim::smt::NAP;
use sidelane_sim::{Model, sweep};

use super::compare::ComparedFigures;
use crate::experiment::load::{LoadPattern, Shape};
use crate::experiment::run;
use crate::experiment::setting::Setting;
use crate::experiment::sibling::Slowdown;
use sidelane_host::topology::Lanes;

/// Factor by which a simulated run is longer than a measured one, so that its random error adds little to a comparison.
const TIMES: u64 = 50;

/// Largest utilisation of a request lane that is compared. A queue at a busier lane takes longer to settle than a run
/// lasts: its mean length is proportional to 1 ÷ (1 − busy)². The effect of a few percent in the machine's speed grows
/// by the same factor.
pub(super) const BUSY_MOST: f64 = 0.85;

/// Settings of a model for a run on the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MachineRun<'m> {
    pub(super) setting: Setting,
    /// Name of the lab's batch kernel.
    pub(super) batch: &'m str,
    pub(super) rhythm: LoadPattern,
}

/// # Errors
///
/// Fails if the model has parts that the lab cannot run.
pub(super) fn machine_run(model: &Model) -> Result<MachineRun<'_>> {
    let (Arrivals::Poisson { gap_ns }, RunEnd::Time(run_ns)) = (&model.service.arrivals, model.until) else {
        bail!("for real there is only a load with arrivals.kind = \"poisson\", for run_s");
    };
    if model.service.workers != 1 || model.machine.lanes_per_core != 2 {
        bail!("for real there is only one worker on a pair of lanes: workers = 1, lanes_per_core = 2");
    }
    let rhythm = LoadPattern {
        rate_per_s: 1e9 / gap_ns,
        run: Duration::from_nanos(run_ns),
        warm_up: Duration::from_nanos(model.warm_up_ns),
        seed: 1,
        shape: Shape::Steady,
    };
    let batch = match &model.batch[..] {
        [job] => job.name.as_str(),
        _ => bail!("for real there is one batch job, the lab's kernel of that name: loop, matrix, flush or zstd"),
    };
    Ok(MachineRun { setting: setting_of_model(model)?, batch, rhythm })
}

/// Returns the lanes' slowdown in the model, for an emulated sibling with the same slowdown.
pub(super) fn slowdown(model: &Model) -> Result<Slowdown> {
    let (service, smt) = (model.service.class, &model.smt);
    let batch = model.batch.first().and_then(Job::first_computing_class).context("for real there is one batch job")?;
    Ok(Slowdown {
        service: smt.slowdown(service, batch),
        batch: smt.slowdown(batch, service),
        nap: smt.slowdown(service, NAP),
    })
}

fn setting_of_model(model: &Model) -> Result<Setting> {
    let name = &model.setting.name;
    Ok(match model.setting.beside {
        BatchMode::Nothing => Setting::ALONE,
        BatchMode::Unmanaged => Setting::UNMANAGED,
        BatchMode::Lent(lending) => match (lending.by, lending.budget) {
            (LendingDecider::Policy(PolicyKind::BorrowIdle), _) => Setting::borrow_idle(),
            (LendingDecider::Policy(policy), Budget::Given(ns)) => {
                Setting::with_budget(policy, borrow::Budget::Given(ns))
            }
            _ => bail!(
                "cannot run the setting {name} on this machine without a budget; write budget_ms in its [[setting]]"
            ),
        },
    })
}

/// Returns the measured figures in comparable form.
pub(in crate::bench) fn comparable_figures(figures: &run::Figures, lanes: &Lanes) -> ComparedFigures {
    let accounting = figures.beside.as_ref().map(|beside| &beside.accounting);
    ComparedFigures {
        p50_us: figures.p50_us(),
        p99_us: figures.p99_us(),
        lc_utilisation: figures.lc_utilisation,
        batch_utilisation: accounting
            .map(|accounting| accounting.batch_ns(lanes) as f64 / accounting.at_ns.max(1) as f64),
    }
}

/// Returns the request lane's utilisation in the model if it is too high for a steady state to compare. The utilisation
/// assumes that batch runs beside every request and lengthens each request by the slowdown.
pub(super) fn saturated_utilisation(model: &Model) -> Option<f64> {
    let unmanaged = matches!(model.setting.beside, BatchMode::Unmanaged);
    let batch = model.batch.first().and_then(Job::first_computing_class).filter(|_| unmanaged)?;
    let busy = model.service.load() * model.smt.slowdown(model.service.class, batch);
    (busy >= BUSY_MOST).then_some(busy)
}

/// Simulates the model and returns the figures in comparable form.
pub(super) fn simulate_figures(model: &Model) -> ComparedFigures {
    let until = match model.until {
        RunEnd::Time(ns) => RunEnd::Time(ns * TIMES),
        requests => requests,
    };
    let figures = sweep::run_machine(&Model { until, ..model.clone() });
    ComparedFigures {
        p50_us: figures.p50_ns as f64 / 1e3,
        p99_us: figures.p99_ns as f64 / 1e3,
        lc_utilisation: figures.lc_utilisation,
        batch_utilisation: (model.batch_lanes() > 0).then_some(figures.batch_utilisation),
    }
}

#[cfg(test)]
mod tests {
    use sidelane_sim::{Choices, Experiment};

    use super::*;

    const SCENARIO: &str = include_str!("../../../scenarios/parity.toml");

    /// Returns a recording of one request that takes a millisecond.
    fn recording_of_one_request(_: &str) -> Result<String, String> {
        Ok("{\"arrived_ns\":1,\"started_ns\":1000000,\"finished_ns\":2000000}\n".to_owned())
    }

    fn parse_models(text: &str) -> Vec<Model> {
        let experiment = Experiment::parse("parity.toml", text, Choices::default(), &recording_of_one_request).unwrap();
        experiment.points.into_iter().flat_map(|point| point.runs).collect()
    }

    #[test]
    fn scenario_is_converted_to_runs_on_the_machine() {
        let models = parse_models(SCENARIO);
        let names: Vec<_> = models.iter().map(|model| machine_run(model).unwrap().setting.name).collect();
        assert_eq!(names, [["alone", "unmanaged", "borrow_idle"]; 2].concat());
        let first = machine_run(&models[0]).unwrap();
        assert_eq!((first.batch, first.rhythm.rate_per_s.round()), ("matrix", 300.0));
        assert_eq!((first.rhythm.run, first.rhythm.warm_up), (Duration::from_secs(10), Duration::from_secs(1)));
    }

    #[test]
    fn the_scenarios_slowdown_is_emulated() {
        let slowdown = slowdown(&parse_models(SCENARIO)[0]).unwrap();
        assert_eq!(slowdown, Slowdown { service: 1.67, batch: 1.4, nap: 1.0 });
    }

    #[test]
    fn unmanaged_batch_beside_a_busy_service_has_no_steady_state() {
        let models = parse_models(SCENARIO);
        let busy: Vec<_> = models.iter().map(saturated_utilisation).collect();
        assert!(busy.iter().enumerate().all(|(run, busy)| busy.is_some() == (run == 4)), "{busy:?}");
        assert!((busy[4].unwrap() - 0.6 * 1.67).abs() < 0.01, "{busy:?}");
    }

    #[test]
    fn scenarios_beyond_the_lab_are_refused() {
        let with =
            |from: &str, to: &str| machine_run(&parse_models(&SCENARIO.replace(from, to))[0]).unwrap_err().to_string();
        assert!(with("run_s = 10", "requests = 10").contains("run_s"));
        assert!(with("lanes_per_core = 2", "lanes_per_core = 4").contains("pair of lanes"));
        assert!(with("name = \"matrix\"", "name = \"matrix\"\n[[batch]]\nname = \"b\"").contains("one batch job"));
    }
}
