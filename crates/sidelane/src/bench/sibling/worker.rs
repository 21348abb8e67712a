//! A program on a lane whose work is counted, and the time that it took for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::experiment::sibling::Sibling;
use crate::lab::Lab;
use crate::lane::priority::with_this_thread_on;

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
    busy_ns: u64,
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
        read(&self.counter).unwrap_or_default()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(counter: &Path) -> Option<Done> {
    let bytes = fs::read(counter).ok()?;
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some(Done { units: word(0)?, busy_ns: word(8)? })
}

impl Done {
    /// Work for each nanosecond that it worked, since `before`.
    pub(super) fn speed_since(self, before: Self) -> Option<f64> {
        let busy_ns = self.busy_ns - before.busy_ns;
        (busy_ns > 0).then(|| (self.units - before.units) as f64 / busy_ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_of_the_time_worked() {
        let before = Done { units: 100, busy_ns: 1_000 };
        assert_eq!(Done { units: 150, busy_ns: 1_200 }.speed_since(before), Some(0.25));
        assert_eq!(before.speed_since(before), None);
    }
}
