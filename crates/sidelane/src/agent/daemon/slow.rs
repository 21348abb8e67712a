//! The slow look: who came and went, whose the CPUs are, whether all is as it was decided, what requests take.

use anyhow::{Context, Error, Result};
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::priority::pin_this_thread;
use sidelane_host::topology::online_cpus;
use sidelane_policy::Nanos;

use super::{Agent, IDLE_LOOK_NS, MAKING_NS, SLOW_LOOK_NS, WAITING_LOOK_NS};
use crate::agent::act::{Hands, TakeError};
use crate::agent::discover::{Changes, Container, FoundService};
use crate::agent::metric::Metric;
use crate::agent::owners::{Owner, Thing};
use crate::agent::tracked::Served;
use crate::cpu_mask::mask;
use crate::note::Note;
use crate::undo::guardian::Guardian;

impl Agent {
    pub(super) fn look_around(&mut self, now_ns: Nanos) -> Result<()> {
        self.look_at_cpus()?;
        self.heed()?;
        self.look_for_changes(now_ns)?;
        self.heed()?;
        self.check();
        self.follow_placed();
        self.look_after_guardian()?;
        self.heed()?;
        let memory = self.tracked.tracker().memory();
        self.slow.look(&memory, now_ns);
        self.fetch_requests();
        self.look_at_modules();
        self.heed()?;
        self.look_after_lanes()?;
        self.keep_off_services();
        self.look_at_counters(now_ns);
        self.cost.note();
        self.times.slow_ns = now_ns + if self.times.is_active { SLOW_LOOK_NS } else { IDLE_LOOK_NS };
        Ok(())
    }

    /// Services and containers come and go.
    pub(super) fn look_for_changes(&mut self, now_ns: Nanos) -> Result<()> {
        let changes = self.finder.look(now_ns);
        self.heed()?;
        self.follow(changes)?;
        self.follow_services();
        self.take_waiting()
    }

    /// CPUs go and come, and so do runs that have claimed some.
    fn look_at_cpus(&mut self) -> Result<()> {
        let online = online_cpus().context("cannot read which CPUs are online")?;
        let Some(hands) = &mut self.hands else {
            self.usable = online;
            return Ok(());
        };
        let new = self.owners.claim(&online)?;
        if !new.is_empty() {
            // The new claims' locks are held by a new guardian, too.
            hands.guardian().add(new)?;
            replace_guardian(hands, &self.owners, self.claim.as_ref())?;
            hands.go_on()?;
            self.owners.announce()?;
        }
        self.usable = self.owners.cpus().intersection(&online);
        Ok(())
    }

    /// Who came is looked after, who went is not.
    pub(super) fn follow(&mut self, changes: Changes) -> Result<()> {
        for id in changes.services_gone {
            if let Some(place) = self.tracked.place_of(id) {
                self.drop_service(place)?;
            }
        }
        for id in changes.containers_gone {
            self.waiting.retain(|(container, _)| container.id != id);
            if let Some(place) = self.tracked.place_of_container(&id) {
                self.drop_container(place)?;
            }
        }
        changes.services_grew.into_iter().for_each(|found| self.tracked.grow_service(found));
        changes.services_came.into_iter().for_each(|found| self.add_service(found));
        let now_ns = now_ns();
        self.waiting.extend(changes.containers_came.into_iter().map(|container| (container, now_ns)));
        Ok(())
    }

    pub(super) fn add_service(&mut self, found: FoundService) {
        let name = found.name.clone();
        if let Err(owned) = self.owners.take(Thing::Service(name.clone()), Owner::Policy) {
            return self.failed(owned);
        }
        let lent = self.lanes_beside(&found);
        let added = self.tracked.add_service(found, lent.as_ref().map(|(lanes, lending)| (lanes, *lending)));
        match added {
            Ok(place) => {
                lent.into_iter().for_each(|(lanes, lending)| self.keep_lanes(place, lanes, lending));
                self.note_requests(place, &name);
                self.log_note("came", &format!("service {name} is looked after"));
            }
            Err(error) => self.failed(error),
        }
    }

    /// What of its requests cannot be known.
    fn note_requests(&mut self, place: usize, name: &str) {
        let Some(served) = self.tracked.services.get(place) else { return };
        let why_not = served.measured.why_not().filter(|_| self.metric.needs_requests());
        let unknown = why_not.map(|why| Note::HarmUnknown { service: name.to_owned(), why: why.to_owned() });
        let notes: Vec<Note> = unknown.into_iter().chain(served.measured.elsewhere().cloned()).collect();
        notes.into_iter().for_each(|note| self.note(note));
    }

    pub(super) fn drop_service(&mut self, place: usize) -> Result<()> {
        let kept = self.tracked.services.get(place).and_then(|served| Some(served.kept.as_ref()?.cpus()));
        self.drop_lanes(&kept.unwrap_or_default());
        self.follow_placed();
        let Some(served) = self.tracked.services.remove(place) else { return Ok(()) };
        self.owners.free(&Thing::Service(served.found.name.clone()));
        self.log_note("went", &format!("service {} is looked after no more", served.found.name));
        self.hands.as_mut().map_or(Ok(()), |hands| hands.let_service_go(place))
    }

    /// Takes those containers that are complete by now.
    pub(super) fn take_waiting(&mut self) -> Result<()> {
        for (container, since_ns) in std::mem::take(&mut self.waiting) {
            match self.add_container(&container, now_ns() - since_ns > MAKING_NS) {
                Ok(()) => {}
                Err(TakeError::Incomplete) => self.waiting.push((container, since_ns)),
                Err(error) => self.failed(Error::from(error).context(format!("{} is left alone", container.name))),
            }
        }
        let now_ns = now_ns();
        let again_ns = |since_ns: Nanos| now_ns + (now_ns - since_ns).clamp(WAITING_LOOK_NS, SLOW_LOOK_NS);
        self.times.waiting_ns =
            self.waiting.iter().map(|(_, since_ns)| again_ns(*since_ns)).min().unwrap_or(Nanos::MAX);
        Ok(())
    }

    fn add_container(&mut self, container: &Container, has_waited: bool) -> Result<(), TakeError> {
        let thing = Thing::Group(container.id.path.clone());
        self.owners.take(thing.clone(), Owner::Policy).map_err(Error::from)?;
        let added = self.track_and_take(container, has_waited);
        if added.is_err() {
            self.owners.free(&thing);
        }
        added
    }

    fn track_and_take(&mut self, container: &Container, has_waited: bool) -> Result<(), TakeError> {
        let place = self.tracked.add_container(container.clone())?;
        let taken = self.take(place, container, has_waited);
        let allowed = taken.inspect_err(|_| drop(self.tracked.remove_container(place)))?;
        // Batch may have to stay away: the policy is asked at once.
        self.times.look_ns = 0;
        self.note_means(place, &container.name);
        let name = &container.name;
        self.log_note("came", &format!("container {name} is looked after, on CPUs {allowed} at most"));
        Ok(())
    }

    /// Gets hold of a container that is tracked. Returns the CPUs that it may be given.
    pub(super) fn take(&mut self, place: usize, container: &Container, has_waited: bool) -> Result<CpuSet, TakeError> {
        let services = self.tracked.service_pids();
        let allowed = match &mut self.hands {
            Some(hands) => hands.take(place, container, &services, has_waited)?,
            None => self.usable.clone(),
        };
        if let Some(contained) = self.tracked.containers.get_mut(place) {
            contained.allowed = mask(&allowed);
        }
        Ok(allowed)
    }

    /// Says what cannot be done to a container.
    fn note_means(&mut self, place: usize, name: &str) {
        let Some(hands) = &self.hands else { return };
        let (has_list, can_pause) = (hands.has_list(place), hands.can_pause(place));
        if !hands.lives(place) {
            return;
        }
        if !has_list {
            self.note(Note::NoCpuList { container: name.to_owned() });
        }
        if !can_pause {
            self.note(Note::NoPause { container: name.to_owned() });
        }
    }

    pub(super) fn drop_container(&mut self, place: usize) -> Result<()> {
        let Some(container) = self.tracked.remove_container(place) else { return Ok(()) };
        self.owners.free(&Thing::Group(container.id.path));
        self.log_note("went", &format!("container {} is looked after no more", container.name));
        self.hands.as_mut().map_or(Ok(()), |hands| hands.let_go(place))
    }

    /// Puts right what somebody else has changed.
    fn check(&mut self) {
        match self.hands.as_mut().map_or(Ok(0), Hands::check) {
            Ok(0) => {}
            Ok(writes) => self.diary.repaired += writes as u64,
            Err(error) => self.failed(error),
        }
    }

    /// Who has come to a service that is placed is placed, too.
    pub(super) fn follow_placed(&mut self) {
        let tracked = &self.tracked;
        let followed = self.hands.as_mut().map_or(Ok(()), |hands| hands.follow_placed(&|place| tracked.whose(place)));
        if let Err(error) = followed {
            self.failed(error);
        }
    }

    /// Replaces a guardian that was ended, and lets go on what one has frozen while the agent was stopped.
    pub(super) fn look_after_guardian(&mut self) -> Result<()> {
        let Some(hands) = &mut self.hands else { return Ok(()) };
        if hands.guardian().is_alive() {
            return hands.go_on();
        }
        replace_guardian(hands, &self.owners, self.claim.as_ref())?;
        hands.go_on()?;
        self.note(Note::GuardianEnded);
        Ok(())
    }

    fn fetch_requests(&mut self) {
        let fetch = |served: &mut Served| served.measured.fetch(served.kept.as_mut().map(|kept| &mut kept.terms));
        let fetched: Vec<Result<()>> = self.tracked.services.iter_mut().map(|(_, served)| fetch(served)).collect();
        fetched.into_iter().filter_map(Result::err).for_each(|error| self.failed(error));
        if let Metric::Harm(harm) = &mut self.metric {
            harm.note(self.slow.span(), &self.tracked);
        }
    }

    /// Counters that other programs use, too, see a part of the interference.
    fn look_at_counters(&mut self, now_ns: Nanos) {
        if let Some((cpu, percent)) = self.metric.shared(now_ns) {
            self.diary.notes.retain(|note, _| !matches!(note, Note::CountersShared { .. }));
            self.note(Note::CountersShared { cpu, percent });
        }
    }

    /// Works on CPUs where no service does, if there are any.
    fn keep_off_services(&mut self) {
        let ran = |served: &Served| self.slow.span().ran_on(served.tracking.identity());
        let services = self.tracked.services.iter().map(|(_, served)| ran(served));
        let serving = services.fold(Default::default(), |sum: sidelane_policy::cpus::CpuMask, cpus| sum.or(&cpus));
        let elsewhere: Vec<u32> = self.usable.iter().filter(|cpu| !serving.contains(*cpu as usize)).collect();
        if !elsewhere.is_empty() {
            // One that is refused now is tried again soon.
            let _ = pin_this_thread(&elsewhere);
        }
    }

    pub(super) fn log_note(&mut self, action: &str, why: &str) {
        if let Some(log) = &mut self.log {
            // A log that cannot be written is told of at the next decision.
            let _ = log.note(now_ns(), action, why).and_then(|()| log.drain());
        }
    }
}

/// Starts a guardian that holds all claims and knows all that is to be undone, in place of the one there is or was.
fn replace_guardian(
    hands: &mut Hands,
    owners: &crate::agent::owners::Owners,
    claim: Option<&crate::claim::Claim>,
) -> Result<()> {
    let mut locks = owners.share().context("cannot share the claims")?;
    locks.extend(claim.map(|claim| claim.share()).transpose()?);
    let new = Guardian::start(&locks).context("cannot start the guardian process")?;
    hands.guardian().hand_over_to(new).context("cannot tell the guardian what to undo")
}
