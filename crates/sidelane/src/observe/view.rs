//! What a terminal shows: bars of the hottest tags, and how rates are spread.

use std::fmt::Write as _;

use super::analysis::spread::Spread;
use super::analysis::tags::TagTable;
use super::analysis::{Analysis, Operand, Rate};
use super::clock::Clock;
use super::observation::Names;

/// Values of a tag that are shown.
const VALUES_SHOWN: usize = 12;
/// Bars of a spread.
const BARS: usize = 12;
const BAR_WIDTH: usize = 40;
const NAME_WIDTH: usize = 32;

/// The histograms of `analysis` as lines of text.
pub fn histograms(analysis: &Analysis, names: &Names, clock: &Clock) -> String {
    let mut text = String::new();
    for (number, table) in analysis.tags.iter().enumerate() {
        tag(&mut text, number, table, names);
    }
    for (rate, samples) in analysis.recipe().rates.iter().zip(&analysis.rates) {
        spread(&mut text, rate, &samples.kept, clock);
    }
    text
}

fn tag(text: &mut String, number: usize, table: &TagTable, names: &Names) {
    let hottest = table.hottest();
    let share_of = table.share();
    let _ = writeln!(text, "{} ({} values, {} changes seen)", names.tag(number), hottest.len(), table.turns());
    let most = hottest.iter().map(|(seen, _)| share_of(seen)).fold(f64::MIN_POSITIVE, f64::max);
    let line = |name: &str, share: f64| {
        format!("  {:NAME_WIDTH$} {:6.2} %  {}\n", shortened(name), 100.0 * share, bar(share / most))
    };
    for (seen, _) in hottest.iter().take(VALUES_SHOWN) {
        text.push_str(&line(&names.value(number, seen), share_of(seen)));
    }
    let rest =
        hottest.iter().skip(VALUES_SHOWN).map(|(seen, _)| share_of(seen)).sum::<f64>() + share_of(&table.others());
    if rest > 0.0 {
        text.push_str(&line("(others)", rest));
    }
}

fn spread(text: &mut String, rate: &Rate, kept: &Spread, clock: &Clock) {
    let _ = writeln!(text, "{} ({} samples kept)", rate.name, kept.count());
    let (Some(low), Some(high)) = (kept.percentile(0.5), kept.percentile(99.5)) else { return };
    let width = ((high - low) / BARS as f64).max(f64::MIN_POSITIVE);
    let mut bars = [0_u64; BARS];
    for (value, count) in kept.buckets() {
        let bar = ((value - low) / width).clamp(0.0, BARS as f64 - 1.0) as usize;
        bars[bar] += count;
    }
    let (most, all) = (bars.iter().max().copied().unwrap_or(1).max(1), kept.count());
    // A signal that does not vary has one bar.
    let shown = if high > low { BARS } else { 1 };
    for (number, count) in bars.iter().take(shown).enumerate() {
        let from = low + width * number as f64;
        let share = 100.0 * *count as f64 / all as f64;
        let name = rate_in_words(rate, from, clock);
        let _ = writeln!(text, "  {name:>NAME_WIDTH$} {share:6.2} %  {}", bar(*count as f64 / most as f64));
    }
}

/// A rate for a person: of time by the second, of events as a quotient.
pub fn rate_in_words(rate: &Rate, value: f64, clock: &Clock) -> String {
    match rate_unit(rate) {
        RateUnit::PerSecond => crate::report::Unit::PerS.human(value * clock.cycles_per_ns * 1e9),
        RateUnit::Quotient => format!("{value:.3}"),
    }
}

/// What a rate's number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateUnit {
    /// Events a cycle, told as events a second.
    PerSecond,
    /// Events for each event.
    Quotient,
}

/// What a rate's number is.
pub fn rate_unit(rate: &Rate) -> RateUnit {
    match (rate.count, rate.per) {
        (Operand::Counter(_), Operand::Cycles | Operand::EndCycles) => RateUnit::PerSecond,
        _ => RateUnit::Quotient,
    }
}

fn bar(share: f64) -> String {
    let eighths = (share.clamp(0.0, 1.0) * BAR_WIDTH as f64 * 8.0).round() as usize;
    let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    "█".repeat(eighths / 8) + part
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME_WIDTH {
        return name.to_owned();
    }
    // Of a qualified name the end says more than the beginning.
    let skipped = name.chars().count() - NAME_WIDTH + 1;
    format!("…{}", name.chars().skip(skipped).collect::<String>())
}

/// The histograms on a terminal, drawn over themselves.
pub struct Live {
    on: bool,
    lines: usize,
}

impl Live {
    /// Shows nothing unless `on`.
    pub fn new(on: bool) -> Self {
        Self { on, lines: 0 }
    }

    /// Draws what has been seen so far.
    pub fn show(&mut self, analysis: &Analysis, names: &Names, clock: &Clock) {
        if !self.on {
            return;
        }
        let text = histograms(analysis, names, clock);
        self.clear();
        eprint!("{text}");
        self.lines = text.lines().count();
    }

    /// Takes the last drawing away.
    pub fn clear(&mut self) {
        if self.lines > 0 {
            // Up to its first line, and erase from there.
            eprint!("\x1b[{}F\x1b[J", self.lines);
            self.lines = 0;
        }
    }
}
