use super::*;

const PID: u32 = 100;

/// Ledger with one process, whose threads 1 and 2 own rings 0 and 1.
struct TestLedger(Ledger);

impl TestLedger {
    fn with_lanes(lane_count: usize) -> Self {
        let mut ledger = Ledger::new(lane_count);
        ledger.add_process(PID);
        Self(ledger)
    }

    fn record_event(&mut self, kind: EmitKind, ring: usize, id: u64, at_ns: u64) -> &mut Self {
        self.0.record_event((0, ring), EmittedEvent { id, at_ns, kind, tid: 1 }, 1000);
        self
    }

    fn set_current_request(&mut self, ring: usize, id: u64, since_ns: u64) -> &mut Self {
        self.0.record_current_request((0, ring), CurrentRequest { owner: ring as u32 + 1, id, since_ns }, 1000);
        self
    }

    fn lane_content(&mut self, lane: usize, busy: bool, tid: Option<u32>) -> LaneContent {
        self.0.lane_content(lane, LaneOccupancy { busy, tid }, 1000)
    }

    /// Returns whether the request of thread `tid` on lane 0 waited; `None` if it works on no request.
    fn request_waited(&mut self, tid: u32) -> Option<bool> {
        let running = self.lane_content(0, true, Some(tid)).running;
        (running.number > 0).then_some(running.waited)
    }
}

use EmitKind::{Finished, Received};

#[test]
fn lane_shows_a_request_from_start_to_finish() {
    let mut play = TestLedger::with_lanes(1);
    assert_eq!(play.lane_content(0, true, Some(1)), LaneContent::default());
    play.record_event(Received, 0, 5, 10).set_current_request(0, 5, 20);
    let running = play.lane_content(0, true, Some(1)).running;
    assert_eq!(running, RunningRequest { number: running.number, arrived_ns: 10, started_ns: 20, waited: false });
    play.record_event(Finished, 0, 5, 30).set_current_request(0, 5, 0);
    let shown = play.lane_content(0, true, Some(1));
    assert_eq!((shown.running.number, shown.finished_ns, shown.finished), (0, 30, 1));
    play.set_current_request(0, 5, 40);
    assert!(play.lane_content(0, true, Some(1)).running.number > running.number, "an id may come back");
}

#[test]
fn request_waited_if_another_finished_after_its_arrival() {
    let mut play = TestLedger::with_lanes(1);
    play.set_current_request(0, 0, 0).request_waited(1);
    play.record_event(Received, 0, 1, 10).set_current_request(0, 1, 10);
    assert_eq!(play.request_waited(1), Some(false));
    play.record_event(Received, 0, 2, 20).record_event(Finished, 0, 1, 30).set_current_request(0, 2, 31);
    assert_eq!(play.request_waited(1), Some(true));
    play.record_event(Finished, 0, 2, 40).record_event(Received, 0, 3, 50).set_current_request(0, 3, 50);
    assert_eq!(play.request_waited(1), Some(false));
}

#[test]
fn request_without_receipt_waited_only_beside_another() {
    let mut play = TestLedger::with_lanes(1);
    play.record_event(Finished, 0, 1, 30).set_current_request(0, 2, 20);
    assert_eq!(play.request_waited(1), Some(false));
    play.set_current_request(1, 3, 40);
    assert_eq!(play.request_waited(2), Some(true));
    play.record_event(Finished, 0, 2, 50).set_current_request(0, 2, 0).set_current_request(1, 4, 60);
    assert_eq!(play.request_waited(2), Some(false));
}

#[test]
fn another_thread_may_finish_a_request() {
    let mut play = TestLedger::with_lanes(1);
    play.record_event(Received, 1, 7, 10).set_current_request(0, 7, 20);
    assert_eq!(play.request_waited(1), Some(false));
    play.record_event(Finished, 1, 7, 30);
    assert_eq!(play.request_waited(1), None);
    play.record_event(Received, 1, 7, 40).set_current_request(0, 7, 41);
    assert_eq!(play.request_waited(1), Some(false), "the id was used again");
}

#[test]
fn lane_shows_its_running_thread_and_none_when_idle() {
    let mut play = TestLedger::with_lanes(2);
    play.set_current_request(0, 1, 20).set_current_request(1, 2, 30);
    let first = play.lane_content(0, true, Some(1)).running.number;
    let second = play.lane_content(1, true, Some(2)).running.number;
    assert!(first != second && first > 0 && second > 0);
    // Three states: the service was preempted, it sleeps, or another of its threads runs.
    assert_eq!(play.lane_content(0, true, None).running.number, first);
    assert_eq!(play.lane_content(0, false, None).running.number, 0);
    assert_eq!(play.lane_content(0, true, Some(9)).running.number, 0);
    // Requests of other lanes do not make a request wait.
    assert!(!play.lane_content(1, true, Some(2)).running.waited);
}

#[test]
fn request_of_an_ended_thread_expires() {
    let mut play = TestLedger::with_lanes(1);
    play.set_current_request(0, 1, 20).request_waited(1);
    play.0.record_current_request(
        (0, 1),
        CurrentRequest { owner: 2, id: 2, since_ns: 30 + UNDER_WAY_MAX_NS },
        40 + UNDER_WAY_MAX_NS,
    );
    let seen = LaneOccupancy { busy: true, tid: Some(2) };
    assert!(!play.0.lane_content(0, seen, 40 + UNDER_WAY_MAX_NS).running.waited);
}

#[test]
fn nonsensical_events_do_no_harm() {
    let mut play = TestLedger::with_lanes(1);
    play.record_event(Finished, 0, 4, u64::MAX).record_event(Received, 255, 3, u64::MAX);
    play.set_current_request(0, u64::MAX, u64::MAX).set_current_request(1, 3, 1);
    let shown = play.lane_content(0, true, Some(1));
    assert_eq!((shown.running.started_ns, shown.finished_ns), (1000, 1000));
    assert_eq!(play.lane_content(0, true, Some(2)).running.arrived_ns, 1);
    play.0.remove_process(0);
    assert_eq!(play.lane_content(0, true, None).running.number, 0);
}
