//! An invented trace for tests: a server on lane 1, whose network is served on lane 0. Most requests take 200 µs. Some
//! wait behind another program, for a lock, for a garbage collection, or in the send buffer.

use std::time::Duration;

use sidelane_timeline::cause::Cause;
use sidelane_timeline::diagnoser::{Diagnoser, DiagnoserSettings};
use sidelane_timeline::diagnosis::{Bar, Diagnosis, Finding, TracerCost, UndetectableCause};
use sidelane_timeline::record::{Kind, Kinds, Record, Task};
use sidelane_timeline::timeline::{Span, Timeline};

use super::excerpt::Excerpt;
use super::exemplars::Exemplars;
use super::otlp::SlowRequest;
use super::report::{Counts, TraceReport, UnansweredCounts};
use super::slow_threshold::SlowThreshold;
use super::text::Names;
use super::timeline_view::timeline_view;
use sidelane_requests::Times;

pub const SERVER: Task = Task { tid: 100, pid: 100 };
pub const WORKER: Task = Task { tid: 101, pid: 100 };
pub const STRANGER: Task = Task { tid: 900, pid: 900 };
const IDLE_TASK: Task = Task { tid: 0, pid: 0 };
/// Begin of the invented trace, in nanoseconds.
const BEGIN_NS: u64 = 5_000_000_000;
/// Time between the arrivals of two requests, in nanoseconds.
const APART_NS: u64 = 50_000_000;
const REQUESTS: u64 = 300;

/// Returns a record on lane 1 that is about no thread.
pub fn record(at_ns: u64, kind: Kind) -> Record {
    Record {
        at_ns,
        kind,
        seq: 1,
        task: IDLE_TASK,
        cpu: 1,
        detail: 0,
        other: IDLE_TASK,
        socket: 0,
        request: 0,
        value: 0,
    }
}

/// Returns the timeline of a request whose time went to these causes, one after the other.
pub fn timeline(request: u64, arrived_ns: u64, parts: &[(Cause, u64)]) -> Timeline {
    let mut from_ns = arrived_ns;
    let mut spans = Vec::new();
    for (cause, length_ns) in parts {
        let by = match cause {
            Cause::RunQueue => STRANGER,
            Cause::Lock => WORKER,
            _ => IDLE_TASK,
        };
        let is_network = *cause == Cause::NetworkReceive;
        spans.push(Span {
            from_ns,
            to_ns: from_ns + length_ns,
            cause: *cause,
            tid: if is_network { 0 } else { SERVER.tid },
            cpu: Some(u32::from(!is_network)),
            by_tid: by.tid,
            by_pid: by.pid,
            detail: 0,
            behind: 0,
            wait: None,
        });
        from_ns += length_ns;
    }
    Timeline {
        request,
        socket: 7_000 + request,
        peer_port: 0,
        arrived_ns,
        started_ns: spans.get(1).map_or(arrived_ns, |span| span.from_ns),
        finished_ns: from_ns,
        ended_ns: from_ns,
        spans,
        incomplete: None,
    }
}

/// The invented trace: excerpts of its requests.
pub struct Sample {
    pub names: Names,
    pub begin_ns: u64,
    pub excerpts: Vec<Excerpt>,
    /// Excerpt of a request that waited behind another program for its lane.
    pub behind: Excerpt,
}

pub fn build_sample() -> Sample {
    let mut names = Names::default();
    for (task, name) in [(SERVER, "server"), (WORKER, "worker"), (STRANGER, "stress-ng")] {
        names.set_name(task.tid, name);
    }
    let excerpts: Vec<Excerpt> = (1..=REQUESTS).map(request_excerpt).collect();
    let behind =
        excerpts.iter().find(|excerpt| excerpt.timeline.time_of_cause_ns(Cause::RunQueue) > 1_000_000).unwrap().clone();
    Sample { names, begin_ns: BEGIN_NS, excerpts, behind }
}

/// Returns the report of the invented trace.
pub fn report() -> TraceReport {
    let trace = build_sample();
    let (mut exemplars, mut latency) = (Exemplars::default(), Times::default());
    for excerpt in &trace.excerpts {
        exemplars.add_candidate(&excerpt.timeline, || excerpt.clone());
        latency.record(excerpt.timeline.latency_ns());
    }
    let excerpts = exemplars.into_slowest_first();
    let diagnosis = diagnosis(&trace.excerpts);
    let slow = excerpts.iter().filter(|excerpt| excerpt.timeline.latency_ns() > diagnosis.slo_ns);
    let slow_requests = slow.map(SlowRequest::from_excerpt).collect();
    let requests = excerpts.iter().map(|excerpt| timeline_view(excerpt, &trace.names, BEGIN_NS)).collect();
    TraceReport {
        service: "port:8080".to_owned(),
        threshold: SlowThreshold::Limit(Duration::from_millis(2)),
        wall_s: (REQUESTS + 1) as f64 * APART_NS as f64 / 1e9,
        begin_ns: BEGIN_NS,
        epoch_ns: Some(0),
        diagnosis,
        latency,
        bars: bars(&trace.excerpts),
        requests,
        slow_requests,
        names: trace.names,
        counts: Counts { records: records().len() as u64, lost: 12, ..Counts::default() },
        cut: UnansweredCounts::default(),
        cpu_percent: Some(4.2),
        notes: Vec::new(),
    }
}

/// Returns the distribution of all requests by latency.
fn bars(excerpts: &[Excerpt]) -> Vec<Bar> {
    let mut diagnoser = Diagnoser::new(DiagnoserSettings::default());
    excerpts.iter().for_each(|excerpt| diagnoser.add(&excerpt.timeline));
    diagnoser.latency_bars()
}

/// Returns a diagnosis of the requests, as a diagnoser would make it.
fn diagnosis(excerpts: &[Excerpt]) -> Diagnosis {
    let slo_ns = 2_000_000;
    let slow: Vec<&Timeline> =
        excerpts.iter().map(|excerpt| &excerpt.timeline).filter(|timeline| timeline.latency_ns() > slo_ns).collect();
    let finding = |(cause, evidence, advice): (Cause, &str, &str)| {
        let mut of_it: Vec<&&Timeline> = slow.iter().filter(|slow| slow.time_of_cause_ns(cause) > slo_ns / 2).collect();
        of_it.sort_by_key(|timeline| std::cmp::Reverse(timeline.time_of_cause_ns(cause)));
        Finding {
            cause,
            requests: of_it.len() as u64,
            tail_ns: slow.iter().map(|timeline| timeline.time_of_cause_ns(cause)).sum(),
            share_percent: 0.0,
            examples: of_it.iter().take(3).map(|timeline| timeline.request).collect(),
            evidence: vec![evidence.to_owned()],
            advice: advice.to_owned(),
        }
    };
    let mut findings: Vec<Finding> = FOUND.into_iter().map(finding).collect();
    let all: u64 = findings.iter().map(|finding| finding.tail_ns).sum();
    findings.iter_mut().for_each(|finding| finding.share_percent = finding.tail_ns as f64 * 100.0 / all as f64);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.tail_ns));
    let no_disks = "this kernel records no disk events".to_owned();
    Diagnosis {
        requests: excerpts.len() as u64,
        slow: slow.len() as u64,
        mixed: 0,
        incomplete: 3,
        normal_ns: 220_000,
        tail_ns: all,
        tracer: TracerCost::default(),
        slo_ns,
        findings,
        cannot_tell: vec![UndetectableCause { cause: Cause::Disk, why: no_disks }],
    }
}

const FOUND: [(Cause, &str, &str); 4] = [
    (
        Cause::RunQueue,
        "stress-ng (900) had the CPU",
        "give the service CPUs of its own, or run batch with sidelane run",
    ),
    (Cause::SendBuffer, "one acknowledgement came 40 ms later", "set TCP_NODELAY on the service's sockets"),
    (Cause::Collection, "11 young collections", "give the heap more room, or put a backup server beside it"),
    (Cause::Lock, "worker (101) held the lock at 0x7f10", "hold the lock for less long, or split it"),
];

/// Returns the records of the invented trace in the order of time, with sequence numbers.
pub fn records() -> Vec<Record> {
    let mut records: Vec<Record> = build_sample().excerpts.into_iter().flat_map(|excerpt| excerpt.records).collect();
    records.sort_by_key(|record| record.at_ns);
    number_records(&mut records);
    records
}

/// Sets the sequence numbers of the records, for each CPU from 1 on.
pub fn number_records(records: &mut [Record]) {
    let mut written = [0; 2];
    for record in records {
        written[record.cpu as usize] += 1;
        record.seq = written[record.cpu as usize];
    }
}

/// Returns all kinds of records except records of disks, as on a kernel that cannot record disks.
pub fn kinds() -> Kinds {
    let known = Kind::ALL.into_iter().filter(|kind| !matches!(kind, Kind::DiskIssued | Kind::DiskCompleted));
    known.fold(Kinds::default(), Kinds::with)
}

/// Returns the excerpt of the request with this number.
fn request_excerpt(number: u64) -> Excerpt {
    let arrived_ns = BEGIN_NS + number * APART_NS;
    let late_ns = 1_000_000 + number * 37_777 % 9_000_000;
    let (cause, late_ns) = match number {
        _ if number.is_multiple_of(7) => (Cause::RunQueue, late_ns),
        _ if number.is_multiple_of(31) => (Cause::SendBuffer, 40_000_000 + number * 1_000),
        _ if number.is_multiple_of(13) => (Cause::Collection, late_ns + 4_000_000),
        _ if number.is_multiple_of(17) => (Cause::Lock, late_ns),
        _ => (Cause::RunQueue, 3_000 + number * 777 % 40_000),
    };
    let work_ns = 120_000 + number * 1_237 % 160_000;
    let mut way = SampleRequest { records: Vec::new(), parts: Vec::new(), now_ns: arrived_ns, number };
    way.arrive();
    way.start(if cause == Cause::RunQueue { late_ns } else { 4_000 });
    way.work(work_ns / 2);
    match cause {
        Cause::Lock => way.wait_for_lock(late_ns),
        Cause::Collection => way.pause(late_ns),
        _ => (),
    }
    way.work(work_ns / 2);
    way.answer(if cause == Cause::SendBuffer { late_ns } else { 6_000 });
    let mut timeline = timeline(number, arrived_ns, &way.parts);
    let sent = way.records.iter().find(|record| record.kind == Kind::Sent).unwrap();
    timeline.finished_ns = sent.at_ns;
    Excerpt { timeline, records: way.records, left_out: 0 }
}

/// A request that is being built, with its records so far.
struct SampleRequest {
    records: Vec<Record>,
    parts: Vec<(Cause, u64)>,
    now_ns: u64,
    number: u64,
}

impl SampleRequest {
    fn add_record(&mut self, kind: Kind, change: impl FnOnce(&mut Record)) {
        let mut record = Record { socket: 7_000 + self.number, request: self.number, ..record(self.now_ns, kind) };
        change(&mut record);
        self.records.push(record);
    }

    fn add_span(&mut self, cause: Cause, length_ns: u64) {
        self.parts.push((cause, length_ns));
        self.now_ns += length_ns;
    }

    fn arrive(&mut self) {
        self.add_record(Kind::Segment, |record| {
            (record.cpu, record.value, record.socket, record.request) = (0, 64, 0, 0)
        });
        self.add_span(Cause::NetworkReceive, 9_000);
        self.add_record(Kind::DataReady, |record| (record.cpu, record.value, record.detail) = (0, 64, 64));
    }

    fn start(&mut self, wait_ns: u64) {
        let by = if wait_ns > 100_000 { STRANGER } else { IDLE_TASK };
        self.add_record(Kind::Woken, |record| (record.cpu, record.other, record.detail) = (0, SERVER, 1));
        self.add_span(Cause::RunQueue, wait_ns);
        self.add_record(Kind::Switched, |record| (record.task, record.other) = (by, SERVER));
        self.add_record(Kind::Received, |record| (record.task, record.value, record.detail) = (SERVER, 64, 64));
        let ready_ns = self.records[1].at_ns;
        self.add_record(Kind::RequestStarted, |record| (record.task, record.value) = (SERVER, ready_ns));
    }

    fn work(&mut self, length_ns: u64) {
        self.add_span(Cause::OnCpu, length_ns);
    }

    fn wait_for_lock(&mut self, length_ns: u64) {
        self.add_record(Kind::SleepsIn, |record| (record.task, record.detail) = (SERVER, 202));
        self.add_record(Kind::Switched, |record| (record.task, record.other, record.detail) = (SERVER, WORKER, 1));
        self.add_span(Cause::Lock, length_ns);
        self.add_record(Kind::Woken, |record| (record.task, record.other, record.detail) = (WORKER, SERVER, 1));
        self.add_record(Kind::Switched, |record| (record.task, record.other, record.detail) = (WORKER, SERVER, 1));
    }

    fn pause(&mut self, length_ns: u64) {
        self.add_record(Kind::PauseBegan, |record| (record.task, record.detail) = (SERVER, 1));
        self.add_record(Kind::Switched, |record| (record.task, record.other, record.detail) = (SERVER, IDLE_TASK, 1));
        self.add_span(Cause::Collection, length_ns);
        self.add_record(Kind::PauseEnded, |record| record.task = SERVER);
        self.add_record(Kind::Switched, |record| record.other = SERVER);
    }

    fn answer(&mut self, wait_ns: u64) {
        let started_ns = self.records.iter().find(|record| record.kind == Kind::RequestStarted).unwrap().at_ns;
        self.add_record(Kind::Sent, |record| (record.task, record.value, record.detail) = (SERVER, 512, 512));
        self.add_record(Kind::RequestFinished, |record| {
            (record.task, record.value, record.detail) = (SERVER, started_ns, 1);
        });
        self.add_record(Kind::Switched, |record| (record.task, record.detail) = (SERVER, 1));
        self.add_span(Cause::SendBuffer, wait_ns);
        self.add_record(Kind::Transmitted, |record| (record.cpu, record.value, record.detail) = (0, 512, 512));
    }
}
