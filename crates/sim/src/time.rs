//! Time and work, both as integers, so that rounding is the same on all machines.
//!
//! Time is in nanoseconds. Work is what a lane of speed 1 does in a time. It is counted in units of
//! 2⁻²⁰ ns, and speed in such units per nanosecond. So progress is one multiplication, and no work
//! is lost however often the speed changes during a request.

/// Nanoseconds since the start of the simulation.
pub type Nanos = sidelane_policy::Nanos;

/// Time of an event that never happens.
pub const NEVER: Nanos = Nanos::MAX;

/// A microsecond, in nanoseconds.
pub const US: Nanos = 1_000;
/// A millisecond, in nanoseconds.
pub const MS: Nanos = 1_000_000;
/// A second, in nanoseconds.
pub const S: Nanos = 1_000_000_000;

const WORK_BITS: u32 = 20;

/// Speed of a lane: its work per nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed(u32);

impl Speed {
    /// Speed of a lane of a reference core while the other lanes of the core are idle.
    pub const ONE: Self = Self(1 << WORK_BITS);
    /// Speed of a lane that does no work.
    pub const ZERO: Self = Self(0);

    /// Returns a multiple of the reference speed, rounded to 2⁻²⁰.
    pub fn from_factor(factor: f64) -> Self {
        Self((factor * f64::from(Self::ONE.0)) as u32)
    }

    /// Returns the sum of two lanes' speeds, for a task that runs on both.
    pub fn plus(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// Returns the speed of a task on several lanes after one of them, with speed `other`, has left.
    pub fn minus(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

/// An amount of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Work(u64);

impl Work {
    /// Work that never ends.
    pub const ENDLESS: Self = Self(u64::MAX);

    /// Returns the work of a lane of speed 1 in `ns`, which may be a few hours at most.
    pub fn of_ns(ns: Nanos) -> Self {
        Self(ns.min(Nanos::MAX >> (WORK_BITS + 1)) << WORK_BITS)
    }

    /// Returns the work as nanoseconds at speed 1.
    pub fn ns(self) -> f64 {
        self.0 as f64 / f64::from(Speed::ONE.0)
    }

    /// Returns the work in its smallest units.
    pub fn units(self) -> u64 {
        self.0
    }

    /// Returns the sum of two amounts of work.
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the time that a lane of `speed` needs for the work, rounded up.
    #[inline]
    pub fn time_at(self, speed: Speed) -> Nanos {
        match (self, speed) {
            (Self::ENDLESS, _) | (_, Speed::ZERO) => NEVER,
            (_, Speed::ONE) => (self.0 + u64::from(Speed::ONE.0) - 1) >> WORK_BITS,
            _ => self.0.div_ceil(u64::from(speed.0)),
        }
    }

    /// Subtracts the work that a lane of `speed` does in `elapsed_ns`, and returns it in units of work.
    #[inline]
    pub fn subtract_work_done(&mut self, elapsed_ns: Nanos, speed: Speed) -> u128 {
        let done = u128::from(elapsed_ns) * u128::from(speed.0);
        if *self == Self::ENDLESS {
            return done;
        }
        let done = done.min(u128::from(self.0));
        self.0 -= done as u64;
        done
    }
}

/// Converts units of work to nanoseconds of a lane of speed 1.
pub fn units_to_ns(units: u128) -> f64 {
    units as f64 / f64::from(Speed::ONE.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_at_half_speed_takes_twice_as_long() {
        let half = Speed::from_factor(0.5);
        assert_eq!(Work::of_ns(100).time_at(Speed::ONE), 100);
        assert_eq!(Work::of_ns(100).time_at(half), 200);
        assert_eq!(Work::of_ns(7).time_at(Speed::ZERO), NEVER);
        assert_eq!(Work::ENDLESS.time_at(half), NEVER);
    }

    /// Work that is cut into pieces ends at exactly the same time.
    #[test]
    fn work_done_in_steps_takes_the_same_time() {
        let third = Speed::from_factor(1.0 / 3.0);
        let mut left = Work::of_ns(1_000);
        let whole_ns = left.time_at(third);
        let mut spent_ns = 0;
        for piece_ns in [1, 10, 400, 77] {
            left.subtract_work_done(piece_ns, third);
            spent_ns += piece_ns;
        }
        assert_eq!(spent_ns + left.time_at(third), whole_ns);
        let rest = u128::from(left.units());
        assert_eq!(left.subtract_work_done(left.time_at(third), third), rest);
        assert_eq!(left, Work::default());
    }
}
