//! Model of the kernel program's operations on lane words and hold words, for tests.
//!
//! The order of operations is that of `lane.bpf.c` at a context switch: store the lane's own word, a full barrier, read
//! the other lane's word, compare-and-swap the hold word. In BPF every atomic operation that returns a value is a full
//! barrier. The program uses an exchange, and the model uses a store and a fence. So the program has at least the order
//! that is needed here.

use sidelane_policy::borrow::LaneState;

use crate::hold::{HoldState, HoldWord};
use crate::lane::{LaneClass, LaneWord};
use crate::stamp;
use crate::sync::{Ordering, fence};

/// Pair of a request lane and a batch lane, with the hold word of the batch lane.
#[derive(Debug, Default)]
pub struct LanePair {
    /// Word of the lane that the service runs on.
    pub request: LaneWord,
    /// Word of the batch lane.
    pub batch: LaneWord,
    /// Hold word of the batch lane.
    pub hold: HoldWord,
}

impl LanePair {
    /// Creates a pair with `on_batch_lane` on the batch lane, hold state `state`, and the service busy or not.
    pub fn new(on_batch_lane: LaneClass, state: LaneState, busy: bool) -> Self {
        let pair = Self::default();
        pair.batch.class.store(on_batch_lane as u32, Ordering::Relaxed);
        pair.hold.state.store(state as u32, Ordering::Relaxed);
        pair.request.busy.store(u32::from(busy), Ordering::Relaxed);
        pair
    }

    /// Models a switch to the service on the request lane. Returns whether the holder was summoned.
    pub fn service_starts(&self) -> bool {
        self.request.busy.store(1, Ordering::Relaxed);
        self.summon_on_start()
    }

    /// Models that the service is switched out on the request lane and sleeps. No summons follows.
    pub fn service_stops(&self) {
        self.request.busy.store(0, Ordering::Relaxed);
    }

    /// Models a switch to batch on the batch lane. The service may have started before batch was there, so a switch to
    /// batch may send a summons, too. Returns whether the holder was summoned.
    pub fn batch_starts(&self) -> bool {
        self.batch.class.store(LaneClass::Batch as u32, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.request.busy() && self.summon(LaneState::Released)
    }

    /// Models that a thread of the service is put on the batch lane. Returns whether the holder was summoned.
    pub fn service_visits(&self) -> bool {
        self.batch.lc_visitors.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.summon(LaneState::Released)
    }

    /// Returns the number of wakeups sent to the holder.
    pub fn summons(&self) -> u64 {
        self.hold.summons.load(Ordering::Relaxed)
    }

    fn summon_on_start(&self) -> bool {
        fence(Ordering::SeqCst);
        self.batch.class() == Ok(LaneClass::Batch) && self.summon(LaneState::Released)
    }

    /// Wakes the holder, once, if the holder left the lane in the state `left`. Returns whether it was woken.
    fn summon(&self, left: LaneState) -> bool {
        let (left, summoned) = (left as u32, HoldState::SUMMONED);
        let swap = self.hold.state.compare_exchange(left, summoned, Ordering::Relaxed, Ordering::Relaxed);
        if swap.is_ok() {
            self.hold.summons.fetch_add(1, Ordering::Relaxed);
        }
        swap.is_ok()
    }
}

/// Writes a context switch to thread `pid` at `since_ns` into a lane's word.
pub fn switch_to(word: &LaneWord, since_ns: u64, class: LaneClass, pid: u32) {
    stamp::publish(&word.since_ns, since_ns, || {
        word.class.store(class as u32, Ordering::Relaxed);
        word.pid.store(pid, Ordering::Relaxed);
        word.tgid.store(pid, Ordering::Relaxed);
    });
}
