//! One test for each cause of a request's time, each with a trace written by hand.

mod common;

use common::*;
use sidelane_timeline::builder::Settings;
use sidelane_timeline::cause::Cause::{self, *};
use sidelane_timeline::record::{Kind, Kinds, NO_CALL, Record, fault, leave, pause};
use sidelane_timeline::timeline::Span;

/// First spans of request 1 in `trace_with_received_request`: begin and end in µs, and cause.
const BEGIN: [(u64, u64, Cause); 3] = [(100, 102, NetworkReceive), (102, 110, RunQueue), (110, 120, OnCpu)];

/// Returns the spans of request 1 after `BEGIN`, and checks that its timeline is complete.
#[track_caller]
fn spans_after_begin(trace: &Trace) -> Vec<(u64, u64, Cause)> {
    let timeline = trace.first_timeline();
    assert_eq!(timeline.incomplete, None);
    let mut parts = spans_in_us(&timeline);
    assert_eq!(parts[..2], BEGIN[..2]);
    assert_eq!((parts[2].0, parts[2].2), (110, OnCpu));
    parts[2].0 = 120;
    parts.drain(..2 + usize::from(parts[2].1 == 120));
    parts
}

/// Returns the span with this cause in the timeline of request 1.
#[track_caller]
fn span_of_cause(trace: &Trace, cause: Cause) -> Span {
    trace.first_timeline().spans.into_iter().find(|span| span.cause == cause).expect("such a span")
}

#[test]
fn work_of_a_thread_has_cause_on_cpu() {
    let mut trace = trace_with_received_request();
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace), [(120, 500, OnCpu)]);
    assert_eq!(trace.first_timeline().latency_ns(), 400_000);
}

#[test]
fn timeline_has_the_port_of_the_client() {
    let mut trace = trace_with_received_request();
    trace.records.last_mut().expect("its start").detail = 40_000;
    add_response(&mut trace, 500, 1);
    assert_eq!(trace.first_timeline().peer_port, 40_000);
}

#[test]
fn time_between_segments_has_cause_network_receive() {
    let mut trace = trace_with_received_request();
    trace.add_record(50, Kind::Segment, IDLE_TASK, |record| record.detail = 5).data_ready(55, 7, 5);
    add_response(&mut trace, 500, 1);
    let timeline = trace.first_timeline();
    assert_eq!(timeline.arrived_ns, trace_time_ns(50));
    assert_eq!(spans_in_us(&timeline)[..2], [(50, 100, NetworkReceive), (100, 102, NetworkReceive)]);
}

#[test]
fn wait_for_a_busy_thread_has_cause_service_queue() {
    let mut trace = trace_with_received_request();
    trace.data_ready(130, 8, 20);
    add_response(&mut trace, 500, 1);
    trace.received(510, 1, 8, 20, 2).started(510, 1, 8, 2, 130);
    trace.transmitted(600, 8, 30).sent(600, 1, 8, 30, 2).finished(600, 1, 8, 2, 510);
    let second = trace.timelines().into_iter().find(|timeline| timeline.request == 2).expect("it ended");
    assert_eq!(spans_in_us(&second), [(130, 500, ServiceQueue), (500, 510, ServiceQueue), (510, 600, OnCpu)]);
    assert_eq!((second.spans[0].behind, second.spans[0].by_tid), (1, 1));
}

#[test]
fn wait_for_a_busy_cpu_has_cause_run_queue() {
    let mut trace = trace_with_received_request();
    trace.switched(200, 1, 901, leave::PREEMPTED).switched(300, 901, 1, leave::PREEMPTED);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace), [(120, 200, OnCpu), (200, 300, RunQueue), (300, 500, OnCpu)]);
    let waited = trace.first_timeline().spans.into_iter().rfind(|span| span.cause == RunQueue).expect("a wait");
    assert_eq!((waited.by_tid, waited.by_pid), (901, STRANGER));
}

#[test]
fn wait_for_a_cpu_of_the_tracer_has_cause_tracer() {
    let mut trace = trace_with_received_request();
    trace.switched(200, 1, 901, leave::PREEMPTED).switched(300, 901, 1, leave::PREEMPTED);
    add_response(&mut trace, 500, 1);
    let waits = |tracer_pid| {
        trace.timelines_with_builder(|builder| builder.set_tracer_pid(tracer_pid))[0].time_of_cause_ns(Tracer)
    };
    assert_eq!((waits(STRANGER), waits(SERVICE), waits(0)), (100_000, 0, 0));
}

#[test]
fn only_cpu_time_of_the_tracer_has_cause_tracer() {
    let mut trace = trace_with_received_request();
    trace.switched(200, 1, 5, leave::PREEMPTED).switched(260, 5, 901, leave::PREEMPTED);
    trace.switched(300, 901, 5, leave::PREEMPTED).switched(330, 5, 1, leave::PREEMPTED);
    trace.sleeps(340, 1).woken(350, IDLE_TASK, 1).switched(380, 901, 1, leave::PREEMPTED);
    add_response(&mut trace, 500, 1);
    let timeline = trace.timelines_with_builder(|builder| builder.set_tracer_pid(STRANGER)).remove(0);
    let waits: Vec<(u64, u64, Cause)> =
        spans_in_us(&timeline).into_iter().filter(|(.., cause)| matches!(cause, RunQueue | Tracer)).collect();
    let after_it_was_taken_up = [(200, 260, RunQueue), (260, 300, Tracer), (300, 330, RunQueue), (350, 380, Tracer)];
    assert_eq!(waits[waits.len() - 4..], after_it_was_taken_up);
}

#[test]
fn move_to_another_cpu_has_cause_migration() {
    let mut trace = trace_with_received_request();
    trace.switched(200, 1, 902, leave::PREEMPTED);
    trace.add_record(205, Kind::Migrated, 1, |record| record.value = 1);
    trace.gets_cpu(300, 1).set_last_cpu(1);
    add_response(&mut trace, 500, 1);
    trace.records.iter_mut().filter(|record| record.at_ns >= trace_time_ns(400)).for_each(|record| record.cpu = 1);
    assert_eq!(spans_after_begin(&trace)[1..3], [(200, 205, RunQueue), (205, 300, Migration)]);
}

#[test]
fn thread_that_moves_itself_has_cause_migration() {
    let mut trace = trace_with_received_request();
    trace.enters_sleep_call(200, 1, 203, 0).switched(200, 1, 902, leave::BLOCKED).woken(210, 902, 1);
    trace.gets_cpu(300, 1).set_last_cpu(1);
    add_response(&mut trace, 500, 1);
    trace.records.iter_mut().filter(|record| record.at_ns >= trace_time_ns(310)).for_each(|record| record.cpu = 1);
    assert_eq!(trace.first_timeline().time_of_cause_ns(Migration), 100_000);
}

#[test]
fn wakeup_on_an_idle_cpu_has_cause_idle_exit() {
    let mut trace = trace_with_received_request();
    trace.ended_event(108, Kind::IdleLeft, IDLE_TASK, 50, 1);
    add_response(&mut trace, 500, 1);
    let parts = spans_in_us(&trace.first_timeline());
    assert_eq!(parts[1..3], [(102, 108, IdleExit), (108, 110, RunQueue)]);
}

#[test]
fn interrupt_on_the_cpu_has_cause_interrupt() {
    let mut trace = trace_with_received_request();
    trace.ended_event(300, Kind::Softirq, IDLE_TASK, 100, 3).ended_event(260, Kind::Interrupt, IDLE_TASK, 20, 40);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace)[1..4], [(200, 240, Interrupt), (240, 260, Interrupt), (260, 300, Interrupt)]);
}

#[test]
fn time_of_the_hypervisor_has_cause_stolen() {
    let mut trace = trace_with_received_request();
    trace.ended_event(300, Kind::Stolen, IDLE_TASK, 100, 0).ended_event(290, Kind::Interrupt, IDLE_TASK, 20, 40);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace), [(120, 200, OnCpu), (200, 300, Stolen), (300, 500, OnCpu)]);
}

#[test]
fn work_beside_batch_has_cause_sibling() {
    let mut trace = trace_with_received_request();
    trace.ended_event(300, Kind::Overlap, 1, 100, 3);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace), [(120, 200, OnCpu), (200, 300, Sibling), (300, 500, OnCpu)]);
}

#[test]
fn fault_with_begin_and_end_has_cause_page_fault() {
    let mut trace = trace_with_received_request();
    trace.event(200, Kind::PageFault, 1, 1).event(300, Kind::PageFault, 1, 2);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace), [(120, 200, OnCpu), (200, 300, PageFault), (300, 500, OnCpu)]);
}

#[test]
fn fault_without_an_end_lasts_until_the_next_record_if_soon() {
    let mut trace = trace_with_received_request();
    for us in [200, 203, 206, 400] {
        trace.event(us, Kind::PageFault, 1, 1);
    }
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace)[..3], [(120, 200, OnCpu), (200, 206, PageFault), (206, 500, OnCpu)]);
}

#[test]
fn fault_with_a_recorded_end_has_its_full_length() {
    let mut trace = trace_with_received_request();
    trace.event(200, Kind::PageFault, 1, 1).event(9_000, Kind::PageFault, 1, 2);
    // The record at 9,001 µs counts the pages of the same fault again. The fault at 9,100 µs changes no number of
    // pages, so the kernel records no end of it, and the thread works long after it.
    trace.event(9_001, Kind::PageFault, 1, 2).event(9_100, Kind::PageFault, 1, 1);
    trace.event(9_500, Kind::PageFault, 1, 1).event(9_503, Kind::PageFault, 1, 1).event(9_700, Kind::PageFault, 1, 2);
    add_response(&mut trace, 9_900, 1);
    let faults = [(200, 9_000, PageFault), (9_000, 9_500, OnCpu), (9_500, 9_700, PageFault), (9_700, 9_900, OnCpu)];
    assert_eq!(spans_after_begin(&trace)[1..5], faults);
}

#[test]
fn preempted_page_fault_continues_afterwards() {
    let mut trace = trace_with_received_request();
    trace.event(200, Kind::PageFault, 1, 1).switched(250, 1, 901, leave::PREEMPTED);
    trace.switched(300, 901, 1, leave::PREEMPTED).event(400, Kind::PageFault, 1, 2);
    add_response(&mut trace, 500, 1);
    let parts = [(200, 250, PageFault), (250, 300, RunQueue), (300, 400, PageFault), (400, 500, OnCpu)];
    assert_eq!(spans_after_begin(&trace)[1..5], parts);
}

#[test]
fn sleep_belongs_to_the_current_fault_and_no_earlier_one() {
    let cause = |begins: u32, fault_us: u64, call: u32| {
        let mut trace = trace_with_received_request();
        trace.event(fault_us, Kind::PageFault, 1, begins);
        trace.enters_sleep_call(3_000, 1, call, 0).sleeps(3_000, 1).woken(3_400, 6, 1).gets_cpu(3_410, 1);
        add_response(&mut trace, 3_500, 1);
        spans_after_begin(&trace).into_iter().find(|part| part.0 == 3_000).map(|part| part.2)
    };
    const READ: u32 = 0;
    assert_eq!(cause(fault::BEGINS, 200, NO_CALL), Some(PageFault));
    assert_eq!(cause(fault::BEGINS, 2_995, READ), Some(HandOver), "what came before the call is over");
    assert_eq!(cause(fault::BEGINS_IN_CALL, 2_900, READ), Some(PageFault));
    assert_eq!(cause(fault::BEGINS_IN_CALL, 1_900, READ), Some(HandOver), "of an earlier call");
    assert_eq!(cause(fault::BEGINS_IN_CALL, 2_995, NO_CALL), Some(HandOver), "that call is over");
}

/// A futex with the value of a mutex that another thread holds.
const MUTEX: SleepArguments =
    SleepArguments { argument: 0xbeef, named: 0, expected: 2, socket: 0, file: 0, timeout_ms: 0 };

#[test]
fn runtime_pause_has_cause_collection_or_safepoint() {
    for (kind, cause) in [(pause::YOUNG_COLLECTION, Collection), (pause::CLASS_LOADING, Safepoint)] {
        let mut trace = trace_with_received_request();
        trace.event(200, Kind::PauseBegan, 5, kind);
        trace.enters_sleep_call_with(210, 1, 202, MUTEX).sleeps(210, 1);
        trace.woken(400, 6, 1).event(395, Kind::PauseEnded, 5, kind).gets_cpu(410, 1);
        add_response(&mut trace, 500, 1);
        let held = [(200, 210, cause), (210, 395, cause), (395, 400, Lock), (400, 410, RunQueue)];
        assert_eq!(spans_after_begin(&trace), [&[(120, 200, OnCpu)], &held[..], &[(410, 500, OnCpu)]].concat());
    }
}

#[test]
fn work_of_a_collecting_thread_belongs_to_the_pause() {
    let mut trace = trace_with_received_request();
    trace.woken(190, 1, 2).enters_sleep_call(195, 1, 202, 0xbeef).sleeps(195, 1).gets_cpu(196, 2);
    trace.event(200, Kind::PauseBegan, 5, pause::FULL_COLLECTION).event(395, Kind::PauseEnded, 5, 0);
    trace.woken(397, 2, 1).sleeps(398, 2).gets_cpu(400, 1);
    add_response(&mut trace, 500, 1);
    let of_pause: u64 =
        spans_after_begin(&trace).iter().filter(|part| part.2 == Collection).map(|part| part.1 - part.0).sum();
    assert_eq!(of_pause, 195);
}

#[test]
fn wait_for_a_held_mutex_has_cause_lock() {
    let mut trace = trace_with_received_request();
    trace.enters_sleep_call_with(210, 1, 202, MUTEX).sleeps(210, 1);
    trace.woken(400, 6, 1).gets_cpu(410, 1);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace)[1..3], [(210, 400, Lock), (400, 410, RunQueue)]);
    let lock = span_of_cause(&trace, Lock);
    assert_eq!((lock.by_tid, lock.by_pid, lock.detail), (6, SERVICE, 0xbeef));
}

#[test]
fn wait_for_a_held_kernel_lock_has_cause_lock() {
    let mut trace = trace_with_received_request();
    trace.add_record(200, Kind::LockWaitBegan, 1, |record| (record.other, record.value) = (task(6), 0xfeed));
    trace.switched(210, 1, IDLE_TASK, leave::BLOCKED).woken(400, 6, 1).gets_cpu(400, 1).event(
        402,
        Kind::LockWaitEnded,
        1,
        0,
    );
    add_response(&mut trace, 500, 1);
    assert_eq!(trace.first_timeline().time_of_cause_ns(Lock), 202_000);
    let lock = span_of_cause(&trace, Lock);
    assert_eq!((lock.by_tid, lock.by_pid, lock.detail), (6, SERVICE, 0xfeed));
}

#[test]
fn sleep_that_a_thread_ends_has_cause_hand_over() {
    let mut trace = trace_with_received_request();
    trace.sleeps(210, 1).woken(400, 6, 1).gets_cpu(410, 1);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace)[1], (210, 400, HandOver));
    assert_eq!(span_of_cause(&trace, HandOver).by_tid, 6);
}

#[test]
fn sleep_until_a_set_time_has_cause_timer() {
    let mut trace = trace_with_received_request();
    trace.enters_sleep_call(210, 1, 35, 0).sleeps(210, 1).woken(400, IDLE_TASK, 1).gets_cpu(410, 1);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace)[1], (210, 400, Timer));
}

#[test]
fn wait_for_a_disk_has_cause_disk() {
    let mut trace = trace_with_received_request();
    trace.event(205, Kind::DiskIssued, 1, 8 << 20).switched(210, 1, IDLE_TASK, leave::BLOCKED);
    trace.event(398, Kind::DiskCompleted, 1, 8 << 20).woken(400, IDLE_TASK, 1).gets_cpu(410, 1);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace)[1], (210, 400, Disk));
    assert_eq!(span_of_cause(&trace, Disk).detail, 8 << 20);
}

#[test]
fn memory_reclaim_in_a_fault_has_cause_reclaim() {
    let mut trace = trace_with_received_request();
    trace.event(200, Kind::PageFault, 1, 1).event(210, Kind::ReclaimBegan, 1, 0);
    trace.event(290, Kind::ReclaimEnded, 1, 0).event(300, Kind::PageFault, 1, 2);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace)[1..4], [(200, 210, PageFault), (210, 290, Reclaim), (290, 300, PageFault)]);
}

#[test]
fn used_up_cpu_quota_has_cause_throttled() {
    let mut trace = trace_with_received_request();
    trace.switched(200, 1, 901, leave::PREEMPTED).event(201, Kind::Throttled, 1, 1);
    trace.event(300, Kind::Throttled, 1, 0).switched(310, 901, 1, leave::PREEMPTED);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace)[1..4], [(200, 201, RunQueue), (201, 300, Throttled), (300, 310, RunQueue)]);
}

#[test]
fn runnable_thread_beside_an_idle_cpu_is_throttled() {
    let mut trace = trace_with_received_request();
    trace.switched(200, 1, IDLE_TASK, leave::PREEMPTED).gets_cpu(300, 1);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace)[1], (200, 300, Throttled));
}

#[test]
fn frozen_or_stopped_service_has_cause_frozen() {
    let mut trace = trace_with_received_request();
    trace
        .event(200, Kind::Frozen, 1, 1)
        .sleeps(201, 1)
        .event(300, Kind::Frozen, 1, 0)
        .woken(300, 901, 1)
        .gets_cpu(310, 1);
    trace.switched(350, 1, IDLE_TASK, leave::STOPPED).woken(400, 901, 1).gets_cpu(410, 1);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace)[1], (201, 300, Frozen));
    assert_eq!(spans_after_begin(&trace)[4], (350, 400, Frozen));
}

#[test]
fn response_in_the_send_buffer_has_cause_send_buffer() {
    let mut trace = trace_with_received_request();
    trace.transmitted(300, 7, 10).sent(300, 1, 7, 10, 1).finished(300, 1, 7, 1, 120);
    trace.sent(310, 1, 7, 30, 1).finished(310, 1, 7, 1, 120).sleeps(320, 1);
    trace.event(40_300, Kind::Acknowledged, IDLE_TASK, 10).transmitted(40_305, 7, 30);
    assert_eq!(spans_after_begin(&trace), [(120, 310, OnCpu), (310, 40_305, SendBuffer)]);
    assert_eq!(span_of_cause(&trace, SendBuffer).detail, 20);
    let timeline = trace.first_timeline();
    assert_eq!((timeline.finished_ns, timeline.ended_ns), (trace_time_ns(310), trace_time_ns(40_305)));
}

#[test]
fn resent_segment_has_cause_retransmission() {
    let mut trace = trace_with_received_request();
    add_response(&mut trace, 500, 1).sleeps(510, 1);
    trace.add_record(200_500, Kind::Retransmitted, IDLE_TASK, |record| (record.socket, record.value) = (7, 10));
    assert_eq!(spans_after_begin(&trace), [(120, 500, OnCpu), (500, 200_500, Retransmission)]);
}

#[test]
fn wait_for_another_service_has_cause_downstream() {
    let mut trace = trace_with_received_request();
    trace.sends_to_service(200, 1, 9, 6379, 6).sleeps(210, 1);
    trace.woken(400, IDLE_TASK, 1).gets_cpu(405, 1).downstream_io(410, Kind::Received, 1, 9);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace)[..3], [(120, 200, OnCpu), (200, 400, Downstream), (400, 405, RunQueue)]);
    assert_eq!(span_of_cause(&trace, Downstream).detail, 6379);
    assert_eq!(spans_after_begin(&trace).last(), Some(&(405, 500, OnCpu)));
}

#[test]
fn request_handed_to_a_worker_and_back_is_followed() {
    let mut trace = trace_with_received_request();
    trace.woken(200, 1, 2).sleeps(210, 1);
    trace
        .gets_cpu(220, 2)
        .set_last_cpu(1)
        .woken(400, 2, 1)
        .set_last_cpu(1)
        .gets_cpu(410, 1)
        .sleeps(411, 2)
        .set_last_cpu(1);
    add_response(&mut trace, 500, 1);
    assert_eq!(
        spans_after_begin(&trace),
        [(120, 200, OnCpu), (200, 220, RunQueue), (220, 400, OnCpu), (400, 410, RunQueue), (410, 500, OnCpu)]
    );
    let threads: Vec<u32> = trace.first_timeline().spans.iter().skip(3).map(|span| span.tid).collect();
    assert_eq!(threads, [2, 2, 1, 1]);
}

#[test]
fn late_start_record_of_a_busy_worker_is_a_service_queue() {
    let mut trace = trace_with_received_request();
    trace.records.retain(|record| record.kind != Kind::RequestStarted);
    // Worker 2 works on request 5 until 300 µs, then receives request 1, and sends the response at 500 µs.
    trace
        .gets_cpu(1, 2)
        .set_last_cpu(1)
        .started(90, 2, 8, 5, 80)
        .set_last_cpu(1)
        .finished(300, 2, 8, 5, 90)
        .set_last_cpu(1);
    trace.sleeps(130, 1);
    trace.started(300, 2, 7, 1, 100).set_last_cpu(1);
    trace
        .transmitted(500, 7, 10)
        .set_last_cpu(1)
        .sent(500, 2, 7, 10, 1)
        .set_last_cpu(1)
        .finished(500, 2, 7, 1, 300)
        .set_last_cpu(1);
    assert_eq!(spans_after_begin(&trace), [(120, 300, ServiceQueue), (300, 500, OnCpu)]);
    assert_eq!(span_of_cause(&trace, ServiceQueue).behind, 5);
}

#[test]
fn start_record_with_a_later_number_is_no_loss() {
    let mut trace = trace_with_received_request();
    trace.records.retain(|record| record.kind != Kind::RequestStarted);
    trace.gets_cpu(1, 2).set_last_cpu(1).sleeps(130, 1).started(300, 2, 7, 1, 100).set_last_cpu(1);
    for us in [2_000, 4_000, 6_000] {
        trace.event(us, Kind::SignalDelivered, 2, 10).set_last_cpu(1);
    }
    trace
        .transmitted(8_000, 7, 10)
        .set_last_cpu(1)
        .sent(8_000, 2, 7, 10, 1)
        .set_last_cpu(1)
        .finished(8_000, 2, 7, 1, 300)
        .set_last_cpu(1);
    let is_start = |record: &Record| record.kind == Kind::RequestStarted;
    let records =
        trace.records_numbered_by(|record| if is_start(record) { trace_time_ns(8_000) } else { record.at_ns });
    let timelines = build(Settings::default(), records);
    assert_eq!(timelines.iter().map(|timeline| timeline.incomplete).collect::<Vec<_>>(), [None]);
}

#[test]
fn time_without_a_record_of_its_cause_is_not_explained() {
    let mut trace = trace_with_received_request();
    trace.switched(210, 1, IDLE_TASK, leave::BLOCKED).woken(400, IDLE_TASK, 1).gets_cpu(410, 1);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace)[1], (210, 400, NotExplained));
}

#[test]
fn a_write_that_waits_for_its_reader_is_no_send_buffer() {
    let mut trace = trace_with_received_request();
    trace.enters_sleep_call(210, 1, 1, 5).sleeps(210, 1).woken(400, 901, 1).gets_cpu(410, 1);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace)[1], (210, 400, Full));
    assert_eq!((span_of_cause(&trace, Full).by_tid, span_of_cause(&trace, Full).by_pid), (901, STRANGER));
}

#[test]
fn running_thread_is_no_longer_throttled() {
    let mut trace = trace_with_received_request();
    trace.switched(200, 1, 901, leave::PREEMPTED).event(201, Kind::Throttled, 1, 1);
    trace.switched(310, 901, 1, leave::PREEMPTED);
    trace.switched(350, 1, 901, leave::PREEMPTED).switched(400, 901, 1, leave::PREEMPTED);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace)[2..5], [(201, 310, Throttled), (310, 350, OnCpu), (350, 400, RunQueue)]);
}

#[test]
fn thread_with_a_reused_number_inherits_no_state() {
    let mut trace = trace_with_received_request();
    // Thread 2 gets the request, sleeps in a system call, and ends.
    trace.woken(130, 1, 2).switched(140, 1, 2, leave::SLEEPS).enters_sleep_call(160, 2, 202, 0xbeef);
    trace.switched(160, 2, IDLE_TASK, leave::ENDED);
    // A new thread with number 2 sleeps in no system call, and wakes thread 3.
    trace.woken(200, IDLE_TASK, 2).gets_cpu(210, 2).sleeps(220, 2).woken(230, 6, 2).gets_cpu(240, 2);
    trace.woken(250, 2, 3).switched(260, 2, 3, leave::SLEEPS).woken(300, 3, 1).switched(310, 3, 1, leave::SLEEPS);
    add_response(&mut trace, 500, 1);
    let way: Vec<u32> = trace.first_timeline().spans.iter().map(|span| span.tid).collect();
    assert!(!way.contains(&3), "what it had was not handed on: {way:?}");
}

/// Tests a kernel that does not tell an interrupt's work from the work of the thread that it interrupted.
#[test]
fn without_recorded_wakers_no_lock_is_reported() {
    let kinds = Kinds::all().without(Kind::Woken);
    let told = |trace: &Trace| {
        let timelines = build(Settings { kinds, ..Settings::default() }, trace.numbered_records());
        spans_in_us(&timelines[0]).into_iter().filter(|(from_us, ..)| *from_us >= 120).collect::<Vec<_>>()
    };
    // The numbers 202, 7 and 1 are the system calls futex, poll and write.
    for call in [202, 7, 1] {
        let mut trace = trace_with_received_request();
        trace.enters_sleep_call(200, 1, call, 0x10).sleeps(200, 1).woken(400, 901, 1).gets_cpu(410, 1);
        add_response(&mut trace, 500, 1);
        assert_ne!(spans_after_begin(&trace)[1].2, NotExplained, "call {call}");
        assert!(told(&trace).contains(&(200, 400, NotExplained)), "call {call}: {:?}", told(&trace));
        let timelines = build(Settings { kinds, ..Settings::default() }, trace.numbered_records());
        let span = timelines[0].spans.iter().find(|span| span.from_ns == trace_time_ns(200)).expect("the sleep");
        assert_eq!((span.by_tid, span.by_pid, span.detail, span.wait), (0, 0, 0, None), "call {call}");
    }
    // A response in the send buffer needs no waker, but a thread that sleeps in a send call does.
    let mut trace = trace_with_received_request();
    trace.transmitted(300, 7, 10).sent(300, 1, 7, 30, 1).finished(300, 1, 7, 1, 120).sleeps(320, 1);
    trace.transmitted(40_305, 7, 30);
    assert_eq!(told(&trace), [(300, 40_305, SendBuffer)]);
    let mut trace = trace_with_received_request();
    trace.enters_sleep_call(200, 1, 46, 5).sleeps(200, 1).woken(400, IDLE_TASK, 1).gets_cpu(410, 1);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace)[1], (200, 400, SendBuffer));
    assert!(told(&trace).contains(&(200, 400, NotExplained)), "{:?}", told(&trace));
}

#[test]
fn wait_behind_the_tracer_names_no_other_thread() {
    let mut trace = trace_with_received_request();
    // Thread 5 has the CPU when thread 1 is woken, and then the tracer has it.
    trace.sleeps(200, 1).gets_cpu(205, 5).woken(210, IDLE_TASK, 1).switched(220, 5, 901, leave::SLEEPS);
    trace.switched(240, 901, 1, leave::PREEMPTED);
    add_response(&mut trace, 500, 1);
    let spans = |tracer_pid| {
        let timeline = trace.timelines_with_builder(|builder| builder.set_tracer_pid(tracer_pid)).remove(0);
        let waits = timeline.spans.into_iter().filter(|span| span.from_ns >= trace_time_ns(210));
        waits.take_while(|span| span.cause != OnCpu).map(|span| (span.cause, span.by_tid, span.by_pid)).collect()
    };
    let (with, without): (Vec<_>, Vec<_>) = (spans(STRANGER), spans(0));
    assert_eq!(with, [(RunQueue, 0, 0), (Tracer, 901, STRANGER)]);
    assert_eq!(without, [(RunQueue, 901, STRANGER)]);
}

#[test]
fn the_tracers_long_turn_is_no_other_threads() {
    let mut trace = trace_with_received_request();
    // The tracer has the CPU for most of the wait, and thread 5 for a moment before thread 1.
    trace.switched(200, 1, 901, leave::PREEMPTED).switched(900, 901, 5, leave::SLEEPS);
    trace.switched(950, 5, 1, leave::SLEEPS);
    add_response(&mut trace, 1_000, 1);
    let timeline = trace.timelines_with_builder(|builder| builder.set_tracer_pid(STRANGER)).remove(0);
    let waits: Vec<(Cause, u64, u32)> = timeline
        .spans
        .iter()
        .filter(|span| span.from_ns >= trace_time_ns(200) && span.cause != OnCpu)
        .map(|span| (span.cause, span.length_ns(), span.by_pid))
        .collect();
    assert_eq!(waits, [(Tracer, 700_000, STRANGER), (RunQueue, 50_000, 0)]);
}

#[test]
fn span_has_the_cpu_of_its_thread_unless_it_sleeps() {
    let mut trace = trace_with_received_request();
    trace.sleeps(210, 1).woken(400, 6, 1).gets_cpu(410, 1);
    add_response(&mut trace, 500, 1);
    let cpus: Vec<_> = trace.first_timeline().spans.iter().map(|span| (span.cause, span.cpu)).collect();
    assert_eq!(cpus[cpus.len() - 3..], [(HandOver, None), (RunQueue, Some(0)), (OnCpu, Some(0))]);
}

#[test]
fn sleep_on_another_request_is_a_queue_without_details() {
    let mut trace = trace_with_received_request();
    trace.data_ready(130, 8, 20);
    let timed = SleepArguments { argument: 0xbeef, named: 128 | 9, timeout_ms: 5, ..SleepArguments::default() };
    trace.enters_sleep_call_with(210, 1, 202, timed).sleeps(210, 1).woken_by_timer(5_210, 1).gets_cpu(5_220, 1);
    add_response(&mut trace, 5_500, 1);
    trace.received(5_510, 1, 8, 20, 2).started(5_510, 1, 8, 2, 130);
    trace.transmitted(5_600, 8, 30).sent(5_600, 1, 8, 30, 2).finished(5_600, 1, 8, 2, 5_510);
    let second = trace.timelines().into_iter().find(|timeline| timeline.request == 2).expect("it ended");
    let queued: Vec<_> = second.spans.iter().filter(|span| span.cause == ServiceQueue).collect();
    assert!(queued.iter().any(|span| span.from_ns == trace_time_ns(210)), "{queued:?}");
    for span in queued {
        assert_eq!((span.by_tid, span.by_pid, span.detail, span.wait), (1, SERVICE, 0, None));
    }
}

#[test]
fn batch_beside_another_request_costs_only_that_request() {
    let mut trace = trace_with_received_request();
    trace.data_ready(130, 8, 20).ended_event(300, Kind::Overlap, 1, 100, 3);
    add_response(&mut trace, 500, 1);
    trace.received(510, 1, 8, 20, 2).started(510, 1, 8, 2, 130);
    trace.transmitted(600, 8, 30).sent(600, 1, 8, 30, 2).finished(600, 1, 8, 2, 510);
    let sibling: Vec<u64> = trace.timelines().iter().map(|timeline| timeline.time_of_cause_ns(Sibling)).collect();
    assert_eq!(sibling, [100_000, 0]);
}

#[test]
fn thread_that_answered_for_another_leaves_no_request_behind() {
    let mut trace = trace_with_received_request();
    // Worker 2 answers request 1. Thread 1 runs on, and receives request 2 later.
    trace.woken(200, 1, 2).gets_cpu(210, 2).set_last_cpu(1).data_ready(300, 8, 20);
    trace.transmitted(500, 7, 10).set_last_cpu(1).sent(500, 2, 7, 10, 1).set_last_cpu(1);
    trace.finished(500, 2, 7, 1, 120).set_last_cpu(1).sleeps(510, 2).set_last_cpu(1);
    trace.received(600, 1, 8, 20, 2).started(600, 1, 8, 2, 300);
    trace.transmitted(700, 8, 30).sent(700, 1, 8, 30, 2).finished(700, 1, 8, 2, 600);
    let second = trace.timelines().into_iter().find(|timeline| timeline.request == 2).expect("it ended");
    let behind: Vec<(u64, u64)> = second.spans.iter().map(|span| (span.from_ns, span.behind)).collect();
    assert_eq!(behind, [(trace_time_ns(300), 1), (trace_time_ns(500), 0), (trace_time_ns(600), 0)]);
}

#[test]
fn receiver_keeps_its_next_request_when_a_worker_answers() {
    let mut trace = trace_with_received_request();
    trace.woken(200, 1, 2).gets_cpu(210, 2).set_last_cpu(1);
    trace.data_ready(300, 8, 20).received(310, 1, 8, 20, 2).started(310, 1, 8, 2, 300);
    trace.transmitted(500, 7, 10).set_last_cpu(1).sent(500, 2, 7, 10, 1).set_last_cpu(1);
    trace.finished(500, 2, 7, 1, 120).set_last_cpu(1).sleeps(510, 2).set_last_cpu(1);
    trace.sends_to_service(600, 1, 9, 6_379, 6).sleeps(610, 1).woken(5_000, IDLE_TASK, 1).gets_cpu(5_010, 1);
    trace.downstream_io(5_020, Kind::Received, 1, 9);
    trace.transmitted(5_100, 8, 30).sent(5_100, 1, 8, 30, 2).finished(5_100, 1, 8, 2, 310);
    let second = trace.timelines().into_iter().find(|timeline| timeline.request == 2).expect("it ended");
    assert_eq!(second.time_of_cause_ns(Downstream), 4_400_000, "{second:?}");
}

/// Before a loss of records a condition of thread 2 begins. Its end is lost, or comes while the thread has a request.
#[test]
fn condition_that_began_before_a_loss_delays_no_later_request() {
    for (begins, begin_detail, ends, end_detail) in [
        (Kind::Throttled, 1, None, 0),
        (Kind::Frozen, 1, None, 0),
        (Kind::LockWaitBegan, 0, Some(Kind::LockWaitEnded), 0),
        (Kind::ReclaimBegan, 0, Some(Kind::ReclaimEnded), 0),
        (Kind::PageFault, fault::BEGINS, Some(Kind::PageFault), fault::ENDS),
    ] {
        let mut trace = Trace::new();
        trace.gets_cpu(1, 2).event(50, begins, 2, begin_detail);
        trace.ended_event(60, Kind::Interrupt, IDLE_TASK, 1, 40).ended_event(5_000, Kind::Interrupt, IDLE_TASK, 1, 40);
        // After a loss, the first request of a connection is incomplete, and the second one is not.
        for (us, number, tid) in [(20_000, 1, 1), (30_000, 2, 2)] {
            let seq = 10 * number as u32;
            trace.woken(us - 5_000, IDLE_TASK, tid).data_ready(us, 7, seq).gets_cpu(us + 10, tid);
            trace.received(us + 20, tid, 7, seq, number).started(us + 20, tid, 7, number, us);
            if let Some(ends) = ends.filter(|_| tid == 2) {
                trace.event(us + 100, ends, 2, end_detail);
            }
            trace.transmitted(us + 200, 7, seq).sent(us + 200, tid, 7, seq, number);
            trace.finished(us + 200, tid, 7, number, us + 20).sleeps(us + 210, tid);
        }
        let mut records = trace.numbered_records();
        records.retain(|record| record.at_ns != trace_time_ns(60));
        let timelines = build(Settings::default(), records);
        assert_eq!(timelines[1].incomplete, None, "{begins:?}");
        let parts: Vec<(u64, Cause)> = spans_in_us(&timelines[1]).iter().map(|part| (part.0, part.2)).collect();
        let expected = [(30_000, RunQueue), (30_010, ServiceQueue), (30_020, OnCpu)];
        assert_eq!(parts, expected, "{begins:?}");
    }
}

#[test]
fn exit_from_an_idle_state_takes_two_milliseconds_at_most() {
    for (length_us, cause) in [(1_900, IdleExit), (2_100, NotExplained)] {
        let mut trace = trace_with_received_request();
        trace.sleeps(200, 1).woken(1_000, IDLE_TASK, 1).gets_cpu(1_000 + length_us, 1);
        trace.ended_event(1_000 + length_us, Kind::IdleLeft, IDLE_TASK, length_us, 1);
        add_response(&mut trace, 5_000, 1);
        assert!(spans_after_begin(&trace).contains(&(1_000, 1_000 + length_us, cause)), "{length_us}");
    }
}

#[test]
fn disk_in_a_page_fault_is_the_disk() {
    let mut trace = trace_with_received_request();
    trace.event(205, Kind::PageFault, 1, fault::BEGINS).switched(210, 1, IDLE_TASK, leave::BLOCKED);
    trace.event(398, Kind::DiskCompleted, 1, 8 << 20).woken(400, IDLE_TASK, 1).gets_cpu(400, 1);
    trace.event(405, Kind::PageFault, 1, fault::ENDS);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace)[1..4], [(205, 210, PageFault), (210, 400, Disk), (400, 405, PageFault)]);
}

#[test]
fn worker_that_waits_for_work_at_a_futex_waits_for_no_lock() {
    let mut trace = trace_with_received_request();
    // Thread 3 puts the request, which it got unseen from thread 1, into the queue of worker 2.
    trace.gets_cpu(20, 2).set_last_cpu(1).enters_sleep_call_with(30, 2, 202, MUTEX).set_last_cpu(1);
    trace.sleeps(30, 2).set_last_cpu(1).gets_cpu(20, 3).set_last_cpu(2).sleeps(130, 1);
    trace.woken(300, 3, 2).set_last_cpu(2).gets_cpu(310, 2).set_last_cpu(1);
    trace.transmitted(500, 7, 10).set_last_cpu(1).sent(500, 2, 7, 10, 1).set_last_cpu(1);
    trace.finished(500, 2, 7, 1, 320).set_last_cpu(1);
    let parts = [(120, 300, HandOver), (300, 310, RunQueue), (310, 500, OnCpu)];
    assert_eq!(spans_after_begin(&trace), parts);
}

#[test]
fn pause_of_the_runtime_goes_on_after_the_quota_is_full_again() {
    let mut trace = trace_with_received_request();
    trace.switched(200, 1, 901, leave::PREEMPTED).event(200, Kind::Throttled, 1, 1);
    trace.event(250, Kind::PauseBegan, 5, pause::FULL_COLLECTION).event(300, Kind::Throttled, 1, 0);
    trace.event(400, Kind::PauseEnded, 5, 0).switched(410, 901, 1, leave::PREEMPTED);
    add_response(&mut trace, 500, 1);
    assert_eq!(spans_after_begin(&trace)[1..4], [(200, 300, Throttled), (300, 400, Collection), (400, 410, RunQueue)]);
}
