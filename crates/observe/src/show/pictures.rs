//! The pictures of an observation: signals over time, frequent tag values with their rates, grids of two rates, and
//! distributions of rates.

use std::collections::HashMap;

use crate::analysis::grid::{GRID, smallest_rate_of_bucket};
use crate::analysis::series::{Bin, Series as Bins};
use crate::analysis::tags::{RateSum, ValueCounts as SeenValue};
use crate::analysis::{Rate, RateSamples};
use crate::observed::Observed;
use crate::show::view::{RateUnit, rate_unit};
use sidelane_report::chart::{BarRow, Bars, Cell, Heatmap, Line, Multiples, Panel, Quantity, ScaleKind};
use sidelane_report::picture::{Series, SignalSeries, SignalValues};
use sidelane_report::{ResultFile, Unit};

/// Limit of the number of a tag's values that get a bar each.
const BARS_MAX: usize = 15;
/// Number of significant digits of a drawn number, in place of the 17 of a floating-point number.
const DIGITS: i32 = 6;

impl Observed {
    /// Adds all pictures to `result`.
    pub(super) fn draw(&self, result: &mut ResultFile) {
        result.series = self.signals_over_time().into_iter().collect();
        result.bars = (0..self.analysis.tags.len()).map(|tag| self.frequent_values_chart(tag)).collect();
        result.heatmaps = self.heatmap_of_two_rates().into_iter().collect();
        result.multiples = self.rate_distributions().into_iter().collect();
    }

    /// Returns the start of the earliest bin, in cycles.
    pub(super) fn begin_cycles(&self) -> u64 {
        let tags = self.analysis.tag_series.iter();
        let all = tags.chain(self.analysis.rates.iter().map(|samples| &samples.series));
        all.filter_map(|series| series.bins().next()).map(|(at, _)| at).min().unwrap_or(self.clock.zero_cycles)
    }

    fn signals_over_time(&self) -> Option<Series> {
        let tags = self.analysis.tag_series.iter().enumerate().map(|(tag, bins)| self.tag_over_time(tag, bins));
        let rates = self.analysis.recipe().rates.iter().zip(&self.analysis.rates);
        let rates = rates.map(|(rate, samples)| self.rate_over_time(rate, samples));
        let signals: Vec<SignalSeries> = tags.chain(rates).filter(|signal| !signal.samples.is_empty()).collect();
        (!signals.is_empty()).then(|| Series {
            title: "Over time".into(),
            caption: "Rates: the mean of the kept samples of each moment, in a band from lowest to highest. Tags: the \
                      last value of each moment; if several share a pixel, by their shares. Zoom with the wheel or the \
                      buttons; drag to move."
                .into(),
            signals,
        })
    }

    fn build_signal_series(
        &self,
        name: &str,
        series: &Bins,
        values_of_bins: impl FnOnce(&[Bin]) -> SignalValues,
    ) -> SignalSeries {
        let (length, bins) = series.bins_for_drawing();
        let us = |cycles: u64| round_to_digits(self.clock.cycles_to_ns(cycles) / 1e3, 12);
        let from = bins.first().map_or(0, |(at, _)| at - self.begin_cycles());
        let bins: Vec<Bin> = bins.into_iter().map(|(_, bin)| bin).collect();
        SignalSeries {
            name: name.to_owned(),
            from_us: us(from),
            bin_us: us(length),
            samples: bins.iter().map(|bin| bin.samples).collect(),
            values: values_of_bins(&bins),
        }
    }

    fn rate_over_time(&self, rate: &Rate, samples: &RateSamples) -> SignalSeries {
        let told = |bins: &[Bin], value: fn(&Bin) -> f64| {
            let of =
                |bin: &Bin| (bin.samples > 0).then(|| round_to_digits(self.in_display_unit(rate, value(bin)), DIGITS));
            bins.iter().map(of).collect()
        };
        self.build_signal_series(&rate.name, &samples.series, |bins| SignalValues::Rate {
            unit: unit(rate),
            mean: told(bins, |bin| bin.mean().unwrap_or(0.0)),
            min: told(bins, |bin| bin.min),
            max: told(bins, |bin| bin.max),
        })
    }

    /// Returns the picture of a tag over time. Values with bars come first, so that they have the colours of the bars.
    fn tag_over_time(&self, tag: usize, series: &Bins) -> SignalSeries {
        let values = self.values_by_float_bits(tag);
        self.build_signal_series(self.names.tag(tag), series, |bins| {
            let in_bins: Vec<Option<u64>> =
                bins.iter().map(|bin| values.get(&bin.last.to_bits()).copied().filter(|_| bin.samples > 0)).collect();
            let hottest = self.analysis.tags[tag].values_by_frequency().into_iter().map(|(seen, _)| seen.value);
            let mut places = HashMap::new();
            let mut names = Vec::new();
            for value in hottest.take(BARS_MAX).chain(in_bins.iter().copied().flatten()) {
                places.entry(value).or_insert_with(|| {
                    names.push(self.names.value(tag, value));
                    names.len() as u32 - 1
                });
            }
            let place = |value: &Option<u64>| value.map(|value| places[&value]);
            SignalValues::Tag { names, last: in_bins.iter().map(place).collect() }
        })
    }

    /// Returns the values of a tag, each under the bits of its floating-point form, in which a series stores it.
    pub(super) fn values_by_float_bits(&self, tag: usize) -> HashMap<u64, u64> {
        let table = &self.analysis.tags[tag];
        let value = |value: u64| ((value as f64).to_bits(), value);
        // Values that are not in the table are converted back from floating point. Those too large for an exact
        // conversion are left out.
        let bins =
            self.analysis.tag_series[tag].bins().filter(|(_, bin)| bin.last < 2f64.powi(f64::MANTISSA_DIGITS as i32));
        let seen = table.values_by_frequency().into_iter().map(|(seen, _)| seen.value);
        bins.map(|(_, bin)| bin.last as u64).chain(seen).map(value).collect()
    }

    fn frequent_values_chart(&self, tag: usize) -> Bars {
        let table = &self.analysis.tags[tag];
        let rates = &self.analysis.recipe().rates;
        let share_of = table.time_share_function();
        let hottest = table.values_by_frequency();
        let row = |(seen, sums): &(SeenValue, &[RateSum])| BarRow {
            name: self.names.value(tag, seen.value),
            values: std::iter::once(Some(round_to_digits(100.0 * share_of(seen), DIGITS)))
                .chain(
                    rates
                        .iter()
                        .zip(*sums)
                        .map(|(rate, sum)| Some(round_to_digits(self.in_display_unit(rate, sum.mean()?), DIGITS))),
                )
                .collect(),
        };
        let of_rate = |rate: &Rate| Quantity { name: rate.name.clone(), unit: unit(rate) };
        let of = if hottest.len() > BARS_MAX {
            format!("the {BARS_MAX} most frequent of {} values", hottest.len())
        } else {
            "value".into()
        };
        let share = Quantity { name: "share of time".into(), unit: Unit::Percent };
        let rate_words = if rates.is_empty() { "" } else { ", and the mean of each rate during it" };
        Bars {
            title: format!("Most frequent values of {}", self.names.tag(tag)),
            caption: format!(
                "The share of time of each value{rate_words}. The longest bar of a column is its highest value."
            ),
            of,
            columns: std::iter::once(share).chain(rates.iter().map(of_rate)).collect(),
            rows: hottest.iter().take(BARS_MAX).map(row).collect(),
        }
    }

    fn heatmap_of_two_rates(&self) -> Option<Heatmap> {
        let [first, second, ..] = self.analysis.recipe().rates.as_slice() else { return None };
        let side = |rate: &Rate, bucket: usize| {
            let of =
                |bucket: usize| round_to_digits(self.in_display_unit(rate, smallest_rate_of_bucket(bucket)), DIGITS);
            (of(bucket), of(bucket + 1))
        };
        let seen = self.analysis.grid.iter().enumerate().filter(|(_, count)| **count > 0);
        let cell = |(place, count): (usize, &u32)| Cell {
            across: side(first, place % GRID),
            up: side(second, place / GRID),
            count: u64::from(*count),
        };
        let quantity = |rate: &Rate| Quantity { name: rate.name.clone(), unit: unit(rate) };
        let cells: Vec<Cell> = seen.map(cell).collect();
        (!cells.is_empty()).then(|| Heatmap {
            title: format!("{} against {}", first.name, second.name),
            caption: "How often two rates occurred together, in the kept samples. Axes and colour are logarithmic."
                .into(),
            across: quantity(first),
            up: quantity(second),
            cells,
        })
    }

    fn rate_distributions(&self) -> Option<Multiples> {
        let panel = |(rate, samples): (&Rate, &RateSamples)| {
            let points = (1..100).filter_map(|percent| {
                let value = samples.kept.percentile(f64::from(percent))?;
                Some((f64::from(percent), self.in_display_unit(rate, value)))
            });
            Panel {
                title: rate.name.clone(),
                unit: unit(rate),
                scale: ScaleKind::Linear,
                up_to: None,
                limit: None,
                lines: vec![Line { setting: rate.name.clone(), points: points.collect() }],
            }
        };
        let panels: Vec<Panel> = self.analysis.recipe().rates.iter().zip(&self.analysis.rates).map(panel).collect();
        (!panels.is_empty()).then(|| Multiples {
            title: "Distribution of rates".into(),
            caption: "For each percentage, the value that this share of the kept samples does not exceed.".into(),
            across: "samples".into(),
            across_unit: Unit::Percent,
            panels,
            columns: 2,
        })
    }
}

fn unit(rate: &Rate) -> Unit {
    match rate_unit(rate) {
        RateUnit::PerSecond => Unit::PerS,
        RateUnit::Quotient => Unit::Ratio,
    }
}

/// Returns `value` rounded to `digits` digits.
fn round_to_digits(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let behind_point = digits - 1 - value.abs().log10().floor() as i32;
    // Powers of ten are exact in floating point, their inverses are not.
    let scale = 10f64.powi(behind_point.abs());
    if behind_point >= 0 { (value * scale).round() / scale } else { (value / scale).round() * scale }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::sample;

    #[test]
    fn all_signals_cover_the_same_time() {
        let result = sample::observation().to_result();
        let [series] = result.series.as_slice() else { panic!("{:?}", result.series) };
        let names: Vec<&str> = series.signals.iter().map(|signal| signal.name.as_str()).collect();
        assert_eq!(names, ["phase", "hits", "misses"]);
        for signal in &series.signals {
            let us = signal.from_us + signal.bin_us * signal.samples.len() as f64;
            assert!((us - 10_000.0).abs() < 2.0 * signal.bin_us, "10 ms at two cycles a nanosecond, not {us} µs");
        }
        let SignalValues::Tag { names, last } = &series.signals[0].values else { panic!("{series:?}") };
        assert_eq!(
            (names.as_slice(), last[0], last.last()),
            (["1".into(), "2".into()].as_slice(), Some(0), Some(&Some(1)))
        );
        let SignalValues::Rate { mean, max, unit, .. } = &series.signals[1].values else { panic!("{series:?}") };
        assert_eq!((*unit, mean[0], max[0]), (Unit::PerS, Some(1e8), Some(1e8)), "50 a thousand cycles");
    }

    #[test]
    fn frequent_values_have_their_share_and_their_rates() {
        let result = sample::observation().to_result();
        let [bars] = result.bars.as_slice() else { panic!("{:?}", result.bars) };
        assert_eq!(
            bars.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(),
            ["share of time", "hits", "misses"]
        );
        let slow = bars.rows.iter().find(|row| row.name == "2").unwrap();
        assert!((slow.values[0].unwrap() - 50.0).abs() < 0.1);
        assert!((slow.values[1].unwrap() - 4e6).abs() < 1e5, "{slow:?}");
    }

    #[test]
    fn heatmap_compares_two_rates() {
        let result = sample::observation().to_result();
        let [map] = result.heatmaps.as_slice() else { panic!("{:?}", result.heatmaps) };
        assert_eq!(map.cells.len(), 2, "fast and slow: {:?}", map.cells);
        let fast = map.cells.iter().find(|cell| cell.across.0 > 1e7).unwrap();
        assert!(fast.across.0 <= 1e8 && 1e8 < fast.across.1, "{fast:?}");
        assert_eq!(map.cells.iter().map(|cell| cell.count).sum::<u64>(), sample::SAMPLES - 1);
    }

    #[test]
    fn drawn_numbers_are_rounded_to_their_first_digits() {
        assert_eq!(round_to_digits(123_456_789.0, 6), 123_457_000.0);
        assert_eq!(round_to_digits(0.001_234_567_89, 6), 0.001_234_57);
        assert_eq!((round_to_digits(0.0, 6), round_to_digits(-2.5, 6)), (0.0, -2.5));
    }
}
