//! Tests of responses that leave slowly: the socket's state shows what held them back.

mod common;

use common::*;
use sidelane_timeline::cause::BY_TCP;
use sidelane_timeline::cause::Cause::{self, *};
use sidelane_timeline::record::{Kind, Task};
use sidelane_timeline::timeline::Span;

/// Reasons why data waits in a socket, as bits of `enum sidelane_trace_hold`.
const WINDOW: u32 = 1;
const CONGESTION: u32 = 2;
const SMALL: u32 = 4;
const NODELAY: u32 = 8;
const IN_FLIGHT: u32 = 32;
const PACED: u32 = 64;
const LOSS: u32 = 128;
const ROOM: u32 = 256;
const KNOWN: u32 = 512;

/// Sets the state of the last record's socket: the bits `holds`, and `unsent` bytes that TCP has not sent.
fn set_socket_state(trace: &mut Trace, holds: u32, unsent: u32) {
    let last = trace.records.iter_mut().rev().find(|record| matches!(record.kind, Kind::Sent | Kind::Acknowledged));
    last.expect("a record of a socket").other = Task { tid: holds, pid: unsent };
}

fn add_acknowledgement(trace: &mut Trace, us: u64, acknowledged_seq: u32, holds: u32, unsent: u32) {
    trace
        .add_record(us, Kind::Acknowledged, IDLE_TASK, |record| (record.socket, record.detail) = (7, acknowledged_seq));
    set_socket_state(trace, holds, unsent);
}

/// Returns a trace with a response whose second part, 20 bytes, waits until 40 ms in a socket with the state `holds`.
fn trace_with_held_response(holds: u32, unsent: u32) -> Trace {
    let mut trace = trace_with_received_request();
    trace.transmitted(300, 7, 10).sent(300, 1, 7, 10, 1).finished(300, 1, 7, 1, 120);
    trace.sent(310, 1, 7, 30, 1).finished(310, 1, 7, 1, 120).sleeps(320, 1);
    set_socket_state(&mut trace, holds | KNOWN, unsent);
    if holds != 0 {
        add_acknowledgement(&mut trace, 40_300, 10, holds, unsent);
    }
    trace.transmitted(40_305, 7, 30);
    trace
}

/// Returns the spans of the request's time from `from_us` on: begin, end, cause, detail.
fn spans_from(trace: &Trace, from_us: u64) -> Vec<(u64, u64, Cause, u64)> {
    let (timeline, from_ns) = (trace.first_timeline(), trace_time_ns(from_us));
    let spans = timeline.spans.iter().filter(|span| span.from_ns >= from_ns);
    spans
        .map(|span| {
            (
                (span.from_ns - trace_time_ns(0)) / 1_000,
                (span.to_ns - trace_time_ns(0)) / 1_000,
                span.cause,
                span.detail,
            )
        })
        .collect()
}

#[test]
fn socket_state_gives_the_cause_of_a_held_response() {
    for (holds, unsent, cause) in [
        (SMALL | IN_FLIGHT, 20, Nagle),
        (SMALL | IN_FLIGHT | WINDOW, 20, SlowReader),
        (SMALL | IN_FLIGHT | NODELAY, 20, SendBuffer),
        (CONGESTION | IN_FLIGHT | NODELAY, 20, CongestionWindow),
        (PACED | IN_FLIGHT, 20, Pacing),
        (0, 0, Pacing),
    ] {
        let paced = if holds & PACED != 0 { BY_TCP } else { 0 };
        assert_eq!(
            spans_from(&trace_with_held_response(holds, unsent), 310),
            [(310, 40_305, cause, 20 | paced)],
            "{holds:#x}"
        );
    }
}

#[test]
fn log_without_socket_states_gives_no_cause_of_a_hold() {
    let mut trace = trace_with_held_response(0, 0);
    set_socket_state(&mut trace, 0, 0);
    assert_eq!(spans_from(&trace, 310), [(310, 40_305, SendBuffer, 20)]);
}

/// The thread sleeps in one send call for a long response.
#[test]
fn slow_reader_is_the_cause_of_a_sleep_in_send() {
    for (holds, unsent, cause) in [(WINDOW | IN_FLIGHT, 900, SlowReader), (ROOM | IN_FLIGHT, 0, SendSpace)] {
        let mut trace = trace_with_received_request();
        trace.transmitted(200, 7, 10).enters_sleep_call(210, 1, 44, 5).sleeps(210, 1);
        for us in [20_000, 40_000, 60_000] {
            add_acknowledgement(&mut trace, us, 10, holds, unsent);
        }
        trace.woken(60_001, IDLE_TASK, 1).gets_cpu(60_001, 1);
        trace.transmitted(60_100, 7, 1_000).sent(60_100, 1, 7, 1_000, 1).finished(60_100, 1, 7, 1, 120);
        assert_eq!(spans_from(&trace, 210)[0], (210, 60_001, cause, u64::from(unsent)));
    }
}

/// The thread waits for events, and works on another request, until it can send more of the response.
#[test]
fn slow_reader_is_the_cause_when_an_event_loop_sends_in_parts() {
    let mut trace = trace_with_received_request();
    trace.transmitted(200, 7, 10).sent(200, 1, 7, 500, 1).finished(200, 1, 7, 1, 120);
    set_socket_state(&mut trace, WINDOW | IN_FLIGHT | KNOWN, 490);
    trace.enters_sleep_call(210, 1, 232, 4).sleeps(210, 1);
    add_acknowledgement(&mut trace, 50_000, 10, WINDOW | IN_FLIGHT, 490);
    trace.transmitted(50_001, 7, 500).woken(50_002, IDLE_TASK, 1).gets_cpu(50_003, 1);
    trace.transmitted(50_100, 7, 900).sent(50_100, 1, 7, 900, 1).finished(50_100, 1, 7, 1, 120);
    assert_eq!(spans_from(&trace, 210)[0], (210, 50_002, SlowReader, 490));
}

/// TCP sends a probe, because the client's window is full. No segment is lost.
#[test]
fn a_segment_that_is_sent_again_as_a_probe_is_no_loss() {
    for (holds, cause) in [(WINDOW | IN_FLIGHT, SlowReader), (LOSS | IN_FLIGHT, Retransmission)] {
        let mut trace = trace_with_held_response(holds, 20);
        trace.add_record(6_000, Kind::Retransmitted, IDLE_TASK, |record| (record.socket, record.value) = (7, 10));
        let told = spans_from(&trace, 310);
        assert!(told.iter().all(|(_, _, told, _)| *told == cause), "{told:?}");
    }
}

/// The client acknowledges late, so TCP sends a segment again as a probe for loss. The client reports that it received
/// the segment twice.
#[test]
fn segment_received_twice_was_not_lost() {
    const TWICE: u32 = 1_024;
    let again = |trace: &mut Trace, us: u64| {
        trace.add_record(us, Kind::Retransmitted, IDLE_TASK, |record| (record.socket, record.value) = (7, 10));
    };
    let mut trace = trace_with_received_request();
    add_response(&mut trace, 300, 1).sleeps(320, 1);
    again(&mut trace, 9_000);
    assert_eq!(
        (trace.first_timeline().ended_ns, trace.first_timeline().time_of_cause_ns(Retransmission)),
        (trace_time_ns(9_000), 8_700_000)
    );
    let mut lost_before = trace.clone();
    add_acknowledgement(&mut trace, 9_050, 10, TWICE, 0);
    assert_eq!(
        (trace.first_timeline().ended_ns, trace.first_timeline().time_of_cause_ns(Retransmission)),
        (trace_time_ns(300), 0)
    );
    // A segment that was lost before the needless retransmission still counts as lost.
    again(&mut lost_before, 20_000);
    add_acknowledgement(&mut lost_before, 20_050, 10, TWICE, 0);
    assert_eq!(lost_before.first_timeline().ended_ns, trace_time_ns(9_000));
    // Both retransmissions were needless.
    add_acknowledgement(&mut lost_before, 20_060, 10, TWICE, 0);
    assert_eq!(lost_before.first_timeline().ended_ns, trace_time_ns(300));
}

/// The client's next request arrives, and is answered, before the client reports that it received the segment twice.
#[test]
fn segment_received_twice_was_not_lost_with_next_request() {
    let mut trace = trace_with_received_request();
    add_response(&mut trace, 300, 1).sleeps(320, 1);
    trace.add_record(9_000, Kind::Retransmitted, IDLE_TASK, |record| (record.socket, record.value) = (7, 10));
    trace.data_ready(9_010, 7, 20).woken(9_011, IDLE_TASK, 1).gets_cpu(9_015, 1).received(9_020, 1, 7, 20, 2);
    trace.started(9_020, 1, 7, 2, 9_010).transmitted(9_030, 7, 20).sent(9_030, 1, 7, 20, 2);
    trace.finished(9_030, 1, 7, 2, 9_020).sleeps(9_040, 1);
    add_acknowledgement(&mut trace, 60_000, 20, 1_024, 0);
    trace.gets_cpu(90_000, 1);
    let ended: Vec<u64> = trace.timelines().iter().map(|timeline| timeline.ended_ns).collect();
    assert_eq!(ended, [trace_time_ns(300), trace_time_ns(9_030)]);
}

#[test]
fn response_that_outlasts_the_next_requests_start_is_whole() {
    let mut trace = trace_with_received_request();
    trace.finished(300, 1, 7, 1, 120).data_ready(305, 7, 20).received(310, 1, 7, 20, 2).started(310, 1, 7, 2, 305);
    trace.transmitted(320, 7, 1_000).sent(320, 1, 7, 1_020, 1).transmitted(40_000, 7, 1_020);
    trace.transmitted(50_000, 7, 1_040).sent(50_000, 1, 7, 1_040, 2).finished(50_000, 1, 7, 2, 310);
    let ends: Vec<_> = trace.timelines().iter().map(|timeline| (timeline.incomplete, timeline.ended_ns)).collect();
    assert_eq!(ends, [(None, trace_time_ns(40_000)), (None, trace_time_ns(50_000))]);
}

/// Returns the spans of a response that an event loop sends in two parts, at 200 µs and at 50 ms. Between them the loop
/// works on another request until 20 ms, and then waits for events. The client's window was full if `is_held`.
fn spans_between_parts(is_held: bool) -> Vec<Span> {
    let mut trace = trace_with_received_request();
    let end = if is_held { 500 } else { 10 };
    trace.enters_sleep_call(130, 1, 232, 4).sleeps(130, 1).woken(150, IDLE_TASK, 1).gets_cpu(151, 1);
    trace.transmitted(200, 7, 10).sent(200, 1, 7, end, 1).finished(200, 1, 7, 1, 120);
    set_socket_state(&mut trace, WINDOW | IN_FLIGHT | KNOWN, end - 10);
    trace.data_ready(900, 8, 20).received(1_000, 1, 8, 20, 2).started(1_000, 1, 8, 2, 900);
    trace.transmitted(20_000, 8, 30).sent(20_000, 1, 8, 30, 2).finished(20_000, 1, 8, 2, 1_000);
    trace.enters_sleep_call(20_010, 1, 232, 4).sleeps(20_010, 1);
    if is_held {
        add_acknowledgement(&mut trace, 49_900, 10, WINDOW | IN_FLIGHT, 490);
        trace.transmitted(49_901, 7, end);
    }
    trace.woken(49_902, IDLE_TASK, 1).gets_cpu(49_903, 1);
    trace.transmitted(50_000, 7, 900).sent(50_000, 1, 7, 900, 1).finished(50_000, 1, 7, 1, 120);
    let is_between = |span: &Span| (trace_time_ns(1_000)..trace_time_ns(49_902)).contains(&span.from_ns);
    let mut spans = trace.first_timeline().spans;
    let before = spans.iter().find(|span| span.from_ns == trace_time_ns(130)).expect("a wait before the response");
    assert_eq!((before.cause, before.to_ns), (Inside, trace_time_ns(150)));
    spans.retain(|span| is_between(span) && span.cause != OnCpu);
    spans
}

#[test]
fn time_between_the_parts_of_a_held_response_is_the_holds() {
    let spans = spans_between_parts(true);
    assert_eq!(spans.iter().map(Span::length_ns).sum::<u64>(), 48_892_000);
    for span in spans {
        assert_eq!((span.cause, span.detail, span.behind), (SlowReader, 490, 0));
        assert_eq!((span.by_tid, span.by_pid, span.wait), (0, 0, None), "neither a thread nor its wait");
    }
    // A service that sends late by itself is not held back.
    let own: Vec<(Cause, u64)> = spans_between_parts(false).iter().map(|span| (span.cause, span.behind)).collect();
    assert_eq!(own, [(ServiceQueue, 2), (Inside, 0)]);
}
