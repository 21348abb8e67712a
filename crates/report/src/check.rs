//! A check: one measured number and the bound that it should be within.
//!
//! A number that was measured in several rounds has a confidence interval, and the verdict is about that interval. If
//! the whole interval is within the bound, the check holds. If the whole interval is outside, the check is missed. If
//! the interval contains the bound, the check is undecided. So noise on the machine makes checks undecided; it does
//! not make them hold or miss.

use serde::{Deserialize, Serialize};

use crate::interval::{Interval, Method};
use crate::unit::Unit;

/// Verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The number is within the bound.
    Holds,
    /// The number is outside the bound, or it was not measured although it could have been.
    Missed,
    /// The interval contains the bound: another run might hold or miss.
    Undecided,
}

impl Verdict {
    /// Returns the verdict in words, for users.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Missed => "does not hold",
            Verdict::Undecided => "undecided",
        }
    }
}

/// A check: a number, its bound, and the verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredCheck")]
pub struct Check {
    /// Name of the check, in words.
    pub name: String,
    /// Measured number; `None` if it could not be measured.
    pub measured: Option<f64>,
    /// Lower end of the 95 % confidence interval; `None` if there were too few rounds.
    pub low: Option<f64>,
    /// Upper end of the 95 % confidence interval; `None` if there were too few rounds.
    pub high: Option<f64>,
    /// Method by which `low` and `high` were computed.
    pub method: Method,
    /// Bound in the unit of the number, such as "≤ 5000".
    pub wanted: String,
    /// Verdict of the check.
    pub verdict: Verdict,
    /// Whether the check holds.
    pub ok: bool,
    /// Unit of all numbers in the check.
    pub unit: Unit,
    /// Advice on what would decide the check, if it is undecided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
}

/// A check as result files store it; older versions stored only `ok`.
#[derive(Deserialize)]
struct StoredCheck {
    name: String,
    measured: Option<f64>,
    wanted: String,
    ok: bool,
    low: Option<f64>,
    high: Option<f64>,
    #[serde(default)]
    method: Method,
    verdict: Option<Verdict>,
    #[serde(default)]
    unit: Unit,
    decided_by: Option<String>,
}

impl From<StoredCheck> for Check {
    fn from(stored: StoredCheck) -> Check {
        let StoredCheck { name, measured, wanted, ok, low, high, method, verdict, unit, decided_by } = stored;
        let verdict = verdict.unwrap_or(if ok { Verdict::Holds } else { Verdict::Missed });
        Check { name, measured, low, high, method, wanted, verdict, ok, unit, decided_by }
    }
}

/// Kind of a bound: an upper or a lower limit.
#[derive(Clone, Copy)]
enum Bound {
    AtMost,
    AtLeast,
}

const AT_MOST: &str = "≤";
const AT_LEAST: &str = "≥";

impl Check {
    /// Returns a check of an exact number: it holds if the number exists and is at most `limit`. It is never
    /// undecided.
    pub fn at_most(name: impl Into<String>, measured: impl Into<Option<f64>>, limit: f64, unit: Unit) -> Check {
        Check::exact(name.into(), measured.into(), Bound::AtMost, limit, unit)
    }

    /// Returns a check of an exact number: it holds if the number exists and is at least `limit`. It is never
    /// undecided.
    pub fn at_least(name: impl Into<String>, measured: impl Into<Option<f64>>, limit: f64, unit: Unit) -> Check {
        Check::exact(name.into(), measured.into(), Bound::AtLeast, limit, unit)
    }

    /// Returns a check of a number with an interval: it holds if the whole interval is at most `limit`. Without any
    /// round it is undecided.
    pub fn interval_at_most(
        name: impl Into<String>,
        interval: impl Into<Option<Interval>>,
        limit: f64,
        unit: Unit,
    ) -> Check {
        Check::from_interval(name.into(), interval.into(), Bound::AtMost, limit, unit)
    }

    /// Returns a check of a number with an interval: it holds if the whole interval is at least `limit`. Without any
    /// round it is undecided.
    pub fn interval_at_least(
        name: impl Into<String>,
        interval: impl Into<Option<Interval>>,
        limit: f64,
        unit: Unit,
    ) -> Check {
        Check::from_interval(name.into(), interval.into(), Bound::AtLeast, limit, unit)
    }

    /// Makes the check undecided whatever was measured, because the machine, not the checked property, determines the
    /// number. `decided_by` says what would decide it.
    pub fn into_undecided(self, decided_by: impl Into<String>) -> Check {
        Check { verdict: Verdict::Undecided, ok: false, decided_by: Some(decided_by.into()), ..self }
    }

    /// Returns the check with another name.
    pub fn named(self, name: impl Into<String>) -> Check {
        Check { name: name.into(), ..self }
    }

    /// Returns a check of an exact number. A number that could have been measured and was not is missed: more rounds
    /// would not measure it.
    fn exact(name: String, measured: Option<f64>, bound: Bound, limit: f64, unit: Unit) -> Check {
        let exact = measured.filter(|measured| measured.is_finite()).map(Interval::exact);
        let check = Check::from_interval(name, exact, bound, limit, unit);
        match check.verdict {
            Verdict::Undecided => Check { verdict: Verdict::Missed, method: Method::Exact, ..check },
            _ => check,
        }
    }

    fn from_interval(name: String, interval: Option<Interval>, bound: Bound, limit: f64, unit: Unit) -> Check {
        // A number that is not finite is not a measurement, and JSON cannot store it.
        let interval = interval.filter(|interval| interval.measured.is_finite());
        let end = |end: fn(&Interval) -> Option<f64>| interval.as_ref().and_then(end).filter(|end| end.is_finite());
        let (low, high) = (end(|interval| interval.low), end(|interval| interval.high));
        let verdict = match bound {
            Bound::AtMost => verdict(high.map(|high| high <= limit), low.map(|low| low > limit)),
            Bound::AtLeast => verdict(low.map(|low| low >= limit), high.map(|high| high < limit)),
        };
        let sign = match bound {
            Bound::AtMost => AT_MOST,
            Bound::AtLeast => AT_LEAST,
        };
        Check {
            name,
            measured: interval.map(|interval| interval.measured),
            low,
            high,
            method: interval.map_or(Method::default(), |interval| interval.method),
            wanted: format!("{sign} {limit}"),
            verdict,
            ok: verdict == Verdict::Holds,
            unit,
            decided_by: None,
        }
    }

    /// Returns whether more rounds might change the verdict.
    pub fn is_undecided(&self) -> bool {
        self.verdict == Verdict::Undecided
    }

    /// Returns the measurement for users, such as "4.4 µs", or "not measured".
    pub fn measured_text(&self) -> String {
        self.measured.map_or_else(|| "not measured".to_owned(), |measured| self.unit.human(measured))
    }

    /// Returns the interval for users, such as "4.1 µs to 4.9 µs"; `None` for an exact number.
    pub fn interval_text(&self) -> Option<String> {
        if self.method == Method::Exact || self.measured.is_none() {
            return None;
        }
        let human = |end: f64| self.unit.human(end);
        Some(match (self.low, self.high) {
            (Some(low), Some(high)) => format!("{} to {}", human(low), human(high)),
            (Some(low), None) => format!("{} or more", human(low)),
            (None, Some(high)) => format!("{} or less", human(high)),
            (None, None) => "too few rounds".to_owned(),
        })
    }

    /// Returns the bound for users, such as "≤ 5.0 µs". A bound that is not a sign and a number stays as it is.
    pub fn bound_text(&self) -> String {
        let bound = self.wanted.split_once(' ').and_then(|(sign, limit)| {
            let limit: f64 = limit.parse().ok()?;
            [AT_MOST, AT_LEAST].contains(&sign).then(|| format!("{sign} {}", self.unit.human(limit)))
        });
        bound.unwrap_or_else(|| self.wanted.clone())
    }
}

fn verdict(all_within: Option<bool>, none_within: Option<bool>) -> Verdict {
    match (all_within, none_within) {
        (Some(true), _) => Verdict::Holds,
        (_, Some(true)) => Verdict::Missed,
        _ => Verdict::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(low: Option<f64>, measured: f64, high: Option<f64>) -> Interval {
        Interval { measured, low, high, method: Method::OrderStatistics }
    }

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
            assert_eq!((check.ok, check.verdict), (false, Verdict::Missed));
            assert_eq!(check.measured, None);
            assert_eq!(check.measured_text(), "not measured");
        }
        let check = Check::interval_at_most("off", None, 5_000.0, Unit::Ns);
        assert_eq!((check.ok, check.verdict), (false, Verdict::Undecided));
    }

    #[test]
    fn an_interval_that_contains_the_bound_decides_nothing() {
        let most = |low, high| Check::interval_at_most("p99", interval(low, 1.0, high), 1.05, Unit::Ratio).verdict;
        assert_eq!(most(Some(0.9), Some(1.05)), Verdict::Holds);
        assert_eq!(most(Some(0.9), Some(1.06)), Verdict::Undecided);
        assert_eq!(most(Some(1.05), Some(1.06)), Verdict::Undecided, "the limit itself is allowed");
        assert_eq!(most(Some(1.06), Some(1.2)), Verdict::Missed);
        assert_eq!(most(None, None), Verdict::Undecided);
        assert_eq!(most(Some(1.06), None), Verdict::Missed);
        let least = |low, high| Check::interval_at_least("share", interval(low, 90.0, high), 90.0, Unit::Ratio).verdict;
        assert_eq!(least(Some(90.0), None), Verdict::Holds);
        assert_eq!(least(Some(89.0), Some(90.0)), Verdict::Undecided);
        assert_eq!(least(Some(80.0), Some(89.9)), Verdict::Missed);
    }

    #[test]
    fn ok_is_true_only_if_the_check_holds() {
        let wide = interval(Some(0.9), 1.0, Some(1.2));
        let check = Check::interval_at_most("p99", wide, 1.05, Unit::Ratio);
        assert!(!check.ok && check.is_undecided());
        assert_eq!(check.interval_text().unwrap(), "0.90× to 1.20×");
        let fine = Check::at_most("p99", 1.0, 1.05, Unit::Ratio);
        assert_eq!(fine.interval_text(), None, "an exact number has none");
        assert!(fine.into_undecided("a quieter machine").is_undecided());
    }

    #[test]
    fn number_and_bound_are_shown_in_readable_units() {
        let check = Check::at_most("off", 4_400.0, 5_000.0, Unit::Ns);
        assert_eq!(check.wanted, "≤ 5000");
        assert_eq!(check.measured_text(), "4.4 µs");
        assert_eq!(check.bound_text(), "≤ 5.0 µs");
        let free = Check { wanted: "no task left paused".into(), ..check };
        assert_eq!(free.bound_text(), "no task left paused");
    }

    #[test]
    fn all_fields_of_a_check_are_stored() {
        let check = Check::interval_at_least("share", interval(Some(79.5), 91.5, None), 80.0, Unit::Percent);
        let json = serde_json::to_string(&check).unwrap();
        let expected = r#"{"name":"share","measured":91.5,"low":79.5,"high":null,"method":"median, by order statistics","wanted":"≥ 80","verdict":"undecided","ok":false,"unit":"percent"}"#;
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_str::<Check>(&json).unwrap(), check);
    }

    #[test]
    fn check_that_an_older_version_stored_is_read() {
        for (ok, verdict) in [(true, Verdict::Holds), (false, Verdict::Missed)] {
            let bare = format!(r#"{{"name":"kept","measured":3,"wanted":"≤ 4","ok":{ok}}}"#);
            let read = serde_json::from_str::<Check>(&bare).unwrap();
            assert_eq!((read.verdict, read.unit, read.method), (verdict, Unit::Count, Method::Exact));
            assert_eq!((read.low, read.decided_by), (None, None));
        }
    }
}
