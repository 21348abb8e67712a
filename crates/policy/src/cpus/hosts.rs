//! CPUs that host services (Holmes, Table 2: "LC CPUs").

use crate::Nanos;

use super::mask::{CpuMask, MAX_CPUS};
use super::observation::{MAX_SERVICES, MachineObservation};

/// CPUs of each service. A CPU still hosts a service for a while after the service last ran there, so that containers
/// are not moved in each pause between two requests.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    /// CPUs of each service, by its slot.
    of: [Option<CpuMask>; MAX_SERVICES],
    ran_at: [Nanos; MAX_CPUS],
}

impl Default for Hosts {
    fn default() -> Self {
        Self { of: [None; MAX_SERVICES], ran_at: [0; MAX_CPUS] }
    }
}

/// Services that came or ended at one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Whether a service came.
    pub(crate) came: bool,
    /// Whether a service ended.
    pub(crate) ended: bool,
}

impl Hosts {
    /// Adds the CPUs on which services ran since the last look, and removes a CPU after `for_ns` without a service.
    pub(crate) fn note(&mut self, now: Nanos, seen: &MachineObservation, for_ns: Nanos) -> Changes {
        let mut changes = Changes::default();
        for (service, hosts) in seen.services.iter().zip(&mut self.of) {
            match service {
                Some(service) => {
                    changes.came |= hosts.is_none();
                    *hosts = Some(hosts.unwrap_or_default().or(&service.ran_on));
                    service.ran_on.iter().for_each(|cpu| self.ran_at[cpu] = now);
                }
                None => {
                    changes.ended |= hosts.is_some();
                    *hosts = None;
                }
            }
        }
        self.forget(now, for_ns);
        changes
    }

    fn forget(&mut self, now: Nanos, for_ns: Nanos) {
        let is_old = |cpu: &usize| now - self.ran_at[*cpu] > for_ns;
        let old: CpuMask = self.cpus().iter().filter(is_old).collect();
        self.of.iter_mut().flatten().for_each(|hosts| *hosts = hosts.without(&old));
    }

    /// Returns the CPUs of all services.
    pub(crate) fn cpus(&self) -> CpuMask {
        self.of.iter().flatten().fold(CpuMask::EMPTY, |all, hosts| all.or(hosts))
    }

    /// Returns whether there is a service.
    pub(crate) fn any(&self) -> bool {
        self.of.iter().any(Option::is_some)
    }
}
