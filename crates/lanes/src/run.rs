//! `sidelane run`: a batch command, or batch that runs already, in the idle moments of a service.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::batch::{cannot_run_text, exit_code_of_exec_error, find_program};
use super::plan::{FoundBatch, Plan, RunRequest};
use super::preflight_errors::PreflightErrors;
use super::session::{Session, SessionOptions};
use super::summary::Summary;
use sidelane_diagnostics::audit::{AuditFile, AuditLevel};
use sidelane_host::posix_signals::{CaughtSignal, PosixSignals};
use sidelane_host::topology::PairKind;
use sidelane_host::wall_clock::local_time;
use sidelane_report::terminal::eprint_fitted;
use sidelane_report::{Series, TimeBins, Unit, check_directory_exists};

/// Options of `sidelane run`.
#[derive(Debug)]
pub struct RunOptions {
    /// Services, lanes and batch that the user asks for.
    pub asked: RunRequest,
    /// Path of the audit log with its level; `None` without a log.
    pub audit: Option<(PathBuf, AuditLevel)>,
    /// Path of the file for the figures at the end; `None` without a file.
    pub json: Option<PathBuf>,
    /// Time for which the batch command may go on after a POSIX signal that asks it to end.
    pub grace: Duration,
    /// Action when batch has been kept off all its lanes for a long time.
    pub on_blocked: OnBlocked,
    /// Bound of the overlap, in millionths of a service's time; `None`: 1 %.
    pub max_overlap_ppm: Option<u32>,
    /// Whether the command may enter real-time classes.
    pub allow_realtime: bool,
    /// Options of the reports during the run.
    pub progress: ProgressOptions,
}

/// Action when batch has been kept off all its lanes for a long time.
#[derive(Clone, Copy, Debug)]
pub struct OnBlocked {
    /// Time without a lane after which the action is taken.
    pub after: Duration,
    /// Whether the run ends; otherwise the state is only reported.
    pub ends: bool,
}

/// Run that has passed all checks.
pub struct Run {
    plan: Plan,
    audit: Option<(PathBuf, AuditLevel)>,
    grace: Duration,
    on_blocked: OnBlocked,
    max_overlap_ppm: Option<u32>,
    allow_realtime: bool,
    progress: ProgressOptions,
}

impl Run {
    /// Finds the services, lanes and batch that the user has named. Nothing is changed.
    ///
    /// # Errors
    /// All obstacles at once.
    pub fn prepare(options: RunOptions) -> Result<Self, PreflightErrors> {
        let RunOptions { asked, audit, json, grace, on_blocked, max_overlap_ppm, allow_realtime, progress } = options;
        let mut errors = PreflightErrors::from_missing_privileges();
        let plan = Plan::find(asked, &mut errors);
        for path in audit.iter().map(|(path, _)| path).chain(&json) {
            errors.collect_error(check_directory_exists(path));
        }
        Ok(Self {
            plan: errors.into_result(plan)?,
            audit,
            grace,
            on_blocked,
            max_overlap_ppm,
            allow_realtime,
            progress,
        })
    }

    /// Returns the exit code of a command that cannot be run, and prints the error; `None` if it can be run, or batch
    /// is adopted. A run of such a command would change the machine for nothing, and print figures of nothing.
    pub fn check_command(&self) -> Option<u8> {
        let FoundBatch::Command(command) = &self.plan.batch else { return None };
        let program = command.first()?;
        let error = find_program(program).err()?;
        eprint_fitted(&cannot_run_text(program, &error));
        Some(exit_code_of_exec_error(&error))
    }

    /// Returns a line of text on the run for each service.
    pub fn summary_lines(&self) -> Vec<String> {
        let declared = self.plan.services.iter().any(|placement| placement.lanes.kind == PairKind::Declared);
        let gain = declared.then(|| NO_CORE_SHARED.to_owned());
        gain.into_iter().chain(self.plan.summary_lines()).collect()
    }

    /// Runs the command or adopted batch to its end. Adopted batch is given back earlier if a POSIX signal asks for it.
    /// Returns the exit code and the summary.
    pub fn run(self) -> Result<(u8, Summary)> {
        let mut progress = Progress::new(self.progress);
        let (lines, Plan { services, gate, gate_reason, lending, max_slowdown, batch }) =
            (self.summary_lines(), self.plan);
        let session_options = SessionOptions {
            class: gate.batch_class(),
            hold: Some(lending),
            gate,
            gate_reason,
            max_overlap_ppm: self.max_overlap_ppm,
            audit: self.audit.map(create_audit_file).transpose()?,
            max_slowdown,
            quiet: false,
            allow_realtime: self.allow_realtime,
        };
        // Signals are blocked before any thread is started, so that no other thread receives one.
        let signals = PosixSignals::listen()
            .context("cannot open the descriptor for POSIX signals; check the limit of open files (ulimit -n)")?;
        let mut session = match batch {
            FoundBatch::Command(command) => Session::start(services, &command, session_options)?,
            FoundBatch::Adoptee(adoptee) => Session::adopt(services, adoptee, session_options)?,
        };
        lines.iter().for_each(|line| progress.print_line(line));
        let lanes = session.lanes().clone();
        let mut over_time = LaneUseOverTime::new();
        let watched =
            supervise_until_end(&mut session, &signals, self.grace, self.on_blocked, &mut progress, &mut over_time);
        if watched.is_err() {
            session.kill();
        }
        let outcome = session.end()?;
        watched?;
        let mut summary = Summary::new(&outcome, lanes, self.max_overlap_ppm);
        summary.over_time = over_time.to_series();
        Ok((outcome.exit_code(), summary))
    }
}

fn create_audit_file((path, level): (PathBuf, AuditLevel)) -> Result<(AuditFile, AuditLevel)> {
    let failed = format!("cannot write the audit log {}", path.display());
    let file = AuditFile::create(path).context(failed)?;
    Ok((file, level))
}

/// Warning about lanes for which the kernel reports no common core.
const NO_CORE_SHARED: &str = "as far as the kernel shows, these lanes share no core, so holding batch may gain little; \
                              measure it with `sidelane compare`";

/// Supervises the session and forwards POSIX signals until the batch command has ended.
fn supervise_until_end(
    session: &mut Session,
    signals: &PosixSignals,
    grace: Duration,
    on_blocked: OnBlocked,
    progress: &mut Progress,
    over_time: &mut LaneUseOverTime,
) -> Result<()> {
    let mut deadline: Option<Instant> = None;
    while !session.has_ended() {
        let (clients, time) = (session.status_socket().as_fd(), session.time_to_next_supervise());
        if let Some(caught) = signals.wait_for_event(clients, time).context("cannot wait for POSIX signals")? {
            forward_signal(session, caught);
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
        if let Some((since, why)) = session.blocked_time_and_reason().filter(|(since, _)| *since >= on_blocked.after) {
            if on_blocked.ends {
                bail!(
                    "the run has ended (--on-blocked fail): batch was kept off its lanes for {:.0} s ({why})",
                    since.as_secs_f64()
                );
            }
            session.note_blocked(on_blocked.after, why);
        }
        progress.print_updates(session);
        over_time.sample(session);
    }
    Ok(())
}

/// Shortest time between two samples of the lanes' use.
const SAMPLE_EVERY: Duration = Duration::from_millis(200);

/// Recorder of what batch and the service used of their lanes over the time of a run.
struct LaneUseOverTime {
    began: Instant,
    sampled_at: Instant,
    /// CPU times of batch and of the service at the last sample.
    used_ns: [u64; 2],
    bins: [TimeBins; 2],
}

impl LaneUseOverTime {
    fn new() -> Self {
        let (now, bins) = (Instant::now(), TimeBins::new(SAMPLE_EVERY));
        Self { began: now, sampled_at: now, used_ns: [0; 2], bins: [bins.clone(), bins] }
    }

    /// Adds the time since the last sample, unless that is too short.
    fn sample(&mut self, session: &Session) {
        let passed = self.sampled_at.elapsed();
        if passed < SAMPLE_EVERY {
            return;
        }
        let (lanes, accounting) = (session.lanes(), session.accounting());
        let used_ns = [accounting.batch_ns(lanes), accounting.service_ns(lanes)];
        let counts = [lanes.batch.len(), lanes.request_lanes.len()];
        let at = self.sampled_at - self.began;
        for (side, bins) in self.bins.iter_mut().enumerate() {
            let used_ns = used_ns[side].saturating_sub(self.used_ns[side]) as f64;
            bins.add(at, 100.0 * used_ns / passed.as_nanos() as f64 / counts[side].max(1) as f64);
        }
        (self.sampled_at, self.used_ns) = (Instant::now(), used_ns);
    }

    fn to_series(&self) -> Option<Series> {
        let [batch, service] = &self.bins;
        let signals = [batch.to_signal("batch", Unit::Percent), service.to_signal("service", Unit::Percent)];
        let signals: Vec<_> = signals.into_iter().flatten().collect();
        (!signals.is_empty()).then(|| Series {
            title: "Use of the lanes over time".to_owned(),
            caption:
                "Share of its lanes' time in which batch, or the service, ran. The line is the mean of a bin, the \
                      band its lowest and highest sample."
                    .to_owned(),
            signals,
        })
    }
}

fn forward_signal(session: &Session, caught: CaughtSignal) {
    match caught.signal {
        libc::SIGCHLD | libc::SIGCONT => {}
        libc::SIGTSTP => session.stop_batch_then_self(),
        // The terminal has sent the signal to the batch command too.
        _ if caught.from_terminal => {}
        signal => session.signal(signal),
    }
}

/// Options of the reports during a run.
#[derive(Clone, Copy, Debug)]
pub struct ProgressOptions {
    /// Whether nothing is reported.
    pub quiet: bool,
    /// Time between two status lines on batch.
    pub status_every: Duration,
}

/// Reporter of a run's progress to standard error: lines with the time of day.
#[derive(Debug)]
pub struct Progress {
    options: ProgressOptions,
    told_at: Instant,
    batch_ns: u64,
}

impl Progress {
    /// Makes a reporter that has printed nothing yet.
    pub fn new(options: ProgressOptions) -> Self {
        Self { options, told_at: Instant::now(), batch_ns: 0 }
    }

    /// Prints a line of text, with the time of day.
    pub fn print_line(&self, text: &str) {
        if !self.options.quiet {
            eprint_fitted(&format!("sidelane: {} {text}", local_time()));
        }
    }

    /// Prints the notes of the session, and the status of batch if it is due.
    pub fn print_updates(&mut self, session: &mut Session) {
        session.take_notes().iter().for_each(|note| self.print_line(&format!("note: {note}")));
        if self.told_at.elapsed() >= self.options.status_every {
            let status = self.status(session);
            self.print_line(&status);
        }
    }

    /// Returns the status line: what batch did since the last status line.
    fn status(&mut self, session: &Session) -> String {
        let wall_s = self.told_at.elapsed().as_secs_f64();
        let (lanes, accounting) = (session.lanes(), session.accounting());
        let batch_ns = accounting.batch_ns(lanes);
        let percent = (batch_ns - self.batch_ns) as f64 / 1e7 / wall_s / lanes.batch.len() as f64;
        (self.told_at, self.batch_ns) = (Instant::now(), batch_ns);
        let cpu = Unit::Ns.human(batch_ns as f64);
        let so_far = format!("batch used {percent:.0} % of its lanes since the last line, {cpu} of CPU in all");
        match session.blocked_time_and_reason().filter(|(since, _)| *since >= Duration::from_secs(1)) {
            Some((since, why)) => format!("{so_far}; it was kept off for the last {:.0} s: {why}", since.as_secs_f64()),
            None => so_far,
        }
    }
}
