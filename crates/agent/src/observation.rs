//! Computes the observation, the input of a policy of CPUs, from the CPU times that the kernel program sums up.

use sidelane_host::cpulist::CpuSet;
use sidelane_policy::Nanos;
use sidelane_policy::cpus::{
    ContainerObservation, CpuMask, CpuObservation, MAX_CPUS, MachineObservation, ServiceObservation,
};
use sidelane_tracker::identities::Identity;
use sidelane_tracker::shares::Shares;
use sidelane_tracker::tracker::LaneMemory;

use super::tracked::Tracked;

/// CPU times on each CPU in the time between two samples.
#[derive(Debug, Default)]
pub struct Span {
    /// Length of the time between the two samples.
    pub length_ns: Nanos,
    cpus: Vec<Option<Shares>>,
}

impl Span {
    /// Returns the CPU times of the CPU in this span; `None` if they are unknown.
    pub fn shares_on(&self, cpu: usize) -> Option<&Shares> {
        self.cpus.get(cpu)?.as_ref()
    }

    /// Takes in the sample of a CPU. A CPU that could not be read keeps its old values, and its next sample covers the
    /// time since its last readable one.
    fn update_cpu(&mut self, cpu: usize, sample: Option<Shares>, before: &mut Option<Shares>) {
        let Some(now) = sample else { return };
        if let Some(before) = before.replace(now) {
            self.cpus[cpu] = Some(now.since(&before));
        }
    }

    /// Returns a part of the span as a share, 0 to 1.
    pub fn share_of_time(&self, part_ns: Nanos) -> f64 {
        if self.length_ns == 0 { 0.0 } else { (part_ns as f64 / self.length_ns as f64).min(1.0) }
    }

    /// Returns the CPU time of tasks with this identity, on all CPUs.
    pub fn cpu_time_ns(&self, identity: Identity) -> Nanos {
        self.cpus.iter().flatten().map(|shares| shares.cpu_time_ns(identity)).sum()
    }

    /// Returns the CPU time of all batch, on all CPUs.
    pub fn batch_cpu_time_ns(&self) -> Nanos {
        self.cpus.iter().flatten().map(Shares::batch_ns).sum()
    }

    /// Returns the CPUs on which a task with this identity ran.
    pub fn cpus_used_by(&self, identity: Identity) -> CpuMask {
        let ran = |cpu: &usize| self.shares_on(*cpu).is_some_and(|shares| shares.cpu_time_ns(identity) > 0);
        (0..self.cpus.len().min(MAX_CPUS)).filter(ran).collect()
    }
}

/// Sampler of the CPU times on all CPUs.
#[derive(Debug, Default)]
pub struct Sampler {
    looked_ns: Nanos,
    before: Vec<Option<Shares>>,
    span: Span,
}

impl Sampler {
    /// Takes a sample of all CPUs, and returns the span since the last sample.
    pub fn sample(&mut self, memory: &LaneMemory, now_ns: Nanos) -> &Span {
        let count = memory.cpu_count();
        self.before.resize(count, None);
        self.span.cpus.resize(count, None);
        self.span.length_ns = now_ns.saturating_sub(self.looked_ns);
        for cpu in 0..count {
            let now = memory.shares(cpu as u32).read(now_ns);
            self.span.update_cpu(cpu, now, &mut self.before[cpu]);
        }
        self.looked_ns = now_ns;
        &self.span
    }

    /// Returns the CPU times of the CPU since the kernel program began to count; `None` if they are unknown.
    pub fn total_shares(&self, cpu: usize) -> Option<&Shares> {
        self.before.get(cpu)?.as_ref()
    }

    /// Returns the span that ends with the last sample.
    pub fn span(&self) -> &Span {
        &self.span
    }
}

/// Fills the observation, the input of a policy. `usable` are CPUs that are online and claimed by the agent, except
/// lanes from which batch is evicted. `closed_cpus` are all CPUs of these lanes' cores.
pub fn fill_observation(
    observation: &mut MachineObservation,
    span: &Span,
    tracked: &Tracked,
    usable: &CpuSet,
    closed_cpus: &CpuMask,
    interference: impl Fn(u32) -> Option<f64>,
) {
    // CPUs with numbers that this machine cannot have are left out.
    observation.cpus.iter_mut().take(span.cpus.len()).enumerate().for_each(|(cpu, out)| {
        let online = usable.contains(cpu as u32);
        *out = if online { observe_cpu(span, cpu, interference(cpu as u32)) } else { CpuObservation::default() };
    });
    observation.services.iter_mut().enumerate().for_each(|(place, out)| {
        *out = tracked.services.get(place).map(|served| ServiceObservation {
            allowed: served.allowed,
            ran_on: span.cpus_used_by(served.tracked.tracking.identity()),
            may_be_placed: served.found.settings.may_be_placed,
        });
    });
    observation.containers.iter_mut().enumerate().for_each(|(place, out)| {
        *out = tracked.containers.get(place).filter(|contained| !contained.allowed.is_empty()).map(|contained| {
            let (wanted, priority) = (contained.container.cpu_demand.cpus, contained.container.priority);
            // A container with lanes is never left on the CPUs that it was found with.
            let as_found = contained.allowed.and(closed_cpus).is_empty() && contained.container.lanes.is_none();
            let (allowed, can_pause) = (contained.allowed.without(closed_cpus), contained.can_pause);
            ContainerObservation { allowed, as_found, can_pause, wanted, priority }
        });
    });
}

fn observe_cpu(span: &Span, cpu: usize, interference: Option<f64>) -> CpuObservation {
    let Some(shares) = span.shares_on(cpu) else {
        return CpuObservation { online: true, interference, ..CpuObservation::default() };
    };
    // Shares refer to the time that was counted on this CPU, because its last sample may be older than those of other
    // CPUs.
    let share = |part_ns: Nanos| part_ns as f64 / shares.all_ns().max(1) as f64;
    let busy_ns = shares.all_ns().saturating_sub(shares.idle_ns);
    CpuObservation { online: true, busy: share(busy_ns), serving: share(shares.services_ns()), interference }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares_with_idle_time(idle_ns: Nanos) -> Shares {
        let of = |mut shares: Shares| {
            shares.idle_ns = idle_ns;
            shares
        };
        of(Shares::default())
    }

    #[test]
    fn unreadable_cpu_keeps_its_values_and_loses_no_time() {
        let mut span = Span { length_ns: 100, cpus: vec![None] };
        let mut before = None;
        span.update_cpu(0, Some(shares_with_idle_time(1_000)), &mut before);
        assert_eq!(span.shares_on(0), None, "the first look only begins");
        span.update_cpu(0, Some(shares_with_idle_time(1_100)), &mut before);
        assert_eq!(span.shares_on(0), Some(&shares_with_idle_time(100)));
        span.update_cpu(0, None, &mut before);
        assert_eq!(span.shares_on(0), Some(&shares_with_idle_time(100)));
        span.update_cpu(0, Some(shares_with_idle_time(1_300)), &mut before);
        assert_eq!(span.shares_on(0), Some(&shares_with_idle_time(200)));
        assert_eq!(observe_cpu(&span, 0, None).busy, 0.0);
    }
}
