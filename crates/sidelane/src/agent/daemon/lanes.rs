//! Batch lanes, where the file asks for a gate: which there are, and who keeps them.

use std::rc::Rc;

use anyhow::Result;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::procfs::allowed_cpus;
use sidelane_host::topology::Lanes;
use sidelane_policy::borrow::Lending;

use super::Agent;
use crate::agent::discover::FoundService;
use crate::agent::lanes::{KeptLanes, LaneGates, lanes_of};
use crate::agent::owners::{Owner, Thing};

impl Agent {
    /// The lanes beside a service that has come, and how they are lent. Lanes beside others that it may run on are
    /// let go of.
    pub(super) fn lanes_beside(&mut self, found: &FoundService) -> Option<(Lanes, Lending)> {
        self.gates.as_ref()?;
        let own = allowed_cpus(&found.service.pids);
        self.drop_lanes(&own);
        let others = self.tracked.services.iter().map(|(_, served)| allowed_cpus(&served.found.service.pids));
        let others = others.fold(CpuSet::default(), |sum, cpus| sum.union(&cpus));
        let lanes = lanes_of(&self.here.cores, &own, &others, &self.usable.difference(&self.kept_cpus()));
        match (lanes, self.gates.as_ref()?.lending(found.terms.slo)) {
            (Some(lanes), Ok(lending)) => Some((lanes, lending)),
            (None, _) => {
                self.note(format!(
                    "no lane is kept beside {}: it may run on CPUs {own}, with no sibling to spare",
                    found.name
                ));
                None
            }
            (_, Err(error)) => {
                self.note(format!("no lane is kept beside {}: {error:#}", found.name));
                None
            }
        }
    }

    /// The lanes beside a service that was added are kept from now on.
    pub(super) fn keep_lanes(&mut self, place: usize, lanes: Lanes, lending: Lending) {
        let Some(gates) = &self.gates else { return };
        let tracker = Rc::clone(self.tracked.tracker());
        match gates.keep(lanes, lending, &tracker) {
            Ok(kept) => {
                self.pass_lanes_on(&kept.cpus(), &Owner::Policy, &Owner::Lanes);
                self.log_note("keep", &format!("batch lanes {} are kept by the gate", kept.cpus()));
                if let Some(served) = self.tracked.services.get_mut(place) {
                    served.kept = Some(kept);
                }
            }
            Err(error) => self.note(format!("{error:#}")),
        }
    }

    /// Looks after what is not decided lane by lane.
    pub(super) fn look_after_lanes(&mut self) -> Result<()> {
        let gone = self.kept_cpus().difference(&self.usable);
        self.drop_lanes(&gone);
        for (_, served) in self.tracked.services.iter_mut() {
            if let Some(kept) = &mut served.kept {
                let pids = &served.found.service.pids;
                kept.receive_visitors(|| allowed_cpus(pids));
                kept.terms.keep();
            }
        }
        self.gates.as_mut().map_or(Ok(()), LaneGates::drain)
    }

    /// All lanes that are kept.
    fn kept_cpus(&self) -> CpuSet {
        let kept = self.tracked.services.iter().filter_map(|(_, served)| served.kept.as_ref());
        kept.map(KeptLanes::cpus).fold(CpuSet::default(), |sum, cpus| sum.union(&cpus))
    }

    /// Lets go of lanes: they are the policy's alone.
    pub(super) fn drop_lanes(&mut self, cpus: &CpuSet) {
        let (kept, dropped) = (self.kept_cpus().difference(cpus), self.kept_cpus().intersection(cpus));
        if dropped.is_empty() {
            return;
        }
        let services = self.tracked.services.iter_mut().filter_map(|(_, served)| served.kept.as_mut());
        services.for_each(|lanes| lanes.retain(&kept));
        self.pass_lanes_on(&dropped, &Owner::Lanes, &Owner::Policy);
        self.log_note("drop", &format!("batch lanes {dropped} are kept by the gate no more"));
    }

    fn pass_lanes_on(&mut self, cpus: &CpuSet, from: &Owner, to: &Owner) {
        for cpu in cpus {
            if let Err(owned) = self.owners.pass_on(&Thing::Cpu(cpu), from, to.clone()) {
                self.note(owned.to_string());
            }
        }
    }
}
