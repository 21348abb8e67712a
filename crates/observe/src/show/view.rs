//! The view on a terminal during an observation: bars of the most frequent tag values, and distributions of rates.

use std::fmt::Write as _;
use std::io::stderr;

use crate::analysis::spread::Distribution;
use crate::analysis::tags::TagTable;
use crate::analysis::{Analysis, Operand, Rate};
use crate::observed::SignalNames;
use sidelane_host::tsc::Clock;
use sidelane_report::terminal;

/// Limit of the number of a tag's values that are shown.
const VALUES_SHOWN: usize = 12;
/// Number of bars of a distribution.
const BARS: usize = 12;
/// Limit of the length of bars and names, in columns.
const BAR_WIDTH: usize = 40;
const NAME_WIDTH: usize = 32;
/// Number of columns of a line without bar and name: ` NAME 100.00 % BAR`.
const FIXED_WIDTH: usize = 2 + 1 + 6 + 2 + 2;

/// Returns the histograms of `analysis` as lines of at most `width` columns.
pub fn histograms(analysis: &Analysis, names: &SignalNames, clock: &Clock, width: usize) -> String {
    let columns = Columns::for_width(width);
    let mut text = String::new();
    for (number, table) in analysis.tags.iter().enumerate() {
        write_tag_histogram(&mut text, number, table, names, columns);
    }
    for (rate, samples) in analysis.recipe().rates.iter().zip(&analysis.rates) {
        write_rate_histogram(&mut text, rate, &samples.kept, clock, columns);
    }
    text
}

/// Widths of the parts of a line, in columns.
#[derive(Clone, Copy)]
struct Columns {
    all: usize,
    name: usize,
    bar: usize,
}

impl Columns {
    fn for_width(width: usize) -> Self {
        let free = width.saturating_sub(FIXED_WIDTH);
        let name = (free / 2).min(NAME_WIDTH);
        Self { all: width, name, bar: (free - name).min(BAR_WIDTH) }
    }

    fn write_heading(self, text: &mut String, words: &str) {
        let _ = writeln!(text, "{}", shorten_name(words, self.all));
    }

    fn write_bar_line(self, text: &mut String, name: &str, share: f64, share_of_longest: f64) {
        let (width, percent) = (self.name, 100.0 * share);
        let _ = writeln!(text, "  {name:width$} {percent:6.2} %  {}", draw_bar(share_of_longest, self.bar));
    }
}

fn write_tag_histogram(text: &mut String, tag_index: usize, table: &TagTable, names: &SignalNames, columns: Columns) {
    let hottest = table.values_by_frequency();
    let share_of = table.time_share_function();
    let seen = format!("{} ({} values, {} changes seen)", names.tag(tag_index), hottest.len(), table.turn_count());
    columns.write_heading(text, &seen);
    let most = hottest.iter().map(|(seen, _)| share_of(seen)).fold(f64::MIN_POSITIVE, f64::max);
    for (seen, _) in hottest.iter().take(VALUES_SHOWN) {
        let name = shorten_name(&names.value(tag_index, seen.value), columns.name);
        columns.write_bar_line(text, &name, share_of(seen), share_of(seen) / most);
    }
    let rest = hottest.iter().skip(VALUES_SHOWN).map(|(seen, _)| share_of(seen)).sum::<f64>()
        + share_of(&table.counts_of_values_without_entry());
    if rest > 0.0 {
        columns.write_bar_line(text, "(others)", rest, rest / most);
    }
}

fn write_rate_histogram(text: &mut String, rate: &Rate, kept: &Distribution, clock: &Clock, columns: Columns) {
    columns.write_heading(text, &format!("{} ({} samples kept)", rate.name, kept.count()));
    let (Some(low), Some(high)) = (kept.percentile(0.5), kept.percentile(99.5)) else { return };
    // A signal with a constant value has one bar.
    let shown = if high > low { BARS } else { 1 };
    let step = ((high - low) / shown as f64).max(f64::MIN_POSITIVE);
    let mut bars = [0_u64; BARS];
    for (value, count) in kept.buckets() {
        let bar = ((value - low) / step).clamp(0.0, shown as f64 - 1.0) as usize;
        bars[bar] += count;
    }
    let (most, all) = (bars.iter().max().copied().unwrap_or(1).max(1), kept.count());
    let width = columns.name;
    for (number, count) in bars.iter().take(shown).enumerate() {
        let from = format_rate(rate, low + step * number as f64, clock);
        let name = format!("{from:>width$}");
        columns.write_bar_line(text, &name, *count as f64 / all as f64, *count as f64 / most as f64);
    }
}

/// Returns a rate as text: per second if its denominator is time, else as a quotient.
pub fn format_rate(rate: &Rate, value: f64, clock: &Clock) -> String {
    match rate_unit(rate) {
        RateUnit::PerSecond => sidelane_report::Unit::PerS.human(value * clock.cycles_per_ns * 1e9),
        RateUnit::Quotient => format!("{value:.3}"),
    }
}

/// Unit in which a rate is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateUnit {
    /// Events per cycle, shown as events per second.
    PerSecond,
    /// Events of one counter per event of another counter.
    Quotient,
}

/// Returns the unit in which a rate is shown.
pub fn rate_unit(rate: &Rate) -> RateUnit {
    match (rate.count, rate.per) {
        (Operand::Counter(_), Operand::Cycles | Operand::EndCycles) => RateUnit::PerSecond,
        _ => RateUnit::Quotient,
    }
}

fn draw_bar(share: f64, width: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    "█".repeat(eighths / 8) + part
}

fn shorten_name(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    // The end of a qualified name is more specific than its beginning.
    format!("…{}", name.chars().skip(length + 1 - width.max(1)).collect::<String>())
}

/// Histograms on a terminal during an observation; each drawing replaces the previous one.
pub struct LiveView {
    on: bool,
    lines: usize,
}

impl LiveView {
    /// Returns a view that draws only if `on` is set.
    pub fn new(is_enabled: bool) -> Self {
        Self { on: is_enabled, lines: 0 }
    }

    /// Draws the analysis so far.
    pub fn show(&mut self, analysis: &Analysis, names: &SignalNames, clock: &Clock) {
        if !self.on {
            return;
        }
        let (width, height) = terminal::terminal_size(stderr());
        let text = histograms(analysis, names, clock, width);
        let shown = cut_to_height(&text, height);
        self.clear();
        terminal::eprint(&shown);
        self.lines = shown.lines().count();
    }

    /// Erases the last drawing.
    pub fn clear(&mut self) {
        if self.lines > 0 {
            // The escape sequence moves to the first line of the drawing, and erases from there.
            terminal::eprint(&format!("\x1b[{}F\x1b[J", self.lines));
            self.lines = 0;
        }
    }
}

/// Returns the lines that the terminal can erase again: one fewer than its height. Lines that have scrolled out stay.
fn cut_to_height(text: &str, height: usize) -> String {
    let room = height.saturating_sub(1);
    if text.lines().count() <= room {
        return text.to_owned();
    }
    let kept = text.split_inclusive('\n').take(room.saturating_sub(1));
    kept.chain((room > 0).then_some("…\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::sample;

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let mut seen = sample::observation();
        seen.names.signals[0] = "a::very::long::name::of::a::signal::that::nobody::wanted::to::type::in::full".into();
        for width in [40, 60, 80, 120] {
            let text = seen.histograms(width);
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width, "{widest} characters for {width}:\n{text}");
        }
        assert!(seen.histograms(80).contains("█"));
        assert!(!seen.histograms(80).contains('\x1b'), "no colours, whatever NO_COLOR says");
    }

    #[test]
    fn redrawn_view_fits_into_the_terminal() {
        let text = "1\n2\n3\n4\n5\n";
        assert_eq!(cut_to_height(text, 6), text);
        assert_eq!(cut_to_height(text, 5), "1\n2\n3\n…\n");
        assert_eq!(cut_to_height(text, 2), "…\n");
        assert_eq!((cut_to_height(text, 1), cut_to_height(text, 0)), (String::new(), String::new()));
    }
}
