//! Grid of two rates (SHIM thesis, Figure 3.14): the number of samples in each bucket of the first rate and bucket of
//! the second rate.

/// Number of columns and of rows in a grid of two rates.
pub const GRID: usize = 96;
/// Binary logarithm at which the first bucket of a grid begins: rates from 2^-24. A bucket is half a doubling wide.
const GRID_START: i32 = -24;

/// Returns the column or row of a rate in a grid.
#[inline(always)]
pub fn grid_bucket(rate: f64) -> usize {
    let halves = ((rate.to_bits() >> 51) as i64) - (i64::from(1023 + GRID_START) << 1);
    halves.clamp(0, GRID as i64 - 1) as usize
}

/// Returns the smallest rate of a column or row; 0 for the first, which has all smaller rates.
pub fn smallest_rate_of_bucket(bucket: usize) -> f64 {
    let exponent = (bucket >> 1) as i32 + GRID_START;
    let within = if bucket & 1 == 0 { 1.0 } else { 1.5 };
    if bucket == 0 { 0.0 } else { within * f64::from(exponent).exp2() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_lies_in_the_bucket_that_begins_before_it() {
        for rate in [0.0, 1e-9, 0.001, 0.5, 1.0, 1.49, 1.5, 1.51, 3.0, 1e6] {
            let bucket = grid_bucket(rate);
            assert!(
                smallest_rate_of_bucket(bucket) <= rate && rate < smallest_rate_of_bucket(bucket + 1),
                "{rate} in {bucket}"
            );
        }
    }
}
