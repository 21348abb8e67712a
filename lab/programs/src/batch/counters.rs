//! Counters of batch work in a file that other processes map: one cache line for each thread.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use sidelane_host::shared_mapping::{Shared, SharedMapping};

/// Counter of one batch thread, in a cache line of its own, so that counting never waits for another CPU.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Counter {
    units: AtomicU64,
    busy_ns: AtomicU64,
    made_up_ns: AtomicU64,
    stamp_ns: AtomicU64,
    rest: [AtomicU64; 4],
}

const _: () = assert!(size_of::<Counter>() == 64);
// SAFETY: atomic integers that fill the struct.
unsafe impl Shared for Counter {}

impl Counter {
    /// Counts one finished unit of work. Only the owning thread writes the counter. A plain load and store are
    /// therefore enough, and cost less than an atomic addition.
    pub fn count_unit(&self) {
        let units = self.units.load(Ordering::Relaxed);
        self.units.store(units.wrapping_add(1), Ordering::Relaxed);
    }

    /// Adds time that the owning thread worked.
    pub fn add_busy_time(&self, length_ns: u64) {
        let busy_ns = self.busy_ns.load(Ordering::Relaxed);
        self.busy_ns.store(busy_ns.wrapping_add(length_ns), Ordering::Relaxed);
    }

    /// Adds time that the owning thread spun to stand in for the time that a busy sibling lane would have taken. The
    /// spun time is also part of the time that [`Counter::add_busy_time`] counts.
    pub fn add_emulated_slowdown(&self, length_ns: u64) {
        let made_up_ns = self.made_up_ns.load(Ordering::Relaxed);
        self.made_up_ns.store(made_up_ns.wrapping_add(length_ns), Ordering::Relaxed);
    }

    /// Stores the time at which the owning thread last finished a unit of work.
    pub fn store_timestamp(&self, now_ns: u64) {
        self.stamp_ns.store(now_ns, Ordering::Relaxed);
    }
}

/// Counters of all batch threads, mapped from a file.
#[derive(Debug)]
pub struct Counters {
    map: SharedMapping<Counter>,
}

impl Counters {
    /// Creates the counter file, or opens an existing one, and sets the counters to 0. A longer file keeps its length:
    /// another process may have it mapped.
    pub fn create(path: &Path, threads: usize) -> Result<Self> {
        let map = map_file(path, threads).with_context(|| format!("cannot map the counters in {}", path.display()))?;
        for counter in &*map {
            counter.units.store(0, Ordering::Relaxed);
            counter.busy_ns.store(0, Ordering::Relaxed);
            counter.made_up_ns.store(0, Ordering::Relaxed);
            counter.stamp_ns.store(0, Ordering::Relaxed);
        }
        Ok(Counters { map })
    }

    /// Returns the counter of one thread.
    pub fn of_thread(&self, thread: usize) -> &Counter {
        &self.map[thread]
    }
}

fn map_file(path: &Path, threads: usize) -> std::io::Result<SharedMapping<Counter>> {
    let bytes = (threads * size_of::<Counter>()) as u64;
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    if file.metadata()?.len() < bytes {
        file.set_len(bytes)?;
    }
    SharedMapping::new(&file, threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_mapping_reads_each_threads_counter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        let counters = Counters::create(&path, 2).unwrap();
        (0..3).for_each(|_| counters.of_thread(1).count_unit());
        let seen = std::fs::read(&path).unwrap();
        assert_eq!(seen.len(), 128);
        assert_eq!(seen[..8], 0u64.to_ne_bytes());
        assert_eq!(seen[64..72], 3u64.to_ne_bytes());
    }

    #[test]
    fn create_resets_counters_of_an_existing_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters");
        Counters::create(&path, 1).unwrap().of_thread(0).count_unit();
        Counters::create(&path, 1).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[..8], [0; 8]);
    }
}
