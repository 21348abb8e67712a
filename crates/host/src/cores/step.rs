//! Division of CPUs into big and little ones by a number that says how fast each is.
//!
//! The numbers are sorted. The widest step between two neighbours divides the CPUs.
//!
//! - *Why steps, and not the distance from the fastest.* Firmware ranks equal cores in small steps that add up: a
//!   Ryzen AI Max+ 395 with 16 equal cores has 33 to 47, so the last has 70 % of the first. Little cores can be
//!   nearer: those of a Core i9-12900K have 75 % of the big ones' clock, in one step.
//! - *Why the widest step, with more than two sizes.* Long requests on the slowest cores make the tail. Long requests
//!   have to avoid the cores below the widest step; the more CPUs are above it, the more long requests find a place.
//!   With 1024, 780 and 280 (prime, middle, little) the middle ones are big. Among equal steps, the lowest one
//!   divides.

use super::speeds::Speeds;
use crate::cpulist::CpuSet;

/// Highest speed of the slower CPU, in percent of the faster one, at which the step between them is wide. Big and
/// little cores have 75 to 78 % in their clocks (RK3588, Core i9-12900K, Juno, HiKey 960) and less in capacity. If
/// their clocks differ less (Core Ultra 9 285K: 4.6 and 5.5 GHz), lists distinguish them. Neighbours among equal
/// cores differ less: favoured cores by 2 to 5 %, the halves of a Ryzen 9 7950X3D by 8 %.
const WIDE_PERCENT: u64 = 80;

/// Returns the CPUs above and those below the widest step; `None` if no step is wide.
pub fn split_at_widest_step(speeds: &Speeds) -> Option<(CpuSet, CpuSet)> {
    let mut sizes: Vec<u64> = speeds.values().map(|speed| u64::from(*speed)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let steps = sizes.windows(2).map(|step| (step[0], step[1]));
    // The smallest quotient is the widest step. Products compare quotients exactly.
    let (below, above) = steps.min_by(|one, other| (one.0 * other.1).cmp(&(other.0 * one.1)))?;
    if below * 100 > above * WIDE_PERCENT {
        return None;
    }
    let all: CpuSet = speeds.keys().copied().collect();
    let big = speeds.iter().filter(|(_, speed)| u64::from(**speed) >= above).map(|(cpu, _)| *cpu).collect();
    let little = all.difference(&big);
    Some((big, little))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Maps the CPUs 0, 1, … to the listed speeds.
    fn speeds_by_cpu(speeds: &[u32]) -> Speeds {
        (0..).zip(speeds.iter().copied()).collect()
    }

    fn split_as_text(list: &[u32]) -> Option<(String, String)> {
        split_at_widest_step(&speeds_by_cpu(list)).map(|(big, little)| (big.to_string(), little.to_string()))
    }

    fn expected_split(big: &str, little: &str) -> Option<(String, String)> {
        Some((big.to_owned(), little.to_owned()))
    }

    #[test]
    fn two_speeds_are_divided_if_they_differ_by_a_fifth() {
        assert_eq!(split_as_text(&[446, 1024, 1024, 446]), expected_split("1-2", "0,3"));
        assert_eq!(split_as_text(&[800, 1000]), expected_split("1", "0"));
        assert_eq!(split_as_text(&[801, 1000]), None);
        assert_eq!(split_as_text(&[1024, 1024]), None);
        assert_eq!(split_as_text(&[1024]), None);
        assert_eq!(split_as_text(&[]), None);
    }

    #[test]
    fn cpus_above_the_widest_step_of_speed_are_big() {
        assert_eq!(split_as_text(&[280, 280, 780, 1024]), expected_split("2-3", "0-1"));
        assert_eq!(split_as_text(&[400, 400, 500, 1024]), expected_split("3", "0-2"));
        // Among equal steps the lowest one divides: the slowest CPUs make the tail.
        assert_eq!(split_as_text(&[250, 500, 1000]), expected_split("1-2", "0"));
    }

    #[test]
    fn many_small_steps_of_speed_give_no_division() {
        let row: Vec<u32> = (33..=47).collect();
        assert_eq!(split_as_text(&row), None);
    }

    proptest! {
        #[test]
        fn big_and_little_are_disjoint_and_differ_by_a_fifth(
            list in proptest::collection::vec(1u32..5_000_000, 0..40),
        ) {
            let speeds = speeds_by_cpu(&list);
            if let Some((big, little)) = split_at_widest_step(&speeds) {
                prop_assert_eq!(big.len() + little.len(), speeds.len());
                let slowest_big = big.iter().map(|cpu| u64::from(speeds[&cpu])).min().expect("a big CPU");
                let fastest_little = little.iter().map(|cpu| u64::from(speeds[&cpu])).max().expect("a little CPU");
                prop_assert!(fastest_little * 100 <= slowest_big * WIDE_PERCENT);
            }
        }

        #[test]
        fn division_is_independent_of_the_unit_of_speed(
            list in proptest::collection::vec(1u32..4_000, 0..40),
            times in 2u32..1000,
        ) {
            let scaled: Vec<u32> = list.iter().map(|speed| speed * times).collect();
            prop_assert_eq!(split_as_text(&list), split_as_text(&scaled));
        }
    }
}
