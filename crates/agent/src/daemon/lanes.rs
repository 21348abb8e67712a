//! Batch lanes, if the file asks for a gate: finds them, and starts and ends their keepers.

use std::rc::Rc;

use anyhow::Error;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::topology::Lanes;
use sidelane_policy::Nanos;
use sidelane_policy::borrow::idle_threshold::IdleThreshold;
use sidelane_policy::borrow::{Lending, Objective};

use super::Agent;
use crate::discover::FoundService;
use crate::lanes::{LaneAccount, LaneCounters, lanes_beside_service};
use crate::note::AgentNote;
use crate::owners::{Owner, Resource};
use crate::tracked::AgentService;
use sidelane_diagnostics::note::Note;
use sidelane_lanes::kept_lanes::KeptLanes;
use sidelane_lanes::note::LaneNote;

impl Agent {
    /// Returns the lanes beside a new service, and how they are lent. Releases lanes beside other services that the new
    /// service may run on.
    pub(super) fn lanes_beside(&mut self, found: &FoundService) -> Option<(Lanes, Lending)> {
        self.gates.as_ref()?;
        let own = self.tracked.service_cpus(found);
        self.drop_lanes(&own);
        let lanes = self.free_lanes_beside(found, &own, &self.lane_cpus());
        match (lanes, self.gates.as_ref()?.lending(found.settings.slo)) {
            (Some(lanes), Ok(lending)) => Some((lanes, lending)),
            // The gate controls the lanes beside the service already, for another service on the same CPUs.
            (None, _) if self.tracked.kept_lanes().any(|kept| !kept.request_lanes.intersection(&own).is_empty()) => {
                None
            }
            (None, _) => {
                self.note(AgentNote::NoLaneBeside { service: found.name.clone(), cpus: own.to_string() });
                None
            }
            (_, Err(error)) => {
                self.note_error(error.context(format!("cannot lend lanes beside {}", found.name)));
                None
            }
        }
    }

    /// Returns the lanes beside a service that may run on the CPUs `own`, without those that are `taken`; `None` if there
    /// are none.
    pub(super) fn free_lanes_beside(&self, found: &FoundService, own: &CpuSet, taken: &CpuSet) -> Option<Lanes> {
        let others = self.tracked.services.iter().filter(|(_, served)| served.found.id != found.id);
        let others = others.map(|(_, served)| served.cpus()).fold(CpuSet::default(), |sum, cpus| sum.union(&cpus));
        lanes_beside_service(&self.here.cores, own, &others, &self.usable.difference(taken))
    }

    /// Searches for lanes again, for services without lanes. Lanes may be free now because a service was placed on
    /// other CPUs, or because a service with lanes has gone.
    fn find_lanes_again(&mut self) {
        let has_none = |served: &AgentService| {
            served.tracked.kept.as_ref().is_none_or(|kept| kept.lanes_with_keepers().is_empty())
        };
        let mut moved = Vec::new();
        for (place, served) in self.tracked.services.iter_mut() {
            if std::mem::take(&mut served.has_moved) && has_none(served) {
                moved.push((place, served.found.clone()));
            }
        }
        for (place, found) in moved {
            self.stats.notes.retain(|note, _| !reports_missing_lane(note, &found.name));
            let Some((lanes, lending)) = self.lanes_beside(&found) else { continue };
            match self.tracked.lend_lanes(place, &lanes, lending) {
                Ok(()) => self.start_keepers(place, lanes, lending),
                Err(error) => self.note_error(error),
            }
        }
    }

    /// Starts the keepers of the lanes beside a new service.
    pub(super) fn start_keepers(&mut self, slot: usize, lanes: Lanes, lending: Lending) {
        let Some(gates) = &self.gates else { return };
        let tracker = Rc::clone(self.tracked.tracker());
        match gates.start_keepers(&lanes, lending, &tracker) {
            Ok(kept) => {
                self.change_lane_owner(&kept.lanes_with_keepers(), &Owner::Policy, &Owner::Lanes);
                self.log_note("keep", &format!("the gate keeps batch lanes {}", kept.lanes_with_keepers()));
                if let Some(served) = self.tracked.services.get_mut(slot) {
                    served.tracked.kept = Some(kept);
                }
            }
            Err(error) => self.note_error(error),
        }
    }

    /// Sets the lending of each service's lanes by the service's objective in the present file.
    pub(super) fn set_lending(&mut self) {
        let Some(gates) = &self.gates else { return };
        let mut unchanged = Vec::new();
        for (_, served) in self.tracked.services.iter_mut() {
            let (name, slo) = (served.found.name.clone(), served.found.settings.slo);
            let Some(kept) = &mut served.tracked.kept else { continue };
            let is_set = gates.lending(slo).is_ok_and(|lending| kept.limits.set_lending(lending));
            unchanged.extend((!is_set).then_some(name));
        }
        for service in unchanged {
            self.note(AgentNote::LanesLentAsBefore { service });
        }
    }

    /// Lends the lanes of a service by its new objective. If that needs another policy, the lanes are released, and found
    /// again at the end of this check.
    pub(super) fn restart_keepers(&mut self, slot: usize, slo: Option<Objective>) {
        let Some(gates) = &self.gates else { return };
        let Some(served) = self.tracked.services.get_mut(slot) else { return };
        let Some(kept) = &mut served.tracked.kept else { return };
        if !gates.lending(slo).is_ok_and(|lending| kept.limits.set_lending(lending)) {
            let lanes = kept.lanes_with_keepers();
            served.has_moved = true;
            self.drop_lanes(&lanes);
        }
    }

    /// Checks the lanes under a gate: drops lanes that are lost, searches for new ones, restores the scheduling class
    /// of keepers, and updates the lending limits.
    pub(super) fn maintain_lanes(&mut self) {
        let forsaken: CpuSet = self.tracked.kept_lanes().flat_map(KeptLanes::displaced_lanes).collect();
        let gone = self.lane_cpus().difference(&self.usable).union(&forsaken);
        self.drop_lanes(&gone);
        if self.gates.is_some() {
            self.find_lanes_again();
        }
        for lane in self.tracked.kept_lanes().flat_map(KeptLanes::restore_keeper_classes).collect::<Vec<_>>() {
            self.note(LaneNote::KeeperLowered { lane });
        }
        for (_, served) in self.tracked.services.iter_mut() {
            let tracking = &served.tracked.tracking;
            if let Some(kept) = &mut served.tracked.kept {
                kept.rehold_visited_lanes(|| tracking.processes().into_iter().collect());
                kept.limits.update_limits();
            }
        }
    }

    /// Updates the offers of all batch lanes, if an update is due.
    pub(super) fn update_offers(&mut self, now_ns: Nanos) {
        let Some(lent) = self.lent.as_ref().filter(|lent| lent.offers.is_due(now_ns)) else { return };
        let withheld = if lent.beside_deadline { self.lane_cpus() } else { lent.withheld.clone() };
        let mut lanes = Vec::new();
        if self.tracked.kept_lanes().next().is_some() {
            let accounting = self.tracked.tracker().memory().accounting();
            for (_, served) in self.tracked.services.iter() {
                let kept_off = self.slowdown_of(served).is_some_and(|one| one.threshold == IdleThreshold::Never);
                for cpu in served.tracked.kept.iter().flat_map(|kept| &kept.lanes).map(|lane| lane.cpu) {
                    let times = accounting.ledger(&CpuSet::from_iter([cpu])).times;
                    let (in_time, late) = served.figures.all.judged_counts();
                    let judged_and_late = (in_time + late, late);
                    let counted = LaneCounters { service: served.found.id, times, judged_and_late };
                    let (objective, is_closed) = (served.figures.objective, kept_off || withheld.contains(cpu));
                    lanes.push((cpu, LaneAccount { counted, objective, is_closed }));
                }
            }
        }
        let changed = self.lent.as_mut().map(|lent| lent.offers.update(now_ns, lanes));
        changed.into_iter().flatten().for_each(|text| self.log_note("offer", &text));
    }

    /// Returns the CPUs of all lanes that a gate controls.
    pub(super) fn lane_cpus(&self) -> CpuSet {
        self.tracked
            .kept_lanes()
            .map(KeptLanes::lanes_with_keepers)
            .fold(CpuSet::default(), |sum, cpus| sum.union(&cpus))
    }

    /// Releases lanes: afterwards only the policy decides about their CPUs.
    pub(super) fn drop_lanes(&mut self, cpus: &CpuSet) {
        let (kept, dropped) = (self.lane_cpus().difference(cpus), self.lane_cpus().intersection(cpus));
        if dropped.is_empty() {
            return;
        }
        let services = self.tracked.services.iter_mut().filter_map(|(_, served)| served.tracked.kept.as_mut());
        let drop_them = || services.for_each(|lanes| lanes.retain(&kept));
        match &self.gates {
            Some(gates) => gates.evictions().run_without_keepers(&dropped, drop_them),
            None => drop_them(),
        }
        self.change_lane_owner(&dropped, &Owner::Lanes, &Owner::Policy);
        self.log_note("drop", &format!("the gate does not keep batch lanes {dropped} any more"));
    }

    fn change_lane_owner(&mut self, cpus: &CpuSet, from: &Owner, to: &Owner) {
        let kept = if *to == Owner::Lanes { self.lane_cpus().union(cpus) } else { self.lane_cpus() };
        if let Some(Err(error)) = self.lent.as_ref().map(|lent| lent.pin_off_lanes(&kept)) {
            self.note_error(Error::from(error).context("cannot keep the agent's alarm thread off the lanes"));
        }
        for cpu in cpus {
            if let Err(owned) = self.owners.change_owner(&Resource::Cpu(cpu), from, to.clone()) {
                self.note_error(owned);
            }
        }
    }
}

/// Returns whether the note reports that the service `name` has no lane.
pub(super) fn reports_missing_lane(note: &Note, name: &str) -> bool {
    note.matches(|note| matches!(note, AgentNote::NoLaneBeside { service, .. } if service == name))
}
