//! CPUs of an experiment: the lane pair, and a CPU for the client.

use std::path::Path;

use anyhow::{Context, Result, bail};

use sidelane_host::topology::{PairKind, Topology};

/// Above the lane holder (10) and threaded interrupts (50): if client and batch share a lane, the client stands in for
/// another machine, which batch could not delay.
const CLIENT_PRIORITY: &str = "80";

/// A lane pair and the client's CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExperimentCpus {
    /// The service's lane.
    pub request: u32,
    /// The lane that is lent to batch.
    pub batch: u32,
    /// The client's CPU.
    pub client: u32,
    /// The reason why the lanes are a pair.
    pub kind: PairKind,
}

impl ExperimentCpus {
    /// The pair asked for, or the first two siblings, or CPUs 0 and 1.
    pub fn choose(spec: Option<&str>) -> Result<Self> {
        let topology = Topology::read(Path::new("/sys"))?;
        let online: Vec<u32> = topology.online().iter().collect();
        if online.len() < 2 {
            bail!("two CPUs are needed, one for the service and one for batch; only CPU {online:?} is online");
        }
        let lanes = match spec {
            Some(spec) => topology.declared_pairs(spec)?,
            None if topology.has_smt() => topology.smt_pairs(&topology.online())?,
            None => topology.declared_pairs(&format!("{}:{}", online[0], online[1]))?,
        };
        let batch = &lanes.batch[0];
        let request = batch.request_lanes.first().context("a batch lane without a request lane")?;
        let client = choose_client(&topology, request, batch.cpu);
        Ok(Self { request, batch: batch.cpu, client, kind: lanes.kind })
    }

    /// Returns the lanes in the form of `--lanes`.
    pub fn lanes(self) -> String {
        format!("{}:{}", self.request, self.batch)
    }

    /// Client and batch share a lane.
    pub fn client_on_batch_lane(self) -> bool {
        self.client == self.batch
    }

    /// Returns the client's CPU, as options of the lab's `load`.
    pub fn client_options(self) -> [String; 4] {
        ["--cpu", &self.client.to_string(), "--fifo", CLIENT_PRIORITY].map(str::to_owned)
    }
}

/// A CPU on no core of the pair, if there is one; else the batch lane.
fn choose_client(topology: &Topology, request: u32, batch: u32) -> u32 {
    let cores = [request, batch].map(|cpu| topology.cpu(cpu).map(|cpu| cpu.core));
    let free = topology.cpus.iter().find(|cpu| cpu.online && !cores.contains(&Some(cpu.core)));
    free.map_or(batch, |cpu| cpu.id)
}
