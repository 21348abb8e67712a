//! Tests of findings from samples that are made in the test.

use super::*;
use crate::analysis::{Analysis, Operand, Rate, Recipe};
use crate::cost::Slowdown;
use crate::dte::DoubleTimeErrorFilter;
use crate::observed::{SignalNames, sample};
use crate::sample::{Layout, Sample};

/// Distance of samples in cycles: half a microsecond.
const PERIOD: u64 = 1_000;
const PAUSES: [&str; 2] = ["No GC", "G1 Evacuation Pause"];

/// Makes an observation of a counter of pauses, a tag for the cause of the pause, and a constant tag. Every 100 samples
/// a pause of 20 samples begins, and is counted in its third sample.
fn observation_with_pauses() -> Observed {
    let rate = Rate { name: "pauses".into(), count: Operand::Counter(0), per: Operand::Cycles };
    let layout = Layout { counters: 1, tags: 2 };
    let recipe =
        Recipe { layout, rates: vec![rate], dte: DoubleTimeErrorFilter::new(0.01), only_target: false, lane_tag: None };
    let mut analysis = Analysis::new(recipe);
    for number in 0..=20_000_u64 {
        let (round, place) = (number / 100, number % 100);
        let at = 1_000_000 + number * PERIOD;
        let mut sample = Sample { start: at, end: at + 60, thread: 7, ..Sample::default() };
        let counted = round + u64::from(place >= 82);
        sample.values[..3].copy_from_slice(&[counted, u64::from(place >= 80), 20]);
        analysis.record(&sample);
    }
    let names = ["pauses", "cause", "threads"].map(str::to_owned).to_vec();
    let causes: Vec<_> = (0..).zip(PAUSES).map(|(value, name)| (0, value, name.to_owned())).collect();
    Observed { analysis, names: SignalNames::of_log(names, 1, &causes), ..sample::observation() }
}

#[test]
fn pause_is_described_by_share_number_and_length() {
    let found = derive_finding(&observation_with_pauses());
    assert_eq!(
        found.sentences[0],
        "cause is No GC for 80.0 % of the time, G1 Evacuation Pause for 20.0 % (20,000 a second, 10.0 µs each)."
    );
}

#[test]
fn counter_that_seldom_changes_is_reported_as_events() {
    let found = derive_finding(&observation_with_pauses());
    let wanted = "pauses: 20,000 events a second, with a median distance of 50.0 µs (50.0 µs to 50.0 µs); 100 % of \
                  them while cause is G1 Evacuation Pause, 20.0 % of the time.";
    assert_eq!(found.sentences[1..], [wanted]);
    assert_eq!(found.left_out.as_deref(), Some("Did not change: threads (20)."));
}

#[test]
fn different_rates_are_described_with_both_values() {
    let found = derive_finding(&sample::observation());
    let wanted = "hits: 100,000,000 /s while phase is 1 (50.0 % of the time), 4,000,000 /s while it is 2 (50.0 %), 25.0 \
                  times as many.";
    assert_eq!(found.sentences[1], wanted);
    assert_eq!(found.sentences.len(), 2, "misses do not differ: {found:?}");
}

#[test]
fn few_events_give_no_difference_of_rates() {
    let mut few = sample::observation();
    few.analysis.clear();
    sample::samples().take(2_010).for_each(|sample| few.analysis.record(&sample));
    assert!(
        derive_finding(&few).sentences.iter().all(|sentence| !sentence.starts_with("hits")),
        "{:?}",
        derive_finding(&few)
    );
}

#[test]
fn cost_has_an_interval_or_is_unknown() {
    let cost = |slowdown: Option<Slowdown>| derive_finding(&Observed { slowdown, ..sample::observation() }).cost;
    let known = Slowdown {
        counter: "done".into(),
        percent: Some(2.1),
        low_percent: Some(1.0),
        high_percent: Some(3.2),
        pairs: 40,
        events_a_pair: 5_000.0,
    };
    let told = "Observing slowed the target down by 2.1 % of its speed (1.0 % to 3.2 %, by done in 40 pairs).";
    assert_eq!(cost(Some(known.clone())), told);
    let cannot = |slowdown: Slowdown| {
        let told = cost(Some(slowdown));
        told.strip_prefix("The cost of observing is not known: ").unwrap_or_else(|| panic!("{told}")).to_owned()
    };
    let uncertain = Slowdown { low_percent: Some(-1.0), ..known.clone() };
    assert_eq!(cannot(uncertain), "it is within its error of 0 (-1.0 % to 3.2 %, by done in 40 pairs).");
    let short = Slowdown { low_percent: None, high_percent: None, pairs: 5, ..known.clone() };
    assert_eq!(cannot(short), "there are only 5 pairs of windows with and without the observer.");
    let few = Slowdown { percent: None, pairs: 0, events_a_pair: 2.0, ..known };
    assert!(cannot(few).starts_with("done has 2 events in a pair"));
    assert!(cost(None).contains("name one with --progress"));
}
