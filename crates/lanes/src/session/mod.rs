//! A session: one batch, a command or adopted, on the lanes of one or more services, from start to end.
//!
//! The order matters. Steps that can fail without a change to the machine come first. The guardian knows of each change
//! before it is made. Batch runs last. At the end batch ends first, and the lanes are released when nothing is left to
//! run on them.

mod rank;
mod service;
mod start;
mod status;
mod watch;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sidelane_policy::borrow::LaneReason;
use sidelane_policy::borrow::gate_trial::GateTrial;
use sidelane_policy::borrow::promise::BOUND_PPM;

use crate::adopt::Adoptee;
use crate::batch::exit_code;
use crate::confinement::BatchConfinement;
use crate::gate::{Gate, GateReason, LaneKeeper};
use crate::holder::KeeperCounts;
use crate::kept_lanes::KeptLanes;
use crate::lending_limits::{FinalLendingLimits, LearnedLimits, ObjectiveOutcome};
use crate::note::LaneNote;
use crate::placement::Placement;
use crate::slowdown::{SlowdownKeeper, SlowdownOutcome};
use crate::status_socket::{StatusSocket, run_socket};
use crate::watchdog::LaneWatch;
use rank::BatchRank;
use service::{PendingService, SessionService};
use sidelane_diagnostics::audit::AuditLog;
use sidelane_diagnostics::log_note::LogNote;
use sidelane_diagnostics::note::Note;
use sidelane_host::clock::now_ns;
use sidelane_host::posix_signals::stop_this_process;
use sidelane_host::procfs::{has_uninterruptible_thread, thread_name};
use sidelane_host::service::Target;
use sidelane_host::topology::Lanes;
use sidelane_report::terminal::eprint_fitted;
use sidelane_requests::{RequestSource, Source};
use sidelane_rollback::claim::{Claim, Claimant};
use sidelane_rollback::guardian::Guardian;
use sidelane_rollback::own_threads::keep_off_cpus;
use sidelane_rollback::{ChangeId, Undo, own_threads};
use sidelane_tracker::accounting::Accounting;
use sidelane_tracker::scheduler::Scheduler;
use sidelane_tracker::tracker::{LaneMemory, Tracker};
use sidelane_tracker::tracking::BatchTracking;
use start::{
    BatchRequest, RunningBatch, SessionParts, Started, adopt_batch, start_batch, start_guardian, undo_all_changes,
};
pub use start::{Ending, SessionOptions};
use status::{RunStatus, batch_text};

/// Time in which killed batch is gone, unless it is stuck.
const DIES_WITHIN: Duration = Duration::from_secs(1);
const STUCK_LOOK_EVERY: Duration = Duration::from_millis(10);
/// Error text: the gate's library maps the shared memory of one service only.
const INSTRUMENTED_BESIDE_ONE: &str =
    "cannot use --gate instrumented beside several services; name one --service, or use --gate holder";

/// Result of a session.
pub struct Outcome {
    /// Way in which batch ended.
    pub ending: Ending,
    /// Accounting of the kernel program, from start to end of the session.
    pub accounting: Accounting,
    /// Counts of the lanes' keepers.
    pub holders: KeeperCounts,
    /// Gate that keeps batch off the lanes, at the end of the session.
    pub gate: Gate,
    /// Reason for the gate.
    pub gate_reason: GateReason,
    /// Whether batch could check its lane itself, at least at first.
    pub self_checking: bool,
    /// Results for each service, in the order in which the user named them.
    pub services: Vec<ServiceOutcome>,
    /// Whether this process was stopped during the session, so that no holder ran.
    pub was_stopped: bool,
    /// Notes on what was degraded or failed.
    pub notes: Vec<Note>,
}

/// Result of a session for one service.
#[derive(Clone, Debug)]
pub struct ServiceOutcome {
    /// Name of the service, as the user gave it.
    pub target: Target,
    /// Lanes of the service.
    pub lanes: Lanes,
    /// Lending limits of the service's lanes, if the lanes were held.
    pub limits: Option<FinalLendingLimits>,
    /// Source of the service's requests, if the policy needed them.
    pub requests: Option<Source>,
    /// Result for the service's objective, if it has one.
    pub objective: Option<ObjectiveOutcome>,
    /// Slowdown of the service's requests by batch, if it was measured.
    pub slowdown: Option<SlowdownOutcome>,
}

impl ServiceOutcome {
    fn from_service((index, service): (usize, &SessionService), slowdown: Option<&SlowdownKeeper>) -> Self {
        let source = service.tracked.requests.source.as_ref();
        let limits = service.tracked.kept.as_ref().map(|kept| &kept.limits);
        Self {
            objective: limits.and_then(|limits| limits.objective()),
            slowdown: slowdown.filter(|_| source.is_some()).and_then(|slowdown| slowdown.outcome(index as u64)),
            target: service.placement.target.clone(),
            lanes: service.placement.lanes.clone(),
            limits: limits.map(|limits| limits.present_limits()),
            requests: source.map(RequestSource::kind),
        }
    }
}

impl Outcome {
    /// Returns the batch command's exit code, as a shell would report it. For adopted batch it is unknown, and 0 is
    /// returned.
    pub fn exit_code(&self) -> u8 {
        match &self.ending {
            Ending::Command(status) => exit_code(*status) as u8,
            Ending::GivenBack(_) => 0,
        }
    }
}

pub struct Session {
    services: Vec<SessionService>,
    /// Lanes of all services.
    lanes: Lanes,
    tracker: Rc<Tracker>,
    job: BatchTracking,
    gate: Gate,
    gate_reason: GateReason,
    /// Trial of a gate from which holders may take over.
    trial: Option<GateTrial>,
    confinement: Arc<BatchConfinement>,
    scheduler: Option<Scheduler>,
    watch: Option<LaneWatch>,
    work: RunningBatch,
    guardian: Guardian,
    claims: Vec<Claim>,
    log: Option<AuditLog>,
    notes: BTreeSet<Note>,
    slowdown: Option<SlowdownKeeper>,
    began: Accounting,
    strays_seen: u64,
    was_stopped: bool,
    service_looked_at: Instant,
    rank: BatchRank,
    /// Notes that were not yet fetched by [`Session::take_notes`].
    news: Vec<Note>,
    blocked: Blocked,
    status: RunStatus,
}

/// Time since which batch may not run on any lane, with batch's CPU time until then.
#[derive(Clone, Copy, Debug)]
struct Blocked {
    since: Instant,
    batch_ns: u64,
    why: Option<LaneReason>,
}

impl Session {
    /// Starts `command` beside at least one service.
    pub fn start(services: Vec<Placement>, command: &[OsString], options: SessionOptions) -> Result<Self> {
        Self::start_session(services, BatchRequest::Command(command), options)
    }

    /// Adopts batch beside at least one service.
    pub fn adopt(services: Vec<Placement>, adoptee: Adoptee, options: SessionOptions) -> Result<Self> {
        Self::start_session(services, BatchRequest::Adoptee(adoptee), options)
    }

    fn start_session(services: Vec<Placement>, batch: BatchRequest<'_>, options: SessionOptions) -> Result<Self> {
        let lanes = Placement::combined_lanes(&services)?;
        let (gate, gate_reason) = (options.gate.clone(), options.gate_reason.clone());
        ensure!(services.len() == 1 || !gate.is_instrumented(), INSTRUMENTED_BESIDE_ONE);
        let pending: Vec<_> = services.into_iter().map(|placement| PendingService::new(placement, &options)).collect();
        // The tracker is loaded first, because its errors name the privileges that are missing.
        let tracker = PendingService::load_tracker(&pending, &options, gate == Gate::SchedExt)?;
        let mut services = pending.into_iter().map(|service| service.track(&tracker)).collect::<Result<Vec<_>>>()?;
        let job = BatchTracking::start(&tracker, None)?;
        keep_off_cpus(&lanes.request_lanes).context("cannot keep sidelane's own threads off the request lanes")?;
        // The claims are taken just before the start of the guardian, which is to hold them too.
        let requests = lanes.request_lanes.iter().map(Claim::take_request_lane);
        let pinned =
            services.iter().flat_map(SessionService::pids_to_pin).map(|pid| Claim::take_threads(pid, Claimant::Run));
        let claims = lanes.batch.iter().map(|lane| Claim::take_batch_lane(lane.cpu)).chain(requests).chain(pinned);
        let claims: Vec<Claim> = claims.collect::<Result<_, _>>()?;
        let mut guardian = start_guardian(&claims, &tracker)?;
        guardian.add(claims.iter().map(Claim::undo))?;
        claims.iter().try_for_each(Claim::announce)?;
        let socket = run_socket(std::process::id());
        guardian.add([StatusSocket::undo_entry(&socket)])?;
        let status = RunStatus::open(&socket, batch_text(&batch))?;
        let slowdown = Self::make_slowdown_keeper(&services, &options);
        let trial = Self::begin_gate_trial(&options);
        let rank = BatchRank::from_options(&options, matches!(batch, BatchRequest::Command(_)));
        let stage = SessionParts { services: &mut services, lanes: &lanes, tracker: &tracker, job: &job };
        let started = match batch {
            BatchRequest::Command(command) => start_batch(stage, &mut guardian, command, options),
            BatchRequest::Adoptee(adoptee) => adopt_batch(stage, &mut guardian, adoptee, options),
        };
        let Started { confinement, kept, scheduler, watch, work, log } = match started {
            Ok(started) => started,
            Err(error) => return Err(undo_all_changes(guardian, error)),
        };
        services.iter_mut().zip(kept).for_each(|(service, kept)| service.tracked.kept = Some(kept));
        let (began, strays_seen) = (tracker.memory().accounting(), tracker.memory().batch_switches_outside_lanes());
        let beside = (!guardian.survives_group_kill()).then_some(LaneNote::GuardianInGroup);
        let notes =
            confinement.missing_mechanisms().into_iter().chain(beside).chain(rank.notes()).map(Note::from).collect();
        Ok(Self {
            services,
            lanes,
            tracker,
            job,
            gate,
            gate_reason,
            trial,
            confinement,
            scheduler,
            watch,
            work,
            guardian,
            claims,
            log,
            notes,
            slowdown,
            began,
            strays_seen,
            was_stopped: false,
            service_looked_at: Instant::now(),
            rank,
            news: Vec::new(),
            blocked: Blocked { since: Instant::now(), batch_ns: 0, why: None },
            status,
        })
    }

    /// Begins the trial of the gate, before batch runs; `None` if no other gate may take over.
    fn begin_gate_trial(options: &SessionOptions) -> Option<GateTrial> {
        let bound_ppm = options.max_overlap_ppm.unwrap_or(BOUND_PPM);
        options.gate_reason.is_on_trial().then(|| GateTrial::new(bound_ppm, now_ns()))
    }

    /// Makes the measurement of the slowdown; `None` if no request can be seen or no bound is set.
    fn make_slowdown_keeper(services: &[SessionService], options: &SessionOptions) -> Option<SlowdownKeeper> {
        let min_idle_ns = options.hold?.config.min_idle_ns;
        let bound = options
            .max_slowdown
            .filter(|_| services.iter().any(|service| service.tracked.requests.source.is_some()))?;
        let now = now_ns();
        let mut keeper = SlowdownKeeper::new(bound, min_idle_ns, now);
        keeper.set_measured_services(&(0..services.len() as u64).collect(), now);
        Some(keeper)
    }

    /// Returns the notes since the last call.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.news)
    }

    /// Returns the keepers of all lanes.
    fn keepers(&self) -> impl Iterator<Item = &LaneKeeper> {
        self.services.iter().filter_map(|service| service.tracked.kept.as_ref()).flat_map(KeptLanes::keepers)
    }

    /// Returns the kernel program's accounting since the start of the session.
    pub fn accounting(&self) -> Accounting {
        self.memory().accounting().since(&self.began)
    }

    /// Returns for how long batch has not been allowed to run on any of its lanes, and why; `None` if it is allowed.
    pub fn blocked_time_and_reason(&self) -> Option<(Duration, LaneReason)> {
        Some((self.blocked.since.elapsed(), self.blocked.why?))
    }

    /// Returns the lanes of all services.
    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// Returns the memory shared with the kernel program.
    pub fn memory(&self) -> Arc<LaneMemory> {
        self.tracker.memory()
    }

    /// Returns the user-space side of the kernel program.
    pub fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    /// Returns whether batch has ended.
    pub fn has_ended(&self) -> bool {
        self.work.has_ended(&self.job)
    }

    /// Returns what was learned about batch's cost from the requests of the first service, if lanes are held.
    pub fn learned(&self) -> Option<LearnedLimits> {
        self.services[0].tracked.kept.as_ref().map(|kept| kept.limits.learned())
    }

    /// Continues from what another session of the same service and batch command has learned about batch's cost.
    pub fn restore_learned(&mut self, learned: &LearnedLimits) {
        self.services[0].tracked.kept.iter_mut().for_each(|kept| kept.limits.restore_learned(learned));
    }

    /// Returns whether batch was adopted.
    pub fn is_adopted(&self) -> bool {
        matches!(self.work, RunningBatch::Adopted(_))
    }

    /// Sends a POSIX signal to a batch command. Adopted batch gets none.
    pub fn signal(&self, signal: i32) {
        self.work.signal(signal);
    }

    /// Kills the batch command and all of its descendants. Adopted batch goes on.
    pub fn kill(&mut self) {
        self.confinement.kill();
        self.work.signal(libc::SIGKILL);
        self.end_scheduler();
    }

    /// Ends batch's scheduler, if it has one: a killed thread that never gets its lane could not even die.
    fn end_scheduler(&mut self) {
        if self.scheduler.is_some() {
            self.keepers().for_each(LaneKeeper::dismiss_from_scheduler);
            self.scheduler = None;
        }
    }

    /// Freezes or thaws the batch command.
    fn pause(&self, paused: bool) {
        let _ = self.confinement.pause(paused);
    }

    /// Handles Ctrl-Z: stops batch first, then this process, until the shell continues it.
    pub fn stop_batch_then_self(&self) {
        self.pause(true);
        stop_this_process();
        self.signal(libc::SIGCONT);
        self.pause(false);
    }

    /// Undoes all changes, batch first. Works at any time.
    pub fn end(mut self) -> Result<Outcome> {
        self.log_watchdog_findings();
        // The end of the watchdog thaws batch that it has stopped, so that batch ends or is given back as usual.
        self.watch = None;
        if !self.is_adopted() {
            self.end_command()?;
        }
        if let RunningBatch::Adopted(adopted) = &mut self.work {
            adopted.accept_thaw_by_owner(&self.confinement, &mut self.guardian)?;
        }
        self.confinement.stop_changing_batch();
        if let RunningBatch::Adopted(adopted) = &mut self.work {
            adopted.register_descendants_undo(&self.job, &mut self.guardian)?;
        }
        for service in &mut self.services {
            service.update_pinned(&service.tracked.processes(), &mut self.guardian)?;
        }
        // Adopted batch goes on after this line, but its later work does not count.
        let at_end = self.is_adopted().then(|| self.memory().accounting());
        if let Err(error) = self.guardian.undo_all() {
            let _ = self.guardian.dismiss();
            return Err(error).context(
                "cannot undo all changes to the machine; check CPU affinities (taskset -a -p PID) and cgroups of \
                 service and batch",
            );
        }
        let holders = self.keepers().map(LaneKeeper::counts).fold(KeeperCounts::default(), |sum, one| sum + one);
        let mut accounting = at_end.unwrap_or_else(|| self.tracker.memory().accounting()).since(&self.began);
        self.keepers().for_each(|keeper| accounting.count_lent_as_overlap(keeper.cpu(), keeper.counts().late_ns));
        let of_service = |service| ServiceOutcome::from_service(service, self.slowdown.as_ref());
        let services = self.services.iter().enumerate().map(of_service).collect();
        self.note_unused_lanes(&accounting);
        let (ending, why) = self.work.into_ending()?;
        let of_ending = self.rank.core_dump_note(&ending);
        self.services.iter_mut().filter_map(|service| service.tracked.kept.as_mut()).for_each(KeptLanes::release_all);
        self.tracker.detach();
        if let Some(log) = &mut self.log {
            log.record_action(now_ns(), "end", &why);
            let state = log.end();
            self.notes.retain(|note| !note.matches(LogNote::is_about_audit_log));
            self.notes.extend(LogNote::about_audit_log(log.path(), &state).map(Note::from));
        }
        drop(self.claims);
        self.guardian
            .dismiss()
            .context("cannot wait for the end of the guardian process; all changes to the machine are undone")?;
        let of_services = self.services.iter_mut().flat_map(SessionService::notes).collect::<BTreeSet<_>>();
        let notes = self.notes.into_iter().chain(of_ending.map(Note::from)).chain(of_services);
        let notes = notes
            .chain(accounting_notes(&accounting, holders).map(Note::from))
            .chain(own_threads::overhead_note())
            .collect();
        Ok(Outcome {
            ending,
            accounting,
            holders,
            gate: self.gate,
            gate_reason: self.gate_reason,
            self_checking: self.tracker.memory().self_checking(),
            services,
            was_stopped: self.was_stopped,
            notes,
        })
    }

    fn end_command(&mut self) -> Result<()> {
        let leftovers = self.confinement.processes().len();
        if self.has_ended() {
            if leftovers > 0 {
                self.add_note(LaneNote::LeftoversEnded { processes: leftovers });
            }
            let families = self.guardian.list().iter().filter(|(_, undo)| matches!(undo, Undo::Family { .. }));
            let families: Vec<ChangeId> = families.map(|(change_id, _)| change_id).collect();
            self.guardian.withdraw(families)?;
        }
        // All processes of batch are killed here: without cgroups the guardian knows only the batch command, not its
        // descendants.
        self.confinement.kill();
        self.end_scheduler();
        self.note_unkillable_processes();
        Ok(())
    }

    /// Notes at once which process does not die, because batch's cgroups cannot be removed before that process is gone.
    fn note_unkillable_processes(&self) {
        let (began, stuck) =
            (Instant::now(), || self.confinement.processes().into_iter().find(|pid| has_uninterruptible_thread(*pid)));
        while let Some(pid) = stuck() {
            if began.elapsed() >= DIES_WITHIN {
                let name = thread_name(pid, pid);
                return eprint_fitted(&format!(
                    "sidelane: batch process {name} does not end: it is in a system call that no signal interrupts; \
                     see where with `cat /proc/{pid}/stack`"
                ));
            }
            sleep(STUCK_LOOK_EVERY);
        }
    }

    /// Notes that batch has been kept off its lanes for the time `blocked_for`.
    pub fn note_blocked(&mut self, blocked_for: Duration, why: LaneReason) {
        if why != LaneReason::ServiceOnBatchLane && why != LaneReason::KeptOff {
            self.add_note(LaneNote::Blocked { seconds: blocked_for.as_secs(), why: why.to_string() });
        }
    }

    /// Adds a note, unless the session has the same note already.
    fn add_note(&mut self, note: impl Into<Note>) {
        let what = note.into();
        if let Some(log) = self.log.as_ref().filter(|_| !self.notes.contains(&what)) {
            log.record_action(now_ns(), "note", &what.to_string());
        }
        if self.notes.insert(what.clone()) {
            self.status.add_note(what.to_string());
            self.news.push(what);
        }
    }
}

/// Divisor of the number of context switches: if the kernel hides more than this part of the switches from the kernel
/// program, a note reports that.
const UNTOLD_ONE_IN: u64 = 200;

fn accounting_notes(accounting: &Accounting, holders: KeeperCounts) -> impl Iterator<Item = LaneNote> {
    let leaks = accounting.sum(|lane| lane.leaks);
    let strays = accounting.sum(|lane| lane.batch_strays);
    let lc_strays = accounting.sum(|lane| lane.lc_strays);
    let (untold, switches) = (accounting.sum(|lane| lane.untold), accounting.sum(|lane| lane.switches));
    // Fewer hidden switches change no figure that is shown.
    let untold_share = untold * UNTOLD_ONE_IN / switches.max(1);
    let errors = holders.evictor_errors;
    let broken = holders.promises_broken;
    let unbelieved_ms = accounting.sum(|lane| lane.unbelieved_ns).div_ceil(1_000_000);
    let notes = [
        (leaks, LaneNote::Leaks { times: leaks }),
        (strays, LaneNote::BatchStrays { times: strays }),
        (lc_strays, LaneNote::ServiceStrays { times: lc_strays }),
        (untold_share, LaneNote::SwitchesUntold { times: untold, of: switches }),
        (errors, LaneNote::EvictionsFailed { times: errors }),
        (broken, LaneNote::PromisesBroken { times: broken }),
        (unbelieved_ms, LaneNote::ExcusesNotBelieved { ms: unbelieved_ms }),
    ];
    notes.into_iter().filter(|(count, _)| *count > 0).map(|(_, note)| note)
}
