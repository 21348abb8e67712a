//! Whoever keeps a batch lane.

use super::super::holder::{Holder, HolderBooks};
use super::sched_ext::ExtKeeper;
use sidelane_policy::borrow::Reason;
use sidelane_policy::borrow::idle_threshold::IdleThreshold;

/// The keeper of one batch lane. Dropping it leaves the lane to batch.
pub enum LaneKeeper {
    /// Takes the lane in person.
    Holder(Holder),
    /// Has batch's scheduler keep batch off it.
    SchedExt(ExtKeeper),
}

impl LaneKeeper {
    /// The lane.
    pub fn cpu(&self) -> u32 {
        match self {
            Self::Holder(holder) => holder.cpu(),
            Self::SchedExt(keeper) => keeper.cpu(),
        }
    }

    /// Whether threads of the service were put on the batch lane and have not been acknowledged as
    /// gone.
    pub fn visited(&self) -> bool {
        match self {
            Self::Holder(holder) => holder.visited(),
            Self::SchedExt(keeper) => keeper.visited(),
        }
    }

    /// Says that the service can no longer run on the batch lane, whatever happened before.
    pub fn visitors_gone(&self) {
        match self {
            Self::Holder(holder) => holder.visitors_gone(),
            Self::SchedExt(keeper) => keeper.visitors_gone(),
        }
    }

    /// Gives its thread its class back, in case that another process has changed that. Returns whether one had.
    pub fn put_right(&self) -> bool {
        match self {
            Self::Holder(holder) => holder.put_right(),
            Self::SchedExt(_) => false,
        }
    }

    /// Why batch may not run on the lane; `None`: it may, or that is for its scheduler to say.
    pub fn kept_by(&self) -> Option<Reason> {
        match self {
            Self::Holder(holder) => holder.kept_by(),
            Self::SchedExt(_) => None,
        }
    }

    /// When batch may have the lane from now on. Batch's scheduler wakes nobody for a request: nothing is agreed there.
    pub fn set_idle_threshold(&self, threshold: IdleThreshold) {
        if let Self::Holder(holder) = self {
            holder.set_idle_threshold(threshold);
        }
    }

    /// What it did so far.
    pub fn books(&self) -> HolderBooks {
        match self {
            Self::Holder(holder) => holder.books(),
            Self::SchedExt(keeper) => keeper.books(),
        }
    }

    /// Whether it is not on its lane any more, and cannot keep it.
    pub fn is_displaced(&self) -> bool {
        match self {
            Self::Holder(holder) => holder.is_displaced(),
            Self::SchedExt(keeper) => keeper.is_displaced(),
        }
    }

    /// Batch's scheduler is about to be ended: one that keeps by it goes, too.
    pub fn dismiss_from_scheduler(&self) {
        match self {
            Self::Holder(_) => {}
            Self::SchedExt(keeper) => keeper.dismiss(),
        }
    }

    /// What went wrong when it had to be succeeded.
    pub fn forsaken(&self) -> Option<&std::io::Error> {
        match self {
            Self::Holder(_) => None,
            Self::SchedExt(keeper) => keeper.forsaken(),
        }
    }
}
