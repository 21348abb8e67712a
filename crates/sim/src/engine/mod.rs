//! Simulation engine: handles one event after the other.
//!
//! The sources of events are fixed: the client, each worker, and for each batch lane its keeper, its gate and its
//! job. Each has one slot in [`Slots`]. To handle an event, the engine settles the core it belongs to, changes what
//! runs there, and resumes the core (see `core.rs`). The loop allocates only for queues that grow, and they have a
//! limit.
//!
//! [`state`] holds the parts of a machine; `service.rs`, `batch.rs` and `keeper.rs` change them.

pub mod accounting;
mod batch;
mod core;
mod keeper;
mod oracle;
mod service;
mod state;
pub mod watch;

use sidelane_policy::borrow::{LendingLimits, lending_limits};

use crate::arrivals::Client;
use crate::keeper::Keeper;
use crate::model::{BatchMode, Model, RunEnd};
use crate::queues::Queues;
use crate::rng::{Rng, Stream, seed_of};
use crate::slots::Slots;
use crate::time::{NEVER, Nanos};

use accounting::Accounting;
use state::core::{Queued, Request, ServiceCore};
use state::faults::{Faults, PeriodicFault};
use state::lane::BatchLane;
use state::lending_limits::LendingLimitsEstimator;
use watch::Watch;

/// Number of slots of each batch lane: its keeper, its gate, its job.
const SLOTS_OF_LANE: usize = 3;

/// Sources of events that an engine has once, unlike workers and lanes. Their slots follow the workers' slots.
#[derive(Clone, Copy)]
enum SingleSource {
    Arrival,
    LendingLimits,
    Fault,
    WarmUp,
    End,
}

const SLOTS_ONCE: usize = 5;

/// A running simulation of one service with batch.
#[derive(Clone, Debug)]
pub struct Engine<W> {
    model: Model,
    watch: W,
    now: Nanos,
    over: bool,
    slots: Slots,
    cores: Vec<ServiceCore>,
    lanes: Vec<BatchLane>,
    queues: Queues<Queued>,
    client: Client,
    last_number: u64,
    arrivals: Rng,
    demand: Rng,
    dispatch: Rng,
    gate_latency: Rng,
    faults: Faults,
    limits: LendingLimitsEstimator,
    accounting: Accounting,
}

impl<W: Watch> Engine<W> {
    /// Returns a machine at time 0, idle, with batch on its lanes.
    pub fn new(model: Model, watch: W) -> Self {
        let (seed, own_seed) = (model.seed, seed_of(model.seed, model.node));
        let (cores, lanes) = cores_and_lanes(&model);
        let slots = Slots::new(cores.len() + SLOTS_ONCE + SLOTS_OF_LANE * lanes.len());
        let mut engine = Self {
            now: 0,
            over: false,
            slots,
            cores,
            lanes,
            queues: Queues::new(model.service.queue, model.service.workers),
            client: Client::new(model.service.arrivals.clone()),
            last_number: 0,
            arrivals: Rng::new(seed, Stream::Arrivals),
            demand: Rng::new(own_seed, Stream::Demand),
            dispatch: Rng::new(own_seed, Stream::Dispatch),
            gate_latency: Rng::new(own_seed, Stream::Gate),
            faults: Faults::new(&model.faults, Rng::new(own_seed, Stream::Faults)),
            limits: LendingLimitsEstimator::new(&model),
            accounting: Accounting::new(0),
            model,
            watch,
        };
        engine.schedule_first_events();
        engine
    }

    /// Removes the histogram of latencies, for an engine whose watch records the latencies itself.
    pub fn without_latencies(mut self) -> Self {
        self.accounting.latency = None;
        self
    }

    /// Removes the jobs from all lanes, for a fleet whose scheduler places jobs. Returns the number of lanes.
    pub fn empty_lanes(&mut self) -> usize {
        for lane in 0..self.lanes.len() {
            self.remove_job(lane);
        }
        self.lanes.len()
    }

    fn schedule_first_events(&mut self) {
        let first_ns = self.client.draw_gap_ns(&mut self.arrivals);
        let end = match self.model.until {
            RunEnd::Time(ns) => self.model.warm_up_ns + ns,
            RunEnd::Requests(_) => NEVER,
        };
        self.slots.set_time(self.slot_of_single_source(SingleSource::Arrival), first_ns);
        self.slots.set_time(
            self.slot_of_single_source(SingleSource::LendingLimits),
            if self.limits.wanted { lending_limits::EVERY_NS } else { NEVER },
        );
        self.slots.set_time(self.slot_of_single_source(SingleSource::Fault), self.faults.next_fault_at());
        self.slots.set_time(
            self.slot_of_single_source(SingleSource::WarmUp),
            if self.model.warm_up_ns > 0 { self.model.warm_up_ns } else { NEVER },
        );
        self.slots.set_time(self.slot_of_single_source(SingleSource::End), end);
        (0..self.lanes.len()).for_each(|lane| self.begin_job(lane));
        (0..self.cores.len()).for_each(|core| self.update_core_speeds(core));
    }

    /// Runs the simulation to its end.
    pub fn run(&mut self) {
        self.run_to(NEVER);
    }

    /// Runs the simulation until `time`, or to its end. Returns whether it has reached the end.
    pub fn run_to(&mut self, time: Nanos) -> bool {
        while !self.over
            && let Some(slot) = self.slots.advance_to_next(&mut self.now, time)
        {
            self.accounting.events += 1;
            self.handle_event(slot);
        }
        (0..self.cores.len()).for_each(|core| self.book_core_work(core));
        self.over
    }

    fn handle_event(&mut self, slot: usize) {
        if slot < self.cores.len() {
            return self.finish_request(slot);
        }
        match slot - self.cores.len() {
            slot if slot == SingleSource::Arrival as usize => self.handle_arrival(),
            slot if slot >= SLOTS_ONCE => self.handle_lane_event(slot - SLOTS_ONCE),
            slot => self.handle_single_source_event(slot),
        }
    }

    fn handle_lane_event(&mut self, slot: usize) {
        let lane = slot / SLOTS_OF_LANE;
        match slot % SLOTS_OF_LANE {
            0 => self.handle_keeper_event(lane),
            1 => self.open_gate(lane),
            _ => self.start_next_phase(lane),
        }
    }

    fn handle_single_source_event(&mut self, slot: usize) {
        if slot == SingleSource::LendingLimits as usize {
            self.limits.recompute();
            self.slots
                .set_time(self.slot_of_single_source(SingleSource::LendingLimits), self.now + lending_limits::EVERY_NS);
        } else if slot == SingleSource::Fault as usize {
            self.inject_faults();
        } else if slot == SingleSource::WarmUp as usize {
            (0..self.cores.len()).for_each(|core| self.book_core_work(core));
            self.accounting.clear_counts(self.now);
            self.slots.set_time(self.slot_of_single_source(SingleSource::WarmUp), NEVER);
        } else {
            self.over = true;
        }
    }

    fn inject_faults(&mut self) {
        while let Some(incident) = self.faults.take_due_periodic_fault(self.now) {
            for lane in 0..self.lanes.len() {
                match incident {
                    PeriodicFault::Churn { gone_ns } => self.replace_job(lane, gone_ns),
                    PeriodicFault::Crash { gone_ns } => self.crash_agent(lane, gone_ns),
                }
            }
        }
        self.slots.set_time(self.slot_of_single_source(SingleSource::Fault), self.faults.next_fault_at());
    }

    fn slot_of_single_source(&self, source: SingleSource) -> usize {
        self.cores.len() + source as usize
    }

    fn arrival_slot(&self) -> usize {
        self.slot_of_single_source(SingleSource::Arrival)
    }

    fn lane_slot(&self, lane: usize) -> usize {
        self.cores.len() + SLOTS_ONCE + SLOTS_OF_LANE * lane
    }

    fn keeper_slot(&self, lane: usize) -> usize {
        self.lane_slot(lane)
    }

    fn gate_slot(&self, lane: usize) -> usize {
        self.lane_slot(lane) + 1
    }

    fn phase_slot(&self, lane: usize) -> usize {
        self.lane_slot(lane) + 2
    }

    /// Returns the model that is simulated.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the simulated time, in nanoseconds.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the accounting of the run so far.
    pub fn accounting(&self) -> &Accounting {
        &self.accounting
    }

    /// Returns the present lending limits.
    pub fn limits(&self) -> LendingLimits {
        self.limits.current()
    }

    /// Returns the watch that receives events.
    pub fn watch(&mut self) -> &mut W {
        &mut self.watch
    }

    /// Returns the number of requests that wait or run.
    pub fn requests_under_way(&self) -> usize {
        self.queues.len + self.cores.iter().filter(|core| core.busy()).count()
    }

    /// Returns the work done so far on the running requests, in units of work.
    pub fn work_done_on_running_requests(&self) -> u128 {
        let done = |request: &Request| u128::from(request.work.units() - request.left.units());
        self.cores.iter().filter_map(|core| core.request.as_ref()).map(done).sum()
    }
}

fn cores_and_lanes(model: &Model) -> (Vec<ServiceCore>, Vec<BatchLane>) {
    let per_core = if model.setting.beside == BatchMode::Nothing { 0 } else { model.machine.lanes_per_core - 1 };
    let per_core = if model.batch.is_empty() { 0 } else { per_core };
    let keeper = || match &model.setting.beside {
        BatchMode::Lent(lending) => Some(Keeper::new(lending, &model.setting.gate)),
        _ => None,
    };
    let workers = 0..model.service.workers;
    let cores = workers.clone().map(|core| ServiceCore::new(model.machine.speed_of(core), core * per_core, per_core));
    let lanes = (0..model.service.workers * per_core)
        .map(|lane| BatchLane::new(lane / per_core, lane % model.batch.len(), keeper()));
    (cores.collect(), lanes.collect())
}
