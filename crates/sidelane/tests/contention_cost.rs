//! The inputs of the contention cost estimate: hardware counts of requests, and how long batch ran beside them.
//!
//! Few test machines have hardware counters, and the code does not depend on the counted events. So both counters count
//! the CPU's clock in these tests. A request that was alone on its lane has a count equal to its server time, and an
//! "IPC" of 1.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use common::deadline::TIMEOUT;
use common::lanes::{BATCH_LANE, LANES, REQUEST_LANE};
use common::{SPIN, can_observe_requests, lab_binary_path, lock_lanes, process, wait_until};
use sidelane_formats::{GateWord, LaneClass, LaneWord};
use sidelane_host::clock::now_ns;
use sidelane_host::perf::Event;
use sidelane_host::priority::pin_this_thread;
use sidelane_host::service::Service;
use sidelane_host::topology::{Lanes, Topology};
use sidelane_lab::programs::LabBinary;
use sidelane_lanes::lending_limits::LendingLimitsKeeper;
use sidelane_policy::borrow::contention_cost::ContentionCostSource;
use sidelane_policy::borrow::{BorrowConfig, Budget, ContentionCost, Lending, PolicyKind};
use sidelane_requests::{Request, Requests};
use sidelane_tracker::counters::EventPair;
use sidelane_tracker::tracker::{LaneLending, Purpose};
use sidelane_tracker::tracking::{BatchTracking, LaneUse, ServiceTracking};

const REQUEST_CPU: u32 = 0;
const BATCH_CPU: u32 = 1;

/// Event `PERF_COUNT_SW_CPU_CLOCK` of type `PERF_TYPE_SOFTWARE`, which counts nanoseconds.
const CPU_CLOCK: Event = Event { kind: 1, config: 0 };
const CLOCK_TWICE: EventPair = EventPair { instructions: CPU_CLOCK, cycles: CPU_CLOCK };

fn lanes() -> Lanes {
    Topology::read(Path::new("/sys")).unwrap().declared_pairs(LANES).unwrap()
}

/// Returns the use of lanes in which the counters of `pair` count requests.
fn counting_lane_use(pair: EventPair) -> LaneUse {
    LaneUse::with_counters(pair, &lanes())
}

/// Creates a tracker of the requests of the process `service`.
fn track(service: u32, lane_use: LaneUse, self_checking: bool) -> (ServiceTracking, Requests) {
    let service = Service::of_process(service);
    let purpose = Purpose::Lend { requests: true, lent: LaneLending { self_checking, ..LaneLending::default() } };
    let tracking = ServiceTracking::with_own_tracker(&service, &lanes(), lane_use, purpose).unwrap();
    let requests = Requests::track(&tracking, "this test", &service.pids).unwrap();
    tracking.tracker().attach().unwrap();
    (tracking, requests)
}

/// Busy loop on the batch lane, ended when dropped.
struct Batch(Child);

impl Batch {
    /// Starts the busy loop after the kernel program knows its process as part of `job`. A running thread is known only
    /// from its next turn, and an undisturbed busy loop has only one turn.
    fn start(class: &[&str], job: &BatchTracking) -> Self {
        let loops = format!("read begin; {SPIN}");
        let (place, command) = (["-c", BATCH_LANE, "chrt"], ["sh", "-c", &loops]);
        let words = place.iter().chain(class).chain(&command);
        let mut command = Command::new("taskset");
        command.args(words).stdin(Stdio::piped());
        let mut batch = Self(process::kill_with_test(&mut command).spawn().expect("taskset and chrt are there"));
        job.add_process(batch.0.id());
        batch.0.stdin.as_mut().expect("piped").write_all(b"\n").unwrap();
        batch
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn load(lab: &LabBinary, port: u32, log: &Path) {
    let target = format!("127.0.0.1:{port}");
    let options = ["--cpu", BATCH_LANE, "--rate", "400", "--seconds", "1.5", "--habits", "0", "--target", &target];
    let options = ["echo-client"].into_iter().chain(options).chain(["--log"]).map(AsRef::as_ref);
    lab.run(options.chain([log.as_os_str()])).unwrap();
}

/// Returns the count of a request as a share of its server time.
fn counted_share(request: &Request) -> Option<f64> {
    request.counters.map(|counters| counters.cycles as f64 / request.server_ns() as f64)
}

#[test]
fn contention_cost_inputs_come_from_lane_counters() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path().map(LabBinary::with_path).filter(|_| can_observe_requests()) else { return };
    let scratch = tempfile::tempdir().unwrap();
    let journal = scratch.path().join("journal");
    let options = ["echo-server", "--design", "event-loop", "--cpu", REQUEST_LANE, "--fifo", "10", "--service-us"];
    let options = options.into_iter().chain(["500", "--log"]).map(AsRef::as_ref);
    let server = lab.start(options.chain([journal.as_os_str()])).unwrap();
    let (tracking, mut requests) = track(server.pid(), counting_lane_use(CLOCK_TWICE), false);
    let tracker = tracking.tracker();
    let job = BatchTracking::start(tracker, None).unwrap();
    assert!(matches!(tracking.counter_status(), Some(Ok(()))), "{:?}", tracking.counter_status());
    let (port, log) = (server.ready_number("port").unwrap(), scratch.path().join("client"));
    let budget = Budget::Given(50_000_000);
    let lending = Lending::new(Some(PolicyKind::DynamicRefresh), budget, BorrowConfig::default()).unwrap();
    let mut limits = LendingLimitsKeeper::new(lending, &lanes(), tracker.memory());
    let (mut count, mut parts) = (0, Vec::new());
    let mut load = || {
        load(&lab, port, &log);
        let take = |request: &Request| {
            limits.record_request(request);
            count += 1;
            parts.extend(counted_share(request));
        };
        requests.finish(take).unwrap();
        limits.update_limits();
        limits.present_limits()
    };
    assert_eq!(load().source, ContentionCostSource::Nothing, "nothing ran beside");
    let _batch = Batch::start(&["--idle", "0"], &job);
    // On a busy machine batch has its lane only sometimes.
    let deadline = Instant::now() + TIMEOUT;
    while load().source != ContentionCostSource::Counters {
        assert!(Instant::now() < deadline, "of {count} requests too few were counted beside batch");
    }
    let present = load();
    parts.sort_unstable_by(f64::total_cmp);
    // The median is exact: fewer than half of the reads are interrupted between the clock and the counter.
    let middle = parts[parts.len() / 2];
    assert!(middle > 0.5 && middle < 1.5, "the clock counted {middle} of the server time");
    assert!(present.contention_cost.ppm() < ContentionCost::FULL.ppm() / 2, "{present}");
    assert!(present.to_string().contains("from the IPC of requests"), "{present}");
}

/// Connection to a service that is this thread, on the request lane.
struct EchoConnection {
    client: TcpStream,
    server: TcpStream,
    _listener: TcpListener,
}

impl EchoConnection {
    fn connect_on_request_cpu() -> Self {
        pin_this_thread(&[REQUEST_CPU]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        Self { client, server: listener.accept().unwrap().0, _listener: listener }
    }

    fn exchange_request(&mut self, serve: impl FnOnce()) {
        self.client.write_all(b"ask").unwrap();
        self.server.read_exact(&mut [0; 3]).unwrap();
        serve();
        self.server.write_all(b"answer").unwrap();
        self.client.read_exact(&mut [0; 6]).unwrap();
    }
}

/// Runs `script` with a connection and a tracker. Returns the observed requests.
fn observe_requests(
    lane_use: LaneUse,
    self_checking: bool,
    script: impl FnOnce(&mut EchoConnection, &ServiceTracking),
) -> Vec<Request> {
    let mut own = EchoConnection::connect_on_request_cpu();
    let (tracking, mut requests) = track(std::process::id(), lane_use, self_checking);
    script(&mut own, &tracking);
    tracking.tracker().detach();
    let mut seen = Vec::new();
    requests.finish(|request| seen.push(*request)).unwrap();
    seen
}

#[test]
fn only_requests_alone_on_their_lane_have_counts() {
    const EACH: usize = 20;
    let Some(_turn) = lock_lanes().filter(|_| can_observe_requests()) else { return };
    let seen = observe_requests(counting_lane_use(CLOCK_TWICE), false, |own, _| {
        (0..EACH).for_each(|_| own.exchange_request(|| ()));
        (0..EACH).for_each(|_| own.exchange_request(|| thread::sleep(Duration::from_micros(100))));
        for _ in 0..EACH {
            own.exchange_request(|| pin_this_thread(&[BATCH_CPU]).unwrap());
            pin_this_thread(&[REQUEST_CPU]).unwrap();
        }
    });
    let counted = |kind: usize| seen[kind * EACH..][..EACH].iter().flat_map(|request| request.counters).count();
    assert!(counted(0) > 0, "{seen:?}");
    assert_eq!((counted(1), counted(2)), (0, 0), "switched out, moved: {seen:?}");
}

#[test]
fn without_counters_requests_are_tracked_all_the_same() {
    let Some(_turn) = lock_lanes().filter(|_| can_observe_requests()) else { return };
    let nothing = Event { kind: u32::MAX, config: 0 };
    let nothing = EventPair { instructions: nothing, cycles: nothing };
    let seen = observe_requests(counting_lane_use(nothing), false, |own, tracking| {
        assert!(matches!(tracking.counter_status(), Some(Err(_))));
        own.exchange_request(|| ());
    });
    assert_eq!(seen.iter().map(|request| request.counters).collect::<Vec<_>>(), [None]);
}

fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Returns the number of switches at batch's present turn on its lane; `None` while it has none.
fn batch_turn_number(lane: &LaneWord) -> Option<u32> {
    (lane.class() == Ok(LaneClass::Batch)).then(|| lane.switches())
}

/// Returns the share of each 100 µs request during which batch ran beside it. `at_request_start` is called with the
/// accounting of batch's naps and batch's thread id. Requests in which batch lost its lane do not count: the kernel
/// gives other threads a part of each second.
fn co_run_shares(at_request_start: impl Fn(&GateWord, u32)) -> Vec<f64> {
    const REQUESTS: usize = 50;
    let mut undisturbed = Vec::new();
    let seen = observe_requests(LaneUse::default(), true, |own, tracking| {
        let tracker = tracking.tracker();
        let job = BatchTracking::start(tracker, None).unwrap();
        // Without a real-time class for batch, a thread of another program may run on the batch lane at any time.
        let batch = Batch::start(&["--fifo", "10"], &job);
        let (pid, memory) = (batch.0.id(), tracker.memory());
        let lane = memory.word(BATCH_CPU);
        let deadline = Instant::now() + TIMEOUT;
        while undisturbed.iter().filter(|counts| **counts).count() < REQUESTS {
            assert!(Instant::now() < deadline, "batch keeps losing its lane: {undisturbed:?}");
            wait_until("batch runs on its lane", || batch_turn_number(lane).is_some());
            let turn = batch_turn_number(lane);
            own.exchange_request(|| {
                at_request_start(memory.gate(BATCH_CPU), pid);
                spin(Duration::from_micros(100));
            });
            memory.gate(BATCH_CPU).nap_tid.store(0, Ordering::Release);
            undisturbed.push(turn.is_some() && batch_turn_number(lane) == turn);
        }
    });
    assert!(seen.iter().all(|request| request.co_run_ns <= request.server_ns()), "{seen:?}");
    assert_eq!(seen.len(), undisturbed.len(), "{seen:?}");
    let counting = seen.iter().zip(undisturbed).filter_map(|(request, counts)| counts.then_some(request));
    counting.map(|request| request.co_run_ns as f64 / request.server_ns() as f64).collect()
}

#[test]
fn batch_that_naps_does_not_run_beside_a_request() {
    let Some(_turn) = lock_lanes().filter(|_| can_observe_requests()) else { return };
    let median = |mut parts: Vec<f64>| {
        parts.sort_unstable_by(f64::total_cmp);
        parts[parts.len() / 2]
    };
    let ran = median(co_run_shares(|_, _| ()));
    assert!(ran > 0.5, "batch ran beside {ran} of them");
    let napped = median(co_run_shares(|gate, pid| {
        gate.nap_mark_ns.store(now_ns(), Ordering::Release);
        gate.nap_tid.store(pid, Ordering::Release);
    }));
    assert!(napped < 0.5, "batch ran beside {napped} of them");
}

/// Batch may write any value into the accounting of naps.
#[test]
fn invalid_nap_accounting_affects_at_most_one_request() {
    let Some(_turn) = lock_lanes().filter(|_| can_observe_requests()) else { return };
    for rubbish in [1, 1 << 40, 1 << 63, u64::MAX] {
        co_run_shares(|gate, pid| {
            gate.nap_tid.store(pid, Ordering::Relaxed);
            gate.nap_mark_ns.fetch_xor(rubbish, Ordering::Relaxed);
            gate.napped_ns.fetch_add(rubbish, Ordering::Relaxed);
        });
    }
}
