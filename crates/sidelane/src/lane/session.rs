//! A session: one batch command borrowing the lanes of one service, from start to end.
//!
//! Order is everything here. What can fail without touching the machine comes first; the
//! guardian knows of each change before it is made; batch runs last. At the end batch goes
//! first, and the lanes are let go only when nothing is left to run in them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sidelane_policy::borrow::harm::HarmSource;
use sidelane_policy::borrow::headroom::Standing;
use sidelane_signal::LaneClass;

use super::audit::{Audit, AuditLog};
use super::batch::{Batch, BatchClass, GatedBatch, exit_code};
use super::beside::{Beside, keep_off, settle};
use super::books::Books;
use super::cage::{Cage, CagePlan};
use super::claim::Claim;
use super::clock::now_ns;
use super::corecookie::CoreCookie;
use super::gate::sched_ext::Scheduler;
use super::gate::{Gate, LaneKeeper, Pass, keepers};
use super::guardian::Guardian;
use super::holder::HolderBooks;
use super::service::allowed_cpus;
use super::terms::{Budget, FinalTerms, Lending, TermsKeeper};
use super::tracker::{Extras, LaneMemory, Tracker};
use crate::request::emitted::Emitters;
use crate::request::{self, EventPair, RequestSource, Requests, Source};

/// How often a service that has gone is looked for, and one that strayed is looked at.
const SERVICE_LOOK_EVERY: Duration = Duration::from_millis(500);

/// How a session runs.
pub struct SessionOptions {
    /// Batch's scheduling class.
    pub class: BatchClass,
    /// Hold lanes by this policy; `None` only watches, for comparison.
    pub hold: Option<Lending>,
    /// How batch gets off a lane.
    pub gate: Gate,
    /// Where the audit log goes.
    pub audit: Option<File>,
}

/// What a session came to.
pub struct Outcome {
    /// How the batch command ended.
    pub status: ExitStatus,
    /// What the kernel counted, from start to end.
    pub books: Books,
    /// What the lanes' keepers did.
    pub holders: HolderBooks,
    /// How batch got off its lanes.
    pub gate: Gate,
    /// On what terms lanes were lent, if they were held at all.
    pub terms: Option<FinalTerms>,
    /// Where the service's requests were learned from, if the policy had to know them.
    pub requests: Option<Source>,
    /// What was degraded or went wrong on the way.
    pub notes: Vec<String>,
}

impl Outcome {
    /// The batch command's exit code, as a shell would report it.
    pub fn exit_code(&self) -> u8 {
        exit_code(self.status) as u8
    }
}

/// A running session.
pub struct Session {
    beside: Beside,
    tracker: Tracker,
    gate: Gate,
    cage: Arc<Cage>,
    keepers: Vec<LaneKeeper>,
    scheduler: Option<Scheduler>,
    terms: Option<TermsKeeper>,
    /// The service's requests, if the policy has to know them.
    requests: Option<RequestSource>,
    batch: Batch,
    guardian: Guardian,
    claims: Vec<Claim>,
    log: Option<AuditLog<BufWriter<File>>>,
    notes: BTreeSet<String>,
    began: Books,
    strays_seen: u64,
    service_looked_at: Instant,
}

impl Session {
    /// Starts `command` beside the service.
    pub fn start(beside: Beside, command: &[OsString], options: SessionOptions) -> Result<Self> {
        // First, because its errors name the privileges that are missing.
        let needs_requests = options.hold.is_some_and(|lending| lending.policy.needs_requests());
        // The service's own word is better than what its sockets show.
        let emitters = needs_requests.then(|| Emitters::find(&beside.service.pids)).flatten();
        let extras = Extras {
            requests: needs_requests && emitters.is_none(),
            turns: emitters.is_some(),
            counters: options.hold.filter(|lending| lending.policy.needs_harm()).map(|_| EventPair::HARDWARE),
            gated: options.gate.is_instrumented(),
            scheduler: options.gate == Gate::SchedExt,
        };
        if extras.requests {
            request::can_track()?;
        }
        let gate = options.gate.clone();
        let mut tracker = Tracker::load_for(&beside.lanes, beside.service.cgroup, extras)?;
        let claims: Vec<Claim> =
            beside.lanes.batch.iter().map(|lane| Claim::take(lane.cpu)).collect::<Result<_, _>>()?;
        for pid in &beside.service.pids {
            tracker.set_class(*pid, LaneClass::Lc);
        }
        let requests = learn_requests(&beside, &tracker, emitters, extras)?;
        keep_off(&beside.lanes.requests).context("cannot leave the request lanes")?;
        let mut guardian = start_guardian(&claims)?;
        let cage = match enter_machine(&beside, &tracker, &mut guardian) {
            Ok(cage) => Arc::new(cage),
            Err(error) => return Err(undo(guardian, error)),
        };
        let started = start_batch(&beside, &mut tracker, &cage, &mut guardian, command, options);
        let Started { keepers, scheduler, terms, batch, log } = match started {
            Ok(started) => started,
            Err(error) => return Err(undo(guardian, error)),
        };
        let began = tracker.memory().books();
        let notes = cage.missing().into_iter().collect();
        let service_looked_at = Instant::now();
        Ok(Self {
            beside,
            tracker,
            gate,
            cage,
            keepers,
            scheduler,
            terms,
            requests,
            batch,
            guardian,
            claims,
            log,
            notes,
            began,
            strays_seen: 0,
            service_looked_at,
        })
    }

    /// What it stands on.
    pub fn beside(&self) -> &Beside {
        &self.beside
    }

    /// The memory shared with the kernel program.
    pub fn memory(&self) -> Arc<LaneMemory> {
        self.tracker.memory()
    }

    /// The kernel's side.
    pub fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    /// The batch command.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Ends the batch command and everything it started, now.
    pub fn kill(&mut self) {
        self.cage.kill();
        self.batch.signal(libc::SIGKILL);
        self.end_scheduler();
    }

    /// Ends batch's scheduler, if it has one: a thread that never gets its lane could not even die.
    fn end_scheduler(&mut self) {
        if self.scheduler.is_some() {
            self.keepers.iter().for_each(LaneKeeper::dismiss_from_scheduler);
            self.scheduler = None;
        }
    }

    /// Freezes or thaws the batch command, as for a Ctrl-Z of the agent.
    pub fn pause(&self, paused: bool) {
        let _ = self.cage.freeze(paused);
    }

    /// Looks after everything that is not decided lane by lane; to be called a few times a second.
    pub fn supervise(&mut self) -> Result<()> {
        if let Some(log) = &mut self.log {
            log.drain().context("cannot write the audit log")?;
        }
        self.keep_terms()?;
        self.look_after_scheduler()?;
        self.put_strays_back();
        self.look_after_guardian()?;
        if self.service_looked_at.elapsed() >= SERVICE_LOOK_EVERY {
            self.service_looked_at = Instant::now();
            self.look_after_service()?;
        }
        Ok(())
    }

    /// Takes down what was put up, batch first. Works at any time.
    pub fn end(mut self) -> Result<Outcome> {
        let leftovers = self.cage.processes().len();
        if self.batch.has_ended() && leftovers > 0 {
            self.note(format!("{leftovers} background process(es) of the batch command were ended with it"));
        }
        if self.batch.has_ended() {
            self.guardian.update(|plan| plan.batch_pid = 0)?;
        }
        // Where there are no groups the plan knows of the batch command alone.
        self.cage.kill();
        self.end_scheduler();
        self.guardian.finish().context("cannot put the machine right")?;
        let holders = self.keepers.iter().map(LaneKeeper::books).fold(HolderBooks::default(), |sum, one| sum + one);
        let mut books = self.tracker.memory().books().since(&self.began);
        self.keepers.iter().for_each(|keeper| books.charge(keeper.cpu(), keeper.books().late_ns));
        let requests = self.requests.as_ref().map(RequestSource::name);
        let terms = self.terms.as_ref().map(TermsKeeper::present);
        let status = self.batch.reap().context("cannot learn how the batch command ended")?;
        self.keepers.clear();
        self.tracker.detach();
        if let Some(log) = &mut self.log {
            let why = format!("the batch command has ended: {status}; its groups are gone, affinities are given back");
            log.note(now_ns(), "end", &why).and_then(|()| log.drain()).context("cannot write the audit log")?;
        }
        drop(self.claims);
        let lost = self.requests.as_mut().and_then(lost_note);
        let harm_note = terms.as_ref().and_then(|terms| harm_note(&self.tracker, terms));
        let notes = self.notes.into_iter().chain(lost).chain(harm_note).chain(leak_notes(&books, holders)).collect();
        Ok(Outcome { status, books, holders, gate: self.gate, terms, requests, notes })
    }

    /// Notes something once, however often it is seen.
    fn note(&mut self, what: String) {
        if let Some(log) = self.log.as_mut().filter(|_| !self.notes.contains(&what)) {
            let _ = log.note(now_ns(), "note", &what);
        }
        self.notes.insert(what);
    }

    /// Learns from the requests that have finished, and agrees new terms.
    fn keep_terms(&mut self) -> Result<()> {
        let Some(terms) = &mut self.terms else { return Ok(()) };
        if let Some(requests) = &mut self.requests {
            terms.learn(requests)?;
        }
        let (budget, standing) = (terms.budget(), terms.keep());
        let Budget::Slo(objective) = budget else { return Ok(()) };
        match standing {
            Some(Standing::MissedAlone) => self.note(format!(
                "the service missed {objective} without batch beside any request; batch only borrowed its idle moments"
            )),
            Some(Standing::Late) => {
                self.note(format!("the service was beyond {objective}; batch left its requests alone"))
            }
            _ => {}
        }
        Ok(())
    }

    /// Says once that batch's scheduler was put out, and puts back who has left its class.
    fn look_after_scheduler(&mut self) -> Result<()> {
        if let Some(error) = self.keepers.iter().find_map(LaneKeeper::forsaken) {
            bail!("batch's scheduler was put out, and its lanes cannot be held instead ({error}): batch was ended");
        }
        let Some(scheduler) = &self.scheduler else { return Ok(()) };
        if let Some(why) = scheduler.ejection() {
            self.note(format!(
                "the kernel has put batch's scheduler out ({why}); batch went on in SCHED_IDLE, and holders took over"
            ));
            self.scheduler = None;
        } else if scheduler.has_outsiders() && self.cage.make_ext() {
            self.note("batch left the class of its scheduler; it was put back".to_owned());
        }
        Ok(())
    }

    fn put_strays_back(&mut self) {
        let strays = self.memory().batch_strays();
        if strays > self.strays_seen {
            self.strays_seen = strays;
            self.cage.put_back();
        }
    }

    fn look_after_guardian(&mut self) -> Result<()> {
        if self.guardian.is_alive() {
            return Ok(());
        }
        self.note("the guardian process was ended by somebody; a new one took over".to_owned());
        let plan = self.guardian.plan().clone();
        self.guardian = start_guardian(&self.claims)?;
        self.guardian.update(|new| *new = plan).context("cannot brief the guardian")
    }

    /// Finds a service that was restarted, and lets lanes be held again that it had visited.
    fn look_after_service(&mut self) -> Result<()> {
        let mut pids: BTreeSet<u32> = self.tracker.processes(LaneClass::Lc).into_iter().collect();
        if pids.is_empty() {
            pids = self.beside.target.find().map(|service| service.pids).unwrap_or_default();
            for pid in &pids {
                self.tracker.set_class(*pid, LaneClass::Lc);
            }
            if let Some(requests) = &mut self.requests {
                requests.look_again(&pids);
            }
            self.note(match pids.is_empty() {
                true => format!("{} has ended; its lanes are idle, batch went on", self.beside.target),
                false => format!("{} came back as another process and is looked after again", self.beside.target),
            });
        }
        if let Some(requests @ RequestSource::Emitted(_)) = &mut self.requests {
            // A process may emit its first request at any time.
            requests.look_again(&pids);
        }
        if self.keepers.iter().any(LaneKeeper::visited) {
            self.receive_visitors(pids)?;
        }
        Ok(())
    }

    fn receive_visitors(&mut self, pids: BTreeSet<u32>) -> Result<()> {
        self.beside.service.pids = pids;
        self.note("the service moved to a batch lane; batch left that lane until it was gone".to_owned());
        let pins = self.beside.pin_plan();
        self.guardian.update(|plan| plan.pins.threads.extend(pins.threads.iter().cloned()))?;
        pins.pin(&self.beside.lanes.requests)?;
        let allowed = allowed_cpus(&self.beside.service.pids);
        for keeper in self.keepers.iter().filter(|keeper| !allowed.contains(keeper.cpu())) {
            keeper.visitors_gone();
        }
        Ok(())
    }
}

/// The parts of a session that start with batch.
struct Started {
    keepers: Vec<LaneKeeper>,
    scheduler: Option<Scheduler>,
    terms: Option<TermsKeeper>,
    batch: Batch,
    log: Option<AuditLog<BufWriter<File>>>,
}

/// Starts to learn the service's requests, if the policy has to know them: as it emits them, or else at
/// its sockets.
fn learn_requests(
    beside: &Beside,
    tracker: &Tracker,
    emitters: Option<Emitters>,
    extras: Extras,
) -> Result<Option<RequestSource>> {
    if let Some(mut emitters) = emitters {
        tracker.memory().hear_from(emitters.words(&beside.lanes.requests));
        return Ok(Some(RequestSource::Emitted(emitters)));
    }
    let track = || Requests::track(tracker, &beside.target.to_string(), &beside.service.pids);
    Ok(extras.requests.then(track).transpose()?.map(RequestSource::Sockets))
}

fn start_guardian(claims: &[Claim]) -> Result<Guardian> {
    let locks = claims.iter().map(Claim::share).collect::<io::Result<Vec<_>>>()?;
    let mut guardian = Guardian::start(&locks).context("cannot start the guardian process")?;
    let files = claims.iter().map(|claim| claim.path().to_owned()).collect();
    guardian.update(|plan| plan.claims = files).context("cannot brief the guardian")?;
    Ok(guardian)
}

/// The first changes to the machine: the service's affinity, if wanted, and the cage.
fn enter_machine(beside: &Beside, tracker: &Tracker, guardian: &mut Guardian) -> Result<Cage> {
    let name = format!("sidelane-{}", std::process::id());
    let pins = beside.pin_plan();
    guardian
        .update(|plan| {
            plan.pins = pins.clone();
            plan.cage = CagePlan::of(&name);
        })
        .context("cannot brief the guardian")?;
    pins.pin(&beside.lanes.requests)?;
    Ok(Cage::make(&name, beside.lanes.batch_cpus(), tracker.census()))
}

fn start_batch(
    beside: &Beside,
    tracker: &mut Tracker,
    cage: &Arc<Cage>,
    guardian: &mut Guardian,
    command: &[OsString],
    options: SessionOptions,
) -> Result<Started> {
    let pass = make_pass(tracker, &options.gate)?;
    let gated = GatedBatch::start(command, options.class, pass.as_ref()).context("cannot start the batch command")?;
    guardian.update(|plan| plan.batch_pid = gated.pid()).context("cannot brief the guardian")?;
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

fn undo(guardian: Guardian, error: anyhow::Error) -> anyhow::Error {
    match guardian.finish() {
        Ok(()) => error,
        Err(undoing) => error.context(format!("and the machine could not be put right: {undoing}")),
    }
}

fn lost_note(requests: &mut RequestSource) -> Option<String> {
    let lost = requests.take_window().counts.dropped;
    (lost > 0)
        .then(|| format!("{lost} events of requests were lost before they were read; the budget is from the others"))
}

/// Why harm was worked out from server times, if it was.
fn harm_note(tracker: &Tracker, terms: &FinalTerms) -> Option<String> {
    if terms.source != HarmSource::ServerTimes {
        return None;
    }
    let why = match tracker.counts()? {
        Err(lack) => lack.to_string(),
        Ok(()) => "too few requests had their lane to themselves from start to finish to be counted".to_owned(),
    };
    Some(format!("what batch costs a request was worked out from server times: {why}"))
}

fn leak_notes(books: &Books, holders: HolderBooks) -> impl Iterator<Item = String> {
    let leaks = books.sum(|lane| lane.leaks);
    let strays = books.sum(|lane| lane.batch_strays);
    let lc_strays = books.sum(|lane| lane.lc_strays);
    let errors = holders.evictor_errors;
    let broken = holders.promises_broken;
    let notes = [
        (leaks, format!("the kernel let batch run {leaks} times in a lane that was held")),
        (strays, format!("batch ran {strays} times outside its lanes before it was put back")),
        (lc_strays, format!("the service ran {lc_strays} times on CPUs that are not request lanes, unwatched")),
        (errors, format!("batch could not be sent away from a lane or brought back {errors} times; it was held on")),
        (broken, format!("{broken} times the batch program did not look for itself for 1 ms, and was held instead")),
    ];
    notes.into_iter().filter(|(count, _)| *count > 0).map(|(_, note)| note)
}
