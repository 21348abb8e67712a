//! Progress of a batch job through its phases: work on the lane, and waits. A fleet with a scheduler places jobs of its
//! own on the lanes, each with a given amount of work.

use super::Engine;
use super::watch::Watch;
use crate::model::{Job, Phase};
use crate::time::{NEVER, Nanos, Work};

impl<W: Watch> Engine<W> {
    /// Begins the first phase of the lane's job.
    pub(super) fn begin_job(&mut self, lane: usize) {
        self.enter_phase(lane, 0);
    }

    /// Moves the lane's job to its next phase, when the current phase has ended.
    pub(super) fn start_next_phase(&mut self, lane: usize) {
        let core = self.lanes[lane].core;
        self.book_core_work(core);
        let phases = &self.job(lane).phases;
        let next = (self.lanes[lane].phase + 1) % phases.len();
        match phases[self.lanes[lane].phase] {
            // A phase without end ends only with the work of a job that was placed.
            Phase::Work { work_ns: NEVER, .. } if !self.lanes[lane].waits => self.pause_batch(lane, None),
            _ => self.enter_phase(lane, next),
        }
        self.update_core_speeds(core);
    }

    /// Starts a job with this amount of work on an empty lane. The job is of the lane's class.
    pub fn place_job(&mut self, lane: usize, work: Work) {
        let core = self.lanes[lane].core;
        self.book_core_work(core);
        self.enter_phase(lane, 0);
        self.lanes[lane].left = work;
        self.update_core_speeds(core);
    }

    /// Removes the job from a lane, which is empty then. Returns the rest of the job's work.
    pub fn remove_job(&mut self, lane: usize) -> Work {
        let core = self.lanes[lane].core;
        self.book_core_work(core);
        let left = std::mem::take(&mut self.lanes[lane].left);
        self.pause_batch(lane, None);
        self.update_core_speeds(core);
        left
    }

    /// Returns the time for which a lane was open to batch, and the rest of the work of its job. Both are up to the
    /// time to which the engine has run.
    pub fn lane_progress(&self, lane: usize) -> (Nanos, Work) {
        (self.lanes[lane].open_ns, self.lanes[lane].left)
    }

    /// Ends the lane's job; a new job like it begins after `gap_ns`.
    pub(super) fn replace_job(&mut self, lane: usize, gap_ns: u64) {
        let core = self.lanes[lane].core;
        self.book_core_work(core);
        // The last phase becomes the current one, so the new job begins with the first.
        self.lanes[lane].phase = self.job(lane).phases.len() - 1;
        self.pause_batch(lane, Some(gap_ns));
        self.update_core_speeds(core);
    }

    fn job(&self, lane: usize) -> &Job {
        &self.model.batch[self.lanes[lane].job]
    }

    fn enter_phase(&mut self, lane: usize, phase: usize) {
        self.lanes[lane].phase = phase;
        match self.job(lane).phases[phase] {
            Phase::Wait { ns } => self.pause_batch(lane, Some(ns)),
            Phase::Work { class, work_ns } => {
                let batch = &mut self.lanes[lane];
                batch.class = class;
                batch.left = if work_ns == NEVER { Work::ENDLESS } else { Work::of_ns(work_ns) };
                batch.waits = false;
                self.try_run_batch(lane);
            }
        }
    }

    /// Leaves the lane without batch for a time, or until a job is placed there.
    fn pause_batch(&mut self, lane: usize, duration_ns: Option<Nanos>) {
        self.lanes[lane].waits = true;
        self.lanes[lane].runs = false;
        self.slots.set_time(self.phase_slot(lane), duration_ns.map_or(NEVER, |ns| self.now + ns));
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
