//! Parsers for numbers on the command line. An invalid value, such as a rate of zero, is a usage error.

/// Parses a number above zero, such as a rate.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        Ok(_) => Err("must be above zero".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a number that is zero or more, such as a warm-up.
pub fn non_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        Ok(_) => Err("must be zero or more".into()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert!(positive("0").is_err());
        assert!(positive("inf").is_err());
        assert!(positive("ten").is_err());
        assert_eq!(positive("0.5"), Ok(0.5));
        assert_eq!(non_negative("0"), Ok(0.0));
        assert!(non_negative("-1").is_err());
    }
}
