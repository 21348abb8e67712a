//! Choice of the event that measures how much memory accesses are disturbed, and of its threshold (Holmes, HPDC'22,
//! §3.1).
//!
//! Problem. Each candidate event is counted per load and store. The wanted event correlates with the latency of
//! requests to memory, whatever makes these requests slow. Its threshold is the value above which requests take
//! noticeably longer than alone.
//!
//! Approach. Pearson's correlation of each event's value with the latency is computed over all steps, as in the paper's
//! Table 1. The event with the highest correlation is chosen. A line is fitted through its values; the threshold is
//! where requests take a tenth longer than alone. If that is within the values seen alone, the threshold is a little
//! above them.
//!
//! Measurements that do not fit lead to no conclusion: see [`Inconclusive`].

use thiserror::Error;

use sidelane_stats::ranks::median;

/// Lowest correlation of an event with the latency that is accepted; the best three events in the paper are above
/// 0.999.
const CORRELATION_MIN: f64 = 0.9;
/// Lowest ratio of the latency beside a busy sibling to the latency alone. Below it there is too little interference to
/// learn from.
const INFLATION_MIN: f64 = 1.1;
/// Ratio of the latency to the latency alone from which requests count as disturbed.
const DISTURBED: f64 = 1.1;
/// Smallest number of measured steps from which a conclusion is drawn.
const SAMPLES_MIN: usize = 6;
/// Lowest ratio of the threshold to the event's highest value in steps with a single thread.
const ABOVE_ALONE: f64 = 1.05;

/// Measured values of one step of the calibration.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Whether one thread ran alone, with an idle sibling.
    pub alone: bool,
    /// Mean latency of a request.
    pub latency_ns: f64,
    /// Count of each candidate event per load and store; `None` if it could not be counted.
    pub values: Vec<Option<f64>>,
}

/// Result of the analysis.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    /// Correlation of each candidate with the latency; `None` if it was not counted, or never changed.
    pub correlations: Vec<Option<f64>>,
    /// Median latency of a request in the steps with a single thread; `None` without such a step.
    pub alone_ns: Option<f64>,
    /// Latency in the slowest step with two threads; `None` without such a step.
    pub beside_ns: Option<f64>,
    /// Metric, or the reason why there is none.
    pub conclusion: Result<Conclusion, Inconclusive>,
}

/// Metric of interference: an event and its threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conclusion {
    /// Index of the candidate event.
    pub candidate: usize,
    /// Correlation of the event with latency.
    pub correlation: f64,
    /// Suggested threshold of the event's value, called E in the paper.
    pub threshold: f64,
}

/// Reason why there is no conclusion.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Inconclusive {
    /// No event was counted.
    #[error(
        "no event could be counted; in a virtual machine, ask its host for a virtual PMU, or name other events with \
         --events"
    )]
    NotCounted,
    /// There are too few steps.
    #[error("only {0} steps have values, and {SAMPLES_MIN} are needed; run it without --quick, or name other events")]
    TooFew(usize),
    /// The second thread did not slow the first one.
    #[error(
        "there is too little interference: beside a second thread, requests take at most {inflation:.2} times as long \
         as alone; name two SMT siblings with --lanes"
    )]
    Undisturbed {
        /// Latency beside the second thread, divided by the latency alone.
        inflation: f64,
    },
    /// No event correlates with the latency.
    #[error(
        "no event correlates with the latency of requests: the best correlation is {best:.2}, and {CORRELATION_MIN} is \
         needed; try again on an idle machine, or name other events with --events"
    )]
    PoorFit {
        /// Highest correlation of an event.
        best: f64,
    },
}

/// Analyses the samples of all steps.
pub fn analyse(samples: &[Sample]) -> Analysis {
    let candidates = samples.iter().map(|sample| sample.values.len()).max().unwrap_or_default();
    let alone = samples.iter().filter(|sample| sample.alone).map(|sample| sample.latency_ns);
    let beside = samples.iter().filter(|sample| !sample.alone).map(|sample| sample.latency_ns);
    let (alone_ns, beside_ns) = (median(alone), beside.reduce(f64::max));
    let correlations: Vec<Option<f64>> =
        (0..candidates).map(|candidate| correlation(&value_latency_points(samples, candidate))).collect();
    let conclusion = choose_event_and_threshold(samples, &correlations, alone_ns, beside_ns);
    Analysis { correlations, alone_ns, beside_ns, conclusion }
}

fn choose_event_and_threshold(
    samples: &[Sample],
    correlations: &[Option<f64>],
    alone_ns: Option<f64>,
    beside_ns: Option<f64>,
) -> Result<Conclusion, Inconclusive> {
    let (Some(alone_ns), Some(beside_ns)) = (alone_ns, beside_ns) else {
        return Err(Inconclusive::TooFew(samples.len()));
    };
    if samples.len() < SAMPLES_MIN {
        return Err(Inconclusive::TooFew(samples.len()));
    }
    if beside_ns < INFLATION_MIN * alone_ns {
        return Err(Inconclusive::Undisturbed { inflation: beside_ns / alone_ns });
    }
    let counted = correlations.iter().enumerate().filter_map(|(at, correlation)| Some((at, (*correlation)?)));
    // Among equal correlations the first candidate is chosen, since the candidates are sorted by preference.
    let best = counted.reduce(|best, next| if next.1 > best.1 { next } else { best });
    let (candidate, correlation) = best.ok_or(Inconclusive::NotCounted)?;
    let points = value_latency_points(samples, candidate);
    match (points.len() < SAMPLES_MIN, correlation < CORRELATION_MIN) {
        (true, _) => Err(Inconclusive::TooFew(points.len())),
        (_, true) => Err(Inconclusive::PoorFit { best: correlation }),
        _ => {
            let alone = samples.iter().filter(|sample| sample.alone);
            let highest_alone = alone.filter_map(|sample| sample.values[candidate]).reduce(f64::max);
            let threshold = x_on_fitted_line(&points, DISTURBED * alone_ns);
            let threshold = threshold.max(highest_alone.map_or(0.0, |highest| highest * ABOVE_ALONE));
            Ok(Conclusion { candidate, correlation, threshold })
        }
    }
}

/// Returns pairs of a candidate's value and the latency in the same step.
fn value_latency_points(samples: &[Sample], candidate: usize) -> Vec<(f64, f64)> {
    let point = |sample: &Sample| Some((sample.values.get(candidate).copied().flatten()?, sample.latency_ns));
    samples.iter().filter_map(point).collect()
}

/// Means of the points' coordinates, and sums of the squares and products of the deviations from these means.
struct Moments {
    mean: (f64, f64),
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Moments {
    fn from_points(points: &[(f64, f64)]) -> Self {
        let count = points.len().max(1) as f64;
        let mean = (
            points.iter().map(|point| point.0).sum::<f64>() / count,
            points.iter().map(|point| point.1).sum::<f64>() / count,
        );
        let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(x - mean.0, y - mean.1)).sum();
        Self { mean, xx: sum(&|x, _| x * x), xy: sum(&|x, y| x * y), yy: sum(&|_, y| y * y) }
    }
}

/// Returns Pearson's correlation; `None` for fewer than two points, or if one coordinate never changes.
fn correlation(points: &[(f64, f64)]) -> Option<f64> {
    let Moments { xx, xy, yy, .. } = Moments::from_points(points);
    (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
}

/// Returns the x at which the least-squares line through the points reaches `y`.
fn x_on_fitted_line(points: &[(f64, f64)], y: f64) -> f64 {
    let Moments { mean, xx, xy, .. } = Moments::from_points(points);
    mean.0 + (y - mean.1) * xx / xy
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(alone: bool, latency_ns: f64, values: &[f64]) -> Sample {
        Sample { alone, latency_ns, values: values.iter().copied().map(Some).collect() }
    }

    /// Returns samples like those of the paper's machine. The count of the first event is proportional to the latency;
    /// the count of the second event is unrelated to it.
    fn samples_like_paper() -> Vec<Sample> {
        let other = [1.0, 7.0, 2.0, 5.0, 3.0, 6.0, 4.0, 1.5];
        let step = |at: usize| {
            let latency_ns = if at < 4 { 1400.0 } else { 1400.0 + 225.0 * (at - 3) as f64 };
            sample(at < 4, latency_ns, &[latency_ns / 35.0, other[at]])
        };
        (0..8).map(step).collect()
    }

    #[test]
    fn event_that_correlates_with_latency_is_chosen() {
        let analysis = analyse(&samples_like_paper());
        let conclusion = analysis.conclusion.unwrap();
        assert_eq!(conclusion.candidate, 0);
        assert!((conclusion.correlation - 1.0).abs() < 1e-9);
        // A latency of 1540 ns, a tenth longer than alone, has 44 stalls; alone there are 40.
        assert!((conclusion.threshold - 44.0).abs() < 1e-6, "{conclusion:?}");
        assert!(analysis.correlations[1].unwrap() < 0.5);
        assert_eq!((analysis.alone_ns, analysis.beside_ns), (Some(1400.0), Some(2300.0)));
    }

    #[test]
    fn correlation_equals_the_result_worked_out_by_hand() {
        // The means are (2, 3). The products of the deviations from them are 1, 0 and 1; the sums of their squares are
        // 2 and 2.
        assert_eq!(correlation(&[(1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]), Some(1.0));
        assert_eq!(correlation(&[(1.0, 4.0), (2.0, 3.0), (3.0, 2.0)]), Some(-1.0));
        // The products of the deviations from the means are (−1)(−1), 0 · 2 and 1 · (−1). Their sum is 0.
        assert_eq!(correlation(&[(1.0, 2.0), (2.0, 5.0), (3.0, 2.0)]), Some(0.0));
        assert_eq!(correlation(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(correlation(&[]), None);
    }

    #[test]
    fn threshold_is_above_the_values_without_batch() {
        let mut samples = samples_like_paper();
        samples[0].values[0] = Some(46.0);
        let conclusion = analyse(&samples).conclusion.unwrap();
        assert!((conclusion.threshold - 46.0 * ABOVE_ALONE).abs() < 1e-9, "{conclusion:?}");
    }

    #[test]
    fn samples_without_a_fit_are_refused() {
        let refused = |samples: &[Sample]| analyse(samples).conclusion.unwrap_err();
        let mut poor = samples_like_paper();
        poor.iter_mut().for_each(|sample| sample.values = sample.values.split_off(1));
        assert!(matches!(refused(&poor), Inconclusive::PoorFit { best } if best < 0.5));

        let mut uncounted = samples_like_paper();
        uncounted.iter_mut().for_each(|sample| sample.values.fill(None));
        assert_eq!(refused(&uncounted), Inconclusive::NotCounted);
        uncounted.iter_mut().for_each(|sample| sample.values.clear());
        assert_eq!(refused(&uncounted), Inconclusive::NotCounted);

        let mut calm = samples_like_paper();
        calm.iter_mut().for_each(|sample| sample.latency_ns = 1400.0);
        assert_eq!(refused(&calm), Inconclusive::Undisturbed { inflation: 1.0 });
        assert_eq!(refused(&samples_like_paper()[2..6]), Inconclusive::TooFew(4));
        assert_eq!(refused(&samples_like_paper()[..4]), Inconclusive::TooFew(4));
        assert_eq!(refused(&[]), Inconclusive::TooFew(0));
    }

    #[test]
    fn event_with_too_few_values_gives_no_conclusion() {
        let mut samples = samples_like_paper();
        samples[..4].iter_mut().for_each(|sample| sample.values[0] = None);
        assert_eq!(analyse(&samples).conclusion, Err(Inconclusive::TooFew(4)));
    }

    proptest! {
        #[test]
        fn a_correlation_is_between_one_and_minus_one(
            points in prop::collection::vec((0.0..1e9, 0.0..1e9), 2..40)
        ) {
            prop_assert!(correlation(&points).is_none_or(|found| found.abs() <= 1.0 + 1e-9));
        }

        #[test]
        fn regression_finds_a_line_of_any_slope(slope in 0.1..1e3, alone in 100.0..1e5) {
            let step = |at: usize| {
                let latency_ns = alone * if at < 4 { 1.0 } else { 1.0 + 0.1 * (at - 3) as f64 };
                sample(at < 4, latency_ns, &[latency_ns / slope])
            };
            let samples: Vec<Sample> = (0..12).map(step).collect();
            let conclusion = analyse(&samples).conclusion.unwrap();
            let inflation: f64 = conclusion.threshold * slope / alone;
            prop_assert!((inflation - 1.1).abs() < 1e-6);
        }
    }
}
