//! The lane gate: where batch may have the sibling of a service's CPU, a holder keeps it off there while the service
//! runs, within microseconds (Elfen). The policy decides which CPUs batch has; on those beside a service, the gate
//! decides when.

mod book;
mod pairs;

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result};
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::topology::{BatchLane, Lanes};
use sidelane_policy::borrow::promise::RecentOverlap;
use sidelane_policy::borrow::worth::Worth;
use sidelane_policy::borrow::{Lending, Objective};
use sidelane_tracker::tracker::Tracker;

pub use book::{Asked, Book};
pub use pairs::lanes_of;

use super::config::LaneGate;
use sidelane_lanes::gate::{Gate, LaneKeeper, keepers};
use sidelane_lanes::holder::{Evictor, HolderBooks, Means};
use sidelane_lanes::log::LaneAudit;
use sidelane_lanes::slowdown::SlowdownKeeper;
use sidelane_lanes::terms::{LendingError, TermsKeeper};

/// What all keepers have in common.
pub struct LaneGates {
    gate: Gate,
    config: LaneGate,
    book: Arc<Book>,
    pen: LaneAudit,
}

impl LaneGates {
    /// As the file says. `pen` writes these decisions into the agent's own log.
    pub fn new(config: &LaneGate, pen: LaneAudit) -> Result<Self> {
        Ok(Self {
            gate: Gate::choose_for_adopted(config.gate)?,
            config: config.clone(),
            book: Arc::new(Book::new().context("cannot make a bell for the lanes' keepers")?),
            pen,
        })
    }

    /// Which lanes batch was sent away from.
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// How the lanes of a service with this objective are lent.
    pub fn lending(&self, slo: Option<Objective>) -> Result<Lending> {
        let lending = self.config.lending(slo).map_err(LendingError::from)?;
        Ok(if self.gate == Gate::Freezer { lending.evicting_at_once() } else { lending })
    }

    /// How batch gets off a lane.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Who measures what batch costs requests, if that is bounded.
    pub fn slowdown(&self) -> Option<SlowdownKeeper> {
        let bound = self.config.bound().filter(|_| self.gate == Gate::Holder)?;
        Some(SlowdownKeeper::new(bound, self.config.min_idle.as_nanos() as u64, now_ns()))
    }

    /// Keeps the lanes from now on. The service is tracked with them.
    pub fn keep(&self, lanes: Lanes, lending: Lending, tracker: &Tracker) -> Result<KeptLanes> {
        let memory = tracker.memory();
        let beside = lanes.request_lanes.clone();
        let terms = TermsKeeper::new(lending, &lanes, Arc::clone(&memory));
        let evictor: Arc<dyn Evictor> = Arc::clone(&self.book) as _;
        let means = Means { memory, evictor, audit: self.pen.clone() };
        let keepers = match self.gate {
            Gate::SchedIdle => Vec::new(),
            _ => keepers::hold(&lanes, tracker, lending, &means)?,
        };
        let overlap = RecentOverlap::new(now_ns(), means.memory.overlap(&beside, &lanes.batch_cpus()));
        Ok(KeptLanes { keepers, lanes: lanes.batch, beside, terms, overlap })
    }
}

/// The lanes beside one service. Dropping this leaves them to batch.
pub struct KeptLanes {
    keepers: Vec<LaneKeeper>,
    /// The lanes.
    pub lanes: Vec<BatchLane>,
    /// The CPUs of the service.
    pub beside: CpuSet,
    /// On what terms they are lent.
    pub terms: TermsKeeper,
    /// Overlap of batch beside the service lately.
    pub overlap: RecentOverlap,
}

impl KeptLanes {
    /// The lanes that are kept.
    pub fn cpus(&self) -> CpuSet {
        self.keepers.iter().map(LaneKeeper::cpu).collect()
    }

    /// The lanes whose keepers are not there any more.
    pub fn forsaken(&self) -> impl Iterator<Item = u32> {
        self.keepers.iter().filter(|keeper| keeper.is_displaced()).map(LaneKeeper::cpu)
    }

    /// Gives keepers their class back that another process has changed. Returns their lanes.
    pub fn put_right(&self) -> impl Iterator<Item = u32> {
        self.keepers.iter().filter(|keeper| keeper.put_right()).map(LaneKeeper::cpu)
    }

    /// When batch may have the lanes from now on.
    pub fn agree(&self, worth: Worth) {
        self.keepers.iter().for_each(|keeper| keeper.agree(worth));
    }

    /// Each lane with what its keeper did.
    pub fn books(&self) -> impl Iterator<Item = (u32, HolderBooks)> {
        self.keepers.iter().map(|keeper| (keeper.cpu(), keeper.books()))
    }

    /// Lets go of lanes that are not among these.
    pub fn retain(&mut self, cpus: &CpuSet) {
        self.keepers.retain(|keeper| cpus.contains(keeper.cpu()));
        self.lanes.retain(|lane| cpus.contains(lane.cpu));
    }

    /// The service consists of these processes. A lane that it visited, and cannot visit any more, can be kept again;
    /// one that it may visit must not be.
    pub fn receive_visitors(&mut self, processes: impl FnOnce() -> BTreeSet<u32>) {
        if self.keepers.iter().any(LaneKeeper::visited) {
            keepers::let_visitors_go(self.keepers.iter(), &processes());
        }
    }
}
