//! The kernel program's side of the lane and hold words, as a model for the tests.
//!
//! What `lane.bpf.c` does in C at a context switch, in the same order: store the lane's own
//! word, a full barrier, read the other lane's word, compare-and-swap the hold word. In BPF
//! every atomic that returns a value is a full barrier, so the program exchanges where the
//! model stores and fences, and has all the order that is asked for here and more.

use crate::hold::{HoldState, HoldWord};
use crate::lane::{LaneClass, LaneWord};
use crate::stamp;
use crate::sync::{Ordering, fence};

/// One pair of lanes and the hold word of the batch lane.
#[derive(Debug, Default)]
pub struct LanePair {
    /// The lane the service runs on.
    pub request: LaneWord,
    /// Its partner.
    pub batch: LaneWord,
    /// How the batch lane is held.
    pub hold: HoldWord,
}

impl LanePair {
    /// A pair with the given thread on the batch lane, held so, the service busy or not.
    pub fn new(on_batch_lane: LaneClass, state: HoldState, busy: bool) -> Self {
        let pair = Self::default();
        pair.batch.class.store(on_batch_lane as u32, Ordering::Relaxed);
        pair.hold.state.store(state as u32, Ordering::Relaxed);
        pair.request.busy.store(u32::from(busy), Ordering::Relaxed);
        pair
    }

    /// On the request lane: the service is switched in. Returns whether it summoned.
    pub fn service_starts(&self) -> bool {
        self.request.busy.store(1, Ordering::Relaxed);
        self.summon_on_start()
    }

    /// On the request lane: the service is switched out and will not go on. Nobody is summoned.
    pub fn service_stops(&self) {
        self.request.busy.store(0, Ordering::Relaxed);
    }

    /// On the batch lane: batch is switched in. The second entrance: the service may have
    /// started when batch was not there yet. Returns whether it summoned.
    pub fn batch_starts(&self) -> bool {
        self.batch.class.store(LaneClass::Batch as u32, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.request.busy() && self.summon(HoldState::Released)
    }

    /// Wake-ups sent so far.
    pub fn summons(&self) -> u64 {
        self.hold.summons.load(Ordering::Relaxed)
    }

    fn summon_on_start(&self) -> bool {
        fence(Ordering::SeqCst);
        self.batch.class() == Ok(LaneClass::Batch) && self.summon(HoldState::Released)
    }

    /// Wakes the holder, once, if it left the lane as `left`.
    fn summon(&self, left: HoldState) -> bool {
        let (left, summoned) = (left as u32, HoldState::Summoned as u32);
        let swap = self.hold.state.compare_exchange(left, summoned, Ordering::Relaxed, Ordering::Relaxed);
        if swap.is_ok() {
            self.hold.summons.fetch_add(1, Ordering::Relaxed);
        }
        swap.is_ok()
    }
}

/// Writes a switch to thread `pid` into a lane's word, at `since_ns`.
pub fn switch_to(word: &LaneWord, since_ns: u64, class: LaneClass, pid: u32) {
    stamp::publish(&word.since_ns, since_ns, || {
        word.class.store(class as u32, Ordering::Relaxed);
        word.pid.store(pid, Ordering::Relaxed);
        word.tgid.store(pid, Ordering::Relaxed);
    });
}
