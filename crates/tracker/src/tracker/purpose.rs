//! Purposes for which a tracker is loaded.

use crate::trace::options::TraceOptions;

/// Purpose of a tracker. Only programs for it are loaded into the kernel: fewer programs make a context switch cheaper.
/// Services and lanes are added later.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// Observe requests at sockets, and which of them each thread works on ([`crate::threads`]). Lanes are not tracked:
    /// their words and statistics stay empty. The owner calls [`super::Tracker::attach_switch_program`].
    Threads,
    /// Trace requests ([`crate::trace`]). Lanes are not tracked.
    Trace(TraceOptions),
    /// Observe lanes of which none is lent, without wakeups and migrations. No batch is tracked.
    Watch {
        /// Whether requests at sockets are observed, too.
        requests: bool,
    },
    /// Lend the lanes of services to batch.
    Lend {
        /// Whether requests at sockets are observed, too.
        requests: bool,
        /// Parts that are loaded for lent lanes.
        lent: LaneLending,
    },
    /// Share a machine: the use of each CPU is counted.
    Share {
        /// Whether requests at sockets are observed, too.
        requests: bool,
        /// Whether counters measure how much a service is disturbed: see [`crate::interference`].
        interference: bool,
        /// Parts that are loaded for lent lanes; `None` if no lanes are lent.
        lent: Option<LaneLending>,
    },
}

/// Way in which lanes are lent, and the available data of requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct LaneLending {
    /// Whether services emit their requests: then the last threads on each lane are recorded.
    pub turns: bool,
    /// Whether request lanes have counters of instructions and cycles.
    pub counters: bool,
    /// Whether batch may check its lane itself.
    pub self_checking: bool,
    /// Whether each thread of the services may run on one CPU only: then its wakeup is seen before the kernel has
    /// placed it.
    pub single_places: bool,
    /// Extension of the kernel program, if it has one.
    pub extension: Option<Extension>,
}

/// Extension of the kernel program, which has at most one.
#[derive(Clone, Copy, Debug)]
pub enum Extension {
    /// Trace of requests.
    Trace(TraceOptions),
    /// Scheduler for batch, which is off at first: see [`crate::scheduler`]. Needs sched_ext.
    Scheduler,
}

impl Purpose {
    /// Returns the parts that are loaded for lent lanes; `None` if no lanes are lent.
    pub fn lane_lending(&self) -> Option<&LaneLending> {
        match self {
            Self::Lend { lent, .. } => Some(lent),
            Self::Share { lent, .. } => lent.as_ref(),
            Self::Threads | Self::Trace(_) | Self::Watch { .. } => None,
        }
    }

    /// Returns the options of the trace; `None` if there is no trace.
    pub fn trace(&self) -> Option<TraceOptions> {
        match (*self, self.extension()) {
            (Self::Trace(options), _) | (_, Some(Extension::Trace(options))) => Some(options),
            _ => None,
        }
    }

    /// Returns whether lanes are tracked.
    pub fn has_lanes(&self) -> bool {
        !matches!(self, Self::Threads | Self::Trace(_))
    }

    /// Returns whether lanes are lent and `condition` is true of the way in which they are lent.
    pub fn lends_with(&self, condition: impl FnOnce(&LaneLending) -> bool) -> bool {
        self.lane_lending().is_some_and(condition)
    }

    /// Returns whether requests at sockets are observed.
    pub fn has_requests(&self) -> bool {
        match self {
            Self::Watch { requests } | Self::Lend { requests, .. } | Self::Share { requests, .. } => {
                *requests || self.trace().is_some()
            }
            Self::Threads | Self::Trace(_) => true,
        }
    }

    /// Returns whether interference is measured.
    pub fn has_interference(&self) -> bool {
        matches!(self, Self::Share { interference: true, .. })
    }

    pub(super) fn extension(&self) -> Option<Extension> {
        self.lane_lending().and_then(|lent| lent.extension)
    }

    pub(super) fn has_threads(&self) -> bool {
        matches!(self, Self::Threads)
    }

    pub(super) fn has_shares(&self) -> bool {
        matches!(self, Self::Share { .. })
    }
}
