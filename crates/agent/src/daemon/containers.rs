//! Containers that come, go and become part of other containers, and the CPUs on which new batch starts.

use sidelane_host::cgroup::Group;
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::thread::Thread;

use super::births::NewBatchConfinement;
use super::waiting::Waiting;
use super::{Agent, MAKING_NS};
use crate::actuator::TakeError;
use crate::choice::moves_containers;
use crate::config::Kind;
use crate::discover::kubelet::CpuManager;
use crate::discover::{Container, ContainerId, NewBatchGroup};
use crate::note::AgentNote;
use crate::owners::{Owner, Resource};
use crate::tracked::ContainerAssignment;

impl Agent {
    /// Takes in containers that came, and releases those that went. Containers below a new container become part of it,
    /// and are not released.
    pub(super) fn update_containers(&mut self, came: Vec<Container>, mut gone: Vec<ContainerId>) {
        let now_ns = now_ns();
        for container in came {
            let is_part = |id: &mut ContainerId| id.is_below(&container.id);
            let parts: Vec<ContainerId> = gone.extract_if(.., is_part).collect();
            if !self.merge(&container, &parts) {
                self.waiting.push(Waiting::due_now(container, now_ns));
            }
        }
        gone.iter().for_each(|id| self.release_gone_container(id));
    }

    /// Takes in that a container's pod has other lanes. The policy decides again at once.
    pub(super) fn update_lanes_of(&mut self, container: Container) {
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.item.id == container.id) {
            waiting.item = container;
        } else if let Some(slot) = self.tracked.slot_of_container(&container.id)
            && let Some(contained) = self.tracked.containers.get_mut(slot)
        {
            contained.update(container);
            self.times.look_ns = 0;
            self.follow_kubelet(slot);
        }
    }

    /// Leaves it to the kubelet which CPUs bound a container with lanes. Its CPU manager rewrites lists while containers
    /// run.
    pub(super) fn follow_kubelet(&mut self, slot: usize) {
        let has_lanes = self.tracked.containers.get(slot).is_some_and(|contained| contained.container.lanes.is_some());
        if let Some(actuator) = self.actuator.as_mut().filter(|_| has_lanes) {
            actuator.follow_owner(slot);
            self.take_kubelets_lists();
        }
    }

    /// Takes in which CPUs the kubelet gives containers with lanes: they get these back, whatever they had here.
    pub(super) fn take_kubelets_lists(&mut self) {
        let has_lanes = self.tracked.containers.iter().any(|(_, contained)| contained.container.lanes.is_some());
        let actuator = self.actuator.as_mut().filter(|_| has_lanes);
        let taken = match actuator.and_then(|actuator| Some((actuator, CpuManager::read()?))) {
            Some((actuator, manager)) => actuator.take_owners_lists(|group| manager.cpus(group)),
            None => Ok(()),
        };
        taken.unwrap_or_else(|error| self.note_error(error));
    }

    fn release_gone_container(&mut self, id: &ContainerId) {
        self.stop_waiting_for(id);
        if let Some(place) = self.tracked.slot_of_container(id) {
            self.drop_container(place);
        }
    }

    fn stop_waiting_for(&mut self, id: &ContainerId) {
        for waiting in self.waiting.extract_if(.., |waiting| waiting.item.id == *id).collect::<Vec<_>>() {
            self.remove_notes_about(&waiting.item.name);
        }
    }

    /// Manages a container in place of the containers `parts` below it. Returns whether it has replaced managed
    /// containers.
    fn merge(&mut self, container: &Container, parts: &[ContainerId]) -> bool {
        parts.iter().for_each(|id| self.stop_waiting_for(id));
        let places: Vec<usize> = parts.iter().filter_map(|id| self.tracked.slot_of_container(id)).collect();
        if places.is_empty() {
            return false;
        }
        let merged = self.replace_containers(container, &places);
        let is_merged = merged.is_ok();
        if let Err(error) = merged {
            self.note_error_about(&container.name, anyhow::Error::from(error));
        }
        for place in places {
            // The actuator manages none of the replaced containers any more, so their slots can be freed.
            self.drop_container(place);
        }
        is_merged
    }

    fn replace_containers(&mut self, container: &Container, part_slots: &[usize]) -> Result<(), TakeError> {
        let given = self.merged_assignment(part_slots);
        self.owners.assign(Resource::Group(container.id.path.clone()), Owner::Policy).map_err(anyhow::Error::from)?;
        let place = self.tracked.add_container(container.clone())?;
        let services = self.tracked.pids_of_grouped_services();
        let allowed = match &mut self.actuator {
            Some(actuator) => actuator.manage_enclosing_container(place, container, part_slots, &services),
            None => Ok(self.usable.clone()),
        };
        let allowed = allowed.inspect_err(|_| {
            let _ = self.actuator.as_mut().map(|actuator| actuator.release_container(place));
            self.tracked.remove_container(place);
            self.owners.free(&Resource::Group(container.id.path.clone()));
        })?;
        if let Some(contained) = self.tracked.containers.get_mut(place) {
            contained.set_bounds(allowed.clone());
            contained.given = given;
        }
        self.record_managed_container(place, container, &allowed);
        Ok(())
    }

    /// Returns the union of the settings of these containers.
    fn merged_assignment(&self, slots: &[usize]) -> ContainerAssignment {
        let given = slots.iter().filter_map(|place| Some(self.tracked.containers.get(*place)?.given));
        let cpus = given.filter_map(|given| match given {
            ContainerAssignment::Cpus(cpus) => Some(cpus),
            ContainerAssignment::AsFound | ContainerAssignment::Paused => None,
        });
        cpus.reduce(|sum, cpus| sum.or(&cpus)).map_or(ContainerAssignment::AsFound, ContainerAssignment::Cpus)
    }

    /// Records that a container is managed now.
    pub(super) fn record_managed_container(&mut self, slot: usize, container: &Container, allowed: &CpuSet) {
        // Batch may have to leave CPUs, so the policy decides at once.
        self.times.look_ns = 0;
        let name = &container.name;
        self.helper.note_managed(&container.id);
        self.remove_notes_about(name);
        self.record_unconfined_time(container);
        self.note_missing_controls(slot, name);
        self.log_note("came", &format!("container {name} was added; it may have CPUs {allowed}"));
    }

    /// Measures for how long a container that came while the agent ran was not confined.
    fn record_unconfined_time(&mut self, container: &Container) {
        if !moves_containers(&self.config.policy)
            || self.births.is_tree_confined(&container.tree, &self.gaps.unconfined)
        {
            return;
        }
        let processes = processes_in(&container.id).into_iter().filter_map(Thread::with_tid);
        let Some(age_ns) = processes.map(|process| process.age_ns()).max() else { return };
        if age_ns < now_ns().saturating_sub(self.times.began_ns) {
            self.gaps.times.record(age_ns);
            self.gaps.sum_ns += age_ns;
        }
    }

    /// Notes a container that has processes, but could not be managed for a long time.
    pub(super) fn note_incomplete(&mut self, waiting: &Waiting<Container>) {
        let container = &waiting.item;
        let is_late = now_ns().saturating_sub(waiting.since_ns) > MAKING_NS;
        if is_late && !self.has_note_about(&container.name) && !processes_in(&container.id).is_empty() {
            self.note_about(&container.name, AgentNote::Incomplete { container: container.name.clone() });
        }
    }

    /// Makes new batch start on CPUs that batch may have, if its cgroups have lists of CPUs.
    pub(super) fn confine_new_batch(&mut self) {
        let births = NewBatchConfinement { places: self.new_batch_groups.clone(), cpus: self.new_batch_cpus() };
        let Some(actuator) = self.actuator.as_mut().filter(|_| births != self.births) else { return };
        let failed = actuator.confine_new_batch(&births.places, births.cpus.as_ref());
        self.stats.notes.retain(|note, _| !note.matches(|note| matches!(note, AgentNote::NotBornConfined { .. })));
        self.gaps.unconfined = failed.iter().map(|(group, _)| group.clone()).collect();
        if births.cpus.is_some() {
            let notes = failed.into_iter().map(|(group, why)| AgentNote::NotBornConfined { group, why });
            notes.for_each(|note| self.note(note));
            let spared = births.places.iter().filter(|place| !place.spared.is_empty());
            let why =
                |place: &NewBatchGroup| format!("it also holds pods that are not batch, such as {}", place.spared[0]);
            let notes = spared.map(|place| AgentNote::NotBornConfined { group: place.path.clone(), why: why(place) });
            notes.for_each(|note| self.note(note));
        }
        self.births = births;
    }

    /// Returns the CPUs that batch may use at most: all but the reserved CPUs. `None` unless the policy is Holmes,
    /// since only Holmes reserves CPUs.
    fn new_batch_cpus(&self) -> Option<CpuSet> {
        let is_holmes = matches!(self.config.policy.kind, Kind::Holmes(_));
        let cpus = self.usable.difference(&self.here.reserved);
        (is_holmes && !cpus.is_empty()).then_some(cpus)
    }
}

/// Returns the present processes of a container.
fn processes_in(id: &ContainerId) -> Vec<u32> {
    Group::find_with_processes(&id.path).map(|group| group.processes()).unwrap_or_default()
}
