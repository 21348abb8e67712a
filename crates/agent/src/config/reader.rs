//! Reads the file key by key, so that every problem has its line.
//!
//! A [`Reader`] is one table. It is asked for each possible key, and what is wrong with a value is put down and read
//! on. So one reading finds all problems, where a scenario's reader ends at the first. In the end a table is asked
//! for keys that nobody wanted.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use sidelane_toml::{Value, line_of, number_of, shown, whole_of};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use sidelane_host::units::parse_time;

use super::Setting;
use super::problem::Problem;

/// A file, and what was found out about it.
pub(super) struct Document<'t> {
    pub(super) text: &'t str,
    pub(super) problems: RefCell<Vec<Problem>>,
    pub(super) settings: RefCell<Vec<Setting>>,
}

impl<'t> Document<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, problems: RefCell::default(), settings: RefCell::default() }
    }

    pub(super) fn top<'d>(&'d self, root: &'t DeTable<'t>) -> Reader<'d, 't> {
        Reader {
            document: self,
            path: String::new(),
            name: None,
            table: Some(root),
            at: 0..0,
            known: RefCell::default(),
        }
    }

    pub(super) fn line(&self, at: usize) -> usize {
        line_of(self.text, at)
    }

    pub(super) fn problem(&self, line: Option<usize>, key: &str, problem: impl Display, advice: impl Display) {
        let (key, problem, advice) = (key.to_owned(), problem.to_string(), advice.to_string());
        self.problems.borrow_mut().push(Problem { line, key, problem, advice });
    }
}

/// One table.
pub(super) struct Reader<'d, 't> {
    pub(super) document: &'d Document<'t>,
    path: String,
    /// What its settings are told as, where there are several such tables.
    name: Option<String>,
    /// `None` if the file lacks the table.
    table: Option<&'t DeTable<'t>>,
    at: Range<usize>,
    known: RefCell<Vec<&'static str>>,
}

/// A percentage with its sign.
pub(super) fn percent_of(text: &str) -> Option<f64> {
    text.strip_suffix('%')?.trim().parse().ok()
}

impl<'d, 't> Reader<'d, 't> {
    pub(super) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// One of several such tables: its settings are told as those of `which`.
    pub(super) fn one_of(mut self, which: impl Display) -> Self {
        self.name = Some(format!("{}[{which}]", self.path));
        self
    }

    /// Whether the file has this table.
    pub(super) fn is_there(&self) -> bool {
        self.table.is_some()
    }

    /// Whether the table has this key.
    pub(super) fn has(&self, key: &'static str) -> bool {
        self.value(key).is_some()
    }

    fn value(&self, key: &'static str) -> Option<&'t Value<'t>> {
        let mut known = self.known.borrow_mut();
        if !known.contains(&key) {
            known.push(key);
        }
        self.table?.get(key)
    }

    /// The line of a key, or else of its table.
    pub(super) fn line(&self, key: &'static str) -> Option<usize> {
        self.value(key).map_or_else(|| self.own_line(), |value| Some(self.document.line(value.span().start)))
    }

    /// The line in which the table begins; none for the file as a whole.
    pub(super) fn own_line(&self) -> Option<usize> {
        (self.at.end > 0).then(|| self.document.line(self.at.start))
    }

    /// Puts down what is wrong with a key.
    pub(super) fn wrong(&self, key: &'static str, problem: impl Display, advice: impl Display) {
        self.document.problem(self.line(key), &self.path(key), problem, advice);
    }

    fn is(&self, key: &'static str, value: &Value, advice: impl Display) {
        self.wrong(key, format!("is {}", shown(value.get_ref())), advice);
    }

    /// A text.
    pub(super) fn text(&self, key: &'static str, advice: &str) -> Option<&'t str> {
        let value = self.value(key)?;
        let text = value.get_ref().as_str();
        if text.is_none_or(|text| text.trim().is_empty()) {
            self.is(key, value, advice);
            return None;
        }
        text
    }

    /// A text that means something.
    pub(super) fn parsed<T, E: Display>(
        &self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
        advice: &str,
    ) -> Option<T> {
        let text = self.text(key, advice)?;
        let parsed = parse(text).map_err(|why| self.wrong(key, format!("is \"{text}\", which {why}"), advice));
        parsed.ok()
    }

    /// A time with its unit, of at least `min`.
    pub(super) fn time(&self, key: &'static str, min: Duration) -> Option<Duration> {
        const ADVICE: &str = "write a number and its unit, one of ns, us, ms, s, as in \"8us\" or \"1.5s\"";
        let value = self.value(key)?;
        let time = match value.get_ref() {
            DeValue::Integer(_) | DeValue::Float(_) => {
                self.wrong(key, format!("is {}, which has no unit", shown(value.get_ref())), ADVICE);
                return None;
            }
            other => other.as_str().and_then(|text| parse_time(text).ok()),
        };
        match time {
            None => self.wrong(key, format!("is {}, which is not a time", shown(value.get_ref())), ADVICE),
            Some(time) if time < min => self.is(key, value, format!("it is {min:?} at least")),
            Some(_) => {}
        }
        time.filter(|time| *time >= min)
    }

    /// A percentage with its sign.
    pub(super) fn percent(&self, key: &'static str, range: RangeInclusive<f64>, example: &str) -> Option<f64> {
        let (least, most) = (range.start(), range.end());
        let advice = format!("write a percentage from {least} to {most} with its sign, as in \"{example}\"");
        let value = self.value(key)?;
        let percent = value.get_ref().as_str().and_then(percent_of);
        let percent = percent.filter(|percent| range.contains(percent));
        match (percent, number_of(value.get_ref())) {
            (None, Some(_)) => self.wrong(key, format!("is {}, which has no unit", shown(value.get_ref())), advice),
            (None, None) => self.is(key, value, advice),
            _ => {}
        }
        percent
    }

    /// A number above 0.
    pub(super) fn positive(&self, key: &'static str, advice: &str) -> Option<f64> {
        let value = self.value(key)?;
        let number = number_of(value.get_ref()).filter(|number| *number > 0.0 && number.is_finite());
        if number.is_none() {
            self.is(key, value, advice);
        }
        number
    }

    /// A whole number.
    pub(super) fn whole(&self, key: &'static str, range: RangeInclusive<i64>) -> Option<i64> {
        let value = self.value(key)?;
        let number = whole_of(value.get_ref()).filter(|number| range.contains(number));
        if number.is_none() {
            self.is(key, value, format!("write a whole number from {} to {}", range.start(), range.end()));
        }
        number
    }

    /// The whole number that the key is, if it is one at all; whoever asks says what else it may be.
    pub(super) fn maybe_whole(&self, key: &'static str) -> Option<i64> {
        whole_of(self.value(key)?.get_ref())
    }

    /// A boolean.
    pub(super) fn flag(&self, key: &'static str) -> Option<bool> {
        let value = self.value(key)?;
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            self.is(key, value, "write true or false");
        }
        flag
    }

    /// One of several words.
    pub(super) fn choice<T: Copy>(&self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let value = self.value(key)?;
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let chosen = value.get_ref().as_str().and_then(|name| choices.iter().find(|(known, _)| *known == name));
        if chosen.is_none() {
            let meant = value.get_ref().as_str().and_then(|name| nearest(name, &names));
            self.is(key, value, format!("{}write one of {}", did_you_mean(meant), quoted(&names)));
        }
        chosen.map(|(_, choice)| *choice)
    }

    /// A list of texts, as they are written, or of numbers.
    pub(super) fn list(&self, key: &'static str, advice: &str) -> Option<Vec<String>> {
        let value = self.value(key)?;
        let item = |item: &Value| match item.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            other => whole_of::<i64>(other).map(|number| number.to_string()),
        };
        let of_list = |list: &[Value]| list.iter().map(item).collect::<Option<Vec<String>>>();
        let list = value.get_ref().as_array().and_then(|list| of_list(list)).filter(|list| !list.is_empty());
        if list.is_none() {
            self.is(key, value, advice);
        }
        list
    }

    /// Whether the key is a list.
    pub(super) fn is_list(&self, key: &'static str) -> bool {
        self.value(key).is_some_and(|value| value.get_ref().is_array())
    }

    /// Whether the key is a table.
    pub(super) fn is_table(&self, key: &'static str) -> bool {
        self.value(key).is_some_and(|value| value.get_ref().is_table())
    }

    /// A table, or none.
    pub(super) fn table(&self, key: &'static str) -> Reader<'d, 't> {
        let value = self.value(key);
        let table = value.and_then(|value| value.get_ref().as_table());
        if let Some(value) = value.filter(|_| table.is_none()) {
            self.is(key, value, format!("write a table, [{}]", self.path(key)));
        }
        self.below(key, table, value.map_or(self.at.clone(), Spanned::span))
    }

    /// All tables of a list of them.
    pub(super) fn tables(&self, key: &'static str) -> Vec<Reader<'d, 't>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let list = value.get_ref().as_array().map_or(&[][..], |list| list);
        let tables: Vec<_> = list
            .iter()
            .filter_map(|value| Some(self.below(key, Some(value.get_ref().as_table()?), value.span())))
            .collect();
        if tables.is_empty() || tables.len() < list.len() {
            self.is(key, value, format!("write [[{key}]] with two brackets, once for each"));
        }
        tables
    }

    fn below(&self, key: &str, table: Option<&'t DeTable<'t>>, at: Range<usize>) -> Reader<'d, 't> {
        Reader { document: self.document, path: self.path(key), name: None, table, at, known: RefCell::default() }
    }

    /// Puts down what a key of this table is, or what it is without being in the file.
    pub(super) fn setting<T>(&self, key: &'static str, value: Option<T>, default: T, show: impl Fn(&T) -> String) -> T {
        let line = self.has(key).then(|| self.line(key)).flatten();
        let value = value.unwrap_or(default);
        let path = self.name.as_ref().map_or_else(|| self.path(key), |name| format!("{name}.{key}"));
        self.document.settings.borrow_mut().push(Setting { key: path, value: show(&value), line });
        value
    }

    /// Puts down every key that was never asked for.
    pub(super) fn finish(self) {
        let known = self.known.borrow();
        let entries = self.table.into_iter().flat_map(|table| table.iter());
        for (key, _) in entries.filter(|(key, _)| !known.contains(&key.get_ref().as_ref())) {
            let name = key.get_ref().as_ref();
            let mut names = known.clone();
            names.sort_unstable();
            let advice = match name {
                // It was written below another table's keys, and so became that table's.
                "kubernetes" => "write it above the first table of the file, or as [kubernetes]".to_owned(),
                _ => format!("{}there are {}", did_you_mean(nearest(name, &names)), quoted(&names)),
            };
            let line = Some(self.document.line(key.span().start));
            self.document.problem(line, &self.path(name), "is not a key here", advice);
        }
    }
}

/// The known name that was probably meant: no more than a third of it is wrong.
fn nearest<'n>(name: &str, known: &[&'n str]) -> Option<&'n str> {
    let name = name.to_lowercase().replace('-', "_");
    let distance = |known: &&str| strsim::damerau_levenshtein(&name, &known.replace('-', "_"));
    let nearest = known.iter().min_by_key(|known| distance(known))?;
    (distance(nearest) <= nearest.len() / 3).then_some(*nearest)
}

fn did_you_mean(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!("did you mean `{name}`? "))
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
