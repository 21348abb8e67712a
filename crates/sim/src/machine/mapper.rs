//! Threads that are bound to cores, and move where Hurry-up sends them.
//!
//! Hurry-up learns of each event at the same moment, after it has happened. The agent of a real machine is some
//! microseconds later, which is little compared with requests of milliseconds. A thread in the middle of a request
//! pays for each move (`migration_us`). Threads on one core run one after the other.

use sidelane_policy::hurryup::{HurryEvent, Request};

use super::MachineEngine;
use super::sources::{Source, when};
use super::state::cpu::Thread;
use crate::time::{Nanos, Work};

impl MachineEngine {
    /// Returns the time on a little core after which a request counts as long; `None` if long requests do not move.
    pub fn move_threshold_ns(&self) -> Option<Nanos> {
        self.thread_binder.as_ref()?.threshold_ns()
    }

    /// Binds each thread to its first core.
    pub(super) fn bind_all(&mut self) {
        if let Some(thread_binder) = &mut self.thread_binder {
            thread_binder.look(self.now);
        }
    }

    /// Tells Hurry-up that a thread takes a request.
    pub(super) fn tell_begin(&mut self, thread: Thread) {
        if let Some(thread_binder) = &mut self.thread_binder {
            thread_binder.begin(thread, self.now);
            self.set(Source::Mapper, self.now);
        }
    }

    /// Tells Hurry-up that a thread has done the work of its request.
    pub(super) fn tell_end(&mut self, thread: Thread) {
        if let Some(thread_binder) = &mut self.thread_binder {
            thread_binder.tell(HurryEvent::Ended { request: thread.visit as Request });
            self.set(Source::Mapper, self.now);
        }
    }

    /// Passes events and time to Hurry-up, and moves threads where it sends them.
    pub(super) fn mapper_due(&mut self) {
        let Some(thread_binder) = &mut self.thread_binder else { return };
        let moved = thread_binder.look(self.now);
        let next = when(thread_binder.next_look());
        self.accounting.thread_moves += moved as u64;
        if moved > 0 {
            self.leave_wrong_cores();
            self.house_all();
        }
        self.set(Source::Mapper, next);
    }

    /// Removes threads with requests from CPUs that they are no longer bound to.
    fn leave_wrong_cores(&mut self) {
        for cpu in 0..self.cpus.len() {
            let stays = |thread: &Thread| self.may_run(thread, cpu);
            let Some(thread) = self.cpus[cpu].thread.filter(|thread| !stays(thread)) else { continue };
            self.settle_around(cpu);
            let left = &mut self.visits.of(thread.visit).left;
            *left = left.plus(Work::of_ns(self.model.machine.migration_ns));
            self.cpus[cpu].thread = None;
            self.homeless.push_front(thread);
            self.refill(cpu);
        }
    }

    /// Gives each CPU without a thread the first thread that waits for it.
    fn house_all(&mut self) {
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].thread.is_none() {
                self.settle_around(cpu);
                self.house(cpu);
                self.refill(cpu);
            }
        }
    }

    fn refill(&mut self, cpu: usize) {
        self.resume_around(cpu);
        self.expect_tick(cpu);
        self.service_changed(cpu);
    }
}
