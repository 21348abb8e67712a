//! Tests of requests that have no response yet, and of responses that do not end.

mod common;

use common::*;
use sidelane_timeline::builder::{Builder, Settings};
use sidelane_timeline::ending::{Ending, Side, UnansweredRequest};
use sidelane_timeline::record::{Kind, Record};

/// Returns the arrival times of requests that wait for a response after these records.
fn arrivals_of_waiting_requests(records: Vec<Record>) -> Vec<u64> {
    let mut builder = Builder::new(Settings::default());
    records.into_iter().for_each(|record| builder.push(record, &mut |_| ()));
    builder.finish(&mut |_| ());
    builder.waiting_arrivals_ns().collect()
}

#[test]
fn a_request_without_a_response_waits_since_it_arrived() {
    let mut trace = trace_with_received_request();
    assert_eq!(arrivals_of_waiting_requests(trace.numbered_records()), [trace_time_ns(100)]);
    add_response(&mut trace, 500, 1);
    assert_eq!(arrivals_of_waiting_requests(trace.numbered_records()), []);
}

#[test]
fn request_with_a_possibly_lost_response_does_not_wait() {
    let mut trace = trace_with_received_request();
    add_response(&mut trace, 500, 1).sleeps(510, 1).gets_cpu(9_000, 1);
    let mut records = trace.numbered_records();
    records.retain(|record| record.at_ns != trace_time_ns(500));
    assert_eq!(arrivals_of_waiting_requests(records), []);
}

#[test]
fn a_response_that_goes_on_for_long_is_a_stream() {
    let mut trace = trace_with_received_request();
    add_response(&mut trace, 500, 1);
    let streamed = |trace: &Trace| {
        let mut builder = Builder::new(Settings::default());
        trace.numbered_records().into_iter().for_each(|record| builder.push(record, &mut |_| ()));
        builder.finish(&mut |_| ());
        builder.counts().streamed
    };
    assert_eq!(streamed(&trace), 0);
    trace.sent(101_000, 1, 7, 30, 1).finished(101_000, 1, 7, 1, 120);
    assert_eq!(streamed(&trace), 1);
}

const ESTABLISHED: u32 = 1;
const FIN_WAIT: u32 = 4;
const CLOSED: u32 = 7;
const CLOSE_WAIT: u32 = 8;
const IN_VAIN: u64 = 0x100;

/// Adds the record that the state of the connection changes from `old` to `new`; `side` ended the connection first.
fn add_socket_state(trace: &mut Trace, us: u64, (old, new): (u32, u32), side: Side, flags: u64) {
    trace.add_record(us, Kind::SocketState, IDLE_TASK, |record| {
        (record.socket, record.detail, record.value) = (7, old << 16 | new, side as u64 | flags);
    });
}

/// Returns the requests that were cut off, and the numbers of answered requests, waiting requests, and connections with
/// one-way messages.
fn unanswered_and_counts(trace: &Trace) -> (Vec<UnansweredRequest>, usize, usize, u64) {
    let (mut answered, mut builder) = (0, Builder::new(Settings::default()));
    trace.numbered_records().into_iter().for_each(|record| builder.push(record, &mut |_| answered += 1));
    builder.finish(&mut |_| answered += 1);
    let cut = builder.take_unanswered().collect();
    (cut, answered, builder.waiting_arrivals_ns().count(), builder.one_way_connections())
}

fn unanswered_request(ended_us: u64, ending: Ending) -> Vec<UnansweredRequest> {
    vec![UnansweredRequest { request: 1, arrived_ns: trace_time_ns(100), ended_ns: trace_time_ns(ended_us), ending }]
}

#[test]
fn client_that_closes_while_waiting_abandons_its_request() {
    let mut trace = trace_with_received_request();
    add_socket_state(&mut trace, 50_000, (ESTABLISHED, CLOSE_WAIT), Side::Client, 0);
    assert_eq!(unanswered_and_counts(&trace), (vec![], 0, 0, 0), "whether it reads on is not known");
    add_socket_state(&mut trace, 90_000, (CLOSE_WAIT, CLOSED), Side::Client, 0);
    assert_eq!(unanswered_and_counts(&trace), (unanswered_request(50_000, Ending::Abandoned), 0, 0, 0));
    let mut reset = trace_with_received_request();
    add_socket_state(&mut reset, 50_000, (ESTABLISHED, CLOSED), Side::Client, 0);
    assert_eq!(unanswered_and_counts(&reset), (unanswered_request(50_000, Ending::Abandoned), 0, 0, 0));
}

#[test]
fn a_client_that_closes_its_sending_side_gets_its_response() {
    let mut trace = trace_with_received_request();
    add_socket_state(&mut trace, 130, (ESTABLISHED, CLOSE_WAIT), Side::Client, 0);
    add_response(&mut trace, 500, 1);
    add_socket_state(&mut trace, 600, (CLOSE_WAIT, CLOSED), Side::Client, 0);
    assert_eq!(unanswered_and_counts(&trace), (vec![], 1, 0, 0));
}

#[test]
fn response_after_its_client_closed_counts_as_abandoned() {
    let mut trace = trace_with_received_request();
    add_socket_state(&mut trace, 50_000, (ESTABLISHED, CLOSE_WAIT), Side::Client, 0);
    add_response(&mut trace, 80_000, 1);
    add_socket_state(&mut trace, 80_050, (CLOSE_WAIT, CLOSED), Side::Client, IN_VAIN);
    assert_eq!(
        unanswered_and_counts(&trace),
        (unanswered_request(50_000, Ending::Abandoned), 1, 0, 0),
        "its way explains why it was slow"
    );
}

#[test]
fn message_before_an_immediate_close_wants_no_response() {
    let mut trace = trace_with_received_request();
    add_socket_state(&mut trace, 115, (ESTABLISHED, CLOSE_WAIT), Side::Client, 0);
    add_socket_state(&mut trace, 5_000, (CLOSE_WAIT, CLOSED), Side::Client, 0);
    assert_eq!(unanswered_and_counts(&trace), (unanswered_request(115, Ending::NoAnswerWanted), 0, 0, 0));
}

#[test]
fn a_connection_that_the_service_closes_is_not_abandoned() {
    let mut trace = trace_with_received_request();
    add_socket_state(&mut trace, 50_000, (ESTABLISHED, FIN_WAIT), Side::Service, 0);
    add_socket_state(&mut trace, 50_100, (FIN_WAIT, CLOSED), Side::Service, 0);
    assert_eq!(unanswered_and_counts(&trace), (unanswered_request(50_000, Ending::ClosedByService), 0, 0, 0));
}

#[test]
fn message_that_no_thread_receives_is_abandoned() {
    let mut trace = Trace::new();
    trace.data_ready(100, 7, 10);
    add_socket_state(&mut trace, 50_000, (ESTABLISHED, CLOSED), Side::Client, 0);
    let never = UnansweredRequest { request: 0, ..unanswered_request(50_000, Ending::Abandoned)[0] };
    assert_eq!(unanswered_and_counts(&trace), (vec![never], 0, 0, 0));
}

#[test]
fn messages_without_a_response_do_not_wait_for_one() {
    let mut trace = trace_with_received_request();
    let more = |trace: &mut Trace, number: u32| {
        let us = 20_000 * u64::from(number);
        trace.data_ready(us, 7, 10 + 10 * number).received(us + 10, 1, 7, 10 + 10 * number, 1);
    };
    (1..3).for_each(|number| more(&mut trace, number));
    assert_eq!(unanswered_and_counts(&trace), (vec![], 0, 1, 0), "it may be a request in parts");
    more(&mut trace, 3);
    assert_eq!(unanswered_and_counts(&trace), (vec![], 0, 0, 1));
    add_socket_state(&mut trace, 900_000, (ESTABLISHED, CLOSED), Side::Client, 0);
    assert_eq!(unanswered_and_counts(&trace), (unanswered_request(900_000, Ending::NoAnswerWanted), 0, 0, 0));
}

#[test]
fn answered_request_in_many_parts_is_one_request() {
    let mut trace = trace_with_received_request();
    for number in 1..9 {
        let us = 20_000 * u64::from(number);
        trace.data_ready(us, 7, 10 + 10 * number).received(us + 10, 1, 7, 10 + 10 * number, 1);
    }
    add_response(&mut trace, 200_000, 1);
    assert_eq!(unanswered_and_counts(&trace), (vec![], 1, 0, 0));
}

#[test]
fn request_without_a_known_end_counts_as_unanswered() {
    let counted = |trace: &Trace| {
        let mut builder = Builder::new(Settings::default());
        trace.numbered_records().into_iter().for_each(|record| builder.push(record, &mut |_| ()));
        builder.finish(&mut |_| ());
        let unanswered = builder.counts().unanswered;
        (unanswered, builder.take_unanswered().count())
    };
    let mut trace = trace_with_received_request();
    // The client sends two more requests without a response to those before.
    for (us, number) in [(1_000, 2), (2_000, 3)] {
        let seq = 10 * number as u32;
        trace.data_ready(us, 7, seq).received(us + 10, 1, 7, seq, number).started(us + 10, 1, 7, number, us);
    }
    assert_eq!(counted(&trace), (2, 0));
    // The connection times out.
    add_socket_state(&mut trace, 90_000, (ESTABLISHED, CLOSED), Side::Other, 0);
    assert_eq!(counted(&trace), (3, 0));
    // The service closes a connection with unread data.
    let mut unread = Trace::new();
    unread.data_ready(100, 7, 10);
    add_socket_state(&mut unread, 50_000, (ESTABLISHED, CLOSED), Side::Service, 0);
    assert_eq!(counted(&unread), (0, 0));
}
