//! Property tests of timelines, from random records: sound records that come out of order or are lost, and nonsensical
//! records.

mod common;

use std::collections::BTreeMap;

use common::*;
use proptest::collection::vec;
use proptest::prelude::*;
use sidelane_timeline::builder::{Builder, Settings};
use sidelane_timeline::record::{Kind, RECORD_SIZE, Record, Task, leave};
use sidelane_timeline::timeline::Timeline;
use sidelane_timeline::wait::Activity;

const CASES: u32 = 10_000;

/// Returns whether the spans of a timeline lie end to end, and whether an incomplete timeline has no causes.
fn has_spans_end_to_end(timeline: &Timeline) -> bool {
    let ends: Vec<u64> = timeline.spans.iter().map(|span| span.to_ns).collect();
    let begins = timeline.spans.iter().map(|span| span.from_ns);
    let expected = std::iter::once(timeline.arrived_ns).chain(ends.iter().copied());
    let sum_ns: u64 = timeline.spans.iter().map(|span| span.length_ns()).sum();
    begins.zip(expected).all(|(begin, end)| begin == end)
        && ends.last().is_none_or(|end| *end == timeline.ended_ns)
        && timeline.spans.iter().all(|span| span.from_ns < span.to_ns)
        && sum_ns == timeline.latency_ns()
}

/// An event that happens to a thread while it has a request.
#[derive(Debug, Clone, Copy)]
enum Episode {
    Works,
    IsPreempted,
    Faults,
    WaitsForLock,
    Sleeps,
    ReadsDisk,
    IsInterrupted,
    IsStolenFrom,
    Asks,
    HandsOver,
    IsThrottled,
}

/// Plan of one random request to a service with three threads: its distance from the last request, its connection, and
/// its events.
#[derive(Debug, Clone)]
struct Plan {
    gap_us: u64,
    connection: u64,
    parts: bool,
    episodes: Vec<(Episode, u64)>,
    holds_response: bool,
}

fn request_plans() -> impl Strategy<Value = Vec<Plan>> {
    use Episode::*;
    let episode = prop::sample::select(vec![
        Works,
        IsPreempted,
        Faults,
        WaitsForLock,
        Sleeps,
        ReadsDisk,
        IsInterrupted,
        IsStolenFrom,
        Asks,
        HandsOver,
        IsThrottled,
    ]);
    let plan = (2_u64..500, 1_u64..4, any::<bool>(), vec((episode, 20_u64..900), 0..5), any::<bool>()).prop_map(
        |(gap_us, connection, parts, episodes, holds_response)| Plan {
            gap_us,
            connection,
            parts,
            episodes,
            holds_response,
        },
    );
    vec(plan, 1..8)
}

/// Writer of the trace of a service with three threads, each on its own CPU.
struct Writer {
    trace: Trace,
    us: u64,
    sent: BTreeMap<u64, u32>,
}

const HELPER: u32 = 2;
const HOLDER: u32 = 3;

impl Writer {
    fn set_last_cpu(&mut self, cpu: u32) {
        self.trace.set_last_cpu(cpu);
    }

    fn advance_time(&mut self, us: u64) -> u64 {
        self.us += us;
        self.us
    }

    /// Adds the records that thread 1 sleeps for `us`, until thread `by` wakes it.
    fn add_sleep(&mut self, us: u64, leave_reason: u32, by: u32) {
        let at = self.advance_time(1);
        self.trace.switched(at, 1, IDLE_TASK, leave_reason);
        let at = self.advance_time(us);
        self.trace.woken(at, by, 1);
        self.set_last_cpu(if by == IDLE_TASK { 0 } else { by - 1 });
        let at = self.advance_time(3);
        self.trace.gets_cpu(at, 1);
    }

    fn add_episode(&mut self, episode: Episode, us: u64) {
        let at = self.advance_time(2);
        match episode {
            Episode::Works => self.us += us,
            Episode::IsPreempted => {
                self.trace.switched(at, 1, 901, leave::PREEMPTED).switched(at + us, 901, 1, leave::PREEMPTED);
                self.us += us;
            }
            Episode::Faults => {
                self.trace.event(at, Kind::PageFault, 1, 1).event(at + us, Kind::PageFault, 1, 2);
                self.us += us;
            }
            Episode::WaitsForLock => {
                self.trace.enters_sleep_call(at, 1, 202, 0xbeef);
                self.add_sleep(us, leave::SLEEPS, HOLDER);
            }
            Episode::Sleeps => {
                self.trace.enters_sleep_call(at, 1, 35, 0);
                self.add_sleep(us, leave::SLEEPS, IDLE_TASK);
            }
            Episode::ReadsDisk => {
                self.trace.event(at + us, Kind::DiskCompleted, 1, 8 << 20);
                self.add_sleep(us + 2, leave::BLOCKED, IDLE_TASK);
            }
            Episode::IsInterrupted => {
                self.trace.ended_event(at + us, Kind::Interrupt, IDLE_TASK, us, 40);
                self.us += us;
            }
            Episode::IsStolenFrom => {
                self.trace.ended_event(at + us, Kind::Stolen, IDLE_TASK, us, 0);
                self.us += us;
            }
            Episode::Asks => {
                self.trace.downstream_io(at, Kind::Sent, 1, 99);
                self.add_sleep(us, leave::SLEEPS, IDLE_TASK);
                let at = self.advance_time(2);
                self.trace.downstream_io(at, Kind::Received, 1, 99);
            }
            Episode::HandsOver => {
                self.trace.woken(at, 1, HELPER).gets_cpu(at + 4, HELPER).set_last_cpu(HELPER - 1);
                self.add_sleep(us + 5, leave::SLEEPS, HELPER);
                let at = self.advance_time(1);
                self.trace.sleeps(at, HELPER).set_last_cpu(HELPER - 1);
            }
            Episode::IsThrottled => {
                self.trace.switched(at, 1, IDLE_TASK, leave::PREEMPTED).event(at + 1, Kind::Throttled, 1, 1);
                self.trace.event(at + us, Kind::Throttled, 1, 0).gets_cpu(at + us + 1, 1);
                self.us += us + 1;
            }
        }
    }

    fn add_request(&mut self, number: u64, plan: &Plan) {
        let socket = plan.connection;
        let arrived = self.advance_time(plan.gap_us);
        if plan.parts {
            self.trace.data_ready(arrived - 1, socket, number as u32 * 10 + 5);
        }
        self.trace.data_ready(arrived, socket, number as u32 * 10 + 10);
        let at = self.advance_time(2);
        self.trace.woken(at, IDLE_TASK, 1);
        let at = self.advance_time(5);
        self.trace.gets_cpu(at, 1);
        let started = self.advance_time(3);
        self.trace.received(started, 1, socket, number as u32 * 10 + 10, number);
        self.trace.started(started, 1, socket, number, arrived);
        for &(episode, us) in &plan.episodes {
            self.add_episode(episode, us);
        }
        let at = self.advance_time(4);
        let end = self.sent.entry(socket).or_insert(1_000);
        *end += 10;
        let end = *end;
        if !plan.holds_response {
            self.trace.transmitted(at, socket, end);
        }
        self.trace.sent(at + 1, 1, socket, end, number).finished(at + 2, 1, socket, number, started);
        let at = self.advance_time(6);
        self.trace.sleeps(at, 1);
        if plan.holds_response {
            let at = self.advance_time(300);
            self.trace.transmitted(at, socket, end);
        }
    }
}

fn records_of_plans(plans: &[Plan]) -> Vec<Record> {
    let mut writer = Writer { trace: Trace::new(), us: 10, sent: BTreeMap::new() };
    for connection in 1..4 {
        writer.trace.add_record(0, Kind::SocketState, IDLE_TASK, |record| {
            (record.socket, record.detail) = (connection, 3 << 16 | 1);
        });
        writer.trace.transmitted(1, connection, 1_000);
    }
    for tid in [1, HELPER] {
        writer.trace.gets_cpu(2, tid).set_last_cpu(tid - 1).sleeps(3, tid).set_last_cpu(tid - 1);
    }
    writer.trace.gets_cpu(2, HOLDER).set_last_cpu(HOLDER - 1);
    for (number, plan) in (1..).zip(plans) {
        writer.add_request(number, plan);
    }
    writer.trace.numbered_records()
}

/// Returns the timelines that a builder makes from these records, by request number.
fn timelines_by_request(records: impl IntoIterator<Item = Record>) -> BTreeMap<u64, Timeline> {
    build(Settings::default(), records).into_iter().map(|timeline| (timeline.request, timeline)).collect()
}

/// Returns whether no later record belongs to the same CPU. A ring never loses such records, since new records
/// overwrite old ones.
fn is_last_of_cpu(records: &[Record], index: usize) -> bool {
    records[index + 1..].iter().all(|record| record.cpu != records[index].cpu)
}

fn any_record() -> impl Strategy<Value = Record> {
    let kind = prop::sample::select(Kind::ALL.to_vec());
    let small = (0_u32..5, 0_u32..5, 0_u64..5, 0_u64..6, 0_u32..4, 0_u32..5);
    let value = prop_oneof![0_u64..2_000, (0_u64..5_000_000).prop_map(|ns| START_NS + ns), any::<u64>()];
    (0_u64..5_000_000, kind, small, 0_u32..40, value).prop_map(|(after_ns, kind, small, seq, value)| {
        let (tid, other, socket, request, cpu, detail) = small;
        let task = |tid: u32| Task { tid, pid: tid.min(2) };
        Record {
            at_ns: START_NS + after_ns,
            kind,
            seq,
            task: task(tid),
            cpu,
            detail,
            other: task(other),
            socket,
            request,
            value,
        }
    })
}

/// Removes the activities of threads that were waited for: if records are lost, these activities may be unknown.
fn without_activities(mut timeline: Timeline) -> Timeline {
    for wait in timeline.spans.iter_mut().filter_map(|span| span.wait.as_mut()) {
        wait.doing = Activity::Unknown;
    }
    timeline
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn each_timeline_is_complete_and_its_spans_sum_to_its_time(plans in request_plans()) {
        let records = records_of_plans(&plans);
        let timelines = timelines_by_request(records.iter().copied());
        prop_assert_eq!(timelines.len(), plans.len());
        for timeline in timelines.values() {
            prop_assert!(timeline.incomplete.is_none() && has_spans_end_to_end(timeline), "{:?}", timeline);
        }
    }

    #[test]
    fn the_order_of_records_within_the_horizon_does_not_matter(
        plans in request_plans(),
        late_ns in vec(0_u64..1_900_000, 400),
    ) {
        let records = records_of_plans(&plans);
        let mut order: Vec<(u64, Record)> =
            records.iter().zip(late_ns.iter().cycle()).map(|(record, late_ns)| (record.at_ns + late_ns, *record)).collect();
        order.sort_by_key(|(seen_ns, _)| *seen_ns);
        let shuffled = timelines_by_request(order.into_iter().map(|(_, record)| record));
        prop_assert_eq!(shuffled, timelines_by_request(records.iter().copied()));
    }

    #[test]
    fn lost_records_never_lead_to_a_wrong_whole_timeline(plans in request_plans(), lost in vec(any::<prop::sample::Index>(), 1..4)) {
        let records = records_of_plans(&plans);
        let right = timelines_by_request(records.iter().copied());
        let lost = lost.iter().map(|index| index.index(records.len()));
        let lost: Vec<usize> = lost.filter(|index| !is_last_of_cpu(&records, *index)).collect();
        let kept = records.iter().enumerate().filter(|(index, _)| !lost.contains(index)).map(|(_, record)| *record);
        for (number, timeline) in timelines_by_request(kept) {
            prop_assert!(has_spans_end_to_end(&timeline));
            if timeline.incomplete.is_none() {
                prop_assert_eq!(Some(without_activities(timeline)), right.get(&number).cloned().map(without_activities));
            }
        }
    }

    #[test]
    fn spans_of_nonsensical_records_have_no_gaps(records in vec(any_record(), 0..120)) {
        let mut builder = Builder::new(Settings::default());
        let mut all_tiled = true;
        let mut out = |timeline: Timeline| all_tiled &= has_spans_end_to_end(&timeline);
        for record in records {
            builder.push(record, &mut out);
        }
        let bytes = builder.memory_bytes();
        builder.finish(&mut out);
        prop_assert!(all_tiled && bytes < 10_000_000, "{}", bytes);
    }

    #[test]
    fn any_bytes_do_not_make_the_builder_panic(bytes in vec(any::<u8>(), RECORD_SIZE * 40)) {
        let mut builder = Builder::new(Settings::default());
        let mut all_tiled = true;
        let mut out = |timeline: Timeline| all_tiled &= has_spans_end_to_end(&timeline);
        for chunk in bytes.chunks_exact(RECORD_SIZE) {
            let mut record: [u8; RECORD_SIZE] = chunk.try_into().expect("a record's bytes");
            record[8] %= 40;
            record[9..12].fill(0);
            if let Some(record) = Record::from_bytes(&record) {
                builder.push(record, &mut out);
            }
        }
        builder.finish(&mut out);
        prop_assert!(all_tiled);
    }
}

#[test]
fn fuzzed_records_give_spans_without_gaps() {
    sidelane_testing::fuzz("trace-records", |bytes| {
        let mut builder = Builder::new(Settings::default());
        let mut all_tiled = true;
        let mut out = |timeline: Timeline| all_tiled &= has_spans_end_to_end(&timeline);
        let records = bytes.as_chunks::<RECORD_SIZE>().0.iter().filter_map(Record::from_bytes);
        records.for_each(|record| builder.push(record, &mut out));
        builder.finish(&mut out);
        assert!(all_tiled);
    });
}
