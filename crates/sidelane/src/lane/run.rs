//! `sidelane run`: a batch command, or batch that is there already, in the idle moments of a service.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sidelane_policy::borrow::Lending;

use super::adopt::Adoptee;
use super::beside::{Beside, BesideError};
use super::gate::{Gate, GateChoice};
use super::refusal::Refusal;
use super::session::{Session, SessionOptions};
use super::slowdown::{BOUND, MaxSlowdown};
use super::summary::Summary;
use super::talk::{Talk, TalkOptions};
use crate::audit::AuditLevel;
use sidelane_host::capabilities::Capabilities;
use sidelane_host::posix_signals::{Caught, PosixSignals};
use sidelane_host::procfs::command_name;
use sidelane_host::service::Target;
use sidelane_host::topology::PairKind;
use sidelane_report::check_writable;

/// How an unprivileged user gets all the privileges needed.
pub const GRANT: &str = "run as root, or `setcap cap_bpf,cap_perfmon,cap_sys_nice+ep` on the sidelane binary";
const MAX_SLOWDOWN_ALONE: &str = "--max-slowdown is for --gate holder and --policy borrow-idle: with a budget or an objective batch may cost \
     requests what these say, and other gates wake nobody for a request";

/// What `sidelane run` was asked to do.
#[derive(Debug)]
pub struct RunOptions {
    /// The services, each with its lanes if `--lanes` says which.
    pub services: Vec<(Target, Option<String>)>,
    /// Confine the service to its request lanes for the time of the run.
    pub pin_service: bool,
    /// How batch gets off a lane.
    pub gate: GateChoice,
    /// Who decides, and what batch may cost.
    pub lending: Lending,
    /// By how much batch may slow down requests, if the user says so.
    pub max_slowdown: Option<MaxSlowdown>,
    /// Where the audit log goes, and what is in it.
    pub audit: Option<(PathBuf, AuditLevel)>,
    /// How long the batch command may go on after a signal that asks it to end.
    pub grace: Duration,
    /// What to do when batch cannot run.
    pub on_blocked: OnBlocked,
    /// What is said meanwhile.
    pub talk: TalkOptions,
    /// What borrows the lanes.
    pub batch: RunBatch,
}

/// What to do when batch has been kept off all its lanes for so long.
#[derive(Clone, Copy, Debug)]
pub struct OnBlocked {
    /// How long.
    pub after: Duration,
    /// End the run, instead of saying so.
    pub ends: bool,
}

/// What borrows the lanes.
#[derive(Debug)]
pub enum RunBatch {
    /// A command and its arguments.
    Command(Vec<OsString>),
    /// Batch that somebody else started.
    Adopted(Target),
}

/// The same, found.
enum Wanted {
    Command(Vec<OsString>),
    Adoptee(Adoptee),
}

/// A run that can be.
pub struct Plan {
    services: Vec<Beside>,
    gate: Gate,
    wanted: Wanted,
    lending: Lending,
    max_slowdown: Option<f64>,
    audit: Option<(PathBuf, AuditLevel)>,
    grace: Duration,
    on_blocked: OnBlocked,
    talk: TalkOptions,
}

impl Plan {
    /// Finds what the user has named. Nothing is changed.
    ///
    /// # Errors
    /// All that is in the way, at once.
    pub fn make(options: RunOptions) -> Result<Self, Refusal> {
        let mut refusal = Refusal::default();
        refusal.note_privileges(&Capabilities::own().missing_for_bpf(), GRANT);
        let services = find_services(options.services, options.pin_service, &mut refusal);
        let found = find_batch(options.batch, options.gate, &services, &mut refusal);
        let gate = found.as_ref().map_or(Gate::Holder, |(gate, _)| gate.clone());
        let max_slowdown = refusal.note(max_slowdown(options.max_slowdown, &gate, &options.lending));
        if let Some((path, _)) = &options.audit {
            refusal.note(check_writable(path));
        }
        refusal.end()?;
        let (gate, wanted) = found.expect("nothing was in the way");
        Ok(Self {
            services,
            gate,
            wanted,
            lending: options.lending,
            max_slowdown: max_slowdown.flatten(),
            audit: options.audit,
            grace: options.grace,
            on_blocked: options.on_blocked,
            talk: options.talk,
        })
    }

    /// What is going to happen, in a line for each service.
    pub fn lines(&self) -> Vec<String> {
        let (gate, policy) = (self.gate.name(), self.lending.policy.name());
        let bound = self.max_slowdown.map(|bound| format!(", requests slowed down by {:.0} % at most", bound * 100.0));
        let by = format!("gate {gate}, policy {policy}{}", bound.unwrap_or_default());
        let mut lines: Vec<String> = self.services.iter().map(|beside| format!("{}; {by}", line_of(beside))).collect();
        if self.services.iter().any(|beside| beside.lanes.kind == PairKind::Declared) {
            lines.insert(0, NO_CORE_SHARED.to_owned());
        }
        lines
    }

    /// Runs the command to its end, or adopted batch to its end or until a signal asks to give it back; returns its
    /// exit code and what the run came to.
    pub fn run(self) -> Result<(u8, Summary)> {
        let mut talk = Talk::new(self.talk);
        let lines = self.lines();
        let create = |(path, level): (PathBuf, AuditLevel)| {
            let file = File::create(&path).with_context(|| format!("cannot write the audit log {}", path.display()))?;
            Ok::<_, anyhow::Error>((file, level))
        };
        let session_options = SessionOptions {
            class: self.gate.batch_class(),
            hold: Some(self.lending),
            gate: self.gate,
            audit: self.audit.map(create).transpose()?,
            max_slowdown: self.max_slowdown,
            quiet: false,
        };
        // Before any thread is started, so that no thread takes a signal away.
        let signals = PosixSignals::listen().context("cannot listen for signals")?;
        let mut session = match self.wanted {
            Wanted::Command(command) => Session::start(self.services, &command, session_options)?,
            Wanted::Adoptee(adoptee) => Session::adopt(self.services, adoptee, session_options)?,
        };
        lines.iter().for_each(|line| talk.say(line));
        let lanes = session.lanes().clone();
        let watched = watch(&mut session, &signals, self.grace, self.on_blocked, &mut talk);
        if watched.is_err() {
            session.kill();
        }
        let outcome = session.end()?;
        watched?;
        Ok((outcome.exit_code(), Summary::new(&outcome, lanes)))
    }
}

/// What is to be gained where the kernel shows no common core.
const NO_CORE_SHARED: &str = "as far as the kernel shows, the lanes share no core: batch there cannot slow the service down by \
     sharing one, and a run gains no more than that both never work at once (sidelane compare says what it is worth)";

fn line_of(beside: &Beside) -> String {
    let pid = beside.service.pids.first().copied();
    let name = pid.and_then(command_name).unwrap_or_default();
    let more = beside.service.pids.len().saturating_sub(1);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let process = pid.map(|pid| format!(" ({name}, process {pid}{more})")).unwrap_or_default();
    let (batch, requests) = (beside.lanes.batch_cpus(), &beside.lanes.request_lanes);
    format!("batch on CPU {batch} beside {}{process} on CPU {requests}", beside.target)
}

fn find_services(named: Vec<(Target, Option<String>)>, pin_service: bool, refusal: &mut Refusal) -> Vec<Beside> {
    let mut services = Vec::new();
    for (target, lanes) in named {
        let found = Beside::find(target, lanes.as_deref(), pin_service);
        // Without privileges other users' sockets are not seen.
        if refusal.lacks_privileges() && found.as_ref().is_err_and(BesideError::is_unseen) {
            continue;
        }
        services.extend(refusal.note(found));
    }
    services
}

fn find_batch(batch: RunBatch, gate: GateChoice, services: &[Beside], refusal: &mut Refusal) -> Option<(Gate, Wanted)> {
    match batch {
        RunBatch::Command(command) => {
            let gate = refusal.note(Gate::choose(gate, &command))?;
            Some((gate, Wanted::Command(command)))
        }
        RunBatch::Adopted(target) => {
            let pids = services.iter().flat_map(|beside| beside.service.pids.iter().copied()).collect();
            let gate = refusal.note(Gate::choose_for_adopted(gate));
            let adoptee = refusal.note(Adoptee::find(&target, &pids));
            gate.zip(adoptee.map(Wanted::Adoptee))
        }
    }
}

/// The bound on the slowdown of requests, where there is one.
pub(crate) fn max_slowdown(wanted: Option<MaxSlowdown>, gate: &Gate, lending: &Lending) -> Result<Option<f64>> {
    let can_keep = *gate == Gate::Holder && !lending.policy.needs_requests();
    match wanted {
        Some(MaxSlowdown::Bound(_)) if !can_keep => bail!(MAX_SLOWDOWN_ALONE),
        Some(MaxSlowdown::Bound(bound)) => Ok(Some(bound)),
        Some(MaxSlowdown::Any) => Ok(None),
        None => Ok(can_keep.then_some(BOUND)),
    }
}

/// Looks after the session and passes signals on until the batch command has ended.
fn watch(
    session: &mut Session,
    signals: &PosixSignals,
    grace: Duration,
    on_blocked: OnBlocked,
    talk: &mut Talk,
) -> Result<()> {
    let mut deadline: Option<Instant> = None;
    while !session.has_ended() {
        if let Some(caught) = signals.wait(session.due()).context("cannot wait for signals")? {
            pass_on(session, caught);
            let asked_to_end = caught.asks_to_end();
            if asked_to_end && session.is_adopted() {
                return Ok(());
            }
            if asked_to_end && deadline.is_none() {
                deadline = Some(Instant::now() + grace);
            }
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            session.kill();
        }
        session.supervise()?;
        if let Some((since, why)) = session.blocked().filter(|(since, _)| *since >= on_blocked.after) {
            if on_blocked.ends {
                bail!(
                    "batch was kept off its lanes for {:.0} s ({why}), and --on-blocked fail ends it",
                    since.as_secs_f64()
                );
            }
            session.note_blocked(on_blocked.after, why);
        }
        talk.go_on(session);
    }
    Ok(())
}

fn pass_on(session: &Session, caught: Caught) {
    match caught.signal {
        libc::SIGCHLD | libc::SIGCONT => {}
        libc::SIGTSTP => stop_with_batch(session),
        // The terminal has sent it to the batch command too.
        _ if caught.from_terminal => {}
        signal => session.signal(signal),
    }
}

/// Ctrl-Z: batch first, then this process, until the shell continues it.
fn stop_with_batch(session: &Session) {
    session.pause(true);
    // SAFETY: stops this process, threads and all, until SIGCONT.
    unsafe { libc::raise(libc::SIGSTOP) };
    session.signal(libc::SIGCONT);
    session.pause(false);
}
