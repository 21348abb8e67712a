//! An interval: a number that was measured several times, with its 95 % confidence interval.

use serde::{Deserialize, Serialize};

/// How a check's interval was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Method {
    /// For a count or a simulation, which give the same number on every run.
    #[default]
    #[serde(rename = "exact")]
    Exact,
    /// For a median, by ranks; valid for every distribution.
    #[serde(rename = "median, by order statistics")]
    OrderStatistics,
    /// For a figure of all rounds together: computed again from randomly drawn rounds.
    #[serde(rename = "bootstrap over rounds")]
    Bootstrap,
    /// For a mean, by its standard error.
    #[serde(rename = "mean, by its standard error")]
    StandardError,
}

impl Method {
    /// The method's name in results.
    pub fn words(self) -> &'static str {
        match self {
            Method::Exact => "exact",
            Method::OrderStatistics => "median, by order statistics",
            Method::Bootstrap => "bootstrap over rounds",
            Method::StandardError => "mean, by its standard error",
        }
    }
}

/// A number and its 95 % confidence interval. A missing end means that there were too few rounds to
/// bound it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The number itself.
    pub measured: f64,
    /// Lower end of the interval.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high: Option<f64>,
    /// How the ends were computed.
    pub method: Method,
}

impl Interval {
    /// A number that is the same on every run.
    pub fn exact(measured: f64) -> Interval {
        Interval { measured, low: Some(measured), high: Some(measured), method: Method::Exact }
    }

    /// A mean of many samples, with its standard error.
    pub fn of_mean(measured: f64, error: f64) -> Interval {
        const Z_95: f64 = 1.96;
        let [low, high] = [-Z_95, Z_95].map(|times| Some(measured + times * error));
        Interval { measured, low, high, method: Method::StandardError }
    }

    /// The interval under a rising function, such as a change of unit or of offset.
    pub fn map(self, of: impl Fn(f64) -> f64) -> Interval {
        Interval { measured: of(self.measured), low: self.low.map(&of), high: self.high.map(&of), ..self }
    }

    /// The larger of two numbers. Each end is the 95 % bound of the number that it comes from.
    pub fn max(self, other: Interval) -> Interval {
        Interval {
            measured: self.measured.max(other.measured),
            low: either(self.low, other.low, f64::max),
            high: both(self.high, other.high, f64::max),
            method: self.method,
        }
    }

    /// The smaller of two numbers. Each end is the 95 % bound of the number that it comes from.
    pub fn min(self, other: Interval) -> Interval {
        self.map_falling(|one| -one).max(other.map_falling(|one| -one)).map_falling(|one| -one)
    }

    /// The distance of the number from `other`, in either direction, measured by `apart`. `apart`
    /// must be smallest where both are equal and rise on either side.
    pub fn apart_from(self, other: f64, apart: impl Fn(f64, f64) -> f64) -> Interval {
        let is_inside = self.low.is_none_or(|low| low <= other) && self.high.is_none_or(|high| other <= high);
        let [low, high] = [self.low, self.high].map(|end| end.map(|end| apart(end, other)));
        let nearest = if is_inside { Some(apart(other, other)) } else { either(low, high, f64::min) };
        Interval { measured: apart(self.measured, other), low: nearest, high: both(low, high, f64::max), ..self }
    }

    /// The interval under a falling function: the ends are exchanged.
    pub fn map_falling(self, of: impl Fn(f64) -> f64) -> Interval {
        Interval { measured: of(self.measured), low: self.high.map(&of), high: self.low.map(&of), ..self }
    }
}

/// The share that a median's interval leaves out on each side.
const TAIL: f64 = 0.025;

/// The median of `values` and its interval; `None` without values.
pub fn of_median(values: impl IntoIterator<Item = f64>) -> Option<Interval> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let measured = match sorted.len() {
        0 => return None,
        odd if odd % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    };
    let left_out = left_out_of(sorted.len());
    let low = left_out.map(|count| sorted[count]);
    let high = left_out.map(|count| sorted[sorted.len() - 1 - count]);
    Some(Interval { measured, low, high, method: Method::OrderStatistics })
}

/// How many of `count` sorted values are outside the median's interval on each side: the largest
/// number k such that at most k values lie below the true median in at most 2.5 % of cases.
fn left_out_of(count: usize) -> Option<usize> {
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

fn either(one: Option<f64>, other: Option<f64>, choose: fn(f64, f64) -> f64) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(choose(one, other)),
        (one, other) => one.or(other),
    }
}

fn both(one: Option<f64>, other: Option<f64>, choose: fn(f64, f64) -> f64) -> Option<f64> {
    one.zip(other).map(|(one, other)| choose(one, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(low: Option<f64>, measured: f64, high: Option<f64>) -> Interval {
        Interval { measured, low, high, method: Method::OrderStatistics }
    }

    #[test]
    fn the_larger_of_two_is_at_least_as_large_as_each() {
        let (one, other) = (interval(Some(1.0), 2.0, Some(6.0)), interval(Some(3.0), 4.0, Some(5.0)));
        assert_eq!(one.max(other), interval(Some(3.0), 4.0, Some(6.0)));
        assert_eq!(one.min(other), interval(Some(1.0), 2.0, Some(5.0)));
        let unbounded = interval(None, 9.0, None);
        assert_eq!(one.max(unbounded), interval(Some(1.0), 9.0, None));
        assert_eq!(one.min(unbounded), interval(None, 2.0, Some(6.0)));
    }

    #[test]
    fn a_distance_is_least_where_both_are_equal() {
        let apart = |one: f64, other: f64| (one - other).abs();
        let seen = interval(Some(4.0), 5.0, Some(8.0));
        assert_eq!(seen.apart_from(6.0, apart), interval(Some(0.0), 1.0, Some(2.0)));
        assert_eq!(seen.apart_from(1.0, apart), interval(Some(3.0), 4.0, Some(7.0)));
        assert_eq!(seen.apart_from(10.0, apart), interval(Some(2.0), 5.0, Some(6.0)));
        assert_eq!(interval(None, 5.0, None).apart_from(6.0, apart), interval(Some(0.0), 1.0, None));
    }

    #[test]
    fn methods_read_as_they_are_stored() {
        for method in [Method::Exact, Method::OrderStatistics, Method::Bootstrap] {
            assert_eq!(serde_json::to_value(method).unwrap(), method.words());
        }
    }
}
