//! What a tracker is able to do. What it does for each service and each lane is said when they are added.

use crate::trace::options::TraceOptions;

/// What is loaded into the kernel besides the tracking of lanes. The fewer, the cheaper is a switch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Features {
    /// Requests of services can be seen at their sockets.
    pub requests: bool,
    /// What each thread of a service works on is written down: see [`crate::threads`]. Only with `requests`.
    pub threads: bool,
    /// Services can emit their requests: who ran on which lane when is written down.
    pub turns: bool,
    /// Request lanes have counters of instructions and cycles.
    pub counters: bool,
    /// Batch may look for itself.
    pub self_checking: bool,
    /// Counters say how much a service is disturbed: see [`crate::interference`].
    pub interference: bool,
    /// A cgroup can be a service or a batch job.
    pub groups: bool,
    /// Batch can have a scheduler of its own, which is off at first; see [`crate::scheduler`]. Only where there is
    /// sched_ext.
    pub scheduler: bool,
    /// Each thread of the services may run on one CPU alone: nobody looks at wake-ups after the kernel has found a place.
    pub single_places: bool,
    /// Who has each CPU for how long is written down, for a look at the whole machine.
    pub shares: bool,
    /// What happens on the way of requests is recorded: see [`crate::trace`]. Not together with a scheduler.
    pub trace: Option<TraceOptions>,
    /// Nobody lends lanes of this tracker: that a thread is woken or moved is no news, and nobody looks there.
    pub only_watched: bool,
    /// The same, and nobody looks at lanes at all: their words and books stay empty, and requests cost less to see.
    /// Whoever asks for this without a trace calls [`super::Tracker::watch_switches`].
    pub without_lanes: bool,
}
