//! An observation as a result: rows, notes and pictures.

use serde_json::{Map, Value, json};

use super::analysis::tags::{RateSum, Seen};
use super::analysis::{Rate, RateSamples};
use super::observation::Observation;
use super::view::{RateUnit, histograms, rate_unit};
use crate::lane::topology::PairKind;
use crate::machine;
use crate::report::chart::{Line, Multiples, Panel, ScaleKind};
use crate::report::{ResultFile, Row, Unit};

/// Values of a tag with a row of their own.
const ROWS_A_TAG: usize = 200;
/// Points of a line in a picture.
const POINTS_MAX: usize = 600;

impl Observation {
    /// For programs, tables and pages.
    pub fn to_result(&self) -> ResultFile {
        let same_core = self.places.as_ref().is_some_and(|places| places.same_core);
        let kind = if same_core { PairKind::Smt } else { PairKind::Declared };
        let mut result = ResultFile::new(machine::describe(kind), self.settings());
        result.rows = vec![self.own_row()];
        result.rows.extend(self.rate_rows());
        result.rows.extend(self.tag_rows());
        result.notes = self.all_notes();
        result.multiples = self.pictures();
        result
    }

    /// The histograms, for a terminal.
    pub fn histograms(&self) -> String {
        histograms(&self.analysis, &self.names, &self.clock)
    }

    fn settings(&self) -> Map<String, Value> {
        let lane = |cpu: Option<u32>| cpu.map_or(Value::Null, Value::from);
        let settings = json!({
            "title": format!("Sidelane observe: {}", self.target),
            "explanation": [
                "An observer thread on a lane of its own read the signals below, again and again. Cycles are those of \
                 the time stamp counter. Rates are of the periods in which both readings of the clock agree \
                 (double-time error correction); their number is told.",
            ],
            "target": self.target,
            "period": self.period.to_string(),
            "tolerance_percent": self.tolerance * 100.0,
            "observed_lane": lane(self.places.as_ref().and_then(|places| places.observed)),
            "observer_lane": lane(self.places.as_ref().map(|places| places.observer)),
            "cycles_per_ns": self.clock.cycles_per_ns,
            "signals": self.names.signals,
        });
        match settings {
            Value::Object(settings) => settings,
            _ => unreachable!("an object was written above"),
        }
    }

    /// The observer itself: what it achieved and what it cost.
    fn own_row(&self) -> Row {
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
            row.put("kept_percent", analysis.kept_share().map(|share| share * 100.0));
            row.put("gap_p50_cycles", analysis.gaps.percentile(50.0));
            row.put("gap_max_cycles", analysis.gaps.max());
        }
        row.put("slowdown_percent", self.slowdown.map(|slowdown| slowdown.percent));
        row.put("slowdown_pairs_count", self.slowdown.map(|slowdown| slowdown.pairs as f64));
        let turns: u64 = analysis.tags.iter().map(|tags| tags.turns()).sum();
        row.put("line_transfers_min_per_s", turns as f64 / self.wall_s);
        row
    }

    fn rate_rows(&self) -> Vec<Row> {
        let rates = self.analysis.recipe().rates.iter().zip(&self.analysis.rates);
        rates.map(|(rate, samples)| self.rate_row(rate, samples)).collect()
    }

    fn rate_row(&self, rate: &Rate, samples: &RateSamples) -> Row {
        let mut row = Row::new(format!("rate of {}", rate.name));
        let unit = suffix(rate);
        let mut put = |name: &str, value: Option<f64>| {
            row.put(&format!("{name}_{unit}"), value.map(|value| self.scaled(rate, value)));
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

    fn tag_rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (number, table) in self.analysis.tags.iter().enumerate() {
            let hottest = table.hottest();
            let share_of = table.share();
            let row = |(seen, rates): &(Seen, &[RateSum])| {
                self.tag_row(number, &self.names.value(number, seen), seen, rates, share_of(seen))
            };
            rows.extend(hottest.iter().take(ROWS_A_TAG).map(row));
            let others = table.others();
            if others.samples > 0 {
                rows.push(self.tag_row(number, "(no room in the table)", &others, &[], share_of(&others)));
            }
        }
        rows
    }

    fn tag_row(&self, tag: usize, value: &str, seen: &Seen, rates: &[RateSum], share: f64) -> Row {
        let mut row = Row::new(format!("{}: {value}", self.names.tag(tag)));
        row.put("share_percent", share * 100.0);
        row.put("reads_count", seen.samples as f64);
        row.put("turns_count", seen.turns as f64);
        for (rate, sum) in self.analysis.recipe().rates.iter().zip(rates) {
            let key = format!("{}_{}", key_of(&rate.name), suffix(rate));
            row.put(&key, sum.mean().map(|mean| self.scaled(rate, mean)));
        }
        row
    }

    fn scaled(&self, rate: &Rate, value: f64) -> f64 {
        match rate_unit(rate) {
            RateUnit::PerSecond => value * self.clock.cycles_per_ns * 1e9,
            RateUnit::Quotient => value,
        }
    }

    fn all_notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.ended.note().into_iter().collect();
        if let Some(logged) = &self.logged {
            notes.extend(logged.problem.clone());
            if logged.left_out > 0 {
                notes.push(format!(
                    "log: {} of {} samples were left out, the disk did not keep up; a longer --period logs them all",
                    logged.left_out,
                    logged.left_out + logged.samples
                ));
            }
        }
        notes.extend(self.notes.iter().cloned());
        notes
    }

    fn pictures(&self) -> Vec<Multiples> {
        let spreads = self.spread_panels();
        let series = self.series_panels();
        let mut pictures = Vec::new();
        if !series.is_empty() {
            pictures.push(Multiples {
                title: "Over time".into(),
                caption: "The mean of each moment's kept samples.".into(),
                across: "time".into(),
                across_unit: Unit::S,
                panels: series,
                columns: 1,
            });
        }
        if !spreads.is_empty() {
            pictures.push(Multiples {
                title: "How rates are spread".into(),
                caption: "The value that so many percent of the kept samples do not exceed.".into(),
                across: "samples".into(),
                across_unit: Unit::Percent,
                panels: spreads,
                columns: 2,
            });
        }
        pictures
    }

    fn spread_panels(&self) -> Vec<Panel> {
        let panel = |(rate, samples): (&Rate, &RateSamples)| {
            let points = (1..100).filter_map(|percent| {
                let value = samples.kept.percentile(f64::from(percent))?;
                Some((f64::from(percent), self.scaled(rate, value)))
            });
            self.panel(rate, points.collect())
        };
        self.analysis.recipe().rates.iter().zip(&self.analysis.rates).map(panel).collect()
    }

    fn series_panels(&self) -> Vec<Panel> {
        let panel = |(rate, samples): (&Rate, &RateSamples)| {
            let bins: Vec<_> = samples.series.bins().filter(|(_, bin)| bin.samples > 0).collect();
            let step = bins.len().div_ceil(POINTS_MAX).max(1);
            let start = bins.first().map_or(0, |(at, _)| *at);
            let point = |(at, bin): &(u64, &super::analysis::series::Bin)| {
                (self.clock.ns(at - start) / 1e9, self.scaled(rate, bin.mean().unwrap_or(0.0)))
            };
            self.panel(rate, bins.iter().step_by(step).map(point).collect())
        };
        self.analysis.recipe().rates.iter().zip(&self.analysis.rates).map(panel).collect()
    }

    fn panel(&self, rate: &Rate, points: Vec<(f64, f64)>) -> Panel {
        Panel {
            title: rate.name.clone(),
            unit: if rate_unit(rate) == RateUnit::PerSecond { Unit::PerS } else { Unit::Ratio },
            scale: ScaleKind::Linear,
            up_to: None,
            limit: None,
            lines: vec![Line { setting: rate.name.clone(), points }],
        }
    }
}

fn suffix(rate: &Rate) -> &'static str {
    match rate_unit(rate) {
        RateUnit::PerSecond => "per_s",
        RateUnit::Quotient => "ratio",
    }
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// A signal's name as a part of a key.
fn key_of(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}
