//! Buckets of histograms: `2^bits` of one width for each power of two. The kernel program has such histograms with 5
//! bits (`record` in `bpf/lane/accounting.h`); their buckets are at most 3 % wide.

/// Returns the bucket of a value.
#[inline]
pub const fn bucket(value: u64, bits: u32) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(bits + 1);
    ((shift as usize) << bits) + (value >> shift) as usize
}

/// Returns the first value of a bucket; the largest possible value for the bucket after the last one.
pub const fn first_value_of_bucket(bucket: usize, bits: u32) -> u64 {
    let shift = (bucket >> bits).saturating_sub(1);
    let shifted = (bucket - (shift << bits)) as u64;
    if shift as u32 > shifted.leading_zeros() { u64::MAX } else { shifted << shift }
}

/// Returns the middle of a bucket.
pub const fn middle_of_bucket(bucket: usize, bits: u32) -> u64 {
    let first = first_value_of_bucket(bucket, bits);
    first + (first_value_of_bucket(bucket + 1, bits) - first) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_bucket_of_five_bits_stands_for_its_values_within_2_percent() {
        for value in [0, 1, 31, 32, 33, 63, 64, 100, 999, 4_400, 123_456, 9_999_999_999, (1 << 40) - 1] {
            let read = middle_of_bucket(bucket(value, 5), 5);
            assert!(read.abs_diff(value) * 50 <= value, "{value} read as {read}");
        }
    }

    proptest! {
        #[test]
        fn each_value_is_in_its_bucket(value: u64, bits in 0_u32..6) {
            let bucket = bucket(value, bits);
            prop_assert!(first_value_of_bucket(bucket, bits) <= value);
            prop_assert!(value < first_value_of_bucket(bucket + 1, bits) || first_value_of_bucket(bucket + 1, bits) == u64::MAX);
        }
    }
}
