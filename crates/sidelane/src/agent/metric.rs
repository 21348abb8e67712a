//! How interference is told: by harm, from what was recorded, or not at all.

use anyhow::{Result, bail};
use sidelane_host::cpulist::CpuSet;
use sidelane_policy::cpus::{Cores, CpuMask, Inflation, MAX_CPUS};

use super::config::{Config, Kind, MetricSource};
use super::masks::mask_of;
use super::seen::Span;
use super::tracked::Tracked;

/// E where interference is harm: a service that takes a fifth longer is disturbed.
const HARM_E: f64 = 0.2;

/// From what interference is told.
pub enum Metric {
    /// It is not.
    None,
    /// From the services' own request times.
    Harm(Harm),
}

impl Metric {
    /// What the file asks for, as far as the machine has it.
    pub fn choose(config: &Config, cores: &[CpuSet]) -> Result<Self> {
        let harm = || Self::Harm(Harm::new(Cores::of(cores.iter().map(mask_of))));
        let is_needed = matches!(config.policy.kind, Kind::Holmes(_));
        match &config.metric.source {
            MetricSource::Auto if !is_needed => Ok(Self::None),
            MetricSource::Auto | MetricSource::Harm => Ok(harm()),
            MetricSource::Counters => bail!("there are no counters here: use [metric] source = \"harm\""),
            MetricSource::Replay(_) => bail!("nothing can be replayed yet"),
        }
    }

    /// In words, for every output.
    pub fn words(&self) -> &'static str {
        match self {
            Self::None => "nothing: the policy does not go by it",
            Self::Harm(_) => "harm: request times beside batch against those alone, since there are no counters",
        }
    }

    /// E where the file says none.
    pub fn default_e(&self) -> f64 {
        match self {
            Self::None => f64::INFINITY,
            Self::Harm(_) => HARM_E,
        }
    }

    /// Interference on a CPU; `None` where nothing is known.
    pub fn read(&self, cpu: u32) -> Option<f64> {
        match self {
            Self::None => None,
            Self::Harm(harm) => harm.values.get(cpu as usize).copied().flatten(),
        }
    }

    /// Whether requests have to be known for it.
    pub fn needs_requests(&self) -> bool {
        matches!(self, Self::Harm(_))
    }
}

/// Harm to each service, and on each CPU that a service ran on.
pub struct Harm {
    cores: Cores,
    /// By place.
    services: Vec<(u32, Inflation)>,
    values: Vec<Option<f64>>,
}

impl Harm {
    /// Nothing is known yet.
    pub fn new(cores: Cores) -> Self {
        Self { cores, services: Vec::new(), values: vec![None; MAX_CPUS] }
    }

    /// Takes in what the services' requests took in the span.
    pub fn note(&mut self, span: &Span, tracked: &Tracked) {
        self.values.fill(None);
        self.services
            .retain(|(number, _)| tracked.services.iter().any(|(_, served)| served.tracking.number().get() == *number));
        for (_, served) in tracked.services.iter() {
            let (number, ran_on) = (served.tracking.number().get(), span.ran_on(served.tracking.identity()));
            let share = batch_share(span, &self.siblings(&ran_on));
            let inflation = self.of(number);
            inflation.note(served.measured.recent().server, share);
            let value = inflation.value();
            ran_on.iter().for_each(|cpu| self.values[cpu] = most(self.values[cpu], value));
        }
    }

    fn of(&mut self, number: u32) -> &mut Inflation {
        let known = self.services.iter().position(|(other, _)| *other == number);
        let at = known.unwrap_or_else(|| {
            self.services.push((number, Inflation::default()));
            self.services.len() - 1
        });
        &mut self.services[at].1
    }

    /// The other CPUs of the cores.
    fn siblings(&self, cpus: &CpuMask) -> CpuMask {
        self.cores.whole(cpus).without(cpus)
    }
}

/// The higher of two values that may not be known.
fn most(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(f64::max)
}

/// The share of these CPUs' time that batch had.
fn batch_share(span: &Span, cpus: &CpuMask) -> f64 {
    let batch_ns: u64 = cpus.iter().filter_map(|cpu| span.of(cpu)).map(|shares| shares.batch_ns()).sum();
    if cpus.is_empty() { 0.0 } else { span.share(batch_ns / cpus.len() as u64) }
}
