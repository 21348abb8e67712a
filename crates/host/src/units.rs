//! Quantities on the command line: always a number with its unit.

use std::time::Duration;

use thiserror::Error;

/// Error of a text that is not a time with a unit.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{text}` is not a time; write a number and its unit, one of ns, us, ms, s, m, h, as in 8us or 1.5s")]
pub struct TimeError {
    text: String,
}

/// Parses a time such as `8us`, `1.5s` or `10m`.
pub fn parse_time(text: &str) -> Result<Duration, TimeError> {
    let error = || TimeError { text: text.to_owned() };
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
    let (number, unit) = text.split_at(digits);
    let unit_ns = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3_600e9,
        _ => return Err(error()),
    };
    let number: f64 = number.parse().map_err(|_| error())?;
    let time_ns = number * unit_ns;
    if time_ns < u64::MAX as f64 { Ok(Duration::from_nanos(time_ns.round() as u64)) } else { Err(error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_a_unit() {
        assert_eq!(parse_time("8us"), Ok(Duration::from_micros(8)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("0ms"), Ok(Duration::ZERO));
        assert_eq!(parse_time("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(parse_time("1.5h"), Ok(Duration::from_secs(5400)));
        for wrong in ["", "8", "us", "8 us", "8d", "-1s", "1..5s", "1e3s", "99999999999999s"] {
            let error = parse_time(wrong).unwrap_err().to_string();
            assert!(error.contains("8us"), "{error}");
        }
    }
}
