//! Speed of the task on a CPU, and its progress.

use super::MachineEngine;
use super::sources::Source;
use super::state::cpu::{Pace, Rate};
use crate::smt::{Class, Interference, NAP};
use crate::time::{NEVER, Nanos};

impl MachineEngine {
    /// Books the work of all CPUs whose speed a change on `cpu` can affect.
    pub(super) fn book_work_around(&mut self, cpu: usize) {
        for core in self.cores_affected_by(cpu) {
            self.book_core_work(core);
        }
    }

    /// Computes the speeds of all CPUs that a change on `cpu` can affect, and the end times of the tasks there.
    pub(super) fn update_speeds_around(&mut self, cpu: usize) {
        let memory_extra = self.memory_extra_slowdown(cpu);
        for core in self.cores_affected_by(cpu) {
            for cpu in self.layout.cpus_of(core) {
                self.update_cpu_speed(cpu, memory_extra);
            }
        }
    }

    /// Books the work of the whole machine up to now.
    pub(super) fn book_all_work(&mut self) {
        (0..self.layout.cores()).for_each(|core| self.book_core_work(core));
        let places = self.places.all.iter_mut().flatten();
        self.accounting.batch_work += places.map(|container| container.book_work(self.now)).sum::<u128>();
    }

    fn cores_affected_by(&self, cpu: usize) -> std::ops::Range<usize> {
        let core = self.layout.core_of(cpu);
        if self.model.chip.has_effect() { self.layout.cores_on_same_chip(core) } else { core..core + 1 }
    }

    /// Returns the slowdown of memory on the chip of `cpu` now, less 1.
    fn memory_extra_slowdown(&self, cpu: usize) -> f64 {
        if !self.model.chip.has_effect() {
            return 0.0;
        }
        let cpus = self.cores_affected_by(cpu).flat_map(|core| self.layout.cpus_of(core));
        let running = cpus.filter_map(|cpu| self.class_on(cpu));
        self.model.chip.extra_slowdown(running.map(|class| self.model.chip.intensity(class)).sum())
    }

    fn book_core_work(&mut self, core: usize) {
        let passed_ns = self.now - self.cores[core].since;
        if passed_ns == 0 {
            return;
        }
        self.cores[core].since = self.now;
        let mut active = 0;
        for cpu in self.layout.cpus_of(core) {
            active += usize::from(self.book_cpu_work(cpu, passed_ns));
        }
        self.accounting.active_ns[active] += u128::from(passed_ns);
        if active > 0 {
            self.accounting.core_busy_ns[core] += u128::from(passed_ns);
            self.cores[core].used = self.now;
        }
    }

    /// Books the work that a CPU did in `passed_ns`. Returns whether a task ran on it.
    fn book_cpu_work(&mut self, cpu_index: usize, passed_ns: Nanos) -> bool {
        let cpu = &mut self.cpus[cpu_index];
        if !cpu.busy() {
            return false;
        }
        cpu.window.add(passed_ns, &cpu.pace, cpu.thread.is_some());
        let Some(thread) = cpu.thread else {
            self.accounting.batch_busy_ns += u128::from(passed_ns);
            return true;
        };
        cpu.guard.add_service_time(passed_ns, &cpu.pace);
        self.visits.get_mut(thread.visit).left.subtract_work_done(passed_ns, cpu.pace.speed);
        let accounting = &mut self.accounting.services[thread.service];
        accounting.busy_ns += u128::from(passed_ns);
        accounting.beside_batch_ns += if cpu.pace.beside_batch { u128::from(passed_ns) } else { 0 };
        accounting.counted.add(passed_ns, &cpu.pace);
        true
    }

    fn update_cpu_speed(&mut self, cpu_index: usize, memory_extra_slowdown: f64) {
        let pace =
            self.class_on(cpu_index).map_or(Pace::IDLE, |class| self.pace(cpu_index, class, memory_extra_slowdown));
        let cpu = &mut self.cpus[cpu_index];
        cpu.pace = pace;
        let batch = if cpu.held { &[] } else { cpu.batch.as_slice() };
        let (gives, due) = match (cpu.thread, batch) {
            (Some(thread), _) => {
                let left = self.visits.get_mut(thread.visit).left;
                (None, self.now.saturating_add(left.time_at(pace.speed)))
            }
            (None, []) => (None, NEVER),
            (None, [only]) => (Some((*only, pace.speed)), NEVER),
            (None, [first, ..]) => (Some((*first, pace.speed)), cpu.turn_ends.max(self.now)),
        };
        self.set_running_container(cpu_index, gives);
        self.schedule(Source::Cpu(cpu_index), due);
        self.record_disturbance(cpu_index);
    }

    /// Returns the class of the task on a CPU; `None` if the CPU is idle.
    fn class_on(&self, cpu: usize) -> Option<Class> {
        let cpu = &self.cpus[cpu];
        let of_container = || {
            let container = self.places.all[cpu.running_container()?].as_ref()?;
            Some(self.model.kinds[container.kind].class)
        };
        let of_service = cpu.thread.map(|thread| self.model.services[thread.service].class);
        of_service.or_else(of_container).or(cpu.has_napping_keeper().then_some(NAP))
    }

    /// Computes the pace of a task of `class` on a CPU. Siblings slow it as in [`Interference`]. Memory pressure on the
    /// chip lengthens only the share of its time in which it stalls on memory.
    fn pace(&self, cpu: usize, class: Class, memory_extra_slowdown: f64) -> Pace {
        let smt = &self.model.smt;
        let own = smt.memory(class);
        let by_chip = memory_extra_slowdown * own.stall_share;
        let (mut extra, mut stalled, mut beside_batch) = (by_chip, own.stall_share + by_chip, false);
        for sibling in self.layout.siblings(cpu) {
            let Some(other) = self.class_on(sibling) else { continue };
            let costs = smt.extra_slowdown(class, other);
            extra += costs;
            stalled += costs * smt.memory(other).pressure;
            beside_batch |= self.cpus[sibling].running_container().is_some();
        }
        let of_core = self.model.machine.speed_of(self.layout.core_of(cpu));
        let work = of_core / (1.0 + extra);
        // A class without memory accesses in the scenario has no known stalls, so none are counted.
        let known = own.accesses_per_us > 0.0;
        Pace {
            speed: Interference::speed_beside(of_core, extra),
            stalls: if known { Rate::from_per_ns(stalled * work) } else { Rate::default() },
            accesses: Rate::from_per_ns(own.accesses_per_us / 1e3 * work),
            beside_batch,
        }
    }
}
