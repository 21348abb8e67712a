//! Row of a result: the numbers measured under one setting, flat, in insertion order.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use crate::unit::Unit;

/// A setting and its measurements.
///
/// In JSON a row is a flat object: `setting`, then keys that end in their unit, each with a number, or null if the
/// measurement is missing. Reading rejects any other value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct Row {
    setting: String,
    #[serde(flatten)]
    numbers: Map<String, Value>,
}

/// Reason why an object cannot be a row.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// The object has no key `setting`.
    #[error("a row has no name under the key `setting`; name a results file that sidelane wrote")]
    NoSetting,
    /// A value of the object is neither a number nor null.
    #[error("`{key}` of row `{setting}` is neither a number nor null; name a results file that sidelane wrote")]
    NotANumber {
        /// Name of the row's setting.
        setting: String,
        /// Key of the wrong value.
        key: String,
    },
}

impl Row {
    /// Creates a row without numbers.
    pub fn new(setting: impl Into<String>) -> Row {
        Row { setting: setting.into(), numbers: Map::new() }
    }

    /// Returns the name of the row's setting.
    pub fn setting(&self) -> &str {
        &self.setting
    }

    /// Returns the same numbers under another setting name.
    pub fn named(self, setting: impl Into<String>) -> Row {
        Row { setting: setting.into(), ..self }
    }

    /// Stores `value` under `key`, which ends in its unit; `None` is "not measured".
    ///
    /// A number that is not finite (a quotient with divisor 0, for example) counts as not measured.
    /// An existing key keeps its place and gets the new value.
    pub fn put(&mut self, key: &str, value: impl Into<Option<f64>>) -> &mut Row {
        debug_assert!(Unit::from_key(key).is_some(), "the key `{key}` does not end in a known unit");
        self.numbers.insert(key.to_owned(), number_or_null(value.into()));
        self
    }

    /// Returns the number under `key`; `None` if it was not measured.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.numbers.get(key).and_then(Value::as_f64)
    }

    /// Returns the row with only the keys for which `wanted` returns true.
    pub fn filter_keys(&self, wanted: impl Fn(&str) -> bool) -> Row {
        let numbers = self.numbers.iter().filter(|(key, _)| wanted(key));
        Row {
            setting: self.setting.clone(),
            numbers: numbers.map(|(key, value)| (key.clone(), value.clone())).collect(),
        }
    }

    /// Returns the keys in insertion order, including those of missing numbers.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.numbers.keys().map(String::as_str)
    }
}

impl TryFrom<Map<String, Value>> for Row {
    type Error = RowError;

    fn try_from(mut numbers: Map<String, Value>) -> Result<Row, RowError> {
        let Some(Value::String(setting)) = numbers.shift_remove("setting") else {
            return Err(RowError::NoSetting);
        };
        match numbers.iter().find(|(_, value)| !(value.is_number() || value.is_null())) {
            Some((key, _)) => Err(RowError::NotANumber { key: key.clone(), setting }),
            None => Ok(Row { setting, numbers }),
        }
    }
}

/// Splits the rows into tables: a new table begins at a row that has no key in common with the rows
/// before it.
pub fn split_into_tables(rows: &[Row]) -> Vec<&[Row]> {
    let mut tables = Vec::new();
    let mut from = 0;
    for next in 1..=rows.len() {
        let goes_on = rows.get(next).is_some_and(|row| {
            let mut before = rows[from..next].iter().flat_map(Row::keys);
            before.any(|key| row.numbers.contains_key(key))
        });
        if !goes_on {
            tables.push(&rows[from..next]);
            from = next;
        }
    }
    tables
}

/// Converts a number to JSON. Whole numbers are written without a fraction: `812`, not `812.0`.
fn number_or_null(value: Option<f64>) -> Value {
    // Every whole `f64` below this bound is an exact `i64`.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match value {
        Some(value) if value.fract() == 0.0 && value.abs() <= EXACT_MAX => Value::from(value as i64),
        Some(value) => Number::from_f64(value).map_or(Value::Null, Value::Number),
        None => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let mut row = Row::new("alone");
        row.put("p99_us", 812.0).put("overlap_percent", 0.25).put("memory_stall_per_access_cycles", None);
        row
    }

    #[test]
    fn a_row_is_flat_and_keeps_its_order() {
        let json = serde_json::to_string(&row()).unwrap();
        let expected =
            r#"{"setting":"alone","p99_us":812,"overlap_percent":0.25,"memory_stall_per_access_cycles":null}"#;
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_str::<Row>(&json).unwrap(), row());
    }

    #[test]
    fn infinite_values_are_missing_values() {
        let mut row = Row::new("alone");
        row.put("p99_over_alone", f64::NAN).put("p50_over_alone", f64::INFINITY);
        assert_eq!(row.get("p99_over_alone"), None);
        assert_eq!(row.keys().count(), 2);
        assert!(serde_json::to_string(&row).unwrap().contains(r#""p50_over_alone":null"#));
    }

    #[test]
    fn rows_without_common_keys_are_in_separate_tables() {
        let other = |name: &str| {
            let mut row = Row::new(name);
            row.put("sleep_cycles", 1.0);
            row
        };
        let mut bare = Row::new("bare");
        bare.put("p99_us", None);
        let rows = [row(), bare, other("futex"), other("PAUSE loop")];
        let names = |table: &&[Row]| table.iter().map(|row| row.setting().to_owned()).collect::<Vec<_>>();
        assert_eq!(
            split_into_tables(&rows).iter().map(names).collect::<Vec<_>>(),
            [["alone", "bare"], ["futex", "PAUSE loop"]]
        );
        assert!(split_into_tables(&[]).is_empty());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "does not end in a known unit")]
    fn put_panics_if_a_key_has_no_unit() {
        Row::new("alone").put("p99", 812.0);
    }

    #[test]
    fn reading_rejects_rows_that_are_not_flat() {
        let nested = r#"{"setting":"alone","p99_us":{"mean":1}}"#;
        let error = serde_json::from_str::<Row>(nested).unwrap_err().to_string();
        assert!(error.contains("`p99_us` of row `alone`"), "{error}");
        assert!(serde_json::from_str::<Row>(r#"{"p99_us":1}"#).is_err());
    }
}
