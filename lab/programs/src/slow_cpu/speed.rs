//! The speed of a slow CPU: the share of its time in which programs make progress.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};

use crate::sibling::slowdown::{MOST, Slowdown};

/// Speed as a fraction of the CPU's full speed, 0.1 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed(f64);

impl Speed {
    /// Returns the slowdown of `lane` beside a lane that works all the time.
    pub fn slowdown(self, lane: usize) -> Slowdown {
        Slowdown::for_single_lane(lane, 1.0 / self.0)
    }

    /// Returns the speed as a fraction of the full speed.
    pub fn as_fraction(self) -> f64 {
        self.0
    }
}

impl FromStr for Speed {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let share: f64 = text.parse().with_context(|| format!("`{text}` is not a number; write a speed as in 0.4"))?;
        let least = 1.0 / MOST;
        ensure!(
            (least..=1.0).contains(&share),
            "a speed lies between {least} and 1, the speed that the CPU has; {text} does not"
        );
        Ok(Self(share))
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_share_is_one_minus_the_speed() {
        for (speed, lost_ppm) in [("0.4", 600_000), ("0.31", 690_000), ("0.1", 900_000), ("1", 0)] {
            let slowdown = speed.parse::<Speed>().unwrap().slowdown(1);
            assert_eq!(
                (slowdown.lost_share_ppm(1, 0), slowdown.lost_share_ppm(0, 0), slowdown.lost_share_ppm(1, 1)),
                (lost_ppm, 0, 0)
            );
        }
    }

    #[test]
    fn invalid_speeds_are_refused() {
        for (text, why) in [("slow", "not a number"), ("0", "between 0.1 and 1"), ("1.5", "between 0.1 and 1")] {
            let said = format!("{:#}", text.parse::<Speed>().unwrap_err());
            assert!(said.contains(why), "{text}: {said}");
        }
        assert!("nan".parse::<Speed>().is_err());
    }
}
