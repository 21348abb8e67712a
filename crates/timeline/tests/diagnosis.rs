//! Tests of the diagnosis: causes of slow requests, found in timelines written by hand.

use sidelane_timeline::cause::Cause::{self, *};
use sidelane_timeline::cause::{BY_OWN, BY_TCP};
use sidelane_timeline::diagnoser::{Diagnoser, DiagnoserSettings, NameSource, Objective};
use sidelane_timeline::diagnosis::{Diagnosis, Finding, TracerCost, UndetectableCause};
use sidelane_timeline::record::{Kind, Kinds, Task};
use sidelane_timeline::timeline::{Incomplete, Span, Timeline};
use sidelane_timeline::wait::{Activity, Object, Peer, TCP, UDP, Wait, WaitEnd, call};

const MS: u64 = 1_000_000;

/// Returns the timeline of a request whose time went to these causes, in nanoseconds.
fn timeline(request: u64, times: &[(Cause, u64)]) -> Timeline {
    let (from_ns, mut at_ns) = (1_000_000 * request, 1_000_000 * request);
    let mut span = |&(cause, length_ns): &(Cause, u64)| {
        at_ns += length_ns;
        let by_pid = if cause == RunQueue { 900 } else { 0 };
        let ends = (at_ns - length_ns, at_ns);
        Span {
            from_ns: ends.0,
            to_ns: ends.1,
            cause,
            tid: 1,
            cpu: None,
            by_tid: by_pid,
            by_pid,
            detail: 0,
            behind: 0,
            wait: None,
        }
    };
    let spans: Vec<Span> = times.iter().map(&mut span).collect();
    let ends = (from_ns, at_ns);
    Timeline {
        request,
        socket: 7,
        peer_port: 0,
        arrived_ns: ends.0,
        started_ns: ends.0,
        finished_ns: ends.1,
        ended_ns: ends.1,
        spans,
        incomplete: None,
    }
}

fn diagnoser_with_requests(objective: Objective) -> Diagnoser {
    let mut diagnoser = Diagnoser::new(DiagnoserSettings { objective, ..DiagnoserSettings::default() });
    (1..=1_000).for_each(|request| diagnoser.add(&timeline(request, &[(RunQueue, 10_000), (OnCpu, 300_000)])));
    diagnoser
}

fn diagnose(diagnoser: &Diagnoser) -> Diagnosis {
    diagnoser.diagnose(&|task: Task| (task.pid == 900).then(|| "stress".to_owned()))
}

#[track_caller]
fn finding(diagnosis: &Diagnosis, cause: Cause) -> &Finding {
    diagnosis.findings.iter().find(|finding| finding.cause == cause).expect("such a finding")
}

#[test]
fn causes_are_ranked_by_the_tail_time_that_they_explain() {
    let mut diagnoser = diagnoser_with_requests(Objective::Latency(2 * MS));
    diagnoser.add(&timeline(2_001, &[(RunQueue, 10 * MS), (OnCpu, 300_000)]));
    diagnoser.add(&timeline(2_002, &[(RunQueue, 10_000), (OnCpu, 300_000), (Nagle, 40 * MS)]));
    diagnoser.add(&timeline(2_003, &[(RunQueue, 5 * MS), (OnCpu, 300_000)]));
    let diagnosis = diagnose(&diagnoser);
    assert_eq!((diagnosis.requests, diagnosis.slow, diagnosis.mixed), (1_003, 3, 0));
    let causes: Vec<(Cause, u64)> =
        diagnosis.findings.iter().map(|finding| (finding.cause, finding.requests)).collect();
    assert_eq!(causes, [(Nagle, 1), (RunQueue, 2)]);
    assert_eq!(finding(&diagnosis, Nagle).examples, [2_002]);
    assert_eq!(finding(&diagnosis, RunQueue).examples, [2_001, 2_003]);
    assert!(finding(&diagnosis, Nagle).advice.contains("TCP_NODELAY"));
    let shares: f64 = diagnosis.findings.iter().map(|finding| finding.share_percent).sum();
    assert!((shares - 100.0).abs() < 1e-7);
    let evidence = &finding(&diagnosis, RunQueue).evidence;
    assert_eq!(evidence[0], "in 2 of 3 slow requests, on average 7.5 ms above normal");
    assert_eq!(evidence[1], "stress, process 900 had the CPU: 15.0 ms in all, at most 10.0 ms at once");
}

#[test]
fn tracer_time_is_a_cost_and_not_a_cause() {
    let mut diagnoser = diagnoser_with_requests(Objective::Latency(2 * MS));
    let by_tracer = timeline(2_001, &[(Tracer, 3 * MS), (OnCpu, 1_900_000)]);
    let by_disk = timeline(2_002, &[(Disk, 9 * MS), (Tracer, MS), (OnCpu, 300_000)]);
    let not_slow = timeline(2_003, &[(Tracer, 100_000), (OnCpu, 300_000)]);
    [&by_tracer, &by_disk, &not_slow].into_iter().for_each(|timeline| diagnoser.add(timeline));
    assert_eq!((diagnoser.main_cause(&by_tracer), diagnoser.main_cause(&by_disk)), (None, Some(Disk)));
    let diagnosis = diagnose(&diagnoser);
    assert_eq!((diagnosis.slow, diagnosis.mixed), (2, 0));
    let causes: Vec<(Cause, u64)> = diagnosis.findings.iter().map(|found| (found.cause, found.requests)).collect();
    assert_eq!(causes, [(Disk, 1)]);
    assert_eq!((diagnosis.tail_ns, finding(&diagnosis, Disk).share_percent), (9 * MS, 100.0));
    let cost = TracerCost { delayed: 3, longest_ns: 3 * MS, made_slow: 1, tail_ns: 4 * MS };
    assert_eq!(diagnosis.tracer, cost);
    assert!((cost.share(diagnosis.tail_ns) - 4.0 / 13.0).abs() < 1e-9);
}

#[test]
fn cause_of_less_than_half_the_excess_is_not_reported() {
    let mut diagnoser = diagnoser_with_requests(Objective::Latency(2 * MS));
    let mixed = timeline(2_001, &[(RunQueue, 4 * MS), (Disk, 4 * MS), (Lock, 4 * MS), (OnCpu, 300_000)]);
    diagnoser.add(&mixed);
    let diagnosis = diagnose(&diagnoser);
    assert_eq!((diagnosis.slow, diagnosis.mixed), (1, 1));
    assert!(diagnosis.findings.iter().all(|finding| finding.requests == 0));
    assert_eq!(diagnoser.main_cause(&mixed), None);
}

#[test]
fn cost_of_batch_is_the_extra_time_of_work_beside_it() {
    let mut diagnoser = diagnoser_with_requests(Objective::Latency(MS / 2));
    let slow = timeline(2_001, &[(RunQueue, 10_000), (OnCpu, 100_000), (Sibling, 600_000)]);
    diagnoser.add(&slow);
    assert_eq!(diagnoser.main_cause(&slow), Some(Sibling));
    let diagnosis = diagnose(&diagnoser);
    let longer_ns = finding(&diagnosis, Sibling).tail_ns;
    assert!((380_000..=400_000).contains(&longer_ns), "{longer_ns}");
    assert!(finding(&diagnosis, Sibling).advice.contains("sidelane run"));
}

#[test]
fn without_an_objective_the_slowest_hundredth_is_slow() {
    let mut diagnoser = diagnoser_with_requests(Objective::Percentile(0.99));
    (2_001..=2_008).for_each(|request| diagnoser.add(&timeline(request, &[(Disk, 5 * MS), (OnCpu, 300_000)])));
    let diagnosis = diagnose(&diagnoser);
    assert_eq!((diagnosis.slow, diagnosis.findings[0].cause, diagnosis.findings[0].requests), (8, Disk, 8));
    assert!((310_000..350_000).contains(&diagnosis.slo_ns), "{}", diagnosis.slo_ns);
}

#[test]
fn incomplete_requests_are_counted_apart() {
    let mut diagnoser = diagnoser_with_requests(Objective::Latency(MS));
    let slow = Timeline { incomplete: Some(Incomplete::Lost), ..timeline(2_001, &[(NotExplained, 9 * MS)]) };
    diagnoser.add(&slow);
    let diagnosis = diagnose(&diagnoser);
    assert_eq!((diagnosis.requests, diagnosis.slow, diagnosis.incomplete), (1_000, 0, 1));
    assert!(diagnosis.findings.is_empty() && diagnoser.main_cause(&slow).is_none());
}

#[test]
fn undecidable_causes_have_a_reason() {
    let kinds = Kinds::all().without(Kind::Softirq).without(Kind::Stolen);
    let diagnoser = Diagnoser::new(DiagnoserSettings { kinds, ..DiagnoserSettings::default() });
    let expected = [Interrupt, Stolen].map(|cause| (cause, "this kernel does not report it"));
    assert_eq!(
        diagnose(&diagnoser).cannot_tell,
        expected.map(|(cause, why)| UndetectableCause { cause, why: why.to_owned() })
    );
}

#[test]
fn the_slowest_are_kept_and_the_distribution_has_all() {
    let mut diagnoser = diagnoser_with_requests(Objective::Latency(2 * MS));
    (2_001..2_100).for_each(|request| diagnoser.add(&timeline(request, &[(Disk, request * 10_000)])));
    let slowest: Vec<u64> = diagnoser.slowest().map(|timeline| timeline.request).collect();
    assert_eq!((slowest.len(), slowest[0], slowest[49]), (50, 2_099, 2_050));
    assert!(diagnoser.timeline(2_099).is_some() && diagnoser.timeline(2_001).is_none());
    let bars = diagnoser.latency_bars();
    assert_eq!(bars.iter().map(|bar| bar.requests).sum::<u64>(), 1_099);
    assert!(bars.windows(2).all(|pair| pair[0].to_ns <= pair[1].from_ns));
    let disk_ns: u64 =
        bars.iter().flat_map(|bar| &bar.time).filter(|part| part.cause == Disk).map(|part| part.ns).sum();
    assert_eq!(disk_ns, (2_001..2_100).map(|request| request * 10_000).sum::<u64>());
}

#[test]
fn memory_is_independent_of_requests_and_sums_are_within_1pc() {
    let mut diagnoser = diagnoser_with_requests(Objective::Latency(2 * MS));
    for request in 0..200_000 {
        let slow = timeline(10_000 + request, &[(Disk, 5 * MS + request % 100), (OnCpu, 300_000)]);
        diagnoser.add(if request % 10 == 0 { &slow } else { continue });
    }
    let diagnosis = diagnose(&diagnoser);
    assert_eq!((diagnosis.slow, finding(&diagnosis, Disk).requests), (20_000, 20_000));
    let expected_ns = 20_000 * 5 * MS;
    assert!(finding(&diagnosis, Disk).tail_ns.abs_diff(expected_ns) < expected_ns / 100);
    assert!(diagnoser.memory_bytes() < 4 << 20, "{}", diagnoser.memory_bytes());
    // 128 summaries, with the time of each cause and some waits.
    let least = 2 * 128 * (Cause::ALL.len() * size_of::<u64>() + 5 * size_of::<Wait>());
    assert!(diagnoser.memory_bytes() > (2 << 20) + least, "{}", diagnoser.memory_bytes());
}

#[test]
fn summaries_stand_for_all_requests_of_their_latency() {
    let mut diagnoser = diagnoser_with_requests(Objective::Latency(2 * MS));
    let slow = [(RunQueue, 6 * MS), (Tracer, MS), (OnCpu, 300_000)];
    (10_001..=11_280).for_each(|request| diagnoser.add(&timeline(request, &slow)));
    let diagnosis = diagnose(&diagnoser);
    assert_eq!((diagnosis.slow, diagnosis.tracer.tail_ns), (1_280, 1_280 * MS));
    let evidence = &finding(&diagnosis, RunQueue).evidence[1];
    assert_eq!(evidence, "stress, process 900 had the CPU: 7.68 s in all, at most 6.0 ms at once");
}

#[test]
fn bar_of_the_distribution_contains_its_latencies() {
    for latency_ns in [1, 999, 1_000, 4_096, 77_777, 9 * MS, 3_000 * MS] {
        let mut diagnoser = Diagnoser::new(DiagnoserSettings::default());
        diagnoser.add(&timeline(1, &[(Disk, latency_ns)]));
        let bars = diagnoser.latency_bars();
        let [bar] = bars.as_slice() else { panic!("one bar") };
        assert!((bar.from_ns..bar.to_ns).contains(&latency_ns), "{latency_ns}: {bar:?}");
        assert_eq!(bar.time.iter().map(|time| (time.cause, time.ns)).collect::<Vec<_>>(), [(Disk, latency_ns)]);
    }
}

#[test]
fn finding_is_the_same_after_it_is_written_and_read() {
    let mut diagnoser = diagnoser_with_requests(Objective::Latency(2 * MS));
    diagnoser.add(&timeline(2_001, &[(RunQueue, 10 * MS), (OnCpu, 300_000)]));
    let found = finding(&diagnose(&diagnoser), RunQueue).clone();
    let json = serde_json::to_value(&found).expect("it can be written");
    assert_eq!(json["tail_us"].as_f64(), Some(found.tail_ns as f64 / 1_000.0));
    assert_eq!(serde_json::from_value::<Finding>(json).expect("it can be read").tail_ns, found.tail_ns);
}

/// Returns the evidence of one slow request with these waits of 10 ms each: cause, detail, waker and wait.
fn evidence_of(waits: &[(Cause, u64, Task, Option<Wait>)]) -> Vec<String> {
    let mut diagnoser = diagnoser_with_requests(Objective::Latency(MS));
    let times: Vec<(Cause, u64)> = waits.iter().map(|(cause, ..)| (*cause, 10 * MS)).collect();
    let mut slow = timeline(2_000, &times);
    for (span, &(_, detail, by, wait)) in slow.spans.iter_mut().zip(waits) {
        (span.detail, span.by_tid, span.by_pid, span.wait) = (detail, by.tid, by.pid, wait);
    }
    diagnoser.add(&slow);
    let mut evidence = finding(&diagnoser.diagnose(&Machine), waits[0].0).evidence.clone();
    evidence.remove(0);
    evidence
}

#[test]
fn words_of_a_futex_lock_are_one_lock_but_kernel_locks_are_not() {
    const KERNEL: u64 = 0xffff_8880_0000_0000;
    let futex = |timeout_ms, is_contended, ended| Wait {
        call: Some(call::FUTEX),
        object: Object::Futex(128, is_contended),
        timeout_ms,
        ended,
        ..Wait::default()
    };
    let by = Task { tid: 42, pid: 42 };
    // Three waits for one lock, with what differs each time.
    let one = [(0x1004, 0, true), (0x1010, 5, true), (0x103f, 0, false)].map(|(address, timeout_ms, is_contended)| {
        let ended = if timeout_ms == 0 { WaitEnd::Thread(Some(call::FUTEX)) } else { WaitEnd::Timer };
        (Lock, address, by, Some(futex(timeout_ms, is_contended, ended)))
    });
    let held = "python3, thread 42 of process 42 held the lock at 0x1000";
    assert_eq!(evidence_of(&one), [format!("{held}: 30.0 ms in all, at most 10.0 ms at once")]);
    let two = [0x1010, 0x1040].map(|address| (Lock, address, by, Some(futex(0, true, WaitEnd::Unknown))));
    assert_eq!(evidence_of(&two).len(), 2);
    let kernel = Wait { call: Some(call::WRITE), ..Wait::default() };
    for wait in [None, Some(kernel)] {
        let two = [4, 8].map(|offset| (Lock, KERNEL + offset, by, wait));
        assert_eq!(evidence_of(&two).len(), 2, "locks of the kernel lie side by side");
    }
}

#[test]
fn waits_that_differ_in_details_alone_are_summed() {
    let with = |timeout_ms, ended| Wait { call: Some(call::POLL), timeout_ms, ended, ..Wait::default() };
    let inside = [(5, Object::Unknown), (6, Object::Event)].map(|(timeout_ms, object)| {
        let ended = WaitEnd::Thread(Some(timeout_ms));
        (Inside, 0, NONE, Some(Wait { object, ..with(timeout_ms, ended) }))
    });
    assert_eq!(evidence_of(&inside).len(), 1);
    let by = Task { tid: 42, pid: 42 };
    let timeouts = [5, 6].map(|timeout_ms| (HandOver, 0, by, Some(with(timeout_ms, WaitEnd::Unknown))));
    assert_eq!(evidence_of(&timeouts).len(), 1);
    let peer = Peer::Address([127, 0, 0, 1].into(), 9_191, TCP);
    let unanswered = |timeout_ms| Wait { timeout_ms, call: Some(call::POLL), ..Wait::for_answer(Some(peer), false) };
    let evidence = evidence_of(&[200, 300].map(|timeout_ms| (NoAnswer, 0, NONE, Some(unanswered(timeout_ms)))));
    assert!(evidence.len() == 1 && evidence[0].contains("within 10.0 ms, when the program's timeout"), "{evidence:?}");
    let evidence = evidence_of(&[200, 200].map(|timeout_ms| (NoAnswer, 0, NONE, Some(unanswered(timeout_ms)))));
    assert!(evidence.len() == 1 && evidence[0].contains("within the 200 ms that the program"), "{evidence:?}");
    // The thread that reads the answer differs each time: it is no clue.
    let ran = [41, 42].map(|tid| (Downstream, 9_191, Task { tid, pid: 42 }, None));
    assert_eq!(evidence_of(&ran).len(), 1);
}

#[test]
fn pool_that_threads_give_each_other_names_its_long_user() {
    let root = Task { tid: 9, pid: 42 };
    let pool = Wait { call: Some(call::FUTEX), of_peer: true, root, doing: Activity::Slept, ..Wait::default() };
    let users = [41, 42].map(|tid| (Lock, 0, Task { tid, pid: 42 }, Some(pool)));
    let evidence = evidence_of(&users);
    let expected =
        "python3, thread 9 of process 42 had the lock, semaphore or pool that it waited for in futex and slept";
    assert!(evidence.len() == 1 && evidence[0].starts_with(expected), "{evidence:?}");
    let own = Wait { root: NONE, ..pool };
    let evidence = evidence_of(&[(Lock, 0, Task { tid: 41, pid: 42 }, Some(own))]);
    assert!(evidence[0].starts_with("python3, thread 41 of process 42 had the lock"), "{evidence:?}");
}

/// Checks the text about a wait of 10 ms that thread `by` ended.
#[track_caller]
fn check_text(cause: Cause, detail: u64, by: Task, wait: Wait, expected: &str) {
    let evidence = evidence_of(&[(cause, detail, by, Some(wait))]).remove(0);
    assert_eq!(evidence, format!("{expected}: 10.0 ms in all, at most 10.0 ms at once"));
}

fn wait_in(number: u32, object: Object, ended: WaitEnd) -> Wait {
    Wait { call: Some(number), object, ended, ..Wait::default() }
}

#[test]
fn wait_without_another_thread_is_described_by_its_end() {
    let until = "its thread waited in";
    let inside = "it waited inside the service, without a thread; its thread waited in epoll_wait";
    for (cause, number, ended, expected) in [
        (NetworkReceive, call::RECVFROM, WaitEnd::Interrupt, format!("{until} recvfrom for more data")),
        (Timer, call::POLL, WaitEnd::Timer, format!("{until} poll until a timeout that it had set")),
        (Timer, call::READ, WaitEnd::Timer, format!("{until} read until a time that it had set")),
        (Timer, call::NANOSLEEP, WaitEnd::Timer, "its thread slept until a time that it had set".to_owned()),
        (Inside, call::EPOLL_WAIT, WaitEnd::Timer, format!("{inside}, until a timeout that it had set")),
        (Inside, call::EPOLL_WAIT, WaitEnd::Interrupt, format!("{inside}, until data came")),
        (Inside, call::EPOLL_WAIT, WaitEnd::Unknown, inside.to_owned()),
    ] {
        check_text(cause, 0, NONE, wait_in(number, Object::Unknown, ended), &expected);
    }
    let by_thread = wait_in(call::EPOLL_WAIT, Object::Unknown, WaitEnd::Thread(None));
    let expected = "it waited inside the service; its thread waited in epoll_wait until another thread woke it";
    check_text(Inside, 0, NONE, by_thread, expected);
}

#[test]
fn wait_for_a_disk_names_file_call_or_device() {
    let sync = wait_in(call::FSYNC, Object::File(5, 77), WaitEnd::Interrupt);
    let rename = wait_in(82, Object::Unknown, WaitEnd::Interrupt);
    for (detail, wait, expected) in [
        (0, sync, "its thread waited in fsync until file 5 was on its disk"),
        (0, rename, "its thread waited in rename for its file system"),
        (8 << 20, rename, "disk 8:0 answered"),
        (0, Wait::default(), "disk 0:0 answered"),
    ] {
        check_text(Disk, detail, NONE, wait, expected);
    }
}

#[test]
fn unanswered_question_says_how_long_the_program_waits() {
    let question = Wait::for_answer(Some(Peer::Address([127, 0, 0, 1].into(), 9_191, TCP)), false);
    let connects = Wait { connects: true, timeout_ms: 50, ..question };
    let peer = "127.0.0.1:9191 (python3, process 42)";
    for (wait, expected) in [
        (connects, format!("no connection to {peer} within the 50 ms that the program allows")),
        (question, format!("no answer from {peer} within 10.0 ms, when the program's timeout ended")),
        (
            Wait { call: Some(call::EPOLL_WAIT), ..question },
            format!("no answer from {peer} until the program went on without it"),
        ),
    ] {
        check_text(NoAnswer, 0, NONE, wait, &expected);
    }
}

#[test]
fn thread_that_held_a_lock_or_woke_another_is_named() {
    let by = Task { tid: 42, pid: 42 };
    let (thread, futex) = ("python3, thread 42 of process 42", Object::Futex(0, true));
    for (cause, detail, number, object, expected) in [
        (Lock, 1 << 63 | 7, call::WRITE, Object::Unknown, format!("{thread} held a lock of the kernel in write")),
        (Lock, 64, call::FUTEX, futex, format!("{thread} held the lock at 0x40")),
        (Lock, 0, call::FUTEX, futex, format!("{thread} held a lock")),
        (HandOver, 0, call::READ, Object::Event, format!("waited in read on an eventfd until {thread} woke it")),
        (HandOver, 0, call::READ, Object::Timer, format!("waited in read on a timerfd until {thread} woke it")),
        (HandOver, 0, call::READ, Object::Socket, format!("waited in read on a socket until {thread} woke it")),
    ] {
        let expected = if cause == HandOver { format!("its thread {expected}") } else { expected };
        check_text(cause, detail, by, wait_in(number, object, WaitEnd::Thread(None)), &expected);
    }
}

#[test]
fn reader_of_a_full_pipe_or_socket_is_named_if_known() {
    let by = Task { tid: 42, pid: 42 };
    for (by, object, expected) in [
        (by, Object::Pipe(7), "a pipe that was full; its reader is python3, process 42"),
        (NONE, Object::Pipe(7), "a pipe that was full; its reader is python3, process 42"),
        (Task { tid: 5, pid: 0 }, Object::Pipe(7), "a pipe that was full; its reader is an unknown thread"),
        (NONE, Object::UnixSocket, "a Unix socket that was full: the other side did not read"),
        (NONE, Object::Unknown, "a pipe or socket that was full: the other side did not read"),
    ] {
        let wait = wait_in(call::WRITE, object, WaitEnd::Unknown);
        check_text(Full, 0, by, wait, &format!("write to {expected}"));
    }
}

#[test]
fn evidence_without_a_wait_names_what_is_known() {
    let by = Task { tid: 42, pid: 42 };
    for (cause, detail, by, expected) in [
        (RunQueue, BY_OWN, by, "python3, process 42 (the service itself) had the CPU"),
        (RunQueue, 0, by, "python3, process 42 had the CPU"),
        (RunQueue, 0, NONE, "its thread was woken and did not run yet"),
        (RunQueue, 0, Task { tid: 5, pid: 0 }, "thread 5 had the CPU"),
        (Lock, 0, by, "python3, thread 42 of process 42 held a lock"),
        (Frozen, 0, by, "python3, thread 42 of process 42 let it go on"),
        (Frozen, 0, NONE, "the group was frozen"),
        (Downstream, 9_191, NONE, "the service at port 9191 had not answered"),
        (Downstream, 0, NONE, "another service had not answered"),
        (Interrupt, 40, NONE, "interrupt 40 had the CPU"),
        (SendBuffer, 512, NONE, "up to 512 bytes of the response waited to be sent"),
        (Pacing, 512, NONE, "up to 512 bytes waited behind TCP for the network device"),
        (Pacing, BY_TCP | 512, NONE, "TCP sent at a set rate (BBR, SO_MAX_PACING_RATE), and up to 512 bytes waited"),
    ] {
        let evidence = evidence_of(&[(cause, detail, by, None)]).remove(0);
        assert_eq!(evidence, format!("{expected}: 10.0 ms in all, at most 10.0 ms at once"));
    }
}

#[test]
fn advice_for_a_peer_depends_on_where_it_is() {
    let advice_for = |peer: Peer, names: &dyn NameSource| {
        let mut diagnoser = diagnoser_with_requests(Objective::Latency(MS));
        let mut slow = timeline(2_000, &[(Downstream, 200 * MS)]);
        slow.spans[0].wait = Some(Wait::for_answer(Some(peer), false));
        diagnoser.add(&slow);
        finding(&diagnoser.diagnose(names), Downstream).advice.clone()
    };
    let (there, unix) = (Peer::Address([127, 0, 0, 1].into(), 9_191, TCP), Peer::Unix(42));
    let without_names = |_: Task| None;
    assert!(advice_for(there, &Machine).contains("--service port:9191"));
    assert!(!advice_for(there, &without_names).contains("--service port:9191"), "the service is on another machine");
    assert!(advice_for(unix, &without_names).contains("Unix sockets are not traced"));
}

/// Names for the tests: each address has a process with a name.
struct Machine;

impl NameSource for Machine {
    fn name(&self, task: Task) -> Option<String> {
        (task.pid == 42).then(|| "python3".to_owned())
    }

    fn process_at(&self, _: Peer) -> Option<u32> {
        Some(42)
    }

    fn reader_of(&self, _: u32) -> Option<u32> {
        Some(42)
    }
}

/// Returns the evidence and the advice for requests whose time went to this wait.
fn evidence_and_advice(cause: Cause, by: Task, wait: Wait) -> (String, String) {
    let mut diagnoser = diagnoser_with_requests(Objective::Latency(MS));
    let mut slow = timeline(2_000, &[(cause, 200 * MS)]);
    (slow.spans[0].wait, slow.spans[0].by_tid, slow.spans[0].by_pid) = (Some(wait), by.tid, by.pid);
    diagnoser.add(&slow);
    let diagnosis = diagnoser.diagnose(&Machine);
    let finding = finding(&diagnosis, cause);
    (finding.evidence[1].clone(), finding.advice.clone())
}

const NONE: Task = Task { tid: 0, pid: 0 };

#[test]
fn downstream_finding_has_address_process_and_next_command() {
    let peer = |protocol| Peer::Address([127, 0, 0, 1].into(), 9_191, protocol);
    let (seen, advice) = evidence_and_advice(Downstream, NONE, Wait::for_answer(Some(peer(TCP)), false));
    assert!(seen.starts_with("127.0.0.1:9191 (python3, process 42) had not answered: "), "{seen}");
    assert!(advice.starts_with("`sidelane trace --service port:9191` "), "{advice}");
    let (seen, _) = evidence_and_advice(Downstream, NONE, Wait::for_answer(Some(peer(TCP)), true));
    assert!(seen.contains("share the connection"), "{seen}");
    let (seen, advice) = evidence_and_advice(Retransmission, NONE, Wait::for_answer(Some(peer(TCP)), false));
    assert!(seen.starts_with("a segment of a request to 127.0.0.1:9191 (python3, process 42) was lost"), "{seen}");
    assert!(advice.contains("`ss -tin dst 127.0.0.1`"), "{advice}");
    let by = Task { tid: 42, pid: 42 };
    let (seen, advice) = evidence_and_advice(ServiceQueue, by, Wait::for_answer(Some(peer(TCP)), false));
    let expected = "the answer of 127.0.0.1:9191 (python3, process 42) had come, but ";
    assert!(seen.contains(expected) && seen.contains("worked on other requests and had not read it"), "{seen}");
    assert!(advice.contains("move long work to other threads"), "{seen}\n{advice}");
    // A sleep until a set time gets no advice about the other service, although the thread had asked that service
    // before.
    let (_, advice) = evidence_and_advice(Timer, NONE, Wait::for_answer(Some(Peer::Unix(42)), false));
    assert!(!advice.contains("Unix sockets"), "{advice}");
    let timeout = Wait { timeout_ms: 200, call: Some(call::POLL), ..Wait::for_answer(Some(peer(UDP)), false) };
    let (seen, advice) = evidence_and_advice(NoAnswer, NONE, timeout);
    let expected = "no answer from 127.0.0.1:9191/udp (python3, process 42) within the 200 ms that the program allows";
    assert!(seen.starts_with(expected) && !advice.contains("--service port"), "{seen}\n{advice}");
}

#[test]
fn holder_of_a_lock_and_reader_are_named_with_their_activity() {
    let by = Task { tid: 42, pid: 42 };
    let doing = |doing, wait| Wait { doing, ..wait };
    let write = Wait { call: Some(call::WRITE), object: Object::Pipe(7), ..Wait::default() };
    let (seen, _) = evidence_and_advice(Full, by, doing(Activity::Slept, write));
    let expected = "write to a pipe that was full; its reader is python3, process 42, which slept until a set time: ";
    assert!(seen.starts_with(expected), "{seen}");
    let session = Wait { call: Some(call::EPOLL_WAIT), of_session: true, ..Wait::default() };
    let (seen, _) = evidence_and_advice(Lock, by, doing(Activity::Slept, session));
    assert!(
        seen.starts_with("lock that python3, process 42, held for 200.0 ms and slept until a set time: "),
        "{seen}"
    );
    let root = Task { tid: 9, pid: 9 };
    let file = Wait { call: Some(call::FLOCK), object: Object::File(5, 77), root, ..Wait::default() };
    let (seen, _) = evidence_and_advice(Lock, by, doing(Activity::Ran, file));
    let expected =
        "python3, thread 42 of process 42 held the lock on file 5 and waited for thread 9 of process 9, which ran";
    assert!(seen.starts_with(expected), "{seen}");
}

#[test]
fn connection_and_hand_over_are_described() {
    let peer = Peer::Address([127, 0, 0, 1].into(), 9_191, TCP);
    let (seen, _) = evidence_and_advice(Connect, NONE, Wait::for_answer(Some(peer), false));
    assert!(seen.starts_with("the connection to 127.0.0.1:9191 (python3, process 42) was not there yet"), "{seen}");
    let by = Task { tid: 42, pid: 42 };
    for (number, how) in [(call::EXIT, "ended"), (call::EXIT_GROUP, "ended"), (call::WRITE, "woke it")] {
        let wait = Wait { call: Some(call::FUTEX), ended: WaitEnd::Thread(Some(number)), ..Wait::default() };
        let (seen, _) = evidence_and_advice(HandOver, by, wait);
        assert!(seen.starts_with("its thread waited") && seen.contains(&format!("process 42 {how}")), "{seen}");
    }
}

#[test]
fn pipe_without_a_known_reader_has_none() {
    let mut diagnoser = diagnoser_with_requests(Objective::Latency(MS));
    let mut slow = timeline(2_000, &[(Full, 10 * MS)]);
    slow.spans[0].wait = Some(Wait { call: Some(call::WRITE), object: Object::Pipe(7), ..Wait::default() });
    diagnoser.add(&slow);
    let evidence = finding(&diagnose(&diagnoser), Full).evidence[1].clone();
    assert!(evidence.starts_with("write to a pipe that was full: the other side did not read: "), "{evidence}");
}
