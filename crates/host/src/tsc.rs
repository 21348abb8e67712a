//! Clock of the observer: the time stamp counter, which ticks at a constant rate on every lane.
//!
//! Its ticks are called *cycles* here, as in the SHIM thesis. They are cycles of the processor's nominal frequency; the
//! core's actual frequency may differ.

use std::arch::x86_64::{__cpuid, __rdtscp, _rdtsc};
use std::time::{Duration, Instant};

/// Time for which the counter is compared with the system's clock.
const CALIBRATION: Duration = Duration::from_millis(20);
/// CPUID leaf and bit of a counter with the same rate in every power state of the processor.
const INVARIANT: (u32, u32) = (0x8000_0007, 1 << 8);

/// Whether the processor reports a constant rate of its time stamp counter. Some hypervisors hide that bit.
pub fn is_invariant() -> bool {
    let (leaf, bit) = INVARIANT;
    __cpuid(0x8000_0000).eax >= leaf && __cpuid(leaf).edx & bit != 0
}

/// Returns the time stamp counter in cycles, after all earlier loads are done.
#[inline(always)]
pub fn read_cycles_after_loads() -> u64 {
    let mut lane = 0;
    // SAFETY: every x86-64 processor since 2008 has RDTSCP, and Linux itself relies on it there.
    unsafe { __rdtscp(&mut lane) }
}

/// Returns the lane that this thread runs on, which Linux stores for RDTSCP.
#[inline(always)]
pub fn current_lane() -> u32 {
    /// Mask of the bits with the lane's number; the bits above hold the NUMA node.
    const LANE_BITS: u32 = (1 << 12) - 1;
    let mut lane = 0;
    // SAFETY: every x86-64 processor since 2008 has RDTSCP, and Linux itself relies on it there.
    unsafe { __rdtscp(&mut lane) };
    lane & LANE_BITS
}

/// Returns the time stamp counter in cycles; instructions nearby may be reordered with the read.
#[inline(always)]
pub fn read_cycles() -> u64 {
    // SAFETY: every x86-64 processor has RDTSC.
    unsafe { _rdtsc() }
}

/// Returns the smallest step of the counter, in cycles. On a processor that multiplies a slower clock, the counter
/// advances by several cycles at a time.
pub fn cycle_increment() -> u64 {
    const READS: usize = 1000;
    let first = read_cycles_after_loads();
    (0..READS).map(|_| read_cycles_after_loads() - first).fold(0, greatest_common_divisor)
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

/// Reads the counter and the system's clock at one moment. An interruption between the two reads separates them, so
/// the closest of several tries is used.
fn read_cycles_and_monotonic_ns() -> (u64, u64) {
    const TRIES: usize = 8;
    let look = || {
        let (before, now_ns, after) = (read_cycles(), crate::clock::now_ns(), read_cycles());
        (after.wrapping_sub(before), before, now_ns)
    };
    let (apart, before, now_ns) = (0..TRIES).map(|_| look()).min().expect("there are tries");
    (before + apart / 2, now_ns)
}

/// Rate and zero point that convert cycles of the counter to time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// Rate of the counter, in cycles per nanosecond.
    pub cycles_per_ns: f64,
    /// Zero point in cycles of the counter.
    pub zero_cycles: u64,
    /// Zero point on `CLOCK_MONOTONIC`, in nanoseconds.
    pub zero_ns: u64,
}

impl Clock {
    /// Compares the counter with the system's clock, for 20 ms.
    pub fn calibrate() -> Self {
        let (began, (zero_cycles, zero_ns)) = (Instant::now(), read_cycles_and_monotonic_ns());
        while began.elapsed() < CALIBRATION {
            std::hint::spin_loop();
        }
        let (end_cycles, end_ns) = read_cycles_and_monotonic_ns();
        let (spent, passed_ns) = (end_cycles - zero_cycles, end_ns - zero_ns);
        Self { cycles_per_ns: spent as f64 / passed_ns as f64, zero_cycles, zero_ns }
    }

    /// Converts a number of cycles to nanoseconds.
    pub fn cycles_to_ns(&self, cycles: u64) -> f64 {
        cycles as f64 / self.cycles_per_ns
    }

    /// Converts nanoseconds to a number of cycles.
    pub fn ns_to_cycles(&self, ns: u64) -> u64 {
        (ns as f64 * self.cycles_per_ns) as u64
    }

    /// Converts a reading of the counter to a time on `CLOCK_MONOTONIC`, in nanoseconds.
    pub fn cycles_to_monotonic_ns(&self, cycles: u64) -> u64 {
        let since = cycles.wrapping_sub(self.zero_cycles) as i64 as f64 / self.cycles_per_ns;
        self.zero_ns.saturating_add_signed(since as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycle_increment_is_the_common_divisor_of_readings() {
        let divisor = |(one, other)| greatest_common_divisor(one, other);
        assert_eq!([(78, 52), (0, 26), (26, 0), (35, 12)].map(divisor), [26, 26, 26, 1]);
        assert!(cycle_increment() > 0);
    }

    #[test]
    fn cycles_convert_to_the_time_of_the_monotonic_clock() {
        let clock = Clock::calibrate();
        let before = crate::clock::now_ns();
        let at_ns = clock.cycles_to_monotonic_ns(read_cycles());
        let after = crate::clock::now_ns();
        // The rate of the counter is exact to some parts in ten thousand. So the tolerance grows with the time since
        // the zero point, which is some milliseconds ago.
        let slack_ns = 10_000 + (after - clock.zero_ns) / 1_000;
        assert!(before - slack_ns <= at_ns && at_ns <= after + slack_ns, "{before} {at_ns} {after}");
        let there_and_back = clock.cycles_to_ns(clock.ns_to_cycles(1_000_000));
        assert!((there_and_back - 1e6).abs() < 10.0, "{there_and_back}");
    }
}
