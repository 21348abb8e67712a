//! Input of the policy.

use crate::Nanos;
use crate::cpus::CpuMask;

/// A thread, by a number that no other thread of the service has.
pub type Thread = u32;

/// A request, by a number that no other request under way has.
pub type Request = u64;

/// The cores of a machine that are online.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BigLittleCores {
    /// Big cores.
    pub big: CpuMask,
    /// Little cores.
    pub little: CpuMask,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HurryEvent {
    /// These cores are online from now on.
    Cores(BigLittleCores),
    /// A thread is in the pool from now on.
    Joined {
        /// The thread.
        thread: Thread,
        /// The CPUs that it had. It is never sent to others.
        allowed: CpuMask,
    },
    /// A thread has ended.
    Left {
        /// The thread.
        thread: Thread,
    },
    /// A thread began to work on a request.
    Began {
        /// The thread.
        thread: Thread,
        /// The request.
        request: Request,
        /// Its start. A time in the future, by a clock that was set back, counts as now.
        since: Nanos,
    },
    /// A request is done.
    Ended {
        /// The request.
        request: Request,
    },
    /// A line of the paper's pipe: the first of a request is its begin, the second its end.
    Noted {
        /// The thread.
        thread: Thread,
        /// The request.
        request: Request,
        /// The time.
        at: Nanos,
    },
    /// A thread could not be sent to this core, and is where it was before; so is the thread that was to leave the core
    /// for it. It is not sent there again before the core goes offline and comes back, or [`HurryEvent::Reconsider`].
    Refused {
        /// The thread.
        thread: Thread,
        /// The core.
        cpu: usize,
    },
    /// Refused moves may be possible now.
    Reconsider,
    /// Nothing: time has passed.
    Nothing,
}
