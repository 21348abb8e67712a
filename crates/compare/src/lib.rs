//! `sidelane compare`: whether Sidelane pays off for a user's own service, under its own traffic.
//!
//! - `figures`: the three settings, and the figures of a run in each
//! - `traffic`: the service's requests
//! - `environment`: one run, with its session
//! - `verdict`, `obstacle`, `text`: the decision from the rounds, what prevents it, and the sentence about it. They
//!   have no side effects
//! - `result`: rows, checks and notes
//!
//! In each round the service runs alone, beside unmanaged batch and beside batch under Sidelane, in changing order. The
//! runs of a round are compared with each other. Rounds continue until the verdict is decided, up to a limit.
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
//! - The verb refuses what `run` refuses, by the same plan (`crates/sidelane/tests/compare.rs`:
//!   `errors_of_run_are_reported_at_once_by_compare`).
//! - Nothing is left behind (`crates/sidelane/tests/compare.rs`:
//!   `ctrl_c_leaves_nothing_behind_and_reports_the_rounds_so_far`, `a_killed_comparison_leaves_nothing_behind`).

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod environment;
mod figures;
mod note;
mod obstacle;
mod result;
#[cfg(test)]
mod sample;
mod text;
mod traffic;
mod verdict;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use sidelane_policy::borrow::{Budget, Lending};

use environment::Environment;
pub use environment::WorkCounter;
use obstacle::{Plan, Stop};
pub use result::COLUMNS;
use result::Compared;
use sidelane_host::service::Target;
use sidelane_host::shutdown::Shutdown;
use sidelane_lanes::batch::BatchClass;
use sidelane_lanes::gate::GateChoice;
use sidelane_lanes::plan::{Plan as LanePlan, RequestedBatch, RunRequest};
use sidelane_lanes::preflight_errors::PreflightErrors;
use sidelane_lanes::slowdown::{BOUND, MaxSlowdown};
use sidelane_report::terminal::eprint_fitted;
use sidelane_report::{ResultFile, check_directory_exists};
use sidelane_requests::watch::can_watch;
use sidelane_stats::rounds::{Limit, RoundOptions, Turn, run_until_decided};
use verdict::{Bounds, Evaluation};

/// Limit of the number and time of rounds. With the first look at the traffic a comparison takes at most two minutes.
const LIMIT: Limit = Limit { first: 6, rounds: 24, time: Duration::from_secs(105) };

/// Options of `sidelane compare`.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// Service that is compared.
    pub target: Target,
    /// Lanes of the service; `None` without `--lanes`.
    pub lanes: Option<String>,
    /// Whether the service is confined to its request lanes while Sidelane runs.
    pub pin_service: bool,
    /// Gate: the mechanism that gets batch off a lane.
    pub gate: GateChoice,
    /// Policy that decides, and the delay that batch may cause.
    pub lending: Lending,
    /// Policy that decides when lanes are lent, and the delay of requests that batch may cause.
    pub unmanaged: BatchClass,
    /// Number of rounds, at any duration; `None` for rounds until the verdict is decided.
    pub rounds: Option<u64>,
    /// Time for which the service is measured in each setting of a round; `None` for a time that fits its traffic.
    pub run: Option<Duration>,
    /// Time for which each setting lasts before it is measured.
    pub settle: Duration,
    /// Time for which batch may continue after it is asked to end.
    pub grace: Duration,
    /// Bound on the slowdown of requests.
    pub max_slowdown: Option<MaxSlowdown>,
    /// File in which batch counts its work.
    pub work_counter: Option<WorkCounter>,
    /// Batch command with its arguments.
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

    /// Returns the options of the `sidelane run` whose effect is compared.
    fn run_request(&self) -> RunRequest {
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

/// Comparison whose conditions were checked.
pub struct Comparison {
    options: CompareOptions,
    plan: LanePlan,
}

impl Comparison {
    /// Finds the service, lanes and gate that the user has named, and changes nothing. Results are to be written to
    /// `outputs`.
    ///
    /// # Errors
    /// Returns all obstacles at once: everything that `sidelane run` refuses, and requests that cannot be observed.
    pub fn prepare<'a>(
        options: CompareOptions,
        outputs: impl Iterator<Item = &'a Path>,
    ) -> Result<Self, PreflightErrors> {
        let mut errors = PreflightErrors::from_missing_privileges();
        let plan = LanePlan::find(options.run_request(), &mut errors);
        let service = plan.as_ref().and_then(|plan| plan.services.first());
        if let Some(beside) = service {
            errors.collect_error(can_watch(&beside.target, &beside.service));
        }
        for path in outputs {
            errors.collect_error(check_directory_exists(path));
        }
        Ok(Self { plan: errors.into_result(plan)?, options })
    }

    /// Returns lines that describe what the comparison will do.
    pub fn lines(&self) -> Vec<String> {
        let unmanaged = self.options.unmanaged.name();
        let rounds = format!(
            "in each round: {} alone, beside unmanaged batch ({unmanaged}), and beside batch under Sidelane",
            self.options.target
        );
        [vec![rounds], self.plan.summary_lines()].concat()
    }

    /// Runs the comparison. Returns its result, and whether a POSIX signal ended it early.
    ///
    /// # Errors
    /// Fails, among other reasons, if the service gets no requests.
    pub fn run(self) -> Result<(ResultFile, bool)> {
        let Self { options, plan } = self;
        let mut environment = Environment::start(&options, plan, Shutdown::on_posix_signals()?)?;
        let round_options = RoundOptions { quick: false, rounds: options.rounds };
        let compared = compare(&options, &mut environment, round_options.limit(LIMIT, LIMIT))?;
        let is_interrupted = compared.stop == Some(Stop::Asked);
        Ok((compared.to_result(&options, &environment, round_options), is_interrupted))
    }
}

fn compare(options: &CompareOptions, environment: &mut Environment<'_>, limit: Limit) -> Result<Compared> {
    let given = options.run.unwrap_or_default();
    eprint_fitted(&format!("sidelane: counting the requests of {}", options.target));
    let Some(per_s) = environment.requests_per_s()? else {
        return Ok(Compared { rounds: Vec::new(), run: given, stop: Some(Stop::Asked) });
    };
    let run = options.run.unwrap_or_else(|| traffic::run_length_for(per_s));
    eprint_fitted(&format!(
        "sidelane: {} gets {per_s:.0} requests per second, {}; a round measures it three times for {run:?}: alone, \
         beside unmanaged batch, and with Sidelane",
        options.target,
        environment.request_source()
    ));
    let mut rounds = Vec::new();
    let round = |rounds: &mut Vec<_>, turn: Turn<'_>| {
        rounds.push(environment.measure_round(&turn, run)?);
        Ok(())
    };
    let done = run_until_decided("compare", limit, &mut rounds, round, |rounds| {
        Evaluation::judge(rounds, options.bounds()).undecided_checks()
    });
    // After a signal or an ended batch, the earlier measurements are kept; other errors are returned.
    let stop = done.map_or_else(|error| error.downcast::<Stop>().map(Some), |_| Ok(None))?;
    Ok(Compared { rounds, run, stop })
}
