//! The configuration applied to a machine: the reserved CPUs, the sibling CPUs, and the interference threshold at which
//! batch leaves.

use std::path::{Path, PathBuf};

use sidelane_host::cpulist::CpuSet;
use sidelane_host::events::{Formula, FormulaError, Processor, ProcessorEvents, events_of_processor};
use sidelane_host::topology::{ReadError, Topology};
use sidelane_policy::cpus::CoreTopology;
use sidelane_policy::holmes::HolmesConfig;
use thiserror::Error;

use super::{BigCores, Config, Kind, Metric, MetricSource, Reserved};
use crate::note::AgentNote;
use sidelane_diagnostics::machine::has_pmu;
use sidelane_hurry::CoreSizes;
use sidelane_rollback::cpu_mask::{to_cpu_mask, to_cpu_set};

/// Interference threshold if interference is a rise in latency: requests that take 20 % longer.
pub const LATENCY_THRESHOLD: f64 = 0.2;

/// Reason why the configuration does not fit this machine.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unfit {
    /// CPUs that the machine does not have.
    #[error("{key} names CPUs {missing}, but this machine has CPUs {online}; name some of these")]
    NoSuchCpus {
        /// Key of the file that names the CPUs.
        key: &'static str,
        /// CPUs that are missing.
        missing: CpuSet,
        /// CPUs that are online.
        online: CpuSet,
    },
    /// Reserved CPUs that leave no CPU for batch.
    #[error("policy.reserved names all CPUs of this machine ({online}), so batch would have none; reserve fewer")]
    NothingLeft {
        /// CPUs that are online.
        online: CpuSet,
    },
    /// Formula whose events cannot be counted.
    #[error("metric.formula cannot be used here: {0}")]
    Formula(FormulaError),
    /// Machine without hardware counters.
    #[error("metric.source is \"counters\", but this machine has no hardware counters; write source = \"latency\"")]
    NoCounters,
    /// Directory that does not exist.
    #[error("{key} is {}, but there is no such directory; make it, or name another", .dir.display())]
    NoDirectory {
        /// Key of the file that names the directory.
        key: &'static str,
        /// Path of the directory.
        dir: PathBuf,
    },
    /// Processor whose events are unknown.
    #[error(
        "metric.source is \"counters\", but no events are known for this processor; write a formula, or source = \
         \"latency\""
    )]
    NoRow,
}

/// Hardware counters of the processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct CounterSupport {
    /// Whether this process can use hardware counters.
    pub are_available: bool,
    /// Known events of the processor; `None` if the processor is unknown.
    pub events: Option<&'static ProcessorEvents>,
}

impl CounterSupport {
    /// Returns the hardware counters of this machine.
    pub fn detect() -> Self {
        Self {
            are_available: has_pmu(),
            events: Processor::find().and_then(|processor| events_of_processor(&processor)),
        }
    }
}

/// Source of interference on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActiveSource {
    /// Hardware counters, with a formula over their events.
    Counters(Formula),
    /// Request times of the services.
    Latency,
    /// Recording of counters, at this path.
    Replay(PathBuf),
}

/// Configuration applied to a machine.
#[derive(Clone, Debug)]
pub struct MachineConfig {
    /// CPUs that are online.
    pub online: CpuSet,
    /// Cores, from the machine or from the file.
    pub cores: CoreTopology,
    /// CPUs that batch never uses; empty unless the policy is Holmes.
    pub reserved: CpuSet,
    /// Source of interference values.
    pub source: ActiveSource,
    /// Interference at which batch leaves a core.
    pub interference_threshold: f64,
    /// Big and little cores, if threads are to be moved to big ones and the machine has any.
    pub sizes: Option<CoreSizes>,
    /// Notes on differences from the Holmes paper, and on missing features.
    pub notes: Vec<AgentNote>,
}

impl Config {
    /// Applies the configuration to this machine. `running_source` is the source of interference that the agent already
    /// uses, if any.
    ///
    /// # Errors
    /// When the machine's CPUs cannot be read. The inner error is all reasons why the configuration does not fit.
    pub fn apply_to_this_machine(
        &self,
        running_source: Option<&ActiveSource>,
    ) -> Result<Result<MachineConfig, Vec<Unfit>>, ReadError> {
        let topology = Topology::read(Path::new("/sys"))?;
        let on = self.apply_to_machine(&topology, CounterSupport::detect(), running_source);
        let sizes = || self.hurry.as_ref().map(|hurry| hurry.find_core_sizes(self.lanes_of_cores(&topology)));
        let missing: Vec<Unfit> = self.missing_directories().collect();
        Ok(match (on, missing.is_empty()) {
            (Ok(here), true) => Ok(here.with_core_sizes(sizes())),
            (on, _) => Err(on.err().into_iter().flatten().chain(missing).collect()),
        })
    }

    fn missing_directories(&self) -> impl Iterator<Item = Unfit> {
        let trace = self.trace.as_ref().map(|trace| ("trace.dir", &trace.dir));
        let hurry = self.hurry.as_ref().and_then(|hurry| Some(("hurry.log", hurry.log.as_ref()?)));
        let missing = trace.into_iter().chain(hurry).filter(|(_, dir)| !dir.is_dir());
        missing.map(|(key, dir)| Unfit::NoDirectory { key, dir: dir.clone() })
    }

    /// Applies the configuration to a machine with this topology. `running` is the source of interference that is
    /// measured already; it stays the source even if the file now asks for another one.
    ///
    /// # Errors
    /// All reasons why the configuration does not fit the machine.
    pub fn apply_to_machine(
        &self,
        topology: &Topology,
        counters: CounterSupport,
        running: Option<&ActiveSource>,
    ) -> Result<MachineConfig, Vec<Unfit>> {
        let online = topology.online();
        let cores = self.cores(topology);
        let reserved = self.reserved(&cores, &online);
        let mut unfit = self.machine_mismatches(&online, &reserved);
        match running.map_or_else(|| self.metric.choose_source(counters), |told| Ok(told.clone())) {
            Ok(told) if unfit.is_empty() => {
                let interference_threshold = self.interference_threshold(&told);
                let notes = self.notes(&told, counters);
                Ok(MachineConfig { online, cores, reserved, source: told, interference_threshold, sizes: None, notes })
            }
            told => {
                unfit.extend(told.err());
                Err(unfit)
            }
        }
    }

    /// Returns the machine's cores. A core that the file names replaces all cores with which it shares CPUs.
    fn cores(&self, topology: &Topology) -> CoreTopology {
        CoreTopology::from_cores(self.lanes_of_cores(topology).iter().map(to_cpu_mask).filter(|core| !core.is_empty()))
    }

    fn lanes_of_cores(&self, topology: &Topology) -> Vec<CpuSet> {
        let is_declared = |core: &CpuSet| self.policy.siblings.iter().any(|own| !own.intersection(core).is_empty());
        topology.lanes_of_cores().filter(|core| !is_declared(core)).chain(self.policy.siblings.clone()).collect()
    }

    fn reserved(&self, cores: &CoreTopology, online: &CpuSet) -> CpuSet {
        match &self.policy.kind {
            Kind::Holmes(holmes) => match &holmes.reserved {
                Reserved::Cpus(cpus) => cpus.clone(),
                Reserved::Count(share) => {
                    to_cpu_set(&cores.spread(share.cpu_count(online.len()), &to_cpu_mask(online)))
                }
            },
            Kind::PerfIso { .. } | Kind::Unmanaged | Kind::Observe(_) => CpuSet::default(),
        }
    }

    fn interference_threshold(&self, source: &ActiveSource) -> f64 {
        let given = match &self.policy.kind {
            Kind::Holmes(holmes) => holmes.interference_threshold,
            Kind::PerfIso { .. } | Kind::Unmanaged | Kind::Observe(_) => None,
        };
        given.unwrap_or(match source {
            ActiveSource::Latency => LATENCY_THRESHOLD,
            ActiveSource::Counters(_) | ActiveSource::Replay(_) => HolmesConfig::default().threshold,
        })
    }

    /// Returns notes if the interference metric, or its threshold, differs from the Holmes paper although the file does
    /// not ask for it.
    fn notes(&self, source: &ActiveSource, counters: CounterSupport) -> Vec<AgentNote> {
        let Kind::Holmes(holmes) = &self.policy.kind else { return Vec::new() };
        let threshold = || HolmesConfig::default().threshold.to_string();
        let note = match (source, &self.metric.formula, counters.events) {
            (ActiveSource::Latency, ..) if self.metric.source == MetricSource::Auto => {
                Some(AgentNote::LatencyForCounters)
            }
            (ActiveSource::Counters(_), ..) if holmes.interference_threshold.is_some() => None,
            (ActiveSource::Counters(_), Some(formula), _) => {
                Some(AgentNote::ThresholdOfGivenEvents { threshold: threshold(), formula: formula.clone() })
            }
            (ActiveSource::Counters(_), None, Some(row)) if !row.exact => {
                Some(AgentNote::ThresholdOfNearestEvents { threshold: threshold(), processors: row.processors })
            }
            _ => None,
        };
        note.into_iter().collect()
    }

    fn machine_mismatches(&self, online: &CpuSet, reserved: &CpuSet) -> Vec<Unfit> {
        let siblings = self.policy.siblings.iter().fold(CpuSet::default(), |all, core| all.union(core));
        let services = self.services.iter().filter_map(|rule| rule.settings.cpus.clone());
        let services = services.fold(CpuSet::default(), |all, cpus| all.union(&cpus));
        let (big, little) = match self.hurry.as_ref().map(|hurry| &hurry.cores) {
            Some(BigCores::Given(big, little)) => (big.clone(), little.clone()),
            _ => Default::default(),
        };
        let named = [
            ("policy.reserved", reserved),
            ("policy.siblings", &siblings),
            ("service.cpus", &services),
            ("hurry.big", &big),
            ("hurry.little", &little),
        ];
        let missing = named.into_iter().map(|(key, cpus)| (key, cpus.difference(online)));
        let missing = missing.filter(|(_, missing)| !missing.is_empty());
        let mut unfit: Vec<Unfit> =
            missing.map(|(key, missing)| Unfit::NoSuchCpus { key, missing, online: online.clone() }).collect();
        if online.is_subset(reserved) {
            unfit.push(Unfit::NothingLeft { online: online.clone() });
        }
        unfit
    }
}

impl MachineConfig {
    /// Adds the big and little cores to the configuration, or the note on why the machine has none.
    fn with_core_sizes(mut self, sizes: Option<Result<CoreSizes, AgentNote>>) -> Self {
        match sizes.transpose() {
            Ok(sizes) => self.sizes = sizes,
            Err(note) => self.notes.push(note),
        }
        self
    }
}

impl Metric {
    /// Returns the source of interference on a machine with these counters.
    fn choose_source(&self, counters: CounterSupport) -> Result<ActiveSource, Unfit> {
        match (&self.source, self.countable_formula(counters)) {
            (MetricSource::Replay(file), _) => Ok(ActiveSource::Replay(file.clone())),
            (MetricSource::Latency, _) => Ok(ActiveSource::Latency),
            (_, Ok(Some(formula))) => Ok(ActiveSource::Counters(formula)),
            (MetricSource::Auto, Ok(None)) => Ok(ActiveSource::Latency),
            (_, Ok(None)) if counters.are_available => Err(Unfit::NoRow),
            (_, Ok(None)) => Err(Unfit::NoCounters),
            (_, Err(unfit)) => Err(unfit),
        }
    }

    /// Returns the formula whose events this machine can count. The kernel's own events can be counted on all machines.
    fn countable_formula(&self, counters: CounterSupport) -> Result<Option<Formula>, Unfit> {
        let Some(text) = &self.formula else {
            return Ok(counters.events.filter(|_| counters.are_available).map(ProcessorEvents::default_formula));
        };
        let of_row = |name: &str| counters.events.and_then(|row| row.find_event(name));
        let formula = Formula::parse_with(text, of_row).map_err(Unfit::Formula)?;
        if formula.needs_processor() && !counters.are_available { Err(Unfit::NoCounters) } else { Ok(Some(formula)) }
    }
}

#[cfg(test)]
mod tests {
    use sidelane_host::events::Vendor;
    use sidelane_host::topology::{CoreId, Cpu, CpuKind};

    use super::*;

    /// Makes a machine with CPUs 0 to 7, of which N and N + 4 share a core.
    fn machine_with_eight_cpus() -> Topology {
        let cpu = |id: u32| Cpu {
            id,
            online: true,
            core: CoreId(id % 4),
            package: 0,
            numa_node: 0,
            siblings: [id % 4, id % 4 + 4].into_iter().collect(),
            kind: CpuKind::Uniform,
        };
        Topology { cpus: (0..8).map(cpu).collect(), smt_switched_off: false }
    }

    const SKYLAKE: Processor = Processor { vendor: Vendor::Intel, family: 6, model: 0x55 };

    fn apply_policy_with(policy: &str, counters: CounterSupport) -> Result<MachineConfig, Vec<Unfit>> {
        let text = format!("kubernetes = true\n[policy]\n{policy}\n");
        Config::parse("a.toml", &text).expect(&text).apply_to_machine(&machine_with_eight_cpus(), counters, None)
    }

    fn apply_policy(policy: &str) -> Result<MachineConfig, Vec<Unfit>> {
        apply_policy_with(policy, CounterSupport::default())
    }

    fn apply_with_hardware_counters(policy: &str) -> Result<MachineConfig, Vec<Unfit>> {
        apply_policy_with(policy, CounterSupport { are_available: true, events: events_of_processor(&SKYLAKE) })
    }

    #[test]
    fn reserved_cpus_are_spread_over_cores_first() {
        let reserved = |policy: &str| apply_policy(policy).unwrap().reserved.to_string();
        assert_eq!(reserved(""), "0");
        assert_eq!(reserved("reserved = 3"), "0-2");
        assert_eq!(reserved("reserved = 6"), "0-5");
        assert_eq!(reserved("reserved = \"6-7\""), "6-7");
        assert_eq!(reserved("siblings = [\"0,1\"]\nreserved = 2"), "0,2");
        assert_eq!(reserved("siblings = [\"0,1\"]\nreserved = 5"), "0,2-5", "4 and 5 are alone now");
        assert_eq!(reserved("kind = \"perfiso\""), "");
    }

    #[test]
    fn siblings_of_the_file_replace_cores_of_the_machine() {
        let lanes = |policy: &str| {
            let service = "[[service]]\nname = \"a\"\nport = 80\nslo = \"p99=5ms\"";
            let text = format!("kubernetes = true\n{service}\n[policy]\n{policy}\n[hurry]\nsiblings = true");
            let config = Config::parse("a.toml", &text).expect(&text);
            config
                .hurry
                .as_ref()
                .unwrap()
                .find_core_sizes(config.lanes_of_cores(&machine_with_eight_cpus()))
                .unwrap()
                .to_string()
        };
        let big = "a lane is big while its siblings are idle";
        assert_eq!(lanes(""), format!("lanes of the cores {{0,4}} {{1,5}} {{2,6}} {{3,7}}; {big}"));
        assert_eq!(lanes("siblings = [\"0,1\"]"), format!("lanes of the cores {{2,6}} {{3,7}} {{0-1}}; {big}"));
    }

    #[test]
    fn all_settings_that_do_not_fit_the_machine_are_reported() {
        let unfit =
            apply_policy("reserved = \"0-9\"\nsiblings = [\"0,12\"]\n[metric]\nsource = \"counters\"").unwrap_err();
        assert_eq!(
            unfit.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "policy.reserved names CPUs 8-9, but this machine has CPUs 0-7; name some of these",
                "policy.siblings names CPUs 12, but this machine has CPUs 0-7; name some of these",
                "policy.reserved names all CPUs of this machine (0-7), so batch would have none; reserve fewer",
                "metric.source is \"counters\", but this machine has no hardware counters; write source = \"latency\"",
            ]
        );
    }

    #[test]
    fn default_threshold_is_that_of_the_metric() {
        assert_eq!(apply_policy("").unwrap().interference_threshold, LATENCY_THRESHOLD);
        assert_eq!(apply_policy("[metric]\nsource = \"replay\"\nreplay = \"a\"").unwrap().interference_threshold, 40.0);
        assert_eq!(apply_policy("interference_threshold = 7").unwrap().interference_threshold, 7.0);
        assert_eq!(apply_with_hardware_counters("").unwrap().interference_threshold, 40.0);
    }

    #[test]
    fn default_threshold_belongs_to_the_metric_in_use() {
        let none = CounterSupport::default();
        let of = |text: &str, running: &ActiveSource| {
            let config = Config::parse("a.toml", &format!("kubernetes = true\n{text}")).expect(text);
            let here = config.apply_to_machine(&machine_with_eight_cpus(), none, Some(running)).expect("the file fits");
            assert_eq!(here.source, *running);
            here.interference_threshold
        };
        let counters = ActiveSource::Counters(events_of_processor(&SKYLAKE).unwrap().default_formula());
        assert_eq!(of("", &counters), 40.0, "the counters have been taken by others since");
        assert_eq!(of("[metric]\nsource = \"counters\"", &ActiveSource::Latency), LATENCY_THRESHOLD);
        assert_eq!(of("[policy]\ninterference_threshold = 7", &ActiveSource::Latency), 7.0);
    }

    #[test]
    fn threshold_other_than_the_metrics_default_is_noted() {
        let zen = events_of_processor(&Processor { vendor: Vendor::Amd, family: 0x19, model: 0x21 })
            .expect("Zen 3 is in the table");
        let near = |policy: &str| {
            apply_policy_with(policy, CounterSupport { are_available: true, events: Some(zen) }).unwrap().notes
        };
        let note = AgentNote::ThresholdOfNearestEvents { threshold: "40".to_owned(), processors: "Zen 3" };
        assert_eq!(near(""), [note]);
        assert_eq!(near("interference_threshold = 7"), []);
        assert_eq!(near("kind = \"perfiso\""), []);
        assert_eq!(apply_with_hardware_counters("").unwrap().notes, [], "the paper's own events");
        let formula = "page-faults / context-switches".to_owned();
        let given = format!("[metric]\nformula = \"{formula}\"");
        assert_eq!(
            apply_with_hardware_counters(&given).unwrap().notes,
            [AgentNote::ThresholdOfGivenEvents { threshold: "40".to_owned(), formula }]
        );
        assert_eq!(apply_with_hardware_counters(&format!("interference_threshold = 7\n{given}")).unwrap().notes, []);
        assert_eq!(apply_policy("").unwrap().notes, [AgentNote::LatencyForCounters]);
        assert_eq!(apply_policy("[metric]\nsource = \"latency\"").unwrap().notes, [], "it was asked for");
    }

    #[test]
    fn metric_source_depends_on_counters_and_the_file() {
        let formula = events_of_processor(&SKYLAKE).unwrap().default_formula();
        assert_eq!(apply_with_hardware_counters("").unwrap().source, ActiveSource::Counters(formula));
        assert_eq!(
            apply_with_hardware_counters("[metric]\nsource = \"latency\"").unwrap().source,
            ActiveSource::Latency
        );
        assert_eq!(apply_policy("").unwrap().source, ActiveSource::Latency);
        let kernels = "[metric]\nformula = \"page-faults / context-switches\"";
        assert!(matches!(apply_policy(kernels).unwrap().source, ActiveSource::Counters(_)));
        let processors = "[metric]\nformula = \"r140014a3 / r81d0\"";
        assert!(matches!(apply_with_hardware_counters(processors).unwrap().source, ActiveSource::Counters(_)));
        assert_eq!(apply_policy(processors).unwrap_err(), [Unfit::NoCounters]);
        let unknown =
            apply_policy_with("[metric]\nsource = \"counters\"", CounterSupport { are_available: true, events: None });
        assert_eq!(unknown.unwrap_err(), [Unfit::NoRow]);
        let wrong = apply_with_hardware_counters("[metric]\nformula = \"STALLS / LOADS\"").unwrap_err();
        assert!(wrong[0].to_string().starts_with("metric.formula cannot be used here: `STALLS` is not an event"));
    }
}
