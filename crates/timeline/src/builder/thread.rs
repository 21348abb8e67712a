//! History of a thread: its states one after the other, and facts that lie over them.

use std::collections::VecDeque;

use crate::builder::fact::{Fact, State, Track, free_unused_memory};
use crate::builder::machine::OngoingCondition;
use crate::builder::request::RequestId;
use crate::builder::sleep::{Sleep, SleepCall, SocketWait, UnansweredCall, Waker};
use crate::builder::waits::{PageFaults, Waits};
use crate::cause::Cause;
use crate::record::{Task, leave};
use crate::wait::Wait;

/// Detail of a thread's state that is unknown because records were lost.
pub const LOST: u64 = 1;

/// Longest time between two waits for a lock that together count as one wait. After a longer time, the thread has had
/// the lock in between.
const BETWEEN_TURNS_NS: u64 = 1_000_000;
/// Largest distance between words of one lock.
const LOCK_BYTES: u64 = 64;

fn are_words_of_one_lock(one: u64, other: u64) -> bool {
    one != 0 && one.abs_diff(other) < LOCK_BYTES
}

/// Number of facts that take as much memory as one wait.
const FACTS_OF_WAIT: usize = size_of::<(u64, u64, Wait)>().div_ceil(size_of::<Fact>());

/// A thread of the trace, with its history.
#[derive(Debug)]
pub struct Thread {
    pub pid: u32,
    /// States of the thread, up to the present one.
    pub states: Track,
    /// Present state of the thread; `to_ns` is unknown.
    pub state: Fact,
    pub faults: PageFaults,
    pub locks: Waits,
    pub reclaims: Waits,
    pub frozen: OngoingCondition,
    pub throttled: OngoingCondition,
    /// Moves of the thread to other CPUs.
    pub moves: Track,
    /// Time in which batch ran on the same core as the thread.
    pub overlaps: Track,
    /// The request on which the thread works.
    pub request: RequestId,
    /// The thread that handed this thread its request; 0 if it received the request from a socket.
    pub handed_by: u32,
    /// Whether the thread has received a request while it had another request.
    pub takes_several: bool,
    /// Cookie of the client's socket from which the thread last received a request.
    pub client: u64,
    /// Whether the thread has received requests of a client while the connection of another client was open.
    pub has_clients: bool,
    /// Time at which the thread last came to a CPU.
    pub came_ns: u64,
    /// Time at which the thread was last woken.
    pub woken_ns: u64,
    /// Time of the thread's creation, and the thread that created it; `None` if that was not recorded.
    pub created: Option<(u64, u32)>,
    /// Time of the thread's last record.
    pub touched_ns: u64,
    /// The number of record losses in the trace when this thread's state was last known.
    pub epoch: u32,
    /// The system call in which the thread is; `None` if it is in none.
    call: Option<SleepCall>,
    /// The system call in which the thread last slept.
    last_call: Option<SleepCall>,
    /// Whether a POSIX signal was delivered to the thread since its last sleep.
    was_signalled: bool,
    /// Number of POSIX signals that have interrupted the present wait.
    interrupted: u32,
    /// Question of the thread to another service for its present request, until the answer comes.
    pub question: Option<UnansweredCall>,
    /// Sleeps of the thread: begin, end, and the wait of each.
    waits: VecDeque<(u64, u64, Wait)>,
    /// The disk that last answered the thread, and the time of its answer.
    disk: (u64, u64),
    /// Reason why the thread left the CPU, a constant of `record::leave`.
    leave: u32,
    /// Whether the thread is ready because it was woken, not because it was preempted.
    woken: bool,
    moved_ns: u64,
}

impl Thread {
    pub fn new(pid: u32, at_ns: u64, epoch: u32) -> Thread {
        Thread {
            pid,
            states: Track::default(),
            state: Fact { state: State::Unknown, ..Fact::new(Cause::NotExplained, at_ns, at_ns, 0) },
            faults: PageFaults::default(),
            locks: Waits::default(),
            reclaims: Waits::default(),
            frozen: OngoingCondition::default(),
            throttled: OngoingCondition::default(),
            moves: Track::default(),
            overlaps: Track::default(),
            request: 0,
            handed_by: 0,
            takes_several: false,
            client: 0,
            has_clients: false,
            came_ns: 0,
            woken_ns: 0,
            created: None,
            touched_ns: at_ns,
            epoch,
            call: None,
            last_call: None,
            was_signalled: false,
            interrupted: 0,
            question: None,
            waits: VecDeque::new(),
            disk: (0, 0),
            leave: leave::PREEMPTED,
            woken: false,
            moved_ns: 0,
        }
    }

    /// Marks the thread's state as unknown, since records were lost until `at_ns`.
    pub fn mark_unknown(&mut self, at_ns: u64, epoch: u32) {
        self.epoch = epoch;
        (self.request, self.handed_by, self.call, self.moved_ns) = (0, 0, None, 0);
        self.question = None;
        [&mut self.frozen, &mut self.throttled].into_iter().for_each(OngoingCondition::forget_begin);
        [&mut self.locks, &mut self.reclaims].into_iter().for_each(Waits::forget_begin);
        self.faults.forget_begin();
        self.change_state(at_ns.max(self.state.from_ns), State::Unknown, Cause::NotExplained, 0, Task::default());
        self.state.detail = LOST;
    }

    /// Ends the thread's present state and begins another one.
    fn change_state(&mut self, at_ns: u64, state: State, cause: Cause, cpu: u32, by: Task) {
        self.states.push(Fact { to_ns: at_ns, ..self.state });
        self.state = Fact { from_ns: at_ns, to_ns: at_ns, request: self.request, detail: 0, by, cpu, state, cause };
    }

    /// Records that the thread runs. Some kernels hide some of their threads from tracers, and all that happens while
    /// such a thread has the CPU. So the end of a sleep may not be recorded.
    pub fn mark_running(&mut self, at_ns: u64, cpu: u32) {
        self.touched_ns = at_ns;
        if self.state.state == State::Asleep {
            self.handle_wakeup(at_ns, Waker::default(), SocketWait::default(), cpu);
            self.moved_ns = 0;
            self.resume_call();
        }
        if self.state.state != State::Running || self.state.cpu != cpu {
            self.change_state(at_ns, State::Running, Cause::OnCpu, cpu, Task::default());
        }
    }

    /// Records that the thread uses a socket.
    pub fn record_socket_use(&mut self, at_ns: u64, cpu: u32) {
        self.faults.end_without_record(at_ns);
        self.mark_running(at_ns, cpu);
    }

    /// Sets the request on which the thread works.
    pub fn set_request(&mut self, at_ns: u64, request: RequestId, handed_by: u32) {
        self.handed_by = handed_by;
        if self.request != request {
            self.question = None;
            self.request = request;
            let now = self.state;
            self.change_state(at_ns, now.state, now.cause, now.cpu, now.by);
        }
    }

    /// Handles the thread's departure from the CPU; `other` has the CPU next.
    pub fn leave_cpu(&mut self, at_ns: u64, leave_reason: u32, next_task: Task) {
        self.touched_ns = at_ns;
        self.faults.leave_cpu(at_ns);
        let cpu = self.state.cpu;
        self.leave = leave_reason;
        self.woken = false;
        self.moved_ns = 0;
        if leave_reason == leave::ENDED {
            self.clear_state(at_ns);
        }
        match leave_reason {
            // The CPU is idle although the thread could run there, so the thread was not allowed to run.
            leave::PREEMPTED if next_task.tid == 0 => {
                self.change_state(at_ns, State::Ready, Cause::Throttled, cpu, next_task)
            }
            leave::PREEMPTED => self.change_state(at_ns, State::Ready, Cause::RunQueue, cpu, next_task),
            leave::ENDED => self.change_state(at_ns, State::Unknown, Cause::NotExplained, cpu, next_task),
            _ => self.change_state(at_ns, State::Asleep, Cause::NotExplained, cpu, Task::default()),
        }
    }

    /// Clears the state of a thread that has ended: the kernel may give its number to a new thread.
    fn clear_state(&mut self, at_ns: u64) {
        (self.request, self.handed_by, self.call, self.disk) = (0, 0, None, (0, 0));
        self.question = None;
        self.end_freeze_and_throttling(at_ns);
        [&mut self.locks, &mut self.reclaims].into_iter().for_each(Waits::forget_begin);
        self.faults.forget_begin();
    }

    /// Ends the times for which the quota or the freezer stopped the thread: it comes to a CPU, so neither stops it
    /// now.
    fn end_freeze_and_throttling(&mut self, at_ns: u64) {
        [&mut self.frozen, &mut self.throttled].into_iter().for_each(|spell| spell.end(at_ns));
    }

    /// Handles the wakeup of the thread by `waker` from its sleep at socket `at`. The thread is to run on `cpu`.
    pub fn handle_wakeup(&mut self, at_ns: u64, waker: Waker, socket_wait: SocketWait, cpu: u32) {
        self.touched_ns = at_ns;
        match self.state.state {
            State::Asleep => {
                self.end_sleep(at_ns, waker, socket_wait);
                if self.state.cause == Cause::Migration {
                    // The thread moved itself. It sleeps until the move is done, and is woken on the new CPU.
                    self.moved_ns = at_ns;
                }
            }
            State::Unknown => (),
            _ => return,
        }
        self.woken = true;
        self.woken_ns = at_ns;
        self.change_state(at_ns, State::Ready, Cause::RunQueue, cpu, Task::default());
    }

    fn end_sleep(&mut self, at_ns: u64, waker: Waker, socket_wait: SocketWait) {
        let (disk, answered_ns) = self.disk;
        let sleep = Sleep {
            leave: self.leave,
            call: self.call,
            waker: Waker { has_read: waker.has_read && answered_ns >= self.state.from_ns, ..waker },
            at: socket_wait,
            question: self.question,
            disk: (answered_ns >= self.state.from_ns).then_some(disk),
            in_fault: self.faults.is_in_fault(),
            lock: self.locks.current_object(),
        };
        (self.state.cause, self.state.detail, self.state.by) = sleep.cause_with_details();
        self.state.to_ns = at_ns;
        if self.call.is_some() {
            self.waits.push_back((self.state.from_ns, at_ns, sleep.wait()));
        }
        if self.interrupted > 0 {
            self.merge_interrupted_wait(sleep.wait());
        }
        if self.state.cause == Cause::Lock && self.state.detail != 0 {
            self.merge_lock_waits();
        }
    }

    /// Merges the parts of a wait that signals interrupted and that the thread resumed. The event that ended the wait
    /// counts for all its parts.
    fn merge_interrupted_wait(&mut self, wait: Wait) {
        let last = self.state;
        let (mut left, mut place) = (self.interrupted, self.states.len());
        while let Some(before) = place.checked_sub(1).filter(|_| left > 0) {
            place = before;
            let Some(fact) = self.states.get_mut(place) else { return };
            if fact.state != State::Asleep {
                continue;
            }
            left -= 1;
            if fact.by.tid == 0 {
                (fact.cause, fact.detail, fact.by) = (last.cause, last.detail, last.by);
                let (from_ns, to_ns) = (fact.from_ns, fact.to_ns);
                let parts = self.waits.iter_mut().rev();
                let part = parts.take(self.interrupted as usize + 1).find(|part| (part.0, part.1) == (from_ns, to_ns));
                part.into_iter().for_each(|part| part.2 = wait);
            }
        }
    }

    /// Merges the turns of a wait for a lock, each of which has a timeout. The event that ended the last turn counts
    /// for all turns.
    fn merge_lock_waits(&mut self) {
        let last = self.state;
        let mut place = self.states.len();
        let mut ran_ns = 0;
        while let Some(before) = place.checked_sub(1) {
            place = before;
            let Some(fact) = self.states.get_mut(place) else { return };
            match fact.state {
                State::Asleep if fact.cause == Cause::Timer && are_words_of_one_lock(fact.detail, last.detail) => {
                    (fact.cause, fact.by, ran_ns) = (Cause::Lock, last.by, 0);
                }
                // Before a turn the thread waits for the CPU, which the holder of the lock has.
                State::Ready if fact.by == last.by => (fact.cause, fact.detail) = (Cause::Lock, last.detail),
                State::Running if ran_ns + (fact.to_ns - fact.from_ns) < BETWEEN_TURNS_NS => {
                    ran_ns += fact.to_ns - fact.from_ns;
                }
                State::Ready => (),
                _ => return,
            }
        }
    }

    /// Returns the wait to which the sleep `state` belongs; `None` if no wait covers it.
    pub fn wait_of(&self, state: &Fact) -> Option<Wait> {
        let after = self.waits.partition_point(|(_, to_ns, _)| *to_ns <= state.from_ns);
        self.waits.get(after).filter(|(from_ns, ..)| *from_ns < state.to_ns).map(|(_, _, wait)| *wait)
    }

    /// Returns the system call in which the thread is, with the socket or futex at which it sleeps.
    pub fn current_call(&self) -> Option<SleepCall> {
        self.call
    }

    /// Returns the thread's state just before `at_ns`.
    pub fn state_before(&self, at_ns: u64) -> Option<Fact> {
        let now = Fact { to_ns: u64::MAX, ..self.state };
        let known = || self.states.get(self.states.first_index_ending_after(at_ns.saturating_sub(1))).copied();
        let state = if now.from_ns < at_ns { Some(now) } else { known() };
        state.filter(|state| state.from_ns < at_ns)
    }

    /// Returns the begin of the thread's present state.
    pub fn state_since_ns(&self) -> u64 {
        self.state.from_ns
    }

    /// Handles the thread's arrival on `cpu`, which `before` had. `woken_ns` is the time of the thread's wakeup, or 0.
    pub fn arrive_on_cpu(&mut self, at_ns: u64, cpu: u32, previous_task: Task, woken_ns: u64) {
        self.touched_ns = at_ns;
        if self.state.state == State::Unknown && self.state.detail != LOST && self.states.len() == 0 && woken_ns != 0 {
            // The thread's first record: its state begins with the wakeup, on an unknown CPU.
            self.state.from_ns = woken_ns.min(at_ns);
        }
        let was_asleep = self.state.state == State::Asleep;
        if was_asleep || (self.state.state == State::Unknown && woken_ns != 0) {
            let woken_ns = if woken_ns == 0 { at_ns } else { woken_ns.max(self.state.from_ns).min(at_ns) };
            self.handle_wakeup(woken_ns, Waker::default(), SocketWait::default(), cpu);
        }
        if self.state.state == State::Ready && self.woken {
            self.state.by = previous_task;
        }
        if self.moved_ns != 0 && previous_task.tid == 0 {
            self.moves.push(Fact::new(Cause::Migration, self.moved_ns, at_ns, 0));
        }
        self.moved_ns = 0;
        self.resume_call();
        self.came_ns = at_ns;
        self.end_freeze_and_throttling(at_ns);
        self.change_state(at_ns, State::Running, Cause::OnCpu, cpu, Task::default());
    }

    /// Records that the thread runs again within the system call in which it slept.
    fn resume_call(&mut self) {
        self.last_call = self.call.take();
    }

    /// Records that a POSIX signal was delivered to the thread.
    pub fn record_signal(&mut self) {
        self.was_signalled = true;
    }

    /// Handles a move of the thread to `cpu`. A move at a wakeup is part of the wakeup.
    pub fn move_to_cpu(&mut self, at_ns: u64, cpu: u32) {
        self.touched_ns = at_ns;
        if self.state.state != State::Ready {
            return;
        }
        let by = self.state.by;
        if !self.woken {
            self.moved_ns = at_ns;
        }
        self.change_state(at_ns, State::Ready, Cause::RunQueue, cpu, by);
    }

    /// Records that the thread is about to sleep in the system call `call`; `None`: outside any system call.
    pub fn begin_sleep(&mut self, at_ns: u64, call: Option<SleepCall>) {
        let what = |call: SleepCall| (call.number, call.argument);
        let goes_on = self.was_signalled && call.is_some() && call.map(what) == self.last_call.map(what);
        self.interrupted = if goes_on { self.interrupted + 1 } else { 0 };
        self.was_signalled = false;
        self.call = call;
        self.faults.record_sleep(at_ns, call.is_some());
    }

    /// Returns the disk that last answered the thread, and the time.
    pub fn last_disk_answer(&self) -> (u64, u64) {
        self.disk
    }

    /// Records that a disk answered the thread, or answered a kernel thread that read on its behalf.
    pub fn record_disk_answer(&mut self, at_ns: u64, device: u64) {
        self.disk = (device, at_ns);
    }

    fn tracks(&self) -> [&Track; 8] {
        let spells = [&self.frozen.track, &self.throttled.track];
        [
            &self.states,
            &self.faults.track,
            &self.locks.track,
            &self.reclaims.track,
            &self.moves,
            &self.overlaps,
            spells[0],
            spells[1],
        ]
    }

    /// Returns the number of facts in the thread's history.
    pub fn fact_count(&self) -> usize {
        self.tracks().iter().map(|track| track.len()).sum::<usize>() + self.waits.len() * FACTS_OF_WAIT
    }

    /// Returns the heap memory of the thread's history, in bytes.
    pub fn heap_bytes(&self) -> usize {
        let waits = self.waits.capacity() * size_of::<(u64, u64, Wait)>();
        self.tracks().iter().map(|track| track.heap_bytes()).sum::<usize>() + waits
    }

    /// Removes the facts of the thread that ended before `floor_ns`.
    pub fn remove_ended_before(&mut self, floor_ns: u64) {
        self.states.remove_ended_before(floor_ns);
        let old = self.waits.partition_point(|(_, to_ns, _)| *to_ns <= floor_ns);
        self.waits.drain(..old);
        free_unused_memory(&mut self.waits);
        self.faults.track.remove_ended_before(floor_ns);
        self.locks.track.remove_ended_before(floor_ns);
        self.reclaims.track.remove_ended_before(floor_ns);
        self.moves.remove_ended_before(floor_ns);
        self.overlaps.remove_ended_before(floor_ns);
        self.frozen.track.remove_ended_before(floor_ns);
        self.throttled.track.remove_ended_before(floor_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the thread's states that have ended, and the begin of the present one.
    fn states(thread: &Thread) -> (Vec<(State, u64, u64)>, u64) {
        let states = (0..thread.states.len()).filter_map(|at| thread.states.get(at));
        (states.map(|fact| (fact.state, fact.from_ns, fact.to_ns)).collect(), thread.state_since_ns())
    }

    #[test]
    fn wakeup_lies_between_the_sleep_and_the_next_run() {
        // Clocks of two CPUs differ. A wakeup that seems to come before the sleep is moved to the begin of the sleep. A
        // wakeup that seems to come after the thread's next turn on a CPU is moved to the begin of that turn.
        for (woken_ns, asleep_to_ns) in [(250, 250), (150, 200), (350, 300)] {
            let mut thread = Thread::new(1, 100, 0);
            thread.arrive_on_cpu(120, 0, Task::default(), 0);
            thread.leave_cpu(200, leave::SLEEPS, Task::default());
            thread.arrive_on_cpu(300, 0, Task::default(), woken_ns);
            let (states, since_ns) = states(&thread);
            let slept = states.iter().find(|(state, ..)| *state == State::Asleep).map(|(_, _, to_ns)| *to_ns);
            let expected = Some(asleep_to_ns).filter(|to_ns| *to_ns > 200);
            assert_eq!((slept, since_ns), (expected, 300), "{woken_ns}: {states:?}");
        }
    }

    #[test]
    fn first_record_of_a_thread_uses_an_earlier_wakeup_only() {
        for (woken_ns, expected) in [(60, &[(State::Ready, 60, 100)][..]), (150, &[])] {
            let mut thread = Thread::new(1, 100, 0);
            thread.arrive_on_cpu(100, 0, Task::default(), woken_ns);
            assert_eq!(states(&thread), (expected.to_vec(), 100), "{woken_ns}");
        }
    }

    #[test]
    fn waits_take_memory_until_they_are_forgotten() {
        let mut thread = Thread::new(1, 100, 0);
        let before = thread.heap_bytes();
        (0..1_000).for_each(|at_ns| thread.waits.push_back((at_ns, at_ns + 1, Wait::default())));
        assert!(thread.heap_bytes() >= before + 1_000 * size_of::<Wait>());
        assert!(thread.fact_count() >= 1_000 * size_of::<Wait>() / size_of::<Fact>());
        let facts_of_waits = thread.fact_count();
        thread.leave_cpu(200, leave::SLEEPS, Task::default());
        assert_eq!(thread.fact_count(), facts_of_waits + thread.states.len());
        thread.remove_ended_before(900);
        assert_eq!((thread.waits.len(), thread.waits.front().map(|(_, to_ns, _)| *to_ns)), (100, Some(901)));
        assert!(thread.heap_bytes() < 300 * size_of::<(u64, u64, Wait)>());
    }

    #[test]
    fn words_of_one_lock_lie_within_its_bytes() {
        let are_one = [(0x1000, 0x103f), (0x103f, 0x1000), (0x1000, 0x1040), (0, 0), (0, 1)];
        assert_eq!(are_one.map(|(one, other)| are_words_of_one_lock(one, other)), [true, true, false, false, false]);
    }
}
