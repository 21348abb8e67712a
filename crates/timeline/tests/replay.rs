//! Tests with a service that handles 20 000 requests a second: the builder's memory is bounded.

mod common;

use std::time::Instant;

use common::{IDLE_TASK, START_NS, task};
use sidelane_timeline::builder::{Builder, Settings};
use sidelane_timeline::diagnoser::{Diagnoser, DiagnoserSettings, Objective};
use sidelane_timeline::record::{Kind, Record, Task, leave};
use sidelane_timeline::timeline::Timeline;

const REQUESTS_PER_SECOND: u64 = 20_000;
const BETWEEN_NS: u64 = 1_000_000_000 / REQUESTS_PER_SECOND;
const CONNECTIONS: u64 = 64;
const MEMORY_MAX: usize = 100_000_000;

/// Behaviour of the simulated service and its clients.
#[derive(Clone, Copy, PartialEq)]
enum ServiceBehavior {
    /// Each request is answered, on CPU 0.
    Healthy,
    /// Connections and threads appear and never end, requests have no response, and records are lost.
    Faulty,
}

struct Replay {
    builder: Builder,
    diagnoser: Diagnoser,
    seq: u32,
    records: u64,
    whole: u64,
    not_whole: u64,
    longest_bytes: usize,
}

impl Replay {
    fn new() -> Replay {
        let objective = Objective::Latency(1_000_000);
        Replay {
            builder: Builder::new(Settings::default()),
            diagnoser: Diagnoser::new(DiagnoserSettings { objective, ..DiagnoserSettings::default() }),
            seq: 0,
            records: 0,
            whole: 0,
            not_whole: 0,
            longest_bytes: 0,
        }
    }

    fn add_record(&mut self, at_ns: u64, kind: Kind, tid: u32, set: impl FnOnce(&mut Record)) {
        self.seq = self.seq.wrapping_add(1).max(1);
        self.records += 1;
        let (task, other) = (task(tid), Task::default());
        let (seq, cpu, detail) = (self.seq, 0, 0);
        let mut record = Record { at_ns, kind, seq, task, cpu, detail, other, socket: 0, request: 0, value: 0 };
        set(&mut record);
        let Replay { builder, diagnoser, whole, not_whole, .. } = self;
        builder.push(record, &mut |timeline: Timeline| {
            let count = if timeline.incomplete.is_none() { &mut *whole } else { &mut *not_whole };
            *count += 1;
            diagnoser.add(&timeline);
        });
    }

    /// Adds the records of a request like one of Redis. It takes 40 µs; each thousandth takes a hundred times as long.
    fn add_request(&mut self, number: u64, behavior: ServiceBehavior) {
        let is_bad = behavior == ServiceBehavior::Faulty && number.is_multiple_of(10);
        let at_ns = START_NS + number * BETWEEN_NS;
        let socket = if is_bad { 1_000 + number } else { 1 + number % CONNECTIONS };
        let tid = if is_bad { 1_000 + (number % 1_000_000) as u32 } else { 1 };
        let seq = (number / CONNECTIONS) as u32 * 100;
        let on_socket = |record: &mut Record| (record.socket, record.request) = (socket, number);
        self.add_record(at_ns, Kind::DataReady, IDLE_TASK, |record| (record.socket, record.detail) = (socket, seq));
        self.add_record(at_ns + 1_000, Kind::Woken, IDLE_TASK, |record| record.other = task(tid));
        self.add_record(at_ns + 3_000, Kind::Switched, IDLE_TASK, |record| {
            (record.other, record.value) = (task(tid), at_ns + 1_000);
        });
        self.add_record(at_ns + 5_000, Kind::Received, tid, |record| {
            on_socket(record);
            record.detail = seq;
        });
        self.add_record(at_ns + 5_000, Kind::RequestStarted, tid, |record| {
            on_socket(record);
            record.value = at_ns;
        });
        if !is_bad {
            self.add_answer(at_ns, number, socket, seq);
        } else if number.is_multiple_of(1_000) {
            self.seq += 1;
        }
        self.add_record(at_ns + 44_000, Kind::Switched, tid, |record| record.detail = leave::SLEEPS);
    }

    fn add_answer(&mut self, at_ns: u64, number: u64, socket: u64, seq: u32) {
        let left = |record: &mut Record| {
            (record.socket, record.request, record.detail, record.value) = (socket, number, seq, 100);
        };
        self.add_record(at_ns + 40_000, Kind::Transmitted, 1, left);
        self.add_record(at_ns + 41_000, Kind::Sent, 1, left);
        self.add_record(at_ns + 41_000, Kind::RequestFinished, 1, |record| {
            left(record);
            (record.detail, record.value) = (1, at_ns + 5_000);
        });
    }

    fn run(&mut self, requests: u64, behavior: ServiceBehavior) {
        for number in 1..=requests {
            self.add_request(number, behavior);
            if number.is_multiple_of(REQUESTS_PER_SECOND / 4) {
                self.longest_bytes =
                    self.longest_bytes.max(self.builder.memory_bytes() + self.diagnoser.memory_bytes());
            }
        }
    }
}

#[test]
fn requests_of_10_s_are_complete_in_bounded_memory() {
    let mut replay = Replay::new();
    replay.run(10 * REQUESTS_PER_SECOND, ServiceBehavior::Healthy);
    let not_yet = 10 * REQUESTS_PER_SECOND - replay.whole;
    assert!(replay.not_whole == 0 && not_yet < REQUESTS_PER_SECOND, "{not_yet}");
    assert!(replay.longest_bytes < MEMORY_MAX / 4, "{}", replay.longest_bytes);
}

#[test]
fn memory_is_bounded_if_nothing_ever_ends() {
    let mut replay = Replay::new();
    replay.run(40 * REQUESTS_PER_SECOND, ServiceBehavior::Faulty);
    assert!(replay.longest_bytes < MEMORY_MAX, "{}", replay.longest_bytes);
    assert!(replay.whole > 0 && replay.not_whole > 0);
}

/// Run this long test by `TRACE_HOURS=1 cargo test -p sidelane-timeline --test replay -- --ignored --nocapture`.
#[test]
#[ignore = "takes as long as a day of 20 000 requests a second takes to replay: half an hour"]
fn a_day_of_requests_needs_at_most_100_megabytes() {
    let hours: u64 = std::env::var("TRACE_HOURS").ok().and_then(|hours| hours.parse().ok()).unwrap_or(24);
    let mut replay = Replay::new();
    let begin = Instant::now();
    replay.run(hours * 3_600 * REQUESTS_PER_SECOND, ServiceBehavior::Healthy);
    let (seconds, records) = (begin.elapsed().as_secs_f64(), replay.records);
    println!("{records} records in {seconds:.0} s: {:.2} million a second", records as f64 / seconds / 1e6);
    println!("at most {:.1} MB; {} whole, {} not", replay.longest_bytes as f64 / 1e6, replay.whole, replay.not_whole);
    assert!(replay.longest_bytes < MEMORY_MAX && replay.not_whole == 0);
}
