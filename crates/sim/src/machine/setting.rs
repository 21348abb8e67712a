//! One way of sharing the CPUs of a whole machine. Data only, as in [`super::model`].

use sidelane_policy::holmes::HolmesConfig;
use sidelane_policy::hurryup;
use sidelane_policy::perfiso::PerfIsoConfig;

use crate::gate::{Gate, Latency};
use crate::time::Nanos;

/// A setting of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineSetting {
    /// Its name in results.
    pub name: String,
    /// What runs beside the services, and how.
    pub beside: ContainerMode,
    /// How the threads of services are bound to cores; `None`: they are not, and the kernel places them.
    pub mapping: Option<hurryup::Config>,
}

impl MachineSetting {
    /// The services alone.
    pub fn alone() -> Self {
        Self { name: "alone".to_owned(), beside: ContainerMode::Nothing, mapping: None }
    }

    /// Whether there is nothing but the services, which run where the kernel places them.
    pub fn is_alone(&self) -> bool {
        self.beside == ContainerMode::Nothing && self.mapping.is_none()
    }
}

/// What runs beside the services, and how.
#[derive(Clone, Debug, PartialEq)]
pub enum ContainerMode {
    /// No containers.
    Nothing,
    /// Containers on all CPUs that they may be given.
    Unmanaged,
    /// Containers on the CPUs that a policy gives them.
    Managed(Control),
}

/// Who decides: the code that the agent runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CpuDecider {
    /// Holmes.
    Holmes(HolmesConfig),
    /// PerfIso.
    PerfIso(PerfIsoConfig),
}

impl CpuDecider {
    /// The interference of a service's CPU from which on it counts as disturbed, in the unit of VPI.
    pub fn threshold(&self) -> Option<f64> {
        match self {
            Self::Holmes(config) => Some(config.threshold),
            Self::PerfIso(_) => None,
        }
    }
}

/// Who looks at the machine when, and how fast what was decided is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Control {
    /// Who decides.
    pub by: CpuDecider,
    /// From one regular look to the next.
    pub look_ns: Nanos,
    /// Besides, the kernel program rings when a service is disturbed: the time from then to the look.
    pub ring: Option<Latency>,
    /// The gate that keeps containers off the siblings of services' CPUs while a service runs there (borrow idle).
    pub gate: Option<Gate>,
    /// From the decision, or the action before, to the effect of an action.
    pub act: Latency,
}
