//! Tests of the memory words in which the kernel program records the turns of a service, and of the holders that it
//! summons. The tests check counts, not times.

mod common;

use std::path::Path;
use std::sync::atomic::Ordering;

use common::lanes::LANES;
use common::{Service, lab_binary_path, lock_lanes, wait_until};
use sidelane_formats::HoldState;
use sidelane_host::service::Service as Tracked;
use sidelane_host::topology::Topology;
use sidelane_policy::borrow::LaneState;
use sidelane_tracker::tracker::{LaneLending, LaneMemory, Purpose};
use sidelane_tracker::tracking::{LaneUse, ServiceTracking};

const REQUEST_LANE: u32 = 0;
const BATCH_LANE: u32 = 1;

/// Calls `script` with a tracked service on the request lane; the batch lane has no holder and no batch.
fn with_tracked_service(service: &Service, script: impl FnOnce(&LaneMemory)) {
    let lanes = Topology::read(Path::new("/sys")).unwrap().declared_pairs(LANES).unwrap();
    let tracked = Tracked::of_process(service.pid());
    let purpose = Purpose::Lend { requests: false, lent: LaneLending::default() };
    let tracking = ServiceTracking::with_own_tracker(&tracked, &lanes, LaneUse::default(), purpose).unwrap();
    let tracker = tracking.tracker();
    tracker.attach().unwrap();
    let memory = tracker.memory();
    wait_for_turns(&memory, 1);
    script(&memory);
}

/// Waits until the service has started on its lane `turns` more times.
fn wait_for_turns(memory: &LaneMemory, turns: u64) {
    let so_far = || memory.accounting().lane(REQUEST_LANE).lc_switches;
    let before = so_far();
    wait_until("the service runs again and again", || so_far() >= before + turns);
}

#[test]
fn service_that_stops_beside_an_evicted_lane_sends_no_summons() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(lab) = lab_binary_path() else { return };
    let service = Service::pulsing(&lab);
    with_tracked_service(&service, |memory| {
        let hold = memory.hold(BATCH_LANE);
        hold.evict();
        wait_for_turns(memory, 500);
        assert_eq!(hold.state(), Ok(HoldState::Stored(LaneState::Evicted)));
        assert_eq!((hold.summons.load(Ordering::Relaxed), hold.lc_summons.load(Ordering::Relaxed)), (0, 0));
    });
}
