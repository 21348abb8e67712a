//! Containers that come, go and become part of other containers, and the CPUs on which new batch starts.

use sidelane_host::cgroup::Group;
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::thread::Thread;
use sidelane_rollback::cpu_mask::mask;

use super::births::Births;
use super::waiting::Waiting;
use super::{Agent, MAKING_NS};
use crate::actuator::TakeError;
use crate::choice::moves_containers;
use crate::config::Kind;
use crate::discover::{Birthplace, Container, ContainerId};
use crate::note::AgentNote;
use crate::owners::{Owner, Thing};
use crate::tracked::ContainerAssignment;

impl Agent {
    /// Takes in containers that came, and releases those that went. Containers below a new container become part of it,
    /// and are not released.
    pub(super) fn follow_containers(&mut self, came: Vec<Container>, mut gone: Vec<ContainerId>) {
        let now_ns = now_ns();
        for container in came {
            let is_part = |id: &mut ContainerId| id.is_below(&container.id);
            let parts: Vec<ContainerId> = gone.extract_if(.., is_part).collect();
            if !self.merge(&container, &parts) {
                self.waiting.push(Waiting::since(container, now_ns));
            }
        }
        gone.iter().for_each(|id| self.container_went(id));
    }

    fn container_went(&mut self, id: &ContainerId) {
        self.stop_waiting_for(id);
        if let Some(place) = self.tracked.place_of_container(id) {
            self.drop_container(place);
        }
    }

    fn stop_waiting_for(&mut self, id: &ContainerId) {
        for waiting in self.waiting.extract_if(.., |waiting| waiting.what.id == *id).collect::<Vec<_>>() {
            self.forget_about(&waiting.what.name);
        }
    }

    /// Manages a container in place of its parts. Returns whether any part was managed.
    fn merge(&mut self, container: &Container, parts: &[ContainerId]) -> bool {
        parts.iter().for_each(|id| self.stop_waiting_for(id));
        let places: Vec<usize> = parts.iter().filter_map(|id| self.tracked.place_of_container(id)).collect();
        if places.is_empty() {
            return false;
        }
        let merged = self.take_over(container, &places);
        let is_merged = merged.is_ok();
        if let Err(error) = merged {
            self.failed_with(&container.name, anyhow::Error::from(error));
        }
        for place in places {
            // The actuator does not hold anything in the slots of the parts any more.
            self.drop_container(place);
        }
        is_merged
    }

    fn take_over(&mut self, container: &Container, parts: &[usize]) -> Result<(), TakeError> {
        let given = self.given_to_all(parts);
        self.owners.take(Thing::Group(container.id.path.clone()), Owner::Policy).map_err(anyhow::Error::from)?;
        let place = self.tracked.add_container(container.clone())?;
        let services = self.tracked.pids_of_grouped_services();
        let allowed = match &mut self.actuator {
            Some(actuator) => actuator.take_over(place, container, parts, &services),
            None => Ok(self.usable.clone()),
        };
        let allowed = allowed.inspect_err(|_| {
            let _ = self.actuator.as_mut().map(|actuator| actuator.let_go(place));
            self.tracked.remove_container(place);
            self.owners.free(&Thing::Group(container.id.path.clone()));
        })?;
        if let Some(contained) = self.tracked.containers.get_mut(place) {
            (contained.allowed, contained.given) = (mask(&allowed), given);
        }
        self.has_taken(place, container, &allowed);
        Ok(())
    }

    /// Returns the union of the settings of these containers.
    fn given_to_all(&self, places: &[usize]) -> ContainerAssignment {
        let given = places.iter().filter_map(|place| Some(self.tracked.containers.get(*place)?.given));
        let cpus = given.filter_map(|given| match given {
            ContainerAssignment::Cpus(cpus) => Some(cpus),
            ContainerAssignment::AsFound | ContainerAssignment::Paused => None,
        });
        cpus.reduce(|sum, cpus| sum.or(&cpus)).map_or(ContainerAssignment::AsFound, ContainerAssignment::Cpus)
    }

    /// Records that a container is managed now.
    pub(super) fn has_taken(&mut self, place: usize, container: &Container, allowed: &CpuSet) {
        // Batch may have to leave CPUs, so the policy decides at once.
        self.times.look_ns = 0;
        let name = &container.name;
        self.helper.note_held(&container.id);
        self.forget_about(name);
        self.note_gap(container);
        self.note_means(place, name);
        self.log_note("came", &format!("container {name} was added; it may have CPUs {allowed}"));
    }

    /// Measures for how long a container that came while the agent ran was not confined.
    fn note_gap(&mut self, container: &Container) {
        if !moves_containers(&self.config.policy) || self.births.are_confined(&container.tree, &self.gaps.unconfined) {
            return;
        }
        let processes = processes_in(&container.id).into_iter().filter_map(Thread::of);
        let Some(age_ns) = processes.map(|process| process.age_ns()).max() else { return };
        if age_ns < now_ns().saturating_sub(self.times.began_ns) {
            self.gaps.times.record(age_ns);
            self.gaps.sum_ns += age_ns;
        }
    }

    /// Notes a container that has processes, but could not be managed for a long time.
    pub(super) fn note_incomplete(&mut self, waiting: &Waiting<Container>) {
        let container = &waiting.what;
        let is_late = now_ns().saturating_sub(waiting.since_ns) > MAKING_NS;
        if is_late && !self.is_noted(&container.name) && !processes_in(&container.id).is_empty() {
            self.note_about(&container.name, AgentNote::Incomplete { container: container.name.clone() });
        }
    }

    /// Makes new batch start on CPUs that batch may have, if its cgroups have lists of CPUs.
    pub(super) fn keep_births(&mut self) {
        let births = Births { places: self.birthplaces.clone(), cpus: self.cpus_of_births() };
        let Some(actuator) = self.actuator.as_mut().filter(|_| births != self.births) else { return };
        let failed = actuator.keep_births(&births.places, births.cpus.as_ref());
        self.stats.notes.retain(|note, _| !note.is(|note| matches!(note, AgentNote::NotBornConfined { .. })));
        self.gaps.unconfined = failed.iter().map(|(group, _)| group.clone()).collect();
        if births.cpus.is_some() {
            let notes = failed.into_iter().map(|(group, why)| AgentNote::NotBornConfined { group, why });
            notes.for_each(|note| self.note(note));
            let spared = births.places.iter().filter(|place| !place.spared.is_empty());
            let why =
                |place: &Birthplace| format!("it also holds pods that are not batch, such as {}", place.spared[0]);
            let notes = spared.map(|place| AgentNote::NotBornConfined { group: place.path.clone(), why: why(place) });
            notes.for_each(|note| self.note(note));
        }
        self.births = births;
    }

    /// Returns the CPUs that batch may ever have; `None` unless the policy keeps batch off the other CPUs from the
    /// start.
    fn cpus_of_births(&self) -> Option<CpuSet> {
        let is_holmes = matches!(self.config.policy.kind, Kind::Holmes(_));
        let cpus = self.usable.difference(&self.here.reserved);
        (is_holmes && !cpus.is_empty()).then_some(cpus)
    }
}

/// Returns the present processes of a container.
fn processes_in(id: &ContainerId) -> Vec<u32> {
    Group::find(&id.path).map(|group| group.processes()).unwrap_or_default()
}
