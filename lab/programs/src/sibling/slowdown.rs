//! The slowdown of the lanes of a core, as `--slowdown` states it.
//!
//! The numbers mean the same as `[slowdown]` in scenario files: with `service:batch=1.67` a service takes 1.67 times as
//! long beside batch. It then loses 1 − 1 ÷ 1.67 = 40 % of the time in which both work.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

/// Number of lanes: index 0 is the request lane, index 1 the batch lane.
pub const LANES: usize = 2;
/// Number of loads that a lane may put on its sibling: work (index 0) and nap (index 1).
pub const LOADS: usize = 2;

/// Largest slowdown. Above it a steal emulator would take nearly all of a lane, and the kernel's real-time throttling
/// would stop it.
pub const MOST: f64 = 10.0;
/// Pairs of victim and aggressor, with their indices in the matrix: lane and load.
const PAIRS: [(&str, usize, usize); 4] =
    [("service:batch", 0, 0), ("service:nap", 0, 1), ("batch:service", 1, 0), ("batch:nap", 1, 1)];

/// Factors by which the time of each lane grows, by lane and by the other lane's load. The default is 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowdown([[f64; LOADS]; LANES]);

impl Slowdown {
    /// Returns a slowdown of `lane` alone, beside work on its sibling.
    pub fn for_single_lane(lane: usize, factor: f64) -> Self {
        let mut slowdown = Self([[1.0; LOADS]; LANES]);
        slowdown.0[lane][0] = factor;
        slowdown
    }

    /// Returns the share of the overlap that is lost, in millionths.
    pub fn lost_share_ppm(&self, lane: usize, load: usize) -> u64 {
        ((1.0 - 1.0 / self.0[lane][load]) * 1e6).round() as u64
    }
}

impl FromStr for Slowdown {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut slowdown = Self([[1.0; LOADS]; LANES]);
        for part in text.split(',') {
            let (pair, times) = part.split_once('=').with_context(|| {
                format!("`{part}` is not a slowdown; write VICTIM:AGGRESSOR=TIMES, as in {self_}", self_ = PAIRS[0].0)
            })?;
            let Some((_, lane, load)) = PAIRS.into_iter().find(|(name, ..)| *name == pair) else {
                bail!(
                    "`{pair}` is not a pair of victim and aggressor; the pairs are {}",
                    PAIRS.map(|(name, ..)| name).join(", ")
                );
            };
            let times: f64 = times.parse().with_context(|| format!("`{times}` is not a number"))?;
            ensure!((1.0..=MOST).contains(&times), "a slowdown lies between 1 and {MOST}; {pair} has {times}");
            slowdown.0[lane][load] = times;
        }
        Ok(slowdown)
    }
}

impl fmt::Display for Slowdown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = PAIRS.iter().filter(|(_, lane, load)| self.0[*lane][*load] != 1.0);
        let words: Vec<String> = given.map(|(name, lane, load)| format!("{name}={}", self.0[*lane][*load])).collect();
        out.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdown_factor_converts_to_lost_share() {
        let slowdown: Slowdown = "service:batch=1.6,batch:service=1.25,service:nap=1".parse().unwrap();
        assert_eq!([0, 1].map(|lane| slowdown.lost_share_ppm(lane, 0)), [375_000, 200_000]);
        assert_eq!(slowdown.lost_share_ppm(0, 1), 0);
        assert_eq!(slowdown.to_string(), "service:batch=1.6,batch:service=1.25");
    }

    #[test]
    fn invalid_slowdowns_are_refused() {
        for (text, why) in [
            ("service:batch", "VICTIM:AGGRESSOR=TIMES"),
            ("batch:batch=2", "service:batch, service:nap"),
            ("service:batch=fast", "not a number"),
            ("service:batch=0.9", "between 1 and 10"),
            ("service:batch=inf", "between 1 and 10"),
        ] {
            let said = format!("{:#}", text.parse::<Slowdown>().unwrap_err());
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
