//! Latency objective of a service in the notation of the user, for example `p99=100ms`.

use std::time::Duration;

use sidelane_host::units::parse_time;
use sidelane_policy::borrow::Objective;

/// Parses an objective such as `p99=100ms`.
///
/// # Errors
/// An error names the part of the text that is wrong, and shows an example.
pub fn parse_objective(text: &str) -> Result<Objective, String> {
    let example = "write a percentile and a time with its unit, as in p99=100ms or p99.9=5ms";
    let (percentile, limit) = text.split_once('=').ok_or_else(|| format!("'{text}' has no '='; {example}"))?;
    let number = percentile.strip_prefix('p').and_then(|number| number.parse::<f64>().ok());
    let percentile = number
        .filter(|number| (1.0..100.0).contains(number))
        .ok_or_else(|| format!("'{percentile}' is not a percentile from p1 to p99.999; {example}"))?;
    let limit = parse_time(limit).map_err(|error| error.to_string())?;
    if limit.is_zero() {
        return Err(format!("an objective of 0 cannot be kept; {example}"));
    }
    Ok(Objective { percentile, limit_ns: limit.as_nanos() as u64 })
}

/// Formats an objective in the notation that [`parse_objective`] reads.
pub fn format_objective(objective: Objective) -> String {
    format!("p{}={:?}", objective.percentile, Duration::from_nanos(objective.limit_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_read_and_written() {
        for (text, percentile, limit_us) in [("p99=100ms", 99.0, 100_000), ("p99.9=250us", 99.9, 250)] {
            let objective = parse_objective(text).unwrap();
            assert_eq!((objective.percentile, objective.limit_ns), (percentile, limit_us * 1_000));
        }
        assert_eq!(format_objective(parse_objective("p99.9=5ms").unwrap()), "p99.9=5ms");
    }

    #[test]
    fn invalid_objectives_are_refused_with_the_reason() {
        for (text, wanted) in [
            ("100ms", "has no '='"),
            ("99=100ms", "not a percentile"),
            ("p100=1s", "not a percentile"),
            ("p99=100", "unit"),
            ("p99=0s", "an objective of 0 cannot be kept"),
        ] {
            let error = parse_objective(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
