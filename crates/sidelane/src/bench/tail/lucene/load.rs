//! What a client sends, and sees.

use std::ffi::OsString;
use std::fs;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::jar::Lucene;
use crate::bench::tail::stage::Stage;

/// As in the thesis.
pub(super) const ITERATIONS: usize = 20;
/// Enough that the client sends on time though every response is late by 40 ms.
pub(super) const CONNECTIONS: &str = "256";

/// What the client saw in one iteration.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Iteration {
    pub(super) p50_us: Option<f64>,
    pub(super) p999_us: Option<f64>,
    pub(super) max_us: Option<f64>,
}

/// What a client sends.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) per_s: f64,
    pub(super) requests: f64,
    pub(super) seed: u64,
}

impl Load {
    /// Sends it, and returns what the client saw.
    pub(super) fn send(self, stage: &Stage<'_>, lucene: &Lucene, port: u32) -> Result<Vec<Iteration>> {
        let scratch = tempfile::tempdir().context("cannot make a directory for scratch files")?;
        let json = scratch.path().join("load.json");
        let seconds = (self.requests / self.per_s).to_string();
        let (rate, iterations, seed) = (self.per_s.to_string(), ITERATIONS.to_string(), self.seed.to_string());
        let target = format!("127.0.0.1:{port}");
        let plain = ["load", "--protocol", "search", "--connections", CONNECTIONS, "--warmup-seconds", "0"];
        let given = ["--target", &target, "--rate", &rate, "--seconds", &seconds, "--iterations", &iterations];
        let words = plain.into_iter().chain(given).chain(["--seed", &seed]).map(OsString::from);
        let words = words.chain(stage.place.client_options().map(OsString::from));
        let files = ["--queries".into(), lucene.queries.clone().into(), "--json".into(), json.clone().into()];
        stage.lab.run(words.chain(files))?;
        let report: Report = serde_json::from_slice(&fs::read(&json)?).context("the client's result is not JSON")?;
        Ok(report.iterations)
    }
}

/// The client's result.
#[derive(Deserialize)]
struct Report {
    iterations: Vec<Iteration>,
}
