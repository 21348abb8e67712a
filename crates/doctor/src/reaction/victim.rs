//! Victim: a batch process that is stopped and resumed, and records when it ran.
//!
//! On its batch lane the victim writes the time into shared memory as fast as it can, some twenty million times a
//! second. So the last written time is when it was stopped, and the next one when it was back, as it sees it itself. A
//! controller on the request lane acts as the service. While it sleeps batch runs; when it wakes batch must be off; it
//! stays awake a while and then is done.
//!
//! A victim that was moved to another CPU still runs. Therefore it checks its CPU after each reading of the clock, and
//! writes only times that it read on its lane. The controller may itself be kept from looking, so the victim records
//! when it came back.
//!
//! The victim is of ordinary class, unlike real batch. So the gate is measured and not the other work that happens to
//! be on the lane.

use std::io;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::reaction::child::{Child, ChildMemory, Class};
use crate::reaction::latency::{Figures, LatencyPercentiles, ReactionPlan};
use crate::reaction::pair::TestPair;
use sidelane_host::cgroup::BatchGroup;
use sidelane_host::clock::now_ns;
use sidelane_host::priority::{pin_this_thread, pin_thread};

/// Idle time of the service before each burst.
const IDLE: Duration = Duration::from_micros(300);
/// Silence of a victim, which writes the time all the while it runs, after which it counts as off. It is far above an
/// interrupt or a pause by the hypervisor, and equals a busy burst of ordinary length.
const SILENCE_NS: u64 = 300_000;
/// Time between two turns of a victim on its lane after which it counts as back from a stop.
const ABSENCE_NS: u64 = SILENCE_NS / 2;
/// Longest wait for a victim to be off, or back. Thawing takes 11 ms at times.
const TIMEOUT_NS: u64 = 100_000_000;

/// Mechanism that stops one process and resumes it.
pub enum StopMethod {
    /// The process is moved to another CPU.
    Affinity {
        /// CPU to which the process is moved.
        elsewhere: u32,
    },
    /// The cgroup of the process is frozen.
    Freezer {
        /// Cgroup of the process.
        leaf: BatchGroup,
        /// Control file of the freezer.
        file: &'static str,
        /// Values that are written to freeze, and to thaw.
        values: [&'static str; 2],
    },
    /// The process gets SIGSTOP and SIGCONT.
    Signal,
}

/// Victim process, with the mechanism that stops it.
pub struct Victim<'switch> {
    child: Child,
    lane: u32,
    switch: &'switch StopMethod,
}

/// Measures `method` on a fresh victim, from a thread of this process on the request lane. Returns `None` without a
/// successful round.
pub fn measure_stop_method(method: &StopMethod, pair: &TestPair, effort: &ReactionPlan) -> io::Result<Option<Figures>> {
    let (off_ns, on_ns): (Vec<u64>, Vec<u64>) = measure_rounds(method, pair, effort)?.into_iter().unzip();
    let samples = off_ns.len() as u64;
    Ok(LatencyPercentiles::from_latencies(off_ns)
        .zip(LatencyPercentiles::from_latencies(on_ns))
        .map(|(off, on)| Figures { off, on, samples }))
}

/// Measures `method`, and returns for each round the nanoseconds until the victim was off, and until it was back.
pub fn measure_rounds(method: &StopMethod, pair: &TestPair, effort: &ReactionPlan) -> io::Result<Vec<(u64, u64)>> {
    pin_this_thread(&[pair.request])?;
    let victim = Victim::start(pair.batch, method)?;
    let deadline = Instant::now() + effort.gate_time;
    let mut rounds = Vec::new();
    while rounds.len() < effort.rounds && Instant::now() < deadline {
        rounds.extend(victim.measure_round()?);
    }
    Ok(rounds)
}

impl<'switch> Victim<'switch> {
    fn start(lane: u32, method: &'switch StopMethod) -> io::Result<Self> {
        let child = Child::start(lane, Class::Ordinary, None, |board| write_time_while_on_lane(board, lane))?;
        if let StopMethod::Freezer { leaf, .. } = method {
            leaf.move_process_in(child.pid())?;
        }
        Ok(Self { child, lane, switch: method })
    }

    /// Runs one busy burst of the service. Returns how long it took until the victim was off, and until it was back
    /// afterwards. `None` if the victim did not run when the burst began, or never went off.
    fn measure_round(&self) -> io::Result<Option<(u64, u64)>> {
        thread::sleep(IDLE);
        let began_ns = now_ns();
        self.stop()?;
        let off_ns = self.wait_for_last_stamp_ns(began_ns);
        let ended_ns = now_ns();
        self.resume()?;
        let on_ns = self.wait_for_return_ns(ended_ns);
        let was_on = off_ns.filter(|off_ns| *off_ns > began_ns);
        Ok(was_on.zip(on_ns).map(|(off_ns, on_ns)| (off_ns - began_ns, on_ns - ended_ns)))
    }

    fn stop(&self) -> io::Result<()> {
        match self.switch {
            StopMethod::Affinity { elsewhere } => pin_thread(self.child.pid(), &[*elsewhere]),
            StopMethod::Freezer { leaf, file, values } => leaf.write(file, values[0]),
            StopMethod::Signal => self.child.signal(Signal::STOP),
        }
    }

    fn resume(&self) -> io::Result<()> {
        match self.switch {
            StopMethod::Affinity { .. } => pin_thread(self.child.pid(), &[self.lane]),
            StopMethod::Freezer { leaf, file, values } => leaf.write(file, values[1]),
            StopMethod::Signal => self.child.signal(Signal::CONT),
        }
    }

    /// Stays busy, as the service would, until the victim is silent. Returns the last time that the victim wrote.
    fn wait_for_last_stamp_ns(&self, began_ns: u64) -> Option<u64> {
        spin_until_some(began_ns, |now_ns| {
            let stamp_ns = self.stamp_ns();
            (now_ns.saturating_sub(stamp_ns.max(began_ns)) > SILENCE_NS).then_some(stamp_ns)
        })
    }

    fn wait_for_return_ns(&self, ended_ns: u64) -> Option<u64> {
        let returned_ns = || self.child.shared_memory().returned_ns.load(Ordering::Acquire);
        spin_until_some(ended_ns, |_| Some(returned_ns()).filter(|returned_ns| *returned_ns > ended_ns))
    }

    fn stamp_ns(&self) -> u64 {
        self.child.shared_memory().stamp_ns.load(Ordering::Acquire)
    }
}

impl Drop for Victim<'_> {
    /// The victim is resumed first: a process in a frozen v1 cgroup cannot even be killed.
    fn drop(&mut self) {
        let _ = self.resume();
    }
}

fn spin_until_some<T>(since_ns: u64, mut attempt: impl FnMut(u64) -> Option<T>) -> Option<T> {
    loop {
        let now_ns = now_ns();
        let answer = attempt(now_ns);
        if answer.is_some() || now_ns - since_ns > TIMEOUT_NS {
            return answer;
        }
    }
}

/// Runs the program of the victim; never returns.
fn write_time_while_on_lane(memory: &ChildMemory, lane: u32) {
    let mut last_ns = 0;
    loop {
        let now_ns = now_ns();
        // SAFETY: no preconditions.
        if unsafe { libc::sched_getcpu() } != lane as i32 {
            continue;
        }
        if now_ns - last_ns > ABSENCE_NS {
            memory.returned_ns.store(now_ns, Ordering::Release);
        }
        memory.stamp_ns.store(now_ns, Ordering::Release);
        last_ns = now_ns;
    }
}
