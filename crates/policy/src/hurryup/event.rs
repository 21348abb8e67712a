//! Input of the Hurry-up policy.

use crate::Nanos;
use crate::cpus::CpuMask;

/// Number of a thread, which no other thread of the service has.
pub type Thread = u32;

/// Number of a request, which no other request under way has.
pub type Request = u64;

/// Cores of a machine that are online.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BigLittleCores {
    /// Online big cores.
    pub big: CpuMask,
    /// Online little cores.
    pub little: CpuMask,
}

/// Event that the Hurry-up policy receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HurryEvent {
    /// The online cores have changed to these.
    Cores(BigLittleCores),
    /// A thread has joined the pool.
    Joined {
        /// Thread that has joined.
        thread: Thread,
        /// CPUs that the thread had originally. It is never sent to others.
        allowed: CpuMask,
    },
    /// A thread has ended.
    Left {
        /// Thread that has ended.
        thread: Thread,
    },
    /// A thread began to work on a request.
    Began {
        /// Thread that works on the request.
        thread: Thread,
        /// Request that has begun.
        request: Request,
        /// Start of the request. A time in the future, by a clock that was set back, counts as now.
        since: Nanos,
    },
    /// A request is done.
    Ended {
        /// Request that is done.
        request: Request,
    },
    /// The service wrote a line into the paper's pipe: the first line of a request is its start, the second its end.
    Noted {
        /// Thread that works on the request.
        thread: Thread,
        /// Request that begins or ends.
        request: Request,
        /// Time of the line.
        at: Nanos,
    },
    /// A thread could not be sent to this core, and stays where it was. The thread that was to leave the core for it
    /// stays, too. The refused thread is not sent there again before the core goes offline and comes back, or
    /// [`HurryEvent::Reconsider`].
    Refused {
        /// Thread that could not be moved.
        thread: Thread,
        /// Core that the thread was to be moved to.
        cpu: usize,
    },
    /// Refused moves may be possible now.
    Reconsider,
    /// No event: time has passed.
    Nothing,
}
