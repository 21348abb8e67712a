//! Command line of the benches.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use sidelane::cli::{EXIT_CODES, JsonFile, ResultFiles, RoundArgs, TableArgs};
use sidelane_host::units::parse_time;
use sidelane_policy::borrow::Objective;
use sidelane_requests::objective::parse_objective;

use super::guard::{GuardVariant, InterferenceSource};
use super::hurry::LITTLE_SPEED;
use super::tail::Part;
use crate::cli::{CacheDir, CoreArgs};
use crate::experiment::sibling::SlowdownMechanism;
use crate::experiment::store::Store;

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
    /// How close `sidelane estimate` comes to what a run then does
    Estimate(EstimateBenchArgs),
    /// How truly two CPUs that are made one core slow each other, and what that costs
    Sibling(SiblingArgs),
}

/// Arguments of the benches that need a pair of lanes, and no more.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct PairArgs {
    /// Options that bound the length of the experiment.
    #[command(flatten)]
    pub round_options: RoundArgs,
    /// The lane pair to measure on
    #[arg(long, value_name = "REQUEST:BATCH", default_value = "0:1")]
    pub lanes: String,
    /// Option for the JSON file of the results.
    #[command(flatten)]
    pub json: JsonFile,
    /// Options of the printed tables.
    #[command(flatten)]
    pub table: TableArgs,
}

/// Arguments of `sidelane-lab bench observe`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct ObserveBenchArgs {
    /// Options that bound the length of the experiment.
    #[command(flatten)]
    pub round_options: RoundArgs,
    /// The target's lane and the observer's
    #[arg(long, value_name = "TARGET:OBSERVER", default_value = "0:1")]
    pub lanes: String,
    /// Options for the files of the results.
    #[command(flatten)]
    pub files: ResultFiles,
}

/// Arguments of `sidelane-lab bench lanes`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct LanesArgs {
    /// Options that bound the length of the experiment.
    #[command(flatten)]
    pub round_options: RoundArgs,
    /// Options of the core and its emulation.
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
    /// Options for the files of the results.
    #[command(flatten)]
    pub files: ResultFiles,
    /// Folder of the search index.
    #[command(flatten)]
    pub cache: CacheDir,
}

/// Arguments of `sidelane-lab bench guard`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct GuardArgs {
    /// Options that bound the length of the experiment.
    #[command(flatten)]
    pub round_options: RoundArgs,
    /// Options of the core and its emulation.
    #[command(flatten)]
    pub core: CoreArgs,
    /// The ways of sharing to measure, besides the stores alone [default: all]
    #[arg(long, value_name = "WAY", value_enum, value_delimiter = ',')]
    pub ways: Option<Vec<GuardVariant>>,
    /// The stores to ask [default: all, or Redis and memcached with --quick]
    #[arg(long, value_name = "STORE", value_enum, value_delimiter = ',')]
    pub stores: Option<Vec<Store>>,
    /// YCSB's mixes to ask for [default: all, or a with --quick]
    #[arg(long, value_name = "MIX", value_delimiter = ',', value_parser = ["a", "b", "e"])]
    pub mixes: Option<Vec<String>>,
    /// From what the agent tells how much services are disturbed [default: stand-in beside an emulated sibling, else
    /// latency]
    #[arg(long, value_name = "FROM", value_enum)]
    pub interference: Option<InterferenceSource>,
    /// Options for the files of the results.
    #[command(flatten)]
    pub files: ResultFiles,
}

/// Arguments of `sidelane-lab bench tail`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct TailArgs {
    /// Options that bound the length of the experiment.
    #[command(flatten)]
    pub round_options: RoundArgs,
    /// The request lane and the batch lane [default: two SMT siblings, or CPUs 0 and 1]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Option<String>,
    /// The parts to measure [default: all]
    #[arg(long = "part", value_name = "PART", value_enum, value_delimiter = ',')]
    pub parts: Option<Vec<Part>>,
    /// Folder of the programs that the bench builds.
    #[command(flatten)]
    pub cache: CacheDir,
    /// Options for the files of the results.
    #[command(flatten)]
    pub files: ResultFiles,
}

/// Arguments of `sidelane-lab bench hurry`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct HurryBenchArgs {
    /// Options that bound the length of the experiment.
    #[command(flatten)]
    pub round_options: RoundArgs,
    /// The big core and the little one
    #[arg(long, value_name = "BIG:LITTLE", default_value = "0:1")]
    pub cores: String,
    /// Who makes the little core slow; none if it is little by itself
    #[arg(long, value_name = "HOW", value_enum, default_value = "built-in")]
    pub slow_cpu: SlowdownMechanism,
    /// How fast the little core is, of 1
    #[arg(long, value_name = "SPEED", default_value_t = LITTLE_SPEED, value_parser = parse_speed)]
    pub speed: f64,
    /// The mean search on the big core, as in 70ms; runs are longer by as much [default: 12ms, 4ms with --quick]
    #[arg(long, value_name = "TIME", value_parser = parse_mean)]
    pub mean: Option<Duration>,
    /// Folder of the search index.
    #[command(flatten)]
    pub cache: CacheDir,
    /// Options for the files of the results.
    #[command(flatten)]
    pub files: ResultFiles,
}

/// Arguments of `sidelane-lab bench papers`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct PapersArgs {
    /// Shorter runs, as the scenarios' `[quick]` says
    #[arg(long)]
    pub quick: bool,
    /// Options for the files of the results.
    #[command(flatten)]
    pub files: ResultFiles,
}

/// Arguments of `sidelane-lab bench parity`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct ParityArgs {
    /// The experiment, such as lab/scenarios/parity.toml
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// Options that bound the length of the experiment.
    #[command(flatten)]
    pub round_options: RoundArgs,
    /// Options of the core and its emulation.
    #[command(flatten)]
    pub core: CoreArgs,
    /// Option for the JSON file of the results.
    #[command(flatten)]
    pub json: JsonFile,
    /// Options of the printed tables.
    #[command(flatten)]
    pub table: TableArgs,
    /// Folder of the search index.
    #[command(flatten)]
    pub cache: CacheDir,
}

/// Arguments of `sidelane-lab bench estimate`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct EstimateBenchArgs {
    /// Options that bound the length of the experiment.
    #[command(flatten)]
    pub round_options: RoundArgs,
    /// Options of the core and its emulation.
    #[command(flatten)]
    pub core: CoreArgs,
    /// Option for the JSON file of the results.
    #[command(flatten)]
    pub json: JsonFile,
    /// Options of the printed tables.
    #[command(flatten)]
    pub table: TableArgs,
    /// Folder of the search index.
    #[command(flatten)]
    pub cache: CacheDir,
}

/// Arguments of `sidelane-lab bench sibling`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct SiblingArgs {
    /// Options that bound the length of the experiment.
    #[command(flatten)]
    pub round_options: RoundArgs,
    /// Two CPUs that share no core [default: CPUs 0 and 1]
    #[arg(long, value_name = "REQUEST:BATCH")]
    pub lanes: Option<String>,
    /// Option for the JSON file of the results.
    #[command(flatten)]
    pub json: JsonFile,
    /// Options of the printed tables.
    #[command(flatten)]
    pub table: TableArgs,
    /// Folder of the search index.
    #[command(flatten)]
    pub cache: CacheDir,
}

/// Arguments of `sidelane-lab results`.
#[derive(Debug, Args)]
pub struct ResultsArgs {
    /// The folder with the files, which gets the page README.md
    #[arg(value_name = "FOLDER", default_value = "results")]
    pub folder: PathBuf,
}

/// Parses the mean time of a search, 1ms to 1s: beyond a second the bench takes days.
fn parse_mean(text: &str) -> Result<Duration, String> {
    let mean = parse_time(text).map_err(|error| error.to_string())?;
    let possible = Duration::from_millis(1)..=Duration::from_secs(1);
    if possible.contains(&mean) { Ok(mean) } else { Err("a mean search takes 1ms to 1s".into()) }
}

/// Parses a speed as a fraction of the full speed. `sidelane-lab slow-cpu` makes a CPU no slower than 0.1.
fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.1..=1.0).contains(&speed) { Ok(speed) } else { Err("a speed lies between 0.1 and 1".into()) }
}
