//! Test of core scheduling: whether the kernel itself keeps batch off a core that other programs use.
//!
//! Batch computes on one lane of a core all the time, and the doctor acts as the service on the other lane. The doctor
//! reads batch's counter repeatedly. If the counter changed between two reads and the doctor was not switched out in
//! between, both ran at once.

use std::io;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::finding::Finding;
use crate::reaction::child::{Child, ChildMemory, Class};
use crate::reaction::pair::TestPair;
use sidelane_host::clock::now_ns;
use sidelane_host::corecookie::{CookieError, CoreCookie};
use sidelane_host::priority::pin_this_thread;
use sidelane_host::topology::PairKind;

const NAME: &str = "core scheduling";
/// Length of a measurement: some tens of the scheduler's time slices.
const SPAN: Duration = Duration::from_millis(150);

/// Shares of the doctor's run time in which batch ran on the other lane, in percent: without and with core scheduling.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Overlap {
    without_percent: f64,
    with_percent: f64,
}

/// Returns the finding on whether core scheduling works on this machine. The test runs on `pair` if that is a pair of
/// siblings.
pub fn check_core_scheduling(pair: Option<&TestPair>) -> Finding {
    match CoreCookie::check_supported() {
        Ok(()) => pair.filter(|pair| pair.kind == PairKind::Smt).map_or_else(untested_finding, test_core_scheduling),
        Err(lack) => unsupported_finding(&lack),
    }
}

fn unsupported_finding(error: &CookieError) -> Finding {
    match error {
        CookieError::Kernel => Finding::optional(NAME, "not in this kernel; --gate core-sched cannot be used")
            .with_fix("boot a kernel with CONFIG_SCHED_CORE=y"),
        CookieError::Smt => Finding::optional(NAME, "in this kernel, but no core has two lanes online"),
        CookieError::Refused(error) => {
            Finding::optional(NAME, format!("refused: {error}; --gate core-sched cannot be used"))
                .with_fix("allow prctl in this container or seccomp filter")
        }
    }
}

fn untested_finding() -> Finding {
    Finding::works(NAME, "available; not tried, since no pair of siblings is free")
}

fn test_core_scheduling(pair: &TestPair) -> Finding {
    // The measurement has a thread of its own, so that its affinity ends with it.
    let measured =
        thread::scope(|scope| scope.spawn(|| measure_overlaps(pair)).join().expect("measurements do not panic"));
    match measured {
        Ok(overlap) => overlap_finding(overlap),
        Err(error) => Finding::optional(NAME, format!("available; not tried: {error}")),
    }
}

fn overlap_finding(Overlap { without_percent, with_percent }: Overlap) -> Finding {
    let seen = format!(
        "batch with a core-scheduling cookie overlaps {with_percent:.1} %, without one \
                        {without_percent:.1} %"
    );
    // At any noise, working core scheduling leaves less than half of the overlap.
    match with_percent < without_percent / 2.0 {
        true => Finding::works(NAME, seen),
        false => Finding::optional(NAME, format!("{seen}: the kernel does not keep them apart")),
    }
}

fn measure_overlaps(pair: &TestPair) -> io::Result<Overlap> {
    pin_this_thread(&[pair.request])?;
    let batch = Child::start(pair.batch, Class::Idle, None, count_forever)?;
    let without_percent = measure_overlap_percent(batch.shared_memory())?;
    CoreCookie::create_for_process(batch.pid())?;
    let with_percent = measure_overlap_percent(batch.shared_memory())?;
    Ok(Overlap { without_percent, with_percent })
}

/// Runs batch's program: counts forever.
fn count_forever(memory: &ChildMemory) {
    loop {
        memory.turns.fetch_add(1, Ordering::Relaxed);
    }
}

/// Number of context switches, batch's counter, and the time, read in this order.
struct SwitchSample {
    own_switches: i64,
    batch_turns: u64,
    now_ns: u64,
}

impl SwitchSample {
    fn take(batch_memory: &ChildMemory) -> io::Result<Self> {
        let own_switches = own_switch_count()?;
        Ok(Self { own_switches, batch_turns: batch_memory.turns.load(Ordering::Relaxed), now_ns: now_ns() })
    }
}

/// Returns how often the calling thread was switched out.
fn own_switch_count() -> io::Result<i64> {
    // SAFETY: all zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills in a rusage.
    match unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) } {
        0 => Ok(usage.ru_nvcsw + usage.ru_nivcsw),
        _ => Err(io::Error::last_os_error()),
    }
}

fn measure_overlap_percent(batch_memory: &ChildMemory) -> io::Result<f64> {
    let (mut ran_ns, mut overlapped_ns) = (0, 0);
    let mut last = SwitchSample::take(batch_memory)?;
    let end_ns = last.now_ns + SPAN.as_nanos() as u64;
    while last.now_ns < end_ns {
        let seen = SwitchSample::take(batch_memory)?;
        // If the count is unchanged, no context switch took place from before the first sample to after the second one.
        if own_switch_count()? == last.own_switches {
            let apart_ns = seen.now_ns - last.now_ns;
            ran_ns += apart_ns;
            overlapped_ns += if seen.batch_turns == last.batch_turns { 0 } else { apart_ns };
        }
        last = seen;
    }
    Ok(100.0 * overlapped_ns as f64 / ran_ns.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn core_cookie_works_if_batch_stays_away() {
        let state = |without_percent, with_percent| overlap_finding(Overlap { without_percent, with_percent }).state;
        assert_eq!(state(98.0, 0.1), State::Works);
        assert_eq!(state(98.0, 97.0), State::Optional);
        assert_eq!(state(0.0, 0.0), State::Optional);
    }

    #[test]
    fn missing_smt_and_core_scheduling_are_distinguished() {
        assert_ne!(unsupported_finding(&CookieError::Smt).detail, unsupported_finding(&CookieError::Kernel).detail);
        assert_eq!(unsupported_finding(&CookieError::Kernel).state, State::Optional);
    }
}
