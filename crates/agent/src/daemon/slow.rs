//! The slow check: takes in services, containers and CPUs that came or went, checks all settings, and fetches requests.

use std::os::fd::OwnedFd;

use anyhow::{Context, Error, Result};
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::topology::online_cpus;
use sidelane_policy::Nanos;
use sidelane_policy::cpus::CpuMask;

use super::start::fit;
use super::waiting::Waiting;
use super::{Agent, IDLE_LOOK_NS, MAKING_NS, SLOW_LOOK_NS, Tried, nanos};
use crate::actuator::{Actuator, FoundGroups, TakeError};
use crate::config::MachineConfig;
use crate::discover::{Changes, Container, FoundService, ServiceId};
use crate::helper::{MachineScan, Report};
use crate::interference::InterferenceSource;
use crate::note::{AgentNote, is_of_service, is_of_unseen_requests};
use crate::owners::{Owner, Owners, Thing};
use crate::tracked::AgentService;
use sidelane_diagnostics::log_note::LogNote;
use sidelane_diagnostics::note::Note;
use sidelane_lanes::note::LaneNote;
use sidelane_lanes::service::RequestVisibility;
use sidelane_requests::search::Answer;
use sidelane_rollback::claim::Claim;
use sidelane_rollback::cpu_mask::mask;
use sidelane_rollback::own_threads;

impl Agent {
    pub(super) fn look_around(&mut self, now_ns: Nanos) -> Result<()> {
        self.look_at_cpus();
        self.handle_urgent()?;
        self.helper.look()?;
        self.look_for_requests(now_ns);
        self.take_reports()?;
        self.tracked.reclaim();
        self.keep_births();
        // Modules that had to wait for the end of their predecessors begin now.
        self.follow_services();
        self.take_waiting();
        self.tell_lacks(now_ns);
        self.handle_urgent()?;
        self.check();
        self.follow_placed();
        self.place_awaited();
        self.look_after_guardian();
        self.handle_urgent()?;
        let memory = self.tracked.tracker().memory();
        self.slow.look(&memory, now_ns);
        self.look_at_requests();
        self.look_at_modules();
        self.handle_urgent()?;
        self.look_after_lanes();
        self.look_at_ranks(now_ns);
        self.judge_overlap(now_ns);
        self.look_at_log();
        self.find_measured(now_ns);
        self.keep_off_services();
        self.look_at_counters(now_ns);
        self.usage.note();
        self.times.slow_ns = now_ns + if self.times.is_active { SLOW_LOOK_NS } else { IDLE_LOOK_NS };
        Ok(())
    }

    /// Takes in the reports of the helper thread.
    pub(super) fn take_reports(&mut self) -> Result<()> {
        for report in self.helper.reports() {
            self.take_report(report);
            self.handle_urgent()?;
        }
        Ok(())
    }

    pub(super) fn take_report(&mut self, report: Report) {
        match report {
            Report::Looked(looked) => self.take_looked(*looked),
            Report::Reloaded(reloaded) => self.take_reloaded(*reloaded),
            Report::Requests(answer) => self.take_answer(answer),
        }
    }

    /// Takes in services and containers that came or went.
    fn take_looked(&mut self, looked: MachineScan) {
        let MachineScan { changes, lacks, birthplaces } = looked;
        (self.lacks, self.birthplaces) = (lacks, birthplaces);
        let came = !changes.services_came.is_empty();
        self.follow(changes);
        self.keep_births();
        self.follow_services();
        self.take_waiting();
        self.tell_lacks(now_ns());
        if came {
            self.times.requests_ns = 0;
            self.look_for_requests(now_ns());
        }
    }

    /// Takes in where requests of a service can be seen. A process may listen, or emit, long after it was found, and so
    /// may other processes of its service.
    fn take_answer(&mut self, answer: Answer) {
        let Some(place) = self.tracked.place_of(ServiceId(answer.service)) else { return };
        let Some(served) = self.tracked.services.get_mut(place) else { return };
        let (learned, name) = (served.tracked.take_answer(answer), served.found.name.clone());
        if learned == RequestVisibility::Same {
            return;
        }
        self.stats.notes.retain(|note, _| !is_of_unseen_requests(note, &name));
        self.note_requests(place, &name);
        if learned == RequestVisibility::Seen {
            self.apply_slowdown();
            self.log_note("requests", &format!("requests of service {name} are seen"));
        }
    }

    /// Takes in CPUs that came or went, and CPUs that a `sidelane run` has claimed.
    fn look_at_cpus(&mut self) {
        let read = online_cpus().context("cannot read which CPUs are online");
        match read.and_then(|online| self.use_online(&online)) {
            Ok(()) => self.tried_again.retain(|tried| *tried != Tried::Cpus),
            Err(error) => self.try_again(Tried::Cpus, error),
        }
    }

    /// Begins to use CPUs, once the guardian knows their claims. Otherwise the next check tries again.
    fn use_online(&mut self, online: &CpuSet) -> Result<()> {
        self.look_at_cores(online);
        let Some(actuator) = &mut self.actuator else {
            self.usable = online.clone();
            return Ok(());
        };
        // CPUs that are gone are not used any more, whatever fails below.
        self.usable = self.usable.intersection(online);
        self.guarded = self.guarded.intersection(&self.owners.cpus());
        let claimed = self.owners.claim(online);
        let is_new = |cpu: &u32| !self.guarded.contains(*cpu);
        let new: CpuSet = self.owners.cpus().iter().filter(is_new).collect();
        if !new.is_empty() {
            // A new guardian holds the locks of the new claims, too.
            actuator.replace_guardian(locks(&self.owners, self.claim.as_ref())?)?;
            actuator.guardian().add(self.owners.undo_of(&new))?;
            self.guarded = self.guarded.union(&new);
            self.owners.announce()?;
        }
        self.usable = self.owners.cpus().intersection(online).intersection(&self.guarded);
        claimed.map(drop).map_err(Error::from)
    }

    /// Notes once that a step failed. The next check tries it again.
    fn try_again(&mut self, what: Tried, error: Error) {
        if !self.tried_again.contains(&what) {
            self.tried_again.push(what);
            self.failed(error.context("cannot apply the file completely; the agent tries again"));
        }
    }

    /// Takes in CPUs that come online: their counters are opened, and they may be siblings of other CPUs.
    fn look_at_cores(&mut self, online: &CpuSet) {
        let came = online.difference(&self.online);
        self.online = online.clone();
        if came.is_empty() {
            return;
        }
        let counted = self.interference.count_on(&came);
        counted.unwrap_or_else(|error| self.failed(error));
        self.beside_batch = None;
        match fit(&self.config, self.running_told()) {
            Ok(here) if here.cores != self.here.cores => self.have_other_cores(here),
            Ok(here) => self.here.online = here.online,
            Err(error) => self.failed(error),
        }
    }

    /// Starts the policy again, because the siblings that it knows have changed.
    fn have_other_cores(&mut self, here: MachineConfig) {
        let (sizes, notes) = (self.here.sizes.take(), std::mem::take(&mut self.here.notes));
        self.here = MachineConfig { sizes, notes, ..here };
        self.begin_policy();
        self.have_cores();
        self.log_note("cores", &format!("CPUs {} are online now, or cores have changed", self.online));
    }

    /// Manages services and containers that came, and releases those that went.
    pub(super) fn follow(&mut self, changes: Changes) {
        for id in changes.services_gone {
            let is_it = |waiting: &Waiting<FoundService>| waiting.what.id == id;
            for waiting in self.left_alone.extract_if(.., |waiting| is_it(waiting)).collect::<Vec<_>>() {
                self.forget_about(&waiting.what.name);
            }
            if let Some(place) = self.tracked.place_of(id) {
                self.drop_service(place);
            }
        }
        for found in changes.services_grew {
            match self.left_alone.iter_mut().find(|waiting| waiting.what.id == found.id) {
                Some(waiting) => waiting.what = found,
                None => self.tracked.grow_service(found),
            }
        }
        let now_ns = now_ns();
        let mut came: Vec<Waiting<FoundService>> =
            changes.services_came.into_iter().map(|found| Waiting::since(found, now_ns)).collect();
        came.sort_by_key(|waiting| waiting.what.rank());
        came.into_iter().for_each(|waiting| self.add_or_wait(waiting));
        self.follow_containers(changes.containers_came, changes.containers_gone);
        self.tracked.reclaim();
        self.note_left_out();
    }

    /// Adds a service, or keeps it for later if it cannot be managed now.
    fn add_or_wait(&mut self, mut waiting: Waiting<FoundService>) {
        if !self.tracked.services.has_room() {
            waiting.has_no_place(now_ns());
            return self.left_alone.push(waiting);
        }
        let name = waiting.what.name.clone();
        match self.add_service(waiting.what.clone()) {
            Ok(()) => self.forget_about(&name),
            Err(error) => {
                self.failed_with(&name, error);
                waiting.was_refused(now_ns());
                self.left_alone.push(waiting);
            }
        }
    }

    fn add_service(&mut self, found: FoundService) -> Result<()> {
        let name = found.name.clone();
        let thing = Thing::Service(name.clone());
        self.owners.take(thing.clone(), Owner::Policy)?;
        let lent = self.lanes_beside(&found);
        let added = self.tracked.add_service(found, lent.as_ref().map(|(lanes, lending)| (lanes, *lending)));
        let place = added.inspect_err(|_| self.owners.free(&thing))?;
        lent.into_iter().for_each(|(lanes, lending)| self.keep_lanes(place, lanes, lending));
        self.log_note("came", &format!("service {name} was added"));
        Ok(())
    }

    /// Notes why interference with a service is unknown, and another place where it may take requests.
    fn note_requests(&mut self, place: usize, name: &str) {
        let Some(served) = self.tracked.services.get(place) else { return };
        let why_not = served.without_figures().filter(|_| self.interference.needs_requests());
        let unknown =
            why_not.map(|why| AgentNote::InterferenceUnknown { service: name.to_owned(), why: why.to_owned() });
        let elsewhere = served.tracked.requests.elsewhere.clone();
        unknown.into_iter().for_each(|note| self.note(note));
        elsewhere.into_iter().for_each(|note| self.note(note));
    }

    pub(super) fn drop_service(&mut self, place: usize) {
        let kept = self.tracked.services.get(place).and_then(|served| Some(served.tracked.kept.as_ref()?.cpus()));
        self.drop_lanes(&kept.unwrap_or_default());
        self.follow_placed();
        let Some(served) = self.tracked.services.remove(place) else { return };
        self.tracked.services.iter_mut().for_each(|(_, served)| served.has_moved = true);
        let name = &served.found.name;
        self.owners.free(&Thing::Service(name.clone()));
        self.stats.notes.retain(|note, _| !is_of_service(note, name));
        self.forget_about(name);
        self.log_note("went", &format!("service {} was removed", served.found.name));
        let let_go = self.actuator.as_mut().map_or(Ok(()), |actuator| actuator.let_service_go(place));
        let_go.unwrap_or_else(|error| self.failed(error));
    }

    /// Takes in containers that are complete now, and containers and services that failed before.
    pub(super) fn take_waiting(&mut self) {
        for mut waiting in std::mem::take(&mut self.waiting) {
            let now_ns = now_ns();
            if !waiting.is_due(now_ns) {
                self.waiting.push(waiting);
                continue;
            }
            match self.add_container(&waiting.what, now_ns - waiting.since_ns > MAKING_NS) {
                Ok(()) => continue,
                Err(TakeError::Incomplete) => {
                    waiting.is_incomplete(now_ns);
                    self.note_incomplete(&waiting);
                }
                Err(error) => {
                    let what = format!("cannot manage {} now", waiting.what.name);
                    self.failed_with(&waiting.what.name, Error::from(error).context(what));
                    waiting.was_refused(now_ns);
                }
            }
            self.waiting.push(waiting);
        }
        self.left_alone.sort_by_key(|waiting| waiting.what.rank());
        for waiting in std::mem::take(&mut self.left_alone) {
            match waiting.is_due(now_ns()) {
                true => self.add_or_wait(waiting),
                false => self.left_alone.push(waiting),
            }
        }
        self.note_left_out();
        let due = self.waiting.iter().map(|waiting| waiting.due_ns);
        let due = due.chain(self.left_alone.iter().map(|waiting| waiting.due_ns));
        self.times.waiting_ns = due.min().unwrap_or(Nanos::MAX);
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
        let found = self.find(container, has_waited)?;
        let place = self.tracked.add_container(container.clone())?;
        let taken = self.take(place, found);
        let allowed = taken.inspect_err(|_| drop(self.tracked.remove_container(place)))?;
        self.has_taken(place, container, &allowed);
        Ok(())
    }

    /// Finds the cgroups of a container; `None` if the agent only prints what it would do.
    pub(super) fn find(&mut self, container: &Container, has_waited: bool) -> Result<Option<FoundGroups>, TakeError> {
        let services = self.tracked.pids_of_grouped_services();
        self.actuator.as_mut().map(|actuator| actuator.find(container, &services, has_waited)).transpose()
    }

    /// Begins to manage a container that is tracked. Returns the CPUs that it may be given.
    pub(super) fn take(&mut self, place: usize, found: Option<FoundGroups>) -> Result<CpuSet, TakeError> {
        let allowed = match self.actuator.as_mut().zip(found) {
            Some((actuator, found)) => actuator.take(place, found)?,
            None => self.usable.clone(),
        };
        if let Some(contained) = self.tracked.containers.get_mut(place) {
            contained.allowed = mask(&allowed);
        }
        Ok(allowed)
    }

    /// Notes which settings of a container the agent cannot change.
    pub(super) fn note_means(&mut self, place: usize, name: &str) {
        let Some(actuator) = &self.actuator else { return };
        let has_list = actuator.has_list(place);
        if !actuator.lives(place) {
            return;
        }
        if !has_list {
            self.note_about(name, AgentNote::NoCpuList { container: name.to_owned() });
        }
        self.report_pausable();
    }

    pub(super) fn drop_container(&mut self, place: usize) {
        let Some(container) = self.tracked.remove_container(place) else { return };
        self.owners.free(&Thing::Group(container.id.path));
        self.forget_about(&container.name);
        self.log_note("went", &format!("container {} was removed", container.name));
        let let_go = self.actuator.as_mut().map_or(Ok(()), |actuator| actuator.let_go(place));
        // A cgroup that its owner has narrowed since cannot be restored. The other cgroups are managed as before.
        let_go.unwrap_or_else(|error| self.failed(error));
    }

    /// Restores settings that other processes have changed.
    pub(super) fn check(&mut self) {
        let (changes, failed) = self.actuator.as_mut().map_or_else(Default::default, Actuator::check);
        self.stats.repaired += changes as u64;
        failed.into_iter().for_each(|error| self.failed(error));
        self.have_other_bounds();
        self.report_pausable();
    }

    /// Places new processes of placed services.
    pub(super) fn follow_placed(&mut self) {
        let tracked = &self.tracked;
        let followed =
            self.actuator.as_mut().map_or(Ok(()), |actuator| actuator.follow_placed(&|place| tracked.whose(place)));
        if let Err(error) = followed {
            self.failed(error);
        }
    }

    /// Places services whose threads another process has moved, when that process has ended.
    fn place_awaited(&mut self) {
        let tracked = &self.tracked;
        let placed = self
            .actuator
            .as_mut()
            .map_or(Ok(Vec::new()), |actuator| actuator.place_awaited(&|place| tracked.whose(place)));
        for place in placed.unwrap_or_else(|error| {
            self.failed(error);
            Vec::new()
        }) {
            let Some(served) = self.tracked.services.get_mut(place) else { continue };
            served.has_moved = true;
            let name = served.found.name.clone();
            let is_over = |note: &AgentNote| matches!(note, AgentNote::NotPlaced { service, .. } if *service == name);
            self.stats.notes.retain(|note, _| !note.is(is_over));
            self.log_note(
                "placed",
                &format!(
                    "service {name} is placed, since no other process moves its threads any \
                                              more"
                ),
            );
        }
    }

    /// Replaces a guardian that has ended, and thaws containers that a guardian has frozen while the agent was stopped.
    pub(super) fn look_after_guardian(&mut self) {
        let Some(actuator) = &mut self.actuator else { return };
        let has_ended = !actuator.guardian().is_alive();
        if actuator.need_a_guardian() {
            let locks = locks(&self.owners, self.claim.as_ref());
            let replaced = locks.and_then(|locks| actuator.replace_guardian(locks));
            if let Err(error) = replaced {
                // A start may fail without memory for a process, for example. The agent can still undo its own changes
                // itself.
                return self.try_again(Tried::Guardian, error);
            }
            self.tried_again.retain(|tried| *tried != Tried::Guardian);
        }
        let Some(actuator) = &mut self.actuator else { return };
        let goes_on = actuator.go_on();
        match goes_on {
            Ok(false) => {}
            Ok(true) => self.promises.was_stopped(now_ns()),
            Err(error) => self.failed(error),
        }
        if has_ended {
            self.note(LaneNote::GuardianEnded);
        }
    }

    /// Asks the helper where requests can be seen.
    fn look_for_requests(&mut self, now_ns: Nanos) {
        if now_ns < self.times.requests_ns {
            return;
        }
        self.times.requests_ns = now_ns + nanos(self.config.intervals.processes);
        self.tracked.reclaim();
        self.helper.ask(
            self.tracked.services.iter().filter_map(|(_, served)| served.tracked.question(served.found.id.0)).collect(),
        );
    }

    /// Fetches requests that have finished.
    pub(super) fn fetch_requests(&mut self) {
        let Self { tracked, slowdown, .. } = self;
        let mut fetch = |served: &mut AgentService| {
            let id = served.found.id.0;
            served.fetch_requests(|request| {
                slowdown.iter_mut().for_each(|slowdown| slowdown.finished(id, request));
            })
        };
        let fetched: Vec<Result<()>> = tracked.services.iter_mut().map(|(_, served)| fetch(served)).collect();
        fetched.into_iter().filter_map(Result::err).for_each(|error| self.failed(error));
    }

    /// Takes in the durations of requests since the last check.
    fn look_at_requests(&mut self) {
        self.fetch_requests();
        self.tracked.services.iter_mut().for_each(|(_, served)| served.figures.look());
        if let InterferenceSource::Latency(rise) = &mut self.interference {
            rise.note(self.slow.span(), &self.tracked);
        }
        self.note_silence();
    }

    /// Notes services for which the rise in latency has been unknown for many requests, and why.
    fn note_silence(&mut self) {
        let InterferenceSource::Latency(rise) = &self.interference else { return };
        let silence = |served: &AgentService| {
            Some((rise.silence(served.tracked.tracking.number().get())?, served.found.name.clone()))
        };
        let services = self.tracked.services.iter().filter_map(|(_, served)| silence(served));
        let silent: Vec<Note> =
            services.map(|(silence, service)| AgentNote::of_silence(silence, service).into()).collect();
        self.stats.notes.retain(|note, _| !note.is(AgentNote::is_of_silence) || silent.contains(note));
        let new: Vec<Note> = silent.into_iter().filter(|note| !self.stats.notes.contains_key(note)).collect();
        new.into_iter().for_each(|note| self.note(note));
    }

    /// Notes counters that other programs use too: they show only a part of the interference.
    fn look_at_counters(&mut self, now_ns: Nanos) {
        if let Some((cpu, percent)) = self.interference.shared(now_ns) {
            self.stats.notes.retain(|note, _| !note.is(|note| matches!(note, AgentNote::CountersShared { .. })));
            self.note(AgentNote::CountersShared { cpu, percent });
        }
    }

    /// Moves this thread to CPUs where no service works, if there are any.
    fn keep_off_services(&mut self) {
        let (mut allowed, mut ran) = (CpuMask::EMPTY, CpuMask::EMPTY);
        for (_, served) in self.tracked.services.iter() {
            allowed = allowed.or(&served.allowed);
            ran = ran.or(&self.slow.span().ran_on(served.tracked.tracking.identity()));
        }
        own_threads::direct(&self.usable, &allowed, &ran);
    }

    pub(super) fn log_note(&mut self, action: &str, why: &str) {
        self.log.iter().for_each(|log| log.note(now_ns(), action, why));
    }

    /// Writes the audit log, and notes lost lines. A failure never ends the agent.
    fn look_at_log(&mut self) {
        let Some(log) = &self.log else { return };
        log.drain();
        // Only the first note reports that the log fails. Afterwards status and metrics contain the number of lost
        // lines.
        let now = LogNote::of_audit(log.path(), &log.state()).next().map(Note::from);
        self.stats.notes.retain(|note, _| !note.is(LogNote::is_of_audit) || Some(note) == now.as_ref());
        if let Some(new) = now.filter(|note| !self.stats.notes.contains_key(note)) {
            self.note(new);
        }
    }
}

/// Returns duplicates of the descriptors that hold the agent's claims, for another guardian.
fn locks(owners: &Owners, claim: Option<&Claim>) -> Result<Vec<OwnedFd>> {
    let mut locks = owners.share().context("cannot pass the claims on to the guardian")?;
    locks.extend(claim.map(Claim::share).transpose()?);
    Ok(locks)
}
