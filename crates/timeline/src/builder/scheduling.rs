//! Handling of trace records about threads: context switches, wakeups, and waits in the kernel.

use crate::builder::fact::Fact;
use crate::builder::futexes::is_wait_without_bitset;
use crate::builder::request::PathStep;
use crate::builder::sleep::{SleepCall, SocketWait, Waker};
use crate::builder::world::World;
use crate::cause::Cause;
use crate::record::{BY_TIMER, Kind, NO_CALL, Record, WAKES_JOINER, WAKES_SEVERAL, fault};
use crate::wait::{Object, call};

impl World {
    pub(super) fn handle_scheduling_record(&mut self, record: &Record) {
        match record.kind {
            Kind::Switched => self.handle_context_switch(record),
            Kind::Woken => self.handle_wakeup(record),
            Kind::Migrated => self.thread(record.task).move_to_cpu(record.at_ns, record.value as u32),
            Kind::DiskCompleted => {
                let device = u64::from(record.detail);
                self.thread(record.task).record_disk_answer(record.at_ns, device);
            }
            Kind::Overlap => self.record_overlap(record),
            _ if record.task.tid == 0 => (),
            _ => self.handle_kernel_activity(record),
        }
    }

    fn handle_context_switch(&mut self, record: &Record) {
        self.machine.cpu_mut(record.cpu).record_context_switch(record, self.tracer_pid);
        if record.task.tid != 0 {
            let thread = self.thread(record.task);
            thread.mark_running(record.at_ns, record.cpu);
            thread.leave_cpu(record.at_ns, record.detail, record.other);
        }
        if record.other.tid != 0 {
            self.thread(record.other).arrive_on_cpu(record.at_ns, record.cpu, record.task, record.value);
        }
    }

    fn handle_wakeup(&mut self, record: &Record) {
        if record.other.tid == 0 {
            return;
        }
        let by = record.task;
        let by_thread = self.threads.get(&by.tid).filter(|_| by.tid != 0);
        let (handed, (disk, answered_ns)) =
            by_thread.map_or((0, (0, 0)), |waker| (waker.request, waker.last_disk_answer()));
        let is_open = self.requests.is_open(handed);
        let thread = self.thread(record.other);
        let (request, since_ns, slept_at) = (thread.request, thread.state_since_ns(), thread.current_call());
        if answered_ns > thread.last_disk_answer().1 {
            // A kernel thread read from the disk on behalf of this thread.
            thread.record_disk_answer(answered_ns, disk);
        }
        // If interrupts are not recorded, the waker may be a thread that was interrupted.
        let is_known = self.settings.kinds.has(Kind::Woken);
        let call = (record.value as u32).checked_sub(1);
        let is_of_others = is_known && is_open && handed != request && is_wake_only_call(call);
        let waker = Waker {
            by,
            is_timer: record.value == BY_TIMER,
            call,
            wakes_several: record.value & WAKES_SEVERAL != 0,
            wakes_joiner: record.value & WAKES_JOINER != 0,
            is_session: is_of_others && by.pid != record.other.pid,
            is_peer: is_of_others
                && by.pid == record.other.pid
                && self.both_have_own_requests(by.tid, record.other.tid),
            has_read: by.tid != 0 && answered_ns >= since_ns,
        };
        let at = self.sleep_socket(slept_at);
        let woken = self.thread(record.other);
        woken.handle_wakeup(record.at_ns, waker, at, record.detail);
        if is_known && by.tid != 0 && call.is_some_and(is_thread_creation) {
            woken.created = Some((record.at_ns, by.tid));
        }
        if is_known && by.tid != 0 {
            self.record_futex_wakeup(record, &waker, slept_at);
        }
        let may_hand = by.tid != 0 && is_known && by.pid == record.other.pid && !self.has_own_scheduler(by.pid);
        match self.requests.is_open(handed) {
            _ if !may_hand => (),
            true => self.hand_over_request(record, handed),
            false => self.hand_back_request(record),
        }
    }

    /// Handles the wakeup of a thread whose request was last handed to the waker: the waker gives the request back. The
    /// waker may work on another request now.
    fn hand_back_request(&mut self, record: &Record) {
        let (from, to) = (record.task.tid, record.other.tid);
        let id = self.threads.get(&to).map_or(0, |thread| thread.request);
        if self.requests.open_mut(id).is_some_and(|request| request.is_handed_to(from)) {
            self.requests.add_step(id, PathStep::Handed { at_ns: record.at_ns, from, to });
        }
    }

    /// Records the waker and the sleeper at a futex, which show its kind. Two kinds are known without them: the
    /// expected value identifies a mutex, and a futex whose waker wakes all threads is no lock.
    fn record_futex_wakeup(&mut self, record: &Record, waker: &Waker, slept_at: Option<SleepCall>) {
        let Some((slept_at, operation)) = slept_at.and_then(|call| Some((call, call.futex_operation()?))) else {
            return;
        };
        let is_mutex = matches!(slept_at.object(), Object::Futex(_, true));
        let is_event = waker.wakes_several && is_wait_without_bitset(operation);
        if !is_mutex && !is_event {
            let place = (operation, slept_at.argument);
            self.futexes.record_wakeup(record.other.pid, place.0, place.1, record.other.tid, waker.by.tid);
        }
    }

    /// Returns whether both threads work on requests that they received themselves.
    fn both_have_own_requests(&self, one_tid: u32, other_tid: u32) -> bool {
        let has_own = |tid: &u32| {
            let thread = self.threads.get(tid).filter(|thread| thread.handed_by == 0 && !thread.takes_several);
            let request = thread.and_then(|thread| self.requests.get(thread.request));
            request.is_some_and(|request| request.is_open() && request.receiver == *tid)
        };
        [one_tid, other_tid].iter().all(has_own)
    }

    /// Returns what is known about the socket at which a thread sleeps.
    fn sleep_socket(&self, slept_at: Option<SleepCall>) -> SocketWait {
        let cookie = slept_at.map_or(0, |call| call.socket);
        let socket = self.sockets.get(&cookie).filter(|_| cookie != 0);
        socket.map_or(SocketWait::default(), |socket| SocketWait { is_client: socket.is_asked, peer: socket.peer })
    }

    /// Hands a request from a thread to the thread of its process that it wakes. The woken thread has the request now,
    /// unless it has another request that it got from elsewhere.
    fn hand_over_request(&mut self, record: &Record, id: u64) {
        let (from, to) = (record.task.tid, record.other.tid);
        let Some(thread) = self.threads.get(&to) else { return };
        let (has, handed_by) = (thread.request, thread.handed_by);
        if has != id && has != 0 && handed_by != from && self.requests.is_open(has) {
            return self.hand_back_request(record);
        }
        self.requests.add_step(id, PathStep::Handed { at_ns: record.at_ns, from, to });
        if has != id
            && let Some(thread) = self.threads.get_mut(&to)
        {
            thread.set_request(record.at_ns, id, from);
        }
    }

    /// Records that the thread's cgroup stops it from running (quota or freezer), or lets it run again.
    pub(super) fn record_freeze_or_throttle(&mut self, record: &Record) {
        let thread = self.thread(record.task);
        let (spell, cause) = match record.kind {
            Kind::Frozen => (&mut thread.frozen, Cause::Frozen),
            _ => (&mut thread.throttled, Cause::Throttled),
        };
        spell.begin_or_end(record.detail != 0, record, cause);
    }

    fn record_overlap(&mut self, record: &Record) {
        let from_ns = record.at_ns.saturating_sub(record.value);
        let fact = Fact::new(Cause::Sibling, from_ns, record.at_ns, u64::from(record.detail));
        self.thread(record.task).overlaps.push(fact);
    }

    /// Handles a record which shows that its thread runs, such as a page fault or the begin of a wait for a kernel
    /// lock.
    fn handle_kernel_activity(&mut self, record: &Record) {
        let at_ns = record.at_ns;
        let thread = self.thread(record.task);
        thread.mark_running(at_ns, record.cpu);
        match record.kind {
            Kind::PageFault if record.detail == fault::ENDS => thread.faults.end(at_ns),
            Kind::PageFault => {
                thread.faults.begin(at_ns, record.value, record.detail == fault::BEGINS_IN_CALL);
            }
            Kind::LockWaitBegan => thread.locks.begin(at_ns, record.value, record.other),
            Kind::LockWaitEnded => thread.locks.end(at_ns, Cause::Lock),
            Kind::ReclaimBegan => thread.reclaims.begin(at_ns, 0, record.other),
            Kind::ReclaimEnded => thread.reclaims.end(at_ns, Cause::Reclaim),
            Kind::SignalDelivered => thread.record_signal(),
            Kind::SleepsIn => {
                let call = (record.detail != NO_CALL).then(|| SleepCall::from_record(record));
                thread.begin_sleep(at_ns, call);
            }
            _ => thread.faults.end_without_record(at_ns),
        }
    }
}

/// Returns whether a thread creates other threads in this system call. Creation wakes a new thread for the first time.
fn is_thread_creation(syscall: u32) -> bool {
    matches!(syscall, call::CLONE | call::FORK | call::VFORK | call::CLONE3)
}

/// Returns whether this system call only lets other threads continue, and passes them no data.
fn is_wake_only_call(syscall: Option<u32>) -> bool {
    matches!(syscall, Some(call::FUTEX | call::KILL | call::TKILL | call::TGKILL | call::SEMTIMEDOP | call::SEMOP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_creation_and_wake_only_calls_are_recognised() {
        let both = |number| (is_thread_creation(number), is_wake_only_call(Some(number)));
        assert!(
            [call::CLONE, call::FORK, call::VFORK, call::CLONE3].map(both).iter().all(|both| *both == (true, false))
        );
        assert!([call::FUTEX, call::KILL, call::SEMOP].map(both).iter().all(|both| *both == (false, true)));
        assert_eq!((both(call::WRITE), is_wake_only_call(None)), ((false, false), false));
    }
}
