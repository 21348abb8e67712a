//! Comparison of tracked requests with the journal of the service itself (`sidelane-lab echo-server`).
//!
//! The kernel program sees a send of a thread before the thread writes it into the journal. The next send of this
//! thread follows only after that. So between two journal entries of a thread, a correct tracker sees exactly one
//! request finish.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use sidelane_stats::ranks::percentile;

use super::records::Request;

/// Journal entry: one request as recorded by the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerRecord {
    /// Time at which a thread started to work on the request.
    pub started_ns: u64,
    /// Time after the response was sent.
    pub finished_ns: u64,
    /// Id of the thread that served the request.
    pub tid: u32,
}

/// Result of the comparison of the journal with the tracker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Number of requests in the service's journal.
    pub told: u64,
    /// Number of journal requests that the tracker did not see.
    pub missed: u64,
    /// Number of requests that only the tracker saw.
    pub invented: u64,
    /// Number of matched requests with an impossible order of times. The tracker must see the start before the journal
    /// time of the start. It must see the response between the journal times of start and finish.
    pub disordered: u64,
    /// Time difference of each matched request: the larger of the differences of its starts and its finishes.
    pub apart_ns: Vec<u64>,
}

impl Agreement {
    /// Returns the percentage of journal requests that the tracker saw within `limit_ns`; `None` if the journal is
    /// empty.
    pub fn matched_within_percent(&self, limit_ns: u64) -> Option<f64> {
        (self.told > 0).then(|| self.matched_within(limit_ns) as f64 * 100.0 / self.told as f64)
    }

    /// Returns the number of matched requests with a time difference of at most `limit_ns`.
    pub fn matched_within(&self, limit_ns: u64) -> u64 {
        self.apart_ns.iter().filter(|apart_ns| **apart_ns <= limit_ns).count() as u64
    }

    /// Returns the median time difference of matched requests; `None` if there are none.
    pub fn median_ns(&self) -> Option<u64> {
        let mut sorted = self.apart_ns.clone();
        sorted.sort_unstable();
        percentile(&sorted, 50.0)
    }
}

/// Reads the journal of the service. Each line holds number, start, finish and thread id, separated by commas.
pub fn read_journal(path: &Path) -> Result<Vec<ServerRecord>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.lines()
        .map(|line| {
            parse_line(line).with_context(|| format!("cannot read the line `{line}` of the journal {}", path.display()))
        })
        .collect()
}

fn parse_line(line: &str) -> Result<ServerRecord> {
    let fields = line.split(',').map(str::parse::<u64>).collect::<Result<Vec<_>, _>>()?;
    ensure!(
        fields.len() == 4,
        "it is not `number,start,finish,thread id`; name a file that `sidelane-lab echo-server` wrote"
    );
    Ok(ServerRecord { started_ns: fields[1], finished_ns: fields[2], tid: fields[3] as u32 })
}

/// Compares the journal with the tracked requests, thread by thread.
pub fn compare_with_journal(journal: &[ServerRecord], tracked: &[Request]) -> Agreement {
    let mut threads: BTreeMap<u32, (Vec<ServerRecord>, Vec<Request>)> = BTreeMap::new();
    journal.iter().for_each(|told| threads.entry(told.tid).or_default().0.push(*told));
    tracked.iter().for_each(|seen| threads.entry(seen.tid).or_default().1.push(*seen));
    let mut agreement = Agreement { told: journal.len() as u64, ..Agreement::default() };
    for (mut told, mut seen) in threads.into_values() {
        told.sort_unstable_by_key(|told| told.finished_ns);
        seen.sort_unstable_by_key(|seen| seen.finished_ns);
        compare_thread(&told, &seen, &mut agreement);
    }
    agreement
}

/// Compares the requests of one thread. Both slices are sorted by finish time.
fn compare_thread(journal: &[ServerRecord], mut tracked: &[Request], agreement: &mut Agreement) {
    for told in journal {
        let upto = tracked.partition_point(|seen| seen.finished_ns <= told.finished_ns);
        let (these, later) = tracked.split_at(upto);
        tracked = later;
        agreement.invented += these.len().saturating_sub(1) as u64;
        match these.last() {
            Some(seen) => {
                agreement.apart_ns.push(time_difference_ns(told, seen));
                agreement.disordered += u64::from(!is_in_order(told, seen));
            }
            None => agreement.missed += 1,
        }
    }
    agreement.invented += tracked.len() as u64;
}

/// Returns whether the times of a matched request are in a possible order. The caller has checked that the tracked
/// request finished before the journal entry.
fn is_in_order(entry: &ServerRecord, request: &Request) -> bool {
    request.started_ns <= entry.started_ns && entry.started_ns <= request.finished_ns
}

fn time_difference_ns(entry: &ServerRecord, request: &Request) -> u64 {
    entry.started_ns.abs_diff(request.started_ns).max(entry.finished_ns.abs_diff(request.finished_ns))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn journal_record(tid: u32, started_ns: u64, finished_ns: u64) -> ServerRecord {
        ServerRecord { started_ns, finished_ns, tid }
    }

    fn tracked_request(tid: u32, started_ns: u64, finished_ns: u64) -> Request {
        Request { started_ns, finished_ns, tid, ..Request::default() }
    }

    #[test]
    fn common_requests_are_matched_and_others_counted() {
        let journal = [journal_record(1, 10, 20), journal_record(1, 30, 40), journal_record(2, 15, 35)];
        // In `tracked`, the second request of thread 1 is missing, and thread 2 has an additional first request.
        let tracked =
            [tracked_request(1, 9, 19), tracked_request(2, 1, 5), tracked_request(2, 14, 34), tracked_request(3, 1, 2)];
        let agreement = compare_with_journal(&journal, &tracked);
        assert_eq!((agreement.told, agreement.missed, agreement.invented), (3, 1, 2));
        assert_eq!(agreement.matched_within_percent(1), Some(200.0 / 3.0));
        assert_eq!((agreement.apart_ns, agreement.disordered), (vec![1, 1], 0));
        assert_eq!(compare_with_journal(&journal[..1], &[tracked_request(1, 11, 19)]).disordered, 1);
        assert_eq!(compare_with_journal(&journal[..1], &[tracked_request(1, 8, 9)]).disordered, 1);
    }

    #[test]
    fn a_journal_is_read_line_by_line() {
        assert_eq!(parse_line("7,10,20,1").unwrap(), journal_record(1, 10, 20));
        assert!(parse_line("7,10,20").is_err());
        assert!(parse_line("7,10,20,x").is_err());
    }

    proptest! {
        /// Checks that a correct tracker agrees with the journal, however short the gaps are, and that one removed or
        /// one added request is counted.
        #[test]
        fn comparison_with_a_journal_notices_every_difference(
            gaps in prop::collection::vec((1..4_u32, 1..50_u64, 1..50_u64, 0..5_u64), 1..50),
            lost in any::<prop::sample::Index>(),
        ) {
            let (mut now_ns, mut journal, mut tracked) = (10, vec![], vec![]);
            for (tid, start_ns, length_ns, late_ns) in gaps {
                let started_ns = now_ns + start_ns;
                now_ns = started_ns + length_ns;
                tracked.push(tracked_request(tid, started_ns, now_ns));
                now_ns += late_ns;
                journal.push(journal_record(tid, started_ns + late_ns, now_ns));
            }
            let agreement = compare_with_journal(&journal, &tracked);
            prop_assert_eq!((agreement.missed, agreement.invented), (0, 0));
            prop_assert_eq!(agreement.matched_within_percent(4), Some(100.0));
            let taken = tracked.remove(lost.index(tracked.len()));
            let agreement = compare_with_journal(&journal, &tracked);
            prop_assert_eq!(agreement.missed, 1 + agreement.invented);
            tracked.extend([taken, tracked_request(9, 1, 2)]);
            let agreement = compare_with_journal(&journal, &tracked);
            prop_assert_eq!((agreement.missed, agreement.invented), (0, 1));
        }
    }

    #[test]
    fn fuzzed_journals_are_read_or_refused() {
        sidelane_testing::fuzz("journal", |bytes| {
            let text = String::from_utf8_lossy(bytes);
            assert!(text.lines().filter_map(|line| parse_line(line).ok()).count() <= text.lines().count());
        });
    }
}
