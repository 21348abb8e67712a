//! What a service owes its clients: `p99=100ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sidelane_host::units::parse_time;

/// A service level objective: a percentile of latencies, and what it may be at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Of a hundred requests, so many have to be in time.
    pub percentile: f64,
    /// What they may take, from arrival to finish.
    pub limit: Duration,
}

impl FromStr for Objective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "an objective is a percentile and a time with its unit, as in p99=100ms or p99.9=5ms";
        let (percentile, limit) = text.split_once('=').ok_or_else(|| format!("no '=' in '{text}': {example}"))?;
        let number = percentile.strip_prefix('p').and_then(|number| number.parse::<f64>().ok());
        let percentile = number
            .filter(|number| (1.0..100.0).contains(number))
            .ok_or_else(|| format!("'{percentile}' is not a percentile from p1 to p99.999: {example}"))?;
        let limit = parse_time(limit).map_err(|error| error.to_string())?;
        if limit.is_zero() {
            return Err(format!("no request takes no time at all: {example}"));
        }
        Ok(Self { percentile, limit })
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}={:?}", self.percentile, self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_read_and_written() {
        for (text, percentile, limit_us) in [("p99=100ms", 99.0, 100_000), ("p99.9=250us", 99.9, 250)] {
            let objective: Objective = text.parse().unwrap();
            assert_eq!((objective.percentile, objective.limit), (percentile, Duration::from_micros(limit_us)));
        }
        assert_eq!("p99.9=5ms".parse::<Objective>().unwrap().to_string(), "p99.9=5ms");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, wanted) in [
            ("100ms", "no '='"),
            ("99=100ms", "not a percentile"),
            ("p100=1s", "not a percentile"),
            ("p99=100", "unit"),
            ("p99=0s", "no request takes no time"),
        ] {
            let error = text.parse::<Objective>().unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
