//! `--pin-service`: a service that is confined to its request lanes for the time of a session.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use sidelane_host::cpulist::CpuSet;
use sidelane_rollback::guardian::Guardian;
use sidelane_rollback::threads::{Threads, Whose};

/// The threads of a service on its request lanes, and how each gets back what it had. Whoever is born to them is there,
/// too, and gets what they had.
pub(super) struct Pinned {
    threads: Threads,
    whose: Whose,
    cpus: CpuSet,
}

impl Pinned {
    /// Confines the service. The guardian knows of it before.
    pub(super) fn begin(whose: Whose, cpus: CpuSet, guardian: &mut Guardian) -> Result<Self> {
        let mut threads = Threads::note(&whose, guardian)?;
        let confined = threads.confine(|| whose.clone(), &cpus, guardian);
        confined.with_context(|| format!("cannot confine the service to CPUs {cpus}"))?;
        Ok(Self { threads, whose, cpus })
    }

    /// Whether any of these processes was the service's at the last look.
    pub(super) fn shares(&self, pids: &BTreeSet<u32>) -> bool {
        self.whose.pids.iter().any(|pid| pids.contains(pid))
    }

    /// The service consists of these processes now, which were born to confined ones.
    pub(super) fn follow(&mut self, pids: &BTreeSet<u32>, guardian: &mut Guardian) -> Result<()> {
        if pids.iter().eq(&self.whose.pids) {
            return Ok(());
        }
        self.whose.pids = pids.iter().copied().collect();
        self.threads.follow(&self.whose, guardian)
    }

    /// Confines threads that their owner has moved since. At the end they get back what they were given last.
    pub(super) fn confine_again(&mut self, guardian: &mut Guardian) -> Result<()> {
        let kept = self.threads.keep(|| self.whose.clone(), guardian).map(drop);
        kept.with_context(|| format!("cannot confine the service to CPUs {}", self.cpus))
    }
}
