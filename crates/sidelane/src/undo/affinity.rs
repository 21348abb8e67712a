//! Confining the threads of a service to some CPUs.

use std::collections::BTreeSet;
use std::io;

use sidelane_host::cpulist::CpuSet;
use sidelane_host::priority::pin_thread;
use sidelane_host::procfs::thread_cpus;
use sidelane_host::thread::Thread;
use thiserror::Error;

use super::change::Undo;

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

/// The affinities of all threads of these processes that may run outside `cpus`.
pub fn outside(pids: &BTreeSet<u32>, cpus: &CpuSet) -> Vec<Undo> {
    let threads = pids.iter().flat_map(|pid| Thread::all_of(*pid));
    let noted = threads.filter_map(|thread| Some((thread, thread_cpus(thread.tid, thread.tid)?)));
    let outside = noted.filter(|(_, allowed)| !allowed.difference(cpus).is_empty());
    outside.map(|(thread, cpus)| Undo::Affinity { thread, cpus }).collect()
}

/// Confines the threads that were noted to `cpus`.
pub fn pin(noted: &[Undo], cpus: &CpuSet) -> Result<(), PinError> {
    let list: Vec<u32> = cpus.iter().collect();
    for thread in noted.iter().filter_map(Undo::thread) {
        match pin_thread(thread.tid, &list) {
            Err(source) if source.raw_os_error() != Some(libc::ESRCH) => {
                return Err(PinError { tid: thread.tid, cpus: cpus.clone(), source });
            }
            _ => {}
        }
    }
    Ok(())
}
