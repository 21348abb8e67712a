//! The batch lanes beside one service, with their keepers and their lending limits.

use std::collections::BTreeSet;

use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::topology::{BatchLane, Lanes};
use sidelane_policy::borrow::idle_threshold::IdleThreshold;
use sidelane_policy::borrow::promise::RecentOverlap;
use sidelane_tracker::tracker::LaneMemory;

use super::gate::LaneKeeper;
use super::gate::keepers::acknowledge_departed_visitors;
use super::lending_limits::LendingLimitsKeeper;

/// Lanes beside one service. Dropping this value leaves them to batch.
pub struct KeptLanes {
    keepers: Vec<LaneKeeper>,
    /// Batch lanes; a gate without keepers leaves them to batch.
    pub lanes: Vec<BatchLane>,
    /// CPUs of the service.
    pub request_lanes: CpuSet,
    /// Lending limits of the lanes.
    pub limits: LendingLimitsKeeper,
    /// Recent overlap of batch with the service.
    pub overlap: RecentOverlap,
}

impl KeptLanes {
    /// Makes the value for the lanes of one service, whose keepers run already. The limits were written before the
    /// keepers began.
    pub fn new(keepers: Vec<LaneKeeper>, lanes: &Lanes, limits: LendingLimitsKeeper, memory: &LaneMemory) -> Self {
        let (lanes, beside, batch) = (lanes.batch.clone(), lanes.request_lanes.clone(), lanes.batch_cpus());
        let overlap = RecentOverlap::new(now_ns(), memory.overlap(&beside, &batch));
        Self { keepers, lanes, request_lanes: beside, limits, overlap }
    }

    /// Returns the keepers of the lanes.
    pub fn keepers(&self) -> impl Iterator<Item = &LaneKeeper> {
        self.keepers.iter()
    }

    /// Returns the lanes that have a keeper.
    pub fn lanes_with_keepers(&self) -> CpuSet {
        self.keepers().map(LaneKeeper::cpu).collect()
    }

    /// Returns the lanes whose keepers are no longer on them.
    pub fn displaced_lanes(&self) -> impl Iterator<Item = u32> {
        self.keepers().filter(|keeper| keeper.is_displaced()).map(LaneKeeper::cpu)
    }

    /// Restores the class of keepers if another process has changed it. Returns the lanes of these keepers.
    pub fn restore_keeper_classes(&self) -> impl Iterator<Item = u32> {
        self.keepers().filter(|keeper| keeper.restore_thread_class()).map(LaneKeeper::cpu)
    }

    /// Sets the idle time after which batch gets the lanes.
    pub fn set_idle_threshold(&self, threshold: IdleThreshold) {
        self.keepers().for_each(|keeper| keeper.set_idle_threshold(threshold));
    }

    /// Releases lanes that are not in `cpus`.
    pub fn retain(&mut self, cpus: &CpuSet) {
        self.keepers.retain(|keeper| cpus.contains(keeper.cpu()));
        self.lanes.retain(|lane| cpus.contains(lane.cpu));
    }

    /// Releases all lanes. The lending limits stay.
    pub fn release_all(&mut self) {
        self.keepers.clear();
    }

    /// Returns whether the service was on one of the lanes, and may still be there.
    pub fn has_service_visitors(&self) -> bool {
        self.keepers().any(LaneKeeper::has_service_visitors)
    }

    /// Holds a lane again that the service visited, if none of the service's processes (`service_pids`) may run there
    /// any more.
    pub fn rehold_visited_lanes(&self, service_pids: impl FnOnce() -> BTreeSet<u32>) {
        if self.has_service_visitors() {
            acknowledge_departed_visitors(self.keepers(), &service_pids());
        }
    }
}
