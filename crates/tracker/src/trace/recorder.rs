//! The recorder: reads the records of a trace, from the first to the last.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use sidelane_host::clock::now_ns;
use sidelane_host::ports::{Listener, listeners};
use sidelane_host::procfs::allowed_cpus;
use sidelane_host::service::Service;
use sidelane_host::topology::Lanes;
use sidelane_timeline::record::{Kind, Kinds, Record};
use thiserror::Error;

use super::memory::RingSlot;
use super::merge::RecordMerger;
use super::names::{SEEN, ThreadNames};
use super::options::TraceOptions;
use super::parts::{CPUS, RINGS, THREADS};
use super::programs::{self, AvailableInputs};
use super::ring::RingReader;
use crate::kernel_types::{TraceCpu, TraceThread};
use crate::requests::{Counts, WatchedSockets};
use crate::stolen::StealTimeSource;
use crate::tracepoints::Tracepoints;
use crate::tracker::{Purpose, Tracker, TrackerError, interrupts_are_known, map_array};
use crate::tracking::{LaneUse, ServiceTracking};
use sidelane_host::shared_mapping::SharedMapping;

/// Reason why a trace cannot be recorded.
#[derive(Debug, Error)]
pub enum TraceError {
    /// Kernel without the tracepoints that requests need.
    #[error(
        "cannot trace requests: this kernel lacks the tracepoints {}; boot Linux 6.3 or later",
        .0.join(", ")
    )]
    NoRequests(Vec<&'static str>),
    /// Failure of the kernel program.
    #[error(transparent)]
    Tracker(#[from] TrackerError),
}

struct Traced {
    tracking: ServiceTracking,
    sockets: WatchedSockets,
    listens: BTreeSet<Listener>,
}

/// Recorder of events on the way of services' requests. It records while it lives.
pub struct Recorder {
    tracker: Rc<Tracker>,
    traced: Vec<Traced>,
    cpus: SharedMapping<TraceCpu>,
    places: SharedMapping<RingSlot>,
    threads: SharedMapping<TraceThread>,
    places_a_cpu: usize,
    rings: Vec<RingReader>,
    merge: RecordMerger,
    names: ThreadNames,
    recorded: Kinds,
}

impl Recorder {
    /// Loads the kernel program and starts to record these services: their sockets, threads and processes, present and
    /// future. A process that starts during this call is recorded from [`Recorder::update_processes`] on.
    pub fn start(options: &TraceOptions, services: &[Service]) -> Result<Self, TraceError> {
        let groups = services.iter().any(|service| service.group.is_some());
        let missing = programs::missing_request_tracepoints(options, &Tracepoints::of_kernel());
        if !missing.is_empty() {
            return Err(TraceError::NoRequests(missing));
        }
        let mut new = Self::with_tracker(&Rc::new(Tracker::load(Purpose::Trace(*options), groups)?))?;
        for service in services {
            let lanes = Lanes::without_batch_lanes(allowed_cpus(&service.pids));
            let tracking = ServiceTracking::start(&new.tracker, service, &lanes, LaneUse::default())?;
            new.add_service(tracking, service)?;
        }
        new.tracker.attach()?;
        Ok(new)
    }

    /// Makes a recorder for a tracker that was loaded for a trace; it traces no service yet.
    ///
    /// # Panics
    /// If the tracker was loaded without a trace.
    pub fn with_tracker(tracker: &Rc<Tracker>) -> Result<Self, TraceError> {
        let options = tracker.purpose().trace().expect("the tracker was loaded for a trace");
        let cpu_count = tracker.memory().cpu_count();
        let places_a_cpu = options.records_per_cpu(cpu_count) as usize;
        let known = AvailableInputs {
            lanes: tracker.purpose().has_lanes(),
            stolen: tracker.memory().steal_time_source() != StealTimeSource::Unseen,
            interrupts: interrupts_are_known(),
        };
        Ok(Self {
            tracker: Rc::clone(tracker),
            traced: Vec::new(),
            cpus: map_array(tracker.maps(), CPUS, cpu_count)?,
            places: map_array(tracker.maps(), RINGS, places_a_cpu * cpu_count)?,
            threads: map_array(tracker.maps(), THREADS, SEEN)?,
            places_a_cpu,
            rings: (0..cpu_count).map(|_| RingReader::default()).collect(),
            merge: RecordMerger::default(),
            names: ThreadNames::new(),
            recorded: programs::recordable_kinds(&options, &Tracepoints::of_kernel(), known),
        })
    }

    /// Adds a service to the trace. The recorder's own tracker tracks the service.
    pub fn add_service(&mut self, tracking: ServiceTracking, service: &Service) -> Result<(), TraceError> {
        let sockets = WatchedSockets::map(&tracking)?;
        self.traced.push(Traced { tracking, sockets, listens: BTreeSet::new() });
        self.update_processes(self.traced.len() - 1, service)
    }

    /// Sets the present processes of a service, which may have been restarted, or listen elsewhere. `service_index` is
    /// the number of the service in the order in which services were added, from 0.
    pub fn update_processes(&mut self, service_index: usize, service: &Service) -> Result<(), TraceError> {
        let traced = &mut self.traced[service_index];
        traced.tracking.add_processes(&service.pids);
        for listener in listeners(&service.pids, service.port) {
            if traced.listens.insert(listener) {
                traced.sockets.add_listener(listener)?;
            }
        }
        Ok(())
    }

    /// Returns the counts of request tracking for a service.
    pub fn counts(&self, service_index: usize) -> Counts {
        self.traced[service_index].sockets.counts()
    }

    /// Fetches records, oldest first, except those of the last [`super::merge::SETTLED_NS`], in which an older record
    /// may still appear. Called at least once a [`Recorder::read_interval_max`].
    pub fn read(&mut self, records: &mut Vec<Record>) {
        let now_ns = now_ns();
        self.names.refresh_if_due();
        self.fetch_from_rings();
        self.merge.take_settled(now_ns, records);
    }

    /// Stops recording, and fetches the remaining records. [`Tracker::attach`] continues the trace.
    pub fn finish(&mut self, records: &mut Vec<Record>) {
        self.tracker.detach();
        self.cpus.iter().for_each(TraceCpu::forget_running_thread);
        self.fetch_from_rings();
        self.merge.take_remaining(records);
    }

    fn fetch_from_rings(&mut self) {
        let (merge, names, threads) = (&mut self.merge, &mut self.names, &self.threads);
        let mut add = |record: Record| {
            // Names are read only at records of these three kinds. Each thread with records was switched to before, or
            // answers requests without a switch.
            if matches!(record.kind, Kind::Switched | Kind::Woken | Kind::RequestFinished) {
                // A process has the name of its first thread, which may sleep all the time.
                let Record { task, other, .. } = record;
                for tid in [task.tid, task.pid, other.tid, other.pid] {
                    names.read_name(tid, |place| threads[place].name_of(tid));
                }
            }
            merge.add(record);
        };
        for ((ring, cpu), places) in
            self.rings.iter_mut().zip(self.cpus.iter()).zip(self.places.chunks(self.places_a_cpu))
        {
            ring.read(&cpu.written, places, &mut add);
        }
    }

    /// Returns the longest time between two calls of [`Recorder::read`]: the rings have room for twice as long at a
    /// million records a second.
    pub fn read_interval_max(&self) -> Duration {
        Duration::from_nanos(self.places_a_cpu as u64 * 500)
    }

    /// Returns the number of records that were overwritten before they were read.
    pub fn lost_records(&self) -> u64 {
        self.rings.iter().map(RingReader::lost_records).sum()
    }

    /// Returns the kinds of records that exist on this kernel, with these options.
    pub fn recorded_kinds(&self) -> Kinds {
        self.recorded
    }

    /// Returns the name of a thread in a record; `None` if it is unknown.
    pub fn name_of(&self, tid: u32) -> Option<&str> {
        self.names.get(tid)
    }

    /// Returns the names of all threads in records, by thread id.
    pub fn names(&self) -> impl Iterator<Item = (u32, &str)> {
        self.names.all()
    }

    /// Returns the tracker, to which other crates may add batch jobs.
    pub fn tracker(&self) -> &Rc<Tracker> {
        &self.tracker
    }

    /// Returns the number of runs of kernel programs that the kernel left out, because the same program already ran on
    /// that CPU.
    pub fn missed_program_runs(&self) -> Result<u64, TraceError> {
        Ok(self.tracker.missed_program_runs()?)
    }
}
