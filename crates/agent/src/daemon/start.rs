//! The start of the agent.

use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, anyhow};
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::priority::DECIDER_PRIORITY;
use sidelane_host::procfs::allowed_cpus;
use sidelane_host::run_times::union_of_affinities;
use sidelane_host::topology::online_cpus;
use sidelane_host::turn_limit::TurnLimit;
use sidelane_policy::borrow::PolicyKind;
use sidelane_policy::cpus::{CpuMask, MAX_CPUS};
use sidelane_tracker::tracker::{LaneLending, Purpose, Tracker};

use super::births::{Gaps, NewBatchConfinement};
use super::lent::LentLanes;
use super::{Agent, AgentOptions, DecisionStats, Demoted, Times};
use crate::actuator::Actuator;
use crate::choice::{choose, uses_interference};
use crate::config::{ActiveSource, Config, LaneGate, MachineConfig};
use crate::daemon::endpoints::Endpoints;
use crate::discover::{DiscoveryProblem, Finder};
use crate::helper::Helper;
use crate::interference::InterferenceSource;
use crate::lanes::LaneGates;
use crate::log::CpuAudit;
use crate::modules::{Flights, HazardTables, Hurries, Proxies};
use crate::note::AgentNote;
use crate::observation::Sampler;
use crate::observers::Observers;
use crate::owners::{Owners, claim_agent_role};
use crate::self_usage::SelfUsage;
use crate::service_manager::ServiceManager;
use crate::tracked::Tracked;
use sidelane_diagnostics::audit::{Audit, AuditFile, AuditLevel, AuditLog};
use sidelane_lanes::log::LaneAudit;
use sidelane_lanes::note::LaneNote;
use sidelane_lanes::placement::wait_for_lane_switches;
use sidelane_requests::can_track;
use sidelane_rollback::claim::Claim;
use sidelane_rollback::cpu_mask::to_cpu_mask;
use sidelane_rollback::guardian::{CANNOT_START, Guardian};
use sidelane_rollback::own_threads;

/// Failure to reach the service manager: it would end an agent from which it hears nothing.
const NO_MANAGER: &str =
    "cannot open the socket of the service manager (NOTIFY_SOCKET); unset the variable if no service manager runs";

impl Agent {
    /// Finds out what the machine has, and claims its CPUs. No setting is changed yet.
    pub(super) fn start(config: Config, options: AgentOptions) -> Result<Self> {
        let here = fit_to_machine(&config, None)?;
        let claim = if options.dry_run { None } else { Some(claim_agent_role()?) };
        let online = online_cpus().context("cannot read which CPUs are online")?;
        let own_cpus: Vec<u32> = allowed_cpus(&[std::process::id()].into()).iter().collect();
        // This thread leaves the CPUs of services first, because loading the kernel program takes some hundred
        // milliseconds.
        let (serving, lacks) = find_services(&config);
        own_threads::place_threads_on(&online, &serving, &CpuMask::EMPTY);
        // The kernel program is loaded before any claim, because its errors name the missing privileges.
        let (tracker, interference) = load_tracker(&config, &here)?;
        wait_for_lane_switches(&tracker.memory(), &online)?;
        let Log { log, pen, lane_pen } = config.audit.as_deref().map(open_log).transpose()?.unwrap_or_default();
        let mut owners = Owners::new(!config.observes());
        let (actuator, endpoints, usable) = claim_machine(&mut owners, &online, claim.as_ref(), (&config, &tracker))?;
        let mut tracked = Tracked::new(tracker);
        tracked.set_requests_wanted(wants_requests(&config, interference.needs_requests()));
        let gates = config.lent_lanes().filter(|_| actuator.is_some());
        let gates = gates.map(|lanes| LaneGates::new(lanes, lane_pen)).transpose()?;
        let lent = gates.as_ref().map(|_| start_lane_watchdog(&tracked)).transpose()?;
        own_threads::place_threads_on(&usable, &serving, &CpuMask::EMPTY);
        let (turns, not_urgent) = raise_priority(&config);
        let mut agent = Self {
            turns,
            policy: choose(&config.policy, &here),
            observers: Observers::new(&config, actuator.is_some())?,
            helper: Helper::start(&config)?,
            lacks,
            new_batch_groups: Vec::new(),
            guarded: usable.clone(),
            tried_again: Vec::new(),
            tracked,
            times: Times::all_due_at(now_ns()),
            pen,
            options,
            config,
            here,
            online,
            usable,
            actuator,
            owners,
            claim,
            interference,
            log,
            endpoints,
            lent,
            slowdown: gates.as_ref().and_then(LaneGates::new_slowdown_keeper),
            gates,
            proxies: Proxies::new(own_cpus.clone()),
            hazards: HazardTables::new(own_cpus),
            flights: Flights::default(),
            hurries: Hurries::default(),
            waiting: Vec::new(),
            left_alone: Vec::new(),
            births: NewBatchConfinement::default(),
            gaps: Gaps::default(),
            sampler: Sampler::default(),
            slow: Sampler::default(),
            seen: Box::default(),
            actions: Box::default(),
            beside_batch: None,
            demoted: Demoted::default(),
            promises: Default::default(),
            stats: DecisionStats::default(),
            usage: SelfUsage::new(),
            manager: ServiceManager::from_environment().context(NO_MANAGER)?,
        };
        agent.begin(not_urgent)?;
        Ok(agent)
    }

    /// Notes what is degraded from the start, and starts the proxies and watchers that the file names.
    fn begin(&mut self, not_urgent: Option<LaneNote>) -> Result<()> {
        self.note_known_degradations(not_urgent);
        match self.actuator {
            Some(_) => self.update_proxies().and_then(|()| self.update_hazards()),
            None => Ok(()),
        }
    }

    /// Returns whether requests have to be tracked, because the file or a policy needs their latencies.
    pub(super) fn wants_requests(&self) -> bool {
        wants_requests(&self.config, self.interference.needs_requests())
    }

    /// Notes degradations that are known at the start, and first what the file names and the machine lacks.
    fn note_known_degradations(&mut self, not_urgent: Option<LaneNote>) {
        self.note_discovery_problems(now_ns());
        not_urgent.into_iter().for_each(|note| self.note(note));
        let beyond: CpuSet = self.online.iter().filter(|cpu| *cpu as usize >= MAX_CPUS).collect();
        if !beyond.is_empty() {
            self.note(AgentNote::CpusBeyond { cpus: beyond.to_string() });
        }
        self.here.notes.clone().into_iter().for_each(|note| self.note(note));
    }
}

/// Loads the kernel program with the source of interference that the policy uses, and attaches it.
fn load_tracker(config: &Config, here: &MachineConfig) -> Result<(Rc<Tracker>, InterferenceSource)> {
    let is_needed = uses_interference(&config.policy);
    let tracker = Rc::new(Tracker::load(tracker_purpose(config, is_needed.then_some(&here.source))?, true)?);
    let interference = InterferenceSource::start(here, is_needed, &tracker)?;
    tracker.attach()?;
    Ok((tracker, interference))
}

/// Returns the CPUs on which the present services may run, and what the file names and the machine lacks. The CPUs on
/// which services do run are read later.
fn find_services(config: &Config) -> (CpuMask, Vec<DiscoveryProblem>) {
    let mut finder = Finder::new(config);
    finder.scan(now_ns());
    let pids = finder.services().flat_map(|found| found.service.pids.iter().copied()).collect();
    (to_cpu_mask(&union_of_affinities(&pids)), finder.problems())
}

/// Gives the calling thread priority over batch and holders. Returns the limit of its CPU time, or a note on
/// why that failed.
fn raise_priority(config: &Config) -> (Option<TurnLimit>, Option<LaneNote>) {
    // An agent that only observes has nothing to react to.
    if config.observes() {
        return (None, None);
    }
    match TurnLimit::for_this_thread(DECIDER_PRIORITY) {
        Ok(turns) => (Some(turns), None),
        Err(error) => (None, Some(LaneNote::NotUrgent { error: error.to_string() })),
    }
}

/// Applies the configuration to this machine. `running_source` is the source of interference that the agent already
/// uses, if any.
pub(super) fn fit_to_machine(config: &Config, running_source: Option<&ActiveSource>) -> Result<MachineConfig> {
    let fits = config.apply_to_this_machine(running_source)?;
    fits.map_err(|unfit| {
        let all: Vec<String> = unfit.iter().map(ToString::to_string).collect();
        anyhow!("the file does not fit this machine: {}", all.join("; "))
    })
}

/// Returns whether any service has an objective.
pub(super) fn has_objective(config: &Config) -> bool {
    config.services.iter().any(|service| service.settings.slo.is_some())
        || config.kubernetes.as_ref().is_some_and(|kubernetes| kubernetes.settings.slo.is_some())
}

/// Returns whether requests have to be tracked: for objectives, metrics or the policy of lanes, or because interference
/// is measured by latency (`by_latency`).
fn wants_requests(config: &Config, by_latency: bool) -> bool {
    let by_requests = |lanes: &LaneGate| lanes.policy.is_some_and(PolicyKind::needs_requests);
    config.observes()
        || config.lent_lanes().is_some_and(by_requests)
        || by_latency
        || has_objective(config)
        || config.metrics.is_some()
}

/// Returns what the tracker has to observe. Tracking costs a service 2 µs per request, so requests are tracked only if
/// they are needed. The measurement of batch's cost needs only some requests, and the agent also works without it.
fn tracker_purpose(config: &Config, source: Option<&ActiveSource>) -> Result<Purpose> {
    let wanted = wants_requests(config, source == Some(&ActiveSource::Latency));
    let bounded = config.lent_lanes().is_some_and(|lanes| lanes.slowdown_bound().is_some());
    if wanted {
        can_track()?;
    }
    let requests = wanted || (bounded && can_track().is_ok());
    let turns = |lanes: &LaneGate| lanes.policy.is_none_or(PolicyKind::needs_requests);
    let lent = config.lent_lanes().map(|lanes| LaneLending { turns: turns(lanes), ..LaneLending::default() });
    let interference = matches!(source, Some(ActiveSource::Counters(_)));
    Ok(Purpose::Share { requests, interference, lent })
}

/// Audit log with a writer for each kind of decision.
#[derive(Default)]
struct Log {
    log: Option<AuditLog>,
    pen: CpuAudit,
    lane_pen: LaneAudit,
}

/// Opens the log. A wrong path is an error of the file. A full disk does not keep the agent from starting, because
/// services would be unprotected.
fn open_log(path: &Path) -> Result<Log> {
    let file = AuditFile::append(path.to_owned());
    let file = file.with_context(|| format!("cannot write the audit log {}", path.display()))?;
    let ((pen, lines), (lane_pen, lane_lines)) = (Audit::channel(), Audit::channel());
    let log = AuditLog::start(file, AuditLevel::All, vec![lines, lane_lines]);
    let log = log.context("cannot start the thread of the audit log")?;
    log.record_action(now_ns(), "start", "the agent has started");
    Ok(Log { log: Some(log), pen, lane_pen })
}

/// Claims the CPUs, and starts the guardian. In a dry run it claims nothing, and there is no actuator.
fn claim_machine(
    owners: &mut Owners,
    online: &CpuSet,
    claim: Option<&Claim>,
    context: (&Config, &Tracker),
) -> Result<(Option<Actuator>, Endpoints, CpuSet)> {
    let Some(claim) = claim else { return Ok((None, Endpoints::without_sockets(), online.clone())) };
    let (actuator, endpoints) = claim_and_start_guardian(owners, online, claim, context)?;
    Ok((Some(actuator), endpoints, owners.claimed_cpus()))
}

/// Claims the CPUs, and starts the guardian, which holds the claims, too.
fn claim_and_start_guardian(
    owners: &mut Owners,
    online: &CpuSet,
    claim: &Claim,
    (config, tracker): (&Config, &Tracker),
) -> Result<(Actuator, Endpoints)> {
    let claims = owners.claim(online)?;
    let mut locks = owners
        .duplicate_claim_fds()
        .context("cannot pass the claims on to the guardian process; raise the limit of open files (ulimit -n)")?;
    locks.push(claim.duplicate_lock()?);
    let halt_events = config.lent_lanes().map(|_| tracker.halt_events()).transpose()?;
    let mut guardian = Guardian::start(&locks, halt_events).context(CANNOT_START)?;
    guardian.add([claim.undo(), Endpoints::undo_entry()].into_iter().chain(claims))?;
    claim.announce()?;
    owners.announce_claims()?;
    let endpoints = Endpoints::open(config.metrics)?;
    Ok((Actuator::new(guardian, config.lent_lanes().is_some()), endpoints))
}

fn start_lane_watchdog(tracked: &Tracked) -> Result<LentLanes> {
    LentLanes::new(tracked.tracker()).context("cannot watch the batch lanes")
}
