//! The source of interference values: counters, latency, a recording, or none.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_policy::Nanos;
use sidelane_policy::cpus::{BatchShares, CoreTopology, CpuMask, Inconclusive, Inflation, MAX_CPUS};
use sidelane_tracker::interference::Interference;
use sidelane_tracker::tracker::Tracker;

use super::config::{ActiveSource, MachineConfig};
use super::counter_contention::CounterContention;
use super::observation::Span;
use super::tracked::Tracked;
use crate::replay::Replay;

/// Time after which a recorded value expires. Without a newer value the service was not active, as with counters.
const VALUE_LASTS_NS: Nanos = 10_000_000;

/// Source of interference values.
pub enum InterferenceSource {
    /// No source, because the policy does not use interference.
    None,
    /// Hardware counters that the kernel program reads.
    Counters(Box<OpenCounters>),
    /// Request times of the services.
    Latency(Box<LatencyRise>),
    /// Recording of interference values.
    Replay(Replayed),
}

impl InterferenceSource {
    /// Starts the source that the file asks for on this machine. The tracker must be loaded for this source.
    pub fn start(machine: &MachineConfig, is_needed: bool, tracker: &Tracker) -> Result<Self> {
        match &machine.source {
            _ if !is_needed => Ok(Self::None),
            ActiveSource::Latency => Ok(Self::Latency(Box::new(LatencyRise::new(machine.cores.clone())))),
            ActiveSource::Counters(formula) => {
                let opened = Interference::open(formula, &machine.online, tracker);
                let opened = opened.context(
                    "cannot count interference with hardware counters; write source = \
                                             \"latency\" in [metric]",
                )?;
                let counters = OpenCounters {
                    open: opened,
                    cpus: machine.online.clone(),
                    contention: CounterContention::default(),
                };
                Ok(Self::Counters(Box::new(counters)))
            }
            ActiveSource::Replay(file) => Ok(Self::Replay(Replayed::start(file)?)),
        }
    }

    /// Starts the source on a tracker that runs already, and was loaded for a policy that does not use interference.
    pub fn start_on_running_tracker(machine: &MachineConfig, tracker: &Tracker) -> Result<Self> {
        let purpose = tracker.purpose();
        let is_loaded = match &machine.source {
            ActiveSource::Latency => purpose.has_requests(),
            ActiveSource::Counters(_) => purpose.has_interference(),
            ActiveSource::Replay(_) => true,
        };
        ensure!(
            is_loaded,
            "cannot change to a policy that needs interference: the agent was started without measuring it; restart \
             the agent"
        );
        Self::start(machine, true, tracker)
    }

    /// Sets the CPUs `beside_batch`, whose cores have batch, to be watched closely. There, counters are read each
    /// `tick` while a service runs without a context switch, and a value that reaches `threshold` is reported at once.
    /// On all other CPUs, the peak value is read only at the next check.
    pub fn watch_closely(&self, all_cpus: &CpuSet, beside_batch: &CpuMask, tick: Duration, threshold: f64) {
        let Self::Counters(counters) = self else { return };
        for cpu in all_cpus {
            let is_beside = beside_batch.contains(cpu as usize);
            counters.open.set_tick(cpu, is_beside.then_some(tick));
            counters.open.set_threshold(cpu, is_beside.then_some(threshold));
        }
    }

    /// Opens counters on CPUs that have come online. Counters that were open on these CPUs before do not count any
    /// more.
    pub fn open_counters(&mut self, cpus: &CpuSet) -> Result<()> {
        let Self::Counters(counters) = self else { return Ok(()) };
        for cpu in cpus {
            let opened = counters.open.reopen_cpu(cpu);
            opened.with_context(|| format!("cannot count interference on CPU {cpu}, which came online"))?;
        }
        counters.cpus = counters.cpus.union(cpus);
        Ok(())
    }

    /// Sets the cores by which a rise in latency is measured.
    pub fn set_cores(&mut self, cores: &CoreTopology) {
        if let Self::Latency(rise) = self {
            rise.cores = cores.clone();
        }
    }

    /// Returns the name of the source as text.
    pub fn text(&self) -> String {
        match self {
            Self::None => "nothing: the policy does not need it".to_owned(),
            Self::Counters(counters) => format!("counters: {}", counters.open.formula()),
            Self::Latency(_) => {
                "latency: request times beside batch over those without batch, as this machine has no counters"
                    .to_owned()
            }
            Self::Replay(replayed) => format!("replay: the recording {}", replayed.file.display()),
        }
    }

    /// Returns when the next value is due; `None` if values are reported as events.
    pub fn due_ns(&self) -> Option<Nanos> {
        match self {
            Self::Replay(replayed) => Some(replayed.began_ns + replayed.replay.next_value_ns()?),
            _ => None,
        }
    }

    /// Takes in the values of the source that are due.
    pub fn take_due_values(&mut self, now_ns: Nanos) {
        if let Self::Replay(replayed) = self {
            replayed.take_due_values(now_ns);
        }
    }

    /// Returns the interference on a CPU; `None` if it is unknown.
    pub fn read(&self, cpu: u32) -> Option<f64> {
        match self {
            Self::None => None,
            Self::Counters(counters) => counters.open.current_value(cpu),
            Self::Latency(rise) => rise.values.get(cpu as usize).copied().flatten(),
            Self::Replay(replayed) => replayed.values.get(cpu as usize).copied().flatten().map(|(_, value)| value),
        }
    }

    /// Returns the highest interference on a CPU since the last call; `None` if there was none.
    pub fn peak(&self, cpu: u32) -> Option<f64> {
        match self {
            Self::Counters(counters) => counters.open.take_peak(cpu),
            _ => self.read(cpu),
        }
    }

    /// Returns a descriptor that becomes readable when a value has crossed the threshold beside batch.
    pub fn eventfd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Counters(counters) => Some(counters.open.event_fd()),
            _ => None,
        }
    }

    /// Returns whether an interference event came that was not answered.
    pub fn has_event(&self) -> bool {
        matches!(self, Self::Counters(counters) if counters.open.has_pending_crossing())
    }

    /// Answers the event. Returns when a value first reached its threshold since the last answer, if one did.
    pub fn acknowledge_event(&mut self) -> Option<Nanos> {
        let Self::Counters(counters) = self else { return None };
        let mut onset_ns = None;
        counters.open.report_crossings(|crossing| {
            if crossing.above {
                onset_ns = Some(onset_ns.map_or(crossing.at_ns, |other: Nanos| other.min(crossing.at_ns)));
            }
        });
        onset_ns
    }

    /// Returns a CPU on which other programs have the counters, and their share of time in percent, if a note is due.
    pub fn take_newly_shared_counters(&mut self, now_ns: Nanos) -> Option<(u32, u64)> {
        let Self::Counters(counters) = self else { return None };
        let OpenCounters { open, cpus, contention } = &mut **counters;
        contention.observe_counts(now_ns, cpus.iter().map(|cpu| (cpu, open.counts(cpu))))
    }

    /// Returns whether the source needs to see requests.
    pub fn needs_requests(&self) -> bool {
        matches!(self, Self::Latency(_))
    }
}

/// Counters that are open, with their contention by other programs.
pub struct OpenCounters {
    open: Interference,
    cpus: CpuSet,
    /// Share of time in which other programs have the counters.
    contention: CounterContention,
}

/// Recording that is replayed since the start of the agent.
pub struct Replayed {
    file: PathBuf,
    replay: Replay,
    began_ns: Nanos,
    /// Time and value of the last record, by CPU.
    values: Vec<Option<(Nanos, f64)>>,
}

impl Replayed {
    fn start(file: &Path) -> Result<Self> {
        let (replay, values) = (Replay::read(file)?, vec![None; MAX_CPUS]);
        Ok(Self { file: file.to_owned(), replay, began_ns: now_ns(), values })
    }

    fn take_due_values(&mut self, now_ns: Nanos) {
        let (values, began_ns) = (&mut self.values, self.began_ns);
        self.replay.advance(now_ns.saturating_sub(began_ns), |recorded| {
            values[recorded.cpu as usize] = Some((now_ns, recorded.value));
        });
        let is_old = |(at_ns, _): (Nanos, f64)| now_ns.saturating_sub(at_ns) > VALUE_LASTS_NS;
        values.iter_mut().filter(|value| value.is_some_and(is_old)).for_each(|value| *value = None);
    }
}

/// Rise in latency beside batch: of each service, and on each CPU on which a service ran.
pub struct LatencyRise {
    cores: CoreTopology,
    /// Rise in latency of each service, by the service's number.
    services: Vec<(u32, Inflation)>,
    values: Vec<Option<f64>>,
}

impl LatencyRise {
    /// Makes a source of values that has none yet.
    pub fn new(cores: CoreTopology) -> Self {
        Self { cores, services: Vec::new(), values: vec![None; MAX_CPUS] }
    }

    /// Takes in the request times of the services in the time span `span`.
    pub fn add_span(&mut self, span: &Span, tracked: &Tracked) {
        self.values.fill(None);
        self.services.retain(|(number, _)| {
            tracked.services.iter().any(|(_, served)| served.tracked.tracking.number().get() == *number)
        });
        for (_, served) in tracked.services.iter() {
            let (number, identity) = (served.tracked.tracking.number().get(), served.tracked.tracking.identity());
            let ran_on = span.cpus_used_by(identity);
            let ran_ns = |cpu: usize| span.shares_on(cpu).map_or(0, |shares| shares.cpu_time_ns(identity));
            let batch = |cpu: usize| span.shares_on(cpu).map_or(0.0, |shares| span.share_of_time(shares.batch_ns()));
            let batch = BatchShares::around_service(&self.cores, &ran_on, ran_ns, batch);
            let inflation = self.inflation_of(number);
            match ran_on.is_empty() {
                true => inflation.reset(),
                false => inflation.record_requests(served.figures.recent.server, batch),
            }
            let value = inflation.value();
            ran_on.iter().for_each(|cpu| self.values[cpu] = max_known(self.values[cpu], value));
        }
    }

    /// Returns why the rise in latency of a service is unknown, if it has been unknown for many requests.
    pub fn why_unknown(&self, service_number: u32) -> Option<Inconclusive> {
        self.services.iter().find(|(other, _)| *other == service_number)?.1.inconclusive_reason()
    }

    fn inflation_of(&mut self, number: u32) -> &mut Inflation {
        let known = self.services.iter().position(|(other, _)| *other == number);
        let at = known.unwrap_or_else(|| {
            self.services.push((number, Inflation::default()));
            self.services.len() - 1
        });
        &mut self.services[at].1
    }
}

/// Returns the higher of two values, each of which may be unknown.
fn max_known(first: Option<f64>, second: Option<f64>) -> Option<f64> {
    first.into_iter().chain(second).reduce(f64::max)
}
