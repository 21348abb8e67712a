//! Units: the last word of every key, and the format of its numbers for users.
//!
//! Programs that know nothing of Sidelane read a results file, so a key contains its unit (`p99_us`). Users read a
//! cell, so a cell contains a unit too. The cell has the unit that makes the number short: `812 µs`, but `3.1 ms`.

use serde::{Deserialize, Serialize};

/// Unit of a number, named as the suffix that keys end in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds, suffix `_ns`.
    Ns,
    /// Microseconds, suffix `_us`.
    Us,
    /// Milliseconds, suffix `_ms`.
    Ms,
    /// Seconds, suffix `_s`.
    S,
    /// Hundredths of the quantity that the key names.
    Percent,
    /// Quotient of two measurements of the same run.
    Ratio,
    /// Quotient of a measurement and the same measurement of the service alone on the machine.
    OverAlone,
    /// Count of things, suffix `_count`.
    #[default]
    Count,
    /// Count per second, suffix `_per_s`.
    PerS,
    /// Cycles of the processor.
    Cycles,
    /// Joules of energy, suffix `_joules`.
    Joules,
}

/// Suffixes of keys with their units. `_per_s` is before `_s`, because it also ends in `_s`.
const SUFFIXES: [(&str, Unit); 11] = [
    ("_per_s", Unit::PerS),
    ("_over_alone", Unit::OverAlone),
    ("_percent", Unit::Percent),
    ("_cycles", Unit::Cycles),
    ("_joules", Unit::Joules),
    ("_ratio", Unit::Ratio),
    ("_count", Unit::Count),
    ("_ns", Unit::Ns),
    ("_us", Unit::Us),
    ("_ms", Unit::Ms),
    ("_s", Unit::S),
];

/// Text of a cell without a measurement.
pub const MISSING: &str = "—";

impl Unit {
    /// Returns the unit that `key` ends in, if it ends in one.
    pub fn from_key(key: &str) -> Option<Unit> {
        split_key(key).map(|(_, unit)| unit)
    }

    /// Writes `value` for users, with its unit.
    ///
    /// Times are given in the unit in which they have one to three digits before the decimal point.
    pub fn human(self, value: f64) -> String {
        match self {
            Unit::Ns => human_time(value),
            Unit::Us => human_time(value * 1e3),
            Unit::Ms => human_time(value * 1e6),
            Unit::S => human_time(value * 1e9),
            Unit::Percent => format!("{} %", format_short(value)),
            Unit::Ratio | Unit::OverAlone => format!("{value:.2}×"),
            Unit::Count => format_count(value),
            Unit::PerS => format!("{} /s", format_count(value)),
            Unit::Cycles => human_cycles(value),
            Unit::Joules => format!("{} J", format_short(value)),
        }
    }

    /// Writes `value` as [`human`](Unit::human) does, or a dash if it is missing.
    pub fn human_or_missing(self, value: Option<f64>) -> String {
        value.map_or_else(|| MISSING.to_owned(), |value| self.human(value))
    }
}

/// Returns the words of a key without its unit: `reaction_off_p50_ns` is "reaction off p50".
///
/// `over_alone` names the two things compared, so it stays part of the title.
pub fn title_of_key(key: &str) -> String {
    let words = match split_key(key) {
        None | Some((_, Unit::OverAlone)) => key,
        Some((words, _)) => words,
    };
    words.split('_').map(readable_percentile).collect::<Vec<_>>().join(" ")
}

/// Writes `p999` as p99.9: keys cannot contain a point.
fn readable_percentile(word: &str) -> String {
    match word.strip_prefix("p99") {
        Some(nines) if !nines.is_empty() && nines.bytes().all(|b| b.is_ascii_digit()) => {
            format!("p99.{nines}")
        }
        _ => word.to_owned(),
    }
}

fn split_key(key: &str) -> Option<(&str, Unit)> {
    SUFFIXES.iter().find_map(|&(suffix, unit)| {
        let words = key.strip_suffix(suffix)?;
        (!words.is_empty()).then_some((words, unit))
    })
}

/// Writes a number of cycles; large numbers in millions, since a clock has thousands of cycles per microsecond.
fn human_cycles(cycles: f64) -> String {
    const MILLION: f64 = 1e6;
    if cycles.abs() < MILLION {
        return format!("{} cycles", format_count(cycles));
    }
    format!("{} M cycles", format_short_count(cycles / MILLION))
}

/// Writes a number as [`format_short`] does below 1000, else with separators of thousands.
fn format_short_count(value: f64) -> String {
    if value.abs() < 999.5 { format_short(value) } else { format_count(value) }
}

fn human_time(ns: f64) -> String {
    // 999.5 would be printed as 1000, so it is in the next unit.
    const STEPS: [(f64, &str); 3] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    let (scale, name) = STEPS.into_iter().find(|(scale, _)| ns.abs() >= 0.9995 * scale).unwrap_or((1.0, "ns"));
    let value = ns / scale;
    // Times of one to ten seconds are written with hundredths of a second.
    if name == "s" && value.abs() < 9.995 { format!("{value:.2} s") } else { format!("{} {name}", format_short(value)) }
}

/// Writes about three digits, the precision of these measurements.
///
/// A tiny number is never rounded to 0: no overlap and little overlap are different results.
fn format_short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.005 => "≈0".to_owned(),
        size if size < 0.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Writes whole numbers with separators of thousands, and other numbers shortened.
fn format_count(value: f64) -> String {
    if value.abs() < 100.0 && value.fract() != 0.0 {
        return format_short(value);
    }
    let digits = format!("{:.0}", value.abs());
    let sign = if value < 0.0 { "-" } else { "" };
    sign.to_owned() + &with_thousands(&digits)
}

fn with_thousands(digits: &str) -> String {
    let mut marked = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            marked.push(',');
        }
        marked.push(digit);
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_end_in_a_unit() {
        assert_eq!(Unit::from_key("p99_us"), Some(Unit::Us));
        assert_eq!(Unit::from_key("requests_per_s"), Some(Unit::PerS));
        assert_eq!(Unit::from_key("held_s"), Some(Unit::S));
        assert_eq!(Unit::from_key("p99_over_alone"), Some(Unit::OverAlone));
        assert_eq!(Unit::from_key("p99"), None);
        assert_eq!(Unit::from_key("_us"), None);
        assert_eq!(Unit::from_key("setting"), None);
    }

    #[test]
    fn titles_drop_the_unit_but_keep_over_alone() {
        assert_eq!(title_of_key("reaction_off_p50_ns"), "reaction off p50");
        assert_eq!(title_of_key("p99_over_alone"), "p99 over alone");
        assert_eq!(title_of_key("p9999_us"), "p99.99");
    }

    #[test]
    fn times_are_shown_in_a_suitable_unit() {
        let cells = [
            (Unit::Us, 812.0, "812 µs"),
            (Unit::Us, 3_100.0, "3.1 ms"),
            (Unit::Ns, 4_400.0, "4.4 µs"),
            (Unit::Ns, 45.0, "45.0 ns"),
            (Unit::Ns, 999_700.0, "1.0 ms"),
            (Unit::Us, 1_157_627.9, "1.16 s"),
            (Unit::Ms, 12_345.0, "12.3 s"),
            (Unit::Cycles, 227_584.0, "227,584 cycles"),
            (Unit::Cycles, 2_535_424.0, "2.5 M cycles"),
            (Unit::S, 0.0, "0 ns"),
        ];
        for (unit, value, cell) in cells {
            assert_eq!(unit.human(value), cell);
        }
    }

    #[test]
    fn small_values_are_not_shown_as_zero() {
        assert_eq!(Unit::Percent.human(0.0), "0 %");
        assert_eq!(Unit::Percent.human(0.03), "0.03 %");
        assert_eq!(Unit::Percent.human(0.0004), "≈0 %");
        assert_eq!(Unit::Percent.human(4.81), "4.8 %");
        assert_eq!(Unit::Percent.human(100.0), "100 %");
    }

    #[test]
    fn counts_have_separators_of_thousands() {
        assert_eq!(Unit::Count.human(7.0), "7");
        assert_eq!(Unit::Count.human(1_234_567.0), "1,234,567");
        assert_eq!(Unit::Count.human(-1_234.0), "-1,234");
        assert_eq!(Unit::PerS.human(652.4), "652 /s");
        assert_eq!(Unit::OverAlone.human(1.078), "1.08×");
    }

    #[test]
    fn a_missing_number_is_a_dash() {
        assert_eq!(Unit::Us.human_or_missing(None), "—");
    }
}
