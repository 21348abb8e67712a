//! Reload at SIGHUP: reads the file again. Services and containers that it still names are not released.

use std::time::Duration;

use anyhow::{Error, Result};
use sidelane_host::clock::now_ns;

use super::Agent;
use super::start::{asks_for_requests, fit};
use crate::choice::{choose, goes_by_interference, moves_containers, places_services};
use crate::config::{ActiveSource, Config, MachineConfig};
use crate::helper::{MachineScan, Reloaded, Report};
use crate::interference::InterferenceSource;
use crate::note::AgentNote;
use crate::tracked::ContainerAssignment;
use sidelane_diagnostics::audit::AuditLog;

/// Interval at which the agent reacts to urgent events while it waits for the helper.
const HEED_EVERY: Duration = Duration::from_millis(1);

impl Agent {
    /// Reads the file again. If the file is wrong, everything continues as before.
    pub(super) fn reload(&mut self) {
        // A log may be rotated by rename, so another file may have the log's name now.
        self.log.iter().for_each(AuditLog::open_again);
        self.proxies.open_logs_again();
        let (config, here, kept) = match self.read_again() {
            Ok(read) => read,
            Err(error) => {
                return self.failed(error.context("cannot reload the file; the agent goes on with the old one"));
            }
        };
        let is_over =
            |note: &AgentNote| matches!(note, AgentNote::ReadAtTheStart { .. } | AgentNote::RequestsAtTheStart);
        self.stats.notes.retain(|note, _| !note.is(is_over));
        if !kept.is_empty() {
            self.note(AgentNote::ReadAtTheStart { tables: kept.join(", ") });
        }
        if asks_for_requests(&config) && !self.tracked.tracker().purpose().has_requests() {
            self.note(AgentNote::RequestsAtTheStart);
        }
        let other_policy = config.policy != self.config.policy;
        let other_cores = here.cores != self.here.cores;
        self.beside_batch = None;
        let before = std::mem::replace(&mut self.here, here).notes;
        self.stats.notes.retain(|note, _| !note.is(|note: &AgentNote| before.contains(note)));
        self.here.notes.clone().into_iter().for_each(|note| self.note(note));
        self.config = config;
        if other_policy {
            self.begin_policy();
        }
        if other_cores {
            self.have_cores();
        }
        if self.actuator.is_some()
            && let Err(error) = self.follow_proxies()
        {
            self.failed(error.context("cannot apply the [[proxy]] tables; all proxies go on as before"));
        }
        if let Err(error) = self.find_again() {
            self.failed(error);
        }
        self.leave_services_alone();
        self.log_note("reload", "the file was read again");
        let now_ns = now_ns();
        (self.times.slow_ns, self.times.look_ns) = (now_ns, now_ns);
    }

    /// Reads the file, and starts the policy and modules that it asks for. Returns the configuration that is in effect
    /// now, its application to this machine, and the tables of the file that are not in effect.
    fn read_again(&mut self) -> Result<(Config, MachineConfig, Vec<&'static str>)> {
        let mut config = Config::load(&self.options.config)?;
        let kept = self.keep_tables(&mut config);
        let here = fit(&config, self.running_told())?;
        if goes_by_interference(&config.policy) && matches!(self.interference, InterferenceSource::None) {
            self.interference = InterferenceSource::start_late(&here, self.tracked.tracker())?;
        }
        Ok((config, here, kept))
    }

    /// Replaces tables that are only read at the start by the running ones. Returns the names of the tables that
    /// differ.
    fn keep_tables(&self, config: &mut Config) -> Vec<&'static str> {
        let running = &self.config;
        // A policy that does not use interference has not read this table.
        let metric = self.running_told().and_then(|_| keep("[metric]", &running.metric, &mut config.metric));
        let lanes = keep("[lanes]", &running.lanes, &mut config.lanes);
        let metrics = keep("[metrics]", &running.metrics, &mut config.metrics);
        let audit = keep("[audit]", &running.audit, &mut config.audit);
        [metric, lanes, metrics, audit].into_iter().flatten().collect()
    }

    /// Returns the source of interference; `None` if interference is not measured.
    pub(super) fn running_told(&self) -> Option<&ActiveSource> {
        (!matches!(self.interference, InterferenceSource::None)).then_some(&self.here.source)
    }

    /// Takes over new cores: a rise in latency is measured by cores, and lanes are found by them.
    pub(super) fn have_cores(&mut self) {
        self.interference.has_cores(&self.here.cores);
        self.drop_lanes(&self.kept_cpus());
        self.tracked.services.iter_mut().for_each(|(_, served)| served.has_moved = true);
    }

    /// Starts the policy that the file names.
    pub(super) fn begin_policy(&mut self) {
        self.policy = choose(&self.config.policy, &self.here);
        if !moves_containers(&self.config.policy) {
            self.leave_containers_alone();
        }
    }

    /// Restores all containers that the policy has confined or paused. The next check is due at once.
    fn leave_containers_alone(&mut self) {
        self.times.look_ns = now_ns();
        let places: Vec<usize> = self.tracked.containers.iter().map(|(place, _)| place).collect();
        let given_back =
            places.iter().map(|place| self.actuator.as_mut().map_or(Ok(()), |actuator| actuator.let_go(*place)));
        let given_back: Vec<Result<()>> = given_back.collect();
        given_back.into_iter().filter_map(Result::err).for_each(|error| self.failed(error));
        for place in places {
            let Some(contained) = self.tracked.containers.get_mut(place) else { continue };
            contained.given = ContainerAssignment::AsFound;
            let container = contained.container.clone();
            let taken = self.find(&container, true).and_then(|found| self.take(place, found));
            if let Err(error) = taken {
                self.failed(Error::from(error).context(format!("cannot manage {}", container.name)));
            }
        }
    }

    /// Restores the CPUs of services that the file, or its policy, does not place any more.
    fn leave_services_alone(&mut self) {
        let may = places_services(&self.config.policy);
        let placed = self.tracked.services.iter_mut().filter(|(_, served)| served.placed.is_some());
        let mut left = Vec::new();
        for (place, served) in placed.filter(|(_, served)| !may || !served.found.settings.may_be_placed) {
            (served.placed, served.has_moved) = (None, true);
            left.push(place);
        }
        for place in left {
            if let Some(Err(error)) = self.actuator.as_mut().map(|actuator| actuator.let_service_go(place)) {
                self.failed(error);
            }
        }
    }

    /// Keeps services and containers that the new file still names, with their decided settings.
    fn find_again(&mut self) -> Result<()> {
        self.helper.reload(&self.config);
        loop {
            match self.helper.next_report(HEED_EVERY)? {
                Some(Report::Reloaded(reloaded)) => {
                    self.take_reloaded(*reloaded);
                    return Ok(());
                }
                Some(report) => self.take_report(report),
                None => {}
            }
            self.handle_urgent()?;
        }
    }

    /// Continues with the services and containers that the new file names.
    pub(super) fn take_reloaded(&mut self, reloaded: Reloaded) {
        let Reloaded { looked, services, containers } = reloaded;
        let MachineScan { changes, lacks, birthplaces } = looked;
        (self.lacks, self.birthplaces) = (lacks, birthplaces);
        self.follow(changes);
        let asked = self.wants_requests();
        self.tracked.ask_for_requests(asked);
        for (_, served) in self.tracked.services.iter_mut() {
            if let Some(found) = services.get(&served.found.id) {
                served.apply_settings(found.clone(), asked);
            }
        }
        self.set_lending();
        self.apply_slowdown();
        for waiting in &mut self.left_alone {
            waiting.what = services.get(&waiting.what.id).cloned().unwrap_or_else(|| waiting.what.clone());
        }
        for (_, contained) in self.tracked.containers.iter_mut() {
            if let Some(container) = containers.get(&contained.container.id) {
                contained.container = container.clone();
            }
        }
        self.flights.forget_ended();
        self.hurries.forget_ended();
        let is_over = |note: &AgentNote| matches!(note, AgentNote::NotRecorded { .. } | AgentNote::NotMapped { .. });
        self.stats.notes.retain(|note, _| !note.is(is_over));
        self.follow_services();
        self.times.requests_ns = 0;
    }
}

/// Replaces the file's table by the running one if they differ, and returns the table's name then.
fn keep<T: PartialEq + Clone>(table: &'static str, running: &T, file: &mut T) -> Option<&'static str> {
    (*file != *running).then(|| file.clone_from(running))?;
    Some(table)
}
