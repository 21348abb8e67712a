//! Hold words: the state of a batch lane, on which its holder and the kernel program agree.
//!
//! The holder runs on a batch lane while the service is busy on the request lane. It blocks while the service is idle,
//! and after it has evicted batch. While it is blocked and batch may run, only the kernel program wakes it. After one
//! missed wakeup batch would run beside the service for as long as the service stays busy. The word is the handshake
//! that excludes missed wakeups. While batch is evicted, the holder checks the request lane by its own timer, and may
//! ask for one wakeup at the end of the service's work. Batch that is still on the lane beside a busy service, or back
//! there, summons the holder as well. A freeze takes time, and a thread can leave its cgroup.
//!
//! ```text
//! RELEASED ──kernel: service starts beside running batch──► SUMMONED
//! SUMMONED ──holder: runs, preempting batch───────────────► HELD
//! HELD     ──holder: service idle long enough─────────────► RELEASED
//! HELD     ──holder: batch sent away, lane left to kernel─► EVICTED
//! EVICTED  ──holder: looks again, of its own accord───────► HELD
//! EVICTED  ──kernel: batch is there beside the service────► SUMMONED
//! HELD     ──holder: batch may run beside some requests───► LENT
//! LENT     ──kernel: a request starts that had to wait────► SUMMONED
//! ```
//!
//! Four of these states are the [`LaneState`] in which the lane's keeper left the lane. SUMMONED is no state of the
//! lane but of the handshake: the kernel program has called the keeper, and it has not come yet.
//!
//! Each side stores its own word, then reads the other's, with a full barrier between (as in Dekker's algorithm). The
//! holder stores RELEASED and reads whether the service is busy. The kernel program stores that the service is busy and
//! reads whether the lane is RELEASED. The side whose barrier comes second sees the other side's store. So the holder
//! stays, or the kernel program summons it, or both.
//!
//! A summons is a compare-and-swap, so it is sent once. It is a token in a ring buffer that waits for the holder: it
//! can be late, but is never lost. A holder that has stayed may find such a token later. It then holds the lane, sees
//! that the service is not busy, and releases it again.

use core::fmt;

use sidelane_policy::borrow::LaneState;

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Content of a hold word: `enum sidelane_hold`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldState {
    /// State that the lane's keeper has stored.
    Stored(LaneState),
    /// A summons has been sent and has not reached the keeper.
    Summoned,
}

impl HoldState {
    /// Number of [`HoldState::Summoned`] in a hold word.
    pub const SUMMONED: u32 = 1;

    /// Returns whether batch has to be off the lane while the service is busy.
    pub fn keeps_batch_off(self) -> bool {
        !matches!(self, Self::Stored(state) if state.lets_batch_run())
    }
}

/// Error for a number that belongs to no [`HoldState`]: the other side has another version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownHoldState(pub u32);

impl fmt::Display for UnknownHoldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no hold state has the number {}", self.0)
    }
}

impl core::error::Error for UnknownHoldState {}

impl TryFrom<u32> for HoldState {
    type Error = UnknownHoldState;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        match number {
            0 => Ok(Self::Stored(LaneState::Released)),
            Self::SUMMONED => Ok(Self::Summoned),
            2 => Ok(Self::Stored(LaneState::Held)),
            3 => Ok(Self::Stored(LaneState::Evicted)),
            4 => Ok(Self::Stored(LaneState::Lent)),
            _ => Err(UnknownHoldState(number)),
        }
    }
}

/// State of a batch lane, in shared memory: `struct sidelane_hold_word`.
///
/// Only the lane's one holder calls the methods that change the state: they are its side of the handshake.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct HoldWord {
    /// Number of a [`HoldState`].
    pub state: AtomicU32,
    /// Thread id of the holder; 0 while there is none.
    pub holder_pid: AtomicU32,
    /// Number of wakeups sent to the holder.
    pub summons: AtomicU64,
    /// Number of wakeups sent by the request lane, whose CPU time they cost; a part of `summons`.
    pub lc_summons: AtomicU64,
    /// 1 while a preempted batch thread waits for the lane.
    pub batch_waits: AtomicU32,
    /// Thread id of the batch thread that waits.
    pub waiting_pid: AtomicU32,
    /// Time at which the latest lending of the lane ends, unless the holder takes the lane back sooner.
    pub lent_until_ns: AtomicU64,
    /// 1 while batch is kept off the lane, whatever the service does.
    pub kept_off: AtomicU32,
    /// 1 while the holder, which has evicted batch, is to be woken when the service stops. The kernel program clears it.
    pub call_when_idle: AtomicU32,
    /// Time for which the holder waited until the service had been idle for long enough.
    pub threshold_ns: AtomicU64,
    /// Time of the holder beside the idle service while batch was kept off.
    pub comparing_ns: AtomicU64,
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::{align_of, offset_of, size_of};
    assert!(size_of::<HoldWord>() == 64 && align_of::<HoldWord>() == 64);
    assert!(offset_of!(HoldWord, state) == 0);
    assert!(offset_of!(HoldWord, holder_pid) == 4);
    assert!(offset_of!(HoldWord, summons) == 8);
    assert!(offset_of!(HoldWord, lc_summons) == 16);
    assert!(offset_of!(HoldWord, batch_waits) == 24);
    assert!(offset_of!(HoldWord, waiting_pid) == 28);
    assert!(offset_of!(HoldWord, lent_until_ns) == 32);
    assert!(offset_of!(HoldWord, kept_off) == 40);
    assert!(offset_of!(HoldWord, call_when_idle) == 44);
    assert!(offset_of!(HoldWord, threshold_ns) == 48);
    assert!(offset_of!(HoldWord, comparing_ns) == 56);
};

impl HoldWord {
    /// Returns the present state of the lane, or an error for an unknown number.
    #[inline]
    pub fn state(&self) -> Result<HoldState, UnknownHoldState> {
        HoldState::try_from(self.state.load(Ordering::Acquire))
    }

    /// Stores that the holder is on the lane and keeps it, with or without a summons.
    #[inline]
    pub fn hold(&self) {
        // A swap is correct, whatever state it replaces. The kernel program may send a summons at this moment. Then
        // either its compare-and-swap fails because of this swap, or this swap overwrites SUMMONED. In the second case
        // the holder sees the same state of the service, and finds an outdated token later.
        self.state.swap(LaneState::Held as u32, Ordering::AcqRel);
    }

    /// Stores that the holder blocks and lets batch run. Returns whether the holder may block: `false` if `busy` says
    /// that the service has started in between. Then the lane is still held.
    ///
    /// `busy` must read the request lane's word again; it is called once.
    #[must_use = "a holder that blocks on false is never summoned"]
    pub fn release(&self, busy: impl FnOnce() -> bool) -> bool {
        self.leave(LaneState::Released, busy)
    }

    /// Stores that batch is evicted and the holder blocks. A timer wakes the holder to check whether the service has
    /// stopped. The kernel program summons the holder only if batch runs on the lane nevertheless.
    #[inline]
    pub fn evict(&self) {
        self.state.store(LaneState::Evicted as u32, Ordering::Release);
    }

    /// Asks the kernel program to wake the holder of an evicted lane once, when the service stops. Returns whether the
    /// holder may block: `false` if `busy` says that the service has stopped in between.
    ///
    /// `busy` must read the request lane's word again; it is called once.
    #[must_use = "a holder that blocks on false is woken by its timer only"]
    pub fn call_when_idle(&self, busy: impl FnOnce() -> bool) -> bool {
        self.call_when_idle.store(1, Ordering::Release);
        // The kernel program has the same barrier between its store of the request lane's word and its load of this
        // one.
        fence(Ordering::SeqCst);
        busy()
    }

    /// Stores that the holder blocks and lets batch run beside requests that did not wait. Returns whether the holder
    /// may block: `false` if `must_hold` says that a request that had to wait has started in between.
    ///
    /// `must_hold` must read the request words again; it is called once.
    #[must_use = "a holder that blocks on false is never summoned"]
    pub fn lend(&self, must_hold: impl FnOnce() -> bool) -> bool {
        self.leave(LaneState::Lent, must_hold)
    }

    /// Stores `state` and leaves the lane, unless `stay` says that the lane must be held. `stay` is called after the
    /// store is visible.
    fn leave(&self, state: LaneState, must_hold: impl FnOnce() -> bool) -> bool {
        self.state.store(state as u32, Ordering::Release);
        // The kernel program has the same barrier between its store of the request lane's word and
        // its load of this state.
        fence(Ordering::SeqCst);
        if must_hold() {
            // Holding is correct here even if the kernel program has sent a summons since; see `hold`.
            self.hold();
            return false;
        }
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn hold_states_convert_to_numbers_and_back() {
        use LaneState::*;
        for state in [Released, Held, Evicted, Lent] {
            assert_eq!(HoldState::try_from(state as u32), Ok(HoldState::Stored(state)));
        }
        assert_eq!(HoldState::try_from(HoldState::SUMMONED), Ok(HoldState::Summoned));
        assert_eq!(HoldState::try_from(5), Err(UnknownHoldState(5)));
    }

    #[test]
    fn a_lane_is_released_only_while_the_service_is_idle() {
        let word = HoldWord::default();
        word.hold();
        assert!(!word.release(|| true));
        assert_eq!(word.state(), Ok(HoldState::Stored(LaneState::Held)));
        assert!(word.release(|| false));
        assert_eq!(word.state(), Ok(HoldState::Stored(LaneState::Released)));
    }

    #[test]
    fn holder_that_wakes_holds_its_evicted_lane_again() {
        let word = HoldWord::default();
        word.hold();
        word.evict();
        assert_eq!(word.state(), Ok(HoldState::Stored(LaneState::Evicted)));
        word.hold();
        assert_eq!(word.state(), Ok(HoldState::Stored(LaneState::Held)));
    }

    #[test]
    fn summons_during_a_release_makes_the_holder_hold() {
        let word = HoldWord::default();
        word.hold();
        let summoned_meanwhile = || {
            word.state.store(HoldState::SUMMONED, Ordering::Relaxed);
            true
        };
        assert!(!word.release(summoned_meanwhile));
        assert_eq!(word.state(), Ok(HoldState::Stored(LaneState::Held)));
    }
}
