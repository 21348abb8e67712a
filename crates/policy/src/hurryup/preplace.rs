//! Placement of the thread that takes the next request on a big core, ahead of the request.
//!
//! Problem. With a threshold of 0 requests move as they start. Each request that starts on a little core pays for a
//! move, and is slow until the next scan. In most pools threads wait in line: the next request goes to the thread that
//! has been idle longest. After a move that is the thread that was sent to the little core. So requests start there
//! again and again, though a big core is idle.
//!
//! Approach. The policy counts which idle thread takes each request: the one that has been idle longest, the one that
//! has been idle shortest (last in, first out), or another one. If one of the first two is right in three of four
//! cases, the next thread is predictable. While idle, it changes cores with an idle thread on a big core. A move of a
//! sleeping thread costs the service nothing. With a higher threshold short requests are to stay on little cores, so no
//! thread is placed ahead.

use super::action::HurryAction;
use super::event::Thread;
use super::thread_placement::{PlacedThread, ThreadPlacement};
use crate::Nanos;
use crate::cpus::CpuMask;

/// Number of requests after which older ones count half.
const BEGINS_MAX: u32 = 64;
/// Fewest requests for a prediction.
const BEGINS_MIN: u32 = 16;

/// Returns whether threads are sent to big cores before they take requests, with this threshold.
pub(super) fn should_preplace(threshold_ns: Nanos) -> bool {
    threshold_ns == 0
}

/// Rule for which idle thread takes the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnRule {
    IdleLongest,
    IdleShortest,
}

/// Counts of which idle thread took the last requests, for requests at which several threads were idle.
#[derive(Clone, Debug, Default)]
pub(super) struct TurnCounts {
    begins: u32,
    longest: u32,
    shortest: u32,
}

impl TurnCounts {
    /// Records that a thread takes a request. The thread counts as idle until its entry in `placement` changes.
    pub(super) fn record_begin(&mut self, thread: Thread, since: Nanos, placement: &ThreadPlacement) {
        let Some(own) = placement.placed_thread(thread).and_then(|placed| placed.idle_since) else { return };
        let others = placement.iter().filter(|placed| placed.thread != thread).filter_map(|placed| placed.idle_since);
        let (mut count, mut longer, mut shorter) = (0, 0, 0);
        for other in others.filter(|other| *other < since) {
            count += 1;
            longer += u32::from(other < own);
            shorter += u32::from(other > own);
        }
        if count == 0 {
            return;
        }
        if self.begins == BEGINS_MAX {
            *self = Self { begins: self.begins / 2, longest: self.longest / 2, shortest: self.shortest / 2 };
        }
        self.begins += 1;
        self.longest += u32::from(longer == 0);
        self.shortest += u32::from(shorter == 0);
    }

    /// Returns the rule that predicts at least three of four requests; `None` if no rule does.
    pub(super) fn predicted_rule(&self) -> Option<TurnRule> {
        let is_right = |count: u32| self.begins >= BEGINS_MIN && 4 * count >= 3 * self.begins;
        let turns = [(self.longest, TurnRule::IdleLongest), (self.shortest, TurnRule::IdleShortest)];
        turns.into_iter().filter(|(count, _)| is_right(*count)).max_by_key(|(count, _)| *count).map(|(_, turn)| turn)
    }
}

impl TurnRule {
    /// Returns the thread whose turn follows the thread `last`.
    fn thread_after(self, last: Option<&PlacedThread>, placement: &ThreadPlacement) -> Option<PlacedThread> {
        let key = |placed: &PlacedThread| Some((placed.idle_since?, placed.thread));
        let last = last.and_then(key);
        let idle = placement.iter().filter_map(|placed| Some((key(placed)?, *placed)));
        let placed = match self {
            Self::IdleLongest => {
                idle.filter(|(key, _)| last.is_none_or(|last| *key > last)).min_by_key(|(key, _)| *key)
            }
            Self::IdleShortest => {
                idle.filter(|(key, _)| last.is_none_or(|last| *key < last)).max_by_key(|(key, _)| *key)
            }
        };
        placed.map(|(_, placed)| placed)
    }

    /// Returns the thread on a core whose turn comes last. Threads that have not served a request yet have no turn.
    fn last_thread_on(self, cpu: usize, placement: &ThreadPlacement) -> Option<Thread> {
        let key = |placed: &&PlacedThread| match (self, placed.idle_since) {
            (_, None) => (2, 0),
            (Self::IdleLongest, Some(since)) => (1, since),
            (Self::IdleShortest, Some(since)) => (1, Nanos::MAX - since),
        };
        placement.threads_on(cpu).max_by_key(key).map(|placed| placed.thread)
    }

    /// Places the threads with the next turns on the idle big cores `free_cores`. Returns the number of threads that
    /// moved.
    pub(super) fn preplace_threads(
        self,
        mut free_cores: CpuMask,
        placement: &mut ThreadPlacement,
        mut emit: impl FnMut(HurryAction),
    ) -> u64 {
        let (mut last, mut sent) = (None, 0);
        while !free_cores.is_empty()
            && let Some(next) = self.thread_after(last.as_ref(), placement)
        {
            last = Some(next);
            let Some(from) = next.cpu else { continue };
            if free_cores.contains(from) {
                free_cores.remove(from);
                continue;
            }
            let may_go = |leaver: Thread| placement.placed_thread(leaver).is_none_or(|leaver| leaver.may_be_on(from));
            let allowed = free_cores.iter().filter(|big| next.may_be_on(*big));
            let place = allowed
                .map(|big| (big, self.last_thread_on(big, placement)))
                .find(|(_, leaver)| leaver.is_none_or(may_go));
            let Some((big, leaver)) = place else { continue };
            free_cores.remove(big);
            sent += 1;
            emit(placement.send_to_big_core(next.thread, big, leaver, None));
            if let Some(leaver) = leaver {
                emit(placement.move_to_core(leaver, from, None));
            }
        }
        sent
    }
}
