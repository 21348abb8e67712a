//! `sidelane agent show`: prints the file, applied to this machine now.

mod print;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::procfs::allowed_cpus;
use sidelane_host::topology::Topology;

use super::config::{ActiveSource, Config, Kind, MachineConfig, Setting};
use super::discover::{Container, Finder, FoundService};
use crate::note::AgentNote;
use sidelane_requests::objective::format_objective;

/// Result of `sidelane agent show`.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    /// Path of the file.
    pub file: String,
    /// CPUs of the machine, as text.
    pub machine: String,
    /// Services that were found.
    pub services: Vec<ServiceShown>,
    /// Containers that were found.
    pub containers: Vec<ContainerShown>,
    /// CPUs of services and batch; `None` if the file does not fit the machine.
    pub cpus: Option<CpusShown>,
    /// All settings that have a default.
    pub settings: Vec<SettingShown>,
    /// Things that are missing on this machine, with what to do.
    pub missing: Vec<String>,
    /// Reasons why the agent would not start on this machine, with what to do.
    pub unfit: Vec<String>,
}

/// Service that was found.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceShown {
    /// Name of the service.
    pub name: String,
    /// Path of the service's cgroup; `None` if processes define the service.
    pub group: Option<String>,
    /// Ids of the service's processes.
    pub pids: Vec<u32>,
    /// CPUs that count as the service's own.
    pub cpus: CpuSet,
    /// Objective of the service, as text.
    pub slo: Option<String>,
    /// Whether the service may be placed on the reserved CPUs.
    pub may_be_placed: bool,
}

/// Container that was found.
#[derive(Clone, Debug, Serialize)]
pub struct ContainerShown {
    /// Name of the container.
    pub name: String,
    /// Path of the container's cgroup.
    pub group: String,
    /// Priority of the container. Containers with a higher priority are given CPUs first.
    pub priority: i32,
    /// Number of CPUs that the container wants.
    #[serde(rename = "wanted_cpus")]
    pub wants_cpus: u32,
    /// Source of the number of CPUs that the container wants.
    #[serde(rename = "wanted_from")]
    pub wants_by: String,
    /// CPUs that the container's processes may use.
    pub cpus: CpuSet,
    /// Number of the container's processes.
    pub processes: usize,
}

/// CPUs of services and batch when the agent starts.
#[derive(Clone, Debug, Serialize)]
pub struct CpusShown {
    /// CPUs that batch never uses.
    pub reserved: CpuSet,
    /// CPUs that batch may use.
    pub batch: CpuSet,
    /// Source of interference, as text.
    pub interference: String,
    /// Interference at which batch leaves a sibling; `None` if the policy does not use interference.
    pub interference_threshold: Option<f64>,
    /// Big and little cores that threads are mapped to, as text; `None` if there are none.
    pub mapped_to: Option<String>,
}

/// Setting that has a default.
#[derive(Clone, Debug, Serialize)]
pub struct SettingShown {
    /// Key of the setting.
    pub key: String,
    /// Value of the setting.
    pub value: String,
    /// Source of the setting's value.
    pub from: String,
}

impl Shown {
    /// Applies a file to this machine now.
    ///
    /// # Errors
    /// When the machine's CPUs cannot be read.
    pub fn from_machine(file: &Path, config: &Config) -> Result<Self> {
        let mut finder = Finder::new(config);
        finder.scan(now_ns());
        Self::from_finder(file, config, &finder)
    }

    /// Applies a file to this machine, with the services and containers that `finder` found.
    ///
    /// # Errors
    /// When the machine's CPUs cannot be read.
    pub fn from_finder(file: &Path, config: &Config, finder: &Finder) -> Result<Self> {
        let here = config.apply_to_this_machine(None)?;
        let unfit = here.as_ref().err().map_or_else(Vec::new, |unfit| unfit.iter().map(ToString::to_string).collect());
        let notes = here.as_ref().map_or(&[][..], |here| &here.notes).iter().map(AgentNote::to_string);
        let missing = finder.problems().iter().map(ToString::to_string).chain(notes).collect();
        Ok(Self {
            file: file.display().to_string(),
            machine: Topology::read(Path::new("/sys"))?.describe(),
            services: finder.services().map(ServiceShown::from_service).collect(),
            containers: finder
                .containers()
                .map(|container| ContainerShown::from_container(container, finder))
                .collect(),
            cpus: here.ok().map(|here| CpusShown::from_config(config, &here)),
            settings: config.settings.iter().map(SettingShown::from_setting).collect(),
            missing,
            unfit,
        })
    }

    /// Returns the exit code: 0 if the agent would start, otherwise 1.
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.unfit.is_empty())
    }
}

impl ServiceShown {
    fn from_service(found: &FoundService) -> Self {
        Self {
            name: found.name.clone(),
            group: found.group.as_ref().map(|group| group.path.clone()),
            pids: found.service.pids.iter().copied().collect(),
            cpus: found.settings.cpus.clone().unwrap_or_else(|| allowed_cpus(&found.service.pids)),
            slo: found.settings.slo.map(format_objective),
            may_be_placed: found.settings.may_be_placed,
        }
    }
}

impl ContainerShown {
    fn from_container(container: &Container, finder: &Finder) -> Self {
        let pids: BTreeSet<u32> = finder.processes(&container.id).into_iter().collect();
        Self {
            name: container.name.clone(),
            group: container.id.path.clone(),
            priority: container.priority,
            wants_cpus: container.cpu_demand.cpus,
            wants_by: container.cpu_demand.from.to_string(),
            cpus: allowed_cpus(&pids),
            processes: pids.len(),
        }
    }
}

impl CpusShown {
    fn from_config(config: &Config, machine: &MachineConfig) -> Self {
        let interference = match &machine.source {
            ActiveSource::Counters(formula) => formula.to_string(),
            ActiveSource::Replay(file) => format!("counters that were recorded in {}", file.display()),
            ActiveSource::Latency => "request times of the services".to_owned(),
        };
        let is_holmes = matches!(config.policy.kind, Kind::Holmes(_));
        Self {
            reserved: machine.reserved.clone(),
            batch: machine.online.difference(&machine.reserved),
            interference,
            interference_threshold: is_holmes.then_some(machine.interference_threshold),
            mapped_to: machine.sizes.as_ref().map(ToString::to_string),
        }
    }
}

impl SettingShown {
    fn from_setting(setting: &Setting) -> Self {
        let from = setting.line.map_or_else(|| "default".to_owned(), |line| format!("line {line}"));
        Self { key: setting.key.clone(), value: setting.value.clone(), from }
    }
}
