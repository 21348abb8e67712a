//! Tests of the diagnosis: causes of slow requests, found in timelines written by hand.

use sidelane_timeline::cause::Cause::{self, *};
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
fn undecidable_causes_name_the_missing_record_kinds() {
    let kinds = Kinds::all().without(Kind::Softirq).without(Kind::Stolen);
    let diagnoser = Diagnoser::new(DiagnoserSettings { kinds, ..DiagnoserSettings::default() });
    let expected = [(Interrupt, "no records of this kind: Softirq"), (Stolen, "no records of this kind: Stolen")];
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
