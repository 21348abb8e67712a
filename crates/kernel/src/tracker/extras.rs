//! What a tracker can do besides tracking lanes.

use crate::counters::EventPair;

/// What a tracker does besides tracking lanes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras {
    /// Track the service's requests too, for [`crate::requests::RequestMemory`].
    pub requests: bool,
    /// The service's requests are emitted: write down who ran on which lane when.
    pub turns: bool,
    /// Count these for each request, where they can be counted.
    pub counters: Option<EventPair>,
    /// Batch may look for itself.
    pub gated: bool,
    /// A lane that is lent stays lent when a request starts that had to wait.
    pub lends_to_waited: bool,
    /// Have a scheduler for batch, which is off at first; see [`crate::scheduler`]. Only where there
    /// is sched_ext.
    pub scheduler: bool,
    /// A thread of this process plays the hypervisor, and says what it takes: to see how true the books are.
    pub thief: bool,
}
