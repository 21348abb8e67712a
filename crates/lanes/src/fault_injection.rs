//! Fault injection: summonses that arrive late, as on a slow host.
//!
//! A test that passes only with fast keepers hides their faults. So in a debug build each summons arrives 50 µs to 2 ms
//! late if `SIDELANE_DELAY_SUMMONS` is a seed. During this delay the keeper is off its lane. A release build has no
//! fault injection.

/// Random delay of the summonses of one keeper.
pub(super) struct SummonsDelay {
    #[cfg(debug_assertions)]
    random: Option<std::sync::atomic::AtomicU64>,
}

#[cfg(not(debug_assertions))]
impl SummonsDelay {
    pub(super) fn from_environment() -> Self {
        Self {}
    }

    #[inline]
    pub(super) fn sleep(&self) {}
}

#[cfg(debug_assertions)]
impl SummonsDelay {
    /// Returns the delay whose seed the environment has; no delay without a seed.
    ///
    /// # Panics
    /// When the seed is not a number.
    pub(super) fn from_environment() -> Self {
        let seed = std::env::var(VARIABLE).ok();
        let seed = seed.map(|seed| seed.parse().unwrap_or_else(|_| panic!("{VARIABLE}={seed} is not a number")));
        Self { random: seed.map(std::sync::atomic::AtomicU64::new) }
    }

    /// Delays a summons by a random time.
    pub(super) fn sleep(&self) {
        if let Some(random) = &self.random {
            std::thread::sleep(random_delay(random));
        }
    }
}

#[cfg(debug_assertions)]
const VARIABLE: &str = "SIDELANE_DELAY_SUMMONS";

/// Returns a random time between `LATE_MIN_US` and `LATE_MAX_US`.
#[cfg(debug_assertions)]
fn random_delay(rng_state: &std::sync::atomic::AtomicU64) -> std::time::Duration {
    const LATE_MIN_US: u64 = 50;
    const LATE_MAX_US: u64 = 2_000;
    let seed = rng_state.fetch_add(1 << 32, std::sync::atomic::Ordering::Relaxed);
    std::time::Duration::from_micros(fastrand::Rng::with_seed(seed).u64(LATE_MIN_US..=LATE_MAX_US))
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::AtomicU64;

    use super::random_delay;

    #[test]
    fn injected_delays_are_bounded_and_fixed_by_the_seed() {
        let delays = |seed| -> Vec<u128> {
            let random = AtomicU64::new(seed);
            (0..1000).map(|_| random_delay(&random).as_micros()).collect()
        };
        assert_eq!(delays(1), delays(1));
        assert_ne!(delays(1), delays(2));
        assert!(delays(1).iter().all(|us| (50..=2_000).contains(us)));
        assert!(delays(1).into_iter().collect::<BTreeSet<_>>().len() > 500);
    }
}
