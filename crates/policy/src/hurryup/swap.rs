//! Exchange of cores between long requests and the threads on big cores: lines 18 to 26 of Algorithm 1.
//!
//! As printed, the longest request takes the first big core, the next request takes the second, regardless of what runs
//! there. With the options of [`Options`] each takes the big core on which it disturbs least. An empty core comes
//! first, then a core whose threads are between requests, then the core of the request that began last.

use core::cmp::Reverse;

use super::action::HurryAction;
use super::config::Options;
use super::event::{BigLittleCores, Thread};
use super::long::{LongRequest, ThreadsOnLittle};
use super::table::ThreadRequestTable;
use super::thread_placement::{PlacedThread, ThreadPlacement};
use crate::Nanos;
use crate::cpus::CpuMask;

/// Input of one round of exchanges.
pub(super) struct Round<'r> {
    pub(super) now: Nanos,
    pub(super) table: &'r ThreadRequestTable,
    pub(super) cores: &'r BigLittleCores,
    pub(super) options: Options,
}

/// Thread that leaves a big core, and the start of its request if it has one.
#[derive(Clone, Copy)]
struct Leaver {
    thread: Thread,
    since: Option<Nanos>,
}

/// Rank of a big core for a long request, from good to bad.
type Rank = (usize, Reverse<Nanos>, usize);

/// Result of a round of exchanges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Number of requests that moved to big cores.
    pub(super) moved: usize,
    /// Number of long requests that found no big core.
    pub(super) left: usize,
    /// Earliest time at which a long request without a big core may move, if it only waits for the end of a rest time.
    pub(super) rested: Option<Nanos>,
}

impl Round<'_> {
    /// Runs lines 18 to 26 of Algorithm 1: moves the long requests to big cores. Each big core is taken at most once.
    pub(super) fn run(
        &self,
        long: &ThreadsOnLittle,
        placement: &mut ThreadPlacement,
        mut emit: impl FnMut(HurryAction),
    ) -> Outcome {
        let (mut open, mut outcome) = (self.cores.big, Outcome::default());
        for long in long.iter() {
            let Some((big, leaver)) = self.choose_big_core(long, &open, placement) else {
                outcome.left += 1;
                outcome.rested = outcome.rested.into_iter().chain(self.rest_ends_at(long, placement)).min();
                continue;
            };
            open.remove(big);
            outcome.moved += 1;
            // Lines 25 and 26 of Algorithm 1: the two threads change cores.
            emit(placement.send_to_big_core(long.thread, big, leaver.map(|leaver| leaver.thread), Some(self.now)));
            if let Some(leaver) = leaver {
                emit(placement.move_to_core(leaver.thread, long.little, leaver.since.map(|_| self.now)));
            }
            if self.options.one_by_one {
                break;
            }
        }
        outcome
    }

    /// Returns the big core for a long request, and the thread that leaves it (lines 21 and 22 of Algorithm 1).
    fn choose_big_core(
        &self,
        long: LongRequest,
        open_cores: &CpuMask,
        placement: &ThreadPlacement,
    ) -> Option<(usize, Option<Leaver>)> {
        let placed =
            placement.placed_thread(long.thread).filter(|placed| !placed.is_resting(self.now, self.options.rest_ns))?;
        let cores = open_cores.iter().filter(|big| placed.may_be_on(*big));
        let possible = cores.filter_map(|big| {
            let leaver = self.leaving_thread(big, placement);
            self.can_exchange(long, leaver, placement).then(|| (self.rank(big, leaver, placement), big, leaver))
        });
        possible.min_by_key(|(rank, ..)| *rank).map(|(_, big, leaver)| (big, leaver))
    }

    /// Returns the thread that leaves a big core (`GetRunningThread`). If several work on requests, it is the one whose
    /// request began last; if none does, the first thread.
    fn leaving_thread(&self, big: usize, placement: &ThreadPlacement) -> Option<Leaver> {
        let all =
            placement.threads_on(big).map(|placed| Leaver { thread: placed.thread, since: self.request_start(placed) });
        all.min_by_key(|leaver| Reverse(leaver.since))
    }

    fn request_start(&self, placed: &PlacedThread) -> Option<Nanos> {
        self.table.iter().find(|entry| entry.thread == placed.thread).map(|entry| entry.since)
    }

    /// Returns whether the thread on a big core may be sent to the little one now.
    fn can_exchange(&self, long: LongRequest, leaver: Option<Leaver>, placement: &ThreadPlacement) -> bool {
        self.can_exchange_after_rest(long, leaver, placement)
            && self.leaver_rest_ends_at(leaver, placement).is_none_or(|at| at <= self.now)
    }

    /// Returns whether the thread on a big core may be sent to the little one after its rest time.
    fn can_exchange_after_rest(&self, long: LongRequest, leaver: Option<Leaver>, placement: &ThreadPlacement) -> bool {
        let Some(leaver) = leaver else { return true };
        let Some(placed) = placement.placed_thread(leaver.thread) else { return true };
        let is_shorter = leaver.since.is_none_or(|since| since > long.since);
        placed.may_be_on(long.little) && (is_shorter || !self.options.spare_longer)
    }

    /// Returns the end of the rest time of the request on a big core; `None` for a thread between requests, which needs
    /// no rest.
    fn leaver_rest_ends_at(&self, leaver: Option<Leaver>, placement: &ThreadPlacement) -> Option<Nanos> {
        let leaver = leaver.filter(|leaver| leaver.since.is_some())?;
        placement.placed_thread(leaver.thread)?.rest_ends_at(self.options.rest_ns)
    }

    /// Returns when a long request that stays may move, if it only waits for a rest time: its own, or that of another
    /// request.
    fn rest_ends_at(&self, long: LongRequest, placement: &ThreadPlacement) -> Option<Nanos> {
        let placed = placement.placed_thread(long.thread)?;
        let cores =
            self.cores.big.iter().filter(|big| placed.may_be_on(*big)).map(|big| self.leaving_thread(big, placement));
        let possible = cores.filter(|leaver| self.can_exchange_after_rest(long, *leaver, placement));
        let others = possible.map(|leaver| self.leaver_rest_ends_at(leaver, placement).unwrap_or(0));
        let own = placed.rest_ends_at(self.options.rest_ns).unwrap_or(0);
        others.min().map(|other| other.max(own)).filter(|at| *at > self.now)
    }

    fn rank(&self, big: usize, leaver: Option<Leaver>, placement: &ThreadPlacement) -> Rank {
        let working = placement.threads_on(big).filter(|placed| self.request_start(placed).is_some()).count();
        let kind = match leaver {
            None if self.options.empty_first => 0,
            _ if working == 0 && self.options.between_first => 1,
            _ => 1 + working.max(1),
        };
        let since = leaver.and_then(|leaver| leaver.since).unwrap_or(Nanos::MAX);
        match self.options.spare_longer {
            true => (kind, Reverse(since), big),
            false if self.options.empty_first || self.options.between_first => (kind, Reverse(0), big),
            false => (0, Reverse(0), big),
        }
    }
}
