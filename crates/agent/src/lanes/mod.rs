//! The lane gate: where batch may have the sibling of a service's CPU, a holder keeps it off there while the service
//! runs, within microseconds (Elfen). The policy decides which CPUs batch has; on those beside a service, the gate
//! decides when.

mod book;
mod pairs;

use std::sync::Arc;

use anyhow::{Context, Result};
use sidelane_host::clock::now_ns;
use sidelane_host::topology::Lanes;
use sidelane_policy::borrow::{Lending, Objective};
use sidelane_tracker::tracker::Tracker;

pub use book::{Asked, Book};
pub use pairs::lanes_of;

use super::config::LaneGate;
use sidelane_lanes::gate::{Gate, keepers};
use sidelane_lanes::holder::{Evictor, Means};
use sidelane_lanes::kept_lanes::KeptLanes;
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
    pub fn keep(&self, lanes: &Lanes, lending: Lending, tracker: &Tracker) -> Result<KeptLanes> {
        let memory = tracker.memory();
        let terms = TermsKeeper::new(lending, lanes, Arc::clone(&memory));
        let evictor: Arc<dyn Evictor> = Arc::clone(&self.book) as _;
        let means = Means { memory, evictor, audit: self.pen.clone() };
        let keepers = match self.gate {
            Gate::SchedIdle => Vec::new(),
            _ => keepers::hold(lanes, tracker, lending, &means)?,
        };
        Ok(KeptLanes::new(keepers, lanes, terms, &means.memory))
    }
}
