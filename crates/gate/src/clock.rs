//! Two clocks. CLOCK_MONOTONIC is for times that are shared with other programs. The processor's time stamp counter
//! costs a third as much to read, and is precise enough for microseconds.

use std::arch::x86_64::_rdtsc;

/// Time after which the rate of the time stamp counter is known well enough.
const RATE_KNOWN_AFTER_NS: u64 = 1_000_000;

/// Returns the time in nanoseconds of the clock that the kernel program uses too.
pub(crate) fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in `now`; needs no system call, and cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the value of the time stamp counter.
#[inline]
pub(crate) fn tsc() -> u64 {
    // SAFETY: only reads a counter.
    unsafe { _rdtsc() }
}

/// Moment on CLOCK_MONOTONIC and on the time stamp counter. Two moments give the counter's rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    at_ns: u64,
    at_tsc: u64,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self { at_ns: now_ns(), at_tsc: tsc() }
    }

    /// Returns the number of counts in `span_ns`; `None` if `now` is too soon after `self` to know the rate.
    pub(crate) fn tsc_counts(self, span_ns: u64, now: Self) -> Option<u64> {
        let elapsed_ns = now.at_ns.saturating_sub(self.at_ns);
        if elapsed_ns < RATE_KNOWN_AFTER_NS {
            return None;
        }
        let elapsed = u128::from(now.at_tsc.saturating_sub(self.at_tsc));
        u64::try_from(u128::from(span_ns) * elapsed / u128::from(elapsed_ns)).ok()
    }

    pub(crate) fn ns(self) -> u64 {
        self.at_ns
    }

    pub(crate) fn tsc(self) -> u64 {
        self.at_tsc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_the_measured_rate() {
        let began = Moment { at_ns: 1_000, at_tsc: 10_000 };
        let later = Moment { at_ns: 2_001_000, at_tsc: 6_010_000 };
        assert_eq!(began.tsc_counts(20_000, later), Some(60_000));
        assert_eq!(began.tsc_counts(20_000, began), None);
    }
}
