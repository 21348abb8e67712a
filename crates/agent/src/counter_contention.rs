//! Contention for the counters that measure interference: the share of time in which other programs have them.
//!
//! A processor has few counters. If other programs count too, the kernel gives the counters to the programs in turns.
//! Events
//! in the turns of other programs are not seen.

use std::collections::BTreeMap;

use sidelane_policy::Nanos;
use sidelane_tracker::interference::InterferenceCounts;

/// Smallest share of time for a first note, in percent: time in which other programs have the counters.
const WORTH_A_NOTE: u64 = 1;
/// Smallest rise of the share of time in which other programs have the counters for a further note, in percentage
/// points.
const WORTH_ANOTHER: u64 = 10;

/// Share of time in which other programs have the counters, by CPU.
#[derive(Debug, Default)]
pub struct CounterContention {
    cpus: BTreeMap<u32, Before>,
    /// Share of time, in percent, in which other programs had the counters according to the last note; `None` before
    /// the first note.
    told: Option<u64>,
}

/// Time and counts of a CPU at the last reading of its counters that gave new values.
#[derive(Clone, Copy, Debug)]
struct Before {
    at_ns: Nanos,
    counted: InterferenceCounts,
}

impl CounterContention {
    /// Compares the present counts of each CPU with the earlier ones. If a note is due, returns the CPU whose counters
    /// other programs had longest, and their share of the time in percent.
    pub fn observe_counts(
        &mut self,
        now_ns: Nanos,
        cpus: impl Iterator<Item = (u32, InterferenceCounts)>,
    ) -> Option<(u32, u64)> {
        let shares = cpus.filter_map(|(cpu, counted)| Some((cpu, self.contended_percent(cpu, now_ns, counted)?)));
        let (cpu, percent) = shares.collect::<Vec<_>>().into_iter().max_by_key(|(_, percent)| *percent)?;
        let least = self.told.map_or(WORTH_A_NOTE, |told| told + WORTH_ANOTHER);
        (percent >= least).then(|| {
            self.told = Some(percent);
            (cpu, percent)
        })
    }

    /// Returns the share of time in which other programs had the CPU's counters since their last reading, in percent.
    /// `None` if there was no new reading: counters are read only while a service runs on the CPU.
    fn contended_percent(&mut self, cpu: u32, now_ns: Nanos, counted: InterferenceCounts) -> Option<u64> {
        let now = Before { at_ns: now_ns, counted };
        let before = *self.cpus.entry(cpu).or_insert(now);
        if before.counted.reads == counted.reads {
            return None;
        }
        self.cpus.insert(cpu, now);
        let (away_ns, for_ns) = (counted.away_ns - before.counted.away_ns, now_ns - before.at_ns);
        Some((100 * away_ns / for_ns.max(1)).min(100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts_with(reads: u64, away_ns: u64) -> InterferenceCounts {
        InterferenceCounts { reads, away_ns, ..InterferenceCounts::default() }
    }

    #[test]
    fn share_of_lost_time_is_reported_again_after_a_rise() {
        let mut contention = CounterContention::default();
        let mut look =
            |now_ns, away_ns| contention.observe_counts(now_ns, [(3, counts_with(now_ns, away_ns))].into_iter());
        assert_eq!(look(1_000, 0), None, "the first look only begins");
        assert_eq!(look(2_000, 9), None, "under 1 %");
        assert_eq!(look(3_000, 409), Some((3, 40)));
        assert_eq!(look(4_000, 809), None, "as before");
        assert_eq!(look(5_000, 1_309), Some((3, 50)));
    }

    #[test]
    fn share_spans_the_time_since_the_last_read() {
        let mut contention = CounterContention::default();
        assert_eq!(contention.observe_counts(1_000, [(0, counts_with(1, 0))].into_iter()), None);
        assert_eq!(contention.observe_counts(9_000, [(0, counts_with(1, 0))].into_iter()), None);
        assert_eq!(contention.observe_counts(11_000, [(0, counts_with(2, 1_000))].into_iter()), Some((0, 10)));
    }

    #[test]
    fn cpu_with_the_largest_share_is_reported() {
        let mut contention = CounterContention::default();
        contention.observe_counts(0, [(0, counts_with(1, 0)), (1, counts_with(1, 0))].into_iter());
        assert_eq!(
            contention.observe_counts(100, [(0, counts_with(2, 5)), (1, counts_with(2, 30))].into_iter()),
            Some((1, 30))
        );
    }
}
