//! Construction of the policy that the agent's file names, for this machine.

use sidelane_policy::cpus::{CpuActions, CpuReason, MachineObservation};
use sidelane_policy::holmes::{Holmes, HolmesConfig};
use sidelane_policy::perfiso::{PerfIso, PerfIsoConfig};
use sidelane_policy::unmanaged::Unmanaged;
use sidelane_policy::{Nanos, Policy};

use super::config::{Kind, MachineConfig, PolicyConfig};
use sidelane_rollback::cpu_mask::to_cpu_mask;

/// Policy that decides on CPUs, of any kind.
pub type AnyPolicy = Box<dyn Policy<Observation = MachineObservation, Actions = CpuActions, Reason = CpuReason>>;

/// Makes the policy that the file names.
pub fn choose(config: &PolicyConfig, machine: &MachineConfig) -> AnyPolicy {
    let floor = config.floor as usize;
    match &config.kind {
        Kind::Holmes(holmes) => {
            let config = HolmesConfig {
                threshold: machine.interference_threshold,
                calm_ns: holmes.calm_time.as_nanos() as Nanos,
                reserved: to_cpu_mask(&machine.reserved),
                busy_most: holmes.reserved_busy,
                floor,
                ..HolmesConfig::default()
            };
            Box::new(Holmes::new(config, machine.cores.clone()))
        }
        Kind::PerfIso { idle } => {
            let buffer = idle.cpu_count(machine.online.len());
            Box::new(PerfIso::new(PerfIsoConfig { buffer, floor, ..PerfIsoConfig::default() }))
        }
        Kind::Unmanaged | Kind::Observe(_) => Box::new(Unmanaged::default()),
    }
}

/// Returns whether the policy decides where containers may run, apart from lanes from which batch is evicted.
pub fn moves_containers(config: &PolicyConfig) -> bool {
    matches!(config.kind, Kind::Holmes(_) | Kind::PerfIso { .. })
}

/// Returns whether the policy places services on CPUs, if the services' rules in the file allow it.
pub fn places_services(config: &PolicyConfig) -> bool {
    matches!(config.kind, Kind::Holmes(_))
}

/// Returns whether the policy uses measured interference.
pub fn uses_interference(config: &PolicyConfig) -> bool {
    matches!(config.kind, Kind::Holmes(_))
}
