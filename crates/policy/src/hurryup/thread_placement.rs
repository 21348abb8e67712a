//! Threads and their cores: `GetRunningThread` and `GetRunningCore` of lines 15, 22 and 24 of Algorithm 1.
//!
//! Threads are bound to cores, so the policy knows the core of each without asking. At first a thread gets the core
//! with the fewest threads (§III-C: round-robin, so that all cores have equally many).

use super::action::HurryAction;
use super::event::Thread;
use crate::Nanos;
use crate::cpus::CpuMask;

/// Largest number of threads of a service that are moved; other threads stay where they are.
pub const MAX_THREADS: usize = 256;

/// Thread of the service, with the core that it has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlacedThread {
    pub(super) thread: Thread,
    /// CPUs that the thread had originally.
    allowed: CpuMask,
    /// CPUs of `allowed` to which the thread could not be moved.
    refused: CpuMask,
    /// Core of the thread; `None` if it may use all CPUs that it had originally.
    pub(super) cpu: Option<usize>,
    /// Core of the thread before `cpu`.
    before: Option<usize>,
    /// Time of the last move of the thread's request.
    pub(super) moved: Option<Nanos>,
    /// End of the thread's last request; `None` while it works on one.
    pub(super) idle_since: Option<Nanos>,
    /// Whether the thread was sent to its core because the core is big: `Some` if so. It contains the thread that left
    /// the core in exchange, if any.
    came: Option<Option<Thread>>,
    /// Whether the thread may use only big cores, because it has a long request and there are more threads than cores.
    pub(super) on_big: bool,
}

impl PlacedThread {
    /// Returns whether the thread's request has just moved.
    pub(super) fn is_resting(&self, now: Nanos, rest_ns: Nanos) -> bool {
        self.rest_ends_at(rest_ns).is_some_and(|at| now < at)
    }

    /// Returns the end of the rest time after the last move of the thread's request.
    pub(super) fn rest_ends_at(&self, rest_ns: Nanos) -> Option<Nanos> {
        Some(self.moved?.saturating_add(rest_ns))
    }

    /// Returns whether the thread may be sent to one of these cores.
    pub(super) fn may_be_on_any(&self, cpus: &CpuMask) -> bool {
        !self.allowed.without(&self.refused).and(cpus).is_empty()
    }

    /// Returns whether the thread may be sent to this core.
    pub(super) fn may_be_on(&self, cpu: usize) -> bool {
        self.allowed.contains(cpu) && !self.refused.contains(cpu)
    }

    fn set_core(&mut self, cpu: Option<usize>) {
        (self.before, self.cpu, self.came, self.on_big) = (self.cpu, cpu, None, false);
    }

    /// Returns the thread to its former core, if it was sent to `cpu`.
    fn undo_move(&mut self, cpu: usize) {
        if self.cpu == Some(cpu) {
            self.cpu = self.before.filter(|before| *before != cpu);
            (self.came, self.moved) = (None, None);
        }
    }
}

/// Threads of the service, each with its core.
#[derive(Clone, Debug)]
pub(super) struct ThreadPlacement {
    list: [PlacedThread; MAX_THREADS],
    len: usize,
    /// Cores that threads may be bound to.
    usable: CpuMask,
}

impl ThreadPlacement {
    pub(super) fn new() -> Self {
        Self { list: [PlacedThread::default(); MAX_THREADS], len: 0, usable: CpuMask::EMPTY }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &PlacedThread> {
        self.list[..self.len].iter()
    }

    pub(super) fn placed_thread(&self, thread: Thread) -> Option<&PlacedThread> {
        self.iter().find(|placed| placed.thread == thread)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut PlacedThread> {
        self.list[..self.len].iter_mut()
    }

    pub(super) fn placed_thread_mut(&mut self, thread: Thread) -> Option<&mut PlacedThread> {
        self.iter_mut().find(|placed| placed.thread == thread)
    }

    /// Returns the threads on a core.
    pub(super) fn threads_on(&self, cpu: usize) -> impl Iterator<Item = &PlacedThread> {
        self.iter().filter(move |placed| placed.cpu == Some(cpu))
    }

    /// Adds a thread of the pool. If there are [`MAX_THREADS`] threads already, it is not moved.
    pub(super) fn add_thread(&mut self, thread: Thread, allowed: CpuMask) -> Option<HurryAction> {
        self.remove_thread(thread);
        *self.list.get_mut(self.len)? = PlacedThread { thread, allowed, ..PlacedThread::default() };
        self.len += 1;
        self.assign_core(self.len - 1)
    }

    pub(super) fn remove_thread(&mut self, thread: Thread) {
        let at = self.iter().position(|placed| placed.thread == thread);
        if let Some(at) = at {
            self.len -= 1;
            self.list.swap(at, self.len);
        }
    }

    /// Returns the number of threads.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Sets the cores that threads may be bound to. Threads on cores that are not usable move to usable ones. New cores
    /// are tried again, for all threads to which they were refused.
    pub(super) fn set_usable_cores(&mut self, usable: CpuMask, emit: impl FnMut(HurryAction)) {
        let new = usable.without(&self.usable);
        self.usable = usable;
        self.retain_refused(|refused| refused.without(&new), emit);
    }

    /// Tries all cores again, for all threads to which they were refused.
    pub(super) fn retry_refused_cores(&mut self, emit: impl FnMut(HurryAction)) {
        self.retain_refused(|_| CpuMask::EMPTY, emit);
    }

    fn retain_refused(&mut self, still_refused: impl Fn(&CpuMask) -> CpuMask, mut emit: impl FnMut(HurryAction)) {
        let usable = self.usable;
        self.iter_mut().for_each(|placed| placed.refused = still_refused(&placed.refused));
        for at in 0..self.len {
            if self.list[at].cpu.is_none_or(|cpu| !usable.contains(cpu)) {
                self.assign_core(at).into_iter().for_each(&mut emit);
            }
        }
    }

    /// Gives a thread without a usable core the core with the fewest threads.
    fn assign_core(&mut self, index: usize) -> Option<HurryAction> {
        let placed = self.list[index];
        let open = placed.allowed.without(&placed.refused).and(&self.usable);
        let cpu = open.iter().min_by_key(|cpu| self.threads_on(*cpu).count());
        self.list[index].set_core(cpu);
        match cpu {
            Some(cpu) => Some(HurryAction::Map { thread: placed.thread, cpu }),
            None => (placed.cpu.is_some() || placed.on_big).then_some(HurryAction::Restore { thread: placed.thread }),
        }
    }

    /// Sends a thread to a big core; `leaver`, if there is one, is about to leave the core.
    pub(super) fn send_to_big_core(
        &mut self,
        thread: Thread,
        big: usize,
        leaver: Option<Thread>,
        request_moved_at: Option<Nanos>,
    ) -> HurryAction {
        let action = self.move_to_core(thread, big, request_moved_at);
        if let Some(placed) = self.placed_thread_mut(thread) {
            placed.came = Some(leaver);
        }
        action
    }

    /// Moves a thread to a core, with its request if it has one.
    pub(super) fn move_to_core(&mut self, thread: Thread, cpu: usize, request_moved_at: Option<Nanos>) -> HurryAction {
        if let Some(placed) = self.placed_thread_mut(thread) {
            placed.set_core(Some(cpu));
            placed.moved = request_moved_at;
        }
        HurryAction::Map { thread, cpu }
    }

    /// Handles a refused move: the thread stays on its old core, and is not sent to `cpu` again. The thread that was to
    /// leave that core stays, too. Returns whether a request was to move.
    pub(super) fn undo_refused_move(&mut self, thread: Thread, cpu: usize) -> bool {
        let Some(placed) = self.placed_thread_mut(thread) else { return false };
        placed.refused.insert(cpu);
        let came = placed.came.filter(|_| placed.cpu == Some(cpu));
        let with_request = came.is_some() && placed.moved.is_some();
        placed.undo_move(cpu);
        if let Some(leaver) =
            came.flatten().and_then(|leaver| self.placed_thread_mut(leaver)).filter(|it| it.before == Some(cpu))
            && let Some(little) = leaver.cpu
        {
            leaver.undo_move(little);
        }
        with_request
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    fn mask(cpus: &[usize]) -> CpuMask {
        cpus.iter().copied().collect()
    }

    fn placement() -> ThreadPlacement {
        let mut placement = ThreadPlacement::new();
        placement.set_usable_cores(mask(&[0, 1, 2]), |_| unreachable!("no thread is there"));
        for thread in 0..4 {
            placement.add_thread(thread, mask(&[0, 1, 2, 3]));
        }
        placement
    }

    #[test]
    fn threads_are_spread_evenly() {
        assert!(placement().iter().map(|placed| placed.cpu).eq([Some(0), Some(1), Some(2), Some(0)]));
        let mut placement = placement();
        assert_eq!(
            placement.add_thread(9, mask(&[0])),
            Some(HurryAction::Map { thread: 9, cpu: 0 }),
            "it may not use another one"
        );
    }

    #[test]
    fn threads_of_an_offline_core_are_remapped_or_restored() {
        let (mut placement, mut told) = (placement(), std::vec::Vec::new());
        placement.add_thread(9, mask(&[0]));
        placement.set_usable_cores(mask(&[1, 2]), |action| told.push(action));
        assert_eq!(
            told,
            [
                HurryAction::Map { thread: 0, cpu: 1 },
                HurryAction::Map { thread: 3, cpu: 2 },
                HurryAction::Restore { thread: 9 }
            ]
        );
        told.clear();
        placement.set_usable_cores(mask(&[0, 1, 2]), |action| told.push(action));
        assert_eq!(told, [HurryAction::Map { thread: 9, cpu: 0 }]);
    }

    #[test]
    fn refused_move_keeps_thread_off_the_refused_core() {
        let mut placement = placement();
        placement.move_to_core(1, 2, None);
        assert!(!placement.undo_refused_move(1, 2), "no request was long");
        let placed = *placement.placed_thread(1).unwrap();
        assert_eq!((placed.cpu, [1, 2, 3].map(|cpu| placed.may_be_on(cpu))), (Some(1), [true, false, true]));
        placement.set_usable_cores(mask(&[0, 1]), |_| ());
        placement.set_usable_cores(mask(&[0, 1, 2]), |_| ());
        assert!(placement.placed_thread(1).unwrap().may_be_on(2), "the core was away, and is back");
    }

    #[test]
    fn a_thread_that_was_refused_all_its_cores_is_tried_again_later() {
        let (mut placement, mut told) = (placement(), std::vec::Vec::new());
        placement.add_thread(9, mask(&[2]));
        placement.undo_refused_move(9, 2);
        assert_eq!(placement.placed_thread(9).map(|placed| placed.cpu), Some(None));
        placement.retry_refused_cores(|action| told.push(action));
        assert_eq!(told, [HurryAction::Map { thread: 9, cpu: 2 }]);
    }

    #[test]
    fn refused_exchange_leaves_both_threads_in_place() {
        let mut placement = placement();
        placement.move_to_core(0, 0, Some(5));
        placement.send_to_big_core(1, 0, Some(0), Some(7));
        placement.move_to_core(0, 1, Some(7));
        assert!(placement.undo_refused_move(1, 0));
        assert_eq!([0, 1].map(|thread| placement.placed_thread(thread).unwrap().cpu), [Some(0), Some(1)]);
    }
}
