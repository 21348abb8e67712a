//! CPUs on which batch never runs (Holmes, Table 2: "reserved CPUs").

use crate::Nanos;

use super::average::Average;
use super::mask::CpuMask;
use super::observation::MachineObservation;

/// Part of the permitted load of the reserved CPUs. If they would stay below it with one CPU fewer, one CPU is given
/// up. It is far enough below 1 that the CPU is not needed again at once.
const ROOMY: f64 = 0.75;

/// Reserved CPUs, and their load.
#[derive(Clone, Debug)]
pub(crate) struct Reserve {
    /// Reserved CPUs of the configuration.
    base: CpuMask,
    /// Reserved CPUs that were added because of load.
    added: CpuMask,
    usage: Average,
    /// Time since which one CPU fewer would suffice.
    roomy_since: Option<Nanos>,
}

/// Load of the reserved CPUs over one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Usage {
    /// The load is above the permitted share.
    TooBusy,
    /// One CPU fewer would have sufficed since this time.
    OneCpuTooMany(Nanos),
    /// The number of reserved CPUs fits the load.
    Adequate,
}

impl Reserve {
    pub(crate) fn new(base: CpuMask) -> Self {
        Self { base, added: CpuMask::EMPTY, usage: Average::default(), roomy_since: None }
    }

    /// Returns all reserved CPUs.
    pub(crate) fn cpus(&self) -> CpuMask {
        self.base.or(&self.added)
    }

    /// Returns the reserved CPUs that were added because of load.
    pub(crate) fn added_cpus(&self) -> CpuMask {
        self.added
    }

    /// Reserves one more CPU.
    pub(crate) fn add(&mut self, cpu: usize) {
        self.added.insert(cpu);
        self.reset_load();
    }

    /// Gives up a CPU that was added because of load.
    pub(crate) fn remove(&mut self, cpu: usize) {
        self.added.remove(cpu);
        self.reset_load();
    }

    /// Gives up all added CPUs except `cpus`.
    pub(crate) fn retain_added(&mut self, cpus: &CpuMask) {
        self.added = self.added.and(cpus);
    }

    /// Resets the measured load, which does not apply to the future.
    pub(crate) fn reset_load(&mut self) {
        self.usage = Average::default();
        self.roomy_since = None;
    }

    /// Adds the load of the CPUs during the last `elapsed_ns`. Returns a result once in a window of `window_ns`.
    /// `busy_most` is the permitted share of busy time.
    pub(crate) fn record_load(
        &mut self,
        now: Nanos,
        seen: &MachineObservation,
        elapsed_ns: Nanos,
        window_ns: Nanos,
        busy_most: f64,
    ) -> Option<Usage> {
        let reserved = self.cpus();
        let usable = reserved.iter().filter(|cpu| seen.cpus[*cpu].online);
        let (count, busy) = usable.fold((0_u32, 0.0), |(count, busy), cpu| (count + 1, busy + seen.cpus[cpu].busy));
        // Without an online CPU the services cannot run at all, so the load is full.
        let share = if count == 0 { 1.0 } else { busy / f64::from(count) };
        let usage = self.usage.add(share, elapsed_ns, window_ns)?;
        let is_roomy = count > 1 && usage * f64::from(count) <= ROOMY * busy_most * f64::from(count - 1);
        self.roomy_since = is_roomy.then(|| self.roomy_since.unwrap_or(now));
        Some(match self.roomy_since {
            _ if usage > busy_most => Usage::TooBusy,
            Some(since) => Usage::OneCpuTooMany(since),
            None => Usage::Adequate,
        })
    }
}
