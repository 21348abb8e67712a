//! One run: the service under load in one setting, measured by the client and by the kernel.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::batch::{batch_command, units_done, wait_for_work};
use super::fixture::Fixture;
use super::learn::{self, LearningOptions};
use super::load::{Latencies, LoadPattern, RunningClient};
use super::setting::{BatchMode, Setting};
use super::timeline;
use sidelane_diagnostics::note::Note;
use sidelane_lanes::gate::{Gate, GateReason};
use sidelane_lanes::lending_limits::LearnedLimits;
use sidelane_lanes::session::{Session, SessionOptions};
use sidelane_report::{Percentile, Timeline};
use sidelane_requests::at_socket::SocketTimes;
use sidelane_tracker::accounting::Accounting;

/// Length of the part of a run that the timeline shows.
const TIMELINE: Duration = Duration::from_millis(60);
/// Interval of the supervision of a session, the same as in `sidelane run`.
pub(super) const SUPERVISE_EVERY: Duration = Duration::from_millis(100);

/// Subject of a run: the service, its load and the batch job.
#[derive(Clone, Copy)]
pub struct RunSpec<'fixture> {
    /// Service under load.
    pub fixture: &'fixture Fixture,
    /// Rate and times of the requests.
    pub rhythm: LoadPattern,
    /// Name of the batch kernel.
    pub batch: &'fixture str,
    /// Speed of batch alone on its lane, in units of work per second.
    pub batch_alone_per_s: f64,
    /// Whether to record a timeline too.
    pub draw: bool,
    /// Limits that the session knows at its start, and the time that it has to learn them before the run.
    pub experience: LearningOptions,
}

/// Figures of one run.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Latencies that the client measured.
    pub latencies: Latencies,
    /// Latencies at the service's sockets; `None` if the client has a CPU of its own.
    pub at_socket: Option<SocketTimes>,
    /// CPU time of the service divided by the length of the run.
    pub lc_utilisation: f64,
    /// Kernel counts of the time beside batch; `None` if the service ran alone.
    pub beside: Option<BesideFigures>,
}

impl Figures {
    /// Returns the 50th percentile of the latency: at the socket if it was measured there, else at the client.
    pub fn p50_us(&self) -> f64 {
        self.at_socket.as_ref().map_or(self.latencies.p50_us, |seen| seen.p50_us)
    }

    /// Returns the 95th percentile of the latency: at the socket if it was measured there, else at the client.
    pub fn p95_us(&self) -> f64 {
        self.at_socket.as_ref().map_or(self.latencies.p95_us, |seen| seen.p95_us)
    }

    /// Returns the 99th percentile of the latency: at the socket if it was measured there, else at the client.
    pub fn p99_us(&self) -> f64 {
        self.at_socket.as_ref().map_or(self.latencies.p99_us, |seen| seen.p99_us)
    }

    /// Returns the latency distribution: at the socket if it was measured there, else at the client.
    pub fn curve(&self) -> &[Percentile] {
        self.at_socket.as_ref().map_or(&self.latencies.curve, |seen| &seen.curve)
    }
}

/// Counts of the kernel while batch ran beside the service.
#[derive(Clone, Debug)]
pub struct BesideFigures {
    /// Time accounts of the lanes for the time in which the load ran.
    pub accounting: Accounting,
    /// Batch's speed beside the service, divided by its speed alone on the lane.
    pub batch_work_ratio: f64,
    /// Timeline of the threads on the lanes; `None` if it was not requested.
    pub timeline: Option<Timeline>,
    /// Limits that the session had learned at its end, if lanes were lent.
    pub learned: Option<LearnedLimits>,
    /// Notes on degradations of the run.
    pub notes: Vec<Note>,
}

/// Runs the service under load in one setting, and returns the figures.
pub fn run(task: RunSpec<'_>, setting: &Setting) -> Result<Figures> {
    match setting.beside {
        None => run_alone(task),
        Some(mode) => run_beside(task, setting, mode),
    }
}

fn run_alone(task: RunSpec<'_>) -> Result<Figures> {
    task.fixture.begin_socket_run()?;
    let watch = ServiceCpuMeter::start(task.fixture)?;
    let load = RunningClient::start(task.fixture, task.rhythm)?;
    while !load.wait_for_exit(SUPERVISE_EVERY)? {
        task.fixture.drain_sockets()?;
    }
    let lc_utilisation = watch.utilisation()?;
    let at_socket = task.fixture.end_socket_run(task.rhythm)?;
    Ok(Figures { latencies: load.finish()?, at_socket, lc_utilisation, beside: None })
}

fn run_beside(task: RunSpec<'_>, setting: &Setting, mode: BatchMode) -> Result<Figures> {
    let fixture = task.fixture;
    let counter = fixture.counter_file(&format!("{}-{}", task.batch, setting.name));
    let _ = std::fs::remove_file(&counter);
    let options = SessionOptions {
        class: mode.class,
        hold: mode.hold,
        gate: Gate::Holder,
        gate_reason: GateReason::Asked,
        max_overlap_ppm: None,
        audit: None,
        max_slowdown: None,
        quiet: false,
        allow_realtime: false,
    };
    let mut session =
        Session::start(vec![fixture.placement()?], &batch_command(fixture, task.batch, &counter), options)?;
    let measured = measure_beside_batch(task, setting, &mut session, &counter);
    session.kill();
    let outcome = session.end()?;
    let mut figures = measured?;
    if let Some(beside) = &mut figures.beside {
        beside.notes.extend(outcome.notes);
    }
    Ok(figures)
}

fn measure_beside_batch(
    task: RunSpec<'_>,
    setting: &Setting,
    session: &mut Session,
    counter: &Path,
) -> Result<Figures> {
    wait_for_work(counter)?;
    let unlearned = learn::learn_limits(task, setting, session)?;
    task.fixture.begin_socket_run()?;
    let load = RunningClient::start(task.fixture, task.rhythm)?;
    let watch = ServiceCpuMeter::start(task.fixture)?;
    let (before, done) = (session.memory().accounting(), units_done(counter));
    let timeline = record_requested_timeline(task, setting, session)?;
    while !load.wait_for_exit(SUPERVISE_EVERY)? {
        session.supervise()?;
        task.fixture.drain_sockets()?;
    }
    let accounting = session.memory().accounting().since(&before);
    let lc_utilisation = watch.utilisation()?;
    let work_per_s = (units_done(counter) - done) as f64 / watch.began.elapsed().as_secs_f64();
    let batch_work_ratio = work_per_s / task.batch_alone_per_s;
    let (learned, notes) = (session.learned(), unlearned.into_iter().map(Note::from).collect());
    let beside = BesideFigures { accounting, batch_work_ratio, timeline, learned, notes };
    let at_socket = task.fixture.end_socket_run(task.rhythm)?;
    Ok(Figures { latencies: load.finish()?, at_socket, lc_utilisation, beside: Some(beside) })
}

fn record_requested_timeline(task: RunSpec<'_>, setting: &Setting, session: &Session) -> Result<Option<Timeline>> {
    if !task.draw {
        return Ok(None);
    }
    // Waits until the warm-up is over, so that the timeline shows a typical part of the run.
    thread::sleep(task.rhythm.warm_up * 2);
    timeline::record(session, setting.name, TIMELINE).map(Some)
}

/// Meter of the CPU time that the service uses after the meter's start.
struct ServiceCpuMeter<'fixture> {
    fixture: &'fixture Fixture,
    began: Instant,
    cpu_ns: u64,
}

impl<'fixture> ServiceCpuMeter<'fixture> {
    fn start(fixture: &'fixture Fixture) -> Result<Self> {
        Ok(Self { fixture, began: Instant::now(), cpu_ns: fixture.service_cpu_ns()? })
    }

    fn utilisation(&self) -> Result<f64> {
        let used_ns = self.fixture.service_cpu_ns()? - self.cpu_ns;
        Ok(used_ns as f64 / self.began.elapsed().as_nanos() as f64)
    }
}
