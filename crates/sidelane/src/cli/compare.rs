//! Arguments of `sidelane compare`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sidelane_host::service::Target;
use sidelane_host::units::parse_time;

use super::common::ResultFiles;
use super::run::LendArgs;
use sidelane_compare::{CompareOptions, WorkCounter};
use sidelane_lanes::batch::BatchClass;
use sidelane_lanes::lending_limits::LendingError;

/// Arguments of `sidelane compare`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sidelane compare --service port:6379 -- ./train.py
  sidelane compare --service port:6379 --lanes 0:1 --unmanaged idle -- make -B -j2
  sidelane compare --service port:8080 --slo p99=100ms --work-counter /tmp/done --page worth.html -- ./train.py

The service needs its usual traffic meanwhile. Nothing is changed that lasts. The batch command is started anew for each \
run, gets no input, and its output is thrown away. Six rounds at least, two minutes at most unless --rounds says so.

Exit code: 0 if it is worth it, 1 if it is not, 2 for wrong arguments, 3 if that is undecided: the first line says why, \
and what would decide it; 125 if sidelane refuses or fails.")]
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
    /// In which scheduling class batch runs without Sidelane, on the same batch lanes
    #[arg(long, value_name = "CLASS", value_enum, default_value = "ordinary")]
    pub unmanaged: Unmanaged,
    /// Run at most this number of rounds while the verdict is undecided, without a time limit
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: Option<u64>,
    /// How long the service is measured in each setting of a round [default: 1.5s, up to 5s where requests are rare]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub round: Option<Duration>,
    /// How long each setting lasts before it is measured, for batch to get going
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_time)]
    pub settle: Duration,
    /// A file in which batch counts what it has done, as a number; PATH#FIELD for the number after that word
    #[arg(long, value_name = "FILE")]
    pub work_counter: Option<String>,
    /// How lanes are lent
    #[command(flatten)]
    pub lend: LendArgs,
    /// How long batch may go on after it was asked to end
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    pub grace: Duration,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Where results go
    #[command(flatten)]
    pub files: ResultFiles,
    /// The batch command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// How batch runs without Sidelane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Unmanaged {
    /// As any other program
    Ordinary,
    /// In SCHED_IDLE, which yields its own CPU to others
    Idle,
}

impl CompareArgs {
    /// What is to be compared, if the options go together.
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
