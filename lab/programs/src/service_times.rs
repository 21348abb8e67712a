//! Measurement of a query mix's service times, without queueing or sockets. They calibrate the rate of a load.

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use crate::clock::now_ns;
use crate::scheduling;
use crate::search::{Index, SearchEngine, read_queries};
use crate::summary::{Durations, write_json};

/// Options of `sidelane-lab service-times`.
#[derive(Debug, clap::Args)]
pub struct ServiceTimesArgs {
    /// Index to search
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
    /// Queries to run, as made by `queries`
    #[arg(long, value_name = "FILE")]
    queries: PathBuf,
    /// Also write the result as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// CPU to run on
    #[arg(long)]
    cpu: Option<usize>,
}

#[derive(Debug, Serialize)]
struct ServiceTimes {
    queries: u64,
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    max_us: f64,
}

/// Runs every query once and prints the distribution of its service times.
pub fn run(args: &ServiceTimesArgs) -> Result<()> {
    if let Some(cpu) = args.cpu {
        scheduling::pin_to(cpu)?;
    }
    let engine = SearchEngine::open(Index::load(&args.index)?)?;
    let queries = read_queries(&args.queries)?;
    let mut durations = Durations::new();
    for query in &queries {
        let start_ns = now_ns();
        std::hint::black_box(engine.search(query)?);
        durations.add(now_ns() - start_ns);
    }
    let times = ServiceTimes::from_durations(&durations);
    println!("{times}");
    match &args.json {
        Some(path) => write_json(path, &times),
        None => Ok(()),
    }
}

impl ServiceTimes {
    fn from_durations(durations: &Durations) -> Self {
        ServiceTimes {
            queries: durations.count(),
            mean_us: durations.mean_us(),
            p50_us: durations.percentile_us(50.0),
            p90_us: durations.percentile_us(90.0),
            p99_us: durations.percentile_us(99.0),
            max_us: durations.max_us(),
        }
    }

    /// Returns the request rate at which one thread would be busy half of the time.
    fn half_load_rate_per_s(&self) -> f64 {
        0.5e6 / self.mean_us
    }
}

impl std::fmt::Display for ServiceTimes {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            out,
            "service time of {} queries, µs: mean {}  p50 {}  p90 {}  p99 {}  max {}",
            self.queries, self.mean_us, self.p50_us, self.p90_us, self.p99_us, self.max_us
        )?;
        write!(out, "half busy at {:.0} requests/s", self.half_load_rate_per_s())
    }
}
