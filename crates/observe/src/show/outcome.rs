//! The result of an observation as rows and notes.

use serde_json::{Map, Value, json};

use crate::analysis::events::Events;
use crate::analysis::tags::{RateSum, ValueCounts};
use crate::analysis::{Rate, RateSamples};
use crate::cost::Slowdown;
use crate::finding::{Finding, derive_finding};
use crate::note::ObserveNote;
use crate::observed::Observed;
use crate::show::view::{RateUnit, histograms, rate_unit};
use sidelane_diagnostics::machine;
use sidelane_diagnostics::note::{Note, notes_as_text};
use sidelane_host::topology::PairKind;
use sidelane_report::{ResultFile, Row};

/// Limit of the number of a tag's values that get a row each.
const ROWS_A_TAG: usize = 200;

impl Observed {
    /// Returns the result for JSON, tables and pages.
    pub fn to_result(&self) -> ResultFile {
        let same_core = self.places.as_ref().is_some_and(|places| places.same_core);
        let kind = if same_core { PairKind::Smt } else { PairKind::Declared };
        let mut result = ResultFile::new(machine::describe(kind), self.settings());
        result.rows = vec![self.own_row()];
        result.rows.extend(self.rate_rows());
        result.rows.extend(self.event_rows());
        result.rows.extend((0..self.analysis.tags.len()).flat_map(|tag| self.tag_rows(tag)));
        result.notes = notes_as_text(&self.all_notes());
        self.draw(&mut result);
        result
    }

    /// Returns the histograms as text for a terminal of `width` columns.
    pub fn histograms(&self, width: usize) -> String {
        histograms(&self.analysis, &self.names, &self.clock, width)
    }

    fn settings(&self) -> Map<String, Value> {
        let lane = |cpu: Option<u32>| cpu.map_or(Value::Null, Value::from);
        let settings = json!({
            "title": format!("Sidelane observe: {}", self.target),
            "finding": sentences(derive_finding(self)),
            "explanation": [
                "An observer thread on a lane of its own read the signals below continuously. Cycles are those of the \
                 time stamp counter. Rates are of samples whose two clock readings agree (double-time error \
                 correction); their number is given.",
            ],
            "target": self.target,
            "period": self.period.to_string(),
            "tolerance_percent": self.tolerance * 100.0,
            "observed_lane": lane(self.places.as_ref().and_then(|places| places.observed)),
            "observer_lane": lane(self.places.as_ref().map(|places| places.observer)),
            "cycles_per_s": self.clock.cycles_per_ns * 1e9,
            "signals": self.names.signals,
        });
        match settings {
            Value::Object(settings) => settings,
            _ => unreachable!("an object was written above"),
        }
    }

    /// Returns the row on the observer itself: the rate of samples and the cost.
    pub(super) fn own_row(&self) -> Row {
        let analysis = &self.analysis;
        let mut row = Row::new("observer");
        row.put("length_s", self.wall_s);
        row.put("samples_count", analysis.samples as f64);
        row.put("period_min_cycles", analysis.periods.min());
        row.put("period_p50_cycles", analysis.periods.percentile(50.0));
        row.put("period_p99_cycles", analysis.periods.percentile(99.0));
        row.put("period_mean_cycles", analysis.periods.mean());
        if analysis.recipe().only_target {
            row.put("of_target_percent", percent(analysis.attributed, analysis.samples));
        }
        if analysis.recipe().layout.counters > 0 || !analysis.recipe().rates.is_empty() {
            row.put("kept_percent", analysis.valid_share().map(|share| share * 100.0));
            row.put("gap_p50_cycles", analysis.gaps.percentile(50.0));
            row.put("gap_max_cycles", analysis.gaps.max());
        }
        put_cost(&mut row, self.slowdown.as_ref());
        let turns: u64 = analysis.tags.iter().map(|tags| tags.turn_count()).sum();
        row.put("line_transfers_min_per_s", turns as f64 / self.wall_s);
        row
    }

    pub(super) fn rate_rows(&self) -> Vec<Row> {
        let rates = self.analysis.recipe().rates.iter().zip(&self.analysis.rates);
        rates.map(|(rate, samples)| self.rate_row(rate, samples)).collect()
    }

    fn rate_row(&self, rate: &Rate, samples: &RateSamples) -> Row {
        let mut row = Row::new(format!("rate of {}", rate.name));
        let unit = unit_suffix(rate);
        let mut put = |name: &str, value: Option<f64>| {
            row.put(&format!("{name}_{unit}"), value.map(|value| self.in_display_unit(rate, value)));
        };
        put("mean", samples.sum.mean());
        put("min", samples.kept.min());
        for percent in [1, 10, 50, 90, 99] {
            put(&format!("p{percent}"), samples.kept.percentile(f64::from(percent)));
        }
        put("max", samples.kept.max());
        put("all_min", samples.raw.min());
        put("all_max", samples.raw.max());
        row
    }

    /// Returns a row for each counter, however often it changed.
    pub(super) fn event_rows(&self) -> Vec<Row> {
        let events = self.analysis.events.iter().enumerate();
        events.map(|(counter, events)| self.event_row(&self.names.signals[counter], events)).collect()
    }

    fn event_row(&self, counter: &str, events: &Events) -> Row {
        let ns = |cycles: Option<f64>| cycles.map(|cycles| cycles / self.clock.cycles_per_ns);
        let seconds = self.clock.cycles_to_ns(events.observed_cycles()) / 1e9;
        let mut row = Row::new(format!("events of {counter}"));
        row.put("events_count", events.count as f64);
        row.put("events_per_s", (seconds > 0.0).then(|| events.count as f64 / seconds));
        row.put("unseen_count", events.unseen as f64);
        row.put("apart_min_ns", ns(events.distances.min()));
        for percent in [1, 50, 99] {
            row.put(&format!("apart_p{percent}_ns"), ns(events.distances.percentile(f64::from(percent))));
        }
        row.put("apart_max_ns", ns(events.distances.max()));
        row
    }

    /// Returns a row for each value of a tag, the most frequent first.
    pub(super) fn tag_rows(&self, tag: usize) -> Vec<Row> {
        let table = &self.analysis.tags[tag];
        let share_of = table.time_share_function();
        let row = |(seen, rates): &(ValueCounts, &[RateSum])| {
            self.tag_row(tag, &self.names.value(tag, seen.value), seen, rates, share_of(seen))
        };
        let others = table.counts_of_values_without_entry();
        let no_room =
            (others.samples > 0).then(|| self.tag_row(tag, "(no room in the table)", &others, &[], share_of(&others)));
        table.values_by_frequency().iter().take(ROWS_A_TAG).map(row).chain(no_room).collect()
    }

    fn tag_row(&self, tag: usize, value: &str, seen: &ValueCounts, rates: &[RateSum], share: f64) -> Row {
        let mut row = Row::new(format!("{}: {value}", self.names.tag(tag)));
        row.put("share_percent", share * 100.0);
        row.put("reads_count", seen.samples as f64);
        row.put("turns_count", seen.turns as f64);
        for (rate, sum) in self.analysis.recipe().rates.iter().zip(rates) {
            row.put(&key_of_rate(rate), sum.mean().map(|mean| self.in_display_unit(rate, mean)));
        }
        row
    }

    /// Returns the rate in its display unit: per second if its denominator is time.
    pub(super) fn in_display_unit(&self, rate: &Rate, value: f64) -> f64 {
        match rate_unit(rate) {
            RateUnit::PerSecond => value * self.clock.cycles_per_ns * 1e9,
            RateUnit::Quotient => value,
        }
    }

    pub(super) fn all_notes(&self) -> Vec<Note> {
        let mut notes: Vec<Note> = self.ended.note().into_iter().map(Note::from).collect();
        if let Some(logged) = &self.logged {
            notes.extend(logged.problem.clone());
            if logged.left_out > 0 {
                let all = logged.left_out + logged.samples;
                notes.push(ObserveNote::LogLeftOut { left_out: logged.left_out, all }.into());
            }
        }
        notes.extend(self.notes.iter().cloned());
        notes
    }
}

/// Returns all sentences of a finding in one list.
fn sentences(finding: Finding) -> Vec<String> {
    let Finding { mut sentences, cost, left_out } = finding;
    sentences.push(cost);
    sentences.extend(left_out);
    sentences
}

fn put_cost(row: &mut Row, slowdown: Option<&Slowdown>) {
    row.put("slowdown_percent", slowdown.and_then(|slowdown| slowdown.percent));
    row.put("slowdown_low_percent", slowdown.and_then(|slowdown| slowdown.low_percent));
    row.put("slowdown_high_percent", slowdown.and_then(|slowdown| slowdown.high_percent));
    row.put("slowdown_pairs_count", slowdown.map(|slowdown| slowdown.pairs as f64));
    row.put("events_per_pair_count", slowdown.map(|slowdown| slowdown.events_a_pair));
}

fn unit_suffix(rate: &Rate) -> &'static str {
    match rate_unit(rate) {
        RateUnit::PerSecond => "per_s",
        RateUnit::Quotient => "ratio",
    }
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// Returns the key of a rate in the rows of tags.
pub(super) fn key_of_rate(rate: &Rate) -> String {
    format!("{}_{}", key_of(&rate.name), unit_suffix(rate))
}

/// Returns a signal's name in the form of a key.
fn key_of(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}
