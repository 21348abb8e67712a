//! Counters of the candidate events on one CPU.

use std::io;
use std::os::fd::OwnedFd;

use sidelane_host::events::Formula;
use sidelane_host::perf;

/// Open counters of all candidates. The counters of one formula are a group. Groups take turns if the processor has too
/// few counters, so all counts of one formula are from the same moments.
pub struct Counters(Vec<Vec<OwnedFd>>);

impl Counters {
    /// Opens the counters on a CPU, for all threads that run there.
    pub fn open(candidates: &[Formula], cpu: u32) -> io::Result<Self> {
        let group = |formula: &Formula| perf::open_counter_group(formula.events(), cpu).map_err(|(_, error)| error);
        candidates.iter().map(group).collect::<io::Result<_>>().map(Self)
    }

    /// Returns the present counts, by candidate and event.
    pub fn read(&self) -> io::Result<Vec<Vec<u64>>> {
        let group = |counters: &Vec<OwnedFd>| counters.iter().map(perf::read_counter).collect::<io::Result<Vec<u64>>>();
        self.0.iter().map(group).collect()
    }
}

/// Returns each candidate's value between two reads; `None` if it cannot be computed.
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
    fn value_is_of_the_events_between_two_reads() {
        let candidates =
            ["cycles / instructions", "page-faults / task-clock"].map(|text| Formula::parse(text).unwrap());
        let (before, after) = (vec![vec![10, 20], vec![1, 5]], vec![vec![40, 30], vec![1, 5]]);
        assert_eq!(values(&candidates, &before, &after), [Some(3.0), None]);
    }
}
