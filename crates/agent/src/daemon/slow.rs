//! The slow check: takes in services, containers and CPUs that came or went, checks all settings, and fetches requests.

use std::os::fd::OwnedFd;

use anyhow::{Context, Error, Result};
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::topology::online_cpus;
use sidelane_policy::Nanos;
use sidelane_policy::cpus::CpuMask;

use super::start::fit_to_machine;
use super::waiting::Waiting;
use super::{Agent, IDLE_LOOK_NS, MAKING_NS, SLOW_LOOK_NS, Tried, nanos};
use crate::actuator::{Actuator, FoundGroups, TakeError};
use crate::config::MachineConfig;
use crate::discover::{Changes, Container, FoundService, ServiceId};
use crate::helper::{MachineScan, Report};
use crate::interference::InterferenceSource;
use crate::note::{AgentNote, is_about_service, is_about_unseen_requests};
use crate::owners::{Owner, Owners, Resource};
use crate::tracked::AgentService;
use sidelane_diagnostics::log_note::LogNote;
use sidelane_diagnostics::note::Note;
use sidelane_lanes::note::LaneNote;
use sidelane_lanes::service::RequestVisibility;
use sidelane_requests::search::SearchAnswer;
use sidelane_rollback::claim::Claim;
use sidelane_rollback::own_threads;

impl Agent {
    pub(super) fn run_slow_check(&mut self, now_ns: Nanos) -> Result<()> {
        self.update_cpus();
        self.handle_urgent()?;
        self.helper.order_scan()?;
        self.order_due_request_search(now_ns);
        self.take_reports()?;
        self.tracked.reclassify_batch();
        self.confine_new_batch();
        // Modules that had to wait for the end of their predecessors begin now.
        self.update_service_modules();
        self.retry_waiting();
        self.note_discovery_problems(now_ns);
        self.handle_urgent()?;
        self.restore_changed_settings();
        self.place_new_processes();
        self.place_waiting_services();
        self.replace_ended_guardian();
        self.handle_urgent()?;
        let memory = self.tracked.tracker().memory();
        self.slow.sample(&memory, now_ns);
        self.process_new_requests();
        self.report_module_events();
        self.handle_urgent()?;
        self.maintain_lanes();
        self.observe_services();
        self.check_outranking_batch(now_ns);
        self.judge_overlap(now_ns);
        self.update_offers(now_ns);
        self.flush_log();
        self.choose_measured_services(now_ns);
        self.move_thread_off_services();
        self.note_shared_counters(now_ns);
        self.usage.end_period();
        let (services, containers) = (self.tracked.services.iter().count(), self.tracked.containers.iter().count());
        let status = || format!("{services} service(s), {containers} batch container(s)");
        self.manager.report_life(now_ns, status);
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
            Report::Scanned(looked) => self.handle_scan(*looked),
            Report::Reloaded(reloaded) => self.apply_reloaded_scan(*reloaded),
            Report::Requests(answer) => self.handle_request_search_answer(answer),
        }
    }

    /// Takes in services and containers that came or went.
    fn handle_scan(&mut self, scan: MachineScan) {
        let MachineScan { changes, lacks, new_batch_groups: birthplaces } = scan;
        (self.lacks, self.new_batch_groups) = (lacks, birthplaces);
        let came = !changes.services_came.is_empty();
        self.apply_changes(changes);
        self.confine_new_batch();
        self.update_service_modules();
        self.retry_waiting();
        self.note_discovery_problems(now_ns());
        self.announce();
        if came {
            self.times.requests_ns = 0;
            self.order_due_request_search(now_ns());
        }
    }

    /// Applies the helper's answer on where requests of a service can be observed. The answer may change later, when a
    /// process of the service begins to listen or to emit requests.
    fn handle_request_search_answer(&mut self, answer: SearchAnswer) {
        let Some(place) = self.tracked.slot_of(ServiceId(answer.service)) else { return };
        let Some(served) = self.tracked.services.get_mut(place) else { return };
        let (learned, name) = (served.tracked.apply_search_answer(answer), served.found.name.clone());
        if learned == RequestVisibility::Same {
            return;
        }
        self.stats.notes.retain(|note, _| !is_about_unseen_requests(note, &name));
        self.note_request_visibility(place, &name);
        if learned == RequestVisibility::Seen {
            self.apply_slowdown_measurement();
            self.log_note("requests", &format!("requests of service {name} are seen"));
        }
    }

    /// Takes in CPUs that came or went, and CPUs that a `sidelane run` has claimed.
    fn update_cpus(&mut self) {
        let read = online_cpus().context("cannot read which CPUs are online");
        match read.and_then(|online| self.claim_online_cpus(&online)) {
            Ok(()) => self.tried_again.retain(|tried| *tried != Tried::Cpus),
            Err(error) => self.note_retried_step(Tried::Cpus, error),
        }
    }

    /// Begins to use CPUs, once the guardian knows their claims. Otherwise the next check tries again.
    fn claim_online_cpus(&mut self, online: &CpuSet) -> Result<()> {
        self.add_new_cores(online);
        let Some(actuator) = &mut self.actuator else {
            self.usable = online.clone();
            return Ok(());
        };
        // CPUs that are gone are not used any more, whatever fails below.
        self.usable = self.usable.intersection(online);
        self.guarded = self.guarded.intersection(&self.owners.claimed_cpus());
        let claimed = self.owners.claim(online);
        let is_new = |cpu: &u32| !self.guarded.contains(*cpu);
        let new: CpuSet = self.owners.claimed_cpus().iter().filter(is_new).collect();
        if !new.is_empty() {
            // A new guardian holds the locks of the new claims, too.
            actuator.replace_guardian(duplicate_claim_locks(&self.owners, self.claim.as_ref())?)?;
            actuator.guardian().add(self.owners.undo_entries(&new))?;
            self.guarded = self.guarded.union(&new);
            self.owners.announce_claims()?;
        }
        self.usable = self.owners.claimed_cpus().intersection(online).intersection(&self.guarded);
        claimed.map(drop).map_err(Error::from)
    }

    /// Adds a note that a step failed, but only at its first failure. The next check tries the step again.
    fn note_retried_step(&mut self, step: Tried, error: Error) {
        if !self.tried_again.contains(&step) {
            self.tried_again.push(step);
            self.note_error(error.context("cannot apply the file completely; the agent tries again"));
        }
    }

    /// Takes in CPUs that come online: their counters are opened, and they may be siblings of other CPUs.
    fn add_new_cores(&mut self, online: &CpuSet) {
        let came = online.difference(&self.online);
        self.online = online.clone();
        if came.is_empty() {
            return;
        }
        let counted = self.interference.open_counters(&came);
        counted.unwrap_or_else(|error| self.note_error(error));
        self.beside_batch = None;
        match fit_to_machine(&self.config, self.running_source()) {
            Ok(here) if here.cores != self.here.cores => self.restart_with_cores(here),
            Ok(here) => self.here.online = here.online,
            Err(error) => self.note_error(error),
        }
    }

    /// Starts the policy again, because the siblings that it knows have changed.
    fn restart_with_cores(&mut self, here: MachineConfig) {
        let (sizes, notes) = (self.here.sizes.take(), std::mem::take(&mut self.here.notes));
        self.here = MachineConfig { sizes, notes, ..here };
        self.begin_policy();
        self.apply_new_cores();
        self.log_note("cores", &format!("CPUs {} are online now, or cores have changed", self.online));
    }

    /// Manages services and containers that came, and releases those that went.
    pub(super) fn apply_changes(&mut self, changes: Changes) {
        for id in changes.services_gone {
            let is_it = |waiting: &Waiting<FoundService>| waiting.item.id == id;
            for waiting in self.left_alone.extract_if(.., |waiting| is_it(waiting)).collect::<Vec<_>>() {
                self.remove_notes_about(&waiting.item.name);
            }
            if let Some(place) = self.tracked.slot_of(id) {
                self.drop_service(place);
            }
        }
        for found in changes.services_grew {
            match self.left_alone.iter_mut().find(|waiting| waiting.item.id == found.id) {
                Some(waiting) => waiting.item = found,
                None => self.update_service(found),
            }
        }
        let now_ns = now_ns();
        let mut came: Vec<Waiting<FoundService>> =
            changes.services_came.into_iter().map(|found| Waiting::due_now(found, now_ns)).collect();
        came.sort_by_key(|waiting| waiting.item.sort_key());
        came.into_iter().for_each(|waiting| self.add_service_or_wait(waiting));
        self.update_containers(changes.containers_came, changes.containers_gone);
        for container in changes.containers_changed {
            self.update_lanes_of(container);
        }
        self.tracked.reclassify_batch();
        self.note_services_without_slot();
    }

    /// Takes in new processes of a service, and another objective by annotation.
    fn update_service(&mut self, found: FoundService) {
        let asked = self.wants_requests();
        let Some(slot) = self.tracked.slot_of(found.id) else { return };
        let Some(served) = self.tracked.services.get_mut(slot) else { return };
        let slo = found.settings.slo;
        let is_new_objective = served.found.settings.slo != slo;
        if served.found.settings != found.settings {
            served.apply_settings(found.clone(), asked);
        }
        self.tracked.add_processes(found);
        if is_new_objective {
            self.restart_keepers(slot, slo);
        }
    }

    /// Adds a service, or keeps it for later if it cannot be managed now.
    fn add_service_or_wait(&mut self, mut waiting: Waiting<FoundService>) {
        if !self.tracked.services.has_room() {
            waiting.schedule_after_lack_of_slots(now_ns());
            return self.left_alone.push(waiting);
        }
        let name = waiting.item.name.clone();
        match self.add_service(waiting.item.clone()) {
            Ok(()) => self.remove_notes_about(&name),
            Err(error) => {
                self.note_error_about(&name, error);
                waiting.schedule_after_refusal(now_ns());
                self.left_alone.push(waiting);
            }
        }
    }

    fn add_service(&mut self, found: FoundService) -> Result<()> {
        let name = found.name.clone();
        let thing = Resource::Service(name.clone());
        self.owners.assign(thing.clone(), Owner::Policy)?;
        let lent = self.lanes_beside(&found);
        let added = self.tracked.add_service(found, lent.as_ref().map(|(lanes, lending)| (lanes, *lending)));
        let place = added.inspect_err(|_| self.owners.free(&thing))?;
        lent.into_iter().for_each(|(lanes, lending)| self.start_keepers(place, lanes, lending));
        if self.observers.is_some() {
            self.tracked.services.iter_mut().for_each(|(_, served)| served.has_moved = true);
        }
        self.log_note("came", &format!("service {name} was added"));
        Ok(())
    }

    /// Notes why interference with a service is unknown, and whether the service may take further requests where they
    /// are not observed.
    fn note_request_visibility(&mut self, slot: usize, name: &str) {
        let Some(served) = self.tracked.services.get(slot) else { return };
        let why_not = served.why_no_request_figures().filter(|_| self.interference.needs_requests());
        let unknown =
            why_not.map(|why| AgentNote::InterferenceUnknown { service: name.to_owned(), why: why.to_owned() });
        let elsewhere = served.tracked.requests.elsewhere.clone();
        unknown.into_iter().for_each(|note| self.note(note));
        elsewhere.into_iter().for_each(|note| self.note(note));
    }

    pub(super) fn drop_service(&mut self, slot: usize) {
        let kept =
            self.tracked.services.get(slot).and_then(|served| Some(served.tracked.kept.as_ref()?.lanes_with_keepers()));
        self.drop_lanes(&kept.unwrap_or_default());
        self.place_new_processes();
        let Some(served) = self.tracked.services.remove(slot) else { return };
        self.tracked.services.iter_mut().for_each(|(_, served)| served.has_moved = true);
        let name = &served.found.name;
        self.owners.free(&Resource::Service(name.clone()));
        self.stats.notes.retain(|note, _| !is_about_service(note, name));
        self.remove_notes_about(name);
        self.log_note("went", &format!("service {} was removed", served.found.name));
        let let_go = self.actuator.as_mut().map_or(Ok(()), |actuator| actuator.release_service(slot));
        let_go.unwrap_or_else(|error| self.note_error(error));
    }

    /// Manages containers that are complete now, and tries containers and services again that failed before.
    pub(super) fn retry_waiting(&mut self) {
        for mut waiting in std::mem::take(&mut self.waiting) {
            let now_ns = now_ns();
            if !waiting.is_due(now_ns) {
                self.waiting.push(waiting);
                continue;
            }
            match self.add_container(&waiting.item, now_ns - waiting.since_ns > MAKING_NS) {
                Ok(()) => continue,
                Err(TakeError::Incomplete) => {
                    waiting.schedule_after_incomplete(now_ns);
                    self.note_incomplete(&waiting);
                }
                Err(error) => {
                    let what = format!("cannot manage {} now", waiting.item.name);
                    self.note_error_about(&waiting.item.name, Error::from(error).context(what));
                    waiting.schedule_after_refusal(now_ns);
                }
            }
            self.waiting.push(waiting);
        }
        self.left_alone.sort_by_key(|waiting| waiting.item.sort_key());
        for waiting in std::mem::take(&mut self.left_alone) {
            match waiting.is_due(now_ns()) {
                true => self.add_service_or_wait(waiting),
                false => self.left_alone.push(waiting),
            }
        }
        self.note_services_without_slot();
        let due = self.waiting.iter().map(|waiting| waiting.due_ns);
        let due = due.chain(self.left_alone.iter().map(|waiting| waiting.due_ns));
        self.times.waiting_ns = due.min().unwrap_or(Nanos::MAX);
    }

    fn add_container(&mut self, container: &Container, has_waited: bool) -> Result<(), TakeError> {
        let thing = Resource::Group(container.id.path.clone());
        self.owners.assign(thing.clone(), Owner::Policy).map_err(Error::from)?;
        let added = self.track_and_manage_container(container, has_waited);
        if added.is_err() {
            self.owners.free(&thing);
        }
        added
    }

    fn track_and_manage_container(&mut self, container: &Container, has_waited: bool) -> Result<(), TakeError> {
        let found = self.find_groups(container, has_waited)?;
        let place = self.tracked.add_container(container.clone())?;
        let taken = self.manage_container(place, found);
        let allowed = taken.inspect_err(|_| drop(self.tracked.remove_container(place)))?;
        self.record_managed_container(place, container, &allowed);
        Ok(())
    }

    /// Finds the cgroups of a container; `None` if the agent only prints what it would do.
    pub(super) fn find_groups(
        &mut self,
        container: &Container,
        has_waited: bool,
    ) -> Result<Option<FoundGroups>, TakeError> {
        let services = self.tracked.pids_of_grouped_services();
        self.actuator.as_mut().map(|actuator| actuator.find_groups(container, &services, has_waited)).transpose()
    }

    /// Begins to manage a container that is tracked. Returns the CPUs that it may be given.
    pub(super) fn manage_container(&mut self, slot: usize, found: Option<FoundGroups>) -> Result<CpuSet, TakeError> {
        let allowed = match self.actuator.as_mut().zip(found) {
            Some((actuator, found)) => actuator.manage_container(slot, found)?,
            None => self.usable.clone(),
        };
        if let Some(contained) = self.tracked.containers.get_mut(slot) {
            contained.set_bounds(allowed.clone());
        }
        self.follow_kubelet(slot);
        Ok(allowed)
    }

    /// Notes if the container's cgroup has no list of CPUs, or if the container cannot be paused.
    pub(super) fn note_missing_controls(&mut self, slot: usize, name: &str) {
        let Some(actuator) = &self.actuator else { return };
        let has_list = actuator.has_cpuset(slot);
        if !actuator.has_live_process(slot) {
            return;
        }
        if !has_list {
            self.note_about(name, AgentNote::NoCpuList { container: name.to_owned() });
        }
        self.report_pausable();
    }

    pub(super) fn drop_container(&mut self, slot: usize) {
        let Some(container) = self.tracked.remove_container(slot) else { return };
        self.owners.free(&Resource::Group(container.id.path));
        self.remove_notes_about(&container.name);
        self.log_note("went", &format!("container {} was removed", container.name));
        let let_go = self.actuator.as_mut().map_or(Ok(()), |actuator| actuator.release_container(slot));
        // The CPU list of a cgroup cannot be restored if its owner has narrowed it. All other cgroups stay managed.
        let_go.unwrap_or_else(|error| self.note_error(error));
    }

    /// Restores settings that other processes have changed.
    pub(super) fn restore_changed_settings(&mut self) {
        self.take_kubelets_lists();
        let (changes, failed) =
            self.actuator.as_mut().map_or_else(Default::default, Actuator::restore_changed_settings);
        self.stats.repaired += changes as u64;
        failed.into_iter().for_each(|error| self.note_error(error));
        self.update_allowed_cpus();
        self.report_pausable();
    }

    /// Places new processes of placed services.
    pub(super) fn place_new_processes(&mut self) {
        let tracked = &self.tracked;
        let followed = self
            .actuator
            .as_mut()
            .map_or(Ok(()), |actuator| actuator.place_new_processes(&|place| tracked.thread_owner(place)));
        if let Err(error) = followed {
            self.note_error(error);
        }
    }

    /// Places services whose threads another process has moved, when that process has ended.
    fn place_waiting_services(&mut self) {
        let tracked = &self.tracked;
        let placed = self
            .actuator
            .as_mut()
            .map_or(Ok(Vec::new()), |actuator| actuator.place_waiting_services(&|place| tracked.thread_owner(place)));
        for place in placed.unwrap_or_else(|error| {
            self.note_error(error);
            Vec::new()
        }) {
            let Some(served) = self.tracked.services.get_mut(place) else { continue };
            served.has_moved = true;
            let name = served.found.name.clone();
            let is_over = |note: &AgentNote| matches!(note, AgentNote::NotPlaced { service, .. } if *service == name);
            self.stats.notes.retain(|note, _| !note.matches(is_over));
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
    pub(super) fn replace_ended_guardian(&mut self) {
        let Some(actuator) = &mut self.actuator else { return };
        let has_ended = !actuator.guardian().is_alive();
        if actuator.need_a_guardian() {
            let locks = duplicate_claim_locks(&self.owners, self.claim.as_ref());
            let replaced = locks.and_then(|locks| actuator.replace_guardian(locks));
            if let Err(error) = replaced {
                // The start of a guardian may fail, for example without memory for a process. Without a guardian, the
                // agent can still undo its changes itself.
                return self.note_retried_step(Tried::Guardian, error);
            }
            self.tried_again.retain(|tried| *tried != Tried::Guardian);
        }
        let Some(actuator) = &mut self.actuator else { return };
        let goes_on = actuator.thaw_after_stop();
        match goes_on {
            Ok(false) => {}
            Ok(true) => self.promises.record_agent_stop(now_ns()),
            Err(error) => self.note_error(error),
        }
        if has_ended {
            self.note(LaneNote::GuardianEnded);
        }
    }

    /// Orders the helper to search for places where services' requests can be observed, if a search is due.
    fn order_due_request_search(&mut self, now_ns: Nanos) {
        if now_ns < self.times.requests_ns {
            return;
        }
        self.times.requests_ns = now_ns + nanos(self.config.intervals.processes);
        self.tracked.reclassify_batch();
        self.helper.order_request_search(
            self.tracked
                .services
                .iter()
                .filter_map(|(_, served)| served.tracked.search_question(served.found.id.0))
                .collect(),
        );
    }

    /// Fetches requests that have finished.
    pub(super) fn fetch_requests(&mut self) {
        let Self { tracked, slowdown, observers, .. } = self;
        let mut fetch = |served: &mut AgentService| {
            let id = served.found.id;
            served.fetch_requests(|request| {
                slowdown.iter_mut().for_each(|slowdown| slowdown.record_request(id.0, request));
                observers.iter_mut().for_each(|observers| observers.record_request(id, request));
            })
        };
        let fetched: Vec<Result<()>> = tracked.services.iter_mut().map(|(_, served)| fetch(served)).collect();
        fetched.into_iter().filter_map(Result::err).for_each(|error| self.note_error(error));
    }

    /// Fetches the requests since the last check, and updates figures and the rise in latency by their durations.
    fn process_new_requests(&mut self) {
        self.fetch_requests();
        self.tracked.services.iter_mut().for_each(|(_, served)| served.figures.begin_check());
        if let InterferenceSource::Latency(rise) = &mut self.interference {
            rise.add_span(self.slow.span(), &self.tracked);
        }
        self.note_unknown_interference();
    }

    /// Adds a note for each service whose rise in latency has been unknown for many requests, with the reason.
    fn note_unknown_interference(&mut self) {
        let InterferenceSource::Latency(rise) = &self.interference else { return };
        let silence = |served: &AgentService| {
            Some((rise.why_unknown(served.tracked.tracking.number().get())?, served.found.name.clone()))
        };
        let services = self.tracked.services.iter().filter_map(|(_, served)| silence(served));
        let silent: Vec<Note> =
            services.map(|(silence, service)| AgentNote::unknown_interference(silence, service).into()).collect();
        self.stats.notes.retain(|note, _| !note.matches(AgentNote::is_unknown_interference) || silent.contains(note));
        let new: Vec<Note> = silent.into_iter().filter(|note| !self.stats.notes.contains_key(note)).collect();
        new.into_iter().for_each(|note| self.note(note));
    }

    /// Notes hardware counters that other programs use too. Such counters show only a part of the interference.
    fn note_shared_counters(&mut self, now_ns: Nanos) {
        if let Some((cpu, percent)) = self.interference.take_newly_shared_counters(now_ns) {
            self.stats.notes.retain(|note, _| !note.matches(|note| matches!(note, AgentNote::CountersShared { .. })));
            self.note(AgentNote::CountersShared { cpu, percent });
        }
    }

    /// Moves this thread to CPUs where no service works, if there are any.
    fn move_thread_off_services(&mut self) {
        let (mut allowed, mut ran) = (CpuMask::EMPTY, CpuMask::EMPTY);
        for (_, served) in self.tracked.services.iter() {
            allowed = allowed.or(&served.allowed);
            ran = ran.or(&self.slow.span().cpus_used_by(served.tracked.tracking.identity()));
        }
        own_threads::place_threads_on(&self.usable, &allowed, &ran);
    }

    pub(super) fn log_note(&mut self, action: &str, why: &str) {
        self.log.iter().for_each(|log| log.record_action(now_ns(), action, why));
    }

    /// Writes the audit log, and notes lost lines. A failure never ends the agent.
    fn flush_log(&mut self) {
        let Some(log) = &self.log else { return };
        log.request_write();
        // Only the first note reports that the log fails. Afterwards status and metrics contain the number of lost
        // lines.
        let now = LogNote::about_audit_log(log.path(), &log.state()).next().map(Note::from);
        self.stats.notes.retain(|note, _| !note.matches(LogNote::is_about_audit_log) || Some(note) == now.as_ref());
        if let Some(new) = now.filter(|note| !self.stats.notes.contains_key(note)) {
            self.note(new);
        }
    }
}

/// Returns duplicates of the descriptors that hold the agent's claims, for another guardian.
fn duplicate_claim_locks(owners: &Owners, claim: Option<&Claim>) -> Result<Vec<OwnedFd>> {
    let mut locks = owners
        .duplicate_claim_fds()
        .context("cannot pass the claims on to the guardian process; raise the limit of open files (ulimit -n)")?;
    locks.extend(claim.map(Claim::duplicate_lock).transpose()?);
    Ok(locks)
}
