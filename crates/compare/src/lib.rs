//! `sidelane compare`: whether Sidelane is worth it for a service of the user's own, under its own traffic.
//!
//! - `figures`: the three settings, and what a run in each came to
//! - `traffic`: the service's requests
//! - `ground`: one run, with its session
//! - `verdict`, `obstacle`, `words`: what the rounds decide, what is in the way, and the sentence. Pure
//! - `result`: rows, checks and notes
//!
//! In each round the service runs alone, beside unmanaged batch and beside batch under Sidelane, in changing order, and
//! its runs are compared with each other. Rounds go on until the verdict is decided, up to a limit.
//!
//! # Invariants
//!
//! - Verdict, checks and exit code agree (`crates/sidelane/tests/compare.rs`:
//!   `a_search_service_beside_an_emulated_sibling_gets_a_verdict`).
//! - Each setting follows each other setting equally often (`src/figures.rs`:
//!   `order_of_settings_is_balanced_over_six_rounds`).
//! - Without six rounds, or without requests, nothing is decided (`src/verdict.rs`:
//!   `without_six_rounds_or_any_request_nothing_is_decided`).
//! - An obstacle is named (`src/obstacle.rs`: `traffic_that_is_missing_rare_or_changing_is_named`).
//! - It refuses what `run` refuses, by the same plan (`crates/sidelane/tests/compare.rs`:
//!   `errors_of_run_are_reported_at_once_by_compare`).
//! - Nothing is left behind (`crates/sidelane/tests/compare.rs`:
//!   `ctrl_c_leaves_nothing_behind_and_reports_the_rounds_so_far`, `a_killed_comparison_leaves_nothing_behind`).

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod figures;
mod ground;
mod note;
mod obstacle;
mod result;
#[cfg(test)]
mod sample;
mod traffic;
mod verdict;
mod words;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use sidelane_policy::borrow::{Budget, Lending};

use ground::Environment;
pub use ground::WorkCounter;
use obstacle::{Plan, Stop};
pub use result::COLUMNS;
use result::Compared;
use sidelane_host::service::Target;
use sidelane_host::until::Shutdown;
use sidelane_lanes::batch::BatchClass;
use sidelane_lanes::gate::GateChoice;
use sidelane_lanes::plan::{Plan as LanePlan, RequestedBatch, RunRequest};
use sidelane_lanes::preflight_errors::PreflightErrors;
use sidelane_lanes::slowdown::{BOUND, MaxSlowdown};
use sidelane_report::terminal::eprint_fitted;
use sidelane_report::{ResultFile, check_writable};
use sidelane_requests::watch::can_watch;
use sidelane_stats::rounds::{Limit, RoundOptions, Turn, until_decided};
use verdict::{Bounds, Judged};

/// Of the rounds. With the first look it takes two minutes at most.
const LIMIT: Limit = Limit { first: 6, rounds: 24, time: Duration::from_secs(105) };

/// The options of `sidelane compare`.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// The service.
    pub target: Target,
    /// Its lanes, if `--lanes` says which.
    pub lanes: Option<String>,
    /// Confine the service to its request lanes while Sidelane runs.
    pub pin_service: bool,
    /// How batch gets off a lane.
    pub gate: GateChoice,
    /// Who decides, and what batch may cost.
    pub lending: Lending,
    /// In which class unmanaged batch runs.
    pub unmanaged: BatchClass,
    /// How many rounds, however long they take.
    pub rounds: Option<u64>,
    /// How long the service is measured in each setting of a round; by itself as its traffic needs.
    pub run: Option<Duration>,
    /// How long each setting lasts before it is measured.
    pub settle: Duration,
    /// How long batch may go on when it is asked to end.
    pub grace: Duration,
    /// How much slower requests may be.
    pub max_slowdown: Option<MaxSlowdown>,
    /// Where batch counts what it has done.
    pub work_counter: Option<WorkCounter>,
    /// The batch command.
    pub command: Vec<OsString>,
}

impl CompareOptions {
    fn bounds(&self) -> Bounds {
        let objective = match self.lending.budget {
            Budget::Slo(objective) => Some(objective),
            _ => None,
        };
        let bound = match self.max_slowdown {
            Some(MaxSlowdown::Bound(bound)) => bound,
            Some(MaxSlowdown::Any) | None => BOUND,
        };
        Bounds { max_slowdown: 1.0 + bound, objective }
    }

    /// As `sidelane run` would be asked.
    fn asked(&self) -> RunRequest {
        RunRequest {
            services: vec![(self.target.clone(), self.lanes.clone())],
            pin_service: self.pin_service,
            gate: self.gate,
            lending: self.lending,
            max_slowdown: self.max_slowdown,
            batch: RequestedBatch::Command(self.command.clone()),
        }
    }

    fn plan(&self, run: Duration) -> Plan {
        let percentile = self.bounds().objective.map_or(99.0, |objective| objective.percentile);
        Plan { settle: self.settle, run, percentile }
    }
}

/// A comparison that can be.
pub struct Comparison {
    options: CompareOptions,
    plan: LanePlan,
}

impl Comparison {
    /// Finds what the user has named. Nothing is changed. Results are to go to `outputs`.
    ///
    /// # Errors
    /// All that is in the way, at once: what `sidelane run` refuses, and requests that cannot be seen.
    pub fn prepare<'a>(
        options: CompareOptions,
        outputs: impl Iterator<Item = &'a Path>,
    ) -> Result<Self, PreflightErrors> {
        let mut errors = PreflightErrors::of_privileges();
        let plan = LanePlan::find(options.asked(), &mut errors);
        let service = plan.as_ref().and_then(|plan| plan.services.first());
        if let Some(beside) = service {
            errors.note(can_watch(&beside.target, &beside.service));
        }
        for path in outputs {
            errors.note(check_writable(path));
        }
        Ok(Self { plan: errors.unless(plan)?, options })
    }

    /// What is going to happen.
    pub fn lines(&self) -> Vec<String> {
        let unmanaged = self.options.unmanaged.name();
        let rounds = format!(
            "in each round: {} alone, beside batch unmanaged ({unmanaged}), and beside batch under Sidelane",
            self.options.target
        );
        [vec![rounds], self.plan.lines()].concat()
    }

    /// Compares, and makes the result.
    ///
    /// # Errors
    /// Of a service without requests, among others.
    pub fn run(self) -> Result<ResultFile> {
        let Self { options, plan } = self;
        let mut ground = Environment::begin(&options, plan, Shutdown::signal()?)?;
        let patience = RoundOptions { quick: false, rounds: options.rounds };
        let compared = compare(&options, &mut ground, patience.limit(LIMIT, LIMIT))?;
        Ok(compared.to_result(&options, &ground, patience))
    }
}

fn compare(options: &CompareOptions, ground: &mut Environment<'_>, limit: Limit) -> Result<Compared> {
    let given = options.run.unwrap_or_default();
    eprint_fitted(&format!("sidelane: looking how many requests {} gets", options.target));
    let Some(per_s) = ground.requests_per_s()? else {
        return Ok(Compared { rounds: Vec::new(), run: given, stop: Some(Stop::Asked) });
    };
    let run = options.run.unwrap_or_else(|| traffic::run_for(per_s));
    eprint_fitted(&format!(
        "sidelane: {} gets {per_s:.0} requests a second, {}; a round measures it three times for {run:?}: alone, beside \
         batch unmanaged, and with Sidelane",
        options.target,
        ground.source()
    ));
    let mut rounds = Vec::new();
    let round = |rounds: &mut Vec<_>, turn: Turn<'_>| {
        rounds.push(ground.round(&turn, run)?);
        Ok(())
    };
    let done =
        until_decided("compare", limit, &mut rounds, round, |rounds| Judged::of(rounds, options.bounds()).open());
    // An ended service or a signal keeps what was measured before it; other errors are errors.
    let stop = done.map_or_else(|error| error.downcast::<Stop>().map(Some), |_| Ok(None))?;
    Ok(Compared { rounds, run, stop })
}
