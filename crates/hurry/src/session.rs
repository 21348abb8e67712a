//! Polling loop of `sidelane hurry` for one service.
//!
//! A request that begins after a poll cannot be long before one threshold has passed since that poll. So polls at most
//! one threshold apart see each long request before it is due. Each request that was seen gets a poll when it is due,
//! so no event of the service is needed. `pace.rs` describes the two other cases: the threshold is short, or a long
//! request waits for a big core.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use sidelane_host::clock::{self, now_ns, thread_cpu_ns};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::energy::{Energy, EnergyError};
use sidelane_host::priority::HOLDER_PRIORITY;
use sidelane_host::service::{Service, Target};
use sidelane_host::topology::online_cpus;
use sidelane_host::turn_limit::TurnLimit;

use super::figures::{Figures, Summary};
use super::finder::Finder;
use super::log::ThreadAudit;
use super::mapper::Mapper;
use super::pace::NextPoll;
use super::pool::Pool;
use super::settings::Settings;
use super::work::WorkSource;
use crate::note::HurryNote;
use sidelane_diagnostics::audit::{Audit, AuditFile, AuditLevel, AuditLog};
use sidelane_diagnostics::log_note::LogNote;
use sidelane_diagnostics::note::Note;
use sidelane_host::shutdown::Shutdown;
use sidelane_rollback::own_threads;

/// Interval at which the session checks for new and ended threads, and for CPUs that went online or offline.
const REFRESH_EVERY_NS: u64 = 500_000_000;
/// Number of checks of threads and CPUs between two retries of refused moves.
const CENSUSES_A_RETRY: u32 = 10;

/// Maps the threads of a service until `shutdown` ends it or `length` is over. Calls `on_figures` when all is ready,
/// and then twice per second with the present figures.
///
/// # Errors
/// Fails if requests cannot be observed, if another process moves the threads, or if no guardian can be started.
pub fn run(
    settings: &Settings,
    length: Option<Duration>,
    shutdown: &Shutdown,
    mut on_figures: impl FnMut(&Figures),
) -> Result<Summary> {
    let mut session = Session::begin(settings)?;
    let ends_ns = length.map_or(u64::MAX, |length| now_ns().saturating_add(length.as_nanos() as u64));
    on_figures(&session.figures());
    let outcome = session.poll_until(ends_ns, shutdown, &mut on_figures);
    // Give all threads their original CPUs back in any case, so that nothing is left to undo.
    let ended = session.end();
    outcome.and(ended)
}

struct Session {
    settings: Settings,
    source: WorkSource,
    mapper: Mapper,
    log: Option<AuditLog>,
    /// Limit of the time for which this real-time thread keeps a CPU; `None` if it runs in the ordinary class.
    turns: Option<TurnLimit>,
    online: CpuSet,
    energy: Result<Energy, EnergyError>,
    began_ns: u64,
    cpu_began_ns: u64,
    finder: Finder,
    refresh_ns: u64,
    refreshes: u32,
    /// Whether the service has ended and cannot come back.
    is_over: bool,
    /// CPU time of this thread at the last check of threads and CPUs; `looks` counts the polls since that check.
    cpu_ns: u64,
    looks: u64,
    notes: Vec<Note>,
}

impl Session {
    fn begin(settings: &Settings) -> Result<Self> {
        let service = settings.service.find()?;
        own_threads::keep_off_service_cpus(&settings.service.to_string(), &service.pids);
        let (log, audit) = open_log(settings)?;
        let source = WorkSource::open(settings, &service)?;
        let finder = start_finder(&settings.service, &service)?;
        let pool = Pool::from_service(&service)?;
        let (began_ns, cpu_began_ns) = (now_ns(), thread_cpu_ns());
        let mapper = Mapper::new(settings.config, &settings.sizes, pool, audit);
        // Run in real-time class, so that the service cannot delay this thread.
        let turns = TurnLimit::for_this_thread(HOLDER_PRIORITY);
        let late = |error: &_| HurryNote::MovedLate { error: ToString::to_string(error) };
        let equal =
            settings.sizes.are_equal_cores().then(|| HurryNote::EqualCores { cores: settings.sizes.to_string() });
        let notes = turns.as_ref().err().map(late).into_iter().chain(equal).map(Note::from).collect();
        let mut session = Self {
            settings: settings.clone(),
            source,
            mapper,
            log,
            turns: turns.ok(),
            online: CpuSet::default(),
            energy: Energy::open(Path::new("/sys")),
            began_ns,
            cpu_began_ns,
            finder,
            refresh_ns: began_ns + REFRESH_EVERY_NS,
            refreshes: 0,
            is_over: false,
            cpu_ns: cpu_began_ns,
            looks: 0,
            notes,
        };
        session.refresh_online_cpus(began_ns)?;
        Ok(session)
    }

    fn poll_until(&mut self, ends_ns: u64, shutdown: &Shutdown, on_figures: &mut impl FnMut(&Figures)) -> Result<()> {
        loop {
            if let Some(Err(error)) = self.turns.as_ref().map(TurnLimit::begin_turn) {
                self.turns = None;
                self.notes.push(HurryNote::MovedLate { error: error.to_string() }.into());
            }
            let now_ns = now_ns();
            let next = self.poll_once(now_ns, on_figures)?;
            let wait = Duration::from_nanos(next.at_ns.min(ends_ns).saturating_sub(now_ns));
            let goes_on = match self.source.event_fd().filter(|_| next.or_event) {
                Some(event_fd) => shutdown.wait_for_event(event_fd, wait)?,
                None => shutdown.wait(wait)?,
            };
            if now_ns >= ends_ns || !goes_on || self.is_over {
                return Ok(());
            }
        }
    }

    /// Reads events, moves the threads that are due, and returns when to poll again.
    fn poll_once(&mut self, now_ns: u64, on_figures: &mut impl FnMut(&Figures)) -> Result<NextPoll> {
        if now_ns >= self.refresh_ns {
            self.refresh_threads(now_ns)?;
            on_figures(&self.figures());
        }
        self.looks += 1;
        let Self { source, mapper, .. } = self;
        if let Some(at) = mapper.begin_poll(now_ns, source.event_fd().is_some()) {
            source.arm(&at);
        }
        let mut next = self.read_and_decide(now_ns)?;
        if let Some(at) = self.mapper.wakeup_for_new_wait() {
            self.source.arm(&at);
            next = self.read_and_decide(clock::now_ns())?;
        }
        Ok(NextPoll { at_ns: next.at_ns.min(self.refresh_ns), ..next })
    }

    fn read_and_decide(&mut self, now_ns: u64) -> Result<NextPoll> {
        self.read_work()?;
        Ok(self.mapper.move_due_threads(now_ns))
    }

    fn read_work(&mut self) -> Result<()> {
        let Self { source, mapper, .. } = self;
        let mut outcome = Ok(());
        source.read(&mut |work| {
            if outcome.is_ok() {
                outcome = mapper.record_event(work);
            }
        })?;
        outcome
    }

    /// Updates the threads, processes and CPUs that have appeared or disappeared.
    fn refresh_threads(&mut self, now_ns: u64) -> Result<()> {
        self.refresh_ns = now_ns + REFRESH_EVERY_NS;
        self.refreshes += 1;
        let (cpu_ns, looks) = (thread_cpu_ns(), std::mem::take(&mut self.looks));
        self.mapper.record_poll_cost(cpu_ns - self.cpu_ns, looks);
        self.cpu_ns = cpu_ns;
        let pids = self.processes()?;
        own_threads::keep_off_service_cpus(&self.settings.service.to_string(), &pids);
        let gone = self.mapper.pool().refresh_threads(&pids)?;
        self.mapper.remove_ended_threads(now_ns, &gone);
        let by_guardian = self.mapper.pool().take_guardian_restored()?;
        self.mapper.rebind_displaced_threads(now_ns, by_guardian);
        self.mapper.admit_waiting_threads(now_ns);
        if self.refreshes.is_multiple_of(CENSUSES_A_RETRY) {
            self.mapper.retry_refused_moves(now_ns);
        }
        self.refresh_online_cpus(now_ns)?;
        self.end_if_target_ended(&pids);
        self.drain_log();
        Ok(())
    }

    /// Writes the log and reports its errors as notes. Threads are mapped even if the log fails.
    fn drain_log(&mut self) {
        let Some(log) = &self.log else { return };
        log.request_write();
        let failing = LogNote::about_failing_audit_log(log.path(), &log.state()).map(Note::from);
        self.notes.extend(failing.filter(|note| !self.notes.contains(note)));
    }

    /// Returns the processes of the service: those found by the search, and their children.
    fn processes(&mut self) -> Result<BTreeSet<u32>> {
        let mut known = self.pool_pids();
        if let Some(found) = self.finder.take_newest() {
            self.source.set_processes(&found.pids)?;
            known.extend(found.pids);
        }
        Ok(self.source.processes_with_descendants(&known))
    }

    fn pool_pids(&mut self) -> BTreeSet<u32> {
        self.mapper.pool().pids().iter().copied().collect()
    }

    /// Ends the session if its target is a process that has ended. A port, name or group may get new processes later.
    fn end_if_target_ended(&mut self, pids: &BTreeSet<u32>) {
        if matches!(self.settings.service, Target::Pid(_)) && pids.is_empty() {
            self.is_over = true;
            self.notes.push(HurryNote::MappedEnded { target: self.settings.service.clone() }.into());
        }
    }

    /// Updates the CPUs that are online.
    fn refresh_online_cpus(&mut self, now_ns: u64) -> Result<()> {
        let online = online_cpus().context("cannot read which CPUs are online")?;
        if online != self.online {
            self.mapper.set_online_cpus(now_ns, &online);
            self.online = online;
        }
        Ok(())
    }

    fn figures(&mut self) -> Figures {
        let mut figures = self.mapper.figures();
        figures.missed = self.source.lost();
        figures.energy_joules = self.energy.as_mut().ok().and_then(|energy| energy.joules().ok());
        figures.wall_ns = now_ns() - self.began_ns;
        figures.own_cpu_ns = thread_cpu_ns() - self.cpu_began_ns;
        figures
    }

    fn end(mut self) -> Result<Summary> {
        // Read the requests that were answered since the last poll, so that they count.
        let heard = self.read_work();
        let figures = self.figures();
        let known = self.pool_pids();
        let pids = self.source.processes_with_descendants(&known);
        self.mapper.restore_all_threads(&pids)?;
        heard?;
        if let Some(log) = &mut self.log {
            let state = log.end();
            self.notes.retain(|note| !note.matches(LogNote::is_about_audit_log));
            self.notes.extend(LogNote::about_audit_log(log.path(), &state).map(Note::from));
        }
        let energy_of = self.energy.map_or_else(|error| error.to_string(), |energy| energy.to_string());
        let source = self.source.to_string();
        let notes = self.notes.into_iter().chain(own_threads::overhead_note()).collect();
        Ok(Summary { settings: self.settings, source, figures, energy_of, notes })
    }
}

fn start_finder(target: &Target, service: &Service) -> Result<Finder> {
    let target = target.clone();
    Finder::start(&service.pids, move || target.find().ok())
}

fn open_log(settings: &Settings) -> Result<(Option<AuditLog>, ThreadAudit)> {
    let Some(path) = &settings.log else { return Ok((None, ThreadAudit::default())) };
    let file = AuditFile::create(path.clone()).with_context(|| format!("cannot write the log {}", path.display()))?;
    let (audit, lines) = Audit::channel();
    let log =
        AuditLog::start(file, AuditLevel::All, vec![lines]).context("cannot start the thread that writes the log")?;
    Ok((Some(log), audit))
}
