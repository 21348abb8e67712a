//! The trace of a service under load: the parts of `sidelane trace` record it, build its timelines and name causes.

use std::path::Path;
use std::rc::Rc;
use std::thread;

use anyhow::{Context, Result};

use crate::experiment::place::ExperimentCpus;
use sidelane_host::priority::run_with_this_thread_on;
use sidelane_host::service::{Service, Target};
use sidelane_host::topology::Topology;
use sidelane_timeline::builder::{Builder, Counts, Settings};
use sidelane_timeline::ending::UnansweredRequest;
use sidelane_timeline::record::{Kinds, Record};
use sidelane_timeline::timeline::Timeline;
use sidelane_trace::pauses::Pauses;
use sidelane_tracker::trace::{Recorder, TraceOptions};
use sidelane_tracker::tracker::{Extension, LaneLending, Purpose, Tracker};
use sidelane_tracker::tracking::{BatchTracking, LaneUse, ServiceTracking};

/// Result of a trace that has ended.
pub(super) struct TraceResult {
    /// Timelines of requests, whole and incomplete.
    pub(super) timelines: Vec<Timeline>,
    /// Requests without a response, since their connection ended.
    pub(super) unanswered: Vec<UnansweredRequest>,
    pub(super) counts: Counts,
    /// Number of records that were not read in time.
    pub(super) lost: u64,
    /// Kinds of records that this machine supports.
    pub(super) recorded: Kinds,
}

/// Service that is traced.
pub(super) struct TracedService {
    pub(super) service: Target,
    pub(super) place: ExperimentCpus,
    /// Batch beside the service, if its lanes are tracked.
    pub(super) batch: Option<Batch>,
}

/// Batch job, by the name of its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batch(pub(super) &'static str);

/// Traces the service while `load` runs on a new thread. The calling thread and the new one stay on the client's CPU,
/// so that neither disturbs the service.
pub(super) fn trace_while_running<T: Send>(
    service: &TracedService,
    load: impl FnOnce() -> Result<T> + Send,
) -> Result<(TraceResult, T)> {
    run_with_this_thread_on(&[service.place.client], || trace_under_load(service, load))
        .context("cannot choose a CPU")?
}

impl TracedService {
    /// Starts the recorder. If batch is given, the kernel program tells its processes from other programs until the
    /// returned `BatchTracking` is dropped.
    fn start_recorder(&self, service: Service) -> Result<(Recorder, Option<BatchTracking>)> {
        let Some(Batch(name)) = self.batch else {
            return Ok((Recorder::start(&TraceOptions::default(), &[service])?, None));
        };
        let extension = Some(Extension::Trace(TraceOptions::default()));
        let purpose = Purpose::Lend { requests: true, lent: LaneLending { extension, ..LaneLending::default() } };
        let tracker = Rc::new(Tracker::load(purpose, false)?);
        let lanes = Topology::read(Path::new("/sys"))?.declared_pairs(&self.place.lanes())?;
        let batch = BatchTracking::start(&tracker, None)?;
        Target::Comm(name.to_owned()).find()?.pids.into_iter().for_each(|pid| batch.add_process(pid));
        let mut recorder = Recorder::with_tracker(&tracker)?;
        recorder.add_service(ServiceTracking::start(&tracker, &service, &lanes, LaneUse::default())?, &service)?;
        tracker.attach()?;
        Ok((recorder, Some(batch)))
    }
}

fn trace_under_load<T: Send>(
    service: &TracedService,
    load: impl FnOnce() -> Result<T> + Send,
) -> Result<(TraceResult, T)> {
    let found = service.service.find()?;
    let mut pauses = Pauses::watch(&found.pids);
    let (mut recorder, _batch) = service.start_recorder(found).context("cannot trace")?;
    let recorded = pauses.with_pause_kinds(recorder.recorded_kinds());
    let mut builder = Builder::new(Settings { kinds: recorded, ..Settings::default() });
    let (mut timelines, mut unanswered, mut records) = (Vec::new(), Vec::new(), Vec::new());
    let mut take = |records: &mut Vec<Record>, builder: &mut Builder| {
        records.drain(..).for_each(|record| builder.push(record, &mut |timeline| timelines.push(timeline)));
        unanswered.extend(builder.take_unanswered());
    };
    let period = recorder.read_interval_max() / 4;
    let loaded = thread::scope(|scope| {
        let load = scope.spawn(load);
        while !load.is_finished() {
            thread::sleep(period);
            recorder.read(&mut records);
            pauses.merge(&mut records);
            take(&mut records, &mut builder);
        }
        load.join().expect("the load does not panic")
    })?;
    recorder.finish(&mut records);
    pauses.finish(&mut records);
    take(&mut records, &mut builder);
    builder.finish(&mut |timeline| timelines.push(timeline));
    unanswered.extend(builder.take_unanswered());
    let counts = builder.counts();
    Ok((TraceResult { timelines, unanswered, counts, lost: recorder.lost_records(), recorded }, loaded))
}
