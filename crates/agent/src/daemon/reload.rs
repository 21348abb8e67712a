//! Reload at SIGHUP: reads the file again. Services and containers that it still names are not released.

use std::time::Duration;

use anyhow::{Error, Result, bail};
use sidelane_host::clock::now_ns;

use super::Agent;
use super::start::{fit_to_machine, has_objective};
use crate::choice::{choose, moves_containers, places_services, uses_interference};
use crate::config::{ActiveSource, Config, MachineConfig};
use crate::helper::{MachineScan, Reloaded, Report};
use crate::interference::InterferenceSource;
use crate::note::AgentNote;
use crate::tracked::ContainerAssignment;
use sidelane_diagnostics::audit::AuditLog;

/// Interval at which the agent reacts to urgent events while it waits for the helper.
const HEED_EVERY: Duration = Duration::from_millis(1);

impl Agent {
    /// Reads the file again. If the file is wrong, the agent keeps its present settings.
    pub(super) fn reload(&mut self) {
        // A log may be rotated by rename, and a certificate renewed, so another file may have the name now.
        self.log.iter().for_each(AuditLog::open_again);
        self.proxies.reload_files();
        let (config, here, kept) = match self.reread_config() {
            Ok(read) => read,
            Err(error) => {
                return self.note_error(error.context(
                    "cannot reload the agent's file; the agent keeps its old settings; correct the file, and send \
                     SIGHUP again",
                ));
            }
        };
        let is_over =
            |note: &AgentNote| matches!(note, AgentNote::ReadAtTheStart { .. } | AgentNote::RequestsAtTheStart);
        self.stats.notes.retain(|note, _| !note.matches(is_over));
        if !kept.is_empty() {
            self.note(AgentNote::ReadAtTheStart { tables: kept.join(", ") });
        }
        if has_objective(&config) && !self.tracked.tracker().purpose().has_requests() {
            self.note(AgentNote::RequestsAtTheStart);
        }
        let other_policy = config.policy != self.config.policy;
        let other_cores = here.cores != self.here.cores;
        self.beside_batch = None;
        let before = std::mem::replace(&mut self.here, here).notes;
        self.stats.notes.retain(|note, _| !note.matches(|note: &AgentNote| before.contains(note)));
        self.here.notes.clone().into_iter().for_each(|note| self.note(note));
        self.config = config;
        if other_policy {
            self.begin_policy();
        }
        if other_cores {
            self.apply_new_cores();
        }
        if self.actuator.is_some()
            && let Err(error) = self.update_proxies()
        {
            self.note_error(error.context(
                "cannot apply the [[proxy]] tables; all proxies keep their old settings; correct the tables, and send \
                 SIGHUP again",
            ));
        }
        if self.actuator.is_some()
            && let Err(error) = self.update_hazards()
        {
            self.note_error(
                error.context("cannot apply the [[hazards]] tables; correct the tables, and send SIGHUP again"),
            );
        }
        if let Err(error) = self.rediscover_machine() {
            self.note_error(error);
        }
        self.restore_unplaced_services();
        self.log_note("reload", "the file was read again");
        let now_ns = now_ns();
        (self.times.slow_ns, self.times.look_ns) = (now_ns, now_ns);
    }

    /// Reads the file, and starts to measure interference if the policy needs it. Returns the configuration in effect,
    /// its application to this machine, and the tables of the file that are not in effect.
    fn reread_config(&mut self) -> Result<(Config, MachineConfig, Vec<&'static str>)> {
        let mut config = Config::load(&self.options.config)?;
        if config.observes() != self.config.observes() || (config.observes() && config.policy != self.config.policy) {
            bail!(
                "policy.kind is \"{}\" now, and was \"{}\": an agent begins or ends to observe only at its start; restart it",
                config.policy.kind.name(),
                self.config.policy.kind.name()
            );
        }
        let kept = self.keep_start_only_tables(&mut config);
        let here = fit_to_machine(&config, self.running_source())?;
        if uses_interference(&config.policy) && matches!(self.interference, InterferenceSource::None) {
            self.interference = InterferenceSource::start_on_running_tracker(&here, self.tracked.tracker())?;
        }
        Ok((config, here, kept))
    }

    /// Replaces tables of the new file that take effect only at the start of the agent by the tables that are in
    /// effect. Returns the names of the tables that differ.
    fn keep_start_only_tables(&self, config: &mut Config) -> Vec<&'static str> {
        let running = &self.config;
        // While interference is not measured, the new table `[metric]` may still take effect.
        let metric =
            self.running_source().and_then(|_| keep_running_table("[metric]", &running.metric, &mut config.metric));
        let lanes = keep_running_table("[lanes]", &running.lanes, &mut config.lanes);
        let metrics = keep_running_table("[metrics]", &running.metrics, &mut config.metrics);
        let audit = keep_running_table("[audit]", &running.audit, &mut config.audit);
        [metric, lanes, metrics, audit].into_iter().flatten().collect()
    }

    /// Returns the source of interference; `None` if interference is not measured.
    pub(super) fn running_source(&self) -> Option<&ActiveSource> {
        (!matches!(self.interference, InterferenceSource::None)).then_some(&self.here.source)
    }

    /// Uses the machine's new core topology: measures rises in latency by it, and searches for lanes again.
    pub(super) fn apply_new_cores(&mut self) {
        self.interference.set_cores(&self.here.cores);
        self.drop_lanes(&self.lane_cpus());
        self.tracked.services.iter_mut().for_each(|(_, served)| served.has_moved = true);
    }

    /// Starts the policy that the file names.
    pub(super) fn begin_policy(&mut self) {
        self.policy = choose(&self.config.policy, &self.here);
        if !moves_containers(&self.config.policy) {
            self.restore_containers();
        }
    }

    /// Restores all containers that the policy has confined or paused. The next check is due at once.
    fn restore_containers(&mut self) {
        self.times.look_ns = now_ns();
        let places: Vec<usize> = self.tracked.containers.iter().map(|(place, _)| place).collect();
        let given_back = places
            .iter()
            .map(|place| self.actuator.as_mut().map_or(Ok(()), |actuator| actuator.release_container(*place)));
        let given_back: Vec<Result<()>> = given_back.collect();
        given_back.into_iter().filter_map(Result::err).for_each(|error| self.note_error(error));
        for place in places {
            let Some(contained) = self.tracked.containers.get_mut(place) else { continue };
            contained.given = ContainerAssignment::AsFound;
            let container = contained.container.clone();
            let taken = self.find_groups(&container, true).and_then(|found| self.manage_container(place, found));
            if let Err(error) = taken {
                self.note_error(Error::from(error).context(format!("cannot manage {}", container.name)));
            }
        }
    }

    /// Restores the CPUs of services that the file, or its policy, does not place any more.
    fn restore_unplaced_services(&mut self) {
        let may = places_services(&self.config.policy);
        let placed = self.tracked.services.iter_mut().filter(|(_, served)| served.placed.is_some());
        let mut left = Vec::new();
        for (place, served) in placed.filter(|(_, served)| !may || !served.found.settings.may_be_placed) {
            (served.placed, served.has_moved) = (None, true);
            left.push(place);
        }
        for place in left {
            if let Some(Err(error)) = self.actuator.as_mut().map(|actuator| actuator.release_service(place)) {
                self.note_error(error);
            }
        }
    }

    /// Orders the helper to read the new file, and waits for its scan. Services and containers that the file still
    /// names keep their decided settings.
    fn rediscover_machine(&mut self) -> Result<()> {
        self.helper.reload(&self.config);
        loop {
            match self.helper.next_report(HEED_EVERY)? {
                Some(Report::Reloaded(reloaded)) => {
                    self.apply_reloaded_scan(*reloaded);
                    return Ok(());
                }
                Some(report) => self.take_report(report),
                None => {}
            }
            self.handle_urgent()?;
        }
    }

    /// Continues with the services and containers that the new file names.
    pub(super) fn apply_reloaded_scan(&mut self, reloaded: Reloaded) {
        let Reloaded { scan: looked, services, containers } = reloaded;
        let MachineScan { changes, lacks, new_batch_groups: birthplaces } = looked;
        (self.lacks, self.new_batch_groups) = (lacks, birthplaces);
        self.apply_changes(changes);
        let asked = self.wants_requests();
        self.tracked.set_requests_wanted(asked);
        for (_, served) in self.tracked.services.iter_mut() {
            if let Some(found) = services.get(&served.found.id) {
                served.apply_settings(found.clone(), asked);
            }
        }
        self.set_lending();
        self.apply_slowdown_measurement();
        for waiting in &mut self.left_alone {
            waiting.item = services.get(&waiting.item.id).cloned().unwrap_or_else(|| waiting.item.clone());
        }
        for (_, contained) in self.tracked.containers.iter_mut() {
            if let Some(container) = containers.get(&contained.container.id) {
                contained.update(container.clone());
            }
        }
        self.flights.forget_ended();
        self.hurries.forget_ended();
        let is_over = |note: &AgentNote| matches!(note, AgentNote::NotRecorded { .. } | AgentNote::NotMapped { .. });
        self.stats.notes.retain(|note, _| !note.matches(is_over));
        self.update_service_modules();
        self.times.requests_ns = 0;
    }
}

/// Replaces the new table `file` by the table `running` that is in effect. Returns the table's name; `None` if the
/// tables are equal.
fn keep_running_table<T: PartialEq + Clone>(table: &'static str, running: &T, file: &mut T) -> Option<&'static str> {
    (*file != *running).then(|| file.clone_from(running))?;
    Some(table)
}
