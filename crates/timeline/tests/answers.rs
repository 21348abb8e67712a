//! Timelines of requests that wait for other services, from traces written by hand: when an answer came, when a thread
//! read it, and what the network lost.

mod common;

use common::*;
use sidelane_timeline::cause::Cause::*;
use sidelane_timeline::record::{Kind, leave};
use sidelane_timeline::timeline::Timeline;
use sidelane_timeline::wait::{Object, Peer, TCP, call};

const PORT: u16 = 5_432;
const TWICE: u32 = 1_024;

fn database() -> Object {
    Object::Service(Peer::Address([127, 0, 0, 1].into(), PORT, TCP))
}

/// Returns the timeline of request 1, which an event loop (thread 1) sends on to another service at 200 µs. Request 2
/// of another client comes at 300 µs, and the loop works on it until 30 ms. Then it reads the answer for request 1. If
/// `came_us` is given, the answer's arrival is recorded at that time.
fn timeline_of_call_beside_long_request(came_us: Option<u64>) -> Timeline {
    let mut trace = trace_with_received_request();
    trace.sends_to_service(200, 1, 9, PORT, TCP).enters_sleep_call(210, 1, call::EPOLL_WAIT, 4).sleeps(210, 1);
    trace
        .data_ready(300, 8, 20)
        .woken(301, IDLE_TASK, 1)
        .gets_cpu(310, 1)
        .received(320, 1, 8, 20, 2)
        .started(320, 1, 8, 2, 300);
    trace.transmitted(30_000, 8, 30).sent(30_000, 1, 8, 30, 2).finished(30_000, 1, 8, 2, 320);
    match came_us {
        Some(came_us) => trace.reads_answer(30_010, 1, 9, came_us),
        None => trace.downstream_io(30_010, Kind::Received, 1, 9),
    };
    add_response(&mut trace, 30_100, 1);
    trace.first_timeline()
}

#[test]
fn answer_in_the_socket_of_a_busy_loop_is_queued() {
    let timeline = timeline_of_call_beside_long_request(Some(1_000));
    let times = [Downstream, ServiceQueue, OnCpu].map(|cause| timeline.time_of_cause_ns(cause));
    assert_eq!(times, [800_000, 29_010_000, 180_000], "{timeline:?}");
    let queue = timeline.spans.iter().find(|span| span.cause == ServiceQueue).expect("a queue");
    assert_eq!((queue.by_tid, queue.wait.map(|wait| wait.object)), (1, Some(database())));
}

#[test]
fn answer_without_recorded_arrival_is_not_named() {
    let timeline = timeline_of_call_beside_long_request(None);
    let queue = timeline.spans.iter().find(|span| span.cause == ServiceQueue).expect("a queue");
    assert_eq!(queue.wait, None);
}

#[test]
fn late_answer_to_a_busy_loop_is_downstream_time() {
    let timeline = timeline_of_call_beside_long_request(Some(29_000));
    let times = [Downstream, ServiceQueue].map(|cause| timeline.time_of_cause_ns(cause));
    assert_eq!(times, [28_800_000, 1_010_000], "{timeline:?}");
    let wait = timeline.spans.iter().find(|span| span.cause == Downstream).and_then(|span| span.wait);
    assert_eq!(wait.map(|wait| wait.object), Some(database()));
}

#[test]
fn a_loop_that_never_sleeps_waits_for_answers_too() {
    // Request 2 arrived before the question of request 1 was sent, so the loop continues with request 2 at once.
    let mut trace = trace_with_received_request();
    trace
        .data_ready(130, 8, 20)
        .sends_to_service(200, 1, 9, PORT, TCP)
        .received(210, 1, 8, 20, 2)
        .started(210, 1, 8, 2, 130);
    trace.transmitted(30_000, 8, 30).sent(30_000, 1, 8, 30, 2).finished(30_000, 1, 8, 2, 210);
    trace.reads_answer(30_010, 1, 9, 1_000);
    add_response(&mut trace, 30_100, 1);
    let timeline = trace.first_timeline();
    let times = [Downstream, ServiceQueue].map(|cause| timeline.time_of_cause_ns(cause));
    assert_eq!(times, [800_000, 29_010_000], "{timeline:?}");
}

#[test]
fn thread_with_one_request_never_queues_its_own_answer() {
    for came_us in [1_000, 29_000] {
        let mut trace = trace_with_received_request();
        trace.sends_to_service(200, 1, 9, PORT, TCP).reads_answer(30_010, 1, 9, came_us);
        add_response(&mut trace, 30_100, 1);
        let timeline = trace.first_timeline();
        let times = [Downstream, ServiceQueue].map(|cause| timeline.time_of_cause_ns(cause));
        assert_eq!(times, [0, 0], "{came_us}: {timeline:?}");
    }
}

#[test]
fn wait_after_the_arrival_of_an_answer_has_its_own_cause() {
    const FUTEX_WAIT: u32 = 128;
    let mut trace = trace_with_received_request();
    trace.sends_to_service(200, 1, 9, PORT, TCP);
    let on = SleepArguments { argument: 0x7f00_1000, named: FUTEX_WAIT, expected: 2, ..SleepArguments::default() };
    trace
        .enters_sleep_call_with(210, 1, call::FUTEX, on)
        .sleeps(210, 1)
        .woken_in_call(20_000, 5, 1, call::FUTEX)
        .gets_cpu(20_010, 1);
    trace.reads_answer(20_020, 1, 9, 1_000);
    add_response(&mut trace, 20_100, 1);
    let timeline = trace.first_timeline();
    let times = [Downstream, Lock].map(|cause| timeline.time_of_cause_ns(cause));
    assert_eq!(times, [800_000, 19_000_000], "{timeline:?}");
}

/// Returns the timeline of a request whose question to another service is sent at 200 µs and again at 200 ms. The
/// answer comes at 210 ms.
fn timeline_with_resent_call(is_got_twice: bool) -> Timeline {
    let mut trace = trace_with_received_request();
    trace.sends_to_service(200, 1, 9, PORT, TCP).enters_sleep_call(210, 1, call::RECVFROM, 9).sleeps(210, 1);
    trace.add_record(200_200, Kind::Retransmitted, IDLE_TASK, |record| record.socket = 9);
    if is_got_twice {
        trace.add_record(200_300, Kind::Acknowledged, IDLE_TASK, |record| {
            (record.socket, record.other.tid) = (9, TWICE)
        });
    }
    trace.woken(210_001, IDLE_TASK, 1).switched(210_010, IDLE_TASK, 1, leave::PREEMPTED);
    trace.reads_answer(210_020, 1, 9, 210_000);
    add_response(&mut trace, 210_100, 1);
    trace.first_timeline()
}

#[test]
fn lost_question_to_a_service_is_a_retransmission() {
    let timeline = timeline_with_resent_call(false);
    let times = [Retransmission, Downstream].map(|cause| timeline.time_of_cause_ns(cause));
    assert_eq!(times, [200_000_000, 9_801_000], "{timeline:?}");
    let lost = timeline.spans.iter().find(|span| span.cause == Retransmission).and_then(|span| span.wait);
    assert_eq!(lost.map(|wait| wait.object), Some(database()));
}

#[test]
fn needlessly_resent_question_was_not_lost() {
    let timeline = timeline_with_resent_call(true);
    let times = [Retransmission, Downstream].map(|cause| timeline.time_of_cause_ns(cause));
    assert_eq!(times, [0, 209_801_000], "{timeline:?}");
}
