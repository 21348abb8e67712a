//! Causes that take the CPU away: other processes on it, a quota, moves to another CPU.

use std::fs;

use anyhow::{Context, Result, ensure};
use rustix::process::setpriority_process;

use crate::clock::{Nanos, now_ns};
use crate::plant::accomplice::HelperProcess;
use crate::plant::cause::{PlantArgs, PlantedCause, spin};
use crate::plant::group::PlantCgroup;
use crate::scheduling;

const NICEST: i32 = -20;
const REAL_TIME_PRIORITY: i32 = 50;

/// Name of the batch process that runs on the service's sibling lane.
const BATCH: &str = "plant-batch";

/// Plants a process of far higher priority on the service's CPU.
pub fn start_high_priority_process(args: &PlantArgs) -> Result<CompetingProcess> {
    start_competing_process(args.cpu, args.delay_ns(), || Ok(setpriority_process(None, NICEST)?))
}

/// Plants a real-time thread on the service's CPU.
pub fn start_real_time_thread(args: &PlantArgs) -> Result<CompetingProcess> {
    start_competing_process(args.cpu, args.delay_ns(), || scheduling::run_as_fifo(REAL_TIME_PRIORITY))
}

/// Plants batch on an emulated sibling lane: while batch works there, the request makes no progress. Batch and the
/// service run in real-time class, since another program that preempted them would be a second cause of delay.
pub fn start_sibling_batch(args: &PlantArgs) -> Result<CompetingProcess> {
    let rise = || scheduling::run_as_fifo(REAL_TIME_PRIORITY);
    let batch = || fs::write("/proc/self/comm", BATCH).context("cannot name batch").and_then(|()| rise());
    let intruder = start_competing_process(args.other_cpu, args.delay_ns(), batch)?;
    rise()?;
    Ok(intruder)
}

fn start_competing_process(
    cpu: usize,
    length_ns: Nanos,
    raise_priority: impl FnOnce() -> Result<()>,
) -> Result<CompetingProcess> {
    let prepare = || {
        scheduling::pin_to(cpu)?;
        raise_priority()?;
        Ok(move || {
            spin(length_ns);
            Ok(())
        })
    };
    Ok(CompetingProcess(HelperProcess::start(prepare, || ())?))
}

/// Process that runs on the service's CPU, or on its sibling lane, while a planted request is served.
pub struct CompetingProcess(HelperProcess);

impl PlantedCause for CompetingProcess {
    fn disturb_request(&mut self) -> Result<()> {
        self.0.disturb_and_wait()
    }
}

/// CPU quota that suffices for plain requests but not for planted ones.
pub struct Quota {
    /// Helper process that removes the service's cgroup at the end.
    _janitor: HelperProcess,
    group: PlantCgroup,
    delay_ns: Nanos,
}

impl Quota {
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        let period_us = (args.delay_ms * 2_000).min(1_000_000);
        let group = PlantCgroup::with_quota((period_us / 5).max(1_000), period_us)?;
        let of_janitor = group.clone();
        let janitor = HelperProcess::start(|| Ok(|| Ok(())), move || of_janitor.remove())?;
        group.enter()?;
        Ok(Self { _janitor: janitor, group, delay_ns: args.delay_ns() })
    }
}

impl PlantedCause for Quota {
    /// Works until the quota is used up, which shows as a gap between two clock readings. Gaps without throttling are
    /// ignored: in these another program had the CPU.
    fn disturb_request(&mut self) -> Result<()> {
        let times = self.group.times_throttled()?;
        let began_ns = now_ns();
        let mut last_ns = began_ns;
        loop {
            let now_ns = now_ns();
            if now_ns - last_ns > self.delay_ns / 2 && self.group.times_throttled()? > times {
                return Ok(());
            }
            ensure!(now_ns - began_ns < 50 * self.delay_ns, "the quota was not used up");
            last_ns = now_ns;
        }
    }
}

/// Moves of the service's thread to another CPU and back.
pub struct CpuMigrations {
    cpus: [usize; 2],
    length_ns: Nanos,
}

impl CpuMigrations {
    pub fn prepare(args: &PlantArgs) -> Self {
        Self { cpus: [args.other_cpu, args.cpu], length_ns: args.delay_ns() }
    }
}

impl PlantedCause for CpuMigrations {
    fn disturb_request(&mut self) -> Result<()> {
        let end_ns = now_ns() + self.length_ns;
        while now_ns() < end_ns {
            self.cpus.into_iter().try_for_each(scheduling::pin_to)?;
        }
        Ok(())
    }
}
