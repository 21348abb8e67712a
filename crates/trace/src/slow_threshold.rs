//! Definition of a slow request.

use std::fmt;
use std::time::Duration;

use sidelane_host::units::parse_time;

use sidelane_policy::borrow::Objective;
use sidelane_requests::objective::{format_objective, parse_objective};

/// Definition of a slow request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SlowThreshold {
    /// Limit for the latency of every request.
    Limit(Duration),
    /// Limit for a percentile of the requests' latency. Requests above the limit are slow. If too many requests are
    /// slow, the objective is broken.
    Percentile(Objective),
    /// No limit was given: the p99 of the trace is the limit.
    P99,
}

impl SlowThreshold {
    /// Parses a threshold such as `10ms` or `p99=10ms`.
    ///
    /// # Errors
    /// The problem with the text, and how a threshold is written.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains('=') {
            return parse_objective(text).map(Self::Percentile);
        }
        let limit = parse_time(text).map_err(|error| format!("{error}; or name a percentile, as in p99=10ms"))?;
        if limit.is_zero() {
            return Err("an objective of 0 cannot be kept; write a time, as in 10ms or p99=10ms".to_owned());
        }
        Ok(Self::Limit(limit))
    }

    /// Returns the latency above which a request is slow, in nanoseconds; `None` if no limit was given.
    pub fn limit_ns(self) -> Option<u64> {
        match self {
            SlowThreshold::Limit(limit) => Some(limit.as_nanos() as u64),
            SlowThreshold::Percentile(objective) => Some(objective.limit_ns),
            SlowThreshold::P99 => None,
        }
    }

    /// Returns the name of the threshold for display beside its value.
    pub fn name(self) -> String {
        match self {
            SlowThreshold::Limit(_) => "objective".to_owned(),
            SlowThreshold::Percentile(objective) => format!("objective of p{}", objective.percentile),
            SlowThreshold::P99 => "p99 of this trace".to_owned(),
        }
    }
}

impl fmt::Display for SlowThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SlowThreshold::Limit(limit) => write!(f, "{limit:?}"),
            SlowThreshold::Percentile(objective) => f.write_str(&format_objective(*objective)),
            SlowThreshold::P99 => f.write_str("p99"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threshold_is_a_latency_or_a_limit_of_a_percentile() {
        for text in ["10ms", "p99=10ms", "p99.9=1.5s"] {
            assert_eq!(SlowThreshold::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(SlowThreshold::parse("10ms").unwrap().limit_ns(), Some(10_000_000));
        assert_eq!(SlowThreshold::parse("p99=10ms").unwrap().limit_ns(), Some(10_000_000));
    }

    #[test]
    fn invalid_thresholds_are_refused_with_the_reason() {
        for (text, wanted) in
            [("10", "p99=10ms"), ("0ms", "an objective of 0"), ("p99=", "unit"), ("99=1ms", "percentile")]
        {
            let error = SlowThreshold::parse(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
