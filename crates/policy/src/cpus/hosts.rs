//! CPUs that host services (Holmes, Table 2: "LC CPUs").

use crate::Nanos;

use super::mask::{CpuMask, MAX_CPUS};
use super::observation::{MAX_SERVICES, MachineObservation};

/// CPUs of each service. A CPU still hosts a service for a while after the service last ran there, so that containers
/// are not moved in each pause between two requests.
#[derive(Clone, Debug)]
pub(crate) struct HostingCpus {
    /// CPUs of each service, by its slot.
    of: [Option<CpuMask>; MAX_SERVICES],
    ran_at: [Nanos; MAX_CPUS],
}

impl Default for HostingCpus {
    fn default() -> Self {
        Self { of: [None; MAX_SERVICES], ran_at: [0; MAX_CPUS] }
    }
}

/// Services that came or ended at one observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceChanges {
    /// Whether a service came.
    pub(crate) came: bool,
    /// Whether a service ended.
    pub(crate) ended: bool,
}

impl HostingCpus {
    /// Adds the CPUs on which services ran since the last observation, and removes a CPU after `keep_ns` without a
    /// service.
    pub(crate) fn update(&mut self, now: Nanos, seen: &MachineObservation, keep_ns: Nanos) -> ServiceChanges {
        let mut changes = ServiceChanges::default();
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
        self.remove_old_cpus(now, keep_ns);
        changes
    }

    fn remove_old_cpus(&mut self, now: Nanos, keep_ns: Nanos) {
        let is_old = |cpu: &usize| now - self.ran_at[*cpu] > keep_ns;
        let old: CpuMask = self.cpus().iter().filter(is_old).collect();
        self.of.iter_mut().flatten().for_each(|hosts| *hosts = hosts.without(&old));
    }

    /// Returns the CPUs of all services.
    pub(crate) fn cpus(&self) -> CpuMask {
        self.of.iter().flatten().fold(CpuMask::EMPTY, |all, hosts| all.or(hosts))
    }

    /// Returns whether there is a service.
    pub(crate) fn has_service(&self) -> bool {
        self.of.iter().any(Option::is_some)
    }
}
