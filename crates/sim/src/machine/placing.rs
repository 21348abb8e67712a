//! Choice of CPUs for the threads of services: about as Linux places a thread that wakes up.

use std::collections::VecDeque;

use sidelane_policy::cpus::CpuMask;

use super::MachineEngine;
use super::state::cpu::Thread;
use crate::time::Work;

/// Rank of a CPU for a thread that wakes up; the first is best.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CpuRank {
    /// The thread ran on this CPU last, and the CPU is idle now.
    LastAndIdle,
    /// The whole core of the CPU is idle.
    IdleCore,
    /// The CPU is idle, but not its core.
    Idle,
    /// The thread ran on this CPU last; a container does now.
    Last,
    /// A container runs on this CPU, and the thread would displace it.
    Displaces,
}

impl MachineEngine {
    /// Gives a CPU to a thread that has a request, or lets the thread wait for one.
    pub(super) fn place_or_queue_thread(&mut self, thread: Thread) {
        match self.choose_cpu(thread) {
            Some(cpu) => {
                self.book_work_around(cpu);
                self.put(thread, cpu);
                self.update_speeds_around(cpu);
                self.schedule_tick(cpu);
                self.notify_service_changed(cpu);
            }
            None => self.waiting_threads.push_back(thread),
        }
    }

    fn choose_cpu(&self, thread: Thread) -> Option<usize> {
        let serving = &self.services[thread.service];
        let last = serving.last_cpu[thread.worker];
        let suits = |cpu: usize| Some((self.rank_cpu(cpu, last == Some(cpu))?, cpu));
        serving.allowed.iter().filter(|cpu| self.may_run(&thread, *cpu)).filter_map(suits).min().map(|(_, cpu)| cpu)
    }

    /// Returns whether a thread may run on a CPU: its service may, and the thread is not bound to another CPU.
    pub(super) fn may_run(&self, thread: &Thread, cpu: usize) -> bool {
        let may_use = self.thread_binder.as_ref().is_none_or(|thread_binder| thread_binder.may_use(thread, cpu));
        self.services[thread.service].allowed.contains(cpu) && may_use
    }

    /// Returns how well a CPU suits a thread; `None` if a thread of a service runs there.
    fn rank_cpu(&self, cpu_index: usize, is_last_cpu: bool) -> Option<CpuRank> {
        let cpu = &self.cpus[cpu_index];
        let core_idle = || self.layout.siblings(cpu_index).all(|sibling| !self.cpus[sibling].busy());
        match (cpu.thread, cpu.batch.is_empty()) {
            (Some(_), _) => None,
            (None, true) if is_last_cpu => Some(CpuRank::LastAndIdle),
            (None, true) if core_idle() => Some(CpuRank::IdleCore),
            (None, true) => Some(CpuRank::Idle),
            (None, false) if is_last_cpu => Some(CpuRank::Last),
            (None, false) => Some(CpuRank::Displaces),
        }
    }

    /// Puts a thread on a CPU whose work is booked up to now.
    fn put(&mut self, thread: Thread, cpu: usize) {
        let wake_ns = self.core_wake_ns(cpu);
        if let Some((displaced, _)) = self.cpus[cpu].gives {
            self.charge_context_switch(displaced);
        }
        let left = &mut self.visits.get_mut(thread.visit).left;
        *left = left.plus(Work::of_ns(wake_ns));
        let serving = &mut self.services[thread.service];
        serving.last_cpu[thread.worker] = Some(cpu);
        serving.ran_on.insert(cpu);
        self.cpus[cpu].thread = Some(thread);
    }

    /// Returns the time that a thread loses because its core sleeps, in nanoseconds.
    fn core_wake_ns(&self, cpu: usize) -> u64 {
        let unused_ns = self.now - self.cores[self.layout.core_of(cpu)].used;
        let sleep = self.model.machine.sleep.filter(|sleep| unused_ns > 0 && unused_ns >= sleep.after_ns);
        sleep.map_or(0, |sleep| sleep.wake_ns)
    }

    /// Gives a CPU without a thread to the first waiting thread that may run there. The work of the CPU must be booked
    /// up to now.
    pub(super) fn give_cpu_to_waiting_thread(&mut self, cpu: usize) {
        let first = self.waiting_threads.iter().position(|thread| self.may_run(thread, cpu));
        if let Some(thread) = first.and_then(|first| self.waiting_threads.remove(first)) {
            self.put(thread, cpu);
        }
    }

    /// Changes the CPUs that a service may use. Its threads leave those that it may no longer use.
    pub(super) fn set_service_cpus(&mut self, service: usize, cpus: CpuMask) {
        self.services[service].allowed = cpus;
        for cpu in 0..self.cpus.len() {
            let stays = |thread: &Thread| thread.service != service || cpus.contains(cpu);
            let Some(thread) = self.cpus[cpu].thread.filter(|thread| !stays(thread)) else { continue };
            self.book_work_around(cpu);
            self.cpus[cpu].thread = None;
            self.waiting_threads.push_front(thread);
            self.give_cpu_to_waiting_thread(cpu);
            self.update_speeds_around(cpu);
            self.schedule_tick(cpu);
            self.notify_service_changed(cpu);
        }
        let (own, others) = self.waiting_threads.drain(..).partition(|thread| thread.service == service);
        self.waiting_threads = others;
        let own: VecDeque<Thread> = own;
        own.into_iter().for_each(|thread| self.place_or_queue_thread(thread));
    }
}
