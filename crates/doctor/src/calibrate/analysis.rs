//! Which event tells how much memory accesses are disturbed, and from which value on (Holmes, HPDC'22, §3.1).
//!
//! Problem. Of some events, each counted for each load and store, one is wanted that goes with the latency of requests
//! to memory, whatever makes it long; and the value from which on they take noticeably longer than alone.
//!
//! Approach. Pearson's correlation of each event's value with the latency, over all steps, as the paper's Table 1 has
//! it. The highest is chosen. A line is fitted through its values; the threshold is where requests take a tenth
//! longer than alone. Where that would be within what was seen alone, it is a little above that.
//!
//! What does not fit is no conclusion: see [`Inconclusive`].

use thiserror::Error;

use sidelane_stats::ranks::median;

/// A poorer correlation than this tells nothing; the paper's best three are above 0.999.
const CORRELATION_MIN: f64 = 0.9;
/// If the sibling makes requests no longer than this, there is no interference from which to learn.
const INFLATION_MIN: f64 = 1.1;
/// Requests that take a tenth longer are disturbed.
const DISTURBED: f64 = 1.1;
/// Fewer steps say nothing.
const SAMPLES_MIN: usize = 6;
/// The threshold is so far above the highest value that was seen alone.
const ABOVE_ALONE: f64 = 1.05;

/// What one step came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// One thread, with an idle sibling.
    pub alone: bool,
    /// Of a request.
    pub latency_ns: f64,
    /// By candidate: what it counted for each load and store; nothing where it could not be counted.
    pub values: Vec<Option<f64>>,
}

/// What was learned.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    /// By candidate; nothing where it was not counted, or never changed.
    pub correlations: Vec<Option<f64>>,
    /// Latency of a request alone.
    pub alone_ns: Option<f64>,
    /// Of the slowest step with two threads.
    pub beside_ns: Option<f64>,
    /// The metric, or why there is none.
    pub conclusion: Result<Conclusion, Inconclusive>,
}

/// The metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conclusion {
    /// The place of the candidate.
    pub candidate: usize,
    /// Its correlation with latency.
    pub correlation: f64,
    /// The suggested E.
    pub threshold: f64,
}

/// Why nothing is concluded.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Inconclusive {
    /// No event was counted.
    #[error("no event could be counted")]
    NotCounted,
    /// Too few steps.
    #[error("{0} steps are too few; {SAMPLES_MIN} are needed")]
    TooFew(usize),
    /// The second thread did not slow the first one.
    #[error("a second thread hardly disturbs the first: requests take at most {inflation:.2} times as long as alone")]
    Undisturbed {
        /// Latency beside the other thread over that alone.
        inflation: f64,
    },
    /// No event goes with the latency.
    #[error("no event follows the latency of requests: the best correlation is {best:.2}; {CORRELATION_MIN} is needed")]
    PoorFit {
        /// The highest correlation.
        best: f64,
    },
}

/// Works the steps out.
pub fn analyse(samples: &[Sample]) -> Analysis {
    let candidates = samples.iter().map(|sample| sample.values.len()).max().unwrap_or_default();
    let alone = samples.iter().filter(|sample| sample.alone).map(|sample| sample.latency_ns);
    let beside = samples.iter().filter(|sample| !sample.alone).map(|sample| sample.latency_ns);
    let (alone_ns, beside_ns) = (median(alone), beside.reduce(f64::max));
    let correlations: Vec<Option<f64>> =
        (0..candidates).map(|candidate| correlation(&points(samples, candidate))).collect();
    let conclusion = conclude(samples, &correlations, alone_ns, beside_ns);
    Analysis { correlations, alone_ns, beside_ns, conclusion }
}

fn conclude(
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
    // The first of equals: candidates come best first.
    let best = counted.reduce(|best, next| if next.1 > best.1 { next } else { best });
    let (candidate, correlation) = best.ok_or(Inconclusive::NotCounted)?;
    let points = points(samples, candidate);
    match (points.len() < SAMPLES_MIN, correlation < CORRELATION_MIN) {
        (true, _) => Err(Inconclusive::TooFew(points.len())),
        (_, true) => Err(Inconclusive::PoorFit { best: correlation }),
        _ => {
            let alone = samples.iter().filter(|sample| sample.alone);
            let highest_alone = alone.filter_map(|sample| sample.values[candidate]).reduce(f64::max);
            let threshold = value_at(&points, DISTURBED * alone_ns);
            let threshold = threshold.max(highest_alone.map_or(0.0, |highest| highest * ABOVE_ALONE));
            Ok(Conclusion { candidate, correlation, threshold })
        }
    }
}

/// A candidate's values with the latencies beside them.
fn points(samples: &[Sample], candidate: usize) -> Vec<(f64, f64)> {
    let point = |sample: &Sample| Some((sample.values.get(candidate).copied().flatten()?, sample.latency_ns));
    samples.iter().filter_map(point).collect()
}

/// Means, and sums of squares and products around them.
struct Moments {
    mean: (f64, f64),
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Moments {
    fn of(points: &[(f64, f64)]) -> Self {
        let count = points.len().max(1) as f64;
        let mean = (
            points.iter().map(|point| point.0).sum::<f64>() / count,
            points.iter().map(|point| point.1).sum::<f64>() / count,
        );
        let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(x - mean.0, y - mean.1)).sum();
        Self { mean, xx: sum(&|x, _| x * x), xy: sum(&|x, y| x * y), yy: sum(&|_, y| y * y) }
    }
}

/// Pearson's; nothing of fewer than two points, or if one side never changes.
fn correlation(points: &[(f64, f64)]) -> Option<f64> {
    let Moments { xx, xy, yy, .. } = Moments::of(points);
    (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
}

/// Where the line of least squares through the points reaches `y`.
fn value_at(points: &[(f64, f64)], y: f64) -> f64 {
    let Moments { mean, xx, xy, .. } = Moments::of(points);
    mean.0 + (y - mean.1) * xx / xy
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(alone: bool, latency_ns: f64, values: &[f64]) -> Sample {
        Sample { alone, latency_ns, values: values.iter().copied().map(Some).collect() }
    }

    /// As the paper's machine: the first event stalls for the latency, the second one counts something else.
    fn paper() -> Vec<Sample> {
        let other = [1.0, 7.0, 2.0, 5.0, 3.0, 6.0, 4.0, 1.5];
        let step = |at: usize| {
            let latency_ns = if at < 4 { 1400.0 } else { 1400.0 + 225.0 * (at - 3) as f64 };
            sample(at < 4, latency_ns, &[latency_ns / 35.0, other[at]])
        };
        (0..8).map(step).collect()
    }

    #[test]
    fn event_that_correlates_with_latency_is_chosen() {
        let analysis = analyse(&paper());
        let conclusion = analysis.conclusion.unwrap();
        assert_eq!(conclusion.candidate, 0);
        assert!((conclusion.correlation - 1.0).abs() < 1e-9);
        // A tenth longer: 1540 ns, 44 stalls; alone it was 40.
        assert!((conclusion.threshold - 44.0).abs() < 1e-6, "{conclusion:?}");
        assert!(analysis.correlations[1].unwrap() < 0.5);
        assert_eq!((analysis.alone_ns, analysis.beside_ns), (Some(1400.0), Some(2300.0)));
    }

    #[test]
    fn pearsons_correlation_by_hand() {
        // Around the means (2, 3): products 1 + 0 + 1, squares 2 and 2.
        assert_eq!(correlation(&[(1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]), Some(1.0));
        assert_eq!(correlation(&[(1.0, 4.0), (2.0, 3.0), (3.0, 2.0)]), Some(-1.0));
        // Products 1 and 1 of squares 2 and 6: 3 / sqrt(2 * 6) would be above one; here (−1)(−1) + 0 · 2 + 1 · (−1) = 0.
        assert_eq!(correlation(&[(1.0, 2.0), (2.0, 5.0), (3.0, 2.0)]), Some(0.0));
        assert_eq!(correlation(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(correlation(&[]), None);
    }

    #[test]
    fn threshold_is_above_the_values_without_batch() {
        let mut samples = paper();
        samples[0].values[0] = Some(46.0);
        let conclusion = analyse(&samples).conclusion.unwrap();
        assert!((conclusion.threshold - 46.0 * ABOVE_ALONE).abs() < 1e-9, "{conclusion:?}");
    }

    #[test]
    fn samples_without_a_fit_are_refused() {
        let refused = |samples: &[Sample]| analyse(samples).conclusion.unwrap_err();
        let mut poor = paper();
        poor.iter_mut().for_each(|sample| sample.values = sample.values.split_off(1));
        assert!(matches!(refused(&poor), Inconclusive::PoorFit { best } if best < 0.5));

        let mut uncounted = paper();
        uncounted.iter_mut().for_each(|sample| sample.values.fill(None));
        assert_eq!(refused(&uncounted), Inconclusive::NotCounted);
        uncounted.iter_mut().for_each(|sample| sample.values.clear());
        assert_eq!(refused(&uncounted), Inconclusive::NotCounted);

        let mut calm = paper();
        calm.iter_mut().for_each(|sample| sample.latency_ns = 1400.0);
        assert_eq!(refused(&calm), Inconclusive::Undisturbed { inflation: 1.0 });
        assert_eq!(refused(&paper()[2..6]), Inconclusive::TooFew(4));
        assert_eq!(refused(&paper()[..4]), Inconclusive::TooFew(4));
        assert_eq!(refused(&[]), Inconclusive::TooFew(0));
    }

    #[test]
    fn an_event_that_was_counted_too_rarely_concludes_nothing() {
        let mut samples = paper();
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
