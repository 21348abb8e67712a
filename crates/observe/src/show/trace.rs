//! The trace of an observation for Perfetto: rates and counters as numbers, tags as slices.
//!
//! For a live observation the trace has the bins; for a log that is read again, each change of a tag. A rate keeps its
//! last value in a time without kept samples, because counters in Perfetto have no gaps.

use crate::analysis::series::{Bin, Series};
use crate::observed::Observed;
use crate::show::view::{RateUnit, rate_unit};
use crate::turns::Turn;
use sidelane_report::perfetto::{TraceBuilder, Track};

impl Observed {
    /// Returns the trace for Perfetto.
    pub fn to_trace(&self) -> TraceBuilder {
        let title = format!("sidelane observe: {}", self.target);
        let mut trace = TraceBuilder::new(&title, self.clock.cycles_to_monotonic_ns(self.begin_cycles()));
        self.trace_rates(&mut trace);
        self.trace_counters(&mut trace);
        for tag in 0..self.analysis.tags.len() {
            let track = trace.add_slice_track(self.names.tag(tag));
            self.trace_tag(&mut trace, track, tag);
        }
        trace
    }

    fn trace_rates(&self, trace: &mut TraceBuilder) {
        for (rate, samples) in self.analysis.recipe().rates.iter().zip(&self.analysis.rates) {
            let words = match rate_unit(rate) {
                RateUnit::PerSecond => "a second",
                RateUnit::Quotient => "ratio",
            };
            let track = trace.add_counter(&format!("{} ({words})", rate.name));
            self.trace_bins(trace, track, &samples.series, |bin| {
                bin.mean().map(|mean| self.in_display_unit(rate, mean))
            });
        }
    }

    /// Adds the counters over time, which only an observation that is read from a log has.
    fn trace_counters(&self, trace: &mut TraceBuilder) {
        for (number, counter) in self.turns.iter().flat_map(|turns| &turns.counters).enumerate() {
            let track = trace.add_counter(&format!("{} (count)", self.names.signal(number)));
            self.trace_bins(trace, track, counter, |bin| (bin.samples > 0).then_some(bin.last));
        }
    }

    fn trace_bins(&self, trace: &mut TraceBuilder, track: Track, series: &Series, value: impl Fn(&Bin) -> Option<f64>) {
        for (at, bin) in series.bins() {
            if let Some(value) = value(bin) {
                trace.set_value(track, self.clock.cycles_to_monotonic_ns(at), value);
            }
        }
    }

    fn trace_tag(&self, trace: &mut TraceBuilder, track: Track, tag: usize) {
        let binned;
        let turns = match &self.turns {
            Some(turns) => &turns.tags[tag],
            None => {
                binned = self.turns_in_bins(tag);
                &binned
            }
        };
        for turn in turns {
            let times = (self.clock.cycles_to_monotonic_ns(turn.from), self.clock.cycles_to_monotonic_ns(turn.to));
            trace.add_slice(track, times, &self.names.value(tag, turn.value));
        }
    }

    /// Returns the turns of a tag. Neighbouring bins with the same last value are one turn; a bin without samples ends
    /// a turn.
    fn turns_in_bins(&self, tag: usize) -> Vec<Turn> {
        let (length, bins) = self.analysis.tag_series[tag].bins_for_drawing();
        let values = self.values_by_float_bits(tag);
        let mut turns: Vec<Turn> = Vec::new();
        for (from, bin) in bins.iter().filter(|(_, bin)| bin.samples > 0) {
            let Some(value) = values.get(&bin.last.to_bits()).copied() else { continue };
            match turns.last_mut() {
                Some(last) if last.value == value && last.to == *from => last.to = from + length,
                _ => turns.push(Turn { from: *from, to: from + length, value }),
            }
        }
        turns
    }
}

#[cfg(test)]
mod tests {
    use crate::observed::sample;
    use crate::turns::Turns;
    use sidelane_report::perfetto::read::{TrackValue, tracks};

    /// Returns the names and lengths of a track's slices.
    fn slices(events: &[(u64, Option<TrackValue>)]) -> Vec<(String, u64)> {
        let pair = |pair: &[(u64, Option<TrackValue>)]| match pair {
            [(from, Some(TrackValue::Began(name))), (to, None)] => (name.clone(), to - from),
            other => panic!("no slice: {other:?}"),
        };
        events.chunks(2).map(pair).collect()
    }

    #[test]
    fn rates_are_numbers_and_tags_are_slices() {
        let seen = sample::observation();
        let read = tracks(&seen.to_trace());
        assert_eq!(
            read.keys().collect::<Vec<_>>(),
            ["hits (a second)", "misses (a second)", "phase", "sidelane observe: a test"]
        );
        let numbers: Vec<&Option<TrackValue>> = read["hits (a second)"].iter().map(|(_, happened)| happened).collect();
        assert!(numbers.len() > 10 && numbers.iter().all(|number| matches!(number, Some(TrackValue::Number(_)))));
        let slices = slices(&read["phase"]);
        assert!(slices.len() > 2 && slices.iter().all(|(name, ns)| (name == "1" || name == "2") && *ns > 0));
        let first = read["phase"][0].0;
        assert!(
            first.abs_diff(seen.clock.cycles_to_monotonic_ns(seen.begin_cycles())) < 10_000,
            "of the monotonic clock: {first}"
        );
    }

    #[test]
    fn log_becomes_slices_of_changes_and_counter_values() {
        let mut seen = sample::observation();
        let mut turns = Turns::new(seen.analysis.recipe().layout);
        sample::samples().for_each(|sample| turns.record(&sample));
        seen.turns = turns.finish().ok();
        let read = tracks(&seen.to_trace());
        let slices = slices(&read["phase"]);
        assert_eq!(slices.len() as u64, sample::SAMPLES / sample::SAMPLES_A_PHASE);
        assert!(slices.windows(2).all(|pair| pair[0].0 != pair[1].0));
        let Some(TrackValue::Number(last)) = read["hits (count)"].last().unwrap().1 else { panic!("no number") };
        assert_eq!(last, sample::samples().last().unwrap().values[0] as f64);
    }
}
