//! Carries out a decision of the policy, and logs it.

use anyhow::{Error, Result};
use sidelane_host::clock::now_ns;
use sidelane_policy::Nanos;
use sidelane_policy::cpus::{CpuAction, CpuReason};
use sidelane_report::terminal::print;

use super::Agent;
use crate::choice::uses_interference;
use crate::log::{CpuLine, LoggedObservation, describe_action, sentence, target_name};
use crate::note::AgentNote;
use crate::tracked::ContainerAssignment;
use sidelane_diagnostics::audit::AuditLog;
use sidelane_diagnostics::note::Note;
use sidelane_rollback::claim::ClaimError;
use sidelane_rollback::cpu_mask::to_cpu_mask;

impl Agent {
    /// Carries out the policy's last actions, and logs them. Returns whether any action failed.
    pub(super) fn apply_decision(&mut self, now_ns: Nanos) -> Result<bool> {
        if self.actions.iter().next().is_none() {
            return Ok(false);
        }
        self.stats.why = self.policy.why();
        self.stats.seen = LoggedObservation::from_observation(&self.seen, self.interference_threshold());
        let (mut any_failed, mut not_so) = (false, Vec::new());
        if let Some(actuator) = &mut self.actuator {
            let outcome = actuator.carry_out(self.actions.iter(), &|place| self.tracked.thread_owner(place));
            any_failed = !outcome.errors.is_empty() || !outcome.ineffective.is_empty();
            not_so = outcome.ineffective;
            outcome.errors.into_iter().for_each(|(action, error)| self.note_failed_action(action, error));
        }
        let is_about_it = self.stats.why == CpuReason::Interference && !any_failed;
        if let Some(onset_ns) = self.stats.onset_ns.filter(|_| is_about_it) {
            self.stats.reacting_since_ns.get_or_insert(onset_ns);
        }
        let is_so = |action: &CpuAction| matches!(action, CpuAction::Place { .. }) || !not_so.contains(action);
        for action in self.actions.iter().filter(is_so).collect::<Vec<_>>() {
            self.record_assignment(action);
            self.log_action(action, now_ns)?;
        }
        self.log.iter().for_each(AuditLog::request_write);
        if !not_so.is_empty() {
            not_so.iter().for_each(|action| self.record_current_cpus(*action));
            self.update_allowed_cpus();
            self.report_pausable();
        }
        Ok(any_failed)
    }

    /// Records that a container keeps its present CPUs, because it did not get the CPUs that were decided.
    fn record_current_cpus(&mut self, action: CpuAction) {
        let CpuAction::Confine { container, .. } = action else { return };
        let actuator = self.actuator.as_ref().filter(|actuator| !actuator.is_paused(container));
        let has = actuator.and_then(|actuator| actuator.effective_cpus(container));
        if let Some((has, contained)) = has.zip(self.tracked.containers.get_mut(container)) {
            contained.given = ContainerAssignment::Cpus(to_cpu_mask(&has));
        }
    }

    /// Tells the policy which containers may be given other CPUs than the policy knows, because a cgroup above has
    /// changed. The policy decides again at once.
    pub(super) fn update_allowed_cpus(&mut self) {
        let Some(actuator) = &mut self.actuator else { return };
        for (place, allowed) in actuator.take_changed_allowed_cpus() {
            let has = self.actuator.as_ref().and_then(|actuator| actuator.effective_cpus(place));
            let Some(contained) = self.tracked.containers.get_mut(place) else { continue };
            let (before, name) = (contained.allowed, contained.container.name.clone());
            contained.set_bounds(allowed.clone());
            if let (ContainerAssignment::Cpus(_), Some(has)) = (contained.given, has) {
                contained.given = ContainerAssignment::Cpus(to_cpu_mask(&has));
            }
            self.times.look_ns = 0;
            let online = to_cpu_mask(&self.online);
            let is_narrower = !before.and(&online).is_subset(&to_cpu_mask(&allowed));
            let is_of_bounds =
                |note: &AgentNote| matches!(note, AgentNote::BoundsNarrowed { container, .. } if *container == name);
            self.stats.notes.retain(|note, _| !note.matches(is_of_bounds));
            if is_narrower {
                self.note_about(
                    &name,
                    AgentNote::BoundsNarrowed { container: name.clone(), cpus: allowed.to_string() },
                );
            }
        }
    }

    /// Tells the policy which containers can be paused now. If that has changed, the policy decides again at once.
    pub(super) fn report_pausable(&mut self) {
        let Some(actuator) = &self.actuator else { return };
        let can_pause = |place: usize| actuator.can_pause(place);
        let all =
            self.tracked.containers.iter().map(|(place, contained)| (place, contained.can_pause, can_pause(place)));
        let changed: Vec<(usize, bool)> =
            all.filter(|(_, before, now)| before != now).map(|(place, _, now)| (place, now)).collect();
        for (place, can_pause) in changed {
            let Some(contained) = self.tracked.containers.get_mut(place) else { continue };
            contained.can_pause = can_pause;
            let name = contained.container.name.clone();
            let note = Note::from(AgentNote::NoPause { container: name.clone() });
            self.times.look_ns = 0;
            match can_pause {
                true => drop(self.stats.notes.remove(&note)),
                // A container without live processes is ending. It is unknown whether it can be paused, so there is no
                // note.
                false if self.actuator.as_ref().is_some_and(|actuator| actuator.has_live_process(place)) => {
                    self.note_about(&name, note)
                }
                false => {}
            }
        }
    }

    /// Notes a failed action. A service whose threads another process moves is placed later.
    fn note_failed_action(&mut self, action: CpuAction, error: Error) {
        let name = target_name(action, &self.tracked);
        match (action, error.downcast_ref::<ClaimError>()) {
            (CpuAction::Place { .. }, Some(why)) => {
                self.note(AgentNote::NotPlaced { service: name.to_string(), why: why.to_string() })
            }
            _ => self.note_error_about(&name, error.context(format!("cannot {}", sentence(action, &name)))),
        }
    }

    /// Records the time from the onset of interference until batch had been taken away.
    pub(super) fn note_reaction(&mut self) {
        if let Some(onset_ns) = self.stats.reacting_since_ns.take() {
            let took_ns = now_ns().saturating_sub(onset_ns);
            self.stats.reaction.record(took_ns);
            self.stats.reaction_sum_ns += took_ns;
        }
    }

    /// Returns the interference threshold; `None` if the policy does not use interference.
    pub(super) fn interference_threshold(&self) -> Option<f64> {
        uses_interference(&self.config.policy).then_some(self.here.interference_threshold)
    }

    /// Records the decided settings of a container or service.
    fn record_assignment(&mut self, action: CpuAction) {
        let contained = |agent: &mut Self, place, given| {
            if let Some(contained) = agent.tracked.containers.get_mut(place) {
                contained.given = given;
            }
        };
        match action {
            CpuAction::Confine { container, cpus } => contained(self, container, ContainerAssignment::Cpus(cpus)),
            CpuAction::Pause { container } => contained(self, container, ContainerAssignment::Paused),
            CpuAction::Place { service, cpus } => {
                if let Some(served) = self.tracked.services.get_mut(service) {
                    (served.placed, served.has_moved) = (Some(cpus), true);
                }
            }
        }
    }

    fn log_action(&mut self, action: CpuAction, now_ns: Nanos) -> Result<()> {
        let (why, seen) = (self.stats.why, self.stats.seen);
        let name = target_name(action, &self.tracked);
        *self.stats.decisions.entry((describe_action(action).1, why)).or_default() += 1;
        if self.actuator.is_none() {
            print(&format!("would {}: {why}\n", sentence(action, &name)))?;
        }
        let line = CpuLine { action, name, why, seen };
        self.stats.last.add(now_ns, line.clone());
        self.pen.record(now_ns, line);
        Ok(())
    }
}
