//! Recent turns on the lanes of a session, from the records of the kernel program.

use std::collections::BTreeMap;

use sidelane_formats::LaneClass;
use sidelane_host::topology::Lanes;

use crate::tracker::LaneMemory;
use crate::turns::Turn;

/// Turns of one class of threads on one lane, in order.
#[derive(Debug, Default)]
struct LaneTurnHistory {
    turns: Vec<Turn>,
    /// Time before which ended turns may be missing.
    whole_since_ns: u64,
}

impl LaneTurnHistory {
    /// Reads the recorded turns, and the turn that still lasts.
    fn read(memory: &LaneMemory, cpu: u32, class: LaneClass, now_ns: u64) -> Self {
        // The present turn is read first: otherwise a turn that ends between the two reads would be missing in both.
        let present = memory.word(cpu).snapshot();
        let (mut turns, whole_since_ns) = memory.turns(cpu).copy_turns();
        let present = present.map(|word| {
            let (began_ns, ended_ns) = (word.since_ns, now_ns.max(word.since_ns));
            Turn { began_ns, ended_ns, pid: word.pid, class: word.class }
        });
        turns.extend(present.filter(|present| turns.last().is_none_or(|last| last.began_ns < present.began_ns)));
        turns.retain(|turn| turn.class == class as u32);
        Self { turns, whole_since_ns }
    }

    /// Returns how long threads of the class ran between two times; `None` if the ring has overwritten a part of this
    /// time.
    fn ran_ns(&self, from_ns: u64, to_ns: u64) -> Option<u64> {
        let first = self.turns.partition_point(|turn| turn.ended_ns <= from_ns);
        let within = self.turns[first..].iter().take_while(|turn| turn.began_ns < to_ns);
        let ran = within.map(|turn| turn.ended_ns.min(to_ns).saturating_sub(turn.began_ns.max(from_ns)));
        (from_ns >= self.whole_since_ns).then(|| ran.sum())
    }

    /// Returns whether the thread `pid` ran at this time.
    fn was_running_at(&self, pid: u32, at_ns: u64) -> bool {
        let first = self.turns.partition_point(|turn| turn.ended_ns < at_ns);
        self.turns[first..].iter().take_while(|turn| turn.began_ns <= at_ns).any(|turn| turn.pid == pid)
    }
}

/// Recent turns on the lanes of a session.
#[derive(Debug, Default)]
pub struct History {
    service: BTreeMap<u32, LaneTurnHistory>,
    batch: BTreeMap<u32, LaneTurnHistory>,
    /// Batch lanes by request lane.
    partners: BTreeMap<u32, Vec<u32>>,
}

impl History {
    /// Reads the turns up to now.
    pub fn read(memory: &LaneMemory, lanes: &Lanes, now_ns: u64) -> Self {
        let mut history = Self::default();
        for lane in &lanes.batch {
            history.batch.insert(lane.cpu, LaneTurnHistory::read(memory, lane.cpu, LaneClass::Batch, now_ns));
            for request in lane.request_lanes.iter() {
                history.partners.entry(request).or_default().push(lane.cpu);
            }
        }
        let past = |cpu| (cpu, LaneTurnHistory::read(memory, cpu, LaneClass::Lc, now_ns));
        history.service = lanes.request_lanes.iter().map(past).collect();
        history
    }

    /// Returns the request lane on which the thread ran at this time; `None` if it ran on none, or the ring has
    /// overwritten this time.
    pub fn request_lane_of_thread(&self, tid: u32, at_ns: u64) -> Option<u32> {
        self.service.iter().find(|(_, past)| past.was_running_at(tid, at_ns)).map(|(cpu, _)| *cpu)
    }

    /// Returns how long batch ran on the partners of a request lane between two times; `None` if the ring has
    /// overwritten a part of this time.
    pub fn batch_ns(&self, lane: u32, from_ns: u64, to_ns: u64) -> Option<u64> {
        let partners = self.partners.get(&lane)?;
        partners.iter().map(|cpu| self.batch.get(cpu)?.ran_ns(from_ns, to_ns)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history_with_turns(turns: &[(u64, u64, u32)]) -> LaneTurnHistory {
        let turn = |&(began_ns, ended_ns, pid)| Turn { began_ns, ended_ns, pid, class: 2 };
        LaneTurnHistory { turns: turns.iter().map(turn).collect(), whole_since_ns: 0 }
    }

    #[test]
    fn time_is_summed_over_turns_and_cut_at_both_ends() {
        let past = history_with_turns(&[(10, 20, 1), (30, 40, 1), (40, 50, 2)]);
        assert_eq!(past.ran_ns(15, 45), Some(5 + 10 + 5));
        assert_eq!(past.ran_ns(20, 30), Some(0));
        assert_eq!(past.ran_ns(0, 100), Some(30));
        assert_eq!(past.ran_ns(100, 0), Some(0));
    }

    #[test]
    fn overwritten_turns_are_unknown() {
        let past = LaneTurnHistory { whole_since_ns: 10, ..history_with_turns(&[(10, 20, 1)]) };
        assert_eq!((past.ran_ns(9, 15), past.ran_ns(10, 15)), (None, Some(5)));
    }

    #[test]
    fn lane_of_a_request_is_that_of_its_thread_at_the_end() {
        let service = BTreeMap::from([
            (0, history_with_turns(&[(10, 20, 7)])),
            (2, history_with_turns(&[(10, 20, 8), (20, 30, 7)])),
        ]);
        let partners = BTreeMap::from([(2, vec![3])]);
        let history = History { service, partners, batch: BTreeMap::from([(3, history_with_turns(&[(15, 28, 9)]))]) };
        assert_eq!(
            (
                history.request_lane_of_thread(7, 15),
                history.request_lane_of_thread(7, 25),
                history.request_lane_of_thread(7, 35)
            ),
            (Some(0), Some(2), None)
        );
        assert_eq!((history.batch_ns(2, 0, 20), history.batch_ns(0, 0, 20)), (Some(5), None));
    }
}
