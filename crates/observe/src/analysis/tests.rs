//! Tests of the analysis. The expected results of their samples were computed by hand.

use super::grid::smallest_rate_of_bucket;
use super::*;

/// Makes an analysis of one counter and two tags; the second tag is for the running thread.
fn analysis_of_one_counter(only_target: bool) -> Analysis {
    let rate = Rate { name: "done".into(), count: Operand::Counter(0), per: Operand::Cycles };
    let layout = Layout { counters: 1, tags: 2 };
    Analysis::new(Recipe {
        layout,
        rates: vec![rate],
        dte: DoubleTimeErrorFilter::new(0.01),
        only_target,
        lane_tag: Some(1),
    })
}

fn sample(start: u64, thread: u64, count: u64, phase: u64) -> Sample {
    let mut sample = Sample { start, end: start + 50, thread, ..Sample::default() };
    sample.values[..3].copy_from_slice(&[count, phase, thread]);
    sample
}

fn sample_count_of_value(table: &TagTable, value: u64) -> u64 {
    table.values_by_frequency().iter().find(|(seen, _)| seen.value == value).map_or(0, |(seen, _)| seen.samples)
}

#[test]
fn a_period_belongs_to_the_tag_at_its_end() {
    let mut analysis = analysis_of_one_counter(false);
    for (start, count, phase) in [(1_000, 0, 1), (2_000, 10, 1), (3_000, 40, 2)] {
        analysis.record(&sample(start, 7, count, phase));
    }
    assert_eq!((analysis.samples, analysis.kept, analysis.discarded), (3, 2, 0));
    let rates: Vec<_> =
        analysis.tags[0].values_by_frequency().iter().map(|(seen, rates)| (seen.value, rates[0].mean())).collect();
    assert_eq!(rates, [(1, Some(0.01)), (2, Some(0.03))]);
    assert_eq!(analysis.rates[0].sum.mean(), Some(0.02));
}

#[test]
fn a_skewed_sample_counts_for_tags_and_not_for_rates() {
    let mut analysis = analysis_of_one_counter(false);
    analysis.record(&sample(1_000, 7, 0, 1));
    analysis.record(&Sample { end: 2_100, ..sample(2_000, 7, 10, 1) });
    assert_eq!((analysis.kept, analysis.discarded), (0, 1));
    assert_eq!(analysis.rates[0].raw.count(), 1);
    assert_eq!(analysis.rates[0].kept.count(), 0);
    assert_eq!(sample_count_of_value(&analysis.tags[0], 1), 2);
}

#[test]
fn no_period_spans_a_switch_of_threads_or_a_pause() {
    let mut analysis = analysis_of_one_counter(false);
    analysis.record(&sample(1_000, 7, 0, 1));
    analysis.record(&sample(2_000, 8, 10, 1));
    analysis.mark_gap();
    analysis.record(&sample(9_000, 8, 90, 1));
    assert_eq!((analysis.samples, analysis.kept + analysis.discarded), (3, 0));
}

#[test]
fn samples_of_other_threads_count_only_for_the_lane_tag() {
    let mut analysis = analysis_of_one_counter(true);
    for (start, thread) in [(1_000, 7), (2_000, 0), (3_000, 0), (4_000, 7), (5_000, 7)] {
        analysis.record(&sample(start, thread, start, 1));
    }
    assert_eq!((analysis.samples, analysis.attributed, analysis.kept), (5, 3, 1));
    assert_eq!(sample_count_of_value(&analysis.tags[0], 1), 3);
    assert_eq!(sample_count_of_value(&analysis.tags[1], 0), 2);
    let hottest = analysis.tags[1].values_by_frequency();
    let share = analysis.tags[1].time_share_function();
    let shares: Vec<_> = hottest.iter().map(|(seen, _)| (seen.value, share(seen))).collect();
    assert_eq!(shares, [(7, 0.5), (0, 0.5)]);
}

#[test]
fn samples_are_counted_in_the_grid_of_two_rates() {
    let layout = Layout { counters: 2, tags: 0 };
    let rate = |number| Rate { name: String::new(), count: Operand::Counter(number), per: Operand::Cycles };
    let recipe = Recipe {
        layout,
        rates: vec![rate(0), rate(1)],
        dte: DoubleTimeErrorFilter::new(0.01),
        only_target: false,
        lane_tag: None,
    };
    let mut analysis = Analysis::new(recipe);
    for turn in 0..5 {
        let mut sample = Sample { start: 1024 * turn + 1, end: 1024 * turn + 31, ..Sample::default() };
        sample.values[..2].copy_from_slice(&[turn * 1024, turn]);
        analysis.record(&sample);
    }
    let filled: Vec<usize> = (0..GRID * GRID).filter(|cell| analysis.grid[*cell] > 0).collect();
    assert_eq!(filled.len(), 1);
    assert_eq!(analysis.grid[filled[0]], 4);
    let (first, second) = (smallest_rate_of_bucket(filled[0] % GRID), smallest_rate_of_bucket(filled[0] / GRID));
    assert!((first / 1.0 - 1.0).abs() <= 0.5 && (second * 1024.0 - 1.0).abs() <= 0.5, "{first} {second}");
}
