//! CPU time of the idle task, of each service and of each batch job on each CPU, as the kernel program adds it up.

use std::sync::atomic::{Ordering, fence};

use sidelane_formats::LaneClass;

use crate::identities::{Identity, NUMBERS};
use crate::kernel_types::CpuShares;

/// Number of entries: one for each service and each batch job.
const PLACES: usize = 2 * NUMBERS;
/// Limit of the attempts to read a CPU's shares. A context switch writes for some 10 ns, and a read takes longer. So
/// two collisions with a switch in a row are rare.
const LOOKS_MAX: usize = 8;

/// CPU times on one CPU at one moment, with the turn that still lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Time in which the CPU was idle.
    pub idle_ns: u64,
    ran_ns: [u64; PLACES],
}

impl Default for Shares {
    fn default() -> Self {
        Self { idle_ns: 0, ran_ns: [0; PLACES] }
    }
}

impl CpuShares {
    /// Reads the CPU times up to `now_ns`; `None` before the CPU's first context switch.
    pub fn read(&self, now_ns: u64) -> Option<Shares> {
        (0..LOOKS_MAX).find_map(|_| self.try_read(now_ns))
    }

    fn try_read(&self, now_ns: u64) -> Option<Shares> {
        let since_ns = self.since_ns.load(Ordering::Acquire);
        let (class, place) = (self.class.load(Ordering::Relaxed), self.identity.load(Ordering::Relaxed) as usize);
        let mut seen = Shares {
            idle_ns: self.idle_ns.load(Ordering::Relaxed),
            ran_ns: self.ran_ns.each_ref().map(|ran_ns| ran_ns.load(Ordering::Relaxed)),
        };
        fence(Ordering::Acquire);
        if since_ns == 0 || self.since_ns.load(Ordering::Relaxed) != since_ns {
            return None;
        }
        let turn_ns = now_ns.saturating_sub(since_ns);
        match class {
            class if class == LaneClass::Idle as u32 => seen.idle_ns += turn_ns,
            _ => seen.ran_ns[place % PLACES] += turn_ns,
        }
        Some(seen)
    }
}

impl Shares {
    /// Returns the CPU times since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut ran_ns = self.ran_ns;
        ran_ns.iter_mut().zip(earlier.ran_ns).for_each(|(now, then)| *now = now.saturating_sub(then));
        Self { idle_ns: self.idle_ns.saturating_sub(earlier.idle_ns), ran_ns }
    }

    /// Returns the CPU time of processes with this identity.
    pub fn cpu_time_ns(&self, identity: Identity) -> u64 {
        self.ran_ns[entry_index(identity)]
    }

    /// Returns the CPU time of all services.
    pub fn services_ns(&self) -> u64 {
        // Services have the even entries; entry 0 is of untracked processes.
        self.ran_ns.iter().skip(2).step_by(2).sum()
    }

    /// Returns the CPU time of all batch jobs.
    pub fn batch_ns(&self) -> u64 {
        self.ran_ns.iter().skip(1).step_by(2).sum()
    }

    /// Returns all time that was counted, idle time included.
    pub fn all_ns(&self) -> u64 {
        self.idle_ns + self.ran_ns.iter().sum::<u64>()
    }
}

fn entry_index(identity: Identity) -> usize {
    match identity {
        Identity::Service(number) => number.get() as usize * 2,
        Identity::Batch(number) => number.get() as usize * 2 + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identities::Number;
    use crate::kernel_types::zeroed;

    fn two_numbers() -> [Number; 2] {
        [1, 2].map(|number| Number::all().nth(number - 1).unwrap())
    }

    #[test]
    fn running_turn_counts_for_its_identity() {
        let [one, other] = two_numbers();
        let shares = zeroed::<CpuShares>();
        assert_eq!(shares.read(50), None);
        shares.ran_ns[entry_index(Identity::Service(one))].store(7, Ordering::Relaxed);
        shares.idle_ns.store(100, Ordering::Relaxed);
        shares.class.store(LaneClass::Batch as u32, Ordering::Relaxed);
        shares.identity.store(entry_index(Identity::Batch(other)) as u32, Ordering::Relaxed);
        shares.since_ns.store(1_000, Ordering::Relaxed);
        let before = shares.read(1_000).unwrap();
        let after = shares.read(1_030).unwrap();
        assert_eq!((before.services_ns(), before.batch_ns(), before.all_ns()), (7, 0, 107));
        assert_eq!((after.cpu_time_ns(Identity::Batch(other)), after.cpu_time_ns(Identity::Batch(one))), (30, 0));
        let since = after.since(&before);
        assert_eq!((since.services_ns(), since.batch_ns(), since.idle_ns), (0, 30, 0));
        shares.class.store(LaneClass::Idle as u32, Ordering::Relaxed);
        assert_eq!(shares.read(1_030).unwrap().idle_ns, 130);
    }
}
