//! Builder of test traces. Times are in microseconds after the first hour. The tests identify a thread by its number.
//! Its process is [`SERVICE`], unless its number is 900 or more.

#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::BTreeMap;

use sidelane_timeline::builder::{Builder, Settings};
use sidelane_timeline::cause::Cause;
use sidelane_timeline::record::{BY_TIMER, Kind, Record, Task, WAKES_SEVERAL, leave};
use sidelane_timeline::timeline::Timeline;
use sidelane_timeline::wait::call;

/// Process id of the traced service.
pub const SERVICE: u32 = 100;
/// Process id of all threads with numbers from 900 on, which do not belong to the service.
pub const STRANGER: u32 = 900;
/// Thread number 0: no thread, or the idle thread.
pub const IDLE_TASK: u32 = 0;
/// Time at which each test trace begins, in nanoseconds.
pub const START_NS: u64 = 3_600_000_000_000;

/// Returns the thread with this number, together with its process.
pub fn task(tid: u32) -> Task {
    let pid = match tid {
        IDLE_TASK => 0,
        900.. => STRANGER,
        _ => SERVICE,
    };
    Task { tid, pid }
}

/// Returns a time of the trace in nanoseconds; `us` counts from its begin.
pub fn trace_time_ns(us: u64) -> u64 {
    START_NS + us * 1_000
}

/// Arguments of the system call in which a thread sleeps.
#[derive(Clone, Copy, Default)]
pub struct SleepArguments {
    pub argument: u64,
    pub socket: u64,
    pub named: u32,
    pub file: u32,
    pub timeout_ms: u32,
    /// The value that the thread expects in the futex, and the flag `OWN_STACK`.
    pub expected: u64,
}

/// Kinds of files, as in `enum sidelane_trace_file`.
pub const PIPE: u32 = 1;
pub const REGULAR: u32 = 8;
pub const SOCKET: u32 = 12;

/// A test trace, to which a test may add records in any order.
#[derive(Clone, Default)]
pub struct Trace {
    pub records: Vec<Record>,
}

impl Trace {
    pub fn new() -> Trace {
        Trace::default()
    }

    /// Adds a record at `us`; `set` sets its remaining fields.
    pub fn add_record(&mut self, us: u64, kind: Kind, tid: u32, set: impl FnOnce(&mut Record)) -> &mut Trace {
        let mut record = Record {
            at_ns: trace_time_ns(us),
            kind,
            seq: 0,
            task: task(tid),
            cpu: 0,
            detail: 0,
            other: Task::default(),
            socket: 0,
            request: 0,
            value: 0,
        };
        set(&mut record);
        self.records.push(record);
        self
    }

    pub fn set_last_cpu(&mut self, cpu: u32) -> &mut Trace {
        self.records.last_mut().expect("a record").cpu = cpu;
        self
    }

    /// Adds the record that data up to `end_seq` reached the socket.
    pub fn data_ready(&mut self, us: u64, socket: u64, end_seq: u32) -> &mut Trace {
        self.add_record(us, Kind::DataReady, IDLE_TASK, |record| (record.socket, record.detail) = (socket, end_seq))
    }

    /// Adds the record that a thread received data up to `up_to`, which belongs to `request`.
    pub fn received(&mut self, us: u64, tid: u32, socket: u64, end_seq: u32, request: u64) -> &mut Trace {
        self.add_record(us, Kind::Received, tid, |record| {
            (record.socket, record.detail, record.value, record.request) = (socket, end_seq, 10, request);
        })
    }

    /// Adds the record that a thread sent or received on a socket that is not at the service's own port.
    pub fn downstream_io(&mut self, us: u64, kind: Kind, tid: u32, socket: u64) -> &mut Trace {
        self.add_record(us, kind, tid, |record| (record.socket, record.value, record.request) = (socket, 10, 1))
    }

    pub fn started(&mut self, us: u64, tid: u32, socket: u64, request: u64, arrived_us: u64) -> &mut Trace {
        self.add_record(us, Kind::RequestStarted, tid, |record| {
            (record.socket, record.request, record.value) = (socket, request, trace_time_ns(arrived_us));
        })
    }

    pub fn finished(&mut self, us: u64, tid: u32, socket: u64, request: u64, started_us: u64) -> &mut Trace {
        self.add_record(us, Kind::RequestFinished, tid, |record| {
            (record.socket, record.request, record.value, record.detail) =
                (socket, request, trace_time_ns(started_us), 1);
        })
    }

    pub fn sent(&mut self, us: u64, tid: u32, socket: u64, end_seq: u32, request: u64) -> &mut Trace {
        self.add_record(us, Kind::Sent, tid, |record| {
            (record.socket, record.detail, record.value, record.request) = (socket, end_seq, 10, request);
        })
    }

    pub fn transmitted(&mut self, us: u64, socket: u64, end_seq: u32) -> &mut Trace {
        self.add_record(us, Kind::Transmitted, IDLE_TASK, |record| {
            (record.socket, record.detail, record.value) = (socket, end_seq, 10);
        })
    }

    /// Adds a context switch on CPU 0 from thread `from` to thread `to`.
    pub fn switched(&mut self, us: u64, from: u32, to: u32, leave_reason: u32) -> &mut Trace {
        self.add_record(us, Kind::Switched, from, |record| (record.other, record.detail) = (task(to), leave_reason))
    }

    pub fn sleeps(&mut self, us: u64, tid: u32) -> &mut Trace {
        self.switched(us, tid, IDLE_TASK, leave::SLEEPS)
    }

    pub fn gets_cpu(&mut self, us: u64, tid: u32) -> &mut Trace {
        self.switched(us, IDLE_TASK, tid, leave::PREEMPTED)
    }

    /// Adds the record that thread `by` wakes thread `tid`, which is to run on CPU 0.
    pub fn woken(&mut self, us: u64, by: u32, tid: u32) -> &mut Trace {
        self.add_record(us, Kind::Woken, by, |record| record.other = task(tid))
    }

    /// Adds the record that a thread is about to sleep in the system call `number`.
    pub fn enters_sleep_call(&mut self, us: u64, tid: u32, number: u32, argument: u64) -> &mut Trace {
        self.add_record(us, Kind::SleepsIn, tid, |record| (record.detail, record.value) = (number, argument))
    }

    /// Adds the record that a thread is about to sleep in the system call `number`, with the arguments `what`.
    pub fn enters_sleep_call_with(&mut self, us: u64, tid: u32, number: u32, arguments: SleepArguments) -> &mut Trace {
        self.enters_sleep_call(us, tid, number, arguments.argument);
        let record = self.records.last_mut().expect("a record");
        record.socket = arguments.socket | arguments.expected;
        record.other = Task { tid: arguments.named, pid: arguments.file | arguments.timeout_ms << 4 };
        self
    }

    /// Adds the record that a timer wakes a thread.
    pub fn woken_by_timer(&mut self, us: u64, tid: u32) -> &mut Trace {
        self.add_record(us, Kind::Woken, IDLE_TASK, |record| (record.other, record.value) = (task(tid), BY_TIMER))
    }

    /// Adds the record that thread `by` wakes thread `tid` in the system call `number`.
    pub fn woken_in_call(&mut self, us: u64, by: u32, tid: u32, number: u32) -> &mut Trace {
        self.add_record(us, Kind::Woken, by, |record| (record.other, record.value) = (task(tid), u64::from(number) + 1))
    }

    /// Adds the record that thread `by` wakes all threads that wait at a futex; `tid` is one of them.
    pub fn woken_with_others(&mut self, us: u64, by: u32, tid: u32) -> &mut Trace {
        self.woken_at_futex(us, by, tid, WAKES_SEVERAL)
    }

    /// Adds the record that thread `by` wakes thread `tid` at a futex, with flags of such a record.
    pub fn woken_at_futex(&mut self, us: u64, by: u32, tid: u32, flags: u64) -> &mut Trace {
        self.woken_in_call(us, by, tid, call::FUTEX);
        self.records.last_mut().expect("a record").value |= flags;
        self
    }

    /// Adds the record that a thread sends a question to another service, on 127.0.0.1, on a socket that is not at the
    /// service's own port.
    pub fn sends_to_service(&mut self, us: u64, tid: u32, socket: u64, port: u16, protocol: u8) -> &mut Trace {
        self.downstream_io(us, Kind::Sent, tid, socket);
        let record = self.records.last_mut().expect("a record");
        record.detail = u32::from(port) | u32::from(protocol) << 16 | 2 << 24;
        record.other.tid = u32::from_le_bytes([127, 0, 0, 1]);
        self
    }

    /// Adds the record that a thread read another service's answer. The answer's last data arrived at `came_us`.
    pub fn reads_answer(&mut self, us: u64, tid: u32, socket: u64, came_us: u64) -> &mut Trace {
        self.downstream_io(us, Kind::Received, tid, socket);
        let came_ns = trace_time_ns(came_us);
        let record = self.records.last_mut().expect("a record");
        record.other = Task { tid: came_ns as u32, pid: (came_ns >> 32) as u32 };
        self
    }

    /// Adds the record that ends an event of `length_us`, such as an interrupt.
    pub fn ended_event(&mut self, us: u64, kind: Kind, tid: u32, length_us: u64, detail: u32) -> &mut Trace {
        self.add_record(us, kind, tid, |record| (record.value, record.detail) = (length_us * 1_000, detail))
    }

    /// Adds a record of this kind and detail about a thread.
    pub fn event(&mut self, us: u64, kind: Kind, tid: u32, detail: u32) -> &mut Trace {
        self.add_record(us, kind, tid, |record| record.detail = detail)
    }

    /// Returns the records in the order of time, with sequence numbers.
    pub fn numbered_records(&self) -> Vec<Record> {
        self.records_numbered_by(|record| record.at_ns)
    }

    /// Returns the records in the order of time. They have sequence numbers in the order of `written_ns`, the time at
    /// which the kernel would have written each record.
    pub fn records_numbered_by(&self, written_ns: impl Fn(&Record) -> u64) -> Vec<Record> {
        let mut records = self.records.clone();
        records.sort_by_key(written_ns);
        let mut last: BTreeMap<u32, u32> = BTreeMap::new();
        for record in &mut records {
            let seq = last.entry(record.cpu).or_default();
            *seq += 1;
            record.seq = *seq;
        }
        records.sort_by_key(|record| record.at_ns);
        records
    }

    /// Returns the timelines of all requests of the trace.
    pub fn timelines(&self) -> Vec<Timeline> {
        build(Settings::default(), self.numbered_records())
    }

    /// Returns the timelines of all requests of the trace, from a builder that `tell` has prepared.
    pub fn timelines_with_builder(&self, set_up: impl FnOnce(&mut Builder)) -> Vec<Timeline> {
        let mut builder = Builder::new(Settings::default());
        set_up(&mut builder);
        build_with(builder, self.numbered_records())
    }

    /// Returns the timeline of request 1.
    pub fn first_timeline(&self) -> Timeline {
        self.timelines().into_iter().find(|timeline| timeline.request == 1).expect("request 1 has ended")
    }
}

/// Returns the timelines that a builder makes from `records`.
pub fn build(settings: Settings, records: impl IntoIterator<Item = Record>) -> Vec<Timeline> {
    build_with(Builder::new(settings), records)
}

fn build_with(mut builder: Builder, records: impl IntoIterator<Item = Record>) -> Vec<Timeline> {
    let mut timelines = Vec::new();
    let mut out = |timeline| timelines.push(timeline);
    for record in records {
        builder.push(record, &mut out);
    }
    builder.finish(&mut out);
    timelines
}

/// Returns the spans of a timeline: begin and end in µs of the trace, and cause.
pub fn spans_in_us(timeline: &Timeline) -> Vec<(u64, u64, Cause)> {
    let us = |at_ns: u64| (at_ns - START_NS) / 1_000;
    timeline.spans.iter().map(|span| (us(span.from_ns), us(span.to_ns), span.cause)).collect()
}

/// Returns a trace in which thread 1 waits in `epoll_wait`. Its request arrives at 100 µs, and the thread receives it
/// at 120 µs.
pub fn trace_with_received_request() -> Trace {
    let mut trace = Trace::new();
    trace.add_record(0, Kind::SocketState, IDLE_TASK, |record| (record.socket, record.detail) = (7, 3 << 16 | 1));
    trace.gets_cpu(1, 1).sleeps(2, 1);
    trace.data_ready(100, 7, 10).woken(102, IDLE_TASK, 1).gets_cpu(110, 1);
    trace.received(120, 1, 7, 10, 1).started(120, 1, 7, 1, 100);
    trace
}

/// Adds the records that thread `tid` sends the response to request 1 at `us`, and that it leaves at once.
pub fn add_response(trace: &mut Trace, us: u64, tid: u32) -> &mut Trace {
    trace.transmitted(us, 7, 10).sent(us, tid, 7, 10, 1).finished(us, tid, 7, 1, 120)
}
