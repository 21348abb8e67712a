//! Requests whose records are kept in full: the slowest, the slowest of each cause, and a few usual requests for
//! comparison.

use std::collections::BTreeMap;

use sidelane_timeline::cause::Cause;
use sidelane_timeline::timeline::Timeline;

use super::excerpt::Excerpt;

/// Number of the slowest requests that are kept.
pub const SLOWEST_MAX: usize = 150;
/// Number of the slowest requests that are kept for each cause.
pub const OF_CAUSE_MAX: usize = 12;
/// Number of usual requests that are kept.
const USUAL_MAX: usize = 4;

/// Requests whose records are kept in full.
#[derive(Debug, Default)]
pub struct Exemplars {
    excerpts: BTreeMap<u64, Excerpt>,
    slowest: TopRequests,
    of_cause: BTreeMap<Cause, TopRequests>,
    usual: Vec<u64>,
    offered: u64,
}

impl Exemplars {
    /// Keeps the request if it is one of those that the report shows. Calls `excerpt` only then.
    pub fn add_candidate(&mut self, timeline: &Timeline, excerpt: impl FnOnce() -> Excerpt) {
        self.offered += 1;
        let (number, latency_ns) = (timeline.request, timeline.latency_ns());
        let mut gone = Vec::new();
        let mut is_kept = self.slowest.add_if_among_greatest(number, latency_ns, SLOWEST_MAX, &mut gone);
        if let Some(cause) = main_cause(timeline) {
            let best = self.of_cause.entry(cause).or_default();
            is_kept |= best.add_if_among_greatest(number, timeline.time_of_cause_ns(cause), OF_CAUSE_MAX, &mut gone);
        }
        // Usual requests are the first, the tenth, the hundredth and the thousandth of all requests.
        if self.usual.len() < USUAL_MAX && self.offered == 10_u64.pow(self.usual.len() as u32) {
            self.usual.push(number);
            is_kept = true;
        }
        if is_kept {
            self.excerpts.insert(number, excerpt());
        }
        self.remove_unlisted(&gone);
    }

    /// Removes requests that are in no list any more.
    fn remove_unlisted(&mut self, dropped_requests: &[u64]) {
        for number in dropped_requests {
            let is_wanted = self.slowest.has(*number)
                || self.usual.contains(number)
                || self.of_cause.values().any(|best| best.has(*number));
            if !is_wanted {
                self.excerpts.remove(number);
            }
        }
    }

    /// Returns all kept requests, the slowest first.
    pub fn into_slowest_first(self) -> Vec<Excerpt> {
        let mut excerpts: Vec<Excerpt> = self.excerpts.into_values().collect();
        excerpts.sort_by_key(|excerpt| (std::cmp::Reverse(excerpt.timeline.latency_ns()), excerpt.timeline.request));
        excerpts
    }
}

/// Returns the cause of most of the request's time; work on a CPU does not count.
fn main_cause(timeline: &Timeline) -> Option<Cause> {
    let others = Cause::ALL.into_iter().filter(|cause| *cause != Cause::OnCpu);
    others.max_by_key(|cause| timeline.time_of_cause_ns(*cause)).filter(|cause| timeline.time_of_cause_ns(*cause) > 0)
}

/// The requests with the greatest measure, such as latency, each as (measure, request number).
#[derive(Debug, Default)]
struct TopRequests(Vec<(u64, u64)>);

impl TopRequests {
    /// Adds the request if its measure is among the `most` greatest, and returns whether it was added. The number of
    /// the request that it replaces is added to `gone`.
    fn add_if_among_greatest(&mut self, number: u64, measure: u64, max_count: usize, replaced: &mut Vec<u64>) -> bool {
        if self.0.len() < max_count {
            self.0.push((measure, number));
            return true;
        }
        let least = self.0.iter_mut().min().expect("it is full");
        if measure <= least.0 {
            return false;
        }
        replaced.push(least.1);
        *least = (measure, number);
        true
    }

    fn has(&self, number: u64) -> bool {
        self.0.iter().any(|(_, known)| *known == number)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::timeline;
    use super::*;

    fn kept_requests(timelines: impl Iterator<Item = Timeline>) -> Vec<u64> {
        let mut kept = Exemplars::default();
        for timeline in timelines {
            let excerpt = Excerpt { timeline: timeline.clone(), records: vec![], left_out: 0 };
            kept.add_candidate(&timeline, || excerpt);
        }
        kept.into_slowest_first().iter().map(|excerpt| excerpt.timeline.request).collect()
    }

    #[test]
    fn slowest_requests_are_kept() {
        let work = |number: u64| timeline(number, 0, &[(Cause::OnCpu, 1_000 + number * 7919 % 5_000)]);
        let numbers = kept_requests((1..=5_000).map(work));
        let mut all: Vec<u64> = (1..=5_000).collect();
        all.sort_by_key(|number| (std::cmp::Reverse(work(*number).latency_ns()), *number));
        assert_eq!(numbers[..SLOWEST_MAX], all[..SLOWEST_MAX]);
        assert_eq!(numbers.len(), SLOWEST_MAX + USUAL_MAX, "and the usual ones");
    }

    #[test]
    fn a_rare_cause_is_kept_though_others_are_slower() {
        let slow = |number| timeline(number, 0, &[(Cause::RunQueue, 1_000_000 + number)]);
        let rare = |number| timeline(number, 0, &[(Cause::OnCpu, 10_000), (Cause::PageFault, 40_000)]);
        let numbers = kept_requests((1..=2_000).map(|number| if number == 700 { rare(number) } else { slow(number) }));
        assert!(numbers.contains(&700));
        assert!(numbers.len() <= SLOWEST_MAX + 2 * OF_CAUSE_MAX + USUAL_MAX);
    }
}
