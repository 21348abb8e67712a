//! How batch is started: the guardian, the changes to the machine, and then the command, in that order.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::Arc;

use anyhow::{Context, Result};

use super::super::batch::{Batch, GatedBatch};
use super::super::beside::{Beside, settle};
use super::super::cage::{Cage, CagePlan};
use super::super::claim::Claim;
use super::super::gate::{Gate, LaneKeeper, Pass, keepers};
use super::super::terms::TermsKeeper;
use super::SessionOptions;
use crate::audit::{Audit, AuditLog};
use crate::request::emitted::Emitters;
use crate::request::{RequestSource, Requests};
use crate::undo::guardian::Guardian;
use sidelane_host::clock::now_ns;
use sidelane_host::corecookie::CoreCookie;
use sidelane_kernel::scheduler::Scheduler;
use sidelane_kernel::tracking::{BatchTracking, ServiceTracking};

/// The parts of a session that start with batch.
pub(super) struct Started {
    pub(super) keepers: Vec<LaneKeeper>,
    pub(super) scheduler: Option<Scheduler>,
    pub(super) terms: Option<TermsKeeper>,
    pub(super) batch: Batch,
    pub(super) log: Option<AuditLog<BufWriter<File>>>,
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

pub(super) fn start_guardian(claims: &[Claim]) -> Result<Guardian> {
    let locks = claims.iter().map(Claim::share).collect::<io::Result<Vec<_>>>()?;
    let mut guardian = Guardian::start(&locks).context("cannot start the guardian process")?;
    let files = claims.iter().map(|claim| claim.path().to_owned()).collect();
    guardian.update(|plan| plan.claims = files).context("cannot brief the guardian")?;
    Ok(guardian)
}

/// The first changes to the machine: the service's affinity, if wanted, and the cage.
pub(super) fn enter_machine(beside: &Beside, job: &BatchTracking, guardian: &mut Guardian) -> Result<Cage> {
    let name = format!("sidelane-{}", std::process::id());
    let pins = beside.pin_plan();
    guardian
        .update(|plan| {
            plan.pins = pins.clone();
            plan.cage = CagePlan::of(&name);
        })
        .context("cannot brief the guardian")?;
    pins.pin(&beside.lanes.requests)?;
    Ok(Cage::make(&name, beside.lanes.batch_cpus(), job.census()))
}

pub(super) fn start_batch(
    beside: &Beside,
    tracking: &ServiceTracking,
    job: &BatchTracking,
    cage: &Arc<Cage>,
    guardian: &mut Guardian,
    command: &[OsString],
    options: SessionOptions,
) -> Result<Started> {
    let pass = make_pass(tracking, &options.gate)?;
    let gated = GatedBatch::start(command, options.class, pass.as_ref()).context("cannot start the batch command")?;
    guardian.update(|plan| plan.batch_pid = gated.pid()).context("cannot brief the guardian")?;
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

fn make_pass(tracking: &ServiceTracking, gate: &Gate) -> Result<Option<Pass>> {
    let Gate::Instrumented { library } = gate else { return Ok(None) };
    let pass = Pass::make(tracking, library);
    pass.map(Some).context("cannot hand the lane words to the batch command")
}

/// The audit log, beginning with what was done to the machine so far.
fn open_log(file: File, beside: &Beside, batch_pid: u32) -> Result<(AuditLog<BufWriter<File>>, Audit)> {
    let (mut log, pen) = AuditLog::new(BufWriter::new(file));
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
