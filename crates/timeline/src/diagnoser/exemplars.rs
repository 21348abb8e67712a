//! Timelines that are kept: those of the slowest requests, and for each cause the timelines with the most time of that
//! cause.

use std::cmp::Reverse;

use crate::cause::Cause;
use crate::diagnoser::normal::{Times, cause_index};
use crate::timeline::{Span, Timeline};

/// Number of timelines that are kept for each cause.
const OF_EACH_CAUSE: usize = 3;

/// Timelines with the highest scores, such as latency.
#[derive(Debug, Default)]
struct TopTimelines {
    timelines: Vec<(u64, Timeline)>,
}

impl TopTimelines {
    /// Returns whether a timeline with this score would be among the `most` that are kept.
    fn should_keep(&self, score: u64, max_count: usize) -> bool {
        score > 0 && (self.timelines.len() < max_count || self.timelines.last().is_some_and(|(last, _)| *last < score))
    }

    fn keep_if_best(&mut self, score: u64, timeline: &Timeline, max_count: usize) {
        if !self.should_keep(score, max_count) {
            return;
        }
        let at = self.timelines.partition_point(|(other, _)| *other >= score);
        self.timelines.insert(at, (score, timeline.clone()));
        self.timelines.truncate(max_count);
    }
}

/// Timelines that are kept as examples for the diagnosis.
#[derive(Debug)]
pub struct Exemplars {
    slowest: TopTimelines,
    slowest_count: usize,
    causes: Vec<TopTimelines>,
}

impl Exemplars {
    pub fn new(slowest_count: usize) -> Exemplars {
        let causes = Cause::ALL.iter().map(|_| TopTimelines::default()).collect();
        Exemplars { slowest: TopTimelines::default(), slowest_count, causes }
    }

    /// Stores the timeline if it is among the slowest, or among those with the most time of a cause.
    pub fn add_candidate(&mut self, timeline: &Timeline, times: &Times) {
        self.slowest.keep_if_best(timeline.latency_ns(), timeline, self.slowest_count);
        for (best, time_ns) in self.causes.iter_mut().zip(times) {
            best.keep_if_best(*time_ns, timeline, OF_EACH_CAUSE);
        }
    }

    /// Returns the kept timelines of the slowest requests, the slowest first.
    pub fn slowest(&self) -> impl Iterator<Item = &Timeline> {
        self.slowest.timelines.iter().map(|(_, timeline)| timeline)
    }

    /// Returns the kept timelines with the most time of `cause`, and the slowest ones, each once.
    pub fn examples_of_cause(&self, cause: Cause) -> Vec<&Timeline> {
        let own = self.causes[cause_index(cause)].timelines.iter().map(|(_, timeline)| timeline);
        let mut all: Vec<&Timeline> = own.chain(self.slowest()).collect();
        all.sort_by_key(|timeline| (Reverse(timeline.time_of_cause_ns(cause)), timeline.request));
        all.dedup_by_key(|timeline| timeline.request);
        all
    }

    /// Returns the timeline of the request with this number; `None` if it was not kept.
    pub fn find(&self, request: u64) -> Option<&Timeline> {
        let of_causes = self.causes.iter().flat_map(|best| best.timelines.iter().map(|(_, timeline)| timeline));
        self.slowest().chain(of_causes).find(|timeline| timeline.request == request)
    }

    /// Returns the memory of the kept timelines, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let bytes = |best: &TopTimelines| -> usize {
            let spans = best.timelines.iter().map(|(_, timeline)| timeline.spans.capacity());
            spans.map(|spans| spans * size_of::<Span>() + size_of::<Timeline>()).sum()
        };
        self.causes.iter().map(bytes).sum::<usize>() + bytes(&self.slowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(request: u64) -> Timeline {
        Timeline {
            request,
            socket: 7,
            peer_port: 0,
            arrived_ns: 1,
            started_ns: 1,
            finished_ns: 2,
            ended_ns: 2,
            spans: Vec::new(),
            incomplete: None,
        }
    }

    #[test]
    fn highest_scores_are_kept_and_zero_scores_are_not() {
        let mut best = TopTimelines::default();
        assert_eq!([(0, 2), (1, 2), (1, 0)].map(|(score, most)| best.should_keep(score, most)), [false, true, false]);
        for (request, score) in [(1, 10), (2, 30), (3, 20), (4, 20), (5, 0)] {
            best.keep_if_best(score, &timeline(request), 2);
        }
        assert!(best.timelines.iter().map(|(score, timeline)| (*score, timeline.request)).eq([(30, 2), (20, 3)]));
        assert_eq!([20, 21].map(|score| best.should_keep(score, 2)), [false, true]);
    }

    #[test]
    fn kept_timelines_are_counted_as_memory() {
        let mut exemplars = Exemplars::new(2);
        let mut times = [0; Cause::ALL.len()];
        times[0] = 1;
        exemplars.add_candidate(&timeline(1), &times);
        assert_eq!(exemplars.memory_bytes(), 2 * size_of::<Timeline>(), "as a slow one, and as one of a cause");
        let (cause, tid, cpu, by_tid, by_pid, detail, behind, wait) = (Cause::OnCpu, 1, None, 0, 0, 0, 0, None);
        let span = Span { from_ns: 1, to_ns: 2, cause, tid, cpu, by_tid, by_pid, detail, behind, wait };
        let spans = vec![span; 10];
        exemplars.add_candidate(&Timeline { spans, ..timeline(2) }, &times);
        assert_eq!(exemplars.memory_bytes(), 2 * (2 * size_of::<Timeline>() + 10 * size_of::<Span>()));
    }
}
