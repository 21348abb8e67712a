//! Tests of request words: words in shared memory that describe running requests. The kernel program writes them, and
//! policies read them.
//!
//! The service is a thread of this process on the request lane, controlled by the test.

mod common;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;

use common::connection::Connection;
use common::lanes::LANES;
use common::{can_observe_requests, lock_lanes, process, wait_until};
use sidelane_formats::{HoldState, RunningRequest};
use sidelane_host::clock::now_ns;
use sidelane_host::priority::pin_this_thread;
use sidelane_host::service::Service;
use sidelane_host::topology::Topology;
use sidelane_policy::borrow::LaneState;
use sidelane_requests::{Request, Requests};
use sidelane_tracker::requests::RequestMemory;
use sidelane_tracker::tracker::{LaneLending, Purpose, Tracker};
use sidelane_tracker::tracking::{LaneUse, ServiceTracking};

const REQUEST_LANE: u32 = 0;
const BATCH_LANE: u32 = 1;

/// Memory and requests that a script can read.
struct ObservedRequests<'a> {
    memory: &'a RequestMemory,
    tracker: &'a Tracker,
    requests: &'a mut Requests,
}

impl ObservedRequests<'_> {
    fn running(&self) -> RunningRequest {
        self.memory.word(REQUEST_LANE).snapshot().expect("this thread is the only writer, on its own lane")
    }

    /// Returns all requests that were reported.
    fn take_reported(&mut self) -> Vec<Request> {
        let mut told = Vec::new();
        self.requests.finish(|request| told.push(*request)).unwrap();
        told
    }

    fn queue_len(&self) -> u32 {
        self.memory.service().queue_len.load(Ordering::Acquire)
    }
}

fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// Runs a script on the request lane, with two connections.
fn run_on_request_lane(script: impl FnOnce(&mut ObservedRequests<'_>, [Connection; 2])) {
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    pin_this_thread(&[REQUEST_LANE]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connections = [Connection::open(&listener), Connection::open(&listener)];
    let lanes = Topology::read(Path::new("/sys")).unwrap().declared_pairs(LANES).unwrap();
    let me = std::process::id();
    let purpose = Purpose::Lend { requests: true, lent: LaneLending::default() };
    let tracking =
        ServiceTracking::with_own_tracker(&Service::of_process(me), &lanes, LaneUse::default(), purpose).unwrap();
    let mut requests = Requests::track(&tracking, "this test", &BTreeSet::from([me])).unwrap();
    tracking.tracker().attach().unwrap();
    let memory = requests.memory();
    assert_eq!(memory.service().tracked.load(Ordering::Acquire), 1);
    // The kernel program knows a thread that runs when the program is attached only after the lane's next context
    // switch.
    let (lane, me) = (tracking.tracker().memory(), this_thread());
    wait_until("this thread was switched in", || lane.word(REQUEST_LANE).pid.load(Ordering::Acquire) == me);
    script(
        &mut ObservedRequests { memory: &memory, tracker: tracking.tracker(), requests: &mut requests },
        connections,
    );
}

#[test]
fn request_is_queued_until_received_and_runs_until_answered() {
    run_on_request_lane(|seen, [mut connection, _]| {
        connection.send_request();
        assert_eq!(seen.queue_len(), 1);
        connection.receive_request();
        assert_eq!(seen.queue_len(), 0);
        let running = seen.running();
        assert!(running.number > 0 && running.arrived_ns < running.started_ns && !running.waited, "{running:?}");
        connection.exchange_answer();
        assert_eq!(seen.running().number, 0);
        connection.send_request();
        connection.receive_request();
        // The request did not wait for itself: no other request ran.
        assert!(seen.running().number > running.number && !seen.running().waited, "{:?}", seen.running());
    });
}

/// The observation continues between two windows of a comparison.
#[test]
fn request_under_way_is_kept_between_two_observations() {
    run_on_request_lane(|seen, [mut connection, _]| {
        connection.send_request();
        connection.receive_request();
        seen.requests.resume();
        connection.send_request();
        connection.exchange_answer();
        connection.receive_request();
        connection.exchange_answer();
        let told = seen.take_reported();
        assert!(matches!(told[..], [one, next] if one.finished_ns < next.finished_ns), "{told:?}");
    });
}

#[test]
fn request_waited_if_another_ran_at_its_arrival_or_start() {
    run_on_request_lane(|seen, [mut one, mut other]| {
        one.send_request();
        one.receive_request();
        let first = seen.running();
        other.send_request();
        assert_eq!(seen.queue_len(), 1);
        other.receive_request();
        assert!(seen.running().waited && seen.running().number != first.number);
        other.exchange_answer();
        other.send_request();
        one.exchange_answer();
        other.receive_request();
        // The request arrived before the first one finished.
        assert!(seen.running().waited);
        other.exchange_answer();
        one.send_request();
        one.receive_request();
        assert!(!seen.running().waited);
    });
}

#[test]
fn request_of_a_sleeping_thread_delays_no_other_request() {
    run_on_request_lane(|seen, [mut parked, mut other]| {
        parked.send_request();
        let (wake, sleeps) = std::sync::mpsc::channel::<()>();
        thread::scope(|scope| {
            let sleeper = scope.spawn(move || {
                parked.receive_request();
                let _ = sleeps.recv();
                parked.exchange_answer();
            });
            wait_until("the sleeper had taken it up", || seen.queue_len() == 0);
            wait_until("a request did not wait for the sleeper", || {
                other.send_request();
                other.receive_request();
                let waited = seen.running().waited;
                other.exchange_answer();
                !waited
            });
            assert_eq!(seen.memory.counts().parked, 1);
            drop(wake);
            sleeper.join().unwrap();
        });
    });
}

#[test]
fn first_request_is_parked_when_its_thread_takes_another() {
    run_on_request_lane(|seen, [mut parked, mut other]| {
        parked.send_request();
        parked.receive_request();
        let thread = this_thread();
        let Connection(client, service) = &mut other;
        thread::scope(|scope| {
            scope.spawn(move || {
                wait_until("the thread had nothing to do", || !process::wants_cpu(thread));
                client.write_all(b"ask").unwrap();
            });
            service.read_exact(&mut [0; 3]).unwrap();
        });
        assert!(!seen.running().waited, "{:?}", seen.running());
        assert_eq!(seen.memory.counts().parked, 1);
        other.exchange_answer();
        parked.exchange_answer();
    });
}

#[test]
fn request_that_waited_summons_the_holder_of_a_lent_lane() {
    run_on_request_lane(|seen, [mut one, mut other]| {
        let memory = seen.tracker.memory();
        let hold = memory.hold(BATCH_LANE);
        hold.state.store(LaneState::Lent as u32, Ordering::SeqCst);
        one.send_request();
        one.receive_request();
        assert_eq!(hold.state.load(Ordering::SeqCst), LaneState::Lent as u32);
        other.send_request();
        other.receive_request();
        assert_eq!(hold.state.load(Ordering::SeqCst), HoldState::SUMMONED);
        assert_eq!((hold.summons.load(Ordering::SeqCst), hold.lc_summons.load(Ordering::SeqCst)), (1, 1));
    });
}

#[test]
fn the_lane_shows_what_its_running_thread_works_on() {
    run_on_request_lane(|seen, [mut connection, _]| {
        connection.send_request();
        connection.receive_request();
        let mine = seen.running().number;
        let word = seen.memory.word(REQUEST_LANE);
        let between = word.stamp_ns.load(Ordering::Acquire);
        // Another thread of the service, without a request, runs on the lane for a moment, either before or during
        // `join`.
        let other = thread::spawn(|| pin_this_thread(&[REQUEST_LANE]).unwrap());
        other.join().unwrap();
        wait_until("this thread was switched out and in", || word.stamp_ns.load(Ordering::Acquire) > between);
        wait_until("the lane showed this thread's request again", || seen.running().number == mine);
    });
}

#[test]
fn a_connection_that_ends_leaves_nothing_queued() {
    run_on_request_lane(|seen, [mut connection, mut other]| {
        connection.send_request();
        assert_eq!(seen.queue_len(), 1);
        drop(connection);
        wait_until("the queue was empty", || seen.queue_len() == 0);
        other.send_request();
        other.receive_request();
        assert!(!seen.running().waited);
    });
}

#[test]
fn paused_observation_sees_nothing_and_resumes_correctly() {
    run_on_request_lane(|seen, [mut one, mut other]| {
        // One request is under way when the observation pauses; one starts and one ends during the pause.
        one.send_request();
        one.receive_request();
        seen.requests.pause();
        one.exchange_answer();
        other.send_request();
        other.receive_request();
        other.exchange_answer();
        other.send_request();
        assert_eq!(seen.take_reported(), []);
        let resumed_ns = now_ns();
        seen.requests.resume();
        other.receive_request();
        other.exchange_answer();
        one.send_request();
        assert_eq!(seen.queue_len(), 1);
        one.receive_request();
        assert_eq!(seen.queue_len(), 0);
        one.exchange_answer();
        let told = seen.take_reported();
        let right: Vec<&Request> = told.iter().filter(|request| request.arrived_ns >= resumed_ns).collect();
        assert!(right.len() == 1 && right[0].sends == 1, "{told:?}");
        assert!(told.iter().all(|request| request.arrived_ns >= resumed_ns || request.finished_ns >= resumed_ns));
    });
}

#[test]
fn request_of_a_dispatcher_stays_queued_until_a_worker_answers() {
    run_on_request_lane(|seen, [mut connection, _]| {
        for round in 0..5 {
            connection.send_request();
            connection.receive_request();
            // In the first round the kernel program does not know yet that another thread than the receiving one
            // answers at this socket.
            let known = round > 0;
            assert_eq!(seen.queue_len(), u32::from(known), "round {round}");
            thread::scope(|scope| scope.spawn(|| connection.exchange_answer()).join().unwrap());
            assert!(!known || seen.running().number == 0, "round {round}: {:?}", seen.running());
            assert_eq!(seen.queue_len(), 0, "round {round}");
        }
    });
}
