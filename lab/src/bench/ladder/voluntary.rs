//! The measurement of Elfen's Fig. 7: a measurement thread on one lane puts the thread T2 on the other lane to sleep
//! and wakes it.
//!
//! The paper detects a sleeping lane by its µops, which needs hardware counters of both lanes. Without them T2's own
//! stores are the evidence. T2 is asleep once its last store before the nap is seen, and awake once its first store
//! after the nap is seen. The measured time excludes the time in which the nap then releases the lane's resources. For
//! a futex the kernel puts the thread to sleep: T2 is asleep once the scheduler has stopped its CPU time clock.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::sleeper::{BE_AWAKE, END, NAP, SleepMechanism};
use sidelane_doctor::reaction::latency::ReactionPlan;
use sidelane_doctor::reaction::pair::TestPair;
use sidelane_host::clock::now_ns;
use sidelane_host::priority::pin_this_thread;
use sidelane_host::tsc::read_cycles;

/// Length of a nap of the thread T2: long enough that an idle CPU reaches its deepest sleep state.
const NAP_TIME: Duration = Duration::from_micros(200);
/// Time for which the thread T2 is awake before the next round.
const AWAKE_TIME: Duration = Duration::from_micros(50);
/// Time without an answer of the thread T2 after which a round is dropped: another program must be using its lane.
const TIMEOUT_NS: u64 = 50_000_000;

/// Atomic word shared by the two threads, in a cache line of its own, so that neither delays the other's stores.
#[derive(Default)]
#[repr(C, align(128))]
struct Line(AtomicU32);

#[derive(Default)]
struct Flags {
    asked: Line,
    /// Last state that the thread T2 reported.
    heart: Line,
}

/// Times to sleep and to wake in one round, in cycles.
pub(super) struct Round {
    pub(super) sleep: u64,
    pub(super) wake: u64,
}

/// Measures `sleeper` on `pair`. The calling thread becomes the measurement thread.
pub(super) fn measure_naps(sleeper: SleepMechanism, pair: &TestPair, plan: &ReactionPlan) -> io::Result<Vec<Round>> {
    pin_this_thread(&[pair.request])?;
    let flags = &Flags::default();
    thread::scope(|scope| {
        let (placed, place) = mpsc::channel();
        scope.spawn(move || {
            // Ignores a failed send, which cannot occur: the receiver lives until this thread gets the command to end.
            let _ = placed.send(pin_this_thread(&[pair.batch]).and_then(|()| own_cpu_clock()));
            run_batch_thread(sleeper, flags);
        });
        let clock = place.recv().expect("T2 says where it is");
        let rounds = clock.map(|clock| run_rounds(sleeper, flags, clock, plan));
        sleeper.send_command(&flags.asked.0, END);
        rounds
    })
}

fn run_rounds(
    sleeper: SleepMechanism,
    flags: &Flags,
    thread_clock: libc::clockid_t,
    plan: &ReactionPlan,
) -> Vec<Round> {
    let deadline_ns = now_ns() + plan.gate_time.as_nanos() as u64;
    let more = |done: usize| done < plan.rounds && now_ns() < deadline_ns;
    let mut rounds = Vec::new();
    while more(rounds.len()) {
        rounds.extend(run_round(sleeper, flags, thread_clock));
    }
    rounds
}

/// Runs one round: the body of `measure()` in Elfen's Fig. 7.
fn run_round(sleeper: SleepMechanism, flags: &Flags, thread_clock: libc::clockid_t) -> Option<Round> {
    spin(AWAKE_TIME);
    let began = read_cycles();
    sleeper.send_command(&flags.asked.0, NAP);
    let mut slept = wait_until_reported(flags, NAP)?;
    if sleeper == SleepMechanism::Futex {
        slept = wait_until_stopped(thread_clock)?;
    }
    spin(NAP_TIME);
    let woken = read_cycles();
    sleeper.send_command(&flags.asked.0, BE_AWAKE);
    let awake = wait_until_reported(flags, BE_AWAKE)?;
    Some(Round { sleep: slept - began, wake: awake - woken })
}

fn run_batch_thread(sleeper: SleepMechanism, flags: &Flags) {
    loop {
        match flags.asked.0.load(Ordering::Acquire) {
            BE_AWAKE => flags.heart.0.store(BE_AWAKE, Ordering::Release),
            NAP => {
                flags.heart.0.store(NAP, Ordering::Release);
                sleeper.nap_while_commanded(&flags.asked.0);
            }
            _ => return,
        }
    }
}

/// Waits until T2 reports `state`; returns the time of the report in cycles, or `None` after [`TIMEOUT_NS`].
fn wait_until_reported(flags: &Flags, state: u32) -> Option<u64> {
    let since_ns = now_ns();
    while flags.heart.0.load(Ordering::Acquire) != state {
        if now_ns() - since_ns > TIMEOUT_NS {
            return None;
        }
    }
    Some(read_cycles())
}

/// Waits until two consecutive reads find T2's CPU time unchanged; returns the time of the first read in cycles.
fn wait_until_stopped(thread_clock: libc::clockid_t) -> Option<u64> {
    let since_ns = now_ns();
    let (mut seen_at, mut seen) = (read_cycles(), thread_cpu_ns(thread_clock));
    loop {
        let (now, used) = (read_cycles(), thread_cpu_ns(thread_clock));
        if used == seen {
            return Some(seen_at);
        }
        if now_ns() - since_ns > TIMEOUT_NS {
            return None;
        }
        (seen_at, seen) = (now, used);
    }
}

/// Returns the CPU time clock of the calling thread; other threads can read this clock, too.
fn own_cpu_clock() -> io::Result<libc::clockid_t> {
    let mut clock = 0;
    // SAFETY: `clock` is valid for writes, and the calling thread exists.
    match unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) } {
        0 => Ok(clock),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn thread_cpu_ns(thread_clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes. A thread that has ended leaves it as it is.
    unsafe { libc::clock_gettime(thread_clock, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn spin(length: Duration) {
    let until_ns = now_ns() + length.as_nanos() as u64;
    while now_ns() < until_ns {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidelane_host::nap::Nap;
    use sidelane_host::procfs::own_cpus;
    use sidelane_host::topology::PairKind;

    #[test]
    fn every_sleeper_sleeps_and_wakes() {
        let mut cpus = own_cpus().iter().collect::<Vec<_>>().into_iter();
        let (Some(request), Some(batch)) = (cpus.next(), cpus.next()) else {
            return sidelane_testing::skip("needs two CPUs");
        };
        let pair = TestPair { request, batch, kind: PairKind::Declared };
        let effort = ReactionPlan { rounds: 5, gate_time: Duration::from_secs(5), sibling_pairs: 0 };
        for sleeper in [SleepMechanism::Futex, SleepMechanism::Nap(Nap::PAUSE), SleepMechanism::Nap(Nap::probe())] {
            let rounds = thread::scope(|scope| scope.spawn(|| measure_naps(sleeper, &pair, &effort)).join().unwrap());
            let rounds = rounds.unwrap();
            assert!(rounds.iter().all(|round| round.sleep > 0 && round.wake > 0), "{sleeper}");
            assert!(!rounds.is_empty(), "{sleeper}");
        }
    }
}
