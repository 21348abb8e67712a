//! A program on a lane that counts its work and the time in which it does not work.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::experiment::fixture::cpu_ns;
use crate::experiment::sibling::EmulatedSibling;
use crate::programs::LabBinary;
use sidelane_host::priority::run_with_this_thread_on;

/// Batch kernel of the worker: pure arithmetic, whose speed depends only on the CPU time that it gets.
const KERNEL: &str = "matrix";
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Rhythm of a worker, which determines the utilisation of its lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rest {
    /// Units of work before each sleep.
    pub(super) after_units: u64,
    /// Length of each sleep.
    pub(super) length: Duration,
}

/// Worker process. It is killed when this is dropped.
pub(super) struct Worker {
    child: Child,
    counter: PathBuf,
}

/// Counters of a worker at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct WorkerCounters {
    units: u64,
    /// Total length of the worker's bursts.
    busy_ns: u64,
    /// Part of `busy_ns` in which the worker checked its overlap and spun to emulate the slowdown.
    made_up_ns: u64,
    /// CPU time of the worker on its lane.
    cpu_ns: u64,
}

/// Mechanism by which a worker loses time in a burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LossSource {
    /// The worker itself spins to emulate the slowdown.
    MadeUp,
    /// Another program, such as the steal emulator, runs on the worker's lane.
    Taken,
}

impl Worker {
    /// Starts a worker on `cpu`. It emulates the slowdown itself if `sibling` is given and has the mechanism `BuiltIn`.
    pub(super) fn start(
        lab: &LabBinary,
        cpu: u32,
        counter: PathBuf,
        rest: Option<Rest>,
        sibling: Option<&EmulatedSibling>,
    ) -> Result<Self> {
        let _ = fs::remove_file(&counter);
        let mut command = lab.command(["batch", KERNEL]);
        command.arg("--counter").arg(&counter);
        if let Some(rest) = rest {
            command.args(["--rest", &format!("{}:{}", rest.after_units, rest.length.as_micros())]);
        }
        sibling.into_iter().for_each(|sibling| sibling.add_options(&mut command));
        let child = run_with_this_thread_on(&[cpu], || command.spawn())?.context("cannot start a worker")?;
        let worker = Self { child, counter };
        worker.wait_for_first_unit()?;
        Ok(worker)
    }

    fn wait_for_first_unit(&self) -> Result<()> {
        let began = Instant::now();
        while self.read_counters().busy_ns == 0 {
            ensure!(
                began.elapsed() < START_TIMEOUT,
                "a worker did nothing for 5 s: is something else busy on its lane?"
            );
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Reads the worker's counters.
    pub(super) fn read_counters(&self) -> WorkerCounters {
        let (units, busy_ns, made_up_ns) = read_counter_file(&self.counter).unwrap_or_default();
        WorkerCounters { units, busy_ns, cpu_ns: cpu_ns(self.child.id()).unwrap_or_default(), made_up_ns }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_counter_file(counter: &Path) -> Option<(u64, u64, u64)> {
    let bytes = fs::read(counter).ok()?;
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some((word(0)?, word(8)?, word(16)?))
}

impl WorkerCounters {
    /// Returns the CPU time on the lane for each unit of work since `before`.
    pub(super) fn unit_ns_since(self, before: Self) -> Option<f64> {
        let units = self.units - before.units;
        (units > 0).then(|| (self.cpu_ns - before.cpu_ns) as f64 / units as f64)
    }

    /// Returns the share of the worker's bursts since `before` in which it worked.
    pub(super) fn work_share_since(self, before: Self, loss: LossSource) -> Option<f64> {
        let busy_ns = self.busy_ns.checked_sub(before.busy_ns).filter(|busy_ns| *busy_ns > 0)?;
        let worked_ns = match loss {
            LossSource::MadeUp => busy_ns.saturating_sub(self.made_up_ns - before.made_up_ns),
            LossSource::Taken => self.cpu_ns - before.cpu_ns,
        };
        Some(worked_ns as f64 / busy_ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spun_and_taken_time_does_not_count_as_work() {
        let before = WorkerCounters { units: 100, busy_ns: 1_000, made_up_ns: 10, cpu_ns: 900 };
        let after = WorkerCounters { units: 150, busy_ns: 1_200, made_up_ns: 90, cpu_ns: 1_000 };
        assert_eq!(after.work_share_since(before, LossSource::MadeUp), Some(0.6));
        assert_eq!(after.work_share_since(before, LossSource::Taken), Some(0.5));
        assert_eq!(before.work_share_since(before, LossSource::Taken), None);
        assert_eq!((after.unit_ns_since(before), before.unit_ns_since(before)), (Some(2.0), None));
    }
}
