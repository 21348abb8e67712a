//! Causes that take the CPU away: other processes on it, a quota, moves to another CPU.

use std::fs;

use anyhow::{Context, Result, ensure};
use rustix::process::setpriority_process;

use crate::clock::{Nanos, now_ns};
use crate::plant::accomplice::Accomplice;
use crate::plant::cause::{PlantArgs, PlantedCause, spin};
use crate::plant::group::Group;
use crate::scheduling;

const NICEST: i32 = -20;
const REAL_TIME_PRIORITY: i32 = 50;

/// Process name of batch beside the service.
const BATCH: &str = "plant-batch";

/// Plants a process of far higher priority on the service's CPU.
pub fn hog(args: &PlantArgs) -> Result<Intruder> {
    intruder(args.cpu, args.delay_ns(), || Ok(setpriority_process(None, NICEST)?))
}

/// Plants a real-time thread on the service's CPU.
pub fn real_time_thread(args: &PlantArgs) -> Result<Intruder> {
    intruder(args.cpu, args.delay_ns(), || scheduling::run_as_fifo(REAL_TIME_PRIORITY))
}

/// Plants batch on an emulated sibling lane: while batch works there, the request makes no progress. Both run in
/// real-time class, so that no other program takes their lanes, which would be another cause.
pub fn sibling(args: &PlantArgs) -> Result<Intruder> {
    let rise = || scheduling::run_as_fifo(REAL_TIME_PRIORITY);
    let batch = || fs::write("/proc/self/comm", BATCH).context("cannot name batch").and_then(|()| rise());
    let intruder = intruder(args.other_cpu, args.delay_ns(), batch)?;
    rise()?;
    Ok(intruder)
}

fn intruder(cpu: usize, length_ns: Nanos, rise: impl FnOnce() -> Result<()>) -> Result<Intruder> {
    let prepare = || {
        scheduling::pin_to(cpu)?;
        rise()?;
        Ok(move || {
            spin(length_ns);
            Ok(())
        })
    };
    Ok(Intruder(Accomplice::start(prepare, || ())?))
}

/// Process that runs on the service's CPU, or beside it, while a planted request is served.
pub struct Intruder(Accomplice);

impl PlantedCause for Intruder {
    fn strike(&mut self) -> Result<()> {
        self.0.strike()
    }
}

/// CPU quota that suffices for plain requests but not for planted ones.
pub struct Quota {
    /// Helper process that removes the group at the end.
    _janitor: Accomplice,
    group: Group,
    delay_ns: Nanos,
}

impl Quota {
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        let period_us = (args.delay_ms * 2_000).min(1_000_000);
        let group = Group::with_quota((period_us / 5).max(1_000), period_us)?;
        let of_janitor = group.clone();
        let janitor = Accomplice::start(|| Ok(|| Ok(())), move || of_janitor.remove())?;
        group.enter()?;
        Ok(Self { _janitor: janitor, group, delay_ns: args.delay_ns() })
    }
}

impl PlantedCause for Quota {
    /// Works until the quota is used up, which shows as a gap between two clock readings. Gaps without throttling are
    /// ignored: another program had the CPU.
    fn strike(&mut self) -> Result<()> {
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
pub struct Moves {
    cpus: [usize; 2],
    length_ns: Nanos,
}

impl Moves {
    pub fn prepare(args: &PlantArgs) -> Self {
        Self { cpus: [args.other_cpu, args.cpu], length_ns: args.delay_ns() }
    }
}

impl PlantedCause for Moves {
    fn strike(&mut self) -> Result<()> {
        let end_ns = now_ns() + self.length_ns;
        while now_ns() < end_ns {
            self.cpus.into_iter().try_for_each(scheduling::pin_to)?;
        }
        Ok(())
    }
}
