//! What the policies differ in: may batch run beside what the request lanes do now?

use crate::Nanos;
use crate::borrow::seen::Observation;
use crate::borrow::state::Reason;

/// The `check` of Elfen's Fig. 9, for one batch lane.
///
/// In the figure batch itself checks, all the time. Here whoever keeps the lane checks when
/// something changes and when time is up, and may miss what lay between two looks. So rules count
/// from the times that an [`Observation`] carries, not from when they happened to look.
pub trait Rule {
    /// Takes in what was seen at `now`, idle or busy. While the request lanes are busy, says
    /// until when batch may run beside them; `None`: not at all, and not before they were idle.
    fn check(&mut self, now: Nanos, seen: &Observation) -> Option<Nanos>;

    /// Whether a request that starts after an idle moment like this one may find batch running:
    /// then nobody has to be summoned when it does.
    fn lends(&self, seen: &Observation) -> bool;

    /// Why batch may not run beside what is seen, where the rule has a reason of its own.
    fn refuses(&self, _seen: &Observation) -> Option<Reason> {
        None
    }
}
