//! 95 % confidence intervals of measurements in rounds.
//!
//! A round is a run or a pair of runs, taken in turn. Rounds are assumed to be independent of each
//! other. Samples within a round are not, so they are not used singly here.
//!
//! - A *median* of rounds gets an interval from the order of the rounds: with n rounds the number
//!   of them below the true median is binomial, whatever the distribution. With fewer than six
//!   rounds there is no interval: even all of them lie on the same side of the true median in more
//!   than 5 % of cases.
//! - A *figure of all rounds together*, such as a percentile of all reactions, gets an interval
//!   from the bootstrap: the figure is computed many times from as many rounds drawn at random, and the
//!   middle 95 % of the results are the interval. The random draws are the same in each run. This
//!   needs six rounds, too.

use sidelane_report::{Interval, Method};

use crate::ranks::{median_of_sorted, sorted};

/// Share of the results that is left out on each side of an interval.
const TAIL: f64 = 0.025;
/// Smallest number of rounds from which a confidence interval is computed.
pub const ROUNDS_MIN: usize = 6;
const DRAWS: usize = 1_000;

/// Returns the median of `values` with its confidence interval; `None` without values.
pub fn median_interval(values: impl IntoIterator<Item = f64>) -> Option<Interval> {
    let sorted = sorted(values);
    let left_out = ranks_outside_interval(sorted.len());
    let low = left_out.map(|count| sorted[count]);
    let high = left_out.map(|count| sorted[sorted.len() - 1 - count]);
    Some(Interval { measured: median_of_sorted(&sorted)?, low, high, method: Method::OrderStatistics })
}

/// Returns how many of `count` sorted values are outside the median's interval on each side: the largest number k such
/// that at most k values lie below the true median in at most 2.5 % of cases.
fn ranks_outside_interval(count: usize) -> Option<usize> {
    // In logarithms, since 0.5 to the power of some thousands underflows.
    let mut log_term = -(count as f64) * std::f64::consts::LN_2;
    let mut sum = 0.0;
    for below in 0..=count {
        sum += log_term.exp();
        if sum > TAIL {
            return below.checked_sub(1);
        }
        log_term += ((count - below) as f64).ln() - ((below + 1) as f64).ln();
    }
    None
}

/// Returns the `statistic` of all rounds together with its confidence interval; `None` if the statistic does not exist.
pub fn bootstrap_interval<T>(rounds: &[T], statistic: impl Fn(&[&T]) -> Option<f64>) -> Option<Interval> {
    let all: Vec<&T> = rounds.iter().collect();
    let measured = statistic(&all)?;
    let ends = if rounds.len() < ROUNDS_MIN { None } else { bootstrap_bounds(rounds, statistic) };
    Some(Interval { measured, low: ends.map(|ends| ends.0), high: ends.map(|ends| ends.1), method: Method::Bootstrap })
}

fn bootstrap_bounds<T>(rounds: &[T], statistic: impl Fn(&[&T]) -> Option<f64>) -> Option<(f64, f64)> {
    let mut random = fastrand::Rng::with_seed(1);
    let draw = |_| {
        let drawn: Vec<&T> = (0..rounds.len()).map(|_| &rounds[random.usize(..rounds.len())]).collect();
        statistic(&drawn)
    };
    let figures = sorted((0..DRAWS).filter_map(draw));
    let left_out = (figures.len() as f64 * TAIL) as usize;
    Some((*figures.get(left_out)?, *figures.get(figures.len().checked_sub(1 + left_out)?)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interval_of_one_to(count: usize) -> Interval {
        median_interval((1..=count).map(|value| value as f64)).unwrap()
    }

    /// Compares the ranks with those in tables of the sign test.
    #[test]
    fn ranks_are_those_of_the_binomial_distribution() {
        for (count, low, high) in [(6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (15, 4, 12), (20, 6, 15), (100, 40, 61)]
        {
            let interval = interval_of_one_to(count);
            assert_eq!((interval.low, interval.high), (Some(f64::from(low)), Some(f64::from(high))), "{count}");
        }
    }

    #[test]
    fn fewer_than_six_rounds_have_no_interval() {
        assert_eq!(median_interval([]), None);
        for count in 1..ROUNDS_MIN {
            let interval = interval_of_one_to(count);
            assert_eq!((interval.low, interval.high), (None, None), "{count}");
        }
    }

    #[test]
    fn median_of_thousands_of_values_has_an_interval() {
        // The normal approximation of the interval is 5000 ± 0.98 √10000.
        let interval = interval_of_one_to(10_000);
        assert!((interval.low.unwrap() - 4_902.0).abs() <= 1.0 && (interval.high.unwrap() - 5_099.0).abs() <= 1.0);
    }

    fn mean(drawn: &[&f64]) -> Option<f64> {
        (!drawn.is_empty()).then(|| drawn.iter().copied().sum::<f64>() / drawn.len() as f64)
    }

    #[test]
    fn a_bootstrap_of_means_is_as_wide_as_their_standard_error() {
        let values: Vec<f64> = (0..100).map(|value| f64::from(value % 10)).collect();
        let interval = bootstrap_interval(&values, mean).unwrap();
        // The standard deviation of the values is 2.87, so the interval is ± 1.96 × 0.287.
        assert_eq!(interval.measured, 4.5);
        assert!((interval.low.unwrap() - 3.94).abs() < 0.1 && (interval.high.unwrap() - 5.06).abs() < 0.1);
        assert_eq!(bootstrap_interval(&values, mean), Some(interval), "the same draws");
    }

    #[test]
    fn bootstrap_needs_six_rounds_and_a_statistic() {
        assert_eq!(bootstrap_interval(&[1.0; 5], mean).unwrap().low, None);
        assert_eq!(bootstrap_interval(&[1.0; 6], mean).unwrap().high, Some(1.0));
        assert_eq!(bootstrap_interval(&[1.0; 6], |_| None), None);
    }

    proptest! {
        #[test]
        fn interval_contains_its_median_in_any_unit(
            values in prop::collection::vec(-1e6..1e6f64, 6..200),
        ) {
            let interval = median_interval(values.iter().copied()).unwrap();
            prop_assert!(interval.low.unwrap() <= interval.measured && interval.measured <= interval.high.unwrap());
            let larger = median_interval(values.iter().map(|value| value * 8.0)).unwrap();
            prop_assert_eq!(interval.map(|value| value * 8.0), larger);
        }
    }

    /// Over many series with a known median, the interval misses it in no more than 5 % of cases.
    #[test]
    fn interval_covers_the_true_median() {
        let mut random = fastrand::Rng::with_seed(7);
        let covers = |_: &u32| {
            let interval = median_interval((0..11).map(|_| random.u32(..1_000_001) as f64)).unwrap();
            (interval.low.unwrap()..=interval.high.unwrap()).contains(&500_000.0)
        };
        // The interval from the second to the tenth of eleven values covers the median in 98.8 % of cases.
        let covered = (0..10_000).filter(covers).count();
        assert!((9_850..9_920).contains(&covered), "{covered} of 10000");
    }
}
