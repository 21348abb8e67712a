//! Setting of a whole machine: one way of sharing its CPUs. Data only, as in [`super::model`].

use sidelane_policy::holmes::HolmesConfig;
use sidelane_policy::hurryup;
use sidelane_policy::perfiso::PerfIsoConfig;

use crate::gate::{Gate, Latency};
use crate::time::Nanos;

/// Setting of an experiment: one way of sharing the CPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineSetting {
    /// Name of the setting in results.
    pub name: String,
    /// Containers that run beside the services, and their management.
    pub beside: ContainerMode,
    /// Mapping of the services' threads to cores; `None` if threads are not bound, and the kernel places them.
    pub mapping: Option<hurryup::Config>,
}

impl MachineSetting {
    /// Returns a setting without containers, in which the kernel places the services' threads.
    pub fn without_containers() -> Self {
        Self { name: "alone".to_owned(), beside: ContainerMode::Nothing, mapping: None }
    }

    /// Returns whether the setting has only the services, which run where the kernel places them.
    pub fn has_only_services(&self) -> bool {
        self.beside == ContainerMode::Nothing && self.mapping.is_none()
    }
}

/// Containers that run beside the services, and their management.
#[derive(Clone, Debug, PartialEq)]
pub enum ContainerMode {
    /// No containers.
    Nothing,
    /// Containers without management, on all CPUs that the scenario allows them.
    Unmanaged,
    /// Containers on the CPUs that a policy gives them.
    Managed(Control),
}

/// Policy that decides on CPUs: the code that the agent runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CpuDecider {
    /// The policy Holmes, with its parameters.
    Holmes(HolmesConfig),
    /// The policy PerfIso, with its parameters.
    PerfIso(PerfIsoConfig),
}

impl CpuDecider {
    /// Returns the VPI at which a service's CPU counts as disturbed, in stalled cycles for each load and store. Returns
    /// `None` for PerfIso.
    pub fn interference_threshold(&self) -> Option<f64> {
        match self {
            Self::Holmes(config) => Some(config.threshold),
            Self::PerfIso(_) => None,
        }
    }
}

/// Controller: its policy, the times of its observations, and the delay of its actions.
#[derive(Clone, Debug, PartialEq)]
pub struct Control {
    /// Policy that decides on CPUs.
    pub by: CpuDecider,
    /// Time from one regular observation to the next, in nanoseconds.
    pub look_ns: Nanos,
    /// Delay from a disturbance of a service to the observation that the kernel program requests; `None` if only
    /// regular observations are made.
    pub ring: Option<Latency>,
    /// Gate that keeps containers off the siblings of services' CPUs while a service runs there (borrow idle).
    pub gate: Option<Gate>,
    /// Delay of an action: from the decision, or from the end of the previous action, until it has taken effect.
    pub act: Latency,
}
