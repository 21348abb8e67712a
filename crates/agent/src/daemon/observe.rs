//! Observation of what could be lent, while the agent lends nothing.

use sidelane_host::cpulist::CpuSet;
use sidelane_host::topology::Lanes;

use super::Agent;
use crate::note::AgentNote;

impl Agent {
    /// Observes what could be lent, if the agent only observes.
    pub(super) fn observe_services(&mut self) {
        if self.observers.is_none() {
            return;
        }
        self.find_observed_lanes();
        let now = self.tracked.tracker().memory().accounting();
        let Self { tracked, config, observers, .. } = self;
        if let Some(observers) = observers {
            observers.advance(tracked.services.iter().map(|(_, served)| served), config, &now);
        }
    }

    /// Finds the lanes of all services again if services came, went or moved.
    fn find_observed_lanes(&mut self) {
        let moved = self.tracked.services.iter_mut().map(|(_, served)| std::mem::take(&mut served.has_moved));
        if moved.filter(|moved| *moved).count() == 0 {
            return;
        }
        self.stats.notes.retain(|note, _| !note.matches(|note| matches!(note, AgentNote::NoLaneBeside { .. })));
        let found: Vec<_> = self.tracked.services.iter().map(|(place, served)| (place, served.found.clone())).collect();
        let mut taken = CpuSet::default();
        for (place, found) in found {
            let own = self.tracked.service_cpus(&found);
            let lanes = self.free_lanes_beside(&found, &own, &taken).unwrap_or_else(|| {
                self.note(AgentNote::NoLaneBeside { service: found.name.clone(), cpus: own.to_string() });
                Lanes::without_batch_lanes(CpuSet::default())
            });
            taken = taken.union(&lanes.batch_cpus());
            if let Err(error) = self.tracked.observe_lanes(place, &lanes) {
                self.note_error(error);
            }
        }
    }
}
