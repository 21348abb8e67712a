//! Arguments of `sidelane run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sidelane_host::service::Target;
use sidelane_host::units::parse_time;
use sidelane_policy::borrow::{BorrowConfig, Budget, Lending, Objective, PolicyKind};

use super::common::{JsonFile, parse_percent};
use sidelane_diagnostics::audit::AuditLevel;
use sidelane_lanes::adopt::{AdoptError, Adoptee};
use sidelane_lanes::gate::GateChoice;
use sidelane_lanes::lending_limits::LendingError;
use sidelane_lanes::slowdown::MaxSlowdown;
use sidelane_requests::objective::parse_objective;

/// Arguments of `sidelane run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sidelane run --service port:6379 -- make -j2
  sidelane run --service pid:1234 --lanes 0:1 -- ./train.py
  sidelane run --service port:8080 --slo p99=100ms -- ./train.py
  sidelane run --service port:6379 --lanes 0:1 --service port:8080 --lanes 2:3 -- make -j2
  sidelane run --service port:6379 --adopt cgroup:/batch.slice/job

Sidelane never ends adopted batch: at Ctrl-C, and if sidelane is killed, each of its processes goes on with the \
CPUs, the scheduling class and the groups that it had.

A budget or an objective needs to know the service's requests: they are seen at its TCP sockets, or it \
emits them through runtime/c/sidelane.h and is believed instead.

Exit code: the batch command's own, 128 and the number of the signal that ended it, or 0 if batch was adopted and \
given back; 2 for wrong arguments; 99, whatever the command's own is, if --fail-on-slo and the objective was missed, or \
--fail-on-overlap and batch ran beside a service for longer; 125 if sidelane refuses or fails, 126 if the command cannot \
be run, 127 if it is not found.")]
pub struct RunArgs {
    /// The service: pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH; once for each of several
    #[arg(long = "service", value_name = "SERVICE", required = true)]
    pub services: Vec<Target>,
    /// Request and batch lanes, e.g. 0:1 or 0:1,2:3; once for each service [default: the service's CPUs and their
    /// SMT siblings]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Vec<String>,
    /// Confine the service to its request lanes for the time of the run
    #[arg(long)]
    pub pin_service: bool,
    /// How lanes are lent
    #[command(flatten)]
    pub lend: LendArgs,
    /// How long batch may go on after a signal that asks it to end
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub grace: Duration,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
    /// Write decisions and their reasons here, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub audit: Option<PathBuf>,
    /// What is in the audit log
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t, requires = "audit")]
    pub audit_level: AuditLevel,
    /// Report the progress of batch at this interval
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub status: Option<Duration>,
    /// Say nothing but errors
    #[arg(long, short, conflicts_with = "status")]
    pub quiet: bool,
    /// When batch has been kept off all its lanes for --blocked-after: say so and wait, or end the run
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub on_blocked: WhenBlocked,
    /// How long batch may be kept off before that
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub blocked_after: Duration,
    /// End with exit code 99 if the objective was missed
    #[arg(long, requires = "slo")]
    pub fail_on_slo: bool,
    /// End with exit code 99 if batch ran beside a service, without leave, for more than this part of the service's time.
    /// The first line of the summary is judged by it, too [default of that line: 1%]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub fail_on_overlap: Option<f64>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Let the batch command enter real-time classes and raise its nice value: it keeps CAP_SYS_NICE, CAP_SYS_RESOURCE
    /// and its limits
    #[arg(long, conflicts_with = "adopt")]
    pub allow_realtime: bool,
    /// Batch that runs already, instead of a command: pid:NUMBER or cgroup:/PATH
    #[arg(long, value_name = "BATCH", value_parser = parse_adoptee, conflicts_with = "command")]
    pub adopt: Option<Target>,
    /// The batch command
    #[arg(last = true, required_unless_present = "adopt", value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// What to do about batch that is kept off for long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WhenBlocked {
    /// Say so, and wait
    #[default]
    Wait,
    /// End the run
    Fail,
}

fn parse_max_slowdown(text: &str) -> Result<MaxSlowdown, String> {
    match text {
        "none" => Ok(MaxSlowdown::Any),
        _ => parse_percent(text).map(|percent| MaxSlowdown::Bound(percent / 100.0)),
    }
}

fn parse_adoptee(text: &str) -> Result<Target, AdoptError> {
    Adoptee::parse(text)
}

/// How lanes are lent to batch.
#[derive(Debug, Args)]
pub struct LendArgs {
    /// How batch gets off its lane when the service starts
    #[arg(long, value_enum, default_value_t)]
    pub gate: GateChoice,
    /// When batch may run beside a request: borrow-idle, fixed-budget, refresh-budget, dynamic-refresh
    /// or deadline; to compare with, elfen-fixed, elfen-refresh or elfen-dynamic [default: borrow-idle;
    /// with a budget dynamic-refresh; with an objective deadline]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<PolicyKind>,
    /// How much later batch may make a request; under deadline, how old a request gets before batch
    /// leaves it
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "slo")]
    pub budget: Option<Duration>,
    /// What requests may take, as in p99=100ms: what batch may cost is what this leaves
    #[arg(long, value_name = "OBJECTIVE", value_parser = parse_objective)]
    pub slo: Option<Objective>,
    /// How long the service must have been idle before batch gets its lane back
    #[arg(long, value_name = "TIME", default_value = "8us", value_parser = parse_time)]
    pub min_idle: Duration,
    /// By how much batch may slow down requests at p50 and p99, or none to allow anything: batch waits for longer
    /// idle moments as needed, and is kept off if that is not enough. With --gate holder, without --budget and
    /// --slo [default: 5%]
    #[arg(long, value_name = "PERCENT", value_parser = parse_max_slowdown)]
    pub max_slowdown: Option<MaxSlowdown>,
}

impl LendArgs {
    /// How lanes are lent, if the options go together.
    pub fn lending(&self) -> Result<Lending, LendingError> {
        let budget = match (self.budget, self.slo) {
            (Some(budget), _) => Budget::Given(budget.as_nanos() as u64),
            (None, Some(objective)) => Budget::Slo(objective),
            (None, None) => Budget::None,
        };
        let config = BorrowConfig { min_idle_ns: self.min_idle.as_nanos() as u64, ..Default::default() };
        Ok(Lending::new(self.policy, budget, config)?)
    }
}
