//! Threads that are bound to cores: Hurry-up, and what it is still to be told.

use sidelane_policy::Policy;
use sidelane_policy::cpus::CpuMask;
use sidelane_policy::hurryup::{
    BigLittleCores, Config, HurryActions, HurryEvent, HurryUp, Mapping, Request, Thread as Number,
};

use super::cpu::Thread;
use crate::machine::model::{MachineModel, WORKERS_MAX};
use crate::time::Nanos;

/// Who binds threads.
pub struct ThreadBinder {
    config: Config,
    policy: HurryUp,
    actions: Box<HurryActions>,
    /// What has happened since it looked.
    told: Vec<HurryEvent>,
}

impl ThreadBinder {
    /// Where the setting binds threads.
    pub fn new(model: &MachineModel) -> Option<Box<Self>> {
        let config = model.setting.mapping?;
        let policy = HurryUp::new(config);
        let mut bound = Box::new(Self { config, policy, actions: Box::default(), told: Vec::new() });
        bound.tell(HurryEvent::Cores(cores(model)));
        for (service, described) in model.services.iter().enumerate() {
            for worker in 0..described.workers {
                let thread = number(&Thread { service, worker, visit: 0 });
                bound.tell(HurryEvent::Joined { thread, allowed: described.cpus });
            }
        }
        Some(bound)
    }

    /// Something happened.
    pub fn tell(&mut self, seen: HurryEvent) {
        self.told.push(seen);
    }

    /// A thread takes a request.
    pub fn begin(&mut self, thread: Thread, now: Nanos) {
        self.tell(HurryEvent::Began { thread: number(&thread), request: thread.visit as Request, since: now });
    }

    /// Tells the policy what has happened, or that time has passed. Returns how many threads it sends elsewhere.
    pub fn look(&mut self, now: Nanos) -> usize {
        if self.told.is_empty() {
            self.told.push(HurryEvent::Nothing);
        }
        self.actions.clear();
        let mut count = 0;
        for seen in self.told.drain(..) {
            self.policy.observe(now, &seen, &mut self.actions);
            count += self.actions.iter().count();
            self.actions.clear();
        }
        count
    }

    /// When it wants to look again.
    pub fn next_look(&self) -> Option<Nanos> {
        self.policy.next_wakeup()
    }

    /// Whether a thread may run on a CPU.
    pub fn may_use(&self, thread: &Thread, cpu: usize) -> bool {
        self.policy.may_use(number(thread), cpu)
    }

    /// The time on a little core after which a request is long, where long ones move.
    pub fn threshold_ns(&self) -> Option<Nanos> {
        (self.config.mapping == Mapping::HurryUp).then(|| self.policy.threshold_ns())
    }
}

fn number(thread: &Thread) -> Number {
    (thread.service * WORKERS_MAX + thread.worker) as Number
}

/// Each core has one CPU, with its number.
fn cores(model: &MachineModel) -> BigLittleCores {
    let big: CpuMask = model.machine.big_cores().collect();
    let all: CpuMask = (0..model.machine.cores()).collect();
    BigLittleCores { big, little: all.without(&big) }
}
