//! Tracked requests against what a service itself wrote down: `sidelane-lab echo-server`.
//!
//! A thread's send is seen by the kernel program and then written down by the thread, and
//! before the next one is seen the thread has written this one down. So what the tracker saw
//! finish between two entries of a thread's journal is what it saw of the second: exactly one
//! request, if it is right.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::records::Request;

/// A request, as the service saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// When it was taken up.
    pub started_ns: u64,
    /// When its response had been sent.
    pub finished_ns: u64,
    /// By whom.
    pub tid: u32,
}

/// How well two accounts of the same requests agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Requests that the service told of.
    pub told: u64,
    /// Of them, those that the tracker did not see.
    pub missed: u64,
    /// Requests that only the tracker saw.
    pub invented: u64,
    /// Of those that both saw, those that cannot have been so: the tracker sees a request taken up before the
    /// service writes that down, and its response after that and before the service writes that down, too.
    pub disordered: u64,
    /// Of those that both saw, how far apart their starts and their finishes are, whichever is
    /// more.
    pub apart_ns: Vec<u64>,
}

impl Agreement {
    /// Of the requests told of, those seen within `limit_ns`, in percent.
    pub fn within_percent(&self, limit_ns: u64) -> Option<f64> {
        (self.told > 0).then(|| self.near(limit_ns) as f64 * 100.0 / self.told as f64)
    }

    /// How many were seen within `limit_ns`.
    pub fn near(&self, limit_ns: u64) -> u64 {
        self.apart_ns.iter().filter(|apart_ns| **apart_ns <= limit_ns).count() as u64
    }

    /// The median distance.
    pub fn median_ns(&self) -> Option<u64> {
        let mut sorted = self.apart_ns.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}

/// Reads what the service wrote down.
pub fn read_journal(path: &Path) -> Result<Vec<Told>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.lines().map(|line| parse(line).with_context(|| format!("`{line}` in {}", path.display()))).collect()
}

fn parse(line: &str) -> Result<Told> {
    let fields = line.split(',').map(str::parse::<u64>).collect::<Result<Vec<_>, _>>()?;
    ensure!(fields.len() == 4, "not an entry of a journal");
    Ok(Told { started_ns: fields[1], finished_ns: fields[2], tid: fields[3] as u32 })
}

/// Compares the two accounts.
pub fn compare(told: &[Told], seen: &[Request]) -> Agreement {
    let mut threads: BTreeMap<u32, (Vec<Told>, Vec<Request>)> = BTreeMap::new();
    told.iter().for_each(|told| threads.entry(told.tid).or_default().0.push(*told));
    seen.iter().for_each(|seen| threads.entry(seen.tid).or_default().1.push(*seen));
    let mut agreement = Agreement { told: told.len() as u64, ..Agreement::default() };
    for (mut told, mut seen) in threads.into_values() {
        told.sort_unstable_by_key(|told| told.finished_ns);
        seen.sort_unstable_by_key(|seen| seen.finished_ns);
        compare_thread(&told, &seen, &mut agreement);
    }
    agreement
}

/// Both in the order of their finishes.
fn compare_thread(told: &[Told], mut seen: &[Request], agreement: &mut Agreement) {
    for told in told {
        let upto = seen.partition_point(|seen| seen.finished_ns <= told.finished_ns);
        let (these, later) = seen.split_at(upto);
        seen = later;
        agreement.invented += these.len().saturating_sub(1) as u64;
        match these.last() {
            Some(seen) => {
                agreement.apart_ns.push(apart_ns(told, seen));
                agreement.disordered += u64::from(!in_order(told, seen));
            }
            None => agreement.missed += 1,
        }
    }
    agreement.invented += seen.len() as u64;
}

/// `seen` finished before `told` did, or they would not be a pair.
fn in_order(told: &Told, seen: &Request) -> bool {
    seen.started_ns <= told.started_ns && told.started_ns <= seen.finished_ns
}

fn apart_ns(told: &Told, seen: &Request) -> u64 {
    told.started_ns.abs_diff(seen.started_ns).max(told.finished_ns.abs_diff(seen.finished_ns))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(tid: u32, started_ns: u64, finished_ns: u64) -> Told {
        Told { started_ns, finished_ns, tid }
    }

    fn seen(tid: u32, started_ns: u64, finished_ns: u64) -> Request {
        Request { started_ns, finished_ns, tid, ..Request::default() }
    }

    #[test]
    fn common_requests_are_matched_and_others_counted() {
        let journal = [told(1, 10, 20), told(1, 30, 40), told(2, 15, 35)];
        // The second of thread 1 is missing, and thread 2 has one too many, before its own.
        let tracked = [seen(1, 9, 19), seen(2, 1, 5), seen(2, 14, 34), seen(3, 1, 2)];
        let agreement = compare(&journal, &tracked);
        assert_eq!((agreement.told, agreement.missed, agreement.invented), (3, 1, 2));
        assert_eq!(agreement.within_percent(1), Some(200.0 / 3.0));
        assert_eq!((agreement.apart_ns, agreement.disordered), (vec![1, 1], 0));
        assert_eq!(compare(&journal[..1], &[seen(1, 11, 19)]).disordered, 1);
        assert_eq!(compare(&journal[..1], &[seen(1, 8, 9)]).disordered, 1);
    }

    #[test]
    fn a_journal_is_read_line_by_line() {
        assert_eq!(parse("7,10,20,1").unwrap(), told(1, 10, 20));
        assert!(parse("7,10,20").is_err());
        assert!(parse("7,10,20,x").is_err());
    }

    proptest! {
        /// A tracker that is right agrees, however close together requests are; and each one
        /// that is taken from it or added to it is noticed.
        #[test]
        fn comparison_with_a_journal_notices_every_difference(
            gaps in prop::collection::vec((1..4_u32, 1..50_u64, 1..50_u64, 0..5_u64), 1..50),
            lost in any::<prop::sample::Index>(),
        ) {
            let (mut now_ns, mut journal, mut tracked) = (10, vec![], vec![]);
            for (tid, start_ns, length_ns, late_ns) in gaps {
                let started_ns = now_ns + start_ns;
                now_ns = started_ns + length_ns;
                tracked.push(seen(tid, started_ns, now_ns));
                now_ns += late_ns;
                journal.push(told(tid, started_ns + late_ns, now_ns));
            }
            let agreement = compare(&journal, &tracked);
            prop_assert_eq!((agreement.missed, agreement.invented), (0, 0));
            prop_assert_eq!(agreement.within_percent(4), Some(100.0));
            let taken = tracked.remove(lost.index(tracked.len()));
            let agreement = compare(&journal, &tracked);
            prop_assert_eq!(agreement.missed, 1 + agreement.invented);
            tracked.extend([taken, seen(9, 1, 2)]);
            let agreement = compare(&journal, &tracked);
            prop_assert_eq!((agreement.missed, agreement.invented), (0, 1));
        }
    }

    #[test]
    fn fuzzed_journals_are_read_or_refused() {
        sidelane_testing::fuzz("journal", |bytes| {
            let text = String::from_utf8_lossy(bytes);
            assert!(text.lines().filter_map(|line| parse(line).ok()).count() <= text.lines().count());
        });
    }
}
