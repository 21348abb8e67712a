//! Formulas over hardware and kernel events: a value per activity, as in `STALLS / (LOADS + STORES)`.
//!
//! ```text
//! formula = sum "/" sum
//! sum     = name | "(" name { "+" name } ")"
//! name    = a name that perf knows, or "r" and a number in hexadecimal, or a name from the processor's row
//! ```

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::perf::Event;

/// Most events in a formula: as many as processors count at the same time on each of two siblings.
pub const EVENTS_MAX: usize = 4;

/// A ratio of event counts: the sum of some events divided by the sum of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formula {
    names: Vec<String>,
    events: Vec<Event>,
    numerator: Vec<usize>,
    denominator: Vec<usize>,
}

/// Error of a text that is not a formula.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FormulaError {
    /// The text does not have the form of a formula.
    #[error(
        "`{text}` is not a formula; write one sum of events over another, as in `page-faults / (cycles + \
             ref-cycles)`"
    )]
    Form {
        /// Text that was parsed.
        text: String,
    },
    /// The formula names an unknown event.
    #[error(
        "`{name}` is not an event that is known here; write one of {}, an event of this processor, or rHEX for the \
         processor's own number (`perf list --details`)",
        known_event_names()
    )]
    Event {
        /// Name of the unknown event.
        name: String,
    },
    /// The formula has more events than are counted at the same time.
    #[error("`{text}` has {count} events, and at most {EVENTS_MAX} can be counted; leave some out")]
    TooMany {
        /// Text that was parsed.
        text: String,
        /// Number of events in the formula.
        count: usize,
    },
}

fn known_event_names() -> String {
    Event::names().collect::<Vec<_>>().join(", ")
}

impl Formula {
    /// Parses a formula whose events perf knows.
    pub fn parse(text: &str) -> Result<Self, FormulaError> {
        Self::parse_with(text, |_| None)
    }

    /// Parses a formula that may also name the events of `other_events`, which have precedence over those of perf.
    pub fn parse_with(text: &str, other_events: impl Fn(&str) -> Option<Event>) -> Result<Self, FormulaError> {
        let form = || FormulaError::Form { text: text.to_owned() };
        let (above, below) = text.split_once('/').ok_or_else(form)?;
        let (above, below) = (parse_sum(above).ok_or_else(form)?, parse_sum(below).ok_or_else(form)?);
        let mut new = Self { names: Vec::new(), events: Vec::new(), numerator: Vec::new(), denominator: Vec::new() };
        let known = |name: &str| other_events(name).or_else(|| Event::named(name));
        for name in above {
            let place = new.add_event(name, &known)?;
            new.numerator.push(place);
        }
        for name in below {
            let place = new.add_event(name, &known)?;
            new.denominator.push(place);
        }
        match new.events.len() {
            count if count > EVENTS_MAX => Err(FormulaError::TooMany { text: text.to_owned(), count }),
            _ => Ok(new),
        }
    }

    /// Returns the index of the event `name` in the formula. An event that is missing in the formula is added.
    fn add_event(&mut self, name: &str, find_event: &impl Fn(&str) -> Option<Event>) -> Result<usize, FormulaError> {
        let event = find_event(name).ok_or_else(|| FormulaError::Event { name: name.to_owned() })?;
        if let Some(place) = self.events.iter().position(|other| *other == event) {
            return Ok(place);
        }
        self.names.push(name.to_owned());
        self.events.push(event);
        Ok(self.events.len() - 1)
    }

    /// Returns the events of the formula, each once.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the names of the events, in the order of `events`.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the events in the numerator of the formula: a bit for each event, by its index in `events`.
    pub fn numerator_bits(&self) -> u32 {
        bits_of_indices(&self.numerator)
    }

    /// Returns the events in the denominator of the formula: a bit for each event, by its index in `events`.
    pub fn denominator_bits(&self) -> u32 {
        bits_of_indices(&self.denominator)
    }

    /// Whether the processor, and not the kernel, counts an event of the formula.
    pub fn needs_processor(&self) -> bool {
        self.events.iter().any(Event::is_hardware)
    }

    /// Returns the value of the formula for the counts of its events; `None` if the denominator is 0.
    pub fn value(&self, counts: &[u64]) -> Option<f64> {
        let sum = |places: &[usize]| places.iter().map(|place| counts[*place] as f64).sum::<f64>();
        let below = sum(&self.denominator);
        (below > 0.0).then(|| sum(&self.numerator) / below)
    }
}

/// Parses a sum into its names; `None` if the text has another form, or a name twice.
fn parse_sum(text: &str) -> Option<Vec<&str>> {
    let text = text.trim();
    let names = match text.strip_prefix('(') {
        Some(rest) => rest.strip_suffix(')')?.split('+').map(str::trim).collect(),
        None => vec![text],
    };
    let is_name =
        |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let is_first = |(at, name): (usize, &&str)| !names[..at].contains(name);
    (names.iter().all(is_name) && names.iter().enumerate().all(is_first)).then_some(names)
}

fn bits_of_indices(indices: &[usize]) -> u32 {
    indices.iter().fold(0, |bits, place| bits | 1 << place)
}

impl FromStr for Formula {
    type Err = FormulaError;

    fn from_str(text: &str) -> Result<Self, FormulaError> {
        Self::parse(text)
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |places: &[usize]| {
            let names: Vec<&str> = places.iter().map(|place| self.names[*place].as_str()).collect();
            if names.len() == 1 { names[0].to_owned() } else { format!("({})", names.join(" + ")) }
        };
        write!(f, "{} / {}", side(&self.numerator), side(&self.denominator))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn formula_of_the_holmes_paper_is_parsed_from_event_numbers() {
        let formula = Formula::parse("r140014a3 / (r81d0 + r82d0)").unwrap();
        let raw = |name| Event::named(name).unwrap();
        assert_eq!(formula.events(), [raw("r140014a3"), raw("r81d0"), raw("r82d0")]);
        assert_eq!((formula.numerator_bits(), formula.denominator_bits()), (0b001, 0b110));
        assert_eq!(formula.value(&[4_000, 60, 40]), Some(40.0));
        assert_eq!(formula.value(&[4_000, 0, 0]), None);
        assert_eq!(formula.to_string(), "r140014a3 / (r81d0 + r82d0)");
        assert!(formula.needs_processor());
    }

    #[test]
    fn event_may_be_in_numerator_and_denominator() {
        let formula = Formula::parse("page-faults/(task-clock+page-faults)").unwrap();
        assert_eq!((formula.numerator_bits(), formula.denominator_bits()), (0b01, 0b11));
        assert_eq!(formula.value(&[1, 3]), Some(0.25));
        assert!(!formula.needs_processor());
    }

    #[test]
    fn other_events_have_precedence_over_perf_events() {
        let stalls = Event { kind: 4, config: 0xa3 };
        let others = |name: &str| (name == "cycles").then_some(stalls);
        assert_eq!(Formula::parse_with("cycles / instructions", others).unwrap().events()[0], stalls);
    }

    #[test]
    fn invalid_formulas_are_refused_with_the_reason() {
        let said = |text: &str| Formula::parse(text).unwrap_err().to_string();
        for text in
            ["", "cycles", "/", "cycles /", "a + b / c", "(cycles / r1", "(r1 + r1) / r2", "r1 / r2 / r3", "() / r1"]
        {
            assert!(said(text).contains("is not a formula"), "{text}: {}", said(text));
        }
        assert!(said("reticulations / cycles").contains("`reticulations` is not an event"));
        assert!(
            said("r1 / (r2 + r3 + r4 + r5)").contains("at most 4 can be counted"),
            "{}",
            said("r1 / (r2 + r3 + r4 + r5)")
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC*") {
            let _ = Formula::parse(&text);
        }

        #[test]
        fn displayed_formula_parses_to_itself(above in 1..4_usize, below in 1..4_usize) {
            let names = |count: usize| (0..count).map(|at| format!("r{at}")).collect::<Vec<_>>().join(" + ");
            let formula = Formula::parse(&format!("({}) / ({})", names(above), names(below))).unwrap();
            prop_assert_eq!(Formula::parse(&formula.to_string()), Ok(formula));
        }
    }
}
