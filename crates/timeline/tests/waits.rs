//! Tests of the object and the end of a thread's wait, with traces written by hand.

mod common;

use common::*;
use sidelane_timeline::cause::BY_OWN;
use sidelane_timeline::cause::Cause::{self, *};
use sidelane_timeline::record::{Kind, OWN_STACK, Tasks, WAKES_JOINER, leave};
use sidelane_timeline::timeline::{Span, Timeline};
use sidelane_timeline::wait::{Activity, Object, Peer, UDP, WaitEnd, call};

const FUTEX_WAIT: u32 = 128;
const FUTEX_WAIT_BITSET: u32 = 128 | 9;
const LOCK: u64 = 0x7f00_1000;

/// Returns the longest span of request `number`.
#[track_caller]
fn longest_span_of(trace: &Trace, number: u64) -> Span {
    let timeline = trace.timelines().into_iter().find(|timeline| timeline.request == number).expect("it has ended");
    assert_eq!(timeline.incomplete, None);
    timeline.spans.into_iter().max_by_key(Span::length_ns).expect("a span")
}

#[track_caller]
fn longest_span(trace: &Trace) -> Span {
    longest_span_of(trace, 1)
}

fn local_service(port: u16, protocol: u8) -> Object {
    Object::Service(Peer::Address([127, 0, 0, 1].into(), port, protocol))
}

#[test]
fn timeout_after_a_question_has_cause_no_answer() {
    let mut trace = trace_with_received_request();
    trace.sends_to_service(200, 1, 9, 5_399, UDP);
    let poll = SleepArguments { timeout_ms: 200, ..SleepArguments::default() };
    trace
        .enters_sleep_call_with(210, 1, call::POLL, poll)
        .sleeps(210, 1)
        .woken_by_timer(200_300, 1)
        .gets_cpu(200_310, 1);
    // The other service answers the next question.
    trace
        .sends_to_service(200_320, 1, 9, 5_399, UDP)
        .enters_sleep_call_with(200_330, 1, call::POLL, poll)
        .sleeps(200_330, 1);
    trace.woken(200_400, IDLE_TASK, 1).gets_cpu(200_410, 1).downstream_io(200_420, Kind::Received, 1, 9);
    add_response(&mut trace, 200_500, 1);
    let span = longest_span(&trace);
    let wait = span.wait.expect("what it waited for");
    assert_eq!((span.cause, wait.object, wait.timeout_ms), (NoAnswer, local_service(5_399, UDP), 200));
    assert_eq!(wait.ended, WaitEnd::Timer);
    assert_eq!(trace.first_timeline().time_of_cause_ns(NotExplained), 0);
}

/// Returns a trace in which the thread waits for 50 ms in the system call `number`, until its timeout.
fn trace_with_timeout_in_call(number: u32) -> Trace {
    let mut trace = trace_with_received_request();
    let wait = SleepArguments { timeout_ms: 50, ..SleepArguments::default() };
    trace.enters_sleep_call_with(210, 1, number, wait).sleeps(210, 1).woken_by_timer(50_300, 1).gets_cpu(50_310, 1);
    add_response(&mut trace, 50_400, 1);
    trace
}

const SLEEPING: [u32; 5] = [call::POLL, call::SELECT, call::RECVFROM, call::EPOLL_WAIT, call::IO_URING_ENTER];

#[test]
fn timeout_without_a_question_has_cause_timer() {
    for number in SLEEPING {
        assert_eq!(longest_span(&trace_with_timeout_in_call(number)).cause, Timer, "{number}");
    }
}

#[test]
fn a_timeout_of_an_event_loop_is_no_sleep() {
    let is_loop = |number| matches!(number, call::EPOLL_WAIT | call::IO_URING_ENTER);
    for number in SLEEPING {
        let cause = if is_loop(number) { Inside } else { Timer };
        // The thread has another client, which is connected and sends nothing, or which has closed its connection.
        let mut other = trace_with_timeout_in_call(number);
        other.data_ready(50, 8, 20).received(60, 1, 8, 20, 2).started(60, 1, 8, 2, 50);
        other.transmitted(70, 8, 30).sent(70, 1, 8, 30, 2).finished(70, 1, 8, 2, 60);
        let mut gone = other.clone();
        gone.add_record(80, Kind::SocketState, IDLE_TASK, |record| {
            (record.socket, record.detail, record.value) = (8, 7, 1)
        });
        assert_eq!((longest_span(&other).cause, longest_span(&gone).cause), (cause, Timer), "{number}");
        // The trace has a record of the process's language runtime.
        let mut runtime = trace_with_timeout_in_call(number);
        runtime.event(10, Kind::Tasks, SERVICE, Tasks::Stay as u32);
        assert_eq!(longest_span(&runtime).cause, cause, "{number}");
    }
}

#[test]
fn timeout_after_two_questions_has_cause_no_answer() {
    for number in [call::EPOLL_WAIT, call::POLL] {
        let mut trace = trace_with_received_request();
        trace
            .sends_to_service(200, 1, 9, 53, UDP)
            .sends_to_service(202, 1, 10, 6_379, 6)
            .enters_sleep_call(204, 1, number, 4)
            .sleeps(204, 1);
        trace.woken(206, IDLE_TASK, 1).gets_cpu(207, 1).downstream_io(208, Kind::Received, 1, 10);
        let wait = SleepArguments { timeout_ms: 50, ..SleepArguments::default() };
        trace.enters_sleep_call_with(210, 1, number, wait).sleeps(210, 1).woken_by_timer(50_300, 1).gets_cpu(50_310, 1);
        add_response(&mut trace, 50_400, 1);
        let span = longest_span(&trace);
        let wait = span.wait.expect("what it waited for");
        assert_eq!((span.cause, wait.object, wait.timeout_ms), (NoAnswer, local_service(53, UDP), 50), "{number}");
    }
}

#[test]
fn answered_question_does_not_explain_a_later_timeout() {
    let mut trace = trace_with_received_request();
    trace.sends_to_service(200, 1, 9, 5_399, UDP).enters_sleep_call(205, 1, call::POLL, 0).sleeps(205, 1);
    trace.woken(220, IDLE_TASK, 1).gets_cpu(230, 1).downstream_io(240, Kind::Received, 1, 9);
    let wait = SleepArguments { timeout_ms: 50, ..SleepArguments::default() };
    trace.enters_sleep_call_with(250, 1, call::POLL, wait).sleeps(250, 1).woken_by_timer(50_300, 1).gets_cpu(50_310, 1);
    add_response(&mut trace, 50_400, 1);
    assert_eq!(longest_span(&trace).cause, Timer);
}

#[test]
fn wait_before_a_connection_is_up_has_cause_connect() {
    let connect = |timer: bool| {
        let mut trace = trace_with_received_request();
        trace.sends_to_service(200, 1, 9, 81, 6);
        trace.records.last_mut().expect("a record").kind = Kind::Connects;
        let on = SleepArguments { socket: 9, file: SOCKET, named: 2, ..SleepArguments::default() };
        trace.enters_sleep_call_with(210, 1, call::CONNECT, on).sleeps(210, 1);
        if timer { trace.woken_by_timer(9_000, 1) } else { trace.woken(9_000, IDLE_TASK, 1) }.gets_cpu(9_010, 1);
        add_response(&mut trace, 9_100, 1);
        longest_span(&trace)
    };
    assert_eq!((connect(false).cause, connect(true).cause), (Connect, NoAnswer));
    for timer in [false, true] {
        let wait = connect(timer).wait.expect("what it waited for");
        assert_eq!((wait.object, wait.connects), (local_service(81, 6), true), "{timer}");
    }
}

#[test]
fn connect_wait_in_poll_lasts_until_the_first_send() {
    let mut trace = trace_with_received_request();
    trace.sends_to_service(200, 1, 9, 81, 6);
    trace.records.last_mut().expect("a record").kind = Kind::Connects;
    trace.enters_sleep_call(210, 1, call::EPOLL_WAIT, 4).sleeps(210, 1).woken(9_000, IDLE_TASK, 1).gets_cpu(9_010, 1);
    trace.sends_to_service(9_020, 1, 9, 81, 6).enters_sleep_call(9_030, 1, call::EPOLL_WAIT, 4).sleeps(9_030, 1);
    trace.woken(9_500, IDLE_TASK, 1).gets_cpu(9_510, 1).downstream_io(9_520, Kind::Received, 1, 9);
    add_response(&mut trace, 9_600, 1);
    let timeline = trace.first_timeline();
    let times = [Connect, Downstream, NotExplained].map(|cause| timeline.time_of_cause_ns(cause));
    assert_eq!(times, [8_800_000, 480_000, 0]);
    let connect = timeline.spans.iter().find(|span| span.cause == Connect).and_then(|span| span.wait);
    assert_eq!(connect.map(|wait| wait.object), Some(local_service(81, 6)));
}

#[test]
fn event_loop_resumes_the_request_that_connected() {
    let mut trace = trace_with_received_request();
    trace.sends_to_service(200, 1, 9, 81, 6);
    trace.records.last_mut().expect("a record").kind = Kind::Connects;
    trace.enters_sleep_call(210, 1, call::EPOLL_WAIT, 4).sleeps(210, 1);
    // While thread 1 waits, it receives another request.
    trace
        .data_ready(300, 8, 20)
        .woken(301, IDLE_TASK, 1)
        .gets_cpu(310, 1)
        .received(320, 1, 8, 20, 2)
        .started(320, 1, 8, 2, 300);
    trace.enters_sleep_call(330, 1, call::EPOLL_WAIT, 4).sleeps(330, 1).woken(400, IDLE_TASK, 1).gets_cpu(410, 1);
    trace.sends_to_service(420, 1, 9, 81, 6).enters_sleep_call(430, 1, call::EPOLL_WAIT, 4).sleeps(430, 1);
    trace.woken(9_500, IDLE_TASK, 1).gets_cpu(9_510, 1).downstream_io(9_520, Kind::Received, 1, 9);
    add_response(&mut trace, 9_600, 1);
    trace.transmitted(9_700, 8, 30).sent(9_700, 1, 8, 30, 2).finished(9_700, 1, 8, 2, 320);
    let timeline = trace.first_timeline();
    let times = [Connect, Downstream, NoAnswer].map(|cause| timeline.time_of_cause_ns(cause));
    assert_eq!(times, [200_000, 9_080_000, 0], "{timeline:?}");
}

/// Adds the records that thread 1 waits at a futex until thread 5 wakes it in the system call `number`.
fn add_futex_wait(trace: &mut Trace, operation: u32, expected: u64, number: u32) {
    let on = SleepArguments { argument: LOCK, named: operation, expected, ..SleepArguments::default() };
    trace
        .enters_sleep_call_with(210, 1, call::FUTEX, on)
        .sleeps(210, 1)
        .woken_in_call(9_000, 5, 1, number)
        .gets_cpu(9_010, 1);
    add_response(trace, 9_100, 1);
}

#[test]
fn condition_variable_park_and_join_are_no_locks() {
    let cause = |named, expected, number| {
        let mut trace = trace_with_received_request();
        add_futex_wait(&mut trace, named, expected, number);
        longest_span(&trace).cause
    };
    assert_eq!(cause(FUTEX_WAIT_BITSET, 0, call::FUTEX), HandOver, "a condition of glibc");
    assert_eq!(cause(FUTEX_WAIT, 2 | OWN_STACK, call::FUTEX), HandOver, "a condition of musl");
    assert_eq!(cause(FUTEX_WAIT, 0, call::FUTEX), HandOver, "a semaphore of C++");
    assert_eq!(cause(FUTEX_WAIT, 1 << 31, call::FUTEX), HandOver, "a future of C++");
    assert_eq!(cause(FUTEX_WAIT, 2, call::EXIT), HandOver, "a join");
    assert_eq!(cause(FUTEX_WAIT, 2, call::FUTEX), Lock, "a mutex of glibc");
    assert_eq!(cause(FUTEX_WAIT, 1 << 31 | 16, call::FUTEX), Lock, "a mutex of musl");
    assert_eq!(cause(FUTEX_WAIT_BITSET, 2, call::FUTEX), Lock, "a mutex of Rust");
}

#[test]
fn futex_that_wakes_all_waiters_is_no_lock() {
    let mut trace = Trace::new();
    // Both threads wait and wake at this futex, as at a barrier.
    let on = SleepArguments { argument: LOCK, named: FUTEX_WAIT, expected: 2, ..SleepArguments::default() };
    trace.enters_sleep_call_with(10, 5, call::FUTEX, on).set_last_cpu(1).sleeps(10, 5).set_last_cpu(1);
    trace.woken_with_others(50, 1, 5).gets_cpu(60, 5).set_last_cpu(1);
    trace.records.extend(trace_with_received_request().records);
    trace
        .enters_sleep_call_with(210, 1, call::FUTEX, on)
        .sleeps(210, 1)
        .woken_with_others(9_000, 5, 1)
        .gets_cpu(9_010, 1);
    add_response(&mut trace, 9_100, 1);
    let span = longest_span(&trace);
    assert_eq!((span.cause, span.by_tid, span.detail), (HandOver, 5, 0));
}

#[test]
fn wake_by_a_thread_that_ends_is_a_hand_over() {
    // A thread of musl that ends wakes the thread that joins it as if it released a mutex.
    for (flag, cause) in [(0, Lock), (WAKES_JOINER, HandOver)] {
        let mut trace = trace_with_received_request();
        trace.gets_cpu(200, 5).set_last_cpu(1);
        let on = SleepArguments { argument: LOCK, named: FUTEX_WAIT, expected: 2, ..SleepArguments::default() };
        trace
            .enters_sleep_call_with(210, 1, call::FUTEX, on)
            .sleeps(210, 1)
            .woken_at_futex(9_000, 5, 1, flag)
            .set_last_cpu(1)
            .gets_cpu(9_010, 1);
        add_response(&mut trace, 9_100, 1);
        assert_eq!(longest_span(&trace).cause, cause);
    }
}

#[test]
fn futex_is_no_lock_if_a_session_wakes_all_its_waiters() {
    for (wakes_all, cause) in [(false, Lock), (true, HandOver)] {
        let mut trace = trace_with_received_request();
        trace
            .data_ready(50, 12, 10)
            .received(60, 2, 12, 10, 2)
            .set_last_cpu(1)
            .started(60, 2, 12, 2, 50)
            .set_last_cpu(1);
        let on = SleepArguments { argument: LOCK, named: FUTEX_WAIT, expected: 1 << 31, ..SleepArguments::default() };
        trace.enters_sleep_call_with(210, 1, call::FUTEX, on).sleeps(210, 1);
        match wakes_all {
            true => trace.woken_with_others(9_000, 2, 1),
            false => trace.woken_in_call(9_000, 2, 1, call::FUTEX),
        };
        trace.set_last_cpu(1).gets_cpu(9_010, 1);
        add_response(&mut trace, 9_100, 1);
        trace.sent(9_200, 2, 12, 30, 2).set_last_cpu(1).finished(9_200, 2, 12, 2, 60).set_last_cpu(1);
        assert_eq!(longest_span(&trace).cause, cause, "{wakes_all}");
    }
}

#[test]
fn futex_that_its_waiters_hold_in_turns_is_a_lock() {
    let mut trace = Trace::new();
    // Thread 5 waits at this futex, too, and thread 1 wakes it.
    let on = SleepArguments { argument: LOCK + 4, named: FUTEX_WAIT_BITSET, ..SleepArguments::default() };
    trace.enters_sleep_call_with(10, 5, call::FUTEX, on).set_last_cpu(1).sleeps(10, 5).set_last_cpu(1);
    trace.woken_in_call(50, 1, 5, call::FUTEX).gets_cpu(60, 5).set_last_cpu(1);
    trace.records.extend(trace_with_received_request().records);
    add_futex_wait(&mut trace, FUTEX_WAIT_BITSET, 0, call::FUTEX);
    let span = longest_span(&trace);
    assert_eq!((span.cause, span.by_tid, span.detail), (Lock, 5, LOCK));
    assert_eq!(span.wait.expect("what it waited for").doing, Activity::Ran);
}

#[test]
fn request_waits_for_the_creator_of_its_thread() {
    let mut trace = Trace::new();
    let on = SleepArguments { argument: LOCK, named: FUTEX_WAIT, expected: 2, ..SleepArguments::default() };
    // Thread 5 accepts connections and needs a lock for that. Thread 6 holds the lock.
    trace.gets_cpu(20, 6).set_last_cpu(1).gets_cpu(30, 5).enters_sleep_call_with(60, 5, call::FUTEX, on).sleeps(60, 5);
    trace.data_ready(100, 7, 10).woken_in_call(9_000, 6, 5, call::FUTEX).set_last_cpu(1).gets_cpu(9_010, 5);
    trace.woken_in_call(9_050, 5, 1, call::CLONE3).switched(9_060, 5, 1, leave::PREEMPTED);
    trace.received(9_070, 1, 7, 10, 1).started(9_070, 1, 7, 1, 100);
    add_response(&mut trace, 9_200, 1);
    let span = longest_span(&trace);
    assert_eq!((span.cause, span.tid, span.by_tid, span.length_ns()), (Lock, 5, 6, 8_900_000));
    assert_eq!(trace.first_timeline().time_of_cause_ns(NotExplained), 0);
}

#[test]
fn lock_waits_with_timeouts_merge_into_one_wait() {
    let mut trace = Trace::new();
    let on = SleepArguments { argument: LOCK, named: FUTEX_WAIT_BITSET, timeout_ms: 5, ..SleepArguments::default() };
    trace.enters_sleep_call_with(10, 5, call::FUTEX, on).set_last_cpu(1).sleeps(10, 5).set_last_cpu(1);
    trace.woken_in_call(50, 1, 5, call::FUTEX).gets_cpu(60, 5).set_last_cpu(1);
    trace.records.extend(trace_with_received_request().records);
    for from_us in [210, 5_250, 10_300] {
        let on = SleepArguments { argument: LOCK + (from_us & 4), ..on };
        trace.enters_sleep_call_with(from_us, 1, call::FUTEX, on).sleeps(from_us, 1);
        if from_us < 10_000 {
            trace.woken_by_timer(from_us + 5_000, 1);
        } else {
            trace.woken_in_call(from_us + 2_000, 5, 1, call::FUTEX);
        }
        // After its first turn, thread 1 waits for the CPU, which thread 5 has.
        match from_us {
            210 => trace.switched(5_240, 5, 1, leave::PREEMPTED),
            5_250 => trace.gets_cpu(10_260, 1),
            _ => trace.gets_cpu(12_310, 1),
        };
    }
    add_response(&mut trace, 12_400, 1);
    let timeline = trace.first_timeline();
    assert_eq!((timeline.time_of_cause_ns(Lock), timeline.time_of_cause_ns(Timer)), (12_030_000, 0));
    assert!(timeline.spans.iter().filter(|span| span.cause == Lock).all(|span| span.by_tid == 5));
}

#[test]
fn activity_of_another_session_with_the_lock_is_described() {
    const OTHER: u32 = 950;
    let mut trace = trace_with_received_request();
    // A process of the service with a request of its own sleeps for a while and then signals the waiting process.
    trace.started(150, OTHER, 8, 2, 140).set_last_cpu(1);
    trace.enters_sleep_call(160, OTHER, call::EPOLL_WAIT, 3).set_last_cpu(1).sleeps(160, OTHER).set_last_cpu(1);
    trace.woken_by_timer(50_000, OTHER).set_last_cpu(1).gets_cpu(50_010, OTHER).set_last_cpu(1);
    trace.enters_sleep_call(210, 1, call::EPOLL_WAIT, 4).sleeps(210, 1);
    trace.woken_in_call(50_100, OTHER, 1, call::KILL).set_last_cpu(1).gets_cpu(50_110, 1);
    trace.finished(50_200, OTHER, 8, 2, 150).set_last_cpu(1);
    add_response(&mut trace, 50_300, 1);
    let span = longest_span(&trace);
    let wait = span.wait.expect("what it waited for");
    assert_eq!((span.cause, span.by_tid, wait.of_session, wait.doing), (Lock, OTHER, true, Activity::Slept));
}

#[test]
fn a_chain_of_waits_is_followed_to_its_end() {
    let mut trace = trace_with_received_request();
    // Thread 1 waits for thread 2, which waits for thread 3, which runs.
    for (tid, by, cpu, end_us) in [(1, 2, 0, 9_000), (2, 3, 1, 8_990)] {
        let on = SleepArguments {
            argument: LOCK + u64::from(tid) * 4_096,
            named: FUTEX_WAIT,
            expected: 2,
            ..SleepArguments::default()
        };
        trace.gets_cpu(150 + u64::from(tid), tid).set_last_cpu(cpu);
        trace.enters_sleep_call_with(200, tid, call::FUTEX, on).set_last_cpu(cpu).sleeps(200, tid).set_last_cpu(cpu);
        trace
            .woken_in_call(end_us, by, tid, call::FUTEX)
            .set_last_cpu(cpu + 1)
            .gets_cpu(end_us + 5, tid)
            .set_last_cpu(cpu);
    }
    trace.gets_cpu(100, 3).set_last_cpu(2);
    add_response(&mut trace, 9_100, 1);
    let wait = longest_span(&trace).wait.expect("what it waited for");
    assert_eq!((wait.doing, wait.root), (Activity::Ran, task(3)));
}

#[test]
fn full_pipe_is_described_with_its_reader() {
    let mut trace = trace_with_received_request();
    let on = SleepArguments { argument: 5, named: 4_711, file: PIPE, ..SleepArguments::default() };
    trace
        .enters_sleep_call_with(210, 1, call::WRITE, on)
        .sleeps(210, 1)
        .woken_in_call(9_000, 901, 1, call::READ)
        .gets_cpu(9_010, 1);
    add_response(&mut trace, 9_100, 1);
    let span = longest_span(&trace);
    assert_eq!((span.cause, span.by_pid), (Full, STRANGER));
    assert_eq!(span.wait.expect("what it waited for").object, Object::Pipe(4_711));
}

#[test]
fn splice_waits_for_the_socket_or_the_writer_of_the_pipe() {
    for (by, cause) in [(IDLE_TASK, SendBuffer), (901, HandOver)] {
        let mut trace = trace_with_received_request();
        let on = SleepArguments { argument: 5, named: 4_711, file: PIPE, ..SleepArguments::default() };
        trace
            .enters_sleep_call_with(210, 1, call::SPLICE, on)
            .sleeps(210, 1)
            .woken_in_call(9_000, by, 1, call::WRITE)
            .gets_cpu(9_010, 1);
        add_response(&mut trace, 9_100, 1);
        assert_eq!(longest_span(&trace).cause, cause, "{by}");
    }
}

#[test]
fn file_lock_wait_names_the_process_that_unlocks() {
    let mut trace = trace_with_received_request();
    trace
        .enters_sleep_call(210, 1, call::FLOCK, 5)
        .sleeps(210, 1)
        .woken_in_call(9_000, 901, 1, call::FLOCK)
        .gets_cpu(9_010, 1);
    add_response(&mut trace, 9_100, 1);
    assert_eq!((longest_span(&trace).cause, longest_span(&trace).by_pid), (Lock, STRANGER));
}

/// Returns a trace with requests 1 and 2 on one event loop, which then sleeps in the system call `number`. A timer ends
/// the sleep if `by_timer`.
fn trace_with_two_requests_on_loop(number: u32, by_timer: bool) -> Trace {
    let mut trace = trace_with_received_request();
    trace.data_ready(130, 8, 20).received(140, 1, 8, 20, 2).started(140, 1, 8, 2, 130);
    trace.enters_sleep_call(210, 1, number, 4).sleeps(210, 1);
    if by_timer { trace.woken_by_timer(9_000, 1) } else { trace.woken(9_000, IDLE_TASK, 1) }.gets_cpu(9_010, 1);
    trace.transmitted(9_100, 7, 10).sent(9_100, 1, 7, 10, 1).finished(9_100, 1, 7, 1, 120);
    trace.transmitted(9_200, 8, 30).sent(9_200, 1, 8, 30, 2).finished(9_200, 1, 8, 2, 140);
    trace
}

#[test]
fn an_event_loop_that_waits_for_events_is_not_busy() {
    for number in [call::EPOLL_WAIT, call::POLL, call::SELECT, call::IO_URING_ENTER] {
        let trace = trace_with_two_requests_on_loop(number, false);
        assert_eq!((longest_span_of(&trace, 1).cause, longest_span_of(&trace, 2).cause), (Inside, Inside), "{number}");
    }
    // A timer of an event loop may belong to either of the two requests, so both count as waits inside the service.
    let by_timer = trace_with_two_requests_on_loop(call::EPOLL_WAIT, true);
    assert_eq!((longest_span_of(&by_timer, 1).cause, longest_span_of(&by_timer, 2).cause), (Inside, Inside));
    // A thread that sleeps in a read handles the other request, so request 1 waits in the service's queue.
    assert_eq!(longest_span_of(&trace_with_two_requests_on_loop(call::READ, false), 1).cause, ServiceQueue);
}

#[test]
fn wait_in_io_uring_or_aio_has_cause_disk() {
    for number in [call::IO_URING_ENTER, call::IO_GETEVENTS, call::IO_PGETEVENTS] {
        let mut trace = trace_with_received_request();
        trace.enters_sleep_call(210, 1, number, 4).sleeps(210, 1).event(8_990, Kind::DiskCompleted, 1, 8 << 20);
        trace.woken(9_000, IDLE_TASK, 1).gets_cpu(9_010, 1);
        add_response(&mut trace, 9_100, 1);
        assert_eq!((longest_span(&trace).cause, longest_span(&trace).detail), (Disk, 8 << 20), "{number}");
    }
}

#[test]
fn worker_that_read_from_a_disk_is_a_wait_for_the_disk() {
    let mut trace = trace_with_received_request();
    trace.switched(150, IDLE_TASK, 960, leave::PREEMPTED).set_last_cpu(1);
    trace.enters_sleep_call(210, 1, call::EPOLL_WAIT, 4).sleeps(210, 1);
    trace.event(8_900, Kind::DiskCompleted, 960, 8 << 20).set_last_cpu(1);
    trace.woken_in_call(9_000, 960, 1, call::KILL).set_last_cpu(1).gets_cpu(9_010, 1);
    add_response(&mut trace, 9_100, 1);
    assert_eq!(longest_span(&trace).cause, Disk);
}

#[test]
fn questions_of_two_requests_on_one_connection_share_it() {
    let mut trace = trace_with_received_request();
    trace.sends_to_service(200, 1, 9, 6_379, 6);
    trace
        .data_ready(210, 8, 20)
        .received(220, 1, 8, 20, 2)
        .started(220, 1, 8, 2, 210)
        .sends_to_service(230, 1, 9, 6_379, 6);
    trace.enters_sleep_call(240, 1, call::EPOLL_WAIT, 4).sleeps(240, 1);
    trace.woken(5_000, IDLE_TASK, 1).gets_cpu(5_010, 1).downstream_io(5_020, Kind::Received, 1, 9);
    trace.transmitted(5_050, 7, 10).sent(5_050, 1, 7, 10, 1).finished(5_050, 1, 7, 1, 120);
    trace.enters_sleep_call(5_060, 1, call::EPOLL_WAIT, 4).sleeps(5_060, 1);
    trace.woken(9_000, IDLE_TASK, 1).gets_cpu(9_010, 1).downstream_io(9_020, Kind::Received, 1, 9);
    trace.transmitted(9_050, 8, 30).sent(9_050, 1, 8, 30, 2).finished(9_050, 1, 8, 2, 220);
    for (number, length_us) in [(1, 4_800), (2, 8_770)] {
        let span = longest_span_of(&trace, number);
        let wait = span.wait.expect("what it waited for");
        assert_eq!((span.cause, span.length_ns(), wait.is_shared), (Downstream, length_us * 1_000, true), "{number}");
    }
}

/// Returns the span in which request 1 waits for thread 5 of a client library. Thread 1 gives its request to thread 5,
/// which asks another service. `during` adds records. Then the answer comes, and thread 5 wakes thread 1.
fn span_of_library_call(during: impl Fn(&mut Trace)) -> Span {
    let mut trace = trace_with_received_request();
    trace
        .gets_cpu(150, 5)
        .set_last_cpu(1)
        .enters_sleep_call(160, 5, call::EPOLL_WAIT, 4)
        .set_last_cpu(1)
        .sleeps(160, 5)
        .set_last_cpu(1);
    trace.woken_in_call(200, 1, 5, call::WRITE).set_last_cpu(1).gets_cpu(205, 5).set_last_cpu(1);
    let on = SleepArguments { argument: LOCK, named: FUTEX_WAIT_BITSET, ..SleepArguments::default() };
    trace.enters_sleep_call_with(210, 1, call::FUTEX, on).sleeps(210, 1);
    trace.sends_to_service(220, 5, 9, 6_379, 6).set_last_cpu(1);
    trace.enters_sleep_call(230, 5, call::EPOLL_WAIT, 4).set_last_cpu(1).sleeps(230, 5).set_last_cpu(1);
    during(&mut trace);
    trace.woken(9_000, IDLE_TASK, 5).set_last_cpu(1).gets_cpu(9_010, 5).set_last_cpu(1);
    trace.downstream_io(9_020, Kind::Received, 5, 9).set_last_cpu(1);
    trace.woken_in_call(9_030, 5, 1, call::FUTEX).set_last_cpu(1).gets_cpu(9_040, 1);
    add_response(&mut trace, 9_100, 1);
    longest_span(&trace)
}

#[test]
fn question_of_an_unknown_request_shares_the_connection() {
    let unknown = |trace: &mut Trace| {
        trace
            .gets_cpu(290, 6)
            .set_last_cpu(2)
            .sends_to_service(300, 6, 9, 6_379, 6)
            .set_last_cpu(2)
            .sleeps(310, 6)
            .set_last_cpu(2);
    };
    let (alone, shared) = (span_of_library_call(|_| ()), span_of_library_call(unknown));
    for (span, is_shared) in [(alone, false), (shared, true)] {
        assert_eq!((span.cause, span.length_ns()), (Downstream, 8_780_000), "{is_shared}");
        assert_eq!(span.wait.expect("what it waited for").is_shared, is_shared);
    }
}

#[test]
fn connection_used_by_one_request_after_another_is_not_shared() {
    let mut trace = trace_with_received_request();
    trace.sends_to_service(200, 1, 9, 6_379, 6).enters_sleep_call(210, 1, call::EPOLL_WAIT, 4).sleeps(210, 1);
    trace.woken(5_000, IDLE_TASK, 1).gets_cpu(5_010, 1).downstream_io(5_020, Kind::Received, 1, 9);
    // Thread 1 still computes for the first request when the second request sends its question.
    trace
        .data_ready(5_030, 8, 20)
        .received(5_040, 1, 8, 20, 2)
        .started(5_040, 1, 8, 2, 5_030)
        .sends_to_service(5_050, 1, 9, 6_379, 6);
    trace.enters_sleep_call(5_060, 1, call::EPOLL_WAIT, 4).sleeps(5_060, 1);
    trace.woken(9_000, IDLE_TASK, 1).gets_cpu(9_010, 1).downstream_io(9_020, Kind::Received, 1, 9);
    trace.transmitted(9_030, 7, 10).sent(9_030, 1, 7, 10, 1).finished(9_030, 1, 7, 1, 120);
    trace.transmitted(9_050, 8, 30).sent(9_050, 1, 8, 30, 2).finished(9_050, 1, 8, 2, 5_040);
    let shared = |number| longest_span_of(&trace, number).wait.is_some_and(|wait| wait.is_shared);
    let causes: [Cause; 2] = [1, 2].map(|number| longest_span_of(&trace, number).cause);
    assert_eq!((causes, shared(1), shared(2)), ([Downstream, Downstream], false, false));
}

/// Returns a trace in which threads 1, 3 and 2 wait in turns for an object that thread 2 had first. Each thread waits
/// at its own futex; thread 2 slept while it had the object.
fn trace_with_lock_convoy(own_requests: bool) -> Trace {
    let mut trace = trace_with_received_request();
    let futex = |argument| SleepArguments { argument, named: FUTEX_WAIT_BITSET, ..SleepArguments::default() };
    for (tid, cpu) in [(2, 1), (3, 2)] {
        let (socket, number) = (u64::from(tid) + 10, u64::from(tid));
        if own_requests {
            trace.data_ready(50, socket, 10).received(60, tid, socket, 10, number).set_last_cpu(cpu);
            trace.started(60, tid, socket, number, 50).set_last_cpu(cpu);
        } else {
            trace.gets_cpu(60, tid).set_last_cpu(cpu);
        }
    }
    let sleep = SleepArguments { timeout_ms: 9, ..futex(0x5000) };
    trace.enters_sleep_call_with(190, 2, call::FUTEX, sleep).set_last_cpu(1).sleeps(190, 2).set_last_cpu(1);
    trace.enters_sleep_call_with(200, 3, call::FUTEX, futex(0x6000)).set_last_cpu(2).sleeps(200, 3).set_last_cpu(2);
    trace.enters_sleep_call_with(210, 1, call::FUTEX, futex(0x7000)).sleeps(210, 1);
    trace.woken_by_timer(9_000, 2).set_last_cpu(1).gets_cpu(9_005, 2).set_last_cpu(1);
    trace.woken_in_call(9_010, 2, 3, call::FUTEX).set_last_cpu(1).gets_cpu(9_020, 3).set_last_cpu(2);
    trace.woken_in_call(9_030, 3, 1, call::FUTEX).set_last_cpu(2).gets_cpu(9_040, 1);
    add_response(&mut trace, 9_100, 1);
    for tid in [2, 3].into_iter().filter(|_| own_requests) {
        let socket = u64::from(tid) + 10;
        let number = u64::from(tid);
        trace.sent(9_200, tid, socket, 30, number).set_last_cpu(tid - 1).finished(9_200, tid, socket, number, 60);
        trace.set_last_cpu(tid - 1);
    }
    trace
}

#[test]
fn lock_convoy_is_followed_to_the_first_holder() {
    let span = longest_span(&trace_with_lock_convoy(true));
    let wait = span.wait.expect("what it waited for");
    assert_eq!((span.cause, wait.of_peer, wait.doing, wait.root), (Lock, true, Activity::Slept, task(2)));
    // If the threads have no requests of their own, it is unknown whether they held anything.
    let span = longest_span(&trace_with_lock_convoy(false));
    let wait = span.wait.expect("what it waited for");
    assert_eq!((span.cause, wait.of_peer, wait.doing, wait.root), (HandOver, false, Activity::Slept, task(2)));
}

#[test]
fn thread_with_several_requests_holds_no_lock() {
    let mut trace = trace_with_lock_convoy(true);
    trace.data_ready(70, 19, 10).received(80, 3, 19, 10, 9).set_last_cpu(2).started(80, 3, 19, 9, 70).set_last_cpu(2);
    assert_eq!(longest_span(&trace).cause, HandOver);
}

#[test]
fn wait_that_a_posix_signal_interrupts_is_one_wait() {
    let mut trace = trace_with_received_request();
    trace.enters_sleep_call(210, 1, call::EPOLL_WAIT, 4).sleeps(210, 1).woken_by_timer(4_000, 1).gets_cpu(4_010, 1);
    trace.event(4_015, Kind::SignalDelivered, 1, 14);
    trace.enters_sleep_call(4_030, 1, call::EPOLL_WAIT, 4).sleeps(4_030, 1);
    trace.woken_in_call(9_000, 901, 1, call::KILL).gets_cpu(9_010, 1);
    add_response(&mut trace, 9_100, 1);
    let timeline = trace.first_timeline();
    assert_eq!((timeline.time_of_cause_ns(HandOver), timeline.time_of_cause_ns(Timer)), (8_760_000, 0));
    // Without the POSIX signal, the first part of the wait is a wait of its own.
    trace.records.retain(|record| record.kind != Kind::SignalDelivered);
    let timeline = trace.first_timeline();
    assert_eq!((timeline.time_of_cause_ns(HandOver), timeline.time_of_cause_ns(Timer)), (4_970_000, 3_790_000));
}

#[test]
fn sleep_without_a_recorded_end_ends_at_the_next_record() {
    let mut trace = trace_with_received_request();
    let sleep = SleepArguments { timeout_ms: 9, named: FUTEX_WAIT_BITSET, ..SleepArguments::default() };
    trace.enters_sleep_call_with(210, 1, call::FUTEX, sleep).sleeps(210, 1);
    add_response(&mut trace, 9_100, 1);
    assert_eq!((longest_span(&trace).cause, trace.first_timeline().time_of_cause_ns(NotExplained)), (Timer, 0));
}

#[test]
fn file_system_calls_wait_for_the_disk_for_any_waker() {
    const RENAME: u32 = 82;
    for (number, file, cause) in [
        (call::FSYNC, REGULAR, Disk),
        (call::FDATASYNC, REGULAR, Disk),
        (RENAME, 0, Disk),
        (call::WRITE, REGULAR, Disk),
        (call::PWRITE, REGULAR, Disk),
        (call::WRITE, SOCKET, NotExplained),
    ] {
        let mut trace = trace_with_received_request();
        let on = SleepArguments { argument: 4, file, ..SleepArguments::default() };
        trace.enters_sleep_call_with(210, 1, number, on).switched(210, 1, IDLE_TASK, leave::BLOCKED);
        trace.woken_in_call(9_000, 960, 1, call::WRITE).gets_cpu(9_010, 1);
        add_response(&mut trace, 9_100, 1);
        assert_eq!(longest_span(&trace).cause, cause, "{number}");
    }
}

#[test]
fn run_queue_delay_of_a_lock_holder_counts_as_the_lock() {
    let mut trace = Trace::new();
    let on = SleepArguments { argument: LOCK, named: FUTEX_WAIT, expected: 2, ..SleepArguments::default() };
    // Thread 5 has the CPU and the lock when the request arrives.
    trace.gets_cpu(10, 5).data_ready(90, 7, 10).woken(91, IDLE_TASK, 1).switched(4_000, 5, 1, leave::PREEMPTED);
    trace.received(4_010, 1, 7, 10, 1).started(4_010, 1, 7, 1, 90);
    trace.enters_sleep_call_with(4_020, 1, call::FUTEX, on).switched(4_020, 1, 5, leave::SLEEPS);
    trace.woken_in_call(6_000, 5, 1, call::FUTEX).switched(6_010, 5, 1, leave::PREEMPTED);
    add_response(&mut trace, 6_100, 1);
    let timeline = trace.first_timeline();
    assert_eq!((timeline.time_of_cause_ns(Lock), timeline.time_of_cause_ns(RunQueue)), (3_909_000 + 1_980_000, 10_000));
    let doing = |span: &Span| span.wait.map(|wait| (span.by_tid, wait.doing, wait.ended));
    let locks: Vec<_> = timeline.spans.iter().filter(|span| span.cause == Lock).map(doing).collect();
    let ended = [WaitEnd::Unknown, WaitEnd::Thread(Some(call::FUTEX))];
    assert_eq!(locks, ended.map(|ended| Some((5, Activity::Ran, ended))));
}

#[test]
fn a_wait_for_a_cpu_says_whether_the_service_itself_had_it() {
    for (tid, detail) in [(5, BY_OWN), (901, 0)] {
        let mut trace = Trace::new();
        trace.gets_cpu(10, tid).data_ready(90, 7, 10).woken(91, IDLE_TASK, 1).switched(4_000, tid, 1, leave::PREEMPTED);
        trace.received(4_010, 1, 7, 10, 1).started(4_010, 1, 7, 1, 90);
        add_response(&mut trace, 4_100, 1);
        assert_eq!((longest_span(&trace).cause, longest_span(&trace).detail), (RunQueue, detail), "{tid}");
    }
}

#[test]
fn threads_of_a_user_space_scheduler_hold_no_lock() {
    for (number, cause) in [(call::FUTEX, Inside), (call::EPOLL_WAIT, Inside), (call::NANOSLEEP, Timer)] {
        let mut trace = trace_with_received_request();
        // Thread 1 wakes thread 5, and later thread 5 wakes thread 1, as threads that share a mutex do.
        trace.enters_sleep_call(10, 5, call::FUTEX, LOCK).set_last_cpu(1).sleeps(10, 5).set_last_cpu(1);
        trace.woken_in_call(150, 1, 5, call::FUTEX).gets_cpu(160, 5).set_last_cpu(1);
        let on = SleepArguments { argument: LOCK, named: FUTEX_WAIT, expected: 2, ..SleepArguments::default() };
        trace
            .enters_sleep_call_with(210, 1, number, on)
            .sleeps(210, 1)
            .woken_in_call(9_000, 5, 1, call::FUTEX)
            .set_last_cpu(1);
        trace.gets_cpu(9_010, 1);
        add_response(&mut trace, 9_100, 1);
        trace.event(5, Kind::Tasks, SERVICE, Tasks::Move as u32);
        let timeline = trace.first_timeline();
        let times = [cause, Lock, HandOver].map(|cause| timeline.time_of_cause_ns(cause));
        assert_eq!(times, [8_790_000, 0, 0], "{number}");
    }
}

/// Returns the timeline of a request on an event loop that asks another service at 200 µs. The loop waits until an
/// answer, if there is one, and then for a timeout.
fn timeline_of_call_on_loop(port: u16, connects: bool, has_answered_before: bool) -> Timeline {
    let mut trace = Trace::new();
    if has_answered_before {
        trace
            .data_ready(10, 8, 20)
            .received(20, 1, 8, 20, 2)
            .started(20, 1, 8, 2, 10)
            .sends_to_service(30, 1, 19, port, UDP);
        trace.enters_sleep_call(32, 1, call::EPOLL_WAIT, 4).sleeps(32, 1).woken(40, IDLE_TASK, 1).gets_cpu(42, 1);
        trace.downstream_io(45, Kind::Received, 1, 19);
        trace.transmitted(50, 8, 30).sent(50, 1, 8, 30, 2).finished(50, 1, 8, 2, 20).sleeps(60, 1);
    }
    trace.records.extend(trace_with_received_request().records.split_off(if has_answered_before { 3 } else { 0 }));
    trace.sends_to_service(200, 1, 9, port, UDP);
    if connects {
        trace.records.last_mut().expect("a record").kind = Kind::Connects;
    }
    trace.enters_sleep_call(210, 1, call::EPOLL_WAIT, 4).sleeps(210, 1);
    // Other events wake the event loop.
    let wait = SleepArguments { timeout_ms: 70, ..SleepArguments::default() };
    trace.woken(300, IDLE_TASK, 1).gets_cpu(310, 1);
    trace.enters_sleep_call_with(320, 1, call::EPOLL_WAIT, wait).sleeps(320, 1);
    trace.data_ready(4_000, 18, 10).woken(4_000, IDLE_TASK, 1).gets_cpu(4_010, 1).received(4_020, 1, 18, 10, 3);
    trace.started(4_020, 1, 18, 3, 4_000).transmitted(4_030, 18, 30).sent(4_030, 1, 18, 30, 3);
    trace.finished(4_030, 1, 18, 3, 4_020);
    trace.enters_sleep_call_with(4_040, 1, call::EPOLL_WAIT, wait).sleeps(4_040, 1);
    trace.woken(9_000, IDLE_TASK, 1).gets_cpu(9_010, 1);
    add_response(&mut trace, 9_100, 1);
    trace.first_timeline()
}

#[test]
fn unanswered_question_on_a_loop_has_cause_no_answer() {
    for (port, connects, has_answered_before) in [(8_080, true, false), (53, false, false), (5_399, false, true)] {
        let timeline = timeline_of_call_on_loop(port, connects, has_answered_before);
        let span = timeline.spans.iter().find(|span| span.cause == NoAnswer).expect("no answer");
        let wait = span.wait.expect("what it waited for");
        assert_eq!((wait.object, wait.connects), (local_service(port, UDP), connects));
        assert_eq!((wait.ended, wait.timeout_ms), (WaitEnd::Unknown, 0), "other events ended it");
        assert!(timeline.time_of_cause_ns(NoAnswer) > 4_900_000, "{port}: {timeline:?}");
    }
    // Some peers never answer: a collector of statistics, for example.
    assert_eq!(timeline_of_call_on_loop(8_125, false, false).time_of_cause_ns(NoAnswer), 0);
}

#[test]
fn a_timeout_of_an_event_loop_may_be_of_any_request() {
    let mut trace = trace_with_two_requests_on_loop(call::EPOLL_WAIT, true);
    trace.data_ready(10_000, 18, 10).received(10_010, 1, 18, 10, 3).started(10_010, 1, 18, 3, 10_000);
    trace
        .enters_sleep_call(10_020, 1, call::EPOLL_WAIT, 4)
        .sleeps(10_020, 1)
        .woken_by_timer(19_000, 1)
        .gets_cpu(19_010, 1);
    trace.transmitted(19_100, 18, 30).sent(19_100, 1, 18, 30, 3).finished(19_100, 1, 18, 3, 10_010);
    let span = longest_span_of(&trace, 3);
    assert_eq!((span.cause, span.wait.map(|wait| wait.ended)), (Inside, Some(WaitEnd::Timer)));
}

#[test]
fn a_wait_for_a_cpu_names_the_thread_that_had_it_for_longest() {
    let mut trace = Trace::new();
    trace.gets_cpu(10, 901).data_ready(90, 7, 10).woken(91, IDLE_TASK, 1);
    trace.switched(3_900, 901, 960, leave::PREEMPTED).switched(3_950, 960, 1, leave::SLEEPS);
    trace.records.last_mut().expect("a record").task.pid = 960;
    trace.received(4_010, 1, 7, 10, 1).started(4_010, 1, 7, 1, 90);
    add_response(&mut trace, 4_100, 1);
    let span = longest_span(&trace);
    assert_eq!((span.cause, span.by_tid, span.by_pid), (RunQueue, 901, STRANGER));
}

/// Returns the longest span of a request whose thread sleeps from 210 µs to 9 ms in the system call `number`. `before`
/// adds records before the sleep, and `wakes` those of its end.
fn span_of_sleep(number: u32, on: SleepArguments, before: impl Fn(&mut Trace), wakes: impl Fn(&mut Trace)) -> Span {
    let mut trace = trace_with_received_request();
    before(&mut trace);
    trace.enters_sleep_call_with(210, 1, number, on).sleeps(210, 1);
    wakes(&mut trace);
    trace.gets_cpu(9_010, 1);
    add_response(&mut trace, 9_100, 1);
    longest_span(&trace)
}

fn by_interrupt(trace: &mut Trace) {
    trace.woken(9_000, IDLE_TASK, 1);
}

fn by_thread(trace: &mut Trace) {
    trace.woken_in_call(9_000, 5, 1, call::WRITE);
}

fn asks(trace: &mut Trace) {
    trace.sends_to_service(200, 1, 9, 6_379, 6);
}

#[test]
fn file_of_a_wait_says_its_object() {
    for (file, named, object) in [
        (0, 0, Object::Unknown),
        (PIPE, 4_711, Object::Pipe(4_711)),
        (SOCKET, 1 | 1 << 16, Object::UnixSocket),
        (SOCKET, 16 | 3 << 16, Object::Socket),
        (13, 0, Object::Event),
        (14, 0, Object::Timer),
        (REGULAR, 77, Object::File(5, 77)),
    ] {
        let on = SleepArguments { argument: 5, named, file, ..SleepArguments::default() };
        let span = span_of_sleep(call::READ, on, |_| (), by_thread);
        assert_eq!((span.cause, span.wait.map(|wait| wait.object)), (HandOver, Some(object)), "{file}");
    }
}

#[test]
fn wait_after_a_question_keeps_its_own_object() {
    let on = SleepArguments { argument: LOCK, named: FUTEX_WAIT, expected: 2, ..SleepArguments::default() };
    let by_futex = |trace: &mut Trace| {
        trace.woken_in_call(9_000, 5, 1, call::FUTEX);
    };
    let span = span_of_sleep(call::FUTEX, on, asks, by_futex);
    assert_eq!((span.cause, span.wait.map(|wait| wait.object)), (Lock, Some(Object::Futex(FUTEX_WAIT, true))));
    let on = SleepArguments { argument: 5, named: 4_711, file: PIPE, ..SleepArguments::default() };
    let span = span_of_sleep(call::READ, on, asks, by_thread);
    assert_eq!((span.cause, span.wait.map(|wait| wait.object)), (HandOver, Some(Object::Pipe(4_711))));
}

#[test]
fn wait_at_a_socket_is_for_its_own_peer() {
    let at = |socket| SleepArguments { argument: 5, socket, file: SOCKET, named: 2, ..SleepArguments::default() };
    let receives = |socket, before: fn(&mut Trace)| span_of_sleep(call::RECVFROM, at(socket), before, by_interrupt);
    let objects = |span: Span| (span.cause, span.wait.map(|wait| wait.object));
    let service = Some(local_service(6_379, 6));
    assert_eq!(objects(receives(7, asks)), (NetworkReceive, Some(Object::Client)), "more data of the client");
    assert_eq!(objects(receives(9, asks)), (Downstream, service), "an answer that is not read");
    assert_eq!(objects(receives(12, asks)).0, NotExplained, "another socket");
    // Another thread asked on this connection.
    let other_asks = |trace: &mut Trace| {
        trace.gets_cpu(190, 5).set_last_cpu(1).sends_to_service(200, 5, 9, 6_379, 6).set_last_cpu(1);
    };
    assert_eq!(objects(receives(9, other_asks)), (Downstream, service));
    let sends = span_of_sleep(call::SENDTO, at(9), asks, by_interrupt);
    assert_eq!(objects(sends), (Full, service), "the other service does not read");
    let splices = |socket| span_of_sleep(call::SPLICE, at(socket), asks, by_interrupt);
    assert_eq!([objects(splices(7)).0, objects(splices(9)).0], [NetworkReceive, Downstream]);
}

#[test]
fn connection_that_is_refused_is_waited_for_until_then() {
    let connects = |trace: &mut Trace| {
        asks(trace);
        trace.records.last_mut().expect("a record").kind = Kind::Connects;
    };
    for (before, cause) in [(connects as fn(&mut Trace), Connect), (asks, Downstream)] {
        let span = span_of_sleep(call::POLL, SleepArguments::default(), before, by_interrupt);
        let wait = span.wait.expect("what it waited for");
        assert_eq!((span.cause, wait.object, wait.connects), (cause, local_service(6_379, 6), cause == Connect));
    }
}

#[test]
fn sleep_that_an_interrupt_ends_has_no_thread_to_blame() {
    const TEE: u32 = 276;
    let bitset = SleepArguments { argument: LOCK, named: FUTEX_WAIT_BITSET, ..SleepArguments::default() };
    let on = |file| SleepArguments { argument: 5, named: 4_711, file, ..SleepArguments::default() };
    for (number, on, cause) in [
        (call::FUTEX, bitset, NotExplained),
        (call::FLOCK, on(REGULAR), NotExplained),
        (call::READ, on(PIPE), NotExplained),
        (TEE, on(PIPE), NotExplained),
        (call::SPLICE, on(REGULAR), NotExplained),
        (call::SPLICE, on(PIPE), SendBuffer),
    ] {
        assert_eq!(span_of_sleep(number, on, |_| (), by_interrupt).cause, cause, "{number}");
    }
}

#[test]
fn disk_that_answered_is_not_the_end_of_another_wait() {
    let disk = |trace: &mut Trace| {
        trace.event(5_000, Kind::DiskCompleted, 1, 8 << 20);
    };
    let span = span_of_sleep(call::READ, SleepArguments::default(), disk, by_thread);
    assert_eq!((span.cause, span.detail), (HandOver, 0));
}

/// Returns the activity of thread 5, which ends the wait of a request's thread at 9 ms.
fn activity_of_waker(before: impl Fn(&mut Trace)) -> Activity {
    let runs = |trace: &mut Trace| {
        trace.gets_cpu(150, 5).set_last_cpu(1);
        let old = trace.records.len();
        before(trace);
        trace.records[old..].iter_mut().for_each(|record| record.cpu = 1);
    };
    let wakes = |trace: &mut Trace| {
        trace.woken_in_call(9_000, 5, 1, call::FUTEX).set_last_cpu(1);
    };
    let on = SleepArguments { argument: LOCK, named: FUTEX_WAIT, expected: 2, ..SleepArguments::default() };
    let span = span_of_sleep(call::FUTEX, on, runs, wakes);
    assert_eq!((span.cause, span.by_tid), (Lock, 5));
    span.wait.expect("what it waited for").doing
}

#[test]
fn activity_of_the_waker_is_that_of_most_of_the_wait() {
    let sleeps = |number| {
        move |trace: &mut Trace| {
            trace.enters_sleep_call(160, 5, number, 4).sleeps(160, 5).woken(8_000, IDLE_TASK, 5).gets_cpu(8_010, 5);
        }
    };
    assert_eq!(activity_of_waker(|_| ()), Activity::Ran);
    assert_eq!(activity_of_waker(sleeps(call::NANOSLEEP)), Activity::Slept);
    assert_eq!(activity_of_waker(sleeps(call::EPOLL_WAIT)), Activity::WaitedForRequest);
    assert_eq!(activity_of_waker(sleeps(call::RECVFROM)), Activity::WaitedForRequest);
    assert_eq!(activity_of_waker(sleeps(call::FLOCK)), Activity::Waited);
    assert_eq!(
        activity_of_waker(|trace| {
            trace.switched(160, 5, 901, leave::PREEMPTED).switched(8_000, 901, 5, leave::PREEMPTED);
        }),
        Activity::WaitedForCpu
    );
    assert_eq!(
        activity_of_waker(|trace| {
            trace.switched(160, 5, IDLE_TASK, leave::BLOCKED).event(7_990, Kind::DiskCompleted, 5, 8 << 20);
            trace.woken(8_000, IDLE_TASK, 5).gets_cpu(8_010, 5);
        }),
        Activity::WaitedForDisk
    );
    // It runs in three parts, which together are most of the wait, and does nothing else for as long.
    assert_eq!(
        activity_of_waker(|trace| {
            for (from_us, to_us) in [(1_700, 3_200), (5_000, 6_500)] {
                trace.enters_sleep_call(from_us, 5, call::NANOSLEEP, 0).sleeps(from_us, 5);
                trace.woken(to_us, IDLE_TASK, 5).gets_cpu(to_us, 5);
            }
        }),
        Activity::Ran
    );
    // Nothing takes most of the wait.
    assert_eq!(
        activity_of_waker(|trace| {
            trace.enters_sleep_call(3_200, 5, call::NANOSLEEP, 0).sleeps(3_200, 5).woken(6_000, IDLE_TASK, 5);
            trace.gets_cpu(6_000, 5).enters_sleep_call(7_000, 5, call::EPOLL_WAIT, 4).sleeps(7_000, 5);
            trace.woken(8_900, IDLE_TASK, 5).gets_cpu(8_990, 5);
        }),
        Activity::Unknown
    );
}

#[test]
fn thread_that_has_run_between_two_waits_had_the_lock() {
    let times = |ran_us: u64| {
        let mut trace = trace_with_received_request();
        let on = SleepArguments { argument: LOCK, named: FUTEX_WAIT, expected: 2, ..SleepArguments::default() };
        let timed = SleepArguments { timeout_ms: 5, ..on };
        trace.enters_sleep_call_with(210, 1, call::FUTEX, timed).sleeps(210, 1);
        trace.woken_by_timer(5_210, 1).gets_cpu(5_210, 1);
        let from_us = 5_210 + ran_us;
        trace.enters_sleep_call_with(from_us, 1, call::FUTEX, on).sleeps(from_us, 1);
        trace.woken_in_call(from_us + 2_000, 5, 1, call::FUTEX).gets_cpu(from_us + 2_000, 1);
        add_response(&mut trace, 9_900, 1);
        let timeline = trace.first_timeline();
        [Lock, Timer].map(|cause| timeline.time_of_cause_ns(cause))
    };
    assert_eq!([times(900), times(1_100)], [[7_000_000, 0], [2_000_000, 5_000_000]]);
}

#[test]
fn wait_for_a_cpu_of_another_process_of_the_service_is_its_own() {
    let detail = |is_service: bool| {
        let mut trace = Trace::new();
        trace.gets_cpu(10, 901);
        if is_service {
            trace.data_ready(20, 8, 10).received(30, 901, 8, 10, 2).started(30, 901, 8, 2, 20);
        }
        trace.data_ready(90, 7, 10).woken(91, IDLE_TASK, 1).switched(4_000, 901, 1, leave::PREEMPTED);
        trace.received(4_010, 1, 7, 10, 1).started(4_010, 1, 7, 1, 90);
        add_response(&mut trace, 4_100, 1);
        (longest_span(&trace).cause, longest_span(&trace).detail)
    };
    assert_eq!([detail(true), detail(false)], [(RunQueue, BY_OWN), (RunQueue, 0)]);
}

#[test]
fn short_sleep_of_a_user_space_scheduler_is_idle_time() {
    let mut trace = trace_with_received_request();
    trace.event(5, Kind::Tasks, SERVICE, Tasks::Move as u32);
    for (from_us, to_us) in [(1_000, 1_900), (3_000, 4_100)] {
        trace.enters_sleep_call(from_us, 1, call::NANOSLEEP, 0).sleeps(from_us, 1);
        trace.woken_by_timer(to_us, 1).gets_cpu(to_us, 1);
    }
    add_response(&mut trace, 9_100, 1);
    let timeline = trace.first_timeline();
    assert_eq!([Inside, Timer].map(|cause| timeline.time_of_cause_ns(cause)), [900_000, 1_100_000]);
}

#[test]
fn wait_before_a_question_is_not_for_its_answer() {
    let mut trace = trace_with_received_request();
    for (from_us, to_us) in [(210, 4_000), (4_110, 9_000)] {
        trace.enters_sleep_call(from_us, 1, call::EPOLL_WAIT, 4).sleeps(from_us, 1);
        trace.woken(to_us, IDLE_TASK, 1).gets_cpu(to_us, 1);
    }
    trace.sends_to_service(4_100, 1, 9, 53, UDP);
    add_response(&mut trace, 9_100, 1);
    let timeline = trace.first_timeline();
    let times = [Inside, NoAnswer, Downstream].map(|cause| timeline.time_of_cause_ns(cause));
    assert_eq!(times, [3_790_000, 0, 4_890_000], "{timeline:?}");
}
