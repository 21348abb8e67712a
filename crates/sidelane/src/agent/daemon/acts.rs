//! What a decision of the policy leads to: acts, and words about them.

use anyhow::{Context, Result};
use sidelane_policy::Nanos;
use sidelane_policy::cpus::Action;

use super::Agent;
use crate::agent::log::{CpuLine, Seen, in_words, name_of, sentence};
use crate::agent::tracked::Given;

impl Agent {
    /// Does what the policy has just asked for, and writes it down. Returns whether any of it failed.
    pub(super) fn act(&mut self, now_ns: Nanos) -> Result<bool> {
        if self.actions.iter().next().is_none() {
            return Ok(false);
        }
        self.told.why = self.chosen.policy.why();
        self.told.seen = Seen::of(&self.seen, self.chosen.threshold);
        let mut any_failed = false;
        if let Some(hands) = &mut self.hands {
            let failed = hands.carry_out(self.actions.iter(), &|place| self.tracked.whose(place));
            any_failed = !failed.is_empty();
            for (action, error) in failed {
                let name = name_of(action, &self.tracked);
                self.note(format!("cannot {}: {error:#}", sentence(action, &name)));
            }
        }
        for action in self.actions.iter().collect::<Vec<_>>() {
            self.keep(action);
            self.tell(action, now_ns);
        }
        self.log.as_mut().map_or(Ok(()), |log| log.drain()).context("cannot write the audit log")?;
        Ok(any_failed)
    }

    /// Remembers what was decided.
    fn keep(&mut self, action: Action) {
        let contained = |agent: &mut Self, place, given| {
            if let Some(contained) = agent.tracked.containers.get_mut(place) {
                contained.given = given;
            }
        };
        match action {
            Action::Confine { container, cpus } => contained(self, container, Given::Cpus(cpus)),
            Action::Pause { container } => contained(self, container, Given::Paused),
            Action::Place { service, cpus } => {
                if let Some(served) = self.tracked.services.get_mut(service) {
                    served.placed = Some(cpus);
                }
            }
        }
    }

    fn tell(&mut self, action: Action, now_ns: Nanos) {
        let (why, seen) = (self.told.why, self.told.seen);
        let name = name_of(action, &self.tracked);
        *self.told.decisions.entry((in_words(action).1, why)).or_default() += 1;
        if self.hands.is_none() {
            println!("would {}: {why}", sentence(action, &name));
        }
        self.pen.record(now_ns, CpuLine { action, name, why, seen });
    }
}
