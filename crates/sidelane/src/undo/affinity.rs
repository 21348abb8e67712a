//! The service's affinities, for a session that confines the service to its request lanes and gives them back.

use std::collections::BTreeSet;
use std::io;

use serde::{Deserialize, Serialize};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::priority::pin_thread;
use sidelane_host::procfs::{thread_cpus, threads};
use thiserror::Error;

/// A thread of the service cannot be confined to its request lanes.
#[derive(Debug, Error)]
#[error("cannot confine thread {tid} of the service to CPUs {cpus}")]
pub struct PinError {
    /// The thread.
    pub tid: u32,
    /// The request lanes.
    pub cpus: CpuSet,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// Affinities to give back when Sidelane leaves: thread id, and the CPUs it was allowed on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinPlan {
    /// By thread.
    pub threads: Vec<(u32, String)>,
}

impl PinPlan {
    /// Notes the affinities of all threads of these processes that may run outside `cpus`.
    pub fn note(pids: &BTreeSet<u32>, cpus: &CpuSet) -> Self {
        let all = pids.iter().flat_map(|pid| threads(*pid).into_iter().map(move |tid| (*pid, tid)));
        let noted = all.filter_map(|(pid, tid)| Some((tid, thread_cpus(pid, tid)?)));
        let outside = noted.filter(|(_, allowed)| !allowed.difference(cpus).is_empty());
        Self { threads: outside.map(|(tid, allowed)| (tid, allowed.to_string())).collect() }
    }

    /// Confines the noted threads to `cpus`.
    pub fn pin(&self, cpus: &CpuSet) -> Result<(), PinError> {
        let list: Vec<u32> = cpus.iter().collect();
        for (tid, _) in &self.threads {
            match pin_thread(*tid, &list) {
                Err(source) if source.raw_os_error() != Some(libc::ESRCH) => {
                    return Err(PinError { tid: *tid, cpus: cpus.clone(), source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives every thread back the CPUs it had.
    pub fn undo(&self) {
        for (tid, cpus) in &self.threads {
            if let Ok(cpus) = cpus.parse::<CpuSet>() {
                // A thread that has ended meanwhile needs nothing back.
                let _ = pin_thread(*tid, &cpus.iter().collect::<Vec<_>>());
            }
        }
    }
}
