//! CPUs of an experiment: the lane pair, and a CPU for the client.

use std::path::Path;

use anyhow::{Context, Result, bail};

use sidelane_host::topology::{PairKind, Topology};

/// Real-time priority of the client, above the lane holder (10) and threaded interrupts (50). A client on the batch
/// lane stands in for a client on another machine, which batch could not delay.
const CLIENT_PRIORITY: &str = "80";

/// CPUs of a lane pair and of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExperimentCpus {
    /// CPU of the request lane, on which the service runs.
    pub request: u32,
    /// CPU of the batch lane.
    pub batch: u32,
    /// CPU of the client; the batch lane if no other core is free.
    pub client: u32,
    /// Origin of the pair: siblings of one core, or CPUs declared to be a pair.
    pub kind: PairKind,
}

impl ExperimentCpus {
    /// Returns the requested lane pair. Without a request it takes the first two SMT siblings, or the first two online
    /// CPUs.
    pub fn choose(lanes_spec: Option<&str>) -> Result<Self> {
        let topology = Topology::read(Path::new("/sys"))?;
        let online: Vec<u32> = topology.online().iter().collect();
        if online.len() < 2 {
            bail!("two CPUs are needed, one for the service and one for batch; only CPU {online:?} is online");
        }
        let lanes = match lanes_spec {
            Some(spec) => topology.declared_pairs(spec)?,
            None if topology.has_smt() => topology.smt_pairs(&topology.online())?,
            None => topology.declared_pairs(&format!("{}:{}", online[0], online[1]))?,
        };
        let batch = &lanes.batch[0];
        let request = batch.request_lanes.first().context("a batch lane without a request lane")?;
        let client = choose_client(&topology, request, batch.cpu);
        Ok(Self { request, batch: batch.cpu, client, kind: lanes.kind })
    }

    /// Returns the lanes in the form of the option `--lanes`, such as `0:1`.
    pub fn lanes(self) -> String {
        format!("{}:{}", self.request, self.batch)
    }

    /// Returns whether client and batch share a lane.
    pub fn is_client_on_batch_lane(self) -> bool {
        self.client == self.batch
    }

    /// Returns the client's CPU and real-time priority as options of `sidelane-lab load`.
    pub fn client_options(self) -> [String; 4] {
        ["--cpu", &self.client.to_string(), "--fifo", CLIENT_PRIORITY].map(str::to_owned)
    }
}

/// Returns a CPU on a core outside the pair if there is one, else the batch lane.
fn choose_client(topology: &Topology, request_cpu: u32, batch_cpu: u32) -> u32 {
    let cores = [request_cpu, batch_cpu].map(|cpu| topology.cpu(cpu).map(|cpu| cpu.core));
    let free = topology.cpus.iter().find(|cpu| cpu.online && !cores.contains(&Some(cpu.core)));
    free.map_or(batch_cpu, |cpu| cpu.id)
}
