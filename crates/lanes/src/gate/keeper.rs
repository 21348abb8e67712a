//! The keeper of a batch lane, of the kind that the gate needs.

use super::super::holder::{Holder, KeeperCounts};
use super::sched_ext::ExtKeeper;
use sidelane_policy::borrow::LaneReason;
use sidelane_policy::borrow::idle_threshold::IdleThreshold;

/// Keeper of one batch lane. Dropping it leaves the lane to batch.
pub enum LaneKeeper {
    /// Real-time thread that holds the lane itself.
    Holder(Holder),
    /// Thread that makes batch's scheduler keep batch off the lane.
    SchedExt(ExtKeeper),
}

impl LaneKeeper {
    /// Returns the CPU of the lane.
    pub fn cpu(&self) -> u32 {
        match self {
            Self::Holder(holder) => holder.cpu(),
            Self::SchedExt(keeper) => keeper.cpu(),
        }
    }

    /// Returns whether threads of the service came to the batch lane and were not acknowledged as gone.
    pub fn has_service_visitors(&self) -> bool {
        match self {
            Self::Holder(holder) => holder.has_service_visitors(),
            Self::SchedExt(keeper) => keeper.has_service_visitors(),
        }
    }

    /// Acknowledges that the service cannot run on the batch lane any more.
    pub fn acknowledge_visitors_gone(&self) {
        match self {
            Self::Holder(holder) => holder.acknowledge_visitors_gone(),
            Self::SchedExt(keeper) => keeper.acknowledge_visitors_gone(),
        }
    }

    /// Restores the class of the keeper's thread if another process has changed it. Returns whether one had.
    pub fn restore_thread_class(&self) -> bool {
        match self {
            Self::Holder(holder) => holder.restore_thread_class(),
            Self::SchedExt(_) => false,
        }
    }

    /// Returns why batch may not run on the lane; `None` if it may, or if batch's scheduler decides.
    pub fn block_reason(&self) -> Option<LaneReason> {
        match self {
            Self::Holder(holder) => holder.block_reason(),
            Self::SchedExt(_) => None,
        }
    }

    /// Sets the idle time after which batch gets the lane. With batch's scheduler this has no effect: it wakes no
    /// keeper for a request.
    pub fn set_idle_threshold(&self, threshold: IdleThreshold) {
        if let Self::Holder(holder) = self {
            holder.set_idle_threshold(threshold);
        }
    }

    /// Makes a holder check the lane now. A keeper with batch's scheduler does so at each change.
    pub fn check_now(&self) {
        if let Self::Holder(holder) = self {
            holder.check_now();
        }
    }

    /// Returns the keeper's counts since its start.
    pub fn counts(&self) -> KeeperCounts {
        match self {
            Self::Holder(holder) => holder.counts(),
            Self::SchedExt(keeper) => keeper.counts(),
        }
    }

    /// Returns whether the keeper is no longer on its lane, and so cannot hold it.
    pub fn is_displaced(&self) -> bool {
        match self {
            Self::Holder(holder) => holder.is_displaced(),
            Self::SchedExt(keeper) => keeper.is_displaced(),
        }
    }

    /// Dismisses a keeper that works by batch's scheduler, which is about to end.
    pub fn dismiss_from_scheduler(&self) {
        match self {
            Self::Holder(_) => {}
            Self::SchedExt(keeper) => keeper.dismiss(),
        }
    }

    /// Returns why no holder could replace the keeper after the end of batch's scheduler; `None` if a holder did, or
    /// none was needed.
    pub fn takeover_error(&self) -> Option<&std::io::Error> {
        match self {
            Self::Holder(_) => None,
            Self::SchedExt(keeper) => keeper.takeover_error(),
        }
    }
}
