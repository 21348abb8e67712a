//! The daemon: one thread that checks the machine, asks the policy and acts, from start to end.
//!
//! It waits for the kernel program's reports on interference, for POSIX signals, for clients of its status, and for its
//! timers. At a timer it checks the machine: every few milliseconds while a service and batch run, otherwise every half
//! second. A slow check, a few times a second, does what may take longer (settings, requests). A helper thread
//! (`agent::helper`) does what takes time that grows with the machine: it looks for services, containers, and sockets
//! of
//! requests.
//!
//! The order matters. Steps that can fail without a change to the machine come first, and the guardian knows of each
//! change
//! before it is made. At the end, and at a POSIX signal, all settings are restored.

mod apply;
mod births;
mod containers;
mod endpoints;
mod lanes;
mod lent;
mod metrics;
mod modules;
mod notes;
mod observe;
mod promise;
mod ranks;
mod reload;
mod slow;
mod slowdown;
mod snapshot;
mod start;
mod waiting;
mod watchdog;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::posix_signals::{CaughtSignal, PosixSignals};
use sidelane_host::turn_limit::TurnLimit;
use sidelane_policy::Nanos;
use sidelane_policy::cpus::{CpuActions, CpuMask, CpuReason, MachineObservation};
use sidelane_tracker::histogram::Histogram;

use super::actuator::Actuator;
use super::choice::AnyPolicy;
use super::config::{Config, MachineConfig};
use super::discover::{Container, DiscoveryProblem, FoundService, NewBatchGroup};
use super::helper::Helper;
use super::interference::InterferenceSource;
use super::lanes::{EvictionRequests, Evictions, LaneGates};
use super::log::{CpuAudit, LastDecisions, LoggedObservation};
use super::modules::{Flights, HazardTables, Hurries, Proxies};
use super::observation::{Sampler, fill_observation};
use super::observers::Observers;
use super::owners::Owners;
use super::self_usage::SelfUsage;
use super::service_manager::ServiceManager;
use super::tracked::Tracked;
use births::{Gaps, Lacking, NewBatchConfinement};
use endpoints::{Endpoints, EventFds, WakeEvents};
use lent::LentLanes;
use promise::Promises;
use ranks::Demoted;
use sidelane_diagnostics::audit::AuditLog;
use sidelane_diagnostics::log_note::LogNote;
use sidelane_diagnostics::note::Note;
use sidelane_lanes::note::LaneNote;
use sidelane_lanes::slowdown::SlowdownKeeper;
use sidelane_report::terminal::eprint_fitted;
use sidelane_rollback::claim::Claim;
use sidelane_rollback::cpu_mask::to_cpu_mask;
use sidelane_rollback::{ChangeId, own_threads};
use waiting::{SLOW_LOOK_NS, Waiting};

/// Interval of checks while no service or no batch runs.
const IDLE_LOOK_NS: Nanos = 500_000_000;
/// Interval of checks whether a freeze has taken effect.
const FREEZE_LOOK_NS: Nanos = 1_000_000;
/// Time in which a container runtime puts a new container into all its cgroups.
const MAKING_NS: Nanos = 1_000_000_000;

/// Options of the agent's command line.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Path of the agent's file.
    pub config: PathBuf,
    /// Whether the agent only prints what it would do.
    pub dry_run: bool,
}

pub struct Agent {
    options: AgentOptions,
    config: Config,
    /// Limit of the time for which this thread keeps a CPU; `None` if the thread is in the ordinary class.
    turns: Option<TurnLimit>,
    helper: Helper,
    /// Things that the file names and the machine lacks, from the helper's last report.
    lacks: Vec<DiscoveryProblem>,
    /// Cgroups in which new batch is made, from the helper's last report.
    new_batch_groups: Vec<NewBatchGroup>,
    /// CPUs whose claims are registered with the guardian.
    guarded: CpuSet,
    /// Steps that failed at the last check, and are tried again.
    tried_again: Vec<Tried>,
    /// Configuration applied to this machine.
    here: MachineConfig,
    /// CPUs that were online at the last slow check.
    online: CpuSet,
    /// CPUs that are online and claimed by the agent.
    usable: CpuSet,
    tracked: Tracked,
    /// Actuator; `None` if the agent only prints what it would do.
    actuator: Option<Actuator>,
    owners: Owners,
    claim: Option<Claim>,
    /// Containers that have no process yet, are still being put into their cgroups, or could not be taken.
    waiting: Vec<Waiting<Container>>,
    /// Services that could not be managed.
    left_alone: Vec<Waiting<FoundService>>,
    /// Cgroups in which new batch starts.
    births: NewBatchConfinement,
    gaps: Gaps,
    policy: AnyPolicy,
    interference: InterferenceSource,
    sampler: Sampler,
    slow: Sampler,
    seen: Box<MachineObservation>,
    actions: Box<CpuActions>,
    /// CPUs that the kernel program watches closely, because batch may use their cores; `None` if they have to be set
    /// again.
    beside_batch: Option<CpuMask>,
    log: Option<AuditLog>,
    pen: CpuAudit,
    endpoints: Endpoints,
    /// Gates of batch lanes, if the file asks for them.
    gates: Option<LaneGates>,
    /// Watchdog that observes whether batch leaves the lanes under the gates.
    lent: Option<LentLanes>,
    /// Measurement of the slowdown of requests by batch on lanes; `None` if the slowdown is not bounded.
    slowdown: Option<SlowdownKeeper>,
    /// Observers of what could be lent; `None` unless the agent only observes.
    observers: Option<Observers>,
    proxies: Proxies,
    hazards: HazardTables,
    flights: Flights,
    hurries: Hurries,
    promises: Promises,
    times: Times,
    demoted: Demoted,
    stats: DecisionStats,
    usage: SelfUsage,
    manager: ServiceManager,
}

/// Step that is tried again at each check until it succeeds: its failure does not end the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    /// Claim of the CPUs that have come online.
    Cpus,
    /// Start of a guardian.
    Guardian,
}

/// Times at which steps of the daemon are due.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    began_ns: Nanos,
    look_ns: Nanos,
    slow_ns: Nanos,
    /// Time at which waiting containers and services are tried again.
    waiting_ns: Nanos,
    /// Time at which the helper is asked again where services' requests can be observed.
    requests_ns: Nanos,
    /// Time at which batch last ran, or would have run without a pause.
    batch_ns: Option<Nanos>,
    /// Whether services and batch both run, or batch would run without a pause.
    is_active: bool,
}

impl Times {
    /// Makes times at which all steps are due at once.
    fn all_due_at(now_ns: Nanos) -> Self {
        let (began_ns, look_ns, slow_ns, requests_ns) = (now_ns, now_ns, now_ns, now_ns);
        Self { began_ns, look_ns, slow_ns, waiting_ns: Nanos::MAX, requests_ns, batch_ns: None, is_active: false }
    }

    /// Notes whether batch ran. Batch stays active until it has not run for half a second, because one check may cover
    /// only some microseconds.
    fn update_activity(&mut self, now_ns: Nanos, has_batch: bool, has_services: bool) {
        if has_batch {
            self.batch_ns = Some(now_ns);
        }
        let was_there = self.batch_ns.is_some_and(|batch_ns| now_ns.saturating_sub(batch_ns) < IDLE_LOOK_NS);
        self.is_active = was_there && has_services;
    }
}

/// Counts of decisions and notes, with the last decision.
#[derive(Debug, Default)]
struct DecisionStats {
    /// Whether the line on what the agent found at its start was printed.
    is_announced: bool,
    /// Number of decisions, by the name of the action and the reason.
    decisions: BTreeMap<(&'static str, CpuReason), u64>,
    /// Reason of the last decision.
    why: CpuReason,
    /// Observation at the last decision.
    seen: LoggedObservation,
    /// Last actions.
    last: LastDecisions,
    /// Notes on what failed or is degraded, each with the number of times that it was made.
    notes: BTreeMap<Note, u64>,
    /// Notes about a service or container, by its name.
    about: BTreeMap<String, BTreeSet<Note>>,
    /// Things that the file names and the machine lacks.
    lacks: BTreeMap<DiscoveryProblem, Lacking>,
    /// Time at which interference reached its threshold, if the present check reacts to that interference.
    onset_ns: Option<Nanos>,
    /// Onset of the interference for which batch was paused; `None` when the pause has taken effect.
    reacting_since_ns: Option<Nanos>,
    /// Times from an onset of interference until batch had been taken away.
    reaction: Histogram,
    reaction_sum_ns: Nanos,
    /// Number of settings that other processes changed and the agent restored.
    repaired: u64,
}

/// Runs the agent with this configuration until a POSIX signal asks it to end.
pub fn run(config: Config, options: AgentOptions) -> Result<u8> {
    // Signals are blocked before any thread is started, so that no other thread receives one.
    let signals = PosixSignals::listen()
        .context("cannot open the descriptor for POSIX signals; check the limit of open files (ulimit -n)")?;
    let mut agent = Agent::start(config, options)?;
    agent.manager.report_ready();
    let served = agent.serve(&signals);
    agent.end(&signals).and(served).map(|()| 0)
}

impl Agent {
    /// Works until a POSIX signal asks the agent to end.
    fn serve(&mut self, signals: &PosixSignals) -> Result<()> {
        loop {
            let woken = self.wait(signals).context("cannot wait for POSIX signals, sockets and events")?;
            self.restart_cpu_time_limit();
            let caught =
                if woken.signal { signals.wait(Duration::ZERO).context("cannot read a POSIX signal")? } else { None };
            if caught.is_some_and(|caught| !self.handle_signal(caught)) {
                return Ok(());
            }
            if woken.crossing {
                self.react_to_interference()?;
            }
            if woken.alarm || now_ns() >= self.watch_due_ns() {
                self.check_for_batch_on_lanes(now_ns());
            }
            self.answer_clients(woken);
            if woken.found {
                self.take_reports()?;
            }
            let now_ns = now_ns();
            if now_ns >= self.slowdown_due_ns() {
                self.advance_slowdown(now_ns);
            }
            if now_ns >= self.times.slow_ns {
                self.run_slow_check(now_ns)?;
            } else if now_ns >= self.times.waiting_ns {
                self.retry_waiting();
            }
            if woken.lanes || now_ns >= self.check_due_ns() {
                self.check_machine()?;
            }
        }
    }

    fn wait(&self, signals: &PosixSignals) -> io::Result<WakeEvents> {
        let due_ns = self.check_due_ns().min(self.times.slow_ns).min(self.times.waiting_ns).min(self.slowdown_due_ns());
        let due_ns = due_ns.min(self.watch_due_ns());
        let eventfds = EventFds {
            lanes: self.gates.as_ref().map(|gates| gates.evictions().eventfd()),
            crossing: self.interference.eventfd(),
            alarm: self.lent.as_ref().map(|lent| lent.alarm_event().as_fd()),
            found: self.helper.eventfd(),
        };
        self.endpoints.wait(signals, eventfds, due_ns.saturating_sub(now_ns()))
    }

    /// Handles a POSIX signal. Returns whether the agent continues.
    fn handle_signal(&mut self, caught: CaughtSignal) -> bool {
        if caught.signal == libc::SIGCONT {
            // The slow check is due at once, because the guardian may have frozen containers.
            self.times.slow_ns = 0;
        }
        if caught.signal == libc::SIGHUP {
            self.manager.report_reload(now_ns());
            self.reload();
            self.manager.report_ready();
            return true;
        }
        !caught.asks_to_end()
    }

    /// Reacts to interference that has crossed its threshold.
    fn react_to_interference(&mut self) -> Result<()> {
        self.stats.onset_ns = self.interference.acknowledge_event();
        self.check_machine()
    }

    /// Reacts to interference and to keepers' requests, if there are any. Called between the steps of longer work.
    fn handle_urgent(&mut self) -> Result<()> {
        self.restart_cpu_time_limit();
        if self.interference.has_event() {
            return self.react_to_interference();
        }
        // A keeper that asks for an eviction does not hold its lane any more, and batch still runs there.
        if self.gates.as_ref().is_some_and(|gates| gates.evictions().has_request()) {
            self.check_machine()
        } else {
            Ok(())
        }
    }

    /// Restarts the limit of this thread's CPU time. Each step between two reactions to interference has a limit of its
    /// own.
    fn restart_cpu_time_limit(&mut self) {
        if let Some(Err(error)) = self.turns.as_ref().map(TurnLimit::begin_turn) {
            self.turns = None;
            self.note(LaneNote::NotUrgent { error: error.to_string() });
        }
    }

    /// Checks the machine, asks the policy, and carries out its decision.
    fn check_machine(&mut self) -> Result<()> {
        let now_ns = now_ns();
        self.interference.take_due_values(now_ns);
        let (memory, withheld) = (self.tracked.tracker().memory(), self.withheld_lanes());
        let span = self.sampler.sample(&memory, now_ns);
        let has_batch = span.batch_cpu_time_ns() > 0 || self.tracked.is_batch_paused();
        self.times.update_activity(now_ns, has_batch, !self.tracked.services.is_empty());
        let asked = self.gates.as_ref().map(|gates| gates.evictions().take_requests());
        // The policy does not count a lane from which batch was evicted among batch's CPUs. The siblings of such a lane
        // belong to the service.
        let evicted = asked.as_ref().map_or_else(CpuSet::default, |asked| asked.lanes.union(&withheld));
        let (usable, closed) =
            (self.usable.difference(&evicted), self.here.cores.with_siblings(&to_cpu_mask(&evicted)));
        fill_observation(&mut self.seen, span, &self.tracked, &usable, &closed, |cpu| self.interference.peak(cpu));
        self.actions.clear();
        self.policy.observe(now_ns, &self.seen, &mut self.actions);
        self.tracked.services.free_vacated_slots();
        self.tracked.containers.free_vacated_slots();
        self.times.look_ns = now_ns + self.check_interval_ns();
        let failed = self.apply_decision(now_ns)?;
        self.stats.onset_ns = None;
        self.update_watched_cpus();
        self.answer_keepers(asked, failed, now_ns);
        Ok(())
    }

    /// Answers keepers that wait for an eviction. A keeper leaves its lane only when batch has left it. Batch that
    /// could not be moved or paused is still there. A task whose freeze has not taken effect may still run. Until the
    /// freeze takes effect, the keeper holds the lane with only short breaks, and the reaction continues.
    fn answer_keepers(&mut self, requests: Option<EvictionRequests>, failed: bool, now_ns: Nanos) {
        let evictions = self.gates.as_ref().map(LaneGates::evictions);
        let is_asked = evictions.is_some_and(Evictions::has_request);
        if !is_asked && !evictions.is_some_and(Evictions::is_leaving) && self.stats.reacting_since_ns.is_none() {
            return;
        }
        let leaving = !self.actuator.as_ref().is_none_or(Actuator::are_pauses_effective);
        match (evictions, requests) {
            (Some(evictions), Some(asked)) if is_asked => {
                let is_there = !self.tracked.batch_cpus().and(&to_cpu_mask(&asked.lanes)).is_empty();
                evictions.complete_requests(&asked, failed || is_there, leaving);
            }
            (evictions, _) => evictions.iter().for_each(|evictions| evictions.note_leaving(leaving)),
        }
        match leaving {
            true => self.times.look_ns = now_ns + FREEZE_LOOK_NS,
            false => self.note_reaction(),
        }
    }

    /// Sets the CPUs on which the kernel program reads counters at ticks and wakes the agent. A tick costs the service
    /// time, and a wakeup costs the agent time. So only cores with batch have them.
    fn update_watched_cpus(&mut self) {
        let beside = Some(self.here.cores.with_siblings(&self.tracked.batch_cpus()));
        if let Some(cpus) = beside.filter(|_| beside != self.beside_batch) {
            self.interference.watch_closely(
                &self.here.online,
                &cpus,
                self.config.intervals.tick,
                self.here.interference_threshold,
            );
            self.beside_batch = beside;
        }
    }

    fn watch_due_ns(&self) -> Nanos {
        self.lent.as_ref().map_or(Nanos::MAX, |lent| lent.due_ns)
    }

    fn check_due_ns(&self) -> Nanos {
        self.interference.due_ns().map_or(self.times.look_ns, |due_ns| due_ns.min(self.times.look_ns))
    }

    fn check_interval_ns(&self) -> Nanos {
        let every = self.config.intervals.poll.unwrap_or(self.config.intervals.look);
        if self.times.is_active { nanos(every) } else { nanos(every).max(IDLE_LOOK_NS) }
    }

    /// Answers clients of the status socket and of metrics.
    fn answer_clients(&mut self, woken: WakeEvents) {
        if woken.status || woken.metrics {
            self.report_module_events();
        }
        if woken.status {
            let snapshot = self.snapshot();
            self.endpoints.answer_status_clients(&snapshot);
        }
        if woken.metrics {
            self.endpoints.answer_metrics_requests(|| self.exposition());
        }
    }

    /// Undoes all changes, and ends the agent.
    fn end(mut self, signals: &PosixSignals) -> Result<()> {
        self.manager.report_end();
        self.gates.iter().for_each(|gates| gates.evictions().close());
        // Batch that gets a real-time class back may keep one CPU busy. So the lanes' holders end before that, and this
        // thread moves to another CPU.
        self.tracked.services.iter_mut().for_each(|(_, served)| served.tracked.kept = None);
        own_threads::place_threads_on(&self.usable, &CpuMask::EMPTY, &CpuMask::EMPTY);
        self.place_new_processes();
        let given_back = self.actuator.as_mut().map_or(Ok(()), Actuator::undo_all_changes);
        let finished = given_back.and(self.close_endpoints()).and(self.end_modules(signals));
        self.tracked.tracker().detach();
        if let Some(log) = &mut self.log {
            log.record_action(now_ns(), "end", "a POSIX signal ended the agent; all changes are undone");
            let state = log.end();
            LogNote::about_audit_log(log.path(), &state).for_each(|note| eprint_fitted(&format!("sidelane: {note}")));
        }
        // The claims are released last: an agent that starts now finds only the guardian, which has nothing left to
        // undo.
        drop((self.owners, self.claim));
        finished.and(self.actuator.map_or(Ok(()), Actuator::dismiss_guardian))
    }

    /// Closes the endpoints while the claim is held: afterwards they may belong to another agent.
    fn close_endpoints(&mut self) -> Result<()> {
        self.endpoints.close();
        let Some(actuator) = &mut self.actuator else { return Ok(()) };
        let endpoints = actuator.guardian().list().iter().filter(|(_, undo)| **undo == Endpoints::undo_entry());
        let endpoints: Vec<ChangeId> = endpoints.map(|(change_id, _)| change_id).collect();
        Ok(actuator.guardian().withdraw(endpoints)?)
    }
}

fn nanos(time: Duration) -> Nanos {
    time.as_nanos() as Nanos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_stays_active_for_some_checks_without_running() {
        let mut times = Times::all_due_at(1_000);
        let mut active = |later_ns, has_batch, has_services| {
            times.update_activity(1_000 + later_ns, has_batch, has_services);
            times.is_active
        };
        assert!(!active(0, false, true), "there was none yet");
        assert!(active(50, true, true));
        assert!(active(100, false, true) && active(IDLE_LOOK_NS, false, true));
        assert!(!active(IDLE_LOOK_NS, false, false), "no service to spare");
        assert!(!active(IDLE_LOOK_NS + 50, false, true));
    }
}
