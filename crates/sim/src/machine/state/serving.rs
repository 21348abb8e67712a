//! State of a service: its queue, its workers and the CPUs that it may use now.

use sidelane_policy::cpus::CpuMask;

use crate::arrivals::Client;
use crate::machine::model::MachineService;
use crate::queues::Queues;
use crate::rng::{Rng, Stream, seed_of};

/// State of a running service.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Queues of requests that wait for a worker.
    pub queues: Queues<usize>,
    /// CPU on which each worker last ran.
    pub last_cpu: Vec<Option<usize>>,
    pub allowed: CpuMask,
    /// CPUs on which the service ran since the last observation.
    pub ran_on: CpuMask,
    pub client: Option<Client>,
    pub arrivals: Rng,
    pub demand: Rng,
    pub dispatch: Rng,
}

impl Serving {
    /// Returns the service with index `service_index` on a machine with this seed.
    pub fn new(service: &MachineService, seed: u64, service_index: usize) -> Self {
        let seed = seed_of(seed, service_index as u64);
        Self {
            queues: Queues::new(service.queue, service.workers),
            last_cpu: vec![None; service.workers],
            allowed: service.cpus,
            ran_on: CpuMask::EMPTY,
            client: service.arrivals.clone().map(Client::new),
            arrivals: Rng::new(seed, Stream::Arrivals),
            demand: Rng::new(seed, Stream::Demand),
            dispatch: Rng::new(seed, Stream::Dispatch),
        }
    }
}
