//! CPUs on which batch never runs (Holmes, Table 2: "reserved CPUs").

use crate::Nanos;

use super::average::Average;
use super::mask::CpuMask;
use super::seen::MachineObservation;

/// Part of the permitted load of the reserved CPUs: if they would stay below it with one CPU fewer, that one is given
/// up. It is so far below 1 that the CPU is not needed again at once.
const ROOMY: f64 = 0.75;

/// The reserved CPUs, and their load.
#[derive(Clone, Debug)]
pub(crate) struct Reserve {
    /// Those of the configuration.
    base: CpuMask,
    /// Those that were added since.
    added: CpuMask,
    usage: Average,
    /// Time from which one CPU fewer would suffice.
    roomy_since: Option<Nanos>,
}

/// Load of the reserved CPUs over one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Usage {
    /// Above the permitted share.
    TooBusy,
    /// One CPU fewer would suffice, since this time.
    Roomy(Nanos),
    /// Neither.
    Right,
}

impl Reserve {
    pub(crate) fn new(base: CpuMask) -> Self {
        Self { base, added: CpuMask::EMPTY, usage: Average::default(), roomy_since: None }
    }

    /// Returns all reserved CPUs.
    pub(crate) fn cpus(&self) -> CpuMask {
        self.base.or(&self.added)
    }

    /// Returns the CPUs that were added.
    pub(crate) fn added(&self) -> CpuMask {
        self.added
    }

    /// Adds a CPU.
    pub(crate) fn add(&mut self, cpu: usize) {
        self.added.insert(cpu);
        self.start_again();
    }

    /// Gives up an added CPU.
    pub(crate) fn remove(&mut self, cpu: usize) {
        self.added.remove(cpu);
        self.start_again();
    }

    /// Gives up all added CPUs but these.
    pub(crate) fn keep(&mut self, cpus: &CpuMask) {
        self.added = self.added.and(cpus);
    }

    /// Forgets the load so far, which does not apply to the future.
    pub(crate) fn start_again(&mut self) {
        self.usage = Average::default();
        self.roomy_since = None;
    }

    /// Takes in the load of the CPUs for the last `for_ns`. Returns a result once a window of `window_ns`. `busy_most`
    /// is the permitted share.
    pub(crate) fn used(
        &mut self,
        now: Nanos,
        seen: &MachineObservation,
        for_ns: Nanos,
        window_ns: Nanos,
        busy_most: f64,
    ) -> Option<Usage> {
        let reserved = self.cpus();
        let usable = reserved.iter().filter(|cpu| seen.cpus[*cpu].online);
        let (count, busy) = usable.fold((0_u32, 0.0), |(count, busy), cpu| (count + 1, busy + seen.cpus[cpu].busy));
        // Without an online CPU the services cannot run at all.
        let share = if count == 0 { 1.0 } else { busy / f64::from(count) };
        let usage = self.usage.add(share, for_ns, window_ns)?;
        let is_roomy = count > 1 && usage * f64::from(count) <= ROOMY * busy_most * f64::from(count - 1);
        self.roomy_since = is_roomy.then(|| self.roomy_since.unwrap_or(now));
        Some(match self.roomy_since {
            _ if usage > busy_most => Usage::TooBusy,
            Some(since) => Usage::Roomy(since),
            None => Usage::Right,
        })
    }
}
