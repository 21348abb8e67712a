//! The analysis of samples during the observation: lines 17 and 18 of the SHIM thesis's Figure 3.2.
//!
//! All memory is allocated at the start. The observer fills one analysis. When it checks whether to pause or end, it
//! may exchange the analysis for an empty one, and the receiver merges it into the whole.

pub mod events;
pub mod grid;
pub mod series;
pub mod spread;
pub mod tags;

use super::dte::{DoubleTimeErrorFilter, cycles_per_cycle};
use super::sample::{Layout, SIGNALS_MAX, Sample};
use events::Events;
use grid::{GRID, grid_bucket};
use series::Series;
use spread::Distribution;
use tags::{RateSum, TagTable};

/// A rate: the growth of a counter per cycle, or per event of another counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Name of the rate in results.
    pub name: String,
    /// Numerator of the rate.
    pub count: Operand,
    /// Denominator of the rate.
    pub per: Operand,
}

/// The numerator or denominator of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Counter with this index in the sample.
    Counter(usize),
    /// Cycles between the first clock readings of two consecutive samples.
    Cycles,
    /// Cycles between the second clock readings of two consecutive samples.
    EndCycles,
}

impl Operand {
    #[inline(always)]
    fn growth_between(self, before: &Sample, now: &Sample) -> u64 {
        match self {
            Operand::Counter(number) => now.values[number].wrapping_sub(before.values[number]),
            Operand::Cycles => now.start.wrapping_sub(before.start),
            Operand::EndCycles => now.end.wrapping_sub(before.end),
        }
    }
}

/// Specification of what to compute from the values of a sample.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Partition of a sample's values into counters and tags.
    pub layout: Layout,
    /// Rates to compute.
    pub rates: Vec<Rate>,
    /// Filter that finds the samples with valid rates.
    pub dte: DoubleTimeErrorFilter,
    /// Whether to use only samples during which a thread of the target ran.
    pub only_target: bool,
    /// Index of the tag for the running thread. Samples of this tag are used even if no thread of the target ran.
    pub lane_tag: Option<usize>,
}

/// Samples of one rate.
pub struct RateSamples {
    /// Distribution of the rate in the samples that the filter found valid.
    pub kept: Distribution,
    /// Distribution of the rate in all samples, valid or not.
    pub raw: Distribution,
    /// Sums over the valid samples; their quotient is the mean of the rate, weighted by time.
    pub sum: RateSum,
    /// Rate over time.
    pub series: Series,
}

/// Results computed from the samples so far.
pub struct Analysis {
    recipe: Recipe,
    /// Tables of values, one for each tag.
    pub tags: Vec<TagTable>,
    /// Values over time, one series for each tag.
    pub tag_series: Vec<Series>,
    /// Samples of the rates, in the order of the rates.
    pub rates: Vec<RateSamples>,
    /// Events of the counters, in the order of the counters.
    pub events: Vec<Events>,
    /// Grid of the first two rates, empty if there are fewer. A row is a bucket of the second rate.
    pub grid: Vec<u32>,
    /// Distribution of the distances between consecutive samples, in cycles.
    pub periods: Distribution,
    /// Distribution of the distances between consecutive valid samples, in cycles.
    pub gaps: Distribution,
    /// Distribution of CPC (cycles per cycle) in all samples.
    pub cpc: Distribution,
    /// Number of samples.
    pub samples: u64,
    /// Number of samples that were analysed: all, or only those during which a thread of the target ran.
    pub attributed: u64,
    /// Number of periods with valid rates: each turn of a thread has one period fewer than samples.
    pub kept: u64,
    /// Number of periods whose rates were discarded as invalid.
    pub discarded: u64,
    /// Time in which the observer read samples, in cycles.
    pub looked_cycles: u64,
    /// Growth of each counter since the previous sample, and whether any counter grew.
    grown: ([u64; SIGNALS_MAX], bool),
    /// Last sample; `None` if it was not used.
    before: Option<Sample>,
    /// Time of the last sample in cycles; 0 after an interruption.
    last_start: u64,
    last_kept: u64,
}

impl Analysis {
    /// Returns an empty analysis.
    pub fn new(recipe: Recipe) -> Self {
        let rate = |_: &Rate| RateSamples {
            kept: Distribution::default(),
            raw: Distribution::default(),
            sum: RateSum::default(),
            series: Series::default(),
        };
        let tags = recipe.layout.tags;
        Self {
            tags: (0..tags).map(|_| TagTable::new(recipe.rates.len(), recipe.layout.counters)).collect(),
            tag_series: vec![Series::default(); tags],
            rates: recipe.rates.iter().map(rate).collect(),
            events: vec![Events::default(); recipe.layout.counters],
            grid: vec![0; if recipe.rates.len() > 1 { GRID * GRID } else { 0 }],
            periods: Distribution::default(),
            gaps: Distribution::default(),
            cpc: Distribution::default(),
            samples: 0,
            attributed: 0,
            kept: 0,
            discarded: 0,
            looked_cycles: 0,
            grown: ([0; SIGNALS_MAX], false),
            before: None,
            last_start: 0,
            last_kept: 0,
            recipe,
        }
    }

    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Adds the next sample to all results.
    #[inline(always)]
    pub fn record(&mut self, sample: &Sample) {
        self.samples += 1;
        self.looked_cycles += self.cycles_since_last(sample);
        self.record_events(sample);
        if self.recipe.only_target && sample.thread == 0 {
            return self.record_sample_of_other_thread(sample);
        }
        self.attributed += 1;
        match self.before {
            Some(before) if before.thread == sample.thread => self.record_period(&before, sample),
            _ => self.record_turn_start(sample),
        }
        self.before = Some(*sample);
        self.last_start = sample.start;
    }

    /// Counts the events of all threads since the previous sample.
    #[inline(always)]
    fn record_events(&mut self, sample: &Sample) {
        let looked = self.last_start != 0;
        self.grown.1 = false;
        for (counter, events) in self.events.iter_mut().enumerate() {
            let grown = events.record(sample.start, sample.values[counter], looked);
            self.grown.0[counter] = grown;
            self.grown.1 |= grown > 0;
        }
    }

    /// Counts a sample's tag value, with the events since the previous sample. Returns the index of the value in the
    /// tag's table.
    #[inline(always)]
    fn count_tag(&mut self, tag: usize, sample: &Sample, cycles: u64) -> usize {
        let place = self.tags[tag].add_samples(sample.tag(self.recipe.layout, tag), 1, cycles);
        if self.grown.1 {
            for counter in 0..self.recipe.layout.counters {
                self.tags[tag].add_events(place, counter, self.grown.0[counter]);
            }
        }
        place
    }

    fn record_sample_of_other_thread(&mut self, sample: &Sample) {
        if let Some(tag) = self.recipe.lane_tag {
            self.count_tag(tag, sample, self.cycles_since_last(sample));
        }
        self.last_start = sample.start;
        self.before = None;
    }

    fn cycles_since_last(&self, sample: &Sample) -> u64 {
        if self.last_start == 0 { 0 } else { sample.start.wrapping_sub(self.last_start) }
    }

    /// Records the first sample of a thread's turn. Tags are valid in every sample; rates need a period of two samples.
    fn record_turn_start(&mut self, sample: &Sample) {
        for tag in 0..self.recipe.layout.tags {
            let cycles = if self.recipe.lane_tag == Some(tag) { self.cycles_since_last(sample) } else { 0 };
            self.count_tag(tag, sample, cycles);
        }
    }

    #[inline(always)]
    fn record_period(&mut self, before: &Sample, now: &Sample) {
        let cycles = now.start.wrapping_sub(before.start);
        self.periods.record(cycles as f64);
        let keeps = self.recipe.layout.counters > 0 && self.recipe.dte.is_period_valid(before, now);
        if self.recipe.layout.counters > 0 {
            self.cpc.record(cycles_per_cycle(before, now));
            self.record_rates(before, now, keeps);
        }
        for tag in 0..self.recipe.layout.tags {
            let value = now.tag(self.recipe.layout, tag);
            let place = self.count_tag(tag, now, cycles);
            self.tag_series[tag].record(now.start, value as f64);
            if keeps {
                for (number, rate) in self.recipe.rates.iter().enumerate() {
                    self.tags[tag].add_rate(
                        place,
                        number,
                        rate.count.growth_between(before, now),
                        rate.per.growth_between(before, now),
                    );
                }
            }
        }
    }

    #[inline(always)]
    fn record_rates(&mut self, before: &Sample, now: &Sample, is_valid: bool) {
        let mut cell = [0; 2];
        for (number, (rate, samples)) in self.recipe.rates.iter().zip(&mut self.rates).enumerate() {
            let (count, per) = (rate.count.growth_between(before, now), rate.per.growth_between(before, now));
            let value = count as f64 / per.max(1) as f64;
            samples.raw.record(value);
            if is_valid {
                samples.kept.record(value);
                samples.sum.add(count, per);
                samples.series.record(now.start, value);
                if let Some(place) = cell.get_mut(number) {
                    *place = grid_bucket(value);
                }
            }
        }
        if is_valid {
            self.count_valid_sample(now.start);
            if let Some(count) = self.grid.get_mut(cell[1] * GRID + cell[0]) {
                *count = count.saturating_add(1);
            }
        } else {
            self.discarded += 1;
        }
    }

    #[inline(always)]
    fn count_valid_sample(&mut self, at_cycles: u64) {
        self.kept += 1;
        if self.last_kept != 0 {
            self.gaps.record(at_cycles.wrapping_sub(self.last_kept) as f64);
        }
        self.last_kept = at_cycles;
    }

    /// Adds a run of `reads` reads that gave the same value. Used only if a single tag is watched, without periods
    /// between samples.
    #[inline(always)]
    pub fn record_run(&mut self, value: u64, reads: u64) {
        self.tags[0].add_samples(value, reads, 0);
    }

    /// Adds the time of a block of `reads` reads, from `start_cycles` to `end_cycles`. The last read gave `last_value`.
    #[inline(always)]
    pub fn record_block(&mut self, reads: u64, start_cycles: u64, end_cycles: u64, last_value: u64) {
        self.samples += reads;
        self.looked_cycles += end_cycles.wrapping_sub(start_cycles);
        self.attributed += reads;
        self.periods.record_times(end_cycles.wrapping_sub(start_cycles) as f64 / reads as f64, reads);
        self.tag_series[0].record(end_cycles, last_value as f64);
    }

    /// Clears the last sample, so that the next sample does not continue it.
    pub fn mark_gap(&mut self) {
        self.before = None;
        self.last_start = 0;
        self.last_kept = 0;
    }

    /// Adds the results of a later analysis to this analysis.
    pub fn append(&mut self, later: &Analysis) {
        self.tags.iter_mut().zip(&later.tags).for_each(|(tags, later)| tags.merge(later));
        self.tag_series.iter_mut().zip(&later.tag_series).for_each(|(series, later)| series.append(later));
        for (rate, later) in self.rates.iter_mut().zip(&later.rates) {
            rate.kept.merge(&later.kept);
            rate.raw.merge(&later.raw);
            rate.sum.merge(&later.sum);
            rate.series.append(&later.series);
        }
        self.events.iter_mut().zip(&later.events).for_each(|(events, later)| events.append(later));
        self.grid.iter_mut().zip(&later.grid).for_each(|(count, later)| *count = count.saturating_add(*later));
        [(&mut self.periods, &later.periods), (&mut self.gaps, &later.gaps), (&mut self.cpc, &later.cpc)]
            .into_iter()
            .for_each(|(spread, later)| spread.merge(later));
        self.samples += later.samples;
        self.attributed += later.attributed;
        self.kept += later.kept;
        self.discarded += later.discarded;
        self.looked_cycles += later.looked_cycles;
    }

    /// Resets the analysis to empty.
    pub fn clear(&mut self) {
        self.tags.iter_mut().for_each(TagTable::clear);
        self.tag_series.iter_mut().for_each(Series::clear);
        for rate in &mut self.rates {
            rate.kept.clear();
            rate.raw.clear();
            rate.sum = RateSum::default();
            rate.series.clear();
        }
        self.events.iter_mut().for_each(Events::clear);
        self.grid.fill(0);
        [&mut self.periods, &mut self.gaps, &mut self.cpc].into_iter().for_each(Distribution::clear);
        (self.samples, self.attributed, self.kept, self.discarded, self.looked_cycles) = (0, 0, 0, 0, 0);
        self.mark_gap();
    }

    /// Returns the samples of the rate with this name; `None` if there is no such rate.
    pub fn rate(&self, name: &str) -> Option<&RateSamples> {
        let rates = self.recipe.rates.iter().zip(&self.rates);
        rates.into_iter().find(|(rate, _)| rate.name == name).map(|(_, samples)| samples)
    }

    /// Returns the share of valid periods among all periods that the filter checked, 0 to 1; `None` if it checked none.
    pub fn valid_share(&self) -> Option<f64> {
        let judged = self.kept + self.discarded;
        (judged > 0).then(|| self.kept as f64 / judged as f64)
    }
}

#[cfg(test)]
mod tests;
