//! What is made of samples while they come: lines 17 and 18 of Figure 3.2.
//!
//! All memory is there from the start. The observer fills one analysis; once a turn it may hand it over
//! for an empty one, and whoever gets it merges it into the whole.

pub mod grid;
pub mod series;
pub mod spread;
pub mod tags;

use super::dte::{Dte, cpc};
use super::sample::{Layout, Sample};
use grid::{GRID, grid_bucket};
use series::Series;
use spread::Spread;
use tags::{RateSum, TagTable};

/// A rate: how much a counter grew for each cycle, or for each event of another counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Its name in results.
    pub name: String,
    /// The counter's number in the sample.
    pub count: Operand,
    /// What it is divided by.
    pub per: Operand,
}

/// A part of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The sample's counter of that number.
    Counter(usize),
    /// Cycles between the first readings of the clock.
    Cycles,
    /// Cycles between the second readings of the clock.
    EndCycles,
}

impl Operand {
    #[inline(always)]
    fn grown(self, before: &Sample, now: &Sample) -> u64 {
        match self {
            Operand::Counter(number) => now.values[number].wrapping_sub(before.values[number]),
            Operand::Cycles => now.start.wrapping_sub(before.start),
            Operand::EndCycles => now.end.wrapping_sub(before.end),
        }
    }
}

/// What is worked out of a sample's values.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// How values are divided into counters and tags.
    pub layout: Layout,
    /// The rates.
    pub rates: Vec<Rate>,
    /// Which samples of them are true.
    pub dte: Dte,
    /// Only samples count of which it is known that a thread of the target ran.
    pub only_target: bool,
    /// The tag that says who ran, whose samples count in any case.
    pub lane_tag: Option<usize>,
}

/// One rate's samples.
pub struct RateSamples {
    /// Those that were kept.
    pub kept: Spread,
    /// All of them.
    pub raw: Spread,
    /// The kept ones summed up: their mean weighted by time.
    pub sum: RateSum,
    /// Over time.
    pub series: Series,
}

/// Everything worked out of the samples so far.
pub struct Analysis {
    recipe: Recipe,
    /// By tag.
    pub tags: Vec<TagTable>,
    /// Tags over time.
    pub tag_series: Vec<Series>,
    /// By rate.
    pub rates: Vec<RateSamples>,
    /// The first rate against the second, if there are two; by rows of the second.
    pub grid: Vec<u32>,
    /// From one sample to the next.
    pub periods: Spread,
    /// From one kept sample to the next.
    pub gaps: Spread,
    /// CPC of all samples.
    pub cpc: Spread,
    /// Samples.
    pub samples: u64,
    /// Of them, those that count.
    pub attributed: u64,
    /// Periods whose rates were true; of `attributed`, less the first of a turn of the thread.
    pub kept: u64,
    /// Periods whose rates were not.
    pub discarded: u64,
    /// The last sample, if it was the target's.
    before: Option<Sample>,
    /// When the last sample was taken, 0 after an interruption.
    last_start: u64,
    last_kept: u64,
}

impl Analysis {
    /// An empty one.
    pub fn new(recipe: Recipe) -> Self {
        let rate = |_: &Rate| RateSamples {
            kept: Spread::default(),
            raw: Spread::default(),
            sum: RateSum::default(),
            series: Series::default(),
        };
        let tags = recipe.layout.tags;
        Self {
            tags: (0..tags).map(|_| TagTable::new(recipe.rates.len())).collect(),
            tag_series: vec![Series::default(); tags],
            rates: recipe.rates.iter().map(rate).collect(),
            grid: vec![0; if recipe.rates.len() > 1 { GRID * GRID } else { 0 }],
            periods: Spread::default(),
            gaps: Spread::default(),
            cpc: Spread::default(),
            samples: 0,
            attributed: 0,
            kept: 0,
            discarded: 0,
            before: None,
            last_start: 0,
            last_kept: 0,
            recipe,
        }
    }

    /// What it was made for.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Takes in the next sample.
    #[inline(always)]
    pub fn record(&mut self, sample: &Sample) {
        self.samples += 1;
        if self.recipe.only_target && sample.thread == 0 {
            return self.of_somebody_else(sample);
        }
        self.attributed += 1;
        match self.before {
            Some(before) if before.thread == sample.thread => self.period(&before, sample),
            _ => self.first_of_a_turn(sample),
        }
        self.before = Some(*sample);
        self.last_start = sample.start;
    }

    fn of_somebody_else(&mut self, sample: &Sample) {
        if let Some(tag) = self.recipe.lane_tag {
            let cycles = self.since_last(sample);
            self.tags[tag].count(sample.tag(self.recipe.layout, tag), 1, cycles);
        }
        self.last_start = sample.start;
        self.before = None;
    }

    fn since_last(&self, sample: &Sample) -> u64 {
        if self.last_start == 0 { 0 } else { sample.start.wrapping_sub(self.last_start) }
    }

    /// Tags are true whenever they are read; rates need a period.
    fn first_of_a_turn(&mut self, sample: &Sample) {
        for tag in 0..self.recipe.layout.tags {
            let cycles = if self.recipe.lane_tag == Some(tag) { self.since_last(sample) } else { 0 };
            self.tags[tag].count(sample.tag(self.recipe.layout, tag), 1, cycles);
        }
    }

    #[inline(always)]
    fn period(&mut self, before: &Sample, now: &Sample) {
        let cycles = now.start.wrapping_sub(before.start);
        self.periods.record(cycles as f64);
        let keeps = self.recipe.layout.counters > 0 && self.recipe.dte.keeps(before, now);
        if self.recipe.layout.counters > 0 {
            self.cpc.record(cpc(before, now));
            self.rate_samples(before, now, keeps);
        }
        for tag in 0..self.recipe.layout.tags {
            let value = now.tag(self.recipe.layout, tag);
            let place = self.tags[tag].count(value, 1, cycles);
            self.tag_series[tag].record(now.start, value as f64);
            if keeps {
                for (number, rate) in self.recipe.rates.iter().enumerate() {
                    self.tags[tag].add_rate(place, number, rate.count.grown(before, now), rate.per.grown(before, now));
                }
            }
        }
    }

    #[inline(always)]
    fn rate_samples(&mut self, before: &Sample, now: &Sample, keeps: bool) {
        let mut cell = [0; 2];
        for (number, (rate, samples)) in self.recipe.rates.iter().zip(&mut self.rates).enumerate() {
            let (count, per) = (rate.count.grown(before, now), rate.per.grown(before, now));
            let value = count as f64 / per.max(1) as f64;
            samples.raw.record(value);
            if keeps {
                samples.kept.record(value);
                samples.sum.add(count, per);
                samples.series.record(now.start, value);
                if let Some(place) = cell.get_mut(number) {
                    *place = grid_bucket(value);
                }
            }
        }
        if keeps {
            self.keep(now.start);
            if let Some(count) = self.grid.get_mut(cell[1] * GRID + cell[0]) {
                *count = count.saturating_add(1);
            }
        } else {
            self.discarded += 1;
        }
    }

    #[inline(always)]
    fn keep(&mut self, at: u64) {
        self.kept += 1;
        if self.last_kept != 0 {
            self.gaps.record(at.wrapping_sub(self.last_kept) as f64);
        }
        self.last_kept = at;
    }

    /// Takes in so many reads in a row of the only tag, without periods.
    #[inline(always)]
    pub fn run(&mut self, value: u64, reads: u64) {
        self.tags[0].count(value, reads, 0);
    }

    /// Takes in the time that `reads` of the only tag took, from `began` to `end`; the last one was `value`.
    #[inline(always)]
    pub fn block(&mut self, reads: u64, began: u64, end: u64, value: u64) {
        self.samples += reads;
        self.attributed += reads;
        self.periods.record_times(end.wrapping_sub(began) as f64 / reads as f64, reads);
        self.tag_series[0].record(end, value as f64);
    }

    /// Forgets the last sample: the next one does not follow it.
    pub fn interrupt(&mut self) {
        self.before = None;
        self.last_start = 0;
        self.last_kept = 0;
    }

    /// Takes in what came after it.
    pub fn append(&mut self, later: &Analysis) {
        self.tags.iter_mut().zip(&later.tags).for_each(|(tags, later)| tags.merge(later));
        self.tag_series.iter_mut().zip(&later.tag_series).for_each(|(series, later)| series.append(later));
        for (rate, later) in self.rates.iter_mut().zip(&later.rates) {
            rate.kept.merge(&later.kept);
            rate.raw.merge(&later.raw);
            rate.sum.merge(&later.sum);
            rate.series.append(&later.series);
        }
        self.grid.iter_mut().zip(&later.grid).for_each(|(count, later)| *count = count.saturating_add(*later));
        [(&mut self.periods, &later.periods), (&mut self.gaps, &later.gaps), (&mut self.cpc, &later.cpc)]
            .into_iter()
            .for_each(|(spread, later)| spread.merge(later));
        self.samples += later.samples;
        self.attributed += later.attributed;
        self.kept += later.kept;
        self.discarded += later.discarded;
    }

    /// Makes it empty again.
    pub fn clear(&mut self) {
        self.tags.iter_mut().for_each(TagTable::clear);
        self.tag_series.iter_mut().for_each(Series::clear);
        for rate in &mut self.rates {
            rate.kept.clear();
            rate.raw.clear();
            rate.sum = RateSum::default();
            rate.series.clear();
        }
        self.grid.fill(0);
        [&mut self.periods, &mut self.gaps, &mut self.cpc].into_iter().for_each(Spread::clear);
        (self.samples, self.attributed, self.kept, self.discarded) = (0, 0, 0, 0);
        self.interrupt();
    }

    /// The samples of the rate of that name.
    pub fn rate(&self, name: &str) -> Option<&RateSamples> {
        let rates = self.recipe.rates.iter().zip(&self.rates);
        rates.into_iter().find(|(rate, _)| rate.name == name).map(|(_, samples)| samples)
    }

    /// Of the periods that could be judged, the share that was kept.
    pub fn kept_share(&self) -> Option<f64> {
        let judged = self.kept + self.discarded;
        (judged > 0).then(|| self.kept as f64 / judged as f64)
    }
}

#[cfg(test)]
mod tests;
