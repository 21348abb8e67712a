//! A program on a lane whose work is counted, and the time that it took for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::experiment::sibling::Sibling;
use crate::experiment::stage::cpu_ns;
use crate::lab::Lab;
use sidelane_host::priority::with_this_thread_on;

/// The kernel that works here: all arithmetic, so nothing but the lane's own time limits it.
const KERNEL: &str = "matrix";
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// How busy a worker is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rest {
    /// Units of work, then …
    pub(super) after_units: u64,
    /// … so much sleep.
    pub(super) length: Duration,
}

/// A worker. Ended when dropped.
pub(super) struct Worker {
    child: Child,
    counter: PathBuf,
}

/// What it has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Done {
    units: u64,
    /// Time from the beginning of its bursts to their end.
    busy_ns: u64,
    /// Time that it had its lane.
    cpu_ns: u64,
}

/// The time by which work is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Clock {
    /// What happens while a program does not have its lane is not its slowdown.
    OwnTime,
    /// Except for a thief, which takes the lane.
    BurstTime,
}

impl Worker {
    /// Starts one on `cpu`. It makes up for its own overlap if it is given the sibling.
    pub(super) fn start(
        lab: &Lab,
        cpu: u32,
        counter: PathBuf,
        rest: Option<Rest>,
        sibling: Option<&Sibling>,
    ) -> Result<Self> {
        let _ = fs::remove_file(&counter);
        let mut command = lab.command(["batch", KERNEL]);
        command.arg("--counter").arg(&counter);
        if let Some(rest) = rest {
            command.args(["--rest", &format!("{}:{}", rest.after_units, rest.length.as_micros())]);
        }
        sibling.into_iter().for_each(|sibling| sibling.add_options(&mut command));
        let child = with_this_thread_on(&[cpu], || command.spawn())?.context("cannot start a worker")?;
        let worker = Self { child, counter };
        worker.wait_until_it_works()?;
        Ok(worker)
    }

    fn wait_until_it_works(&self) -> Result<()> {
        let began = Instant::now();
        while self.done().busy_ns == 0 {
            ensure!(
                began.elapsed() < START_TIMEOUT,
                "a worker did nothing for 5 s: is something else busy on its lane?"
            );
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// What it has done so far.
    pub(super) fn done(&self) -> Done {
        let (units, busy_ns) = read(&self.counter).unwrap_or_default();
        Done { units, busy_ns, cpu_ns: cpu_ns(self.child.id()).unwrap_or_default() }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(counter: &Path) -> Option<(u64, u64)> {
    let bytes = fs::read(counter).ok()?;
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some((word(0)?, word(8)?))
}

impl Done {
    /// Work for each nanosecond since `before`.
    pub(super) fn speed_since(self, before: Self, clock: Clock) -> Option<f64> {
        let length_ns = match clock {
            Clock::OwnTime => self.cpu_ns.checked_sub(before.cpu_ns)?,
            Clock::BurstTime => self.busy_ns.checked_sub(before.busy_ns)?,
        };
        (length_ns > 0).then(|| (self.units - before.units) as f64 / length_ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_of_the_time_worked() {
        let before = Done { units: 100, busy_ns: 1_000, cpu_ns: 900 };
        let after = Done { units: 150, busy_ns: 1_200, cpu_ns: 1_000 };
        assert_eq!(after.speed_since(before, Clock::BurstTime), Some(0.25));
        assert_eq!(after.speed_since(before, Clock::OwnTime), Some(0.5));
        assert_eq!(before.speed_since(before, Clock::OwnTime), None);
    }
}
