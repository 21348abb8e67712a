//! What the file comes to on a machine: which CPUs are reserved, who counts as siblings, from which interference on
//! batch leaves.

use std::path::Path;

use sidelane_host::cpulist::CpuSet;
use sidelane_host::topology::{ReadError, Topology};
use sidelane_policy::cpus::{Cores, CpuMask, MAX_CPUS};
use sidelane_policy::holmes::HolmesConfig;
use thiserror::Error;

use super::{Config, Kind, Metric, MetricSource, Reserved};
use crate::machine::has_pmu;

/// E where interference is told by request times: they may be longer by a tenth.
const E_OF_HARM: f64 = 0.1;

/// What of the file this machine cannot be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unfit {
    /// It names CPUs that are not there.
    #[error("{key} names CPUs {missing}, and the machine has {online}; name some of these")]
    NoSuchCpus {
        /// Where.
        key: &'static str,
        /// Those that are missing.
        missing: CpuSet,
        /// Those that are there.
        online: CpuSet,
    },
    /// Batch would have no CPU.
    #[error("policy.reserved leaves batch none of the machine's CPUs {online}; reserve fewer")]
    NothingLeft {
        /// All CPUs.
        online: CpuSet,
    },
    /// It has no counters.
    #[error("metric.source is \"counters\", and this machine has none; write \"auto\" or \"harm\"")]
    NoCounters,
}

/// The file on a machine.
#[derive(Clone, Debug)]
pub struct OnMachine {
    /// The CPUs that are there.
    pub online: CpuSet,
    /// Who counts as siblings, by the machine or by the file.
    pub cores: Cores,
    /// The CPUs that batch never uses; none but by Holmes.
    pub reserved: CpuSet,
    /// From what interference is told; never [`MetricSource::Auto`].
    pub source: MetricSource,
    /// E: from which interference on batch leaves.
    pub e: f64,
}

impl Config {
    /// What the file comes to on this machine.
    ///
    /// # Errors
    /// When its CPUs cannot be read.
    pub fn here(&self) -> Result<Result<OnMachine, Vec<Unfit>>, ReadError> {
        Ok(self.on(&Topology::read(Path::new("/sys"))?, has_pmu()))
    }

    /// What the file comes to on a machine with this topology.
    ///
    /// # Errors
    /// All that does not fit.
    pub fn on(&self, topology: &Topology, has_counters: bool) -> Result<OnMachine, Vec<Unfit>> {
        let online = topology.online();
        let cores = self.cores(topology);
        let reserved = self.reserved(&cores, &online);
        let source = self.metric.source_here(has_counters);
        let unfit = self.unfit(&online, &reserved, has_counters);
        let e = self.e(&source);
        if unfit.is_empty() { Ok(OnMachine { online, cores, reserved, source, e }) } else { Err(unfit) }
    }

    fn cores(&self, topology: &Topology) -> Cores {
        let real = topology.cpus.iter().map(|cpu| &cpu.siblings).filter(|siblings| siblings.len() > 1);
        Cores::of(real.chain(&self.policy.siblings).map(mask))
    }

    fn reserved(&self, cores: &Cores, online: &CpuSet) -> CpuSet {
        match &self.policy.kind {
            Kind::Holmes(holmes) => match &holmes.reserved {
                Reserved::Cpus(cpus) => cpus.clone(),
                Reserved::Count(share) => set(&cores.spread(share.of(online.len()), &mask(online))),
            },
            Kind::PerfIso { .. } | Kind::Unmanaged => CpuSet::default(),
        }
    }

    fn e(&self, source: &MetricSource) -> f64 {
        let given = match &self.policy.kind {
            Kind::Holmes(holmes) => holmes.e,
            Kind::PerfIso { .. } | Kind::Unmanaged => None,
        };
        given.unwrap_or(match source {
            MetricSource::Harm => E_OF_HARM,
            _ => HolmesConfig::default().threshold,
        })
    }

    fn unfit(&self, online: &CpuSet, reserved: &CpuSet, has_counters: bool) -> Vec<Unfit> {
        let siblings = self.policy.siblings.iter().fold(CpuSet::default(), |all, core| all.union(core));
        let services = self.services.iter().filter_map(|rule| rule.terms.cpus.clone());
        let services = services.fold(CpuSet::default(), |all, cpus| all.union(&cpus));
        let named = [("policy.reserved", reserved), ("policy.siblings", &siblings), ("service.cpus", &services)];
        let missing = named.into_iter().map(|(key, cpus)| (key, cpus.difference(online)));
        let missing = missing.filter(|(_, missing)| !missing.is_empty());
        let mut unfit: Vec<Unfit> =
            missing.map(|(key, missing)| Unfit::NoSuchCpus { key, missing, online: online.clone() }).collect();
        if online.is_subset(reserved) {
            unfit.push(Unfit::NothingLeft { online: online.clone() });
        }
        if self.metric.source == MetricSource::Counters && !has_counters {
            unfit.push(Unfit::NoCounters);
        }
        unfit
    }
}

impl Metric {
    fn source_here(&self, has_counters: bool) -> MetricSource {
        match (&self.source, has_counters) {
            (MetricSource::Auto, true) => MetricSource::Counters,
            (MetricSource::Auto, false) => MetricSource::Harm,
            (source, _) => source.clone(),
        }
    }
}

/// As policies have it. A policy knows no CPU above [`MAX_CPUS`].
pub fn mask(cpus: &CpuSet) -> CpuMask {
    cpus.iter().map(|cpu| cpu as usize).filter(|cpu| *cpu < MAX_CPUS).collect()
}

/// As the kernel has it.
pub fn set(cpus: &CpuMask) -> CpuSet {
    cpus.iter().map(|cpu| cpu as u32).collect()
}

#[cfg(test)]
mod tests {
    use sidelane_host::topology::{CoreId, Cpu, CpuKind};

    use super::*;

    /// CPUs 0 to 7, of which N and N + 4 share a core.
    fn machine() -> Topology {
        let cpu = |id: u32| Cpu {
            id,
            online: true,
            core: CoreId(id % 4),
            package: 0,
            numa_node: 0,
            siblings: [id % 4, id % 4 + 4].into_iter().collect(),
            kind: CpuKind::Uniform,
            capacity: None,
            freq_max_khz: None,
        };
        Topology { cpus: (0..8).map(cpu).collect(), smt_switched_off: false }
    }

    fn on(policy: &str) -> Result<OnMachine, Vec<Unfit>> {
        let text = format!("kubernetes = true\n[policy]\n{policy}\n");
        Config::parse("a.toml", &text).expect(&text).on(&machine(), false)
    }

    #[test]
    fn reserved_cpus_are_on_cores_of_their_own_as_long_as_there_are_any() {
        let reserved = |policy: &str| on(policy).unwrap().reserved.to_string();
        assert_eq!(reserved(""), "0");
        assert_eq!(reserved("reserved = 3"), "0-2");
        assert_eq!(reserved("reserved = 6"), "0-5");
        assert_eq!(reserved("reserved = \"6-7\""), "6-7");
        assert_eq!(reserved("siblings = [\"0,1\"]\nreserved = 3"), "0,2-3");
        assert_eq!(reserved("kind = \"perfiso\""), "");
    }

    #[test]
    fn what_the_machine_cannot_be_is_told_all_at_once() {
        let unfit = on("reserved = \"0-9\"\nsiblings = [\"0,12\"]\n[metric]\nsource = \"counters\"").unwrap_err();
        assert_eq!(
            unfit.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "policy.reserved names CPUs 8-9, and the machine has 0-7; name some of these",
                "policy.siblings names CPUs 12, and the machine has 0-7; name some of these",
                "policy.reserved leaves batch none of the machine's CPUs 0-7; reserve fewer",
                "metric.source is \"counters\", and this machine has none; write \"auto\" or \"harm\"",
            ]
        );
    }

    #[test]
    fn e_is_the_metrics_unless_it_is_given() {
        let e = |policy: &str| on(policy).unwrap().e;
        assert_eq!(e(""), E_OF_HARM);
        assert_eq!(e("[metric]\nsource = \"replay\"\nreplay = \"a\""), 40.0);
        assert_eq!(e("e = 7"), 7.0);
        let counted = Config::parse("a.toml", "kubernetes = true").unwrap().on(&machine(), true).unwrap();
        assert_eq!((counted.source, counted.e), (MetricSource::Counters, 40.0));
    }
}
