//! Causes outside the service: another process stops or freezes it.

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::clock::{now_ns, sleep_until};
use crate::plant::accomplice::Accomplice;
use crate::plant::cause::{PlantArgs, PlantedCause};
use crate::plant::group::Group;
use crate::scheduling;

/// Plants a process that stops the service with a POSIX signal, and continues it.
pub fn stop(args: &PlantArgs) -> Result<Meddler> {
    let service = Pid::from_raw(std::process::id() as i32).context("this process has a number")?;
    let set = move |stopped: bool| {
        let signal = if stopped { Signal::STOP } else { Signal::CONT };
        kill_process(service, signal).context("cannot send a signal")
    };
    meddler(args, set, || ())
}

/// Plants a process that freezes the service's cgroup, and thaws it.
pub fn freeze(args: &PlantArgs) -> Result<Meddler> {
    let group = Group::to_freeze()?;
    let (of_meddler, of_janitor) = (group.clone(), group.clone());
    let meddler = meddler(args, move |frozen| of_meddler.freeze(frozen), move || of_janitor.remove())?;
    group.enter()?;
    Ok(meddler)
}

fn meddler(args: &PlantArgs, set: impl Fn(bool) -> Result<()>, put_right: impl FnOnce()) -> Result<Meddler> {
    let (cpu, length_ns) = (args.other_cpu, args.delay_ns());
    let prepare = || {
        scheduling::pin_to(cpu)?;
        Ok(move || {
            set(true)?;
            sleep_until(now_ns() + length_ns)?;
            set(false)
        })
    };
    Ok(Meddler(Accomplice::start(prepare, put_right)?))
}

/// Process on another CPU that suspends the service while a planted request is served.
pub struct Meddler(Accomplice);

impl PlantedCause for Meddler {
    fn strike(&mut self) -> Result<()> {
        self.0.strike()
    }
}
