//! From the agent's file to what is on this machine now: services with their processes, and batch's containers.

mod found;

use std::collections::BTreeMap;

use sidelane_policy::Nanos;

use super::config::Config;
pub use found::{Changes, Container, ContainerId, FoundService, ServiceId, Wanted, WantedFrom};

/// Finds what a file names, again and again.
#[derive(Debug)]
pub struct Finder {
    services: BTreeMap<ServiceId, FoundService>,
    containers: BTreeMap<ContainerId, Container>,
}

impl Finder {
    /// A finder that has not looked yet.
    pub fn new(_config: &Config) -> Self {
        Self { services: BTreeMap::new(), containers: BTreeMap::new() }
    }

    /// Looks at the machine. `now` is the time of [`sidelane_host::clock`].
    pub fn look(&mut self, _now: Nanos) -> Changes {
        Changes::default()
    }

    /// The services of the last look.
    pub fn services(&self) -> impl Iterator<Item = &FoundService> {
        self.services.values()
    }

    /// The containers of the last look.
    pub fn containers(&self) -> impl Iterator<Item = &Container> {
        self.containers.values()
    }
}
