//! The stage: index, queries, the search service on its request lane, and the rate that keeps
//! it as busy as wanted.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::DemoOptions;
use crate::lab::{Lab, Service};
use crate::lane::beside::Beside;
use crate::lane::service::Target;
use crate::lane::topology::Topology;

/// Enough that a run of some seconds hardly repeats itself, few enough to time each one.
const QUERIES: &str = "3000";
/// Above the lane holder (10) and threaded interrupts (50): where client and batch share a lane
/// the client stands in for another machine, which no batch could delay.
const CLIENT_PRIORITY: &str = "80";

/// A search service that is ready to be asked.
pub(super) struct Stage {
    pub(super) lab: Lab,
    pub(super) service: Service,
    pub(super) queries: PathBuf,
    /// `--lanes` of every session.
    pub(super) lanes: String,
    /// Where the client runs, as options of `load`.
    pub(super) client: Vec<String>,
    /// The client and batch share a lane.
    pub(super) client_on_batch_lane: bool,
    pub(super) rate_per_s: f64,
    pub(super) mean_service_us: f64,
    pub(super) batch: String,
    pub(super) scratch: tempfile::TempDir,
}

impl Stage {
    pub(super) fn set_up(options: &DemoOptions) -> Result<Self> {
        let lab = Lab::find()?;
        let topology = Topology::read(Path::new("/sys"))?;
        let (request, batch_lane) = choose_lanes(&topology, options.lanes.as_deref())?;
        let index = options.cache.join("index");
        let queries = options.cache.join("queries.txt");
        fs::create_dir_all(&options.cache).with_context(|| format!("cannot make {}", options.cache.display()))?;
        lab.run(["index".as_ref(), "--out".as_ref(), index.as_os_str()])?;
        lab.run(["queries", "--count", QUERIES].map(AsRef::as_ref).into_iter().chain([
            "--index".as_ref(),
            index.as_os_str(),
            "--out".as_ref(),
            queries.as_os_str(),
        ]))?;
        let scratch = tempfile::tempdir().context("cannot make a directory for scratch files")?;
        let mean_service_us = mean_service_us(&lab, &index, &queries, scratch.path(), request)?;
        let service = serve(&lab, &index, request)?;
        let (client_cpu, client_on_batch_lane) = choose_client(&topology, request, batch_lane);
        Ok(Self {
            lab,
            service,
            queries,
            lanes: format!("{request}:{batch_lane}"),
            client: ["--cpu", &client_cpu.to_string(), "--fifo", CLIENT_PRIORITY].map(str::to_owned).to_vec(),
            client_on_batch_lane,
            rate_per_s: options.load * 1e6 / mean_service_us,
            mean_service_us,
            batch: options.batch.clone(),
            scratch,
        })
    }

    /// The service and its lanes.
    pub(super) fn beside(&self) -> Result<Beside> {
        Ok(Beside::find(Target::Pid(self.service.pid()), Some(&self.lanes), false)?)
    }

    /// A file for the counter of one run's batch job, which is not there yet.
    pub(super) fn counter(&self, run: &str) -> PathBuf {
        self.scratch.path().join(format!("counter-{run}"))
    }

    /// The batch lane's number.
    pub(super) fn batch_lane(&self) -> &str {
        self.lanes.split(':').nth(1).unwrap_or_default()
    }
}

/// The pair asked for, or the first two siblings, or CPUs 0 and 1.
fn choose_lanes(topology: &Topology, spec: Option<&str>) -> Result<(u32, u32)> {
    let online: Vec<u32> = topology.online().iter().collect();
    if online.len() < 2 {
        bail!("the demo needs two CPUs, one for the service and one for batch; only CPU {online:?} is online");
    }
    let lanes = match spec {
        Some(spec) => topology.declared_pairs(spec)?,
        None if topology.has_smt() => topology.smt_pairs(&topology.online())?,
        None => topology.declared_pairs(&format!("{}:{}", online[0], online[1]))?,
    };
    let batch = &lanes.batch[0];
    let request = batch.requests.first().context("a batch lane without a request lane")?;
    Ok((request, batch.cpu))
}

/// A CPU on no core of the pair, if there is one.
fn choose_client(topology: &Topology, request: u32, batch: u32) -> (u32, bool) {
    let cores = [request, batch].map(|cpu| topology.cpu(cpu).map(|cpu| cpu.core));
    let free = topology.cpus.iter().find(|cpu| cpu.online && !cores.contains(&Some(cpu.core)));
    free.map_or((batch, true), |cpu| (cpu.id, false))
}

fn mean_service_us(lab: &Lab, index: &Path, queries: &Path, scratch: &Path, cpu: u32) -> Result<f64> {
    let json = scratch.join("service-times.json");
    let cpu = cpu.to_string();
    lab.run([
        "service-times".as_ref(),
        "--index".as_ref(),
        index.as_os_str(),
        "--queries".as_ref(),
        queries.as_os_str(),
        "--json".as_ref(),
        json.as_os_str(),
        "--cpu".as_ref(),
        cpu.as_ref(),
    ])?;
    let times: Value = serde_json::from_slice(&fs::read(&json)?)?;
    times["mean_us"].as_f64().context("no mean_us among the service times")
}

fn serve(lab: &Lab, index: &Path, cpu: u32) -> Result<Service> {
    let cpu = cpu.to_string();
    lab.start([
        "serve".as_ref(),
        "--index".as_ref(),
        index.as_os_str(),
        "--port".as_ref(),
        "0".as_ref(),
        "--cpu".as_ref(),
        cpu.as_ref(),
    ])
}
