//! Tests of responses that leave slowly: the socket's state shows what held them back.

mod common;

use common::*;
use sidelane_timeline::cause::BY_TCP;
use sidelane_timeline::cause::Cause::{self, *};
use sidelane_timeline::record::{Kind, Task};

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
fn in_state(trace: &mut Trace, holds: u32, unsent: u32) {
    let last = trace.records.iter_mut().rev().find(|record| matches!(record.kind, Kind::Sent | Kind::Acknowledged));
    last.expect("a record of a socket").other = Task { tid: holds, pid: unsent };
}

fn acknowledged(trace: &mut Trace, us: u64, up_to: u32, holds: u32, unsent: u32) {
    trace.add(us, Kind::Acknowledged, IDLE_TASK, |record| (record.socket, record.detail) = (7, up_to));
    in_state(trace, holds, unsent);
}

/// Returns a trace with a response whose second part, 20 bytes, waits until 40 ms in a socket with the state `holds`.
fn held(holds: u32, unsent: u32) -> Trace {
    let mut trace = request_is_taken_up();
    trace.transmitted(300, 7, 10).sent(300, 1, 7, 10, 1).finished(300, 1, 7, 1, 120);
    trace.sent(310, 1, 7, 30, 1).finished(310, 1, 7, 1, 120).sleeps(320, 1);
    in_state(&mut trace, holds | KNOWN, unsent);
    if holds != 0 {
        acknowledged(&mut trace, 40_300, 10, holds, unsent);
    }
    trace.transmitted(40_305, 7, 30);
    trace
}

/// Returns the spans of the request's time from `from_us` on: begin, end, cause, detail.
fn from(trace: &Trace, from_us: u64) -> Vec<(u64, u64, Cause, u64)> {
    let (timeline, from_ns) = (trace.first(), at(from_us));
    let spans = timeline.spans.iter().filter(|span| span.from_ns >= from_ns);
    spans.map(|span| ((span.from_ns - at(0)) / 1_000, (span.to_ns - at(0)) / 1_000, span.cause, span.detail)).collect()
}

#[test]
fn the_state_of_the_socket_tells_what_held_the_response() {
    for (holds, unsent, cause) in [
        (SMALL | IN_FLIGHT, 20, Nagle),
        (SMALL | IN_FLIGHT | WINDOW, 20, SlowReader),
        (SMALL | IN_FLIGHT | NODELAY, 20, SendBuffer),
        (CONGESTION | IN_FLIGHT | NODELAY, 20, CongestionWindow),
        (PACED | IN_FLIGHT, 20, Pacing),
        (0, 0, Pacing),
    ] {
        let paced = if holds & PACED != 0 { BY_TCP } else { 0 };
        assert_eq!(from(&held(holds, unsent), 310), [(310, 40_305, cause, 20 | paced)], "{holds:#x}");
    }
}

#[test]
fn a_log_without_states_does_not_tell_what_held_the_response() {
    let mut trace = held(0, 0);
    in_state(&mut trace, 0, 0);
    assert_eq!(from(&trace, 310), [(310, 40_305, SendBuffer, 20)]);
}

/// The thread sleeps in one send call for a long response.
#[test]
fn slow_reader_is_the_cause_of_a_sleep_in_send() {
    for (holds, unsent, cause) in [(WINDOW | IN_FLIGHT, 900, SlowReader), (ROOM | IN_FLIGHT, 0, SendSpace)] {
        let mut trace = request_is_taken_up();
        trace.transmitted(200, 7, 10).in_call(210, 1, 44, 5).sleeps(210, 1);
        for us in [20_000, 40_000, 60_000] {
            acknowledged(&mut trace, us, 10, holds, unsent);
        }
        trace.woken(60_001, IDLE_TASK, 1).comes(60_001, 1);
        trace.transmitted(60_100, 7, 1_000).sent(60_100, 1, 7, 1_000, 1).finished(60_100, 1, 7, 1, 120);
        assert_eq!(from(&trace, 210)[0], (210, 60_001, cause, u64::from(unsent)));
    }
}

/// The thread waits for events, and works on another request, until it can send more of the response.
#[test]
fn slow_reader_is_the_cause_when_an_event_loop_sends_in_parts() {
    let mut trace = request_is_taken_up();
    trace.transmitted(200, 7, 10).sent(200, 1, 7, 500, 1).finished(200, 1, 7, 1, 120);
    in_state(&mut trace, WINDOW | IN_FLIGHT | KNOWN, 490);
    trace.in_call(210, 1, 232, 4).sleeps(210, 1);
    acknowledged(&mut trace, 50_000, 10, WINDOW | IN_FLIGHT, 490);
    trace.transmitted(50_001, 7, 500).woken(50_002, IDLE_TASK, 1).comes(50_003, 1);
    trace.transmitted(50_100, 7, 900).sent(50_100, 1, 7, 900, 1).finished(50_100, 1, 7, 1, 120);
    assert_eq!(from(&trace, 210)[0], (210, 50_002, SlowReader, 490));
}

/// TCP sends a probe, because the client's window is full. No segment is lost.
#[test]
fn a_segment_that_is_sent_again_as_a_probe_is_no_loss() {
    for (holds, cause) in [(WINDOW | IN_FLIGHT, SlowReader), (LOSS | IN_FLIGHT, Retransmission)] {
        let mut trace = held(holds, 20);
        trace.add(6_000, Kind::Retransmitted, IDLE_TASK, |record| (record.socket, record.value) = (7, 10));
        let told = from(&trace, 310);
        assert!(told.iter().all(|(_, _, told, _)| *told == cause), "{told:?}");
    }
}

/// The client acknowledges late, so TCP sends a segment again as a probe for loss. The client reports that it received
/// the segment twice.
#[test]
fn segment_received_twice_was_not_lost() {
    const TWICE: u32 = 1_024;
    let again = |trace: &mut Trace, us: u64| {
        trace.add(us, Kind::Retransmitted, IDLE_TASK, |record| (record.socket, record.value) = (7, 10));
    };
    let mut trace = request_is_taken_up();
    answered(&mut trace, 300, 1).sleeps(320, 1);
    again(&mut trace, 9_000);
    assert_eq!((trace.first().ended_ns, trace.first().of_cause_ns(Retransmission)), (at(9_000), 8_700_000));
    let mut lost_before = trace.clone();
    acknowledged(&mut trace, 9_050, 10, TWICE, 0);
    assert_eq!((trace.first().ended_ns, trace.first().of_cause_ns(Retransmission)), (at(300), 0));
    // A segment that was lost before the needless retransmission still counts as lost.
    again(&mut lost_before, 20_000);
    acknowledged(&mut lost_before, 20_050, 10, TWICE, 0);
    assert_eq!(lost_before.first().ended_ns, at(9_000));
    // Both retransmissions were needless.
    acknowledged(&mut lost_before, 20_060, 10, TWICE, 0);
    assert_eq!(lost_before.first().ended_ns, at(300));
}

/// The client's next request arrives, and is answered, before the client reports that it received the segment twice.
#[test]
fn segment_received_twice_was_not_lost_with_next_request() {
    let mut trace = request_is_taken_up();
    answered(&mut trace, 300, 1).sleeps(320, 1);
    trace.add(9_000, Kind::Retransmitted, IDLE_TASK, |record| (record.socket, record.value) = (7, 10));
    trace.ready(9_010, 7, 20).woken(9_011, IDLE_TASK, 1).comes(9_015, 1).received(9_020, 1, 7, 20, 2);
    trace.started(9_020, 1, 7, 2, 9_010).transmitted(9_030, 7, 20).sent(9_030, 1, 7, 20, 2);
    trace.finished(9_030, 1, 7, 2, 9_020).sleeps(9_040, 1);
    acknowledged(&mut trace, 60_000, 20, 1_024, 0);
    trace.comes(90_000, 1);
    let ended: Vec<u64> = trace.timelines().iter().map(|timeline| timeline.ended_ns).collect();
    assert_eq!(ended, [at(300), at(9_030)]);
}
