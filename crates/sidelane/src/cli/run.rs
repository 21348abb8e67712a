//! Arguments of `sidelane run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sidelane_host::service::Target;
use sidelane_host::units::parse_time;
use sidelane_policy::borrow::{BorrowConfig, Budget, Lending, Objective, PolicyKind};

use super::common::{JsonFile, RunDirectory, parse_percent};
use sidelane_diagnostics::audit::AuditLevel;
use sidelane_lanes::adopt::{AdoptError, Adoptee};
use sidelane_lanes::gate::GateChoice;
use sidelane_lanes::lending_limits::LendingError;
use sidelane_lanes::slowdown::MaxSlowdown;
use sidelane_requests::objective::parse_objective;

/// Arguments of `sidelane run`.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Run batch while the service is idle:
  sidelane run --service port:6379 -- make -j2
Run it beside requests, too, as far as an objective allows:
  sidelane run --service port:8080 --slo p99=100ms -- ./train.py",
    after_help = "\
More examples:
  sidelane run --service pid:1234 --lanes 0:1 -- ./train.py
  sidelane run --service port:6379 --lanes 0:1 --service port:8080 --lanes 2:3 -- make -j2
  sidelane run --service port:6379 --adopt cgroup:/batch.slice/job

Sidelane never ends adopted batch. At Ctrl-C, and if sidelane is killed, each of its processes goes on with the \
CPUs, the scheduling class and the groups that it had.

A budget or an objective needs the service's requests. They are seen at its TCP sockets. If the service emits them \
through runtime/c/sidelane.h, those count instead.

Exit code: the batch command's own, or 128 plus the number of the POSIX signal that ended it. 0 if adopted batch was \
given back. 2 for wrong arguments. 99 if --fail-on-slo or --fail-on-overlap applies, in place of the command's own. \
125 if sidelane refuses or fails, 126 if the command cannot be run, 127 if it is not found."
)]
pub struct RunArgs {
    /// The service: pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH; repeat the option for several services
    #[arg(long = "service", value_name = "SERVICE", required = true)]
    pub services: Vec<Target>,
    /// Request and batch lanes, e.g. 0:1 or 0:1,2:3; once for each service [default: the service's CPUs and their
    /// SMT siblings]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Vec<String>,
    /// Confine the service to its request lanes during the run
    #[arg(long)]
    pub pin_service: bool,
    /// How lanes are lent
    #[command(flatten)]
    pub lend: LendArgs,
    /// Time for batch to end after a POSIX signal that asks it to; then it gets SIGKILL
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub grace: Duration,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
    /// The directory of the run
    #[command(flatten)]
    pub out: RunDirectory,
    /// Write decisions and their reasons to this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub audit: Option<PathBuf>,
    /// Which decisions the audit log contains
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t, requires = "audit")]
    pub audit_level: AuditLevel,
    /// Print a line of progress at this interval
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub status: Duration,
    /// Print errors alone
    #[arg(long, short, conflicts_with = "status")]
    pub quiet: bool,
    /// What to do when batch was kept off all its lanes for --blocked-after
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub on_blocked: WhenBlocked,
    /// How long batch may be kept off all its lanes before --on-blocked applies
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub blocked_after: Duration,
    /// End with exit code 99 if the objective was missed
    #[arg(long, requires = "slo")]
    pub fail_on_slo: bool,
    /// End with exit code 99 if batch ran beside a service without permission for more than this share of the service's
    /// time. The first line of the summary uses the same bound [default of that line: 1%]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub fail_on_overlap: Option<f64>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Let the batch command enter real-time classes and raise its nice value: it keeps CAP_SYS_NICE, CAP_SYS_RESOURCE
    /// and its limits
    #[arg(long, conflicts_with = "adopt")]
    pub allow_realtime: bool,
    /// Batch that runs already, in place of a command: pid:NUMBER or cgroup:/PATH
    #[arg(long, value_name = "BATCH", value_parser = parse_adoptee, conflicts_with = "command")]
    pub adopt: Option<Target>,
    /// The batch command
    #[arg(last = true, required_unless_present = "adopt", value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Reaction to batch that is kept off for long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WhenBlocked {
    /// Print a note, and wait
    #[default]
    Wait,
    /// End the run with exit code 125
    Fail,
}

fn parse_max_slowdown(text: &str) -> Result<MaxSlowdown, String> {
    match text {
        "none" => Ok(MaxSlowdown::Any),
        _ => parse_percent(text).map(|percent| MaxSlowdown::Bound(percent / 100.0)),
    }
}

fn parse_adoptee(text: &str) -> Result<Target, AdoptError> {
    Adoptee::parse_target(text)
}

/// Arguments with the terms on which lanes are lent to batch.
#[derive(Debug, Args)]
pub struct LendArgs {
    /// How batch gets off its lane when the service starts
    #[arg(long, value_enum, default_value_t)]
    pub gate: GateChoice,
    /// When batch may run beside a request: borrow-idle, fixed-budget, refresh-budget, dynamic-refresh
    /// or deadline; for comparison elfen-fixed, elfen-refresh or elfen-dynamic [default: borrow-idle;
    /// with a budget dynamic-refresh; with an objective deadline]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<PolicyKind>,
    /// By how much batch may delay a request; with --policy deadline, the age of a request at which batch
    /// leaves it
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "slo")]
    pub budget: Option<Duration>,
    /// Latency objective of the service, as in p99=100ms: batch may delay requests as far as it allows
    #[arg(long, value_name = "OBJECTIVE", value_parser = parse_objective)]
    pub slo: Option<Objective>,
    /// How long the service must be idle before batch gets its lane back [default: learned from the lengths of the
    /// service's idle moments]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub min_idle: Option<Duration>,
    /// How much slower batch may make requests, at p50 and p99; none sets no bound. To keep it, batch waits for longer
    /// idle moments, and is kept off if that is not enough. Needs --gate holder, and neither --budget nor --slo
    /// [default: 5%]
    #[arg(long, value_name = "PERCENT", value_parser = parse_max_slowdown)]
    pub max_slowdown: Option<MaxSlowdown>,
}

impl LendArgs {
    /// Returns the terms on which lanes are lent to batch.
    ///
    /// # Errors
    /// When the options contradict each other.
    pub fn lending(&self) -> Result<Lending, LendingError> {
        let budget = match (self.budget, self.slo) {
            (Some(budget), _) => Budget::Given(budget.as_nanos() as u64),
            (None, Some(objective)) => Budget::Slo(objective),
            (None, None) => Budget::None,
        };
        let config = BorrowConfig::with_min_idle(self.min_idle.map(|time| time.as_nanos() as u64));
        Ok(Lending::new(self.policy, budget, config)?)
    }
}
