//! Arguments of the verbs that measure: `doctor`, `calibrate`, `demo` and the benches.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use sidelane_host::units::parse_time;
use sidelane_policy::borrow::Objective;

use super::common::{CacheDir, CoreArgs, EXIT_CODES, JsonFile, PatienceArgs, ResultFiles, TableArgs};
use crate::bench::guard::{Source, Way};
use crate::bench::hurry::LITTLE_SPEED;
use crate::bench::tail::Part;
use crate::experiment::sibling::Carrier;
use crate::experiment::store::Store;
use crate::lane::objective::parse_objective;

/// Arguments of `sidelane doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Fewer rounds: ends within 8 s
    #[arg(long)]
    pub quick: bool,
    /// The lane pair to try [default: two SMT siblings, or CPUs 0 and 1 as a declared pair]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Option<String>,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
}

/// Arguments of `sidelane calibrate`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 if there is a metric and a threshold, 1 if nothing is concluded.")]
pub struct CalibrateArgs {
    /// Fewer and shorter steps
    #[arg(long)]
    pub quick: bool,
    /// The pair of CPUs [default: two SMT siblings, or CPUs 0 and 1]
    #[arg(long, value_name = "ONE:OTHER")]
    pub lanes: Option<String>,
    /// A formula to try, such as 'page-faults / task-clock'; may be repeated [default: this processor's candidates]
    #[arg(long, value_name = "FORMULA")]
    pub events: Vec<String>,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
    /// The tables
    #[command(flatten)]
    pub table: TableArgs,
}

/// Arguments of `sidelane demo`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code: 0 if it ran, 125 if nothing could be measured. With --check: 0 if all checks hold, 1 if one is missed, 3 if none \
is missed but some are undecided.")]
pub struct DemoArgs {
    /// Exit with the verdict of the checks
    #[arg(long)]
    pub check: bool,
    /// How far it goes on
    #[command(flatten)]
    pub patience: PatienceArgs,
    /// The core
    #[command(flatten)]
    pub core: CoreArgs,
    /// How busy the load keeps the request lane, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(5..=95))]
    pub load: u8,
    /// The batch job: a kernel, or a real compression
    #[arg(long, default_value = "matrix", value_parser = ["loop", "matrix", "flush", "zstd"])]
    pub batch: String,
    /// Directory for result.json and index.html
    #[arg(long, value_name = "DIR", default_value = "sidelane-demo")]
    pub out: PathBuf,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
    /// The tables
    #[command(flatten)]
    pub table: TableArgs,
    /// The search index
    #[command(flatten)]
    pub cache: CacheDir,
}

/// The benches.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The cost of tracking and of holds to the service, and the leak of a long hold
    Hold(PairArgs),
    /// The cost of checks in batch programs, and how fast they nap
    Gate(PairArgs),
    /// How well requests are seen at a service's sockets, and what that costs it
    Requests(PairArgs),
    /// How finely signals are observed, how truly, and what that costs the target
    Observe(ObserveBenchArgs),
    /// How fast lanes sleep, and what each way of sharing a core costs the service and gains
    Lanes(LanesArgs),
    /// What each way of sharing a machine costs services and gains: PerfIso, Holmes, and a gate beside it
    Guard(GuardArgs),
    /// Why requests are slow, whether that is told rightly, and what helps
    Tail(TailArgs),
    /// What moving long requests to big cores gains, beside leaving threads where they are: Hurry-up
    Hurry(HurryBenchArgs),
    /// Check on a simulated machine what papers draw from their figures
    Papers(PapersArgs),
    /// Run a scenario for real and simulated, and compare
    Parity(ParityArgs),
    /// How truly two CPUs that are made one core slow each other, and what that costs
    Sibling(SiblingArgs),
}

/// Arguments of the benches that need a pair of lanes, and no more.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct PairArgs {
    /// How far it goes on
    #[command(flatten)]
    pub patience: PatienceArgs,
    /// The lane pair to measure on
    #[arg(long, value_name = "REQUEST:BATCH", default_value = "0:1")]
    pub lanes: String,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
    /// The tables
    #[command(flatten)]
    pub table: TableArgs,
}

/// Arguments of `sidelane bench observe`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct ObserveBenchArgs {
    /// How far it goes on
    #[command(flatten)]
    pub patience: PatienceArgs,
    /// The target's lane and the observer's
    #[arg(long, value_name = "TARGET:OBSERVER", default_value = "0:1")]
    pub lanes: String,
    /// Where results go
    #[command(flatten)]
    pub files: ResultFiles,
}

/// Arguments of `sidelane bench lanes`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct LanesArgs {
    /// How far it goes on
    #[command(flatten)]
    pub patience: PatienceArgs,
    /// The core
    #[command(flatten)]
    pub core: CoreArgs,
    /// How busy the load keeps the request lane, in percent [default: 10,30,50,70,90]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(5..=95))]
    pub loads: Option<Vec<u8>>,
    /// The batch jobs [default: loop,matrix,flush,zstd]
    #[arg(long, value_name = "JOB", value_delimiter = ',', value_parser = ["loop", "matrix", "flush", "zstd"])]
    pub batches: Option<Vec<String>>,
    /// What searches may take, as in p99=50ms [default: 2.5 times their p99 alone at half load]
    #[arg(long, value_name = "OBJECTIVE", value_parser = parse_objective)]
    pub slo: Option<Objective>,
    /// Where results go
    #[command(flatten)]
    pub files: ResultFiles,
    /// The search index
    #[command(flatten)]
    pub cache: CacheDir,
}

/// Arguments of `sidelane bench guard`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct GuardArgs {
    /// How far it goes on
    #[command(flatten)]
    pub patience: PatienceArgs,
    /// The core
    #[command(flatten)]
    pub core: CoreArgs,
    /// The ways of sharing to measure, besides the stores alone [default: all]
    #[arg(long, value_name = "WAY", value_enum, value_delimiter = ',')]
    pub ways: Option<Vec<Way>>,
    /// The stores to ask [default: all, or Redis and memcached with --quick]
    #[arg(long, value_name = "STORE", value_enum, value_delimiter = ',')]
    pub stores: Option<Vec<Store>>,
    /// YCSB's mixes to ask for [default: all, or a with --quick]
    #[arg(long, value_name = "MIX", value_delimiter = ',', value_parser = ["a", "b", "e"])]
    pub mixes: Option<Vec<String>>,
    /// From what the agent tells how much services are disturbed [default: stand-in beside an emulated sibling, else
    /// harm]
    #[arg(long, value_name = "FROM", value_enum)]
    pub interference: Option<Source>,
    /// Where results go
    #[command(flatten)]
    pub files: ResultFiles,
}

/// Arguments of `sidelane bench tail`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct TailArgs {
    /// How far it goes on
    #[command(flatten)]
    pub patience: PatienceArgs,
    /// The service's lane and the other one [default: two SMT siblings, or CPUs 0 and 1]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Option<String>,
    /// The parts to measure [default: all]
    #[arg(long = "part", value_name = "PART", value_enum, value_delimiter = ',')]
    pub parts: Option<Vec<Part>>,
    /// What was built
    #[command(flatten)]
    pub cache: CacheDir,
    /// Where results go
    #[command(flatten)]
    pub files: ResultFiles,
}

/// Arguments of `sidelane bench hurry`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct HurryBenchArgs {
    /// How far it goes on
    #[command(flatten)]
    pub patience: PatienceArgs,
    /// The big core and the little one
    #[arg(long, value_name = "BIG:LITTLE", default_value = "0:1")]
    pub cores: String,
    /// Who makes the little core slow; none if it is little by itself
    #[arg(long, value_name = "HOW", value_enum, default_value = "built-in")]
    pub slow_cpu: Carrier,
    /// How fast the little core is, of 1
    #[arg(long, value_name = "SPEED", default_value_t = LITTLE_SPEED, value_parser = parse_speed)]
    pub speed: f64,
    /// The mean search on the big core, as in 70ms; runs are longer by as much [default: 12ms, 4ms with --quick]
    #[arg(long, value_name = "TIME", value_parser = parse_mean)]
    pub mean: Option<Duration>,
    /// The search index
    #[command(flatten)]
    pub cache: CacheDir,
    /// Where results go
    #[command(flatten)]
    pub files: ResultFiles,
}

/// Arguments of `sidelane bench papers`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct PapersArgs {
    /// Shorter runs, as the scenarios' [quick] says
    #[arg(long)]
    pub quick: bool,
    /// Where results go
    #[command(flatten)]
    pub files: ResultFiles,
}

/// Arguments of `sidelane bench parity`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct ParityArgs {
    /// The experiment, such as scenarios/parity.toml
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// How far it goes on
    #[command(flatten)]
    pub patience: PatienceArgs,
    /// The core
    #[command(flatten)]
    pub core: CoreArgs,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
    /// The tables
    #[command(flatten)]
    pub table: TableArgs,
    /// The search index
    #[command(flatten)]
    pub cache: CacheDir,
}

/// Arguments of `sidelane bench sibling`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct SiblingArgs {
    /// How far it goes on
    #[command(flatten)]
    pub patience: PatienceArgs,
    /// Two CPUs that share no core [default: CPUs 0 and 1]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Option<String>,
    /// The results
    #[command(flatten)]
    pub json: JsonFile,
    /// The tables
    #[command(flatten)]
    pub table: TableArgs,
    /// The search index
    #[command(flatten)]
    pub cache: CacheDir,
}

/// The time of a mean search. Beyond a second the bench takes days.
fn parse_mean(text: &str) -> Result<Duration, String> {
    let mean = parse_time(text).map_err(|error| error.to_string())?;
    let possible = Duration::from_millis(1)..=Duration::from_secs(1);
    if possible.contains(&mean) { Ok(mean) } else { Err("a mean search takes 1ms to 1s".into()) }
}

/// A speed, of 1; `sidelane-lab slow-cpu` makes a CPU no slower than a tenth of what it is.
fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.1..=1.0).contains(&speed) { Ok(speed) } else { Err("a speed lies between 0.1 and 1".into()) }
}
