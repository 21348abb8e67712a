//! The time stamp counter: the unit of the paper's Fig. 8. Specific to x86-64.

use std::arch::x86_64::_rdtsc;
use std::thread;
use std::time::Duration;

use crate::lane::clock::now_ns;

/// Long enough that the two reads of clocks at either end do not count.
const CALIBRATION: Duration = Duration::from_millis(50);

/// The counter now.
#[inline]
pub(super) fn cycles() -> u64 {
    // SAFETY: reads a counter, and x86-64 always has it.
    unsafe { _rdtsc() }
}

/// How many cycles it counts in a nanosecond.
pub(super) fn cycles_per_ns() -> f64 {
    let (began_ns, began) = (now_ns(), cycles());
    thread::sleep(CALIBRATION);
    let (ended_ns, ended) = (now_ns(), cycles());
    (ended - began) as f64 / (ended_ns - began_ns) as f64
}
