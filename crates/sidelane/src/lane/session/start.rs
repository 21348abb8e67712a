//! How batch is started: the guardian, the changes to the machine, and then the command, in that order.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::Arc;

use anyhow::{Context, Result};

use super::super::adopt::{Adopted, Adoptee};
use super::super::batch::GatedBatch;
use super::super::beside::{Beside, settle};
use super::super::cage::Cage;
use super::super::claim::Claim;
use super::super::gate::{Gate, LaneKeeper, Pass, keepers};
use super::super::terms::TermsKeeper;
use super::SessionOptions;
use super::work::Work;
use crate::lane::log::{LaneAudit, LaneLog};
use crate::request::emitted::Emitters;
use crate::request::{RequestSource, Requests};
use crate::undo::change::own_groups;
use crate::undo::guardian::Guardian;
use crate::undo::{Ticket, Undo, affinity};
use sidelane_host::clock::now_ns;
use sidelane_host::corecookie::CoreCookie;
use sidelane_host::thread::Thread;
use sidelane_kernel::scheduler::Scheduler;
use sidelane_kernel::tracker::Tracker;
use sidelane_kernel::tracking::{BatchTracking, ServiceTracking};

/// The parts of a session that start with batch.
pub(super) struct Started {
    pub(super) cage: Arc<Cage>,
    pub(super) keepers: Vec<LaneKeeper>,
    pub(super) scheduler: Option<Scheduler>,
    pub(super) terms: Option<TermsKeeper>,
    pub(super) work: Work,
    pub(super) log: Log,
}

/// Starts to learn the service's requests, if the policy has to know them: as it emits them, or else at
/// its sockets.
pub(super) fn learn_requests(
    beside: &Beside,
    tracking: &ServiceTracking,
    emitters: Option<Emitters>,
) -> Result<Option<RequestSource>> {
    if let Some(mut emitters) = emitters {
        let words = emitters.words(tracking.number(), &beside.lanes.requests);
        tracking.tracker().memory().hear_from(tracking.number(), Box::new(words));
        return Ok(Some(RequestSource::Emitted(emitters)));
    }
    let track = || Requests::track(tracking, &beside.target.to_string(), &beside.service.pids);
    Ok(tracking.tracker().features().requests.then(track).transpose()?.map(RequestSource::Sockets))
}

/// Starts a guardian that holds these claims, too, and has been told of nothing yet.
pub(super) fn start_guardian(claims: &[Claim]) -> Result<Guardian> {
    let locks = claims.iter().map(Claim::share).collect::<io::Result<Vec<_>>>()?;
    Guardian::start(&locks).context("cannot start the guardian process")
}

/// Tells the guardian of changes that are about to be made.
pub(super) fn tell(guardian: &mut Guardian, changes: impl IntoIterator<Item = Undo>) -> Result<Vec<Ticket>> {
    guardian.add(changes).context("cannot brief the guardian")
}

/// The first change to the machine: the service's affinity, if wanted.
fn pin_service(beside: &Beside, guardian: &mut Guardian) -> Result<()> {
    let pins = beside.pins();
    tell(guardian, pins.iter().cloned())?;
    Ok(affinity::pin(&pins, &beside.lanes.requests)?)
}

/// What the groups of this session are called.
fn group_name() -> String {
    format!("sidelane-{}", std::process::id())
}

fn make_cage(beside: &Beside, job: &BatchTracking, guardian: &mut Guardian) -> Result<Arc<Cage>> {
    let name = group_name();
    tell(guardian, own_groups(&name))?;
    Ok(Arc::new(Cage::make(&name, beside.lanes.batch_cpus(), job.census())))
}

pub(super) fn start_batch(
    beside: &Beside,
    (tracking, job): (&ServiceTracking, &BatchTracking),
    guardian: &mut Guardian,
    command: &[OsString],
    options: SessionOptions,
) -> Result<Started> {
    pin_service(beside, guardian)?;
    let cage = make_cage(beside, job, guardian)?;
    let pass = make_pass(tracking, &options.gate)?;
    let gated = GatedBatch::start(command, options.class, pass.as_ref()).context("cannot start the batch command")?;
    let process = Thread::of(gated.pid()).context("the batch command has ended before it ran")?;
    tell(guardian, [Undo::Family { process }])?;
    cage.admit(gated.pid()).context("cannot put the batch command into its lanes")?;
    if options.gate == Gate::CoreSched {
        CoreCookie::give(gated.pid()).context("cannot give the batch command a cookie of its own")?;
    }
    job.take_in(gated.pid());
    let tracker = tracking.tracker();
    tracker.attach()?;
    // Whoever was forked between the first look and now.
    tracking.take_in(&beside.service.pids);
    settle(&tracker.memory(), &beside.lanes.requests)?;
    let what = format!("process {} was started", gated.pid());
    let (kept, log) = keep_lanes(beside, tracker, &cage, options, &what)?;
    let work = Work::Command(gated.open().context("cannot let the batch command run")?);
    let Kept { keepers, scheduler, terms } = kept;
    Ok(Started { cage, keepers, scheduler, terms, work, log })
}

/// Moves batch that is there already to its lanes. They are kept before it comes.
pub(super) fn adopt_batch(
    beside: &Beside,
    (tracking, job): (&ServiceTracking, &BatchTracking),
    guardian: &mut Guardian,
    adoptee: Adoptee,
    options: SessionOptions,
) -> Result<Started> {
    pin_service(beside, guardian)?;
    let tracker = tracking.tracker();
    tracker.attach()?;
    tracking.take_in(&beside.service.pids);
    settle(&tracker.memory(), &beside.lanes.requests)?;
    let lanes = beside.lanes.batch_cpus();
    let mut adopted = Adopted::prepare(adoptee, &lanes, &group_name(), guardian)?;
    let cage = Arc::new(adopted.cage(lanes, job));
    let what = format!("{} was adopted", adopted.name());
    let (kept, log) = keep_lanes(beside, tracker, &cage, options, &what)?;
    let taken = adopted.take_all(&cage, job, guardian);
    if taken.is_err() {
        // The keepers are there for a moment longer.
        cage.retire();
    }
    taken?;
    let Kept { keepers, scheduler, terms } = kept;
    Ok(Started { cage, keepers, scheduler, terms, work: Work::Adopted(Box::new(adopted)), log })
}

/// Who keeps the lanes, and on what terms.
struct Kept {
    keepers: Vec<LaneKeeper>,
    scheduler: Option<Scheduler>,
    terms: Option<TermsKeeper>,
}

fn keep_lanes(
    beside: &Beside,
    tracker: &Tracker,
    cage: &Arc<Cage>,
    options: SessionOptions,
    what: &str,
) -> Result<(Kept, Log)> {
    let (log, pen) = options.audit.map(|file| open_log(file, beside, what)).transpose()?.unzip();
    let pen = pen.unwrap_or_default();
    let terms = options.hold.map(|lending| TermsKeeper::new(lending, &beside.lanes, tracker.memory()));
    let (keepers, scheduler) = match options.hold {
        Some(lending) => keepers::start(&options.gate, &beside.lanes, tracker, cage, lending, &pen)?,
        None => Default::default(),
    };
    Ok((Kept { keepers, scheduler, terms }, log))
}

type Log = Option<LaneLog<BufWriter<File>>>;

fn make_pass(tracking: &ServiceTracking, gate: &Gate) -> Result<Option<Pass>> {
    let Gate::Instrumented { library } = gate else { return Ok(None) };
    let pass = Pass::make(tracking, library);
    pass.map(Some).context("cannot hand the lane words to the batch command")
}

/// The audit log, beginning with what was done to the machine so far.
fn open_log(file: File, beside: &Beside, what: &str) -> Result<(LaneLog<BufWriter<File>>, LaneAudit)> {
    let (mut log, pen) = LaneLog::new(BufWriter::new(file));
    let (requests, batch) = (&beside.lanes.requests, beside.lanes.batch_cpus());
    if beside.pin_service {
        let why = format!("--pin-service: {} is confined to CPUs {requests} until the end", beside.target);
        log.note(now_ns(), "pin", &why).context("cannot write the audit log")?;
    }
    let why = format!("{what} to borrow lanes {batch} beside {} on {requests}", beside.target);
    log.note(now_ns(), "start", &why).context("cannot write the audit log")?;
    Ok((log, pen))
}

pub(super) fn undo(guardian: Guardian, error: anyhow::Error) -> anyhow::Error {
    match guardian.finish() {
        Ok(()) => error,
        Err(undoing) => error.context(format!("and the machine could not be put right: {undoing}")),
    }
}
