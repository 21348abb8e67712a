//! Interval: a number that was measured several times, with its 95 % confidence interval.

use serde::{Deserialize, Serialize};

/// Method by which an interval was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Method {
    /// No computation: counts and simulations give the same number on every run.
    #[default]
    #[serde(rename = "exact")]
    Exact,
    /// The ends are two of the sorted values (order statistics), for a median; valid for every distribution.
    #[serde(rename = "median, by order statistics")]
    OrderStatistics,
    /// The figure is recomputed from randomly drawn rounds, for a figure that is computed from all rounds together.
    #[serde(rename = "bootstrap over rounds")]
    Bootstrap,
    /// Standard error, for a mean.
    #[serde(rename = "mean, by its standard error")]
    StandardError,
}

impl Method {
    /// Returns the method's name in results.
    pub fn name(self) -> &'static str {
        match self {
            Method::Exact => "exact",
            Method::OrderStatistics => "median, by order statistics",
            Method::Bootstrap => "bootstrap over rounds",
            Method::StandardError => "mean, by its standard error",
        }
    }
}

/// A number and its 95 % confidence interval. An end is `None` if there were too few rounds to bound it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Measured number.
    pub measured: f64,
    /// Lower end of the interval.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high: Option<f64>,
    /// Method by which the ends were computed.
    pub method: Method,
}

impl Interval {
    /// Returns the interval of a number that is the same on every run.
    pub fn exact(measured: f64) -> Interval {
        Interval { measured, low: Some(measured), high: Some(measured), method: Method::Exact }
    }

    /// Returns the interval of a mean of many samples, from its standard error.
    pub fn from_mean(measured: f64, standard_error: f64) -> Interval {
        const Z_95: f64 = 1.96;
        let [low, high] = [-Z_95, Z_95].map(|times| Some(measured + times * standard_error));
        Interval { measured, low, high, method: Method::StandardError }
    }

    /// Applies `increasing`, a function that rises, to the number and both ends: for example, a change of unit.
    pub fn map(self, increasing: impl Fn(f64) -> f64) -> Interval {
        Interval {
            measured: increasing(self.measured),
            low: self.low.map(&increasing),
            high: self.high.map(&increasing),
            ..self
        }
    }

    /// Returns the interval of the larger of two numbers. Each end is the 95 % bound of one of the two numbers.
    pub fn max(self, other: Interval) -> Interval {
        Interval {
            measured: self.measured.max(other.measured),
            low: combine_or_either(self.low, other.low, f64::max),
            high: combine_if_both(self.high, other.high, f64::max),
            method: self.method,
        }
    }

    /// Returns the interval of the smaller of two numbers. Each end is the 95 % bound of one of the two numbers.
    pub fn min(self, other: Interval) -> Interval {
        self.map_decreasing(|one| -one).max(other.map_decreasing(|one| -one)).map_decreasing(|one| -one)
    }

    /// Returns the interval of the number's distance from `other`. `apart` computes the distance: it must be smallest
    /// if both numbers are equal, and grow with their difference.
    pub fn distance_from(self, other: f64, distance: impl Fn(f64, f64) -> f64) -> Interval {
        let is_inside = self.low.is_none_or(|low| low <= other) && self.high.is_none_or(|high| other <= high);
        let [low, high] = [self.low, self.high].map(|end| end.map(|end| distance(end, other)));
        let nearest = if is_inside { Some(distance(other, other)) } else { combine_or_either(low, high, f64::min) };
        Interval {
            measured: distance(self.measured, other),
            low: nearest,
            high: combine_if_both(low, high, f64::max),
            ..self
        }
    }

    /// Applies `decreasing`, a function that falls, to the number and both ends; the lower end becomes the upper one.
    pub fn map_decreasing(self, decreasing: impl Fn(f64) -> f64) -> Interval {
        Interval {
            measured: decreasing(self.measured),
            low: self.high.map(&decreasing),
            high: self.low.map(&decreasing),
            ..self
        }
    }
}

fn combine_or_either(one: Option<f64>, other: Option<f64>, choose: fn(f64, f64) -> f64) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(choose(one, other)),
        (one, other) => one.or(other),
    }
}

fn combine_if_both(one: Option<f64>, other: Option<f64>, choose: fn(f64, f64) -> f64) -> Option<f64> {
    one.zip(other).map(|(one, other)| choose(one, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(low: Option<f64>, measured: f64, high: Option<f64>) -> Interval {
        Interval { measured, low, high, method: Method::OrderStatistics }
    }

    #[test]
    fn max_and_min_of_two_intervals_combine_their_ends() {
        let (one, other) = (interval(Some(1.0), 2.0, Some(6.0)), interval(Some(3.0), 4.0, Some(5.0)));
        assert_eq!(one.max(other), interval(Some(3.0), 4.0, Some(6.0)));
        assert_eq!(one.min(other), interval(Some(1.0), 2.0, Some(5.0)));
        let unbounded = interval(None, 9.0, None);
        assert_eq!(one.max(unbounded), interval(Some(1.0), 9.0, None));
        assert_eq!(one.min(unbounded), interval(None, 2.0, Some(6.0)));
    }

    #[test]
    fn distance_interval_is_smallest_at_equal_numbers() {
        let apart = |one: f64, other: f64| (one - other).abs();
        let seen = interval(Some(4.0), 5.0, Some(8.0));
        assert_eq!(seen.distance_from(6.0, apart), interval(Some(0.0), 1.0, Some(2.0)));
        assert_eq!(seen.distance_from(1.0, apart), interval(Some(3.0), 4.0, Some(7.0)));
        assert_eq!(seen.distance_from(10.0, apart), interval(Some(2.0), 5.0, Some(6.0)));
        assert_eq!(interval(None, 5.0, None).distance_from(6.0, apart), interval(Some(0.0), 1.0, None));
    }

    #[test]
    fn method_names_are_those_in_stored_results() {
        for method in [Method::Exact, Method::OrderStatistics, Method::Bootstrap] {
            assert_eq!(serde_json::to_value(method).unwrap(), method.name());
        }
    }
}
