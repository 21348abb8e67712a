//! Measurement of the slowdown of requests by batch on lanes, and its limitation by a longer idle threshold, as in
//! `sidelane run`.

use std::collections::BTreeSet;

use sidelane_policy::Nanos;
use sidelane_policy::borrow::idle_threshold::IdleThreshold;

use super::Agent;
use crate::tracked::{AgentService, Tracked};
use sidelane_diagnostics::note::Note;
use sidelane_lanes::kept_lanes::KeptLanes;
use sidelane_lanes::note::LaneNote;
use sidelane_lanes::slowdown::{IdleThresholdChange, SlowdownKeeper, SlowdownOutcome};
use sidelane_rollback::cpu_mask::to_cpu_mask;

impl Agent {
    /// Returns when the next step of the slowdown measurement is due; `Nanos::MAX` without batch, or without services
    /// to measure.
    pub(super) fn slowdown_due_ns(&self) -> Nanos {
        let compares =
            |slowdown: &&SlowdownKeeper| !slowdown.is_empty() && (self.times.is_active || slowdown.needs_requests());
        self.slowdown.as_ref().filter(compares).map_or(Nanos::MAX, SlowdownKeeper::next_window_at)
    }

    /// Continues the slowdown measurement with its next time window, with or without batch, and notes changed idle
    /// thresholds.
    pub(super) fn advance_slowdown(&mut self, now_ns: Nanos) {
        self.fetch_requests();
        let Some(slowdown) = &mut self.slowdown else { return };
        let Some(changes) = slowdown.advance_windows(now_ns) else { return };
        self.apply_slowdown_measurement();
        changes.iter().for_each(|change| self.note_idle_threshold(change));
    }

    /// Chooses the services whose slowdown is measured: those beside lanes that are lent only while the service is
    /// idle.
    pub(super) fn choose_measured_services(&mut self, now_ns: Nanos) {
        let Some(slowdown) = &mut self.slowdown else { return };
        let (mut measured, mut unseen) = (BTreeSet::new(), Vec::new());
        let beside = |served: &&AgentService| idle_only_lanes(&self.tracked).any(|kept| may_run_beside(served, kept));
        for served in self.tracked.services.iter().map(|(_, served)| served).filter(beside) {
            match &served.tracked.requests.unseen_reason {
                _ if served.tracked.requests.is_search_running => {}
                None => drop(measured.insert(served.found.id.0)),
                Some(why) => {
                    let (service, why) = (served.found.name.clone(), why.to_owned());
                    unseen.push(Note::from(LaneNote::CostUnknown { service, why }));
                }
            }
        }
        slowdown.set_measured_services(&measured, now_ns);
        self.apply_slowdown_measurement();
        unseen.retain(|note| !self.stats.notes.contains_key(note));
        unseen.into_iter().for_each(|note| self.note(note));
    }

    /// Starts or stops observing the measured services' requests, and sets the idle threshold of each lane, as the
    /// slowdown measurement needs it now.
    pub(super) fn apply_slowdown_measurement(&self) {
        let Some(slowdown) = &self.slowdown else { return };
        for (_, served) in self.tracked.services.iter() {
            served.set_observing_requests(slowdown.needs_requests() && slowdown.is_measured(served.found.id.0));
        }
        for kept in idle_only_lanes(&self.tracked) {
            let beside = self.tracked.services.iter().filter(|(_, served)| may_run_beside(served, kept));
            let threshold =
                beside.map(|(_, served)| slowdown.idle_threshold(served.found.id.0)).reduce(IdleThreshold::stricter_of);
            threshold.into_iter().for_each(|threshold| kept.set_idle_threshold(threshold));
        }
    }

    /// Returns the slowdown of a service's requests by batch; `None` if it is not measured.
    pub(super) fn slowdown_of(&self, served: &AgentService) -> Option<SlowdownOutcome> {
        self.slowdown.as_ref()?.outcome(served.found.id.0)
    }

    /// Notes the new idle threshold of a service, in place of earlier notes on it.
    fn note_idle_threshold(&mut self, change: &IdleThresholdChange) {
        let served = self.tracked.services.iter().find(|(_, served)| served.found.id.0 == change.service);
        let Some(service) = served.map(|(_, served)| served.found.name.clone()) else { return };
        self.stats.notes.retain(|note, _| !note.matches(|note: &LaneNote| note.is_about_idle_threshold(&service)));
        if let Some(note) = LaneNote::from_idle_threshold(service, change.threshold, change.verdict) {
            self.note(note);
        }
    }
}

/// Returns the lanes that are lent to batch only while their services are idle.
fn idle_only_lanes(tracked: &Tracked) -> impl Iterator<Item = &KeptLanes> {
    tracked.kept_lanes().filter(|kept| !kept.limits.policy().needs_requests())
}

/// Returns whether the service may run on the CPUs beside these lanes.
fn may_run_beside(served: &AgentService, kept: &KeptLanes) -> bool {
    !served.placed.unwrap_or(served.allowed).and(&to_cpu_mask(&kept.request_lanes)).is_empty()
}
