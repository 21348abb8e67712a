//! The time between samples (SHIM thesis, section 3.4.2).
//!
//! Samples at a regular interval may coincide with regular events in the target, which biases them.
//! At the highest rate the machine itself is random enough (Figure 3.5). At a slower rate each
//! period is drawn at random around its target length.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use sidelane_host::tsc::{Clock, read_cycles};
use sidelane_host::units::parse_time;

/// Share of the target length by which a period is longer or shorter at most. Periods are evenly distributed in
/// between.
pub const JITTER: f64 = 0.25;
/// Shortest period during which the observer sleeps. It stays awake at the end of the period, because a wakeup is some
/// 60 µs late.
const SLEEP_FROM: Duration = Duration::from_micros(200);
const WAKES_LATE: Duration = Duration::from_micros(100);

/// Time between samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Period {
    /// Shortest possible time between samples.
    #[default]
    Max,
    /// Mean number of cycles between samples.
    Cycles(u64),
    /// Mean time between samples.
    Time(Duration),
}

/// Error for a text that is not a period.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{0}` is not a period; write max, a number of cycles as in 1200cycles, or a time as in 10us")]
pub struct PeriodError(String);

impl FromStr for Period {
    type Err = PeriodError;

    fn from_str(text: &str) -> Result<Self, PeriodError> {
        let error = || PeriodError(text.to_owned());
        let period = match text.strip_suffix("cycles") {
            _ if text == "max" => Period::Max,
            Some(number) => Period::Cycles(number.parse().map_err(|_| error())?),
            None => Period::Time(parse_time(text).map_err(|_| error())?),
        };
        let is_none = period == Period::Cycles(0) || period == Period::Time(Duration::ZERO);
        if is_none { Err(error()) } else { Ok(period) }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Period::Max => f.write_str("max"),
            Period::Cycles(cycles) => write!(f, "{cycles} cycles"),
            Period::Time(time) => write!(f, "{time:?}"),
        }
    }
}

impl Period {
    /// Returns the period in nanoseconds; `None` for the highest rate.
    pub fn ns(&self, clock: &Clock) -> Option<u64> {
        match self {
            Period::Max => None,
            Period::Cycles(cycles) => Some(clock.cycles_to_ns(*cycles) as u64),
            Period::Time(time) => Some(time.as_nanos() as u64),
        }
    }
}

/// Timer of the observer's samples.
#[derive(Debug)]
pub struct SampleTimer {
    /// Mean length of a period in cycles; `None` for the highest rate.
    target: Option<u64>,
    due: u64,
    random: fastrand::Rng,
    sleep_from: u64,
    wakes_late: u64,
    cycles_per_ns: f64,
}

impl SampleTimer {
    /// Returns a timer for `period`. `seed` starts the random numbers.
    pub fn new(period: Period, clock: &Clock, random_seed: u64) -> Self {
        let cycles_of = |time: Duration| clock.ns_to_cycles(time.as_nanos() as u64);
        Self {
            target: match period {
                Period::Max => None,
                Period::Cycles(cycles) => Some(cycles),
                Period::Time(time) => Some(cycles_of(time).max(1)),
            },
            due: read_cycles(),
            random: fastrand::Rng::with_seed(random_seed),
            sleep_from: cycles_of(SLEEP_FROM),
            wakes_late: cycles_of(WAKES_LATE),
            cycles_per_ns: clock.cycles_per_ns,
        }
    }

    /// Returns whether samples follow each other without a wait.
    pub fn has_no_wait(&self) -> bool {
        self.target.is_none()
    }

    /// Waits until the next sample is due. A late sample delays the following ones: samples never come faster to catch
    /// up.
    #[inline(always)]
    pub fn wait(&mut self) {
        let Some(target) = self.target else { return };
        let now = read_cycles();
        if self.due > now + self.sleep_from {
            self.sleep(self.due - now);
        }
        while read_cycles() < self.due {
            std::hint::black_box(());
        }
        let period = self.draw_period(target);
        self.due = self.due.max(now) + period;
    }

    #[cold]
    fn sleep(&self, cycles: u64) {
        let ns = (cycles - self.wakes_late) as f64 / self.cycles_per_ns;
        std::thread::sleep(Duration::from_nanos(ns as u64));
    }

    /// Returns a random length of a period, evenly distributed from target − jitter to target + jitter.
    #[inline(always)]
    fn draw_period(&mut self, mean_cycles: u64) -> u64 {
        let width = (mean_cycles as f64 * 2.0 * JITTER) as u64;
        mean_cycles - width / 2 + self.random.u64(..width.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_read_with_their_units() {
        assert_eq!("max".parse(), Ok(Period::Max));
        assert_eq!("1200cycles".parse(), Ok(Period::Cycles(1200)));
        assert_eq!("10us".parse(), Ok(Period::Time(Duration::from_micros(10))));
        for wrong in ["", "0cycles", "0us", "12", "-1cycles", "fast"] {
            assert!(wrong.parse::<Period>().unwrap_err().to_string().contains("1200cycles"));
        }
    }

    #[test]
    fn periods_are_spread_evenly_around_their_target() {
        let clock = Clock { cycles_per_ns: 2.0, zero_cycles: 0, zero_ns: 0 };
        let mut pace = SampleTimer::new(Period::Time(Duration::from_nanos(500)), &clock, 42);
        let drawn: Vec<u64> = (0..20_000).map(|_| pace.draw_period(1000)).collect();
        let mean = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
        assert!((mean - 1000.0).abs() < 5.0, "{mean}");
        assert!(drawn.iter().all(|period| (750..=1250).contains(period)));
        for quarter in 0..4 {
            let within = |period: &&u64| (750 + quarter * 125..875 + quarter * 125).contains(*period);
            let count = drawn.iter().filter(within).count();
            assert!((4_700..5_300).contains(&count), "{quarter}: {count}");
        }
    }
}
