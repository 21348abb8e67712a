//! Threads that are bound to cores, and move where Hurry-up sends them.
//!
//! Hurry-up learns of each event at the same moment, after it has happened. The agent of a real machine learns of it
//! some microseconds later, which is little compared with requests of milliseconds. A thread in the middle of a request
//! pays for each move (`migration_us`). Threads on one core run one after the other.

use sidelane_policy::hurryup::{HurryEvent, Request};

use super::MachineEngine;
use super::sources::{Source, time_or_never};
use super::state::cpu::Thread;
use crate::time::{Nanos, Work};

impl MachineEngine {
    /// Returns the time on a little core after which a request counts as long; `None` if long requests do not move.
    pub fn move_threshold_ns(&self) -> Option<Nanos> {
        self.thread_binder.as_ref()?.move_threshold_ns()
    }

    /// Binds each thread to its first core.
    pub(super) fn bind_all_threads(&mut self) {
        if let Some(thread_binder) = &mut self.thread_binder {
            thread_binder.run_policy(self.now);
        }
    }

    /// Tells Hurry-up that a thread takes a request.
    pub(super) fn report_request_began(&mut self, thread: Thread) {
        if let Some(thread_binder) = &mut self.thread_binder {
            thread_binder.record_request_begin(thread, self.now);
            self.schedule(Source::Mapper, self.now);
        }
    }

    /// Tells Hurry-up that a thread has done the work of its request.
    pub(super) fn report_request_ended(&mut self, thread: Thread) {
        if let Some(thread_binder) = &mut self.thread_binder {
            thread_binder.record_event(HurryEvent::Ended { request: thread.visit as Request });
            self.schedule(Source::Mapper, self.now);
        }
    }

    /// Passes recorded events, or the present time, to Hurry-up, and moves threads to the cores that it chooses.
    pub(super) fn run_mapper(&mut self) {
        let Some(thread_binder) = &mut self.thread_binder else { return };
        let moved = thread_binder.run_policy(self.now);
        let next = time_or_never(thread_binder.next_call_at());
        self.accounting.thread_moves += moved as u64;
        if moved > 0 {
            self.remove_misplaced_threads();
            self.give_free_cpus_to_waiting_threads();
        }
        self.schedule(Source::Mapper, next);
    }

    /// Removes threads with requests from CPUs that they are no longer bound to.
    fn remove_misplaced_threads(&mut self) {
        for cpu in 0..self.cpus.len() {
            let stays = |thread: &Thread| self.may_run(thread, cpu);
            let Some(thread) = self.cpus[cpu].thread.filter(|thread| !stays(thread)) else { continue };
            self.book_work_around(cpu);
            let left = &mut self.visits.get_mut(thread.visit).left;
            *left = left.plus(Work::of_ns(self.model.machine.migration_ns));
            self.cpus[cpu].thread = None;
            self.waiting_threads.push_front(thread);
            self.update_cpu(cpu);
        }
    }

    /// Gives each CPU without a thread the first thread that waits for it.
    fn give_free_cpus_to_waiting_threads(&mut self) {
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].thread.is_none() {
                self.book_work_around(cpu);
                self.give_cpu_to_waiting_thread(cpu);
                self.update_cpu(cpu);
            }
        }
    }

    fn update_cpu(&mut self, cpu: usize) {
        self.update_speeds_around(cpu);
        self.schedule_tick(cpu);
        self.notify_service_changed(cpu);
    }
}
