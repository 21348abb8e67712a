//! Hold words: how a batch lane is held, agreed between its holder and the kernel program.
//!
//! The holder holds a batch lane while the service is busy on the request lane, and blocks
//! while it is not, or once batch was sent away. Blocked while batch may run, it depends on the
//! kernel program to wake it: one missed wake-up, and batch runs beside the service for as long
//! as the service stays busy. The word is the handshake that excludes this. While batch is away
//! nothing can be missed, and the holder looks by its own timer.
//!
//! ```text
//! RELEASED ──kernel: service starts beside running batch──► SUMMONED
//! SUMMONED ──holder: runs, preempting batch───────────────► HELD
//! HELD     ──holder: service idle long enough─────────────► RELEASED
//! HELD     ──holder: batch sent away, lane left to kernel─► EVICTED
//! EVICTED  ──holder: looks again, of its own accord───────► HELD
//! HELD     ──holder: batch may run beside some requests───► LENT
//! LENT     ──kernel: a request starts that had to wait────► SUMMONED
//! ```
//!
//! Each side stores its own word, then, behind a full barrier, reads the other's (the two
//! entrances of Dekker's algorithm). The holder stores RELEASED and reads whether the
//! service is busy; the kernel program stores that it is busy and reads whether the lane
//! is RELEASED. Whichever barrier comes second sees the other side's store: the holder
//! then stays, or the kernel summons it, or both, but never neither.
//!
//! A summons is a compare-and-swap, so it is sent once, and it is a token that waits for
//! the holder (a record in a ring buffer): it can come late, but not get lost. A holder
//! that stayed after all may find one that is stale; it holds the lane, sees that the
//! service is not busy, and releases it again.

use core::fmt;

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// How a batch lane is held: `enum sidelane_hold`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum HoldState {
    /// Batch may run; the kernel summons the holder when the service starts.
    Released = 0,
    /// A summons is on its way to the holder.
    Summoned = 1,
    /// The holder keeps the lane empty, and watches the request lane itself.
    Held = 2,
    /// Batch was sent away; nobody is summoned, the holder looks by itself.
    Evicted = 3,
    /// Batch may run, also beside a request that did not have to wait; the kernel summons the
    /// holder when one starts that had to.
    Lent = 4,
}

/// A number that stands for no [`HoldState`]: the other side is of another version.
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
            0 => Ok(Self::Released),
            1 => Ok(Self::Summoned),
            2 => Ok(Self::Held),
            3 => Ok(Self::Evicted),
            4 => Ok(Self::Lent),
            _ => Err(UnknownHoldState(number)),
        }
    }
}

/// How a batch lane is held, as it lies in shared memory: `struct sidelane_hold_word`.
///
/// The methods that change the state are the holder's side of the handshake: only the
/// lane's one holder calls them.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct HoldWord {
    /// [`HoldState`].
    pub state: AtomicU32,
    /// Thread id of the holder, 0 while there is none.
    pub holder_pid: AtomicU32,
    /// Wake-ups sent to the holder.
    pub summons: AtomicU64,
    /// Those of them sent, and paid for, by the request lane.
    pub lc_summons: AtomicU64,
    /// 1 while batch, preempted, waits for the lane.
    pub batch_waits: AtomicU32,
    /// Thread id of that batch.
    pub waiting_pid: AtomicU32,
    /// When it was last lent, where nobody takes the lane to change that.
    pub lent_until_ns: AtomicU64,
    /// Zero.
    pub reserved: [AtomicU32; 6],
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
    assert!(offset_of!(HoldWord, reserved) == 40);
};

impl HoldWord {
    /// How the lane is held now.
    #[inline]
    pub fn state(&self) -> Result<HoldState, UnknownHoldState> {
        HoldState::try_from(self.state.load(Ordering::Acquire))
    }

    /// The holder runs on the lane and keeps it, whether summoned or of its own accord.
    #[inline]
    pub fn hold(&self) {
        // A swap needs no look at what it replaces. If the kernel summons at this moment,
        // either its own swap fails on this one, or this one overwrites it, sees what it
        // saw, and leaves a token gone stale.
        self.state.swap(HoldState::Held as u32, Ordering::AcqRel);
    }

    /// The holder is about to block and let batch run. Returns whether it may: `false` if
    /// `busy` says that the service has started meanwhile; the lane is then still held.
    ///
    /// `busy` must load the request lane's word anew; it is called once.
    #[must_use = "a holder that blocks on false is never summoned"]
    pub fn release(&self, busy: impl FnOnce() -> bool) -> bool {
        self.leave(HoldState::Released, busy)
    }

    /// The holder has sent batch away and is about to block. Nobody will summon it: it looks by
    /// itself, now and then, whether the service has stopped.
    #[inline]
    pub fn evict(&self) {
        self.state.store(HoldState::Evicted as u32, Ordering::Release);
    }

    /// The holder is about to block and let batch run beside requests that did not wait. Returns
    /// whether it may: `false` if `must_hold` says that one which waited has started meanwhile.
    ///
    /// `must_hold` must load the request words anew; it is called once.
    #[must_use = "a holder that blocks on false is never summoned"]
    pub fn lend(&self, must_hold: impl FnOnce() -> bool) -> bool {
        self.leave(HoldState::Lent, must_hold)
    }

    /// Leaves the lane as `state` unless, that being visible, `stay` asks to hold on.
    fn leave(&self, state: HoldState, stay: impl FnOnce() -> bool) -> bool {
        self.state.store(state as u32, Ordering::Release);
        // The kernel has a like barrier between its store of the request lane's word and
        // its load of this state.
        fence(Ordering::SeqCst);
        if stay() {
            // Right whether or not the kernel has summoned since, as `hold` says.
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
    fn a_state_survives_its_number_and_others_are_refused() {
        use HoldState::*;
        for state in [Released, Summoned, Held, Evicted, Lent] {
            assert_eq!(HoldState::try_from(state as u32), Ok(state));
        }
        assert_eq!(HoldState::try_from(5), Err(UnknownHoldState(5)));
    }

    #[test]
    fn a_lane_is_released_only_while_the_service_is_idle() {
        let word = HoldWord::default();
        word.hold();
        assert!(!word.release(|| true));
        assert_eq!(word.state(), Ok(HoldState::Held));
        assert!(word.release(|| false));
        assert_eq!(word.state(), Ok(HoldState::Released));
    }

    #[test]
    fn an_evicted_lane_is_held_again_when_its_holder_looks() {
        let word = HoldWord::default();
        word.hold();
        word.evict();
        assert_eq!(word.state(), Ok(HoldState::Evicted));
        word.hold();
        assert_eq!(word.state(), Ok(HoldState::Held));
    }

    #[test]
    fn a_summons_that_comes_while_releasing_ends_in_a_hold() {
        let word = HoldWord::default();
        word.hold();
        let summoned_meanwhile = || {
            word.state.store(HoldState::Summoned as u32, Ordering::Relaxed);
            true
        };
        assert!(!word.release(summoned_meanwhile));
        assert_eq!(word.state(), Ok(HoldState::Held));
    }
}
