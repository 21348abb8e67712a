//! Reads a scenario key by key, so that every error has its line.
//!
//! A [`Reader`] is one table of the file. The caller asks it for each possible key, with the
//! allowed values; in the end it reports keys that were never asked for. A sweep overrides values
//! of the file: overrides are looked up under the key's whole path, and an error in one is reported
//! with the override's line.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use sidelane_toml::{Value, line_of, number_of, shown, whole_of};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::ScenarioError;

type Result<T> = std::result::Result<T, ScenarioError>;

/// A file, and the values that override it.
pub(super) struct Document<'t> {
    pub(super) file: &'t str,
    pub(super) text: &'t str,
    pub(super) root: &'t DeTable<'t>,
    /// Whole paths and their overriding values; the last one of a path counts.
    pub(super) over: Vec<(String, &'t Value<'t>)>,
    /// Paths that were asked for.
    pub(super) asked: RefCell<BTreeSet<String>>,
}

impl<'t> Document<'t> {
    pub(super) fn error(
        &self,
        at: Range<usize>,
        key: &str,
        problem: impl Into<String>,
        allowed: impl Into<String>,
    ) -> ScenarioError {
        let line = Some(line_of(self.text, at.start));
        let (file, key) = (self.file.to_owned(), key.to_owned());
        ScenarioError { file, line, key, problem: problem.into(), allowed: allowed.into() }
    }

    pub(super) fn top(&self) -> Reader<'_, 't> {
        Reader { document: self, path: String::new(), table: Some(self.root), at: 0..0, known: RefCell::default() }
    }

    /// An overriding value whose key does not exist, after all keys have been read.
    pub(super) fn nobody_asked_for(&self) -> Option<&(String, &'t Value<'t>)> {
        let asked = self.asked.borrow();
        self.over.iter().find(|(path, _)| !asked.contains(path))
    }
}

/// One table.
pub(super) struct Reader<'d, 't> {
    pub(super) document: &'d Document<'t>,
    path: String,
    /// `None` if the file lacks the table: then only overriding values count.
    table: Option<&'t DeTable<'t>>,
    at: Range<usize>,
    known: RefCell<BTreeSet<String>>,
}

impl<'d, 't> Reader<'d, 't> {
    /// The whole path of a key of this table.
    pub(super) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Whether the file has this table.
    pub(super) fn is_there(&self) -> bool {
        self.table.is_some()
    }

    pub(super) fn value(&self, key: &str) -> Option<&'t Value<'t>> {
        self.known.borrow_mut().insert(key.to_owned());
        let path = self.path(key);
        let over = self.document.over.iter().rev().find(|(over, _)| *over == path).map(|(_, value)| *value);
        self.document.asked.borrow_mut().insert(path);
        over.or_else(|| self.table?.get(key))
    }

    fn wrong<T>(&self, key: &str, value: &Value, allowed: impl Into<String>) -> Result<T> {
        Err(self.document.error(value.span(), &self.path(key), format!("is {}", shown(value.get_ref())), allowed))
    }

    pub(super) fn lacks(&self, key: &str, allowed: impl Into<String>) -> ScenarioError {
        self.document.error(self.at.clone(), &self.path(key), "is missing", allowed)
    }

    /// An error in the value of `key`.
    pub(super) fn refuse(&self, key: &str, problem: impl Into<String>, allowed: impl Into<String>) -> ScenarioError {
        let at = self.value(key).map_or(self.at.clone(), Spanned::span);
        self.document.error(at, &self.path(key), problem, allowed)
    }

    /// A number within a range, if the key exists.
    pub(super) fn number(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f64>> {
        let allowed = || format!("a number from {} to {}", range.start(), range.end());
        self.value(key).map_or(Ok(None), |value| match number_of(value.get_ref()) {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => self.wrong(key, value, allowed()),
        })
    }

    /// A required number.
    pub(super) fn wanted(&self, key: &str, range: RangeInclusive<f64>) -> Result<f64> {
        let allowed = format!("a number from {} to {}", range.start(), range.end());
        self.number(key, range)?.ok_or_else(|| self.lacks(key, allowed))
    }

    /// A whole number within a range, if the key exists.
    pub(super) fn count(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<u64>> {
        let allowed = || format!("a whole number from {} to {}", range.start(), range.end());
        self.value(key).map_or(Ok(None), |value| match whole_of(value.get_ref()) {
            Some(count) if range.contains(&count) => Ok(Some(count)),
            _ => self.wrong(key, value, allowed()),
        })
    }

    /// Numbers within a range.
    pub(super) fn numbers(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<Vec<f64>>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let allowed = format!("a list of numbers from {} to {}", range.start(), range.end());
        let of_list =
            |list: &[Value]| list.iter().map(|value| number_of(value.get_ref())).collect::<Option<Vec<f64>>>();
        let numbers = value.get_ref().as_array().and_then(|list| of_list(list));
        match numbers.filter(|list| !list.is_empty() && list.iter().all(|number| range.contains(number))) {
            Some(numbers) => Ok(Some(numbers)),
            None => self.wrong(key, value, allowed),
        }
    }

    /// A number or a list of numbers within a range.
    pub(super) fn one_or_more(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<Vec<f64>>> {
        match self.value(key).is_some_and(|value| value.get_ref().is_array()) {
            true => self.numbers(key, range),
            false => Ok(self.number(key, range)?.map(|number| vec![number])),
        }
    }

    /// A text, if the key exists.
    pub(super) fn text(&self, key: &str, allowed: &str) -> Result<Option<&'t str>> {
        self.value(key).map_or(Ok(None), |value| match value.get_ref().as_str() {
            Some(text) => Ok(Some(text)),
            None => self.wrong(key, value, allowed),
        })
    }

    /// One text or several.
    pub(super) fn texts(&self, key: &str, allowed: &str) -> Result<Option<Vec<&'t str>>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let texts = match value.get_ref() {
            DeValue::Array(list) => list.iter().map(|value| value.get_ref().as_str()).collect::<Option<Vec<&str>>>(),
            other => other.as_str().map(|text| vec![text]),
        };
        texts.map_or_else(|| self.wrong(key, value, allowed), |texts| Ok(Some(texts)))
    }

    /// A boolean, if the key exists.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.value(key).map_or(Ok(None), |value| match value.get_ref().as_bool() {
            Some(flag) => Ok(Some(flag)),
            None => self.wrong(key, value, "true or false"),
        })
    }

    /// One of several words, if the key exists.
    pub(super) fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<Option<T>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let named = |name: &str| choices.iter().find(|(known, _)| *known == name).map(|(_, choice)| *choice);
        match value.get_ref().as_str().and_then(named) {
            Some(choice) => Ok(Some(choice)),
            None => self.wrong(key, value, names(choices)),
        }
    }

    /// A required one of several words.
    pub(super) fn chosen<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<T> {
        self.choice(key, choices)?.ok_or_else(|| self.lacks(key, names(choices)))
    }

    /// A table in this table; empty if it does not exist.
    pub(super) fn table(&self, key: &str) -> Result<Reader<'d, 't>> {
        let Some(value) = self.value(key) else { return Ok(self.below(key, None, self.at.clone())) };
        match value.get_ref().as_table() {
            Some(table) => Ok(self.below(key, Some(table), value.span())),
            None => self.wrong(key, value, "a table"),
        }
    }

    /// The tables in a list of tables.
    pub(super) fn tables(&self, key: &str) -> Result<Vec<Reader<'d, 't>>> {
        let Some(value) = self.value(key) else { return Ok(Vec::new()) };
        let Some(list) = value.get_ref().as_array() else {
            return self.wrong(key, value, format!("a list of tables, each under [[{key}]]"));
        };
        let each = |(index, value): (usize, &'t Value<'t>)| match value.get_ref().as_table() {
            Some(table) => Ok(self.below(&format!("{key}.{index}"), Some(table), value.span())),
            None => self.wrong(key, value, "a list of tables"),
        };
        list.iter().enumerate().map(each).collect()
    }

    fn below(&self, key: &str, table: Option<&'t DeTable<'t>>, at: Range<usize>) -> Reader<'d, 't> {
        Reader { document: self.document, path: self.path(key), table, at, known: RefCell::default() }
    }

    /// All keys and values, for tables with arbitrary keys.
    pub(super) fn entries(&self) -> Vec<(&'t str, Range<usize>, &'t Value<'t>)> {
        let entries = self.table.into_iter().flat_map(|table| table.iter());
        let mut entries: Vec<_> = entries.map(|(key, value)| (key.get_ref().as_ref(), key.span(), value)).collect();
        entries.sort_by_key(|(_, at, _)| at.start);
        entries
    }

    /// An error if the table has keys that were never asked for.
    pub(super) fn finish(self) -> Result<()> {
        let known = self.known.take();
        let unknown = self.entries().into_iter().find(|(key, ..)| !known.contains(*key));
        let known: Vec<String> = known.into_iter().collect();
        unknown.map_or(Ok(()), |(key, at, _)| {
            Err(self.document.error(at, &self.path(key), "is not a key here", known.join(", ")))
        })
    }
}

fn names<T>(choices: &[(&str, T)]) -> String {
    choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
