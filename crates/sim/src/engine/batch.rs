//! Progress of a batch job through its phases: work on the lane, and waits.

use super::Engine;
use super::watch::Watch;
use crate::model::{Job, Phase};
use crate::time::{NEVER, Work};

impl<W: Watch> Engine<W> {
    /// Begins the first phase of the lane's job.
    pub(super) fn begin_job(&mut self, lane: usize) {
        self.enter_phase(lane, 0);
    }

    /// Moves the lane's job to its next phase, when the current phase has ended.
    pub(super) fn start_next_phase(&mut self, lane: usize) {
        let core = self.lanes[lane].core;
        self.book_core_work(core);
        let phases = self.job(lane).phases.len();
        self.enter_phase(lane, (self.lanes[lane].phase + 1) % phases);
        self.update_core_speeds(core);
    }

    /// Ends the lane's job; a new job like it begins after `gap_ns`.
    pub(super) fn replace_job(&mut self, lane: usize, gap_ns: u64) {
        let core = self.lanes[lane].core;
        self.book_core_work(core);
        // The last phase becomes the current one, so the new job begins with the first.
        self.lanes[lane].phase = self.job(lane).phases.len() - 1;
        self.pause_batch(lane, gap_ns);
        self.update_core_speeds(core);
    }

    fn job(&self, lane: usize) -> &Job {
        &self.model.batch[self.lanes[lane].job]
    }

    fn enter_phase(&mut self, lane: usize, phase: usize) {
        self.lanes[lane].phase = phase;
        match self.job(lane).phases[phase] {
            Phase::Wait { ns } => self.pause_batch(lane, ns),
            Phase::Work { class, work_ns } => {
                let batch = &mut self.lanes[lane];
                batch.class = class;
                batch.left = if work_ns == NEVER { Work::ENDLESS } else { Work::of_ns(work_ns) };
                batch.waits = false;
                self.try_run_batch(lane);
            }
        }
    }

    fn pause_batch(&mut self, lane: usize, duration_ns: u64) {
        self.lanes[lane].waits = true;
        self.lanes[lane].runs = false;
        self.slots.set_time(self.phase_slot(lane), self.now + duration_ns);
    }

    /// Runs batch if it has work and its lane is free. If batch starts while the service is busy and has to leave, it
    /// summons the keeper.
    pub(super) fn try_run_batch(&mut self, lane: usize) {
        let batch = &mut self.lanes[lane];
        let came_in = !batch.runs && batch.free && !batch.waits;
        batch.runs = batch.free && !batch.waits;
        if came_in && self.must_batch_leave(lane) {
            self.summon(lane);
        }
    }
}
