//! Arguments of `sidelane compare`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sidelane_host::service::Target;
use sidelane_host::units::parse_time;

use super::common::{ResultFiles, RunDirectory};
use super::run::LendArgs;
use sidelane_compare::{CompareOptions, WorkCounter};
use sidelane_lanes::batch::BatchClass;
use sidelane_lanes::lending_limits::LendingError;

/// Arguments of `sidelane compare`.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Measure whether Sidelane pays off for a service:
  sidelane compare --service port:6379 -- ./train.py
Judge the service by an objective, and write a page:
  sidelane compare --service port:8080 --slo p99=100ms --page worth.html -- ./train.py",
    after_help = "\
More examples:
  sidelane compare --service port:6379 --lanes 0:1 --unmanaged idle -- make -B -j2
  sidelane compare --service port:8080 --work-counter /tmp/done -- ./train.py

The service needs its usual traffic during the comparison. All changes are undone at the end. The batch command is \
started anew for each run; it gets no input, and its output is thrown away. There are six rounds at least; without \
--rounds they take two minutes at most.

Exit code: 0 if it is worth it. 1 if it is not. 2 for wrong arguments. 3 if that is undecided: the first line says \
why, and what would decide it. 125 if sidelane refuses or fails. 130 after Ctrl-C."
)]
pub struct CompareArgs {
    /// The service: pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH
    #[arg(long, value_name = "SERVICE")]
    pub service: Target,
    /// Request and batch lanes, e.g. 0:1 or 0:1,2:3 [default: the service's CPUs and their SMT siblings]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Option<String>,
    /// Confine the service to its request lanes while Sidelane runs
    #[arg(long)]
    pub pin_service: bool,
    /// Scheduling class of batch without Sidelane, on the same batch lanes
    #[arg(long, value_name = "CLASS", value_enum, default_value = "ordinary")]
    pub unmanaged: Unmanaged,
    /// Go on up to this number of rounds while the verdict is undecided, without a time limit
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: Option<u64>,
    /// Measured time of each setting in a round [default: 1.5s; up to 5s where requests are rare]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub round: Option<Duration>,
    /// Time before each setting is measured, in which batch starts up
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_time)]
    pub settle: Duration,
    /// File with the number of work units that batch has done; PATH#FIELD reads the number after that word
    #[arg(long, value_name = "FILE")]
    pub work_counter: Option<String>,
    /// How lanes are lent
    #[command(flatten)]
    pub lend: LendArgs,
    /// Time for batch to end after SIGTERM; then it gets SIGKILL
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    pub grace: Duration,
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Files of the results
    #[command(flatten)]
    pub files: ResultFiles,
    /// The directory of the run
    #[command(flatten)]
    pub out: RunDirectory,
    /// The batch command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Scheduling class of batch without Sidelane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Unmanaged {
    /// SCHED_OTHER, as any other program
    Ordinary,
    /// SCHED_IDLE, which yields its own CPU to other threads
    Idle,
}

impl CompareArgs {
    /// Converts the arguments to the options of a comparison.
    ///
    /// # Errors
    /// When the options contradict each other.
    pub fn options(self) -> Result<CompareOptions, LendingError> {
        Ok(CompareOptions {
            lending: self.lend.lending()?,
            target: self.service,
            lanes: self.lanes,
            pin_service: self.pin_service,
            gate: self.lend.gate,
            unmanaged: match self.unmanaged {
                Unmanaged::Ordinary => BatchClass::Ordinary,
                Unmanaged::Idle => BatchClass::Idle,
            },
            rounds: self.rounds,
            run: self.round,
            settle: self.settle,
            grace: self.grace,
            max_slowdown: self.lend.max_slowdown,
            work_counter: self.work_counter.map(|place| WorkCounter { place }),
            command: self.command,
        })
    }
}
