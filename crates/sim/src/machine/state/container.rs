//! Containers that run, and those that are to come.

use std::collections::VecDeque;

use sidelane_policy::cpus::{CpuMask, MAX_CONTAINERS};

use crate::arrivals::Client;
use crate::machine::model::{Coming, Kind};
use crate::rng::{Rng, Stream, seed_of};
use crate::time::{Nanos, Speed, Work};

/// A container. Its work is one pool for all of its threads.
#[derive(Clone, Debug)]
pub struct Container {
    pub kind: usize,
    pub left: Work,
    /// Of all its threads together.
    pub speed: Speed,
    /// Settled up to here.
    pub since: Nanos,
    /// The CPUs that it may use now; none while it is paused.
    pub mask: CpuMask,
    /// Those on which it has a thread.
    pub on: CpuMask,
}

impl Container {
    /// The work done since it was last settled.
    pub fn settle(&mut self, now: Nanos) -> u128 {
        let done = self.left.take(now - self.since, self.speed);
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
    /// None, if there is never to be a container.
    pub fn new(any: bool) -> Self {
        let count = if any { MAX_CONTAINERS } else { 0 };
        Self { all: vec![None; count], unseen: vec![false; count] }
    }

    /// A free place.
    pub fn free(&self) -> Option<usize> {
        let free = |at: &usize| self.all[*at].is_none();
        (0..self.all.len()).find(|at| free(at) && !self.unseen[*at]).or_else(|| (0..self.all.len()).find(free))
    }

    /// The container at a place ends.
    pub fn leave(&mut self, at: usize) -> Option<Container> {
        self.unseen[at] = true;
        self.all[at].take()
    }

    /// The controller has looked.
    pub fn seen(&mut self) {
        self.unseen.fill(false);
    }

    pub fn running(&self) -> impl Iterator<Item = (usize, &Container)> {
        self.all.iter().enumerate().filter_map(|(at, container)| Some((at, container.as_ref()?)))
    }
}

/// Containers of one kind that are to come.
#[derive(Clone, Debug)]
pub struct ContainerArrivals {
    pub running: usize,
    /// Submitted, and waiting for room.
    pub backlog: u64,
    /// Those that follow others come then.
    pub due: VecDeque<Nanos>,
    pub client: Option<Client>,
    pub arrivals: Rng,
    pub work: Rng,
}

impl ContainerArrivals {
    /// For the kind at place `number` of a machine with this seed. Those that follow others are all due at once.
    pub fn new(kind: &Kind, seed: u64, number: usize) -> Self {
        let seed = seed_of(seed, (usize::MAX - number) as u64);
        let (due, client) = match &kind.coming {
            Coming::Again { .. } => (VecDeque::from(vec![0; kind.count]), None),
            Coming::Submitted(arrivals) => (VecDeque::new(), Some(Client::new(arrivals.clone()))),
        };
        let (arrivals, work) = (Rng::new(seed, Stream::Submissions), Rng::new(seed, Stream::ContainerWork));
        Self { running: 0, backlog: 0, due, client, arrivals, work }
    }
}
