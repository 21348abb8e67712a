//! A check: one measured number against what was wanted of it.

use serde::{Deserialize, Serialize};

use super::unit::Unit;

/// What was wanted of a number, what was measured, and whether that holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What is checked, in words.
    pub name: String,
    /// The number, or `None` where it could not be measured.
    pub measured: Option<f64>,
    /// The bound, in the same unit: "≤ 5000".
    pub wanted: String,
    /// Whether the measurement is there and within the bound.
    pub ok: bool,
    /// The unit of both.
    #[serde(default)]
    pub unit: Unit,
}

const AT_MOST: &str = "≤";
const AT_LEAST: &str = "≥";

impl Check {
    /// Holds if the measurement is there and not above `limit`.
    pub fn at_most(name: impl Into<String>, measured: impl Into<Option<f64>>, limit: f64, unit: Unit) -> Check {
        let measured = measured_number(measured);
        let ok = measured.is_some_and(|measured| measured <= limit);
        Check { name: name.into(), measured, wanted: format!("{AT_MOST} {limit}"), ok, unit }
    }

    /// Holds if the measurement is there and not below `limit`.
    pub fn at_least(name: impl Into<String>, measured: impl Into<Option<f64>>, limit: f64, unit: Unit) -> Check {
        let measured = measured_number(measured);
        let ok = measured.is_some_and(|measured| measured >= limit);
        Check { name: name.into(), measured, wanted: format!("{AT_LEAST} {limit}"), ok, unit }
    }

    /// The measurement for a person: "4.4 µs", or "not measured".
    pub fn measured_text(&self) -> String {
        self.measured.map_or_else(|| "not measured".to_owned(), |measured| self.unit.human(measured))
    }

    /// The bound for a person: "≤ 5.0 µs". A bound in other words stays as it is.
    pub fn wanted_text(&self) -> String {
        let bound = self.wanted.split_once(' ').and_then(|(sign, limit)| {
            let limit: f64 = limit.parse().ok()?;
            [AT_MOST, AT_LEAST].contains(&sign).then(|| format!("{sign} {}", self.unit.human(limit)))
        });
        bound.unwrap_or_else(|| self.wanted.clone())
    }
}

/// What is not finite is not a measurement, and JSON could not store it either.
fn measured_number(measured: impl Into<Option<f64>>) -> Option<f64> {
    measured.into().filter(|measured| measured.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_include_their_limit() {
        assert!(Check::at_most("off", 5_000.0, 5_000.0, Unit::Ns).ok);
        assert!(!Check::at_most("off", 5_001.0, 5_000.0, Unit::Ns).ok);
        assert!(Check::at_least("share", 80.0, 80.0, Unit::Percent).ok);
        assert!(!Check::at_least("share", 79.0, 80.0, Unit::Percent).ok);
    }

    #[test]
    fn a_missing_measurement_never_holds() {
        for measured in [None, Some(f64::NAN), Some(f64::NEG_INFINITY)] {
            let check = Check::at_most("off", measured, 5_000.0, Unit::Ns);
            assert!(!check.ok);
            assert_eq!(check.measured, None);
            assert_eq!(check.measured_text(), "not measured");
        }
    }

    #[test]
    fn people_read_both_sides_in_human_units() {
        let check = Check::at_most("off", 4_400.0, 5_000.0, Unit::Ns);
        assert_eq!(check.wanted, "≤ 5000");
        assert_eq!(check.measured_text(), "4.4 µs");
        assert_eq!(check.wanted_text(), "≤ 5.0 µs");
        let free = Check { wanted: "no task left paused".into(), ..check };
        assert_eq!(free.wanted_text(), "no task left paused");
    }

    #[test]
    fn the_unit_is_stored_and_may_be_absent() {
        let check = Check::at_least("share", 91.5, 80.0, Unit::Percent);
        let json = serde_json::to_string(&check).unwrap();
        let expected = r#"{"name":"share","measured":91.5,"wanted":"≥ 80","ok":true,"unit":"percent"}"#;
        assert_eq!(json, expected);
        let bare = r#"{"name":"kept","measured":3,"wanted":"≤ 4","ok":true}"#;
        assert_eq!(serde_json::from_str::<Check>(bare).unwrap().unit, Unit::Count);
    }
}
