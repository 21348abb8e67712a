//! Containers that run, and queues of containers that are to start.

use std::collections::VecDeque;

use sidelane_policy::cpus::{CpuMask, MAX_CONTAINERS};

use crate::arrivals::Client;
use crate::machine::model::{ContainerStarts, Kind};
use crate::rng::{Rng, Stream, seed_of};
use crate::time::{Nanos, Speed, Work};

/// A container. All of its threads share one pool of work.
#[derive(Clone, Debug)]
pub struct Container {
    pub kind: usize,
    pub left: Work,
    /// Speed of all threads of the container together.
    pub speed: Speed,
    /// Time up to which the container's work is booked.
    pub since: Nanos,
    /// CPUs that the container may use now; none while it is paused.
    pub mask: CpuMask,
    /// CPUs on which the container has a thread.
    pub on: CpuMask,
}

impl Container {
    /// Books and returns the work done since the last call, in units of work.
    pub fn book_work(&mut self, now: Nanos) -> u128 {
        let done = self.left.subtract_work_done(now - self.since, self.speed);
        self.since = now;
        done
    }
}

/// Slot table of containers; a freed slot is reused only after the controller's next observation.
#[derive(Clone, Debug)]
pub struct ContainerSlots {
    pub all: Vec<Option<Container>>,
    unseen: Vec<bool>,
}

impl ContainerSlots {
    /// Creates an empty table; without slots if there is never to be a container.
    pub fn new(has_containers: bool) -> Self {
        let count = if has_containers { MAX_CONTAINERS } else { 0 };
        Self { all: vec![None; count], unseen: vec![false; count] }
    }

    /// Returns a free slot. One that was free at the last observation is preferred, so that the policy does not mistake
    /// the new container for the old.
    pub fn free_slot(&self) -> Option<usize> {
        let free = |at: &usize| self.all[*at].is_none();
        (0..self.all.len()).find(|at| free(at) && !self.unseen[*at]).or_else(|| (0..self.all.len()).find(free))
    }

    /// Removes the container that ends at a slot.
    pub fn remove(&mut self, slot: usize) -> Option<Container> {
        self.unseen[slot] = true;
        self.all[slot].take()
    }

    /// Makes freed slots reusable, after an observation of the controller.
    pub fn release_freed_slots(&mut self) {
        self.unseen.fill(false);
    }

    pub fn running(&self) -> impl Iterator<Item = (usize, &Container)> {
        self.all.iter().enumerate().filter_map(|(at, container)| Some((at, container.as_ref()?)))
    }
}

/// Queue of containers of one kind that are to start.
#[derive(Clone, Debug)]
pub struct ContainerArrivals {
    pub running: usize,
    /// Number of submitted containers that wait because `count` containers of their kind run.
    pub backlog: u64,
    /// Start times of repeated containers: 0 for the first ones, later for those that replace ended containers.
    pub due: VecDeque<Nanos>,
    pub client: Option<Client>,
    pub arrivals: Rng,
    pub work: Rng,
}

impl ContainerArrivals {
    /// Returns the queue of the kind with index `kind_index` on a machine with this seed. The first repeated containers
    /// all start at time 0.
    pub fn new(kind: &Kind, seed: u64, kind_index: usize) -> Self {
        let seed = seed_of(seed, (usize::MAX - kind_index) as u64);
        let (due, client) = match &kind.coming {
            ContainerStarts::Repeated { .. } => (VecDeque::from(vec![0; kind.count]), None),
            ContainerStarts::Submitted(arrivals) => (VecDeque::new(), Some(Client::new(arrivals.clone()))),
        };
        let (arrivals, work) = (Rng::new(seed, Stream::Submissions), Rng::new(seed, Stream::ContainerWork));
        Self { running: 0, backlog: 0, due, client, arrivals, work }
    }
}
