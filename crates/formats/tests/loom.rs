//! Exhaustive tests of the two protocols of this crate: every interleaving, and every stale value that the memory model
//! allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p sidelane-formats --release --test loom`
//!
//! If any fence or ordering in `stamp.rs`, `hold.rs` or `kernel.rs` is removed that a comment there calls necessary,
//! one of these tests fails. Check that again after changing a test: a changed model may stop finding errors without
//! any sign. For each atomic, loom tries other orders only around the latest access to it. So a thread that loads a
//! word before it stores it hides its race with the others. Loom also treats sequentially consistent loads and stores
//! as acquire and release, so a test that passes here relies on the fences alone.

#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use sidelane_formats::kernel::{self, LanePair};
use sidelane_formats::{Event, EventSlot, HoldState, LaneClass, LaneWord, Poll, SlotReader, SlotWriter, take_tokens};
use sidelane_policy::borrow::LaneState;

mod slot {
    use super::*;

    /// Largest number of preemptions in one execution. Three are enough to find every error inserted on purpose;
    /// without a limit, three events take minutes.
    const PREEMPTIONS_MAX: usize = 4;

    fn emit_numbered(writer: &mut SlotWriter, n: u32) {
        writer.emit(10 * u64::from(n), n, n, n, [u64::from(n)]);
    }

    /// Checks the result of a poll, and returns the number of events accounted for up to now.
    fn account(poll: Poll, so_far: u32) -> u32 {
        let Poll::Event { event, missed } = poll else {
            return so_far;
        };
        let n = event.seq;
        let timestamp_ns = 10 * u64::from(n);
        let whole = Event { timestamp_ns, kind: n, seq: n, tid: n, pid: n, payload: [u64::from(n)] };
        assert_eq!(event, whole, "an event mixed of several");
        assert_eq!(n, so_far + missed + 1, "a wrong count of missed events");
        n
    }

    /// Checks every order in which `events` are written while a reader polls `polls` times, and once more at the end.
    fn check(events: u32, polls: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(PREEMPTIONS_MAX);
        model.check(move || read_while_writing(events, polls));
    }

    fn read_while_writing(events: u32, polls: usize) {
        // The slot is leaked. So the writer can be created before its thread starts, where the writer's loads hide no
        // race.
        let slot: &'static EventSlot = Box::leak(Box::default());
        let mut writer = SlotWriter::new(slot);
        let mut reader = SlotReader::from_start(slot);
        let writing = thread::spawn(move || {
            (1..=events).for_each(|n| emit_numbered(&mut writer, n));
        });
        let mut accounted = 0;
        for _ in 0..polls {
            accounted = account(reader.poll(), accounted);
        }
        writing.join().unwrap();
        assert_eq!(account(reader.poll(), accounted), events, "the last event was missed");
        assert_eq!(reader.poll(), Poll::Repeated);
    }

    #[test]
    fn two_events_are_never_mixed() {
        check(2, 1);
    }

    #[test]
    fn missed_events_are_counted() {
        check(2, 2);
    }

    #[test]
    fn three_events_are_never_mixed() {
        check(3, 1);
    }
}

mod lane {
    use super::*;

    #[test]
    fn a_snapshot_is_of_one_switch() {
        loom::model(|| {
            let word = Arc::new(LaneWord::default());
            let written = Arc::clone(&word);
            let cpu = thread::spawn(move || {
                kernel::switch_to(&written, 10, LaneClass::Lc, 1);
                kernel::switch_to(&written, 20, LaneClass::Batch, 2);
            });
            if let Some(seen) = word.snapshot() {
                let n = seen.since_ns as u32 / 10;
                assert_eq!((seen.class, seen.pid, seen.tgid), (n, n, n), "a mixed snapshot");
            }
            cpu.join().unwrap();
            assert_eq!(word.snapshot().map(|seen| seen.since_ns), Some(20));
        });
    }
}

mod hold {
    use super::*;

    /// Runs `one` on a thread of its own and `other` on this thread. Returns the pair of lanes and the result of `one`.
    fn race<A: 'static>(
        pair: LanePair,
        one: impl FnOnce(&LanePair) -> A + 'static,
        other: impl FnOnce(&LanePair),
    ) -> (Arc<LanePair>, A) {
        let pair = Arc::new(pair);
        let theirs = Arc::clone(&pair);
        let thread = thread::spawn(move || one(&theirs));
        other(&pair);
        let result = thread.join().unwrap();
        (pair, result)
    }

    fn release(pair: &LanePair) -> bool {
        pair.hold.release(|| pair.request.busy())
    }

    fn evict(pair: &LanePair) {
        pair.hold.evict();
    }

    /// Checks that the lane is held or will be: the holder stayed, or was summoned once after it left.
    fn assert_someone_comes(pair: &LanePair, left: bool) {
        let summons = pair.summons();
        assert!(summons <= 1, "two summons for one hold");
        if left {
            assert_eq!(summons, 1, "the holder blocks and no thread wakes it");
            assert_eq!(pair.hold.state(), Ok(HoldState::Summoned));
        } else {
            assert_eq!(pair.hold.state(), Ok(HoldState::Stored(LaneState::Held)));
        }
    }

    #[test]
    fn a_start_that_races_with_a_release_is_noticed() {
        loom::model(|| {
            let pair = LanePair::new(LaneClass::Batch, LaneState::Held, false);
            let (pair, left) = race(pair, release, |pair| {
                pair.service_starts();
            });
            assert_someone_comes(&pair, left);
        });
    }

    /// Batch comes to the lane only when the holder leaves it, as on a real machine.
    #[test]
    fn a_start_that_races_with_release_and_switch_is_noticed() {
        loom::model(|| {
            let pair = LanePair::new(LaneClass::Other, LaneState::Held, false);
            let release_and_switch = |pair: &LanePair| {
                let left = release(pair);
                if left {
                    pair.batch_starts();
                }
                left
            };
            let (pair, left) = race(pair, release_and_switch, |pair| {
                pair.service_starts();
            });
            assert_someone_comes(&pair, left);
        });
    }

    #[test]
    fn batch_and_service_that_start_together_ring_once() {
        loom::model(|| {
            let pair = LanePair::new(LaneClass::Idle, LaneState::Released, false);
            let (pair, _) = race(pair, LanePair::batch_starts, |pair| {
                pair.service_starts();
            });
            assert_eq!(pair.summons(), 1);
            assert_eq!(pair.hold.state(), Ok(HoldState::Summoned));
        });
    }

    /// While batch is evicted, a service that stops and starts all the time pays for no summons.
    #[test]
    fn stop_that_races_with_an_eviction_rings_no_holder() {
        loom::model(|| {
            let pair = LanePair::new(LaneClass::Other, LaneState::Held, true);
            let (pair, ()) = race(pair, evict, |pair| {
                pair.service_stops();
                pair.service_starts();
            });
            assert_eq!(pair.summons(), 0);
            assert_eq!(pair.hold.state(), Ok(HoldState::Stored(LaneState::Evicted)));
        });
    }

    /// A holder's sleep has ended by its timer. Unless the holder was summoned, it sleeps again. A token that comes
    /// after the holder's check ends the next sleep.
    #[test]
    fn a_summons_that_races_with_the_end_of_a_sleep_is_not_lost() {
        loom::model(|| {
            let pair = LanePair::new(LaneClass::Batch, LaneState::Released, false);
            let read = AtomicU64::new(0);
            let end_sleep = move |pair: &LanePair| {
                let summoned = take_tokens(&read, &pair.hold.summons);
                assert!(!summoned || pair.request.busy(), "summoned without a reason");
                (summoned, read)
            };
            let (pair, (summoned, read)) = race(pair, end_sleep, |pair| {
                pair.service_starts();
            });
            let wakes_later = take_tokens(&read, &pair.hold.summons);
            assert!(summoned || wakes_later, "the holder sleeps on, and the summons is gone");
        });
    }

    /// A thread of the service runs on the batch lane itself.
    #[test]
    fn a_visit_that_races_with_a_release_is_noticed() {
        loom::model(|| {
            let pair = LanePair::new(LaneClass::Other, LaneState::Held, false);
            let release = |pair: &LanePair| pair.hold.release(|| pair.request.busy() || pair.batch.lc_visitors() != 0);
            let (pair, left) = race(pair, release, |pair| {
                pair.service_visits();
            });
            assert_someone_comes(&pair, left);
        });
    }

    /// The holder wakes by its timer and brings batch back. Later starts of the service are noticed, although earlier
    /// starts did not summon the holder.
    #[test]
    fn a_start_that_races_with_the_return_of_batch_is_noticed() {
        loom::model(|| {
            let pair = LanePair::new(LaneClass::Batch, LaneState::Evicted, false);
            let look_and_release = |pair: &LanePair| {
                pair.hold.hold();
                release(pair)
            };
            let (pair, left) = race(pair, look_and_release, |pair| {
                pair.service_starts();
            });
            assert_someone_comes(&pair, left);
        });
    }
}
