//! Simulation of a whole machine: several services with their CPUs, requests that call others, containers that start
//! and end, and a policy that moves CPUs between them.
//!
//! In the engine of [`crate::engine`], one service and one job share each core; here threads move between CPUs. Both
//! engines have their events in [`Slots`], and the same arrivals, demands, streams and slowdowns.
//!
//! *CPUs.* Between two changes each CPU has a constant speed. It depends on what its siblings run and, if a scenario
//! says so, on the traffic of its chip ([`chip`]). To handle an event, the engine settles what the change can affect,
//! makes the change, and resumes (`pace.rs`).
//!
//! *Services.* A worker takes a request, works, and sends its calls all at once; it does not wait for them. A request
//! is done when its own work and all of its calls are (`service.rs`). A thread that wakes up gets the CPU on which it
//! last ran if that is idle, else one on an idle core, else an idle one, else one from which it displaces a
//! container. Threads of services do not displace each other: a thread that finds no CPU waits for the first that
//! becomes free (`placing.rs`).
//!
//! *Containers.* A container has a thread on each of its CPUs, on as many as it wants; the least loaded come first.
//! Containers on one CPU take turns. The kernel moves a thread only to balance the number of threads on each CPU, and
//! never out of its container's CPUs (`batch.rs`, `spread.rs`).
//!
//! *Lanes.* If a lane gate is set, keepers hold the siblings of services' CPUs as in [`crate::engine`], under borrow
//! idle: containers run there while the service does not (`lanes.rs`).
//!
//! *Bound threads.* If a setting maps threads to big and little cores, each thread has one core. `mapper.rs` drives
//! Hurry-up (`crates/policy`), which is told of each request and moves threads.
//!
//! *The controller* observes at regular times, and when the kernel program rings (`ring.rs`). Each of its actions
//! takes effect after a time of its own (`control.rs`).

pub mod accounting;
mod batch;
pub mod chip;
mod control;
mod decider;
pub mod figures;
mod lanes;
pub mod layout;
mod mapper;
pub mod model;
mod pace;
mod placing;
mod ring;
mod service;
pub mod setting;
mod sources;
mod spread;
mod state;
pub mod sweep;

use std::collections::VecDeque;

use sidelane_policy::cpus::CpuMask;

use crate::model::RunEnd;
use crate::rng::{Rng, Stream};
use crate::slots::Slots;
use crate::time::{NEVER, Nanos};

use accounting::MachineAccounting;
use layout::Layout;
use model::MachineModel;
use setting::ContainerMode;
use sources::{Source, Sources, time_or_never};
use state::container::{ContainerArrivals, ContainerSlots};
use state::control::Controller;
pub use state::control::CpuPolicy;
use state::cpu::{Core, Cpu, Thread};
use state::serving::Serving;
use state::thread_binder::ThreadBinder;
use state::visits::Visits;

/// A running simulation of a whole machine.
pub struct MachineEngine {
    model: MachineModel,
    layout: Layout,
    now: Nanos,
    over: bool,
    slots: Slots,
    sources: Sources,
    cpus: Vec<Cpu>,
    cores: Vec<Core>,
    services: Vec<Serving>,
    /// Threads of services that have a request and no CPU.
    waiting_threads: VecDeque<Thread>,
    visits: Visits,
    places: ContainerSlots,
    queues: Vec<ContainerArrivals>,
    controller: Option<Controller>,
    /// Hurry-up with the threads that it binds to cores; `None` if threads are not bound.
    thread_binder: Option<Box<ThreadBinder>>,
    /// Random numbers for the latencies of lane gates.
    gate_latency: Rng,
    accounting: MachineAccounting,
}

impl MachineEngine {
    /// Returns a machine at time 0, idle.
    pub fn new(model: MachineModel) -> Self {
        let policy = match &model.setting.beside {
            ContainerMode::Managed(control) => Some(decider::create_policy(control.by, &model)),
            ContainerMode::Nothing | ContainerMode::Unmanaged => None,
        };
        Self::with_policy(model, policy)
    }

    /// Returns an idle machine at time 0. `policy` decides on CPUs if the setting is managed; otherwise it is ignored.
    pub fn with_policy(model: MachineModel, policy: Option<Box<CpuPolicy>>) -> Self {
        let layout = Layout::new(&model.machine);
        let batch = model.setting.beside != ContainerMode::Nothing && !model.kinds.is_empty();
        let kinds = if batch { model.kinds.as_slice() } else { &[] };
        let places = ContainerSlots::new(batch);
        let sources = Sources {
            cpus: layout.cpus(),
            places: places.all.len(),
            services: model.services.len(),
            kinds: kinds.len(),
        };
        let serving = model.services.iter().enumerate();
        let mut engine = Self {
            layout,
            now: 0,
            over: false,
            slots: Slots::new(sources.slot_count()),
            sources,
            cpus: vec![Cpu::new(); layout.cpus()],
            cores: vec![Core::default(); layout.cores()],
            services: serving.map(|(number, service)| Serving::new(service, model.seed, number)).collect(),
            waiting_threads: VecDeque::new(),
            visits: Visits::default(),
            places,
            queues: kinds
                .iter()
                .enumerate()
                .map(|(number, kind)| ContainerArrivals::new(kind, model.seed, number))
                .collect(),
            controller: Controller::new(&model, policy),
            thread_binder: ThreadBinder::new(&model),
            gate_latency: Rng::new(model.seed, Stream::Gate),
            accounting: MachineAccounting::new(model.services.len(), model.kinds.len(), layout.cores()),
            model,
        };
        engine.schedule_first_events();
        engine
    }

    fn schedule_first_events(&mut self) {
        self.place_keepers();
        self.bind_all_threads();
        (0..self.services.len()).for_each(|service| self.schedule_arrival(service));
        (0..self.queues.len()).for_each(|kind| self.schedule_container(kind));
        let end = match self.model.until {
            RunEnd::Time(ns) => Some(self.model.warm_up_ns + ns),
            RunEnd::Requests(_) => None,
        };
        self.schedule(Source::End, time_or_never(end));
        self.schedule(Source::WarmUp, if self.model.warm_up_ns > 0 { self.model.warm_up_ns } else { NEVER });
        self.schedule(Source::Control, if self.controller.is_some() { 0 } else { NEVER });
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
            self.handle_event(self.sources.source_of(slot));
        }
        self.book_all_work();
        self.over
    }

    fn handle_event(&mut self, source: Source) {
        match source {
            Source::Cpu(cpu) if self.cpus[cpu].thread.is_some() => self.finish_own_work(cpu),
            Source::Cpu(cpu) => self.end_container_turn(cpu),
            Source::Tick(cpu) => self.tick(cpu),
            Source::Keeper(cpu) => self.handle_keeper_event(cpu),
            Source::Gate(cpu) => self.open_gate(cpu),
            Source::Container(place) => self.end_container(place),
            Source::Arrival(service) => self.handle_client_arrival(service),
            Source::ContainerStart(kind) => self.submit_container(kind),
            Source::Control => self.run_controller(),
            Source::Mapper => self.run_mapper(),
            Source::WarmUp => {
                self.book_all_work();
                self.accounting.clear_counts(self.now);
                self.schedule(Source::WarmUp, NEVER);
            }
            Source::End => self.over = true,
        }
    }

    fn schedule(&mut self, source: Source, time: Nanos) {
        self.slots.set_time(self.sources.slot(source), time);
    }

    /// Returns the model that is simulated.
    pub fn model(&self) -> &MachineModel {
        &self.model
    }

    /// Returns the simulated time, in nanoseconds.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the accounting of the run so far.
    pub fn accounting(&self) -> &MachineAccounting {
        &self.accounting
    }

    /// Returns the interference at which a service counts as disturbed; `None` if the policy has no such threshold.
    pub fn interference_threshold(&self) -> Option<f64> {
        self.controller.as_ref()?.control.by.interference_threshold()
    }

    /// Returns the number of requests under way, including those that wait for others.
    pub fn requests_under_way(&self) -> usize {
        self.visits.len()
    }

    /// Returns the service whose thread runs on a CPU, and the slots of the containers with a thread there.
    pub fn service_and_containers_on(&self, cpu: usize) -> (Option<usize>, &[usize]) {
        (self.cpus[cpu].thread.map(|thread| thread.service), &self.cpus[cpu].batch)
    }

    /// Returns the services of threads that have a request and wait for a CPU, the longest waiting first.
    pub fn services_of_waiting_threads(&self) -> impl Iterator<Item = usize> {
        self.waiting_threads.iter().map(|thread| thread.service)
    }

    /// Returns the CPUs that a service may use now.
    pub fn allowed(&self, service: usize) -> CpuMask {
        self.services[service].allowed
    }

    /// Returns slot, kind and allowed CPUs of each container that runs or is paused.
    pub fn slot_kind_and_cpus_of_containers(&self) -> impl Iterator<Item = (usize, usize, CpuMask)> {
        self.places.running().map(|(at, container)| (at, container.kind, container.mask))
    }
}
