//! Medians and percentiles of single values.

/// Returns the median, between the two middle values of an even number; `None` without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    median_of_sorted(&sorted(values))
}

/// Returns a percentile of sorted values by the nearest rank: the smallest value that at least `percent` percent of the
/// values do not exceed.
pub fn percentile<T: Copy>(sorted: &[T], percent: f64) -> Option<T> {
    let rank = (sorted.len() as f64 * percent / 100.0).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied()
}

pub(crate) fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

pub(crate) fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let (above, below) = (sorted.get(sorted.len() / 2)?, sorted[(sorted.len() - 1) / 2]);
    Some(if sorted.len().is_multiple_of(2) { (below + above) / 2.0 } else { *above })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn percentile_is_one_of_the_values() {
        let values: Vec<u64> = (1..=200).collect();
        assert_eq!([0.0, 50.0, 99.0, 100.0].map(|percent| percentile(&values, percent)), [1, 100, 198, 200].map(Some));
        assert_eq!([50.0, 99.0].map(|percent| percentile(&[1, 2, 3], percent)), [Some(2), Some(3)]);
        assert_eq!(percentile(&[] as &[u64], 50.0), None);
    }
}
