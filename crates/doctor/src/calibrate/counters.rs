//! The candidates' counters on one CPU.

use std::io;
use std::os::fd::OwnedFd;

use sidelane_host::events::Formula;
use sidelane_host::perf;

/// The open counters of all candidates. Those of one formula are a group, and groups take turns where the processor
/// has too few counters, so that a value is always of the same moments.
pub struct Counters(Vec<Vec<OwnedFd>>);

impl Counters {
    /// Opens them on a CPU, for all threads that run there.
    pub fn open(candidates: &[Formula], cpu: u32) -> io::Result<Self> {
        let group = |formula: &Formula| perf::open_together(formula.events(), cpu).map_err(|(_, error)| error);
        candidates.iter().map(group).collect::<io::Result<_>>().map(Self)
    }

    /// Where they stand, by candidate and event.
    pub fn read(&self) -> io::Result<Vec<Vec<u64>>> {
        let group = |counters: &Vec<OwnedFd>| counters.iter().map(perf::read).collect::<io::Result<Vec<u64>>>();
        self.0.iter().map(group).collect()
    }
}

/// Each candidate's value between two reads.
pub fn values(candidates: &[Formula], before: &[Vec<u64>], after: &[Vec<u64>]) -> Vec<Option<f64>> {
    let counted = |(before, after): (&Vec<u64>, &Vec<u64>)| -> Vec<u64> {
        before.iter().zip(after).map(|(before, after)| after.saturating_sub(*before)).collect()
    };
    let counts = before.iter().zip(after).map(counted);
    candidates.iter().zip(counts).map(|(formula, counts)| formula.value(&counts)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_of_what_was_counted_between_two_reads() {
        let candidates =
            ["cycles / instructions", "page-faults / task-clock"].map(|text| Formula::parse(text).unwrap());
        let (before, after) = (vec![vec![10, 20], vec![1, 5]], vec![vec![40, 30], vec![1, 5]]);
        assert_eq!(values(&candidates, &before, &after), [Some(3.0), None]);
    }
}
