//! Causes outside the service: another process stops or freezes it.

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::clock::{now_ns, sleep_until};
use crate::plant::accomplice::HelperProcess;
use crate::plant::cause::{PlantArgs, PlantedCause};
use crate::plant::group::PlantCgroup;
use crate::scheduling;

/// Plants a process that stops the service with a POSIX signal, and continues it.
pub fn start_stopping_process(args: &PlantArgs) -> Result<SuspendingProcess> {
    let service = Pid::from_raw(std::process::id() as i32).context("this process has a number")?;
    let set = move |stopped: bool| {
        let signal = if stopped { Signal::STOP } else { Signal::CONT };
        kill_process(service, signal).context("cannot send a signal")
    };
    start_suspending_process(args, set, || ())
}

/// Plants a process that freezes the service's cgroup, and thaws it.
pub fn start_freezing_process(args: &PlantArgs) -> Result<SuspendingProcess> {
    let group = PlantCgroup::new_freezable()?;
    let (of_meddler, of_janitor) = (group.clone(), group.clone());
    let meddler =
        start_suspending_process(args, move |frozen| of_meddler.set_frozen(frozen), move || of_janitor.remove())?;
    group.enter()?;
    Ok(meddler)
}

fn start_suspending_process(
    args: &PlantArgs,
    set_suspended: impl Fn(bool) -> Result<()>,
    clean_up: impl FnOnce(),
) -> Result<SuspendingProcess> {
    let (cpu, length_ns) = (args.other_cpu, args.delay_ns());
    let prepare = || {
        scheduling::pin_to(cpu)?;
        Ok(move || {
            set_suspended(true)?;
            sleep_until(now_ns() + length_ns)?;
            set_suspended(false)
        })
    };
    Ok(SuspendingProcess(HelperProcess::start(prepare, clean_up)?))
}

/// Process on another CPU that suspends the service while a planted request is served.
pub struct SuspendingProcess(HelperProcess);

impl PlantedCause for SuspendingProcess {
    fn disturb_request(&mut self) -> Result<()> {
        self.0.disturb_and_wait()
    }
}
