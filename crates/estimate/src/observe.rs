//! Observes a service for an estimate. Nothing is held, moved or confined.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sidelane_diagnostics::machine;
use sidelane_diagnostics::note::Note;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::service::Target;
use sidelane_host::shutdown::Shutdown;
use sidelane_lanes::placement::{Placement, PlacementError};
use sidelane_report::Unit;
use sidelane_report::terminal::eprint_fitted;
use sidelane_report::watch_progress::WatchProgress;
use sidelane_requests::Request;
use sidelane_requests::watch::{DRAIN_EVERY, SERVICE_LOOK_EVERY, Watched};
use sidelane_rollback::own_threads;
use sidelane_tracker::accounting::Accounting;
use sidelane_tracker::ledger::TurnKind;
use sidelane_tracker::tracker::LaneMemory;

use crate::note::EstimateNote;
use crate::recording::{Head, LaneSecond, RecordedRequest, Recording, RecordingWriter, Second, UNIT_NS};

const SECOND: Duration = Duration::from_secs(1);
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
    let mut seconds = Seconds::begin(&placement)?;
    let head = Head {
        service: options.target.to_string(),
        request_lanes: placement.lanes.request_lanes.iter().collect(),
        batch_lanes: placement.lanes.batch_cpus().iter().collect(),
        declared: options.lanes.clone(),
        source: seconds.watched.requests.kind().to_string(),
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
        seconds.drain()?;
        if seconds.second_began.elapsed() >= SECOND {
            count += seconds.second.requests.len();
            sink.write(&seconds.end_second())?;
        }
        if sink.size() > SIZE_MAX_BYTES {
            full = Some(began.elapsed());
            break;
        }
        progress.show(|| format!("{} requests", Unit::Count.human((count + seconds.second.requests.len()) as f64)));
        if looked_at.elapsed() >= SERVICE_LOOK_EVERY {
            looked_at = Instant::now();
            seconds.watched.update_processes(&options.target)?;
        }
    }
    progress.clear();
    seconds.finish()?;
    let unseen = seconds.watched.unobserved_socket_note(&options.target);
    sink.write(&seconds.end_second())?;
    let recording = sink.end()?;
    if recording.requests.is_empty() {
        bail!(
            "cannot estimate anything: {} answered no request; send it its usual traffic during the recording",
            options.target
        );
    }
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

/// Seconds of a recording, as they are observed.
struct Seconds {
    watched: Watched,
    memory: Arc<LaneMemory>,
    request_lanes: Vec<u32>,
    batch_lanes: CpuSet,
    began_ns: u64,
    second_began: Instant,
    /// Accounting at the begin of the present second.
    before: Accounting,
    second: Second,
}

impl Seconds {
    fn begin(placement: &Placement) -> Result<Self> {
        let Placement { target, service, lanes, .. } = placement;
        let watched = Watched::begin_with_lanes(target, service, lanes)?;
        let memory = watched.lanes().expect("lanes are observed");
        let before = memory.accounting();
        Ok(Self {
            watched,
            memory,
            request_lanes: lanes.request_lanes.iter().collect(),
            batch_lanes: lanes.batch_cpus(),
            began_ns: before.at_ns,
            second_began: Instant::now(),
            before,
            second: Second::default(),
        })
    }

    fn drain(&mut self) -> Result<()> {
        let Self { watched, second, request_lanes, began_ns, .. } = self;
        let add = |request: &Request| second.requests.extend(to_recorded(request, request_lanes, *began_ns));
        Ok(watched.requests.drain(add)?)
    }

    fn finish(&mut self) -> Result<()> {
        let Self { watched, second, request_lanes, began_ns, .. } = self;
        let add = |request: &Request| second.requests.extend(to_recorded(request, request_lanes, *began_ns));
        Ok(watched.finish(add)?)
    }

    /// Ends the present second, and returns it.
    fn end_second(&mut self) -> Second {
        let now = self.memory.accounting();
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
        second.lost = self.watched.requests.take_lost();
        (self.before, self.second_began) = (now, Instant::now());
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
    File(RecordingWriter<Counted<BufWriter<File>>>, PathBuf),
    Memory(RecordingWriter<Counted<Vec<u8>>>),
}

/// Output that counts its bytes.
struct Counted<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Sink {
    fn create(keep: Option<&Path>, head: &Head) -> Result<Self> {
        let Some(path) = keep else {
            return Ok(Self::Memory(RecordingWriter::new(Counted { out: Vec::new(), bytes: 0 }, head)?));
        };
        let create = || RecordingWriter::new(Counted { out: BufWriter::new(File::create(path)?), bytes: 0 }, head);
        let writer = create().with_context(|| cannot_write(path))?;
        Ok(Self::File(writer, path.to_owned()))
    }

    fn size(&self) -> u64 {
        match self {
            Self::File(writer, _) => writer.get_ref().bytes,
            Self::Memory(writer) => writer.get_ref().bytes,
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
            Self::Memory(writer) => Ok(Recording::read(&*writer.end()?.out, "in memory")?),
        }
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write the recording {}; name a file in a folder with enough space", path.display())
}
