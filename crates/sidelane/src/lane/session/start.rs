//! How batch is started: the guardian, the changes to the machine, and then the command, in that order.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::Arc;

use anyhow::{Context, Result};
use sidelane_signal::LaneClass;

use super::super::batch::{Batch, GatedBatch};
use super::super::beside::{Beside, settle};
use super::super::cage::Cage;
use super::super::claim::Claim;
use super::super::gate::{Gate, LaneKeeper, Pass, keepers};
use super::super::terms::TermsKeeper;
use super::SessionOptions;
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
use sidelane_kernel::tracker::{Extras, Tracker};

/// The parts of a session that start with batch.
pub(super) struct Started {
    pub(super) keepers: Vec<LaneKeeper>,
    pub(super) scheduler: Option<Scheduler>,
    pub(super) terms: Option<TermsKeeper>,
    pub(super) batch: Batch,
    pub(super) log: Option<LaneLog<BufWriter<File>>>,
}

/// Starts to learn the service's requests, if the policy has to know them: as it emits them, or else at
/// its sockets.
pub(super) fn learn_requests(
    beside: &Beside,
    tracker: &Tracker,
    emitters: Option<Emitters>,
    extras: Extras,
) -> Result<Option<RequestSource>> {
    if let Some(mut emitters) = emitters {
        tracker.memory().hear_from(Box::new(emitters.words(&beside.lanes.requests)));
        return Ok(Some(RequestSource::Emitted(emitters)));
    }
    let track = || Requests::track(tracker, &beside.target.to_string(), &beside.service.pids);
    Ok(extras.requests.then(track).transpose()?.map(RequestSource::Sockets))
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

/// The first changes to the machine: the service's affinity, if wanted, and the cage.
pub(super) fn enter_machine(beside: &Beside, tracker: &Tracker, guardian: &mut Guardian) -> Result<Cage> {
    let name = format!("sidelane-{}", std::process::id());
    let pins = beside.pins();
    tell(guardian, pins.iter().cloned().chain(own_groups(&name)))?;
    affinity::pin(&pins, &beside.lanes.requests)?;
    Ok(Cage::make(&name, beside.lanes.batch_cpus(), tracker.census()))
}

pub(super) fn start_batch(
    beside: &Beside,
    tracker: &mut Tracker,
    cage: &Arc<Cage>,
    guardian: &mut Guardian,
    command: &[OsString],
    options: SessionOptions,
) -> Result<Started> {
    let pass = make_pass(tracker, &options.gate)?;
    let gated = GatedBatch::start(command, options.class, pass.as_ref()).context("cannot start the batch command")?;
    let process = Thread::of(gated.pid()).context("the batch command has ended before it ran")?;
    tell(guardian, [Undo::Family { process }])?;
    cage.admit(gated.pid()).context("cannot put the batch command into its lanes")?;
    if options.gate == Gate::CoreSched {
        CoreCookie::give(gated.pid()).context("cannot give the batch command a cookie of its own")?;
    }
    tracker.set_class(gated.pid(), LaneClass::Batch);
    tracker.attach()?;
    settle(&tracker.memory(), &beside.lanes.requests)?;
    let (log, pen) = options.audit.map(|file| open_log(file, beside, gated.pid())).transpose()?.unzip();
    let pen = pen.unwrap_or_default();
    let terms = options.hold.map(|lending| TermsKeeper::new(lending, &beside.lanes, tracker.memory()));
    let (keepers, scheduler) = match options.hold {
        Some(lending) => keepers::start(&options.gate, &beside.lanes, tracker, cage, lending, &pen)?,
        None => Default::default(),
    };
    let batch = gated.open().context("cannot let the batch command run")?;
    Ok(Started { keepers, scheduler, terms, batch, log })
}

fn make_pass(tracker: &Tracker, gate: &Gate) -> Result<Option<Pass>> {
    let Gate::Instrumented { library } = gate else { return Ok(None) };
    let pass = Pass::make(tracker, library);
    pass.map(Some).context("cannot hand the lane words to the batch command")
}

/// The audit log, beginning with what was done to the machine so far.
fn open_log(file: File, beside: &Beside, batch_pid: u32) -> Result<(LaneLog<BufWriter<File>>, LaneAudit)> {
    let (mut log, pen) = LaneLog::new(BufWriter::new(file));
    let (requests, batch) = (&beside.lanes.requests, beside.lanes.batch_cpus());
    if beside.pin_service {
        let why = format!("--pin-service: {} is confined to CPUs {requests} until the end", beside.target);
        log.note(now_ns(), "pin", &why).context("cannot write the audit log")?;
    }
    let why = format!("process {batch_pid} was started to borrow lanes {batch} beside {} on {requests}", beside.target);
    log.note(now_ns(), "start", &why).context("cannot write the audit log")?;
    Ok((log, pen))
}

pub(super) fn undo(guardian: Guardian, error: anyhow::Error) -> anyhow::Error {
    match guardian.finish() {
        Ok(()) => error,
        Err(undoing) => error.context(format!("and the machine could not be put right: {undoing}")),
    }
}
