//! Tables of a file that are asked for their keys, so that every problem has its line.
//!
//! A [`Reader`] is one table. The caller asks it for each possible key. A value that is wrong is recorded, and reading
//! goes on, so one reading finds all problems. In the end [`Reader::record_unknown_keys`] records the keys that were
//! never asked for. Values may be overridden by their whole path, as a sweep does; a problem then has the line of the
//! overriding value.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Problem, Value, line_at_offset, to_number, to_whole_number, value_as_text};

/// Error of a value without which reading cannot go on; its problem is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// A setting with a default, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Key of the setting, with the whole path.
    pub key: String,
    /// Value of the setting, in the form that a user would write.
    pub value: String,
    /// Line of the setting in the file; `None` if it has its default.
    pub line: Option<usize>,
}

/// A file, with the results of reading it.
#[derive(Debug)]
pub struct Document<'t> {
    text: &'t str,
    root: &'t DeTable<'t>,
    over: Vec<(String, &'t Value<'t>)>,
    asked: RefCell<BTreeSet<String>>,
    /// Problems found so far.
    pub problems: RefCell<Vec<Problem>>,
    /// Settings read so far.
    pub settings: RefCell<Vec<Setting>>,
}

impl<'t> Document<'t> {
    /// Creates a document from a parsed file, and from overriding values by their whole paths. The last value of a
    /// path counts.
    pub fn new(text: &'t str, root: &'t DeTable<'t>, overrides: Vec<(String, &'t Value<'t>)>) -> Self {
        let (asked, problems, settings) = Default::default();
        Self { text, root, over: overrides, asked, problems, settings }
    }

    /// Returns a reader of the file's top table.
    pub fn top(&self) -> Reader<'_, 't> {
        let path = String::new();
        Reader {
            document: self,
            path,
            name: None,
            table: Some(self.root),
            at: 0..0,
            is_wrong: false,
            known: RefCell::default(),
        }
    }

    /// Returns the overriding values.
    pub fn overriding_values(&self) -> &[(String, &'t Value<'t>)] {
        &self.over
    }

    /// Records a problem at a place in the file.
    pub fn record_problem_at(
        &self,
        span: &Range<usize>,
        key: &str,
        problem: impl Display,
        advice: impl Display,
    ) -> Refused {
        let line = Some(line_at_offset(self.text, span.start));
        self.record(line, key.to_owned(), problem, advice)
    }

    fn record(&self, line: Option<usize>, key: String, problem: impl Display, advice: impl Display) -> Refused {
        let (problem, advice) = (problem.to_string(), advice.to_string());
        self.problems.borrow_mut().push(Problem { line, key, problem, advice });
        Refused
    }

    /// Returns an overriding value whose key was never asked for. Call it after all keys have been read.
    pub fn unread_override(&self) -> Option<&(String, &'t Value<'t>)> {
        let asked = self.asked.borrow();
        self.over.iter().find(|(path, _)| !asked.contains(path))
    }
}

/// Reader of one table.
#[derive(Debug)]
pub struct Reader<'d, 't> {
    document: &'d Document<'t>,
    path: String,
    /// Name of the table in its settings, if the file has several such tables.
    name: Option<String>,
    /// Content of the table; `None` if the file lacks it, so that only overriding values count.
    table: Option<&'t DeTable<'t>>,
    at: Range<usize>,
    /// Whether the file has another kind of value in place of the table. This problem is recorded already, so no key of
    /// the table counts as missing.
    is_wrong: bool,
    known: RefCell<BTreeSet<String>>,
}

impl<'d, 't> Reader<'d, 't> {
    /// Returns the file that the table is in.
    pub fn document(&self) -> &'d Document<'t> {
        self.document
    }

    /// Returns the whole path of a key of this table.
    pub fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Adds `which` in brackets to the name of this table in the keys of its settings, as in `service[web]`.
    pub fn with_entry_name(mut self, which: impl Display) -> Self {
        self.name = Some(format!("{}[{which}]", self.path));
        self
    }

    /// Whether the file has this table.
    pub fn exists(&self) -> bool {
        self.table.is_some()
    }

    /// Whether the table has this key.
    pub fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Returns the value of a key, and notes that the key was asked for.
    pub fn value(&self, key: &str) -> Option<&'t Value<'t>> {
        self.known.borrow_mut().insert(key.to_owned());
        let path = self.path(key);
        let over = self.document.over.iter().rev().find(|(over, _)| *over == path).map(|(_, value)| *value);
        self.document.asked.borrow_mut().insert(path);
        over.or_else(|| self.table?.get(key))
    }

    /// Returns the line of a key, or else of its table.
    pub fn line(&self, key: &str) -> Option<usize> {
        self.value(key)
            .map_or_else(|| self.table_line(), |value| Some(line_at_offset(self.document.text, value.span().start)))
    }

    /// Returns the line in which the table begins; `None` for the file as a whole.
    pub fn table_line(&self) -> Option<usize> {
        (self.at.end > 0).then(|| line_at_offset(self.document.text, self.at.start))
    }

    /// Records what is wrong with a key.
    pub fn record_problem(&self, key: &str, problem: impl Display, advice: impl Display) -> Refused {
        self.document.record(self.line(key), self.path(key), problem, advice)
    }

    /// Records that a key is missing. If the file has the key, its value was recorded as wrong already, and nothing is
    /// added.
    pub fn record_missing(&self, key: &str, advice: impl Display) -> Refused {
        if self.is_wrong || self.has(key) { Refused } else { self.record_problem(key, "is missing", advice) }
    }

    fn record_wrong_value(&self, key: &str, value: &Value, advice: impl Display) {
        self.record_problem(key, format!("is {}", value_as_text(value.get_ref())), advice);
    }

    /// Returns the result of `read` for the value of a key. If there is no result, the value is recorded as wrong.
    fn read<T>(&self, key: &str, advice: impl Display, read: impl Fn(&'t DeValue<'t>) -> Option<T>) -> Option<T> {
        let value = self.value(key)?;
        let found = read(value.get_ref());
        if found.is_none() {
            self.record_wrong_value(key, value, advice);
        }
        found
    }

    /// Returns the value that was found for a required key.
    ///
    /// # Errors
    /// If no value was found; a key that is not there is recorded as missing.
    pub fn require<T>(&self, key: &str, value: Option<T>, advice: impl Display) -> Result<T, Refused> {
        value.ok_or_else(|| self.record_missing(key, advice))
    }

    /// Reads a text that is not blank.
    pub fn text(&self, key: &str, advice: &str) -> Option<&'t str> {
        self.read(key, advice, |value| value.as_str().filter(|text| !text.trim().is_empty()))
    }

    /// Reads a required text that is not blank.
    pub fn required_text(&self, key: &str, advice: &str) -> Result<&'t str, Refused> {
        self.require(key, self.text(key, advice), advice)
    }

    /// Reads one text or a list of texts.
    pub fn text_or_list(&self, key: &str, advice: &str) -> Option<Vec<&'t str>> {
        self.read(key, advice, |value| match value {
            DeValue::Array(list) => list.iter().map(|value| value.get_ref().as_str()).collect(),
            other => other.as_str().map(|text| vec![text]),
        })
    }

    /// Reads a text and parses it by `parse`.
    pub fn parse_text<T, E: Display>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, E>,
        advice: &str,
    ) -> Option<T> {
        let text = self.text(key, advice)?;
        parse(text).map_err(|why| self.record_problem(key, format!("is \"{text}\", which {why}"), advice)).ok()
    }

    /// Reads a percentage with its sign, such as "5 %".
    pub fn percent(&self, key: &str, range: RangeInclusive<f64>, example: &str) -> Option<f64> {
        let advice = format!("{} with its sign, as in \"{example}\"", range_advice("percentage", &range));
        let value = self.value(key)?;
        let percent = value.get_ref().as_str().and_then(parse_percent);
        let percent = percent.filter(|percent| range.contains(percent));
        match (percent, to_number(value.get_ref())) {
            (None, Some(_)) => {
                self.record_problem(key, format!("is {}, which has no unit", value_as_text(value.get_ref())), advice);
            }
            (None, None) => self.record_wrong_value(key, value, advice),
            _ => {}
        }
        percent
    }

    /// Reads a number above 0.
    pub fn positive(&self, key: &str, advice: &str) -> Option<f64> {
        self.read(key, advice, |value| to_number(value).filter(|number| *number > 0.0 && number.is_finite()))
    }

    /// Reads a number within `range`.
    pub fn number(&self, key: &str, range: RangeInclusive<f64>) -> Option<f64> {
        let advice = range_advice("number", &range);
        self.read(key, advice, |value| to_number(value).filter(|number| range.contains(number)))
    }

    /// Reads a required number within `range`.
    pub fn required_number(&self, key: &str, range: RangeInclusive<f64>) -> Result<f64, Refused> {
        self.require(key, self.number(key, range.clone()), range_advice("number", &range))
    }

    /// Reads a list of numbers within `range`, at least one.
    pub fn numbers(&self, key: &str, range: RangeInclusive<f64>) -> Option<Vec<f64>> {
        let advice = format!("write a list of numbers from {} to {}", range.start(), range.end());
        let number = |value: &Value| to_number(value.get_ref()).filter(|number| range.contains(number));
        self.read(key, advice, |value| {
            let list = value.as_array().filter(|list| !list.is_empty())?;
            list.iter().map(number).collect()
        })
    }

    /// Reads a number, or a list of numbers, within `range`.
    pub fn number_or_list(&self, key: &str, range: RangeInclusive<f64>) -> Option<Vec<f64>> {
        if self.is_list(key) { self.numbers(key, range) } else { self.number(key, range).map(|number| vec![number]) }
    }

    /// Reads a whole number within `range`.
    pub fn whole_number<T: TryFrom<i128> + PartialOrd + Display>(
        &self,
        key: &str,
        range: RangeInclusive<T>,
    ) -> Option<T> {
        let advice = range_advice("whole number", &range);
        self.read(key, advice, |value| to_whole_number(value).filter(|number| range.contains(number)))
    }

    /// Returns the whole number under a key. A value of another kind gives `None` and is not recorded as a problem,
    /// since the caller may accept it.
    pub fn whole_number_if_any(&self, key: &str) -> Option<i64> {
        to_whole_number(self.value(key)?.get_ref())
    }

    /// Reads a boolean.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.read(key, "write true or false", DeValue::as_bool)
    }

    /// Reads one of several words.
    pub fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Option<T> {
        let value = self.value(key)?;
        let name = value.get_ref().as_str();
        let chosen = name.and_then(|name| choices.iter().find(|(known, _)| *known == name));
        if chosen.is_none() {
            let meant = name.and_then(|name| nearest_name(name, choices.iter().map(|(name, _)| *name)));
            self.record_wrong_value(key, value, format!("{}{}", did_you_mean(meant), choices_advice(choices)));
        }
        chosen.map(|(_, choice)| *choice)
    }

    /// Reads a required word, one of several.
    pub fn required_choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<T, Refused> {
        self.require(key, self.choice(key, choices), choices_advice(choices))
    }

    /// Reads a list of texts, as they are written, or of whole numbers.
    pub fn list(&self, key: &str, advice: &str) -> Option<Vec<String>> {
        let item = |item: &Value| match item.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            other => to_whole_number::<i64>(other).map(|number| number.to_string()),
        };
        self.read(key, advice, |value| {
            let list = value.as_array().filter(|list| !list.is_empty())?;
            list.iter().map(item).collect()
        })
    }

    /// Whether the value of the key is a list.
    pub fn is_list(&self, key: &str) -> bool {
        self.value(key).is_some_and(|value| value.get_ref().is_array())
    }

    /// Whether the value of the key is a table.
    pub fn is_table(&self, key: &str) -> bool {
        self.value(key).is_some_and(|value| value.get_ref().is_table())
    }

    /// Returns a table in this table; an empty one if it does not exist.
    pub fn table(&self, key: &str) -> Reader<'d, 't> {
        let is_numbered = self.path.split('.').any(|part| part.parse::<usize>().is_ok());
        let header = if is_numbered { String::new() } else { format!(", [{}]", self.path(key)) };
        let table = self.read(key, format!("write a table{header}"), DeValue::as_table);
        let value = self.value(key);
        let at = value.map_or(self.at.clone(), Spanned::span);
        Reader {
            is_wrong: self.is_wrong || value.is_some() && table.is_none(),
            ..self.child_reader(self.path(key), table, at)
        }
    }

    /// Returns the tables in a list of tables. The paths of their keys are those of a single table, without an index.
    pub fn tables(&self, key: &str) -> Vec<Reader<'d, 't>> {
        self.tables_at(key, |_| self.path(key))
    }

    /// Returns the tables in a list of tables. The paths of their keys contain the table's index, from 0 on.
    pub fn numbered_tables(&self, key: &str) -> Vec<Reader<'d, 't>> {
        self.tables_at(key, |number| self.path(&format!("{key}.{number}")))
    }

    fn tables_at(&self, key: &str, path: impl Fn(usize) -> String) -> Vec<Reader<'d, 't>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let list = value.get_ref().as_array().map_or(&[][..], |list| list);
        let table = |(number, value): (usize, &'t Value<'t>)| {
            Some(self.child_reader(path(number), Some(value.get_ref().as_table()?), value.span()))
        };
        let tables: Vec<_> = list.iter().enumerate().filter_map(table).collect();
        if tables.is_empty() || tables.len() < list.len() {
            self.record_wrong_value(key, value, format!("write [[{key}]] with two brackets, once for each"));
        }
        tables
    }

    fn child_reader(&self, path: String, table: Option<&'t DeTable<'t>>, span: Range<usize>) -> Reader<'d, 't> {
        Reader {
            document: self.document,
            path,
            name: None,
            table,
            at: span,
            is_wrong: self.is_wrong,
            known: RefCell::default(),
        }
    }

    /// Returns all keys and values, for tables with arbitrary keys, in the order of the file.
    pub fn entries(&self) -> Vec<(&'t str, Range<usize>, &'t Value<'t>)> {
        let entries = self.table.into_iter().flat_map(|table| table.iter());
        let mut entries: Vec<_> = entries.map(|(key, value)| (key.get_ref().as_ref(), key.span(), value)).collect();
        entries.sort_by_key(|(_, at, _)| at.start);
        entries
    }

    /// Returns the value of a setting, or its default. Records the setting with its line, or without a line for the
    /// default.
    pub fn record_setting<T>(&self, key: &str, value: Option<T>, default: T, show: impl Fn(&T) -> String) -> T {
        let line = self.has(key).then(|| self.line(key)).flatten();
        let value = value.unwrap_or(default);
        let path = self.name.as_ref().map_or_else(|| self.path(key), |name| format!("{name}.{key}"));
        self.document.settings.borrow_mut().push(Setting { key: path, value: show(&value), line });
        value
    }

    /// Records every key that was never asked for.
    pub fn record_unknown_keys(self) {
        let known = self.known.borrow();
        for (name, at, value) in self.entries().iter().filter(|(name, ..)| !known.contains(*name)) {
            // TOML assigns a key below the heading of a table to that table, even if the key was meant for the top
            // table.
            let belongs_to_top = !self.path.is_empty() && self.document.asked.borrow().contains(*name);
            let advice = match belongs_to_top {
                true => {
                    // A flag of the top table may also be written as a table.
                    let or_table = value.get_ref().as_bool().map_or_else(String::new, |_| format!(", or as [{name}]"));
                    format!("write it above the first table of the file{or_table}")
                }
                false => {
                    let names = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                    format!(
                        "{}the keys here are {names}",
                        did_you_mean(nearest_name(name, known.iter().map(String::as_str)))
                    )
                }
            };
            self.document.record_problem_at(at, &self.path(name), "is not a key here", advice);
        }
    }
}

/// Parses a percentage with its sign; `None` if the text is none.
pub fn parse_percent(text: &str) -> Option<f64> {
    text.strip_suffix('%')?.trim().parse().ok()
}

fn range_advice<T: Display>(what: &str, range: &RangeInclusive<T>) -> String {
    format!("write a {what} from {} to {}", range.start(), range.end())
}

/// Returns the known name that was probably meant: at most a third of it differs.
fn nearest_name<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let name = name.to_lowercase().replace('-', "_");
    let distance = |known: &&str| strsim::damerau_levenshtein(&name, &known.replace('-', "_"));
    let nearest = known.min_by_key(distance)?;
    (distance(&nearest) <= nearest.len() / 3).then_some(nearest)
}

fn did_you_mean(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!("did you mean `{name}`? "))
}

fn choices_advice<T>(choices: &[(&str, T)]) -> String {
    format!("write one of {}", choices.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", "))
}
