//! Start of batch, and its options: first the guardian, then the changes to the machine, then the command.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::Arc;

use anyhow::{Context, Result};

use super::super::adopt::{AdoptedBatch, Adoptee};
use super::super::batch::{Batch, BatchClass, StartBarrier};
use super::super::confinement::BatchConfinement;
use super::super::gate::{Gate, GateDescriptors, GateReason, keepers};
use super::super::placement::wait_for_lane_switches;
use super::service::SessionService;
use crate::kept_lanes::KeptLanes;
use crate::lending_limits::LendingLimitsKeeper;
use crate::log::LaneAudit;
use crate::watchdog::LaneWatch;
use sidelane_diagnostics::audit::{Audit, AuditFile, AuditLevel, AuditLog};
use sidelane_host::clock::now_ns;
use sidelane_host::corecookie::CoreCookie;
use sidelane_host::thread::Thread;
use sidelane_host::topology::Lanes;
use sidelane_policy::borrow::Lending;
use sidelane_rollback::Undo;
use sidelane_rollback::change::undos_of_own_groups;
use sidelane_rollback::claim::Claim;
use sidelane_rollback::guardian::{CANNOT_START, Guardian};
use sidelane_tracker::scheduler::Scheduler;
use sidelane_tracker::tracker::Tracker;
use sidelane_tracker::tracking::{BatchTracking, ServiceTracking};

/// Options of a session.
pub struct SessionOptions {
    /// Scheduling class of batch.
    pub class: BatchClass,
    /// Policy by which lanes are held; `None`: lanes are only watched, for comparison.
    pub hold: Option<Lending>,
    /// Gate that keeps batch off the lanes.
    pub gate: Gate,
    /// Reason for the gate. Holders take over from a gate on trial if batch overlaps too much.
    pub gate_reason: GateReason,
    /// Bound of the overlap for a gate on trial, in millionths of a service's time; `None`: 1 %.
    pub max_overlap_ppm: Option<u32>,
    /// Audit log with its level; `None` without a log.
    pub audit: Option<(AuditFile, AuditLevel)>,
    /// Bound of the slowdown of requests, as 0.05 for 5 %; `None`: no bound. Applies if a holder keeps the lanes and
    /// the policy does not need requests itself.
    pub max_slowdown: Option<f64>,
    /// Whether a command gets no input and its output is dropped, because comparisons start it several times.
    pub quiet: bool,
    /// Whether a command keeps the rights to real-time classes and nice values, and its threads keep the class that
    /// they take.
    pub allow_realtime: bool,
}

impl SessionOptions {
    /// Returns whether batch is kept in its scheduling class. Batch that is only observed, for comparison, is not.
    pub(super) fn keeps_batch_class(&self) -> bool {
        self.hold.is_some() && !self.allow_realtime
    }
}

/// Batch that is to use the lanes.
pub(super) enum BatchRequest<'command> {
    Command(&'command [OsString]),
    Adoptee(Adoptee),
}

/// Batch that uses the lanes.
pub(super) enum RunningBatch {
    Command(Batch),
    Adopted(Box<AdoptedBatch>),
}

impl RunningBatch {
    pub(super) fn has_ended(&self, job: &BatchTracking) -> bool {
        match self {
            RunningBatch::Command(batch) => batch.has_ended(),
            RunningBatch::Adopted(adopted) => adopted.has_ended(job),
        }
    }

    /// Sends a POSIX signal to a batch command. Adopted batch gets none.
    pub(super) fn signal(&self, signal: i32) {
        if let RunningBatch::Command(batch) = self {
            batch.signal(signal);
        }
    }

    /// Returns how the batch ended, with the text for the log.
    pub(super) fn into_ending(self) -> Result<(Ending, String)> {
        match self {
            RunningBatch::Command(batch) => {
                let status = batch.reap().context("cannot read the exit status of the batch command")?;
                let why = format!(
                    "the batch command has ended: {status}; its groups are removed, and affinities are \
                             restored"
                );
                Ok((Ending::Command(status), why))
            }
            RunningBatch::Adopted(adopted) => {
                let why = format!("{} was given back as it was found", adopted.description());
                Ok((Ending::GivenBack(adopted.description()), why))
            }
        }
    }
}

/// Way in which a session's batch ended.
#[derive(Clone, Debug)]
pub enum Ending {
    /// End of the command, with its status.
    Command(ExitStatus),
    /// Return of adopted batch to its owner, with its name and counts.
    GivenBack(String),
}

/// Parts of a session that start with batch.
pub(super) struct Started {
    pub(super) confinement: Arc<BatchConfinement>,
    /// Lanes of each service, if they are held.
    pub(super) kept: Vec<KeptLanes>,
    pub(super) scheduler: Option<Scheduler>,
    pub(super) watch: Option<LaneWatch>,
    pub(super) work: RunningBatch,
    pub(super) log: Log,
}

/// Parts of a session that exist before batch.
pub(super) struct SessionParts<'a> {
    pub(super) services: &'a mut [SessionService],
    /// Lanes of all services.
    pub(super) lanes: &'a Lanes,
    pub(super) tracker: &'a Tracker,
    pub(super) job: &'a BatchTracking,
}

impl SessionParts<'_> {
    /// Makes the first change to the machine: the affinities of the services, if the user asked for it.
    fn pin_services(&mut self, guardian: &mut Guardian) -> Result<()> {
        self.services.iter_mut().try_for_each(|service| service.pin(guardian))
    }

    /// Begins tracking, and takes in processes that were created since the services were found.
    fn start_tracking(&self) -> Result<()> {
        self.tracker.attach()?;
        self.services
            .iter()
            .for_each(|service| service.tracked.tracking.add_processes(&service.placement.service.pids));
        Ok(wait_for_lane_switches(&self.tracker.memory(), &self.lanes.request_lanes)?)
    }
}

/// Starts a guardian that holds these claims too. The tracker notifies it when this process stops.
pub(super) fn start_guardian(claims: &[Claim], tracker: &Tracker) -> Result<Guardian> {
    let halt_events = tracker.halt_events()?;
    Guardian::start(&duplicate_claim_locks(claims)?, Some(halt_events)).context(CANNOT_START)
}

/// Returns duplicates of the descriptors that hold these claims.
pub(super) fn duplicate_claim_locks(claims: &[Claim]) -> Result<Vec<OwnedFd>> {
    Ok(claims.iter().map(Claim::duplicate_lock).collect::<io::Result<Vec<_>>>()?)
}

/// Returns the name of this session's cgroups.
fn session_cgroup_name() -> String {
    format!("sidelane-{}", std::process::id())
}

fn make_confinement(stage: &SessionParts<'_>, guardian: &mut Guardian) -> Result<Arc<BatchConfinement>> {
    let name = session_cgroup_name();
    guardian.add(undos_of_own_groups(&name))?;
    Ok(Arc::new(BatchConfinement::make(&name, stage.lanes.batch_cpus(), stage.job.member_list())))
}

pub(super) fn start_batch(
    mut stage: SessionParts<'_>,
    guardian: &mut Guardian,
    command: &[OsString],
    options: SessionOptions,
) -> Result<Started> {
    stage.pin_services(guardian)?;
    let confinement = make_confinement(&stage, guardian)?;
    let pass = make_gate_descriptors(&stage.services[0].tracked.tracking, &options.gate)?;
    let barrier =
        StartBarrier::start(command, options.class, options.quiet, !options.keeps_batch_class(), pass.as_ref())
            .context("cannot start the batch command")?;
    let process = Thread::with_tid(barrier.pid()).context(BATCH_NOT_STARTED)?;
    guardian.add([Undo::Family { process }])?;
    confinement.add_process(barrier.pid()).context("cannot confine the batch command to its lanes")?;
    // The barrier takes its class itself, but may not have done so when the session first checks.
    options.class.restore_thread_class(barrier.pid());
    if options.gate == Gate::CoreSched {
        CoreCookie::create_for_process(barrier.pid())
            .context("cannot separate the batch command by core scheduling (--gate core-sched); use --gate holder")?;
    }
    stage.job.add_process(barrier.pid());
    stage.start_tracking()?;
    let what = format!("process {} was started", barrier.pid());
    let (kept, log) = start_lane_keepers(stage, &confinement, options, &what)?;
    let work =
        RunningBatch::Command(barrier.open().context("cannot let the batch command begin; start the run again")?);
    let HeldLanes { kept, scheduler, watch } = kept;
    Ok(Started { confinement, kept, scheduler, watch, work, log })
}

/// Moves batch that runs already to its lanes. The keepers of the lanes start before that.
pub(super) fn adopt_batch(
    mut stage: SessionParts<'_>,
    guardian: &mut Guardian,
    adoptee: Adoptee,
    options: SessionOptions,
) -> Result<Started> {
    stage.pin_services(guardian)?;
    stage.start_tracking()?;
    let (lanes, job) = (stage.lanes.batch_cpus(), stage.job);
    let mut adopted = AdoptedBatch::prepare(adoptee, &lanes, &session_cgroup_name(), guardian)?;
    let confinement = Arc::new(adopted.confinement(lanes, job));
    let what = format!("{} was adopted", adopted.name());
    let (kept, log) = start_lane_keepers(stage, &confinement, options, &what)?;
    let taken = adopted.move_all_to_lanes(&confinement, job, guardian);
    if taken.is_err() {
        // The keepers still run for a moment, and must not change batch any more.
        confinement.stop_changing_batch();
    }
    taken?;
    let HeldLanes { kept, scheduler, watch } = kept;
    Ok(Started { confinement, kept, scheduler, watch, work: RunningBatch::Adopted(Box::new(adopted)), log })
}

/// Lanes of a session, with their keepers.
struct HeldLanes {
    kept: Vec<KeptLanes>,
    scheduler: Option<Scheduler>,
    watch: Option<LaneWatch>,
}

fn start_lane_keepers(
    stage: SessionParts<'_>,
    confinement: &Arc<BatchConfinement>,
    options: SessionOptions,
    batch_name: &str,
) -> Result<(HeldLanes, Log)> {
    let (log, pen) = options.audit.map(|audit| open_log(audit, &stage, batch_name)).transpose()?.unzip();
    let pen = pen.unwrap_or_default();
    let Some(lending) = options.hold else {
        return Ok((HeldLanes { kept: Vec::new(), scheduler: None, watch: None }, log));
    };
    let memory = stage.tracker.memory();
    let lanes = || stage.services.iter().map(|service| &service.placement.lanes);
    let limits: Vec<LendingLimitsKeeper> =
        lanes().map(|lanes| LendingLimitsKeeper::new(lending, lanes, Arc::clone(&memory))).collect();
    let (mut keepers, scheduler) =
        keepers::start_keepers(&options.gate, stage.lanes, stage.tracker, confinement, lending, &pen)?;
    // Without keepers batch is not evicted from any lane, so no watchdog is needed.
    let watched = !keepers.is_empty();
    let watch = || {
        LaneWatch::start(stage.lanes, Arc::clone(&memory), stage.tracker.alarm_ring()?, confinement)
            .context(NO_WATCHDOG)
    };
    let watch = watched.then(watch).transpose()?;
    let keep = |(lanes, limits): (&Lanes, LendingLimitsKeeper)| {
        let own = keepers.extract_if(.., |keeper| lanes.batch_cpus().contains(keeper.cpu())).collect();
        KeptLanes::new(own, lanes, limits, &memory)
    };
    Ok((HeldLanes { kept: lanes().zip(limits).map(keep).collect(), scheduler, watch }, log))
}

const BATCH_NOT_STARTED: &str =
    "cannot start the batch command: its process ended before the command ran; start the run again";
const NO_WATCHDOG: &str = "cannot start the watchdog of the batch lanes";

type Log = Option<AuditLog>;

fn make_gate_descriptors(tracking: &ServiceTracking, gate: &Gate) -> Result<Option<GateDescriptors>> {
    let Gate::Instrumented { library } = gate else { return Ok(None) };
    let pass = GateDescriptors::make(tracking, library);
    pass.map(Some).context(
        "cannot share the lane's state with the batch command (--gate instrumented); raise the limit of open files \
         (ulimit -n), or use --gate holder",
    )
}

/// Opens the audit log. Its first lines are the changes to the machine so far.
fn open_log(
    (file, level): (AuditFile, AuditLevel),
    stage: &SessionParts<'_>,
    batch_name: &str,
) -> Result<(AuditLog, LaneAudit)> {
    let (pen, lines) = Audit::channel();
    let log = AuditLog::start(file, level, vec![lines]).context("cannot start the thread of the audit log")?;
    let note = |what, why: &str| log.record_action(now_ns(), what, why);
    for placement in stage.services.iter().map(|service| &service.placement) {
        let (requests, batch) = (&placement.lanes.request_lanes, placement.lanes.batch_cpus());
        if placement.pin_service {
            let why = format!("--pin-service: {} is confined to CPUs {requests} until the end", placement.target);
            note("pin", &why);
        }
        note("start", &format!("{batch_name} to borrow lanes {batch} beside {} on {requests}", placement.target));
    }
    Ok((log, pen))
}

pub(super) fn undo_all_changes(guardian: Guardian, error: anyhow::Error) -> anyhow::Error {
    match guardian.undo_all_and_end() {
        Ok(()) => error,
        Err(undoing) => error.context(format!(
            "cannot undo all changes to the machine ({undoing}); check CPU affinities (taskset -a -p PID) and cgroups \
             of service and batch; the run failed before that"
        )),
    }
}
