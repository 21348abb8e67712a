//! Facts that were true in an interval of time: the history from which a request's spans are cut.

use std::collections::VecDeque;

use crate::cause::Cause;
use crate::record::Task;

/// State of a thread during an interval of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The thread ran on a CPU.
    Running,
    /// The thread could run, but had no CPU.
    Ready,
    /// The thread slept.
    Asleep,
    /// Nothing is known about the thread's state.
    Unknown,
}

/// A fact that was true from one moment to another: a state of a thread, an interrupt, a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fact {
    pub from_ns: u64,
    pub to_ns: u64,
    /// The request that the thread worked on; 0 for none.
    pub request: u64,
    pub detail: u64,
    /// Another thread: it had the CPU, held the lock, or woke the fact's own thread.
    pub by: Task,
    pub cpu: u32,
    /// The state of the thread; `Unknown` for facts that are not about a thread's state.
    pub state: State,
    pub cause: Cause,
}

impl Fact {
    /// Creates a fact that is not a thread's state, such as an interrupt or a pause.
    pub fn new(cause: Cause, from_ns: u64, to_ns: u64, detail: u64) -> Fact {
        Fact { from_ns, to_ns, request: 0, detail, by: Task::default(), cpu: 0, state: State::Unknown, cause }
    }

    /// Returns whether this fact and `other`, which follows it, differ only in their times.
    fn is_continued_by(&self, other: &Fact) -> bool {
        self.to_ns == other.from_ns
            && (self.request, self.detail, self.by, self.cpu, self.state, self.cause)
                == (other.request, other.detail, other.by, other.cpu, other.state, other.cause)
    }
}

/// Facts of one kind, such as the interrupts of a CPU, in the order of time. No two facts overlap.
#[derive(Debug, Default)]
pub struct Track {
    facts: VecDeque<Fact>,
}

/// Capacity up to which a history keeps its memory.
const SMALL_CAPACITY: usize = 64;

/// Frees memory of a history of which less than a quarter is used. Twice what is used is kept.
pub fn free_unused_memory<T>(history: &mut VecDeque<T>) {
    if history.capacity() > SMALL_CAPACITY && history.capacity() / 4 > history.len() {
        history.shrink_to(history.len() * 2);
    }
}

/// Number of facts that `Track::push_between_facts` examines, from the last one backwards.
const FITTED_BETWEEN: usize = 16;

impl Track {
    /// Adds a fact that begins where the last fact of the track ended, or later. The part of the new fact that overlaps
    /// the last fact is left out.
    pub fn push(&mut self, mut fact: Fact) {
        if let Some(last) = self.facts.back_mut() {
            fact.from_ns = fact.from_ns.max(last.to_ns);
            if last.is_continued_by(&fact) && fact.from_ns < fact.to_ns {
                last.to_ns = fact.to_ns;
                return;
            }
        }
        if fact.from_ns < fact.to_ns {
            self.facts.push_back(fact);
        }
    }

    /// Returns a mutable reference to the fact with index `place`.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Fact> {
        self.facts.get_mut(index)
    }

    /// Adds a fact that ends after all others and may have begun before some of them. The fact fills the time between
    /// the others. An example is a softirq that interrupts have interrupted.
    pub fn push_between_facts(&mut self, fact: Fact) {
        let mut at = self.facts.len();
        let mut end_ns = fact.to_ns;
        for _ in 0..FITTED_BETWEEN {
            let Some(before) = at.checked_sub(1).map(|before| self.facts[before]) else { break };
            if before.to_ns <= fact.from_ns {
                break;
            }
            if before.to_ns < end_ns {
                self.facts.insert(at, Fact { from_ns: before.to_ns, to_ns: end_ns, ..fact });
            }
            end_ns = end_ns.min(before.from_ns);
            at -= 1;
        }
        let from_ns = fact.from_ns.max(at.checked_sub(1).map_or(0, |before| self.facts[before].to_ns));
        if from_ns < end_ns {
            self.facts.insert(at, Fact { from_ns, to_ns: end_ns, ..fact });
        }
    }

    /// Returns the index of the first fact of the track that ends after `from_ns`.
    pub fn first_index_ending_after(&self, from_ns: u64) -> usize {
        // Requests are built soon after their end, so the fact is near the end of the track.
        if self.facts.back().is_none_or(|last| last.to_ns <= from_ns) {
            return self.facts.len();
        }
        self.facts.partition_point(|fact| fact.to_ns <= from_ns)
    }

    pub fn get(&self, index: usize) -> Option<&Fact> {
        self.facts.get(index)
    }

    /// Removes the facts of the track that ended before `floor_ns`, and frees memory.
    pub fn remove_ended_before(&mut self, floor_ns: u64) {
        while self.facts.front().is_some_and(|fact| fact.to_ns < floor_ns) {
            self.facts.pop_front();
        }
        free_unused_memory(&mut self.facts);
    }

    /// Returns the number of facts of the track.
    pub fn len(&self) -> usize {
        self.facts.len()
    }

    /// Returns the heap memory of the track, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.facts.capacity() * size_of::<Fact>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interrupt(from_ns: u64, to_ns: u64, detail: u64) -> Fact {
        Fact::new(Cause::Interrupt, from_ns, to_ns, detail)
    }

    fn intervals_and_details(track: &Track) -> Vec<(u64, u64, u64)> {
        track.facts.iter().map(|fact| (fact.from_ns, fact.to_ns, fact.detail)).collect()
    }

    #[test]
    fn a_fact_begins_where_the_last_one_ended() {
        let mut track = Track::default();
        track.push(interrupt(10, 20, 1));
        track.push(interrupt(15, 30, 2));
        track.push(interrupt(12, 18, 3));
        assert_eq!(intervals_and_details(&track), [(10, 20, 1), (20, 30, 2)]);
    }

    #[test]
    fn adjacent_equal_intervals_merge_into_one_fact() {
        let mut track = Track::default();
        track.push(interrupt(10, 20, 1));
        track.push(interrupt(20, 30, 1));
        assert_eq!(intervals_and_details(&track), [(10, 30, 1)]);
    }

    #[test]
    fn interrupted_fact_fills_the_time_between_the_others() {
        let mut track = Track::default();
        track.push(interrupt(0, 5, 1));
        track.push(interrupt(20, 30, 2));
        track.push(interrupt(40, 50, 3));
        track.push_between_facts(interrupt(3, 60, 9));
        assert_eq!(
            intervals_and_details(&track),
            [(0, 5, 1), (5, 20, 9), (20, 30, 2), (30, 40, 9), (40, 50, 3), (50, 60, 9)]
        );
    }

    #[test]
    fn facts_that_ended_before_the_floor_are_removed() {
        let mut track = Track::default();
        (0..100).for_each(|i| track.push(interrupt(i * 10, i * 10 + 5, i)));
        track.remove_ended_before(905);
        assert_eq!(track.len(), 10);
        assert_eq!(track.first_index_ending_after(0), 0);
        assert_eq!(track.first_index_ending_after(915), 2);
        assert_eq!(track.first_index_ending_after(2_000), 10);
    }

    #[test]
    fn memory_of_a_large_mostly_unused_history_is_freed() {
        // Capacity, facts in use, and capacity afterwards.
        for (before, used, after) in [(1_024, 0, 0), (1_024, 255, 510), (1_024, 256, 1_024), (64, 0, 64), (65, 0, 0)] {
            let mut history = VecDeque::<u64>::with_capacity(before);
            history.extend(0..used);
            free_unused_memory(&mut history);
            assert_eq!((history.capacity(), history.len()), (after, used as usize), "{before} {used}");
        }
        let mut track = Track::default();
        (0..1_000).for_each(|i| track.push(interrupt(i * 10, i * 10 + 5, i)));
        let bytes = track.heap_bytes();
        track.remove_ended_before(9_000);
        assert!(track.len() == 100 && track.heap_bytes() < bytes / 2, "{bytes} {}", track.heap_bytes());
    }

    #[test]
    fn fact_that_spans_too_many_others_is_cut_at_its_begin() {
        let mut track = Track::default();
        (0..20).for_each(|i| track.push(interrupt(i * 10, i * 10 + 5, 1)));
        track.push_between_facts(interrupt(0, 200, 9));
        let around: Vec<_> = intervals_and_details(&track).into_iter().filter(|(.., detail)| *detail == 9).collect();
        assert_eq!((around.len(), around[0], around[16]), (17, (35, 40, 9), (195, 200, 9)));
        assert!(track.heap_bytes() >= 37 * size_of::<Fact>());
    }
}
