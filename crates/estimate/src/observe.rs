//! Observes a service for an estimate. Nothing is held, moved or confined.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sidelane_diagnostics::machine;
use sidelane_diagnostics::note::Note;
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::service::Target;
use sidelane_host::shutdown::Shutdown;
use sidelane_host::topology::Lanes;
use sidelane_lanes::placement::{Placement, PlacementError};
use sidelane_report::Unit;
use sidelane_report::terminal::eprint_fitted;
use sidelane_report::watch_progress::WatchProgress;
use sidelane_requests::Request;
use sidelane_requests::watch::{DRAIN_EVERY, SERVICE_LOOK_EVERY, Watched};
use sidelane_rollback::own_threads;
use sidelane_sim::recording::{
    Head, LaneSecond, RecordedRequest, Recording, RecordingWriter, Second, SizedOutput, UNIT_NS,
};
use sidelane_tracker::accounting::Accounting;
use sidelane_tracker::ledger::TurnKind;
use sidelane_tracker::tracker::LaneMemory;

use crate::note::EstimateNote;

/// Length of a second of a recording.
pub const SECOND_NS: u64 = 1_000_000_000;
/// Size at which a recording ends. It would take half a day of 5,000 requests a second.
const SIZE_MAX_BYTES: u64 = 1 << 30;

/// Options of an observation.
#[derive(Clone, Debug)]
pub struct ObserveOptions {
    /// Service to observe.
    pub target: Target,
    /// Request and batch lanes; `None`: those of the service's cores.
    pub lanes: Option<String>,
    /// Duration of the observation.
    pub length: Duration,
    /// File that keeps the recording; `None` if it is not kept.
    pub keep: Option<PathBuf>,
}

/// Observes a service until the time is over or a POSIX signal ends it. Returns the recording, with notes.
pub fn observe(options: &ObserveOptions) -> Result<(Recording, Vec<Note>)> {
    let placement = find_placement(options)?;
    let until = Shutdown::on_posix_signals()?;
    let mut observation = Observation::begin(&placement)?;
    let head = Head {
        service: options.target.to_string(),
        request_lanes: placement.lanes.request_lanes.iter().collect(),
        batch_lanes: placement.lanes.batch_cpus().iter().collect(),
        declared: options.lanes.clone(),
        source: observation.watched.requests.kind().to_string(),
        machine: machine::describe(placement.lanes.kind),
    };
    let mut sink = Sink::create(options.keep.as_deref(), &head)?;
    eprint_fitted(&format!(
        "sidelane: recording {} on CPU {}, {}, for {:?}; nothing is held or moved; Ctrl-C ends it sooner",
        options.target, placement.lanes.request_lanes, head.source, options.length
    ));
    let (began, mut looked_at, mut count) = (Instant::now(), Instant::now(), 0_usize);
    let (mut progress, mut full) = (WatchProgress::new(options.length), None);
    while began.elapsed() < options.length && until.wait(DRAIN_EVERY)? {
        observation.drain()?;
        if now_ns().saturating_sub(observation.recorder.second_began_ns()) >= SECOND_NS {
            count += observation.recorder.request_count();
            sink.write(&observation.end_second())?;
        }
        if sink.size() > SIZE_MAX_BYTES {
            full = Some(began.elapsed());
            break;
        }
        progress
            .show(|| format!("{} requests", Unit::Count.human((count + observation.recorder.request_count()) as f64)));
        if looked_at.elapsed() >= SERVICE_LOOK_EVERY {
            looked_at = Instant::now();
            observation.watched.update_processes(&options.target)?;
        }
    }
    progress.clear();
    observation.finish()?;
    let unseen = observation.watched.unobserved_socket_note(&options.target);
    sink.write(&observation.end_second())?;
    let recording = sink.end()?;
    let full = full.map(|length| {
        let length = Unit::S.human(length.as_secs_f64());
        EstimateNote::RecordingFull { size_mb: SIZE_MAX_BYTES >> 20, length }
    });
    let notes = full.map(Note::from).into_iter().chain(unseen.map(Note::from));
    Ok((recording, notes.chain(own_threads::overhead_note()).collect()))
}

/// Finds the service and its lanes. The service has to keep off the batch lanes, as it has to for `run`.
fn find_placement(options: &ObserveOptions) -> Result<Placement> {
    match Placement::find(options.target.clone(), options.lanes.as_deref(), false) {
        Err(PlacementError::ServiceOnBatchLane { target, allowed, shared, requests }) => bail!(
            "cannot estimate for lane(s) {shared}: {target} may run on CPUs {allowed}, so it is not \
             known what it would do on CPU {requests} alone; confine it first (taskset -a -c -p {requests} PID, or its cpuset)"
        ),
        found => Ok(found?),
    }
}

/// Observation of a service with its recorder.
struct Observation {
    watched: Watched,
    memory: Arc<LaneMemory>,
    recorder: SecondRecorder,
}

impl Observation {
    fn begin(placement: &Placement) -> Result<Self> {
        let Placement { target, service, lanes, .. } = placement;
        let watched = Watched::begin_with_lanes(target, service, lanes)?;
        let memory = watched.lanes().expect("lanes are observed");
        let recorder = SecondRecorder::new(lanes, memory.accounting());
        Ok(Self { watched, memory, recorder })
    }

    fn drain(&mut self) -> Result<()> {
        let Self { watched, recorder, .. } = self;
        Ok(watched.requests.drain(|request| recorder.add(request))?)
    }

    fn finish(&mut self) -> Result<()> {
        let Self { watched, recorder, .. } = self;
        Ok(watched.finish(|request| recorder.add(request))?)
    }

    /// Ends the present second, and returns it.
    fn end_second(&mut self) -> Second {
        self.recorder.end_second(self.memory.accounting(), self.watched.requests.take_lost())
    }
}

/// Collects what happens in each second of a recording.
pub struct SecondRecorder {
    request_lanes: Vec<u32>,
    batch_lanes: CpuSet,
    began_ns: u64,
    /// Accounting at the begin of the present second.
    before: Accounting,
    second: Second,
}

impl SecondRecorder {
    /// Begins the first second of a recording of these lanes, whose accounting is `now`.
    pub fn new(lanes: &Lanes, now: Accounting) -> Self {
        Self {
            request_lanes: lanes.request_lanes.iter().collect(),
            batch_lanes: lanes.batch_cpus(),
            began_ns: now.at_ns,
            before: now,
            second: Second::default(),
        }
    }

    /// Adds a request that has finished. Only answered requests count.
    pub fn add(&mut self, request: &Request) {
        self.second.requests.extend(to_recorded(request, &self.request_lanes, self.began_ns));
    }

    /// Returns the number of requests in the present second.
    pub fn request_count(&self) -> usize {
        self.second.requests.len()
    }

    /// Returns the begin of the present second on the kernel's clock.
    pub fn second_began_ns(&self) -> u64 {
        self.before.at_ns
    }

    /// Ends the present second, and returns it. `lost` is the number of requests whose records were lost in it.
    pub fn end_second(&mut self, now: Accounting, lost: u64) -> Second {
        let used = now.since(&self.before);
        let mut second = std::mem::take(&mut self.second);
        second.length = used.at_ns / UNIT_NS;
        let lanes = self.request_lanes.iter().map(|cpu| used.lane(*cpu));
        second.lanes = lanes.map(|lane| LaneSecond { busy: lane.lc_ns / UNIT_NS, turns: lane.lc_switches }).collect();
        for cpu in self.batch_lanes.iter() {
            let ledger = used.lane(cpu).ledger;
            second.beside_idle += ledger.all_idle_ns() / UNIT_NS;
            second.empty += ledger.idle_ns(TurnKind::Empty) / UNIT_NS;
        }
        second.lost = lost;
        self.before = now;
        second
    }
}

/// Converts an answered request. A request that finished on another CPU counts for one of the request lanes.
fn to_recorded(request: &Request, lanes: &[u32], began_ns: u64) -> Option<RecordedRequest> {
    if request.ending.is_some() {
        return None;
    }
    let lane = lanes.iter().position(|cpu| *cpu == request.lane).unwrap_or(request.tid as usize % lanes.len());
    let units = |ns: u64| u32::try_from(ns / UNIT_NS).unwrap_or(u32::MAX);
    Some(RecordedRequest {
        // Requests that arrived before the recording began count from its begin on.
        arrived: request.arrived_ns.checked_sub(began_ns)? / UNIT_NS,
        queueing: units(request.queueing_ns()),
        server: units(request.server_ns()),
        lane: lane as u8,
    })
}

/// Where a recording goes: a file, or memory if it is not kept.
enum Sink {
    File(RecordingWriter<SizedOutput<BufWriter<File>>>, PathBuf),
    Memory(RecordingWriter<SizedOutput<Vec<u8>>>),
}

impl Sink {
    fn create(keep: Option<&Path>, head: &Head) -> Result<Self> {
        let Some(path) = keep else {
            return Ok(Self::Memory(RecordingWriter::new(SizedOutput::new(Vec::new()), head)?));
        };
        let create = || RecordingWriter::new(SizedOutput::new(BufWriter::new(File::create(path)?)), head);
        let writer = create().with_context(|| cannot_write(path))?;
        Ok(Self::File(writer, path.to_owned()))
    }

    fn size(&self) -> u64 {
        match self {
            Self::File(writer, _) => writer.get_ref().size_bytes(),
            Self::Memory(writer) => writer.get_ref().size_bytes(),
        }
    }

    fn write(&mut self, second: &Second) -> Result<()> {
        match self {
            Self::File(writer, path) => writer.write(second).with_context(|| cannot_write(path)),
            Self::Memory(writer) => Ok(writer.write(second)?),
        }
    }

    /// Ends the recording, and reads it.
    fn end(self) -> Result<Recording> {
        match self {
            Self::File(writer, path) => {
                writer.end().with_context(|| cannot_write(&path))?;
                Ok(Recording::load(&path)?)
            }
            Self::Memory(writer) => Ok(Recording::read(&*writer.end()?.into_inner(), "in memory")?),
        }
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write the recording {}; name a file in a folder with enough space", path.display())
}
