//! TOML files of users: their tables are asked for their keys, and all problems of a file are found at once.
//!
//! serde's derive is not used: it ends at the first error, and knows neither the line nor the default of a key.
//!
//! # Invariants
//!
//! - This crate knows no key of any file: *not guarded*.
//! - One reading finds all problems of a file (`crates/agent/src/config/tests/problems.rs`:
//!   `all_problems_of_a_file_are_reported_at_once`; `crates/sim/tests/scenario.rs`:
//!   `all_errors_of_a_scenario_are_reported_at_once`).

mod reader;

use std::fmt;

use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use reader::{Document, Reader, Refused, Setting, parse_percent};

/// One problem of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line of the problem, from 1 on; `None` if it is about the file as a whole.
    pub line: Option<usize>,
    /// Key with the problem, with its tables, such as `service.demand.kind`.
    pub key: String,
    /// Description of what is wrong with the key.
    pub problem: String,
    /// Advice on what to do about it.
    pub advice: String,
}

/// All problems of a file, by line.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub struct Problems {
    /// Name of the file, as the user gave it.
    pub file: String,
    /// Problems by line, at least one.
    pub all: Vec<Problem>,
}

impl Problems {
    /// Collects the problems of a file, in the order of its lines.
    pub fn new(file: &str, mut all: Vec<Problem>) -> Self {
        all.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        // A caller may ask for a key twice, so its problem may be recorded twice.
        all.dedup();
        Self { file: file.to_owned(), all }
    }

    /// Returns the problem of a file that could not be read at all.
    pub fn unreadable(file: &str, why: &std::io::Error, advice: &str) -> Self {
        Self::new(file, vec![file_problem(None, format!("cannot be read: {why}"), advice)])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Problem { line, key, problem, advice }) in self.all.iter().enumerate() {
            let line = line.map_or_else(String::new, |line| format!(":{line}"));
            let separator = if number == 0 { "" } else { "\n" };
            write!(f, "{separator}{}{line}: `{key}` {problem}; {advice}", self.file)?;
        }
        Ok(())
    }
}

fn file_problem(line: Option<usize>, problem: String, advice: &str) -> Problem {
    Problem { line, key: "file".to_owned(), problem, advice: advice.to_owned() }
}

/// Parses a text as TOML. `file` is its name in messages.
///
/// # Errors
/// One problem for each part of the text that is not TOML, with `advice`.
pub fn parse<'t>(file: &str, text: &'t str, advice: &str) -> Result<Spanned<DeTable<'t>>, Problems> {
    let (root, errors) = DeTable::parse_recoverable(text);
    let problem = |error: toml::de::Error| {
        let line = line_at_offset(text, error.span().map_or(0, |span| span.start));
        file_problem(Some(line), format!("is not TOML: {}", error.message().trim()), advice)
    };
    match errors.is_empty() {
        true => Ok(root),
        false => Err(Problems::new(file, errors.into_iter().map(problem).collect())),
    }
}

/// A TOML value, with its place in the file.
pub type Value<'t> = Spanned<DeValue<'t>>;

/// Returns the line of a byte offset in the text, from 1 on.
pub fn line_at_offset(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

/// Returns the whole number of a value; `None` if it is none, or does not fit.
pub fn to_whole_number<T: TryFrom<i128>>(value: &DeValue) -> Option<T> {
    let integer = value.as_integer()?;
    let whole = i128::from_str_radix(integer.as_str(), integer.radix()).ok()?;
    T::try_from(whole).ok()
}

/// Returns the number of a value, with or without a fraction; `None` if it is none.
pub fn to_number(value: &DeValue) -> Option<f64> {
    match value {
        DeValue::Float(float) => float.as_str().parse().ok(),
        value => to_whole_number::<i64>(value).map(|whole| whole as f64),
    }
}

/// Returns a value as messages show it.
pub fn value_as_text(value: &DeValue) -> String {
    match value {
        DeValue::String(text) => format!("\"{text}\""),
        DeValue::Integer(integer) => integer.to_string(),
        DeValue::Float(float) => float.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Array(list) if list.is_empty() => "an empty list".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
        DeValue::Datetime(_) => "a date".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_parsed_value<T>(value: &str, read: impl Fn(&DeValue) -> T) -> T {
        let text = format!("key = {value}");
        let table = DeTable::parse(&text).expect(&text);
        read(table.get_ref().get("key").expect("the key is there").get_ref())
    }

    #[test]
    fn numbers_of_all_toml_forms_are_read() {
        assert_eq!(with_parsed_value("0x1f", to_whole_number::<i64>), Some(31));
        assert_eq!(with_parsed_value("-3", to_whole_number::<i64>), Some(-3));
        assert_eq!(with_parsed_value("-3", to_whole_number::<u64>), None);
        assert_eq!(with_parsed_value("1.5", to_whole_number::<i64>), None);
        assert_eq!(
            (with_parsed_value("1_000", to_number), with_parsed_value("2.5e3", to_number)),
            (Some(1_000.0), Some(2_500.0))
        );
        assert_eq!(with_parsed_value("\"1\"", to_number), None);
    }

    #[test]
    fn a_value_is_shown_briefly() {
        let all = ["\"a\"", "0x1f", "2.5", "true", "[]", "[1]", "{}", "1979-05-27"]
            .map(|value| with_parsed_value(value, value_as_text));
        assert_eq!(all, ["\"a\"", "0x1f", "2.5", "true", "an empty list", "a list", "a table", "a date"]);
    }

    #[test]
    fn lines_count_from_one() {
        assert_eq!([0, 1, 2, 3].map(|at| line_at_offset("a\nb\n", at)), [1, 1, 2, 2]);
    }
}
