//! What a decision of the policy leads to: acts, and words about them.

use anyhow::{Error, Result};
use sidelane_host::clock::now_ns;
use sidelane_policy::Nanos;
use sidelane_policy::cpus::{Action, Reason};
use sidelane_report::terminal::print;

use super::Agent;
use crate::agent::choice::goes_by_interference;
use crate::agent::log::{CpuLine, Seen, in_words, name_of, sentence};
use crate::agent::tracked::Given;
use crate::audit::AuditLog;
use crate::claim::ClaimError;
use crate::note::Note;

impl Agent {
    /// Does what the policy has just asked for, and writes it down. Returns whether any of it failed.
    pub(super) fn act(&mut self, now_ns: Nanos) -> Result<bool> {
        if self.actions.iter().next().is_none() {
            return Ok(false);
        }
        self.diary.why = self.policy.why();
        self.diary.seen = Seen::of(&self.seen, self.threshold());
        let mut any_failed = false;
        if let Some(hands) = &mut self.hands {
            let failed = hands.carry_out(self.actions.iter(), &|place| self.tracked.whose(place));
            any_failed = !failed.is_empty();
            failed.into_iter().for_each(|(action, error)| self.could_not(action, error));
        }
        self.note_reaction();
        for action in self.actions.iter().collect::<Vec<_>>() {
            self.keep(action);
            self.tell(action, now_ns)?;
        }
        self.log.iter().for_each(AuditLog::drain);
        Ok(any_failed)
    }

    /// A service whose threads somebody else moves is placed later.
    fn could_not(&mut self, action: Action, error: Error) {
        let name = name_of(action, &self.tracked);
        match (action, error.downcast_ref::<ClaimError>()) {
            (Action::Place { .. }, Some(why)) => {
                self.note(Note::NotPlaced { service: name.to_string(), why: why.to_string() })
            }
            _ => self.failed_with(&name, error.context(format!("cannot {}", sentence(action, &name)))),
        }
    }

    /// How long it took from the onset of interference until batch had been taken away.
    fn note_reaction(&mut self) {
        let is_about_it = self.diary.why == Reason::Interference;
        if let Some(onset_ns) = self.diary.onset_ns.filter(|_| is_about_it) {
            let took_ns = now_ns().saturating_sub(onset_ns);
            self.diary.reaction.record(took_ns);
            self.diary.reaction_sum_ns += took_ns;
        }
    }

    /// Interference from which on the policy acts, if it goes by that.
    pub(super) fn threshold(&self) -> Option<f64> {
        goes_by_interference(&self.config.policy).then_some(self.here.e)
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
                    (served.placed, served.has_moved) = (Some(cpus), true);
                }
            }
        }
    }

    fn tell(&mut self, action: Action, now_ns: Nanos) -> Result<()> {
        let (why, seen) = (self.diary.why, self.diary.seen);
        let name = name_of(action, &self.tracked);
        *self.diary.decisions.entry((in_words(action).1, why)).or_default() += 1;
        if self.hands.is_none() {
            print(&format!("would {}: {why}\n", sentence(action, &name)))?;
        }
        self.pen.record(now_ns, CpuLine { action, name, why, seen });
        Ok(())
    }
}
