//! Threads that are bound to cores: Hurry-up, and the events that it does not know yet.

use sidelane_policy::Policy;
use sidelane_policy::cpus::CpuMask;
use sidelane_policy::hurryup::{
    BigLittleCores, Config, HurryActions, HurryEvent, HurryUp, Mapping, Request, Thread as Number,
};

use super::cpu::Thread;
use crate::machine::model::{MachineModel, WORKERS_MAX};
use crate::time::Nanos;

/// Hurry-up, with the threads that it binds to cores.
pub struct ThreadBinder {
    config: Config,
    policy: HurryUp,
    actions: Box<HurryActions>,
    /// Events since the last call of Hurry-up.
    told: Vec<HurryEvent>,
}

impl ThreadBinder {
    /// Returns Hurry-up with all threads; `None` if the setting does not bind threads.
    pub fn new(model: &MachineModel) -> Option<Box<Self>> {
        let config = model.setting.mapping?;
        let policy = HurryUp::new(config);
        let mut thread_binder = Box::new(Self { config, policy, actions: Box::default(), told: Vec::new() });
        thread_binder.record_event(HurryEvent::Cores(cores(model)));
        for (service, described) in model.services.iter().enumerate() {
            for worker in 0..described.workers {
                let thread = number(&Thread { service, worker, visit: 0 });
                thread_binder.record_event(HurryEvent::Joined { thread, allowed: described.cpus });
            }
        }
        Some(thread_binder)
    }

    /// Records an event for Hurry-up.
    pub fn record_event(&mut self, event: HurryEvent) {
        self.told.push(event);
    }

    /// Records for Hurry-up that a thread takes a request.
    pub fn record_request_begin(&mut self, thread: Thread, now: Nanos) {
        self.record_event(HurryEvent::Began { thread: number(&thread), request: thread.visit as Request, since: now });
    }

    /// Passes the recorded events to Hurry-up; without events, only the time. Returns the number of threads that it
    /// moves to other cores.
    pub fn run_policy(&mut self, now: Nanos) -> usize {
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

    /// Returns the time at which Hurry-up wants to be called again.
    pub fn next_call_at(&self) -> Option<Nanos> {
        self.policy.next_wakeup()
    }

    /// Returns whether Hurry-up allows a thread to run on a CPU.
    pub fn may_use(&self, thread: &Thread, cpu: usize) -> bool {
        self.policy.may_use(number(thread), cpu)
    }

    /// Returns the time on a little core after which a request counts as long; `None` if long requests do not move.
    pub fn move_threshold_ns(&self) -> Option<Nanos> {
        (self.config.mapping == Mapping::HurryUp).then(|| self.policy.threshold_ns())
    }
}

fn number(thread: &Thread) -> Number {
    (thread.service * WORKERS_MAX + thread.worker) as Number
}

/// Returns the big and little cores. Each core has one CPU, with the core's number.
fn cores(model: &MachineModel) -> BigLittleCores {
    let big: CpuMask = model.machine.big_cores().collect();
    let all: CpuMask = (0..model.machine.cores()).collect();
    BigLittleCores { big, little: all.without(&big) }
}
