//! The load of a client, and the latencies that it measures.

use std::ffi::OsString;
use std::fs;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::jar::Lucene;
use crate::bench::tail::fixture::TailFixture;

/// Number of iterations of the load, as in the SHIM thesis.
pub(super) const ITERATIONS: usize = 20;
/// Number of connections: just enough that the client sends on time even if every response is late by 40 ms. If client
/// and backup share a CPU, the backup's first request waits until the proxy has accepted all connections.
pub const CONNECTIONS: &str = "64";

/// Figures of the client in one iteration.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Iteration {
    pub(super) p50_us: Option<f64>,
    pub(super) p999_us: Option<f64>,
    pub(super) max_us: Option<f64>,
}

/// Point of the latency distribution: `percentile` percent of the requests took at most `us` microseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Point {
    pub percentile: f64,
    pub us: f64,
}

/// Figures of the client over the whole load.
#[derive(Clone, Debug, Deserialize)]
pub struct ClientReport {
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    pub curve: Vec<Point>,
    pub iterations: Vec<Iteration>,
}

/// Load of a client: rate, number of requests and seed.
#[derive(Clone, Copy)]
pub struct LuceneLoad {
    pub per_s: f64,
    /// Seconds of load before the measurement.
    pub warm_up_s: f64,
    pub requests: f64,
    pub seed: u64,
}

impl LuceneLoad {
    /// Load that warms up a server.
    pub const WARM_UP: LuceneLoad = LuceneLoad { per_s: 500.0, warm_up_s: 0.0, requests: 1_000.0, seed: 0 };

    /// Sends the load, and returns the client's measurements.
    pub fn send(self, fixture: &TailFixture<'_>, lucene: &Lucene, port: u32) -> Result<ClientReport> {
        let scratch = tempfile::tempdir().context("cannot make a directory for scratch files")?;
        let json = scratch.path().join("load.json");
        let seconds = (self.requests / self.per_s).to_string();
        let (rate, iterations, seed) = (self.per_s.to_string(), ITERATIONS.to_string(), self.seed.to_string());
        let target = format!("127.0.0.1:{port}");
        let warm_up = self.warm_up_s.to_string();
        let plain = ["load", "--protocol", "search", "--connections", CONNECTIONS, "--warmup-seconds", &warm_up];
        let given = ["--target", &target, "--rate", &rate, "--seconds", &seconds, "--iterations", &iterations];
        let words = plain.into_iter().chain(given).chain(["--seed", &seed]).map(OsString::from);
        let words = words.chain(fixture.place.client_options().map(OsString::from));
        let files = ["--queries".into(), lucene.queries.clone().into(), "--json".into(), json.clone().into()];
        fixture.lab.run(words.chain(files))?;
        serde_json::from_slice(&fs::read(&json)?).context("the client's result is not JSON")
    }
}
