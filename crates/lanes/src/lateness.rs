//! Summonses that come late, as on a slow host.
//!
//! A test that holds only where keepers are quick is no test of what they do. So a debug build lets each
//! summons come 50 µs to 2 ms late where `SIDELANE_DELAY_SUMMONS` names a seed; meanwhile the keeper is
//! off its lane. In a release build there is none of this, and nothing to switch it on with.

/// How late the summonses of one keeper come.
pub(super) struct Lateness {
    #[cfg(debug_assertions)]
    random: Option<std::sync::atomic::AtomicU64>,
}

#[cfg(not(debug_assertions))]
impl Lateness {
    pub(super) fn of_environment() -> Self {
        Self {}
    }

    #[inline]
    pub(super) fn delay(&self) {}
}

#[cfg(debug_assertions)]
impl Lateness {
    /// As the environment says; none if it says nothing.
    ///
    /// # Panics
    /// When the seed is not a number: whoever sets it wants delays.
    pub(super) fn of_environment() -> Self {
        let seed = std::env::var(VARIABLE).ok();
        let seed = seed.map(|seed| seed.parse().unwrap_or_else(|_| panic!("{VARIABLE}={seed} is not a number")));
        Self { random: seed.map(std::sync::atomic::AtomicU64::new) }
    }

    /// The summons has come; now it comes late.
    pub(super) fn delay(&self) {
        if let Some(random) = &self.random {
            std::thread::sleep(next(random));
        }
    }
}

#[cfg(debug_assertions)]
const VARIABLE: &str = "SIDELANE_DELAY_SUMMONS";

/// A time between [`LATE_MIN_US`] and [`LATE_MAX_US`], by SplitMix64.
#[cfg(debug_assertions)]
fn next(random: &std::sync::atomic::AtomicU64) -> std::time::Duration {
    const LATE_MIN_US: u64 = 50;
    const LATE_MAX_US: u64 = 2_000;
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut bits = random.fetch_add(STEP, std::sync::atomic::Ordering::Relaxed).wrapping_add(STEP);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    std::time::Duration::from_micros(LATE_MIN_US + bits % (LATE_MAX_US - LATE_MIN_US + 1))
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::AtomicU64;

    use super::next;

    #[test]
    fn delays_are_random_within_their_bounds_and_the_same_for_a_seed() {
        let delays = |seed| -> Vec<u128> {
            let random = AtomicU64::new(seed);
            (0..1000).map(|_| next(&random).as_micros()).collect()
        };
        assert_eq!(delays(1), delays(1));
        assert_ne!(delays(1), delays(2));
        assert!(delays(1).iter().all(|us| (50..=2_000).contains(us)));
        assert!(delays(1).into_iter().collect::<BTreeSet<_>>().len() > 500);
    }
}
