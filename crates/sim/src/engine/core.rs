//! Tasks on a core's lanes: which of them run, and their progress.
//!
//! Between two changes every lane has a constant speed. So before a change the core is *settled*: the work done since
//! the last change is booked. After the change the core *resumes*: speeds are computed anew, and from them the ends
//! of requests and phases.

use super::Engine;
use super::watch::Watch;
use crate::smt::Interference;

impl<W: Watch> Engine<W> {
    /// Books the work of `core` since the last call for it.
    pub(super) fn book_core_work(&mut self, core: usize) {
        let (core, accounting) = (&mut self.cores[core], &mut self.accounting);
        let passed_ns = self.now - core.since;
        if passed_ns == 0 {
            return;
        }
        core.since = self.now;
        let (mut running, mut on_budget, waited) = (0, true, core.running_request_waited());
        for lane in &mut self.lanes[core.lanes()] {
            lane.open_ns += if lane.is_open(core.request.is_some(), waited) { passed_ns } else { 0 };
            if !lane.runs {
                continue;
            }
            running += 1;
            on_budget &= lane.is_lent(waited);
            accounting.batch_busy_ns += u128::from(passed_ns);
            accounting.batch_work += lane.left.subtract_work_done(passed_ns, lane.speed);
        }
        let mut active = running;
        if let Some(request) = &mut core.request {
            active += 1;
            accounting.lc_busy_ns += u128::from(passed_ns);
            accounting.lc_work += request.left.subtract_work_done(passed_ns, core.request_speed);
            if running > 0 {
                accounting.lost_to_memory_ns += passed_ns as f64 * core.memory_loss;
                request.co_run_ns += passed_ns;
                if on_budget {
                    accounting.lent_ns += u128::from(passed_ns);
                } else {
                    accounting.overlap_ns += u128::from(passed_ns);
                    request.leak_ns += passed_ns;
                }
            }
        }
        accounting.active_ns[active] += u128::from(passed_ns);
        if active > 0 {
            core.used = self.now;
        }
    }

    /// Updates the speeds and end times of the tasks on a core, after one of them started or stopped. The work of the
    /// core must be booked up to now.
    pub(super) fn update_core_speeds(&mut self, core: usize) {
        self.update_request_speed(core);
        for lane in self.cores[core].lanes() {
            self.update_lane_speed(core, lane);
        }
    }

    fn update_request_speed(&mut self, core_index: usize) {
        let (core, smt) = (&mut self.cores[core_index], &self.model.smt);
        let Some(request) = &core.request else { return };
        let (mut extra, mut memory) = (0.0, 0.0);
        for class in self.lanes[core.lanes()].iter().filter_map(|lane| lane.occupant_class()) {
            let costs = smt.extra_slowdown(self.model.service.class, class);
            extra += costs;
            memory += costs * smt.memory(class).pressure;
        }
        core.request_speed = Interference::speed_beside(core.speed_factor, extra);
        core.memory_loss = memory / (1.0 + extra);
        self.slots.set_time(core_index, self.now.saturating_add(request.left.time_at(core.request_speed)));
    }

    fn update_lane_speed(&mut self, core_index: usize, lane: usize) {
        let (core, smt) = (&self.cores[core_index], &self.model.smt);
        let slot = self.phase_slot(lane);
        if !self.lanes[lane].runs {
            if !self.lanes[lane].waits {
                self.slots.set_time(slot, crate::time::NEVER);
            }
            return;
        }
        let victim = self.lanes[lane].class;
        let beside = |other: usize| if other == lane { None } else { self.lanes[other].occupant_class() };
        let mut extra: f64 = core.lanes().filter_map(beside).map(|class| smt.extra_slowdown(victim, class)).sum();
        if core.busy() {
            extra += smt.extra_slowdown(victim, self.model.service.class);
        }
        let speed = Interference::speed_beside(core.speed_factor, extra);
        let ends = self.now.saturating_add(self.lanes[lane].left.time_at(speed));
        self.lanes[lane].speed = speed;
        self.slots.set_time(slot, ends);
    }
}
