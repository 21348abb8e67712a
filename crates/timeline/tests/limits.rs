//! Tests of the builder's limits: when a timeline comes, what is forgotten, and which timelines are incomplete.

mod common;

use common::*;
use sidelane_timeline::builder::{Builder, CPUS_MAX, Settings};
use sidelane_timeline::cause::Cause::*;
use sidelane_timeline::record::{Kind, Record, pause};
use sidelane_timeline::timeline::{Incomplete, Timeline};

/// Returns the timelines that come before the trace ends, each with the time of the record after which it comes, in µs.
fn timelines_before_the_end(settings: Settings, records: &[Record]) -> Vec<(u64, Timeline)> {
    let (mut builder, mut timelines) = (Builder::new(settings), Vec::new());
    for record in records {
        let us = (record.at_ns - START_NS) / 1_000;
        builder.push(*record, &mut |timeline| timelines.push((us, timeline)));
    }
    timelines
}

/// Adds an interrupt each `every_us` from `from_us` to `to_us`.
fn add_interrupts(trace: &mut Trace, (from_us, to_us): (u64, u64), every_us: usize) {
    for us in (from_us..to_us).step_by(every_us) {
        trace.ended_event(us, Kind::Interrupt, IDLE_TASK, 1, 40);
    }
}

#[test]
fn timeline_comes_when_its_response_has_settled() {
    let mut trace = trace_with_received_request();
    add_response(&mut trace, 500, 1).sleeps(510, 1);
    add_interrupts(&mut trace, (10_000, 600_000), 1_000);
    let timelines = timelines_before_the_end(Settings::default(), &trace.numbered_records());
    let [(us, timeline)] = timelines.as_slice() else { panic!("{timelines:?}") };
    assert!((255_500..330_000).contains(us), "after 250 ms without an event, at the next sweep: {us}");
    assert_eq!(timeline.incomplete, None);
}

#[test]
fn timeline_waits_a_second_at_most_for_a_silent_cpu() {
    let mut trace = trace_with_received_request();
    trace.ended_event(5, Kind::Interrupt, IDLE_TASK, 1, 40).set_last_cpu(1);
    add_response(&mut trace, 500, 1).sleeps(510, 1);
    add_interrupts(&mut trace, (10_000, 1_200_000), 1_000);
    let timelines = timelines_before_the_end(Settings::default(), &trace.numbered_records());
    let [(us, _)] = timelines.as_slice() else { panic!("{timelines:?}") };
    assert!((1_000_500..1_010_000).contains(us), "{us}");
}

#[test]
fn sweeps_follow_the_records_of_a_busy_trace() {
    let settings = Settings { settle_ns: 1_000, ..Settings::default() };
    let timelines = |every_us| {
        let mut trace = trace_with_received_request();
        add_response(&mut trace, 500, 1).sleeps(510, 1);
        add_interrupts(&mut trace, (1_000, 49_000), every_us);
        timelines_before_the_end(settings, &trace.numbered_records()).len()
    };
    assert_eq!((timelines(2), timelines(100)), (1, 0), "in 50 ms a sweep comes after 8,192 records only");
}

#[test]
fn connection_that_waits_for_its_client_has_a_whole_timeline() {
    let mut trace = trace_with_received_request();
    trace.transmitted(300, 7, 10).sent(300, 1, 7, 30, 1).finished(300, 1, 7, 1, 120).sleeps(320, 1);
    add_interrupts(&mut trace, (10_000, 2_500_000), 5_000);
    trace.transmitted(2_000_000, 7, 30);
    let timelines = timelines_before_the_end(Settings::default(), &trace.numbered_records());
    let [(us, timeline)] = timelines.as_slice() else { panic!("{timelines:?}") };
    assert_eq!((timeline.incomplete, timeline.ended_ns), (None, trace_time_ns(2_000_000)));
    assert!(*us > 2_000_000, "{us}");
}

#[test]
fn time_that_goes_on_without_records_gives_timelines() {
    let mut trace = trace_with_received_request();
    add_response(&mut trace, 500, 1).sleeps(510, 1);
    let (mut builder, mut timelines) = (Builder::new(Settings::default()), Vec::new());
    let mut out = |timeline: Timeline| timelines.push(timeline.incomplete);
    trace.numbered_records().into_iter().for_each(|record| builder.push(record, &mut out));
    [300_000, 1_200_000].into_iter().for_each(|us| builder.advance(trace_time_ns(us), &mut out));
    assert_eq!(timelines, [None]);
}

#[test]
fn late_record_is_lost_but_a_late_pause_is_used() {
    let mut trace = trace_with_received_request();
    add_response(&mut trace, 500, 1).sleeps(510, 1).gets_cpu(5_000, 1);
    let counts_and_pause = |late: Option<usize>| {
        let mut records = trace.numbered_records();
        let late: Vec<Record> = late.map(|index| records.remove(index)).into_iter().collect();
        let of_service = records[0];
        let pause = |us, kind| {
            let (at_ns, task, detail) = (trace_time_ns(us), task(1), pause::SAFEPOINT);
            Record { at_ns, kind, seq: 0, task, detail, ..of_service }
        };
        records.extend(late);
        records.extend([pause(200, Kind::PauseBegan), pause(300, Kind::PauseEnded)]);
        let (mut builder, mut timelines) = (Builder::new(Settings::default()), Vec::new());
        records.iter().for_each(|record| builder.push(*record, &mut |_| ()));
        builder.finish(&mut |timeline| timelines.push(timeline));
        let counts = builder.counts();
        assert_eq!((counts.records, timelines.len()), (records.len() as u64, 1));
        (counts.late, counts.lost, timelines[0].incomplete, timelines[0].time_of_cause_ns(Safepoint))
    };
    assert_eq!(counts_and_pause(None), (0, 0, None, 100_000));
    assert_eq!(counts_and_pause(Some(2)), (1, 1, Some(Incomplete::Lost), 0));
}

#[test]
fn records_before_the_trace_are_not_missing() {
    let mut trace = trace_with_received_request();
    add_response(&mut trace, 500, 1);
    let lost = |last_before: u32, first: u32| {
        let mut records = trace.numbered_records();
        records.iter_mut().for_each(|record| record.seq += first - 1);
        let mut builder = Builder::new(Settings::default());
        [(0, last_before), (CPUS_MAX, 5)].into_iter().for_each(|(cpu, seq)| builder.set_seq_before_trace(cpu, seq));
        records.into_iter().for_each(|record| builder.push(record, &mut |_| ()));
        builder.finish(&mut |_| ());
        (builder.counts().lost, builder.counts().whole)
    };
    assert_eq!([lost(999, 1_000), lost(999, 1_002), lost(0, 3)], [(0, 1), (2, 0), (2, 0)]);
}

#[test]
fn a_cpu_beyond_the_limit_makes_earlier_requests_incomplete() {
    let mut trace = trace_with_received_request();
    trace.ended_event(300, Kind::Interrupt, IDLE_TASK, 1, 40).set_last_cpu(CPUS_MAX);
    add_response(&mut trace, 500, 1);
    let mut builder = Builder::new(Settings::default());
    let mut timelines = Vec::new();
    trace.numbered_records().into_iter().for_each(|record| builder.push(record, &mut |_| ()));
    builder.finish(&mut |timeline| timelines.push(timeline.incomplete));
    assert_eq!((timelines, builder.counts().strange), (vec![Some(Incomplete::Earlier)], 1));
}

#[test]
fn request_without_a_response_is_given_up_in_the_end() {
    let mut trace = trace_with_received_request();
    trace.sleeps(130, 1);
    add_interrupts(&mut trace, (10_000, 300_000), 1_000);
    let given_up = |give_up_ns| {
        let mut builder = Builder::new(Settings { give_up_ns, ..Settings::default() });
        trace.numbered_records().into_iter().for_each(|record| builder.push(record, &mut |_| ()));
        (builder.counts().given_up, builder.waiting_arrivals_ns().count())
    };
    assert_eq!((given_up(100_000_000), given_up(1_000_000_000)), ((1, 0), (0, 1)));
}

#[test]
fn counts_add_up_over_requests() {
    let mut trace = trace_with_received_request();
    add_response(&mut trace, 500, 1);
    for number in 2..=3 {
        let us = 1_000 * number;
        trace.data_ready(us, 7, 10 * number as u32).received(us + 10, 1, 7, 10 * number as u32, number);
        trace.started(us + 10, 1, 7, number, us).transmitted(us + 20, 7, 20 * number as u32);
        trace.sent(us + 20, 1, 7, 20 * number as u32, number).finished(us + 20, 1, 7, number, us + 10);
    }
    // Responses to requests whose start was not recorded.
    trace.finished(5_000, 1, 17, 8, 4_000).finished(5_100, 1, 17, 9, 4_000);
    let mut builder = Builder::new(Settings::default());
    trace.numbered_records().into_iter().for_each(|record| builder.push(record, &mut |_| ()));
    builder.finish(&mut |_| ());
    let counts = builder.counts();
    assert_eq!((counts.whole, counts.incomplete, counts.unknown, counts.late), (3, 0, 2, 0));
    // The trace begins after these requests arrived.
    let mut records = trace.numbered_records();
    records.retain(|record| record.at_ns > trace_time_ns(3_000));
    let mut builder = Builder::new(Settings::default());
    records.iter().for_each(|record| builder.push(Record { seq: 0, ..*record }, &mut |_| ()));
    builder.finish(&mut |_| ());
    assert_eq!((builder.counts().whole, builder.counts().incomplete), (0, 1));
}

#[test]
fn request_from_before_the_trace_is_incomplete() {
    let incomplete = |arrived_us: u64| {
        let mut trace = trace_with_received_request();
        trace.records.retain(|record| record.at_ns >= trace_time_ns(100));
        trace.records.last_mut().expect("its start").value = trace_time_ns(arrived_us);
        add_response(&mut trace, 500, 1);
        trace.first_timeline().incomplete
    };
    assert_eq!((incomplete(100), incomplete(99)), (None, Some(Incomplete::Earlier)));
}

#[test]
fn response_in_the_send_buffer_at_the_end_is_cut() {
    let mut trace = trace_with_received_request();
    trace.transmitted(300, 7, 10).sent(300, 1, 7, 30, 1).finished(300, 1, 7, 1, 120).sleeps(320, 1);
    assert_eq!(trace.first_timeline().incomplete, Some(Incomplete::Cut));
    trace.transmitted(400, 7, 29);
    assert_eq!(trace.first_timeline().incomplete, Some(Incomplete::Cut));
    trace.transmitted(500, 7, 30);
    assert_eq!((trace.first_timeline().incomplete, trace.first_timeline().ended_ns), (None, trace_time_ns(500)));
}

#[test]
fn request_with_more_than_64_hand_overs_is_incomplete() {
    let incomplete = |hand_overs: u64| {
        let mut trace = trace_with_received_request();
        for index in 0..hand_overs {
            trace.woken(200 + index, 1 + index as u32 % 2, 2 - index as u32 % 2);
        }
        add_response(&mut trace, 500, 1);
        trace.first_timeline().incomplete
    };
    assert_eq!((incomplete(64), incomplete(66)), (None, Some(Incomplete::TooMuch)));
}

#[test]
fn history_of_a_long_request_is_bounded_and_it_is_incomplete() {
    const INTERRUPTS: u64 = 600_000;
    let mut trace = trace_with_received_request();
    (0..INTERRUPTS).for_each(|index| {
        trace.add_record(0, Kind::Interrupt, IDLE_TASK, |record| {
            (record.at_ns, record.value) = (trace_time_ns(1_000) + index * 150, 50);
        });
    });
    let us = 1_000 + INTERRUPTS * 150 / 1_000;
    add_response(&mut trace, us + 100, 1).sleeps(us + 110, 1);
    trace.data_ready(us + 200, 7, 20).woken(us + 201, IDLE_TASK, 1).gets_cpu(us + 210, 1);
    trace.received(us + 220, 1, 7, 20, 2).started(us + 220, 1, 7, 2, us + 200);
    trace.transmitted(us + 300, 7, 30).sent(us + 300, 1, 7, 30, 2).finished(us + 300, 1, 7, 2, us + 220);
    let (mut builder, mut timelines) = (Builder::new(Settings::default()), Vec::new());
    let mut out = |timeline: Timeline| timelines.push((timeline.request, timeline.incomplete));
    trace.numbered_records().into_iter().for_each(|record| builder.push(record, &mut out));
    let bytes = builder.memory_bytes();
    builder.finish(&mut out);
    assert_eq!(timelines, [(1, Some(Incomplete::Earlier)), (2, None)]);
    assert!(bytes < 40_000_000, "{bytes}");
}

#[test]
fn request_that_a_program_reports_needs_no_socket() {
    let mut trace = Trace::new();
    trace.gets_cpu(1, 1).sleeps(2, 1).woken(100, IDLE_TASK, 1).gets_cpu(110, 1);
    trace.started(120, 1, 0, 5, 120).switched(200, 1, 901, 0).switched(300, 901, 1, 0).finished(500, 1, 0, 5, 120);
    let timelines = trace.timelines();
    assert_eq!(spans_in_us(&timelines[0]), [(120, 200, OnCpu), (200, 300, RunQueue), (300, 500, OnCpu)]);
    assert_eq!((timelines.len(), timelines[0].request), (1, 5));
}
