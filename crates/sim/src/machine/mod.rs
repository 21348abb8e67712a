//! The simulation of a whole machine: several services with their CPUs, requests that call others, containers that
//! come and go, and a policy that moves CPUs between them.
//!
//! The engine of [`crate::engine`] has cores each of which one service and one job share; here threads move between
//! CPUs. Both have their events in [`Slots`], and the same arrivals, demands, streams and slowdowns.
//!
//! *CPUs.* Between two changes each CPU has a constant speed, which depends on what its siblings run and, if a
//! scenario says so, on the traffic of its chip ([`chip`]). To handle an event is to settle what the change can
//! affect, to make the change, and to resume (`pace.rs`).
//!
//! *Services.* A worker takes a request, works, and lets its calls go out all at once; it does not wait for them. A
//! request is done when its own work and all of its calls are (`service.rs`). A thread that wakes up gets the CPU on
//! which it last ran if that is idle, else one on an idle core, else an idle one, else one from which it displaces a
//! container. Threads of services do not displace each other: who finds no CPU waits for the first that becomes free
//! (`placing.rs`).
//!
//! *Containers.* A container has a thread on each of its CPUs, on as many as it wants; the least loaded come first.
//! Containers on one CPU take turns. The kernel moves a thread only to even out how many there are on each CPU, and
//! never out of its container's CPUs (`batch.rs`, `spread.rs`).
//!
//! *Lanes.* Where a lane gate is set, keepers hold the siblings of services' CPUs as in the other engine, under borrow
//! idle: containers run there while the service does not (`lanes.rs`).
//!
//! *Bound threads.* Where a setting maps threads to big and little cores, each has one core; `mapper.rs` drives Hurry-up
//! (`crates/policy`), which is told of each request and moves threads.
//!
//! *The controller* looks at regular times, and when the kernel program rings (`ring.rs`); each of its actions takes
//! effect after a time of its own (`control.rs`).

mod batch;
pub mod books;
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

use books::MachineAccounting;
use layout::Layout;
use model::MachineModel;
use setting::ContainerMode;
use sources::{Source, Sources, when};
use state::bound::ThreadBinder;
use state::container::{ContainerArrivals, ContainerSlots};
use state::control::Controller;
pub use state::control::CpuPolicy;
use state::cpu::{Core, Cpu, Thread};
use state::serving::Serving;
use state::visits::Visits;

/// A running simulation.
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
    homeless: VecDeque<Thread>,
    visits: Visits,
    places: ContainerSlots,
    queues: Vec<ContainerArrivals>,
    controller: Option<Controller>,
    /// Where threads are bound to cores.
    bound: Option<Box<ThreadBinder>>,
    /// Of lane gates.
    gate_latency: Rng,
    books: MachineAccounting,
}

impl MachineEngine {
    /// A machine at time 0, idle.
    pub fn new(model: MachineModel) -> Self {
        let policy = match &model.setting.beside {
            ContainerMode::Managed(control) => Some(decider::policy(control.by, &model)),
            ContainerMode::Nothing | ContainerMode::Unmanaged => None,
        };
        Self::with_policy(model, policy)
    }

    /// The same, with a policy of the caller's where the setting is managed.
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
            slots: Slots::new(sources.count()),
            sources,
            cpus: vec![Cpu::new(); layout.cpus()],
            cores: vec![Core::default(); layout.cores()],
            services: serving.map(|(number, service)| Serving::new(service, model.seed, number)).collect(),
            homeless: VecDeque::new(),
            visits: Visits::default(),
            places,
            queues: kinds
                .iter()
                .enumerate()
                .map(|(number, kind)| ContainerArrivals::new(kind, model.seed, number))
                .collect(),
            controller: Controller::new(&model, policy),
            bound: ThreadBinder::new(&model),
            gate_latency: Rng::new(model.seed, Stream::Gate),
            books: MachineAccounting::new(model.services.len(), model.kinds.len(), layout.cores()),
            model,
        };
        engine.begin();
        engine
    }

    fn begin(&mut self) {
        self.place_keepers();
        self.bind_all();
        (0..self.services.len()).for_each(|service| self.expect_client(service));
        (0..self.queues.len()).for_each(|kind| self.expect_container(kind));
        let end = match self.model.until {
            RunEnd::Time(ns) => Some(self.model.warm_up_ns + ns),
            RunEnd::Requests(_) => None,
        };
        self.set(Source::End, when(end));
        self.set(Source::WarmUp, if self.model.warm_up_ns > 0 { self.model.warm_up_ns } else { NEVER });
        self.set(Source::Control, if self.controller.is_some() { 0 } else { NEVER });
    }

    /// Runs to the end.
    pub fn run(&mut self) {
        self.run_to(NEVER);
    }

    /// Runs until `time`, or to the end. Returns whether it has reached the end.
    pub fn run_to(&mut self, time: Nanos) -> bool {
        while !self.over
            && let Some(slot) = self.slots.next(&mut self.now, time)
        {
            self.books.events += 1;
            self.fire(self.sources.of(slot));
        }
        self.settle_all();
        self.over
    }

    fn fire(&mut self, source: Source) {
        match source {
            Source::Cpu(cpu) if self.cpus[cpu].thread.is_some() => self.finish(cpu),
            Source::Cpu(cpu) => self.turn(cpu),
            Source::Tick(cpu) => self.tick(cpu),
            Source::Keeper(cpu) => self.keeper_due(cpu),
            Source::Gate(cpu) => self.gate_opens(cpu),
            Source::Container(place) => self.leave(place),
            Source::Arrival(service) => self.arrive(service),
            Source::Coming(kind) => self.coming(kind),
            Source::Control => self.control(),
            Source::Mapper => self.mapper_due(),
            Source::WarmUp => {
                self.settle_all();
                self.books.reopen(self.now);
                self.set(Source::WarmUp, NEVER);
            }
            Source::End => self.over = true,
        }
    }

    fn set(&mut self, source: Source, at: Nanos) {
        self.slots.set(self.sources.slot(source), at);
    }

    /// The model.
    pub fn model(&self) -> &MachineModel {
        &self.model
    }

    /// The simulated time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The accounting.
    pub fn accounting(&self) -> &MachineAccounting {
        &self.books
    }

    /// The interference from which on a service counts as disturbed.
    pub fn threshold(&self) -> Option<f64> {
        self.controller.as_ref()?.control.by.threshold()
    }

    /// Requests under way, those included that wait for others.
    pub fn under_way(&self) -> usize {
        self.visits.len()
    }

    /// The service whose thread runs on a CPU, and the containers with a thread there, by place.
    pub fn on(&self, cpu: usize) -> (Option<usize>, &[usize]) {
        (self.cpus[cpu].thread.map(|thread| thread.service), &self.cpus[cpu].batch)
    }

    /// The services of the threads that have a request and wait for a CPU, those first that wait longest.
    pub fn waiting(&self) -> impl Iterator<Item = usize> {
        self.homeless.iter().map(|thread| thread.service)
    }

    /// The CPUs that a service may use now.
    pub fn allowed(&self, service: usize) -> CpuMask {
        self.services[service].allowed
    }

    /// The containers that run or are paused: place, kind and the CPUs that they may use.
    pub fn containers(&self) -> impl Iterator<Item = (usize, usize, CpuMask)> {
        self.places.running().map(|(at, container)| (at, container.kind, container.mask))
    }
}
