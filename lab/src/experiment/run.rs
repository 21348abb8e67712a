//! One run: the service under load in one setting, watched from the client and the kernel.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::batch::{command, wait_for_work, work_done};
use super::fixture::Fixture;
use super::learn::{self, Experience};
use super::load::{Latencies, Rhythm, RunningClient};
use super::setting::{BatchMode, Setting};
use super::timeline;
use sidelane_diagnostics::note::Note;
use sidelane_lanes::gate::Gate;
use sidelane_lanes::lending_limits::LearnedLimits;
use sidelane_lanes::session::{Session, SessionOptions};
use sidelane_report::{Percentile, Timeline};
use sidelane_requests::at_socket::SocketTimes;
use sidelane_tracker::books::Accounting;

/// How much of a run the timeline shows.
const TIMELINE: Duration = Duration::from_millis(60);
/// How often a session is looked after, as in `sidelane run`.
pub(super) const SUPERVISE_EVERY: Duration = Duration::from_millis(100);

/// The subject of a run.
#[derive(Clone, Copy)]
pub struct Task<'fixture> {
    /// The service.
    pub fixture: &'fixture Fixture,
    /// When it is asked.
    pub rhythm: Rhythm,
    /// The batch kernel.
    pub batch: &'fixture str,
    /// How fast batch is with the lane to itself.
    pub batch_alone_per_s: f64,
    /// Record a timeline too.
    pub draw: bool,
    /// Knowledge of the session about the service, and its time to learn before the run.
    pub experience: Experience,
}

/// Figures of one run.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Latencies of the client.
    pub latencies: Latencies,
    /// Figures at the service's sockets, if the client has no CPU of its own.
    pub at_socket: Option<SocketTimes>,
    /// CPU time of the service ÷ the length of the run.
    pub lc_utilisation: f64,
    /// Nothing of these where batch did not run.
    pub beside: Option<BesideFigures>,
}

impl Figures {
    /// The 50th percentile by which the run is judged: from the socket on, where that was seen.
    pub fn p50_us(&self) -> f64 {
        self.at_socket.as_ref().map_or(self.latencies.p50_us, |seen| seen.p50_us)
    }

    /// The 95th percentile by which the run is judged.
    pub fn p95_us(&self) -> f64 {
        self.at_socket.as_ref().map_or(self.latencies.p95_us, |seen| seen.p95_us)
    }

    /// The 99th percentile by which the run is judged.
    pub fn p99_us(&self) -> f64 {
        self.at_socket.as_ref().map_or(self.latencies.p99_us, |seen| seen.p99_us)
    }

    /// The distribution by which the run is judged.
    pub fn curve(&self) -> &[Percentile] {
        self.at_socket.as_ref().map_or(&self.latencies.curve, |seen| &seen.curve)
    }
}

/// Counts of the kernel while batch ran beside the service.
#[derive(Clone, Debug)]
pub struct BesideFigures {
    /// The books of the time in which the load ran.
    pub books: Accounting,
    /// Batch's work a second ÷ the same with the lane to itself.
    pub batch_work_ratio: f64,
    /// Threads on the lanes, if that was wanted.
    pub timeline: Option<Timeline>,
    /// Knowledge of the session about the service at the end, if lanes were lent.
    pub learned: Option<LearnedLimits>,
    /// Notes on degradations.
    pub notes: Vec<Note>,
}

/// Measures one setting.
pub fn run(task: Task<'_>, setting: &Setting) -> Result<Figures> {
    match setting.beside {
        None => run_alone(task),
        Some(mode) => run_beside(task, setting, mode),
    }
}

fn run_alone(task: Task<'_>) -> Result<Figures> {
    task.fixture.begin_at_sockets()?;
    let watch = Watch::start(task.fixture)?;
    let load = RunningClient::start(task.fixture, task.rhythm)?;
    while !load.wait(SUPERVISE_EVERY)? {
        task.fixture.drain_sockets()?;
    }
    let lc_utilisation = watch.utilisation()?;
    let at_socket = task.fixture.at_socket(task.rhythm)?;
    Ok(Figures { latencies: load.finish()?, at_socket, lc_utilisation, beside: None })
}

fn run_beside(task: Task<'_>, setting: &Setting, mode: BatchMode) -> Result<Figures> {
    let fixture = task.fixture;
    let counter = fixture.counter(&format!("{}-{}", task.batch, setting.name));
    let _ = std::fs::remove_file(&counter);
    let options = SessionOptions {
        class: mode.class,
        hold: mode.hold,
        gate: Gate::Holder,
        audit: None,
        max_slowdown: None,
        quiet: false,
        allow_realtime: false,
    };
    let mut session = Session::start(vec![fixture.beside()?], &command(fixture, task.batch, &counter), options)?;
    let measured = measure(task, setting, &mut session, &counter);
    session.kill();
    let outcome = session.end()?;
    let mut figures = measured?;
    if let Some(beside) = &mut figures.beside {
        beside.notes.extend(outcome.notes);
    }
    Ok(figures)
}

fn measure(task: Task<'_>, setting: &Setting, session: &mut Session, counter: &Path) -> Result<Figures> {
    wait_for_work(counter)?;
    let unlearned = learn::learn(task, setting, session)?;
    task.fixture.begin_at_sockets()?;
    let load = RunningClient::start(task.fixture, task.rhythm)?;
    let watch = Watch::start(task.fixture)?;
    let (before, done) = (session.memory().accounting(), work_done(counter));
    let timeline = draw(task, setting, session)?;
    while !load.wait(SUPERVISE_EVERY)? {
        session.supervise()?;
        task.fixture.drain_sockets()?;
    }
    let books = session.memory().accounting().since(&before);
    let lc_utilisation = watch.utilisation()?;
    let work_per_s = (work_done(counter) - done) as f64 / watch.began.elapsed().as_secs_f64();
    let batch_work_ratio = work_per_s / task.batch_alone_per_s;
    let (learned, notes) = (session.learned(), unlearned.into_iter().map(Note::from).collect());
    let beside = BesideFigures { books, batch_work_ratio, timeline, learned, notes };
    let at_socket = task.fixture.at_socket(task.rhythm)?;
    Ok(Figures { latencies: load.finish()?, at_socket, lc_utilisation, beside: Some(beside) })
}

fn draw(task: Task<'_>, setting: &Setting, session: &Session) -> Result<Option<Timeline>> {
    if !task.draw {
        return Ok(None);
    }
    // Past the warm-up, where the run is like the rest of it.
    thread::sleep(task.rhythm.warm_up * 2);
    timeline::record(session, setting.name, TIMELINE).map(Some)
}

/// Resources that the service used since a moment.
struct Watch<'fixture> {
    fixture: &'fixture Fixture,
    began: Instant,
    cpu_ns: u64,
}

impl<'fixture> Watch<'fixture> {
    fn start(fixture: &'fixture Fixture) -> Result<Self> {
        Ok(Self { fixture, began: Instant::now(), cpu_ns: fixture.service_cpu_ns()? })
    }

    fn utilisation(&self) -> Result<f64> {
        let used_ns = self.fixture.service_cpu_ns()? - self.cpu_ns;
        Ok(used_ns as f64 / self.began.elapsed().as_nanos() as f64)
    }
}
