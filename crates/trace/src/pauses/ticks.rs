//! Clock of a JVM. The JVM does not report the clock's zero. Bounds of the zero follow from events that happened
//! between two reads.

/// Conversion from ticks of a JVM's clock to `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ticks {
    ticks_per_s: u64,
    /// Lower and upper bound of the clock's zero, in nanoseconds.
    zero_ns: (i128, i128),
}

impl Ticks {
    /// Creates a clock of known frequency and unknown zero.
    pub fn new(ticks_per_s: u64) -> Self {
        Self { ticks_per_s: ticks_per_s.max(1), zero_ns: (i128::MIN, i128::MAX) }
    }

    /// Narrows the bounds of the clock's zero: the clock showed `ticks` at a time between `before_ns` and `after_ns`.
    pub fn add_bounds(&mut self, ticks: u64, (before_ns, after_ns): (u64, u64)) {
        let since_ns = self.ticks_to_ns(ticks);
        let (low, high) = (i128::from(before_ns) - since_ns, i128::from(after_ns) - since_ns);
        let narrow = (self.zero_ns.0.max(low), self.zero_ns.1.min(high));
        // Both clocks drift apart a little, so the latest bounds are right if they contradict earlier ones.
        self.zero_ns = if narrow.0 <= narrow.1 { narrow } else { (low, high) };
    }

    /// Returns `ticks` as a time of `CLOCK_MONOTONIC`; `None` before the first bound.
    pub fn monotonic_ns(&self, ticks: u64) -> Option<u64> {
        let (low, high) = self.zero_ns;
        let zero_ns = if low == i128::MIN { return None } else { low + (high - low) / 2 };
        u64::try_from(zero_ns + self.ticks_to_ns(ticks)).ok()
    }

    fn ticks_to_ns(&self, ticks: u64) -> i128 {
        i128::from(ticks) * 1_000_000_000 / i128::from(self.ticks_per_s)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn time_of_a_tick_is_unknown_before_the_first_bounds() {
        assert_eq!(Ticks::new(1_000_000_000).monotonic_ns(5), None);
    }

    #[test]
    fn change_of_the_jvm_clock_is_followed() {
        let mut ticks = Ticks::new(1_000_000_000);
        ticks.add_bounds(1_000, (10_000, 10_100));
        ticks.add_bounds(2_000, (50_000, 50_100));
        assert_eq!(ticks.monotonic_ns(2_000), Some(50_050));
    }

    proptest! {
        /// Each observation narrows the bounds, which always contain the true zero.
        #[test]
        fn observations_narrow_the_bounds_of_the_clock_zero(
            zero_ns in 0..1_u64 << 40,
            looks in prop::collection::vec((1..1_000_000_000_u64, 0..1_000_000_u64, 0..1_000_000_u64), 1..20),
        ) {
            let mut ticks = Ticks::new(1_000_000_000);
            let mut width = u64::MAX;
            for (at, before, after) in looks {
                let at_ns = zero_ns + at;
                ticks.add_bounds(at, (at_ns.saturating_sub(before), at_ns + after));
                width = width.min(before + after);
                let told = ticks.monotonic_ns(at).unwrap();
                prop_assert!(told.abs_diff(at_ns) <= width / 2 + 1, "{told} for {at_ns}, {width}");
            }
        }
    }
}
