//! Injected faults: some at random, some periodically.

use crate::model::Fault;
use crate::rng::Rng;
use crate::time::{NEVER, Nanos};

/// A periodic fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeriodicFault {
    Churn { gone_ns: Nanos },
    Crash { gone_ns: Nanos },
}

/// Generator of all faults of a run.
#[derive(Clone, Debug)]
pub struct Faults {
    rng: Rng,
    late: Vec<(f64, Nanos)>,
    lost: f64,
    glitch: f64,
    /// Next time, period and kind of each periodic fault.
    timed: Vec<(Nanos, Nanos, PeriodicFault)>,
}

impl Faults {
    pub fn new(faults: &[Fault], rng: Rng) -> Self {
        let mut all = Self { rng, late: Vec::new(), lost: 0.0, glitch: 0.0, timed: Vec::new() };
        for fault in faults {
            match *fault {
                Fault::LateWakeUp { probability, delay_ns } => all.late.push((probability, delay_ns)),
                Fault::LostSummons { probability } => all.lost = probability,
                Fault::CounterGlitch { probability } => all.glitch = probability,
                Fault::Churn { every_ns, gone_ns } => {
                    all.timed.push((every_ns, every_ns, PeriodicFault::Churn { gone_ns }));
                }
                Fault::AgentCrash { every_ns, gone_ns } => {
                    all.timed.push((every_ns, every_ns, PeriodicFault::Crash { gone_ns }));
                }
            }
        }
        all
    }

    /// Draws the delay of a keeper's wakeup; 0 without a fault.
    #[inline]
    pub fn draw_wakeup_delay_ns(&mut self) -> Nanos {
        if self.late.is_empty() {
            return 0;
        }
        self.late.iter().map(|(probability, ns)| if self.rng.happens(*probability) { *ns } else { 0 }).sum()
    }

    #[inline]
    pub fn draw_lost_summons(&mut self) -> bool {
        self.lost > 0.0 && self.rng.happens(self.lost)
    }

    #[inline]
    pub fn draw_counter_glitch(&mut self) -> bool {
        self.glitch > 0.0 && self.rng.happens(self.glitch)
    }

    /// Returns the time of the next periodic fault.
    pub fn next_fault_at(&self) -> Nanos {
        self.timed.iter().map(|(at, ..)| *at).min().unwrap_or(NEVER)
    }

    /// Returns a periodic fault that is due at `now`. The caller repeats the call until it returns `None`.
    pub fn take_due_periodic_fault(&mut self, now: Nanos) -> Option<PeriodicFault> {
        let (at, every_ns, incident) = self.timed.iter_mut().find(|(at, ..)| *at <= now)?;
        *at += *every_ns;
        Some(*incident)
    }
}
