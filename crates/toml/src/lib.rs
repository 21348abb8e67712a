//! Values of TOML files, as whoever reads one key by key needs them: as numbers, and in messages.
//!
//! A scenario's reader ends at the first error, that of the agent's file goes on to the last one. What a value is, and
//! how a message names it, is the same for both.
//!
//! # Invariants
//!
//! - This crate knows no key of any file: *not guarded*.

use toml::Spanned;
use toml::de::DeValue;

/// A value, with its place in the file.
pub type Value<'t> = Spanned<DeValue<'t>>;

/// The line of a place in the file, from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// A whole number that fits.
pub fn whole_of<T: TryFrom<i128>>(value: &DeValue) -> Option<T> {
    let integer = value.as_integer()?;
    let whole = i128::from_str_radix(integer.as_str(), integer.radix()).ok()?;
    T::try_from(whole).ok()
}

/// A number, with or without a fraction.
pub fn number_of(value: &DeValue) -> Option<f64> {
    match value {
        DeValue::Float(float) => float.as_str().parse().ok(),
        value => whole_of::<i64>(value).map(|whole| whole as f64),
    }
}

/// A value as messages show it.
pub fn shown(value: &DeValue) -> String {
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
    use toml::de::DeTable;

    use super::*;

    fn with<T>(value: &str, read: impl Fn(&DeValue) -> T) -> T {
        let text = format!("key = {value}");
        let table = DeTable::parse(&text).expect(&text);
        read(table.get_ref().get("key").expect("the key is there").get_ref())
    }

    #[test]
    fn numbers_are_of_any_form_that_toml_has() {
        assert_eq!(with("0x1f", whole_of::<i64>), Some(31));
        assert_eq!(with("-3", whole_of::<i64>), Some(-3));
        assert_eq!(with("-3", whole_of::<u64>), None);
        assert_eq!(with("1.5", whole_of::<i64>), None);
        assert_eq!((with("1_000", number_of), with("2.5e3", number_of)), (Some(1_000.0), Some(2_500.0)));
        assert_eq!(with("\"1\"", number_of), None);
    }

    #[test]
    fn a_value_is_shown_briefly() {
        let all = ["\"a\"", "0x1f", "2.5", "true", "[]", "[1]", "{}", "1979-05-27"].map(|value| with(value, shown));
        assert_eq!(all, ["\"a\"", "0x1f", "2.5", "true", "an empty list", "a list", "a table", "a date"]);
    }

    #[test]
    fn lines_count_from_one() {
        assert_eq!([0, 1, 2, 3].map(|at| line_of("a\nb\n", at)), [1, 1, 2, 2]);
    }
}
