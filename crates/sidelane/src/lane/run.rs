//! `sidelane run`: a batch command, or batch that is there already, in the idle moments of a service.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sidelane_policy::borrow::Lending;

use super::adopt::Adoptee;
use super::beside::Beside;
use super::gate::{Gate, GateChoice};
use super::session::{Session, SessionOptions};
use super::summary::Summary;
use sidelane_host::posix_signals::{Caught, PosixSignals};
use sidelane_host::service::Target;

/// How often the session looks after what is not decided lane by lane.
const SUPERVISE_EVERY: Duration = Duration::from_millis(100);

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
    /// Where the audit log goes.
    pub audit: Option<PathBuf>,
    /// How long the batch command may go on after a signal that asks it to end.
    pub grace: Duration,
    /// What borrows the lanes.
    pub batch: RunBatch,
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

/// Runs the command to its end, or adopted batch to its end or until a signal asks to give it back; returns its exit code and what the run came to.
pub fn run(options: RunOptions) -> Result<(u8, Summary)> {
    let find = |(target, lanes): (Target, Option<String>)| Beside::find(target, lanes.as_deref(), options.pin_service);
    let services: Vec<Beside> = options.services.into_iter().map(find).collect::<Result<_, _>>()?;
    let (gate, wanted) = match options.batch {
        RunBatch::Command(command) => (Gate::choose(options.gate, &command)?, Wanted::Command(command)),
        RunBatch::Adopted(target) => {
            let pids = services.iter().flat_map(|beside| beside.service.pids.iter().copied()).collect();
            let gate = Gate::choose_for_adopted(options.gate)?;
            (gate, Wanted::Adoptee(Adoptee::find(&target, &pids)?))
        }
    };
    let audit = options
        .audit
        .as_deref()
        .map(|path| File::create(path).with_context(|| format!("cannot write the audit log {}", path.display())));
    let class = gate.batch_class();
    let session_options =
        SessionOptions { class, hold: Some(options.lending), gate, audit: audit.transpose()?, quiet: false };
    // Before any thread is started, so that no thread takes a signal away.
    let signals = PosixSignals::listen().context("cannot listen for signals")?;
    let mut session = match wanted {
        Wanted::Command(command) => Session::start(services, &command, session_options)?,
        Wanted::Adoptee(adoptee) => Session::adopt(services, adoptee, session_options)?,
    };
    let lanes = session.lanes().clone();
    let watched = watch(&mut session, &signals, options.grace);
    if watched.is_err() {
        session.kill();
    }
    let outcome = session.end()?;
    watched?;
    Ok((outcome.exit_code(), Summary::new(&outcome, lanes)))
}

/// Looks after the session and passes signals on until the batch command has ended.
fn watch(session: &mut Session, signals: &PosixSignals, grace: Duration) -> Result<()> {
    let mut deadline: Option<Instant> = None;
    while !session.has_ended() {
        if let Some(caught) = signals.wait(SUPERVISE_EVERY).context("cannot wait for signals")? {
            pass_on(session, caught);
            let asked_to_end = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT].contains(&caught.signal);
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
