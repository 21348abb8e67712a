//! Prints a listing on a terminal.

use crate::list::{ListedSignal, Listing, SignalGroup};
use sidelane_channels::hsperf::Value;
use sidelane_report::grid::{Ink, display_width, fit_to_width, max_display_width, wrap};

/// Limit of the width of the name column. A longer name moves the rest of its own line to the right.
const NAME_WIDTH_MAX: usize = 48;
/// Longest shown part of a JVM's text value, in characters. Some values are command lines and lists of paths.
const VALUE_LETTERS_MAX: usize = 40;
const MARGIN: usize = 2;

impl Listing {
    /// Returns the listing as text for a terminal of `width` columns.
    pub fn render(&self, width: usize, color: bool) -> String {
        let ink = Ink { color };
        let head = format!("Signals of process {} ({})\n", self.pid, self.program);
        head + &self.groups.iter().map(|group| render(group, width, ink)).collect::<String>()
    }
}

fn render(group: &SignalGroup, width: usize, ink: Ink) -> String {
    let name_width = max_display_width(group.signals.iter().map(|listed| listed.signal.as_str())).min(NAME_WIDTH_MAX);
    let values: Vec<String> = group.signals.iter().map(format_value).collect();
    let value_width = max_display_width(values.iter().map(String::as_str));
    let mut text = format!("\n{}\n", ink.bold(group.title));
    for (listed, value) in group.signals.iter().zip(&values) {
        let name = &listed.signal;
        let gap = if value_width == 0 { "" } else { "  " };
        let begin = format!("{:MARGIN$}{name:name_width$}{gap}{value:>value_width$}  ", "");
        let fits = display_width(&begin) + display_width(&listed.about) <= width;
        let about = if fits { ink.dim(&listed.about) } else { listed.about.to_string() };
        text += &fit_to_width(format!("{begin}{about}").trim_end(), if fits { usize::MAX } else { width });
    }
    for note in &group.notes {
        for line in wrap(note, width.saturating_sub(MARGIN).max(20)) {
            text += &format!("{:MARGIN$}{}\n", "", ink.dim(&line));
        }
    }
    text
}

fn format_value(listed: &ListedSignal) -> String {
    let value = match &listed.value {
        None => return String::new(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Text(text)) if display_width(text) > VALUE_LETTERS_MAX => {
            text.chars().take(VALUE_LETTERS_MAX).chain(['…']).collect()
        }
        Some(Value::Text(text)) => text.clone(),
    };
    listed.unit.map_or_else(|| value.clone(), |unit| format!("{value} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_values_and_notes_stand_in_columns() {
        let number = ListedSignal {
            value: Some(Value::Number(7)),
            unit: Some("events"),
            ..ListedSignal::new("jvm:a", "counter")
        };
        let text = ListedSignal { value: Some(Value::Text("No GC".into())), ..ListedSignal::new("jvm:longer", "tag") };
        let notes = vec!["nothing else is there".into()];
        let group = SignalGroup { title: "JVM", signals: vec![number, text], notes };
        let listing = Listing { pid: 7, program: "java".into(), groups: vec![group] };
        let expected = "Signals of process 7 (java)\n\nJVM\n  jvm:a       7 events  counter\n  jvm:longer     No GC  \
                        tag\n  nothing else is there\n";
        assert_eq!(listing.render(31, false), expected);
        let narrow = listing.render(20, false);
        assert!(narrow.lines().skip(1).all(|line| display_width(line) <= 20), "{narrow}");
    }
}
