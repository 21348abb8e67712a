//! Purposes of a tracker.

use crate::trace::options::TraceOptions;

/// The purpose of a tracker. Nothing else is loaded into the kernel: fewer programs make a context switch cheaper.
/// Services and lanes are given when they are added.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// Watch requests at sockets, and which of them each thread works on ([`crate::threads`]). Lanes are not tracked:
    /// their words and statistics stay empty. The owner calls [`super::Tracker::watch_switches`].
    Threads,
    /// Trace requests ([`crate::trace`]). Lanes are not tracked.
    Trace(TraceOptions),
    /// Watch lanes of which none is lent, without wakeups and migrations.
    Watch {
        /// Watch requests at sockets, too.
        requests: bool,
    },
    /// Lend the lanes of services to batch.
    Lend {
        /// Watch requests at sockets, too.
        requests: bool,
        /// The parts that are loaded for that.
        lent: LaneLending,
    },
    /// Share a machine: the use of each CPU is counted.
    Share {
        /// Watch requests at sockets, too.
        requests: bool,
        /// Counters measure how much a service is disturbed: see [`crate::interference`].
        interference: bool,
        /// Lend lanes, too.
        lent: Option<LaneLending>,
    },
}

/// How lanes are lent, and which data of requests there are.
#[derive(Clone, Copy, Debug, Default)]
pub struct LaneLending {
    /// Services emit their requests: the last threads on each lane are recorded.
    pub turns: bool,
    /// Request lanes have counters of instructions and cycles.
    pub counters: bool,
    /// Batch may check its lane itself.
    pub self_checking: bool,
    /// Each thread of the services may run on one CPU only: its wakeup is seen before the kernel has placed it.
    pub single_places: bool,
    /// What else the kernel program does.
    pub extension: Option<Extension>,
}

/// An extension of the kernel program. It has one at most.
#[derive(Clone, Copy, Debug)]
pub enum Extension {
    /// A trace of requests.
    Trace(TraceOptions),
    /// A scheduler for batch, which is off at first: see [`crate::scheduler`]. Needs sched_ext.
    Scheduler,
}

impl Purpose {
    /// Returns what is loaded for lanes that are lent, if they are.
    pub fn lent(&self) -> Option<&LaneLending> {
        match self {
            Self::Lend { lent, .. } => Some(lent),
            Self::Share { lent, .. } => lent.as_ref(),
            Self::Threads | Self::Trace(_) | Self::Watch { .. } => None,
        }
    }

    /// Returns the trace, if there is one.
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

    /// Returns whether lanes are lent and `how` is true of them.
    pub fn lends(&self, how: impl FnOnce(&LaneLending) -> bool) -> bool {
        self.lent().is_some_and(how)
    }

    /// Returns whether requests at sockets are watched.
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
        self.lent().and_then(|lent| lent.extension)
    }

    pub(super) fn has_threads(&self) -> bool {
        matches!(self, Self::Threads)
    }

    pub(super) fn has_shares(&self) -> bool {
        matches!(self, Self::Share { .. })
    }
}
