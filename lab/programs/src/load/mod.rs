//! The load generator: open loop, Poisson arrivals, one thread.
//!
//! Latency counts from the intended start of a request. If the service (or this process) falls behind, the latency of a
//! waiting request includes the wait, as for a real user: there is no coordinated omission.
//!
//! - `plan`: the requests and their times, fixed by the seed
//! - `bursts`: load with pauses; `mix`: the requests to a key-value store
//! - `protocol`, `search`, `redis`, `memcached`: the formats of requests and replies
//! - `connection`, `engine`: sockets and the event loop
//! - `series`: latencies by time, for a load that changes
//! - `report`: the result

mod bursts;
mod connection;
mod engine;
mod memcached;
mod mix;
mod plan;
mod protocol;
mod redis;
mod report;
mod search;
mod series;

use std::net::SocketAddrV4;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::clock::seconds_to_ns;
use crate::search::read_queries;
use crate::summary::write_json;
use crate::{numbers, scheduling};
use bursts::Burst;
use mix::{Mix, MixName};
use plan::{Plan, Step};
use protocol::Protocol;
use report::Report;

/// Options of `sidelane-lab load`.
#[derive(Debug, clap::Args)]
pub struct LoadArgs {
    /// Address of the service
    #[arg(long, value_name = "IP:PORT")]
    target: SocketAddrV4,
    /// Protocol of the service
    #[arg(long, value_enum)]
    protocol: ProtocolName,
    /// Queries to choose from (search only)
    #[arg(long, value_name = "FILE", required_if_eq("protocol", "search"))]
    queries: Option<PathBuf>,
    /// Which requests a key-value store gets (Redis and memcached only)
    #[arg(long, value_enum, default_value = "plain")]
    mix: MixName,
    /// Records in the store, which are put there before the load begins
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    records: u64,
    /// The records are there already, from an earlier load with the same mix
    #[arg(long)]
    filled: bool,
    /// Load in bursts: 60 to 90 s of requests, 5 to 10 s without, each times this
    #[arg(long, value_name = "SCALE", value_parser = numbers::positive, conflicts_with = "then_rate")]
    burst_scale: Option<f64>,
    /// Requests per second, on average
    #[arg(long, value_parser = numbers::positive)]
    rate: f64,
    /// Seconds that are measured
    #[arg(long, value_parser = numbers::positive)]
    seconds: f64,
    /// Seconds of load before them
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = numbers::non_negative)]
    warmup_seconds: f64,
    /// Requests per second from --step-at-seconds on
    #[arg(long, value_name = "RATE", value_parser = numbers::positive)]
    then_rate: Option<f64>,
    /// When the rate changes, after the warm-up
    #[arg(long, value_name = "SECONDS", value_parser = numbers::positive)]
    step_at_seconds: Option<f64>,
    /// Report the longest time for which the p99 of the last second was above this
    #[arg(long, value_name = "US", value_parser = numbers::positive)]
    limit_us: Option<f64>,
    /// Report the latencies of N equal parts of the measured time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// Seed of times and requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File for the result, as JSON
    #[arg(long, value_name = "FILE")]
    json: PathBuf,
    /// CPU to run on
    #[arg(long)]
    cpu: Option<usize>,
    /// Run in SCHED_FIFO at this priority
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(i32).range(1..=99))]
    fifo: Option<i32>,
    /// Connections to the service
    #[arg(long, default_value_t = 32, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
}

/// Protocol between the load generator and the service.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ProtocolName {
    /// HTTP searches, as `serve` answers them
    Search,
    /// The protocol of Redis, for Redis and for `kv`
    Redis,
    /// The text protocol of memcached
    Memcached,
}

/// Runs the load and writes its report as JSON.
pub fn run(args: &LoadArgs) -> Result<()> {
    let bursts = bursts_from_options(args);
    let plan = plan_from_options(args, bursts.as_deref())?;
    let measured_ns = plan.measured_range_ns();
    let mut protocol = protocol_from_options(args)?;
    let target = args.target.into();
    if !args.filled {
        protocol.prepare_service(target).with_context(|| format!("cannot prepare {target} for the load"))?;
    }
    apply_scheduling(args)?;
    let outcome = engine::run(target, usize::from(args.connections), plan, protocol)
        .with_context(|| format!("the load on {target} failed"))?;
    let mut report =
        Report::new(&outcome, args.rate, args.seconds).with_series(&outcome.series, measured_ns, args.limit_us);
    if let Some(count) = args.iterations {
        report = report.with_iterations(&outcome.series, measured_ns, count);
    }
    if let Some((bursts, scale)) = bursts.zip(args.burst_scale) {
        report = report.with_bursts(&bursts, scale);
    }
    write_json(&args.json, &report)?;
    eprintln!("{report}");
    if outcome.errors > 0 {
        bail!("{target} answered {} requests with an error, such as: {}", outcome.errors, outcome.error_example);
    }
    Ok(())
}

/// Returns the requested bursts, from the end of the warm-up on; `None` if the load is not in bursts.
fn bursts_from_options(args: &LoadArgs) -> Option<Vec<Burst>> {
    let start_ns = seconds_to_ns(args.warmup_seconds);
    let end_ns = start_ns + seconds_to_ns(args.seconds);
    args.burst_scale.map(|scale| bursts::schedule(start_ns, end_ns, scale, args.seed))
}

fn plan_from_options(args: &LoadArgs, bursts: Option<&[Burst]>) -> Result<Plan> {
    let (warmup_ns, end_ns) = (seconds_to_ns(args.warmup_seconds), seconds_to_ns(args.warmup_seconds + args.seconds));
    match bursts {
        Some(bursts) => Plan::in_bursts(args.rate, bursts, (warmup_ns, end_ns), args.seed),
        None => {
            let step = Step::from_options(args.then_rate, args.step_at_seconds)?;
            Plan::new(args.rate, args.seconds, args.warmup_seconds, args.seed, step)
        }
    }
}

fn protocol_from_options(args: &LoadArgs) -> Result<Box<dyn Protocol>> {
    let mix = || Mix::new(args.mix, args.records, args.rate * (args.warmup_seconds + args.seconds), args.seed);
    match (args.protocol, &args.queries) {
        (ProtocolName::Search, Some(path)) => Ok(Box::new(search::Search::new(&read_queries(path)?, args.seed))),
        (ProtocolName::Search, None) => bail!("--protocol search needs --queries"),
        (ProtocolName::Redis, _) => Ok(Box::new(redis::Redis::new(mix()))),
        (ProtocolName::Memcached, _) => Ok(Box::new(memcached::Memcached::new(mix())?)),
    }
}

fn apply_scheduling(args: &LoadArgs) -> Result<()> {
    scheduling::minimize_timer_slack()?;
    if let Some(cpu) = args.cpu {
        scheduling::pin_to(cpu)?;
    }
    if let Some(priority) = args.fifo {
        scheduling::run_as_fifo(priority)?;
    }
    Ok(())
}
