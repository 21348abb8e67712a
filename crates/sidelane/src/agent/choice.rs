//! The policy that the file names, on this machine.

use sidelane_host::cpulist::CpuSet;
use sidelane_host::topology::Topology;
use sidelane_policy::cpus::{Actions, Cores, CpuMask, Observation, Reason};
use sidelane_policy::holmes::{Holmes, HolmesConfig};
use sidelane_policy::perfiso::{PerfIso, PerfIsoConfig};
use sidelane_policy::{Nanos, Policy};

use super::config::{Kind, PolicyConfig, Reserved};
use super::masks::mask_of;

/// A policy of CPUs, whichever it is.
pub type AnyPolicy = Box<dyn Policy<Observation = Observation, Actions = Actions, Reason = Reason>>;

/// Batch is left alone.
struct Unmanaged;

impl Policy for Unmanaged {
    type Observation = Observation;
    type Actions = Actions;
    type Reason = Reason;

    fn observe(&mut self, _now: Nanos, _seen: &Observation, _out: &mut Actions) {}

    fn next_wakeup(&self) -> Option<Nanos> {
        None
    }

    fn why(&self) -> Reason {
        Reason::Steady
    }
}

/// Which CPUs share a core: what the machine says, and what the file adds.
pub fn cores(topology: &Topology, declared: &[CpuSet]) -> Vec<CpuSet> {
    let is_declared = |core: &CpuSet| declared.iter().any(|other| !other.intersection(core).is_empty());
    let lowest = topology.cpus.iter().filter(|cpu| cpu.online && cpu.siblings.first() == Some(cpu.id));
    let of_machine = lowest.map(|cpu| cpu.siblings.clone()).filter(|core| !is_declared(core));
    of_machine.chain(declared.iter().cloned()).collect()
}

/// What was chosen.
pub struct Chosen {
    /// It.
    pub policy: AnyPolicy,
    /// The CPUs that it reserves at first.
    pub reserved: CpuMask,
    /// Interference from which on it acts; `None` if it does not look at that.
    pub threshold: Option<f64>,
}

/// Makes the policy. `usable` are the CPUs that batch may be given at all, `e` is the metric's own default.
pub fn choose(config: &PolicyConfig, cores: &[CpuSet], usable: &CpuSet, e: f64) -> Chosen {
    let cores = Cores::of(cores.iter().map(mask_of));
    match &config.kind {
        Kind::Holmes(holmes) => {
            let reserved = match &holmes.reserved {
                Reserved::Cpus(cpus) => mask_of(cpus),
                Reserved::Count(share) => cores.spread(share.of(usable.len()), &mask_of(usable)),
            };
            let threshold = holmes.e.unwrap_or(e);
            let config = HolmesConfig {
                threshold,
                calm_ns: holmes.s.as_nanos() as Nanos,
                reserved,
                busy_most: holmes.t,
                floor: config.floor as usize,
                ..HolmesConfig::default()
            };
            let policy = Box::new(Holmes::new(config, cores));
            Chosen { policy, reserved, threshold: Some(threshold) }
        }
        Kind::PerfIso { idle } => {
            let buffer = idle.of(usable.len());
            let config = PerfIsoConfig { buffer, floor: config.floor as usize, ..PerfIsoConfig::default() };
            let policy = Box::new(PerfIso::new(config));
            Chosen { policy, reserved: CpuMask::EMPTY, threshold: None }
        }
        Kind::Unmanaged => Chosen { policy: Box::new(Unmanaged), reserved: CpuMask::EMPTY, threshold: None },
    }
}
