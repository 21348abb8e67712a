//! Watchdog of batch lanes: its steps when batch does not leave a lane beside a busy service.
//!
//! A summons works because the holder outranks batch, runs at once, and evicted batch is gone. Three things break that:
//! batch in a real-time class, a holder that is throttled or blocked, and a freeze without effect so far. The watchdog
//! does not find out which of them happened. It sees that batch stays, and takes the next stronger step.
//!
//! 1. A thread that outranks the holder is demoted, whether or not the service is busy.
//! 2. Batch that stays beside the service is put back: into its groups, and onto the lanes that it may use.
//! 3. Batch that stays after that, or was demoted [`DEMOTIONS_MAX`] times, is stopped. Each stop is twice as long as
//!    the one before.
//!
//! Batch is never stopped for good: a command that misbehaves once can still finish.

use crate::Nanos;

/// Time for which batch may stay before it is put back. The same time passes until it is stopped.
pub const STAY_MAX_NS: Nanos = 2_000_000;
/// Number of demotions without a stop. Batch that promotes itself again after these does so intentionally.
pub const DEMOTIONS_MAX: u32 = 3;
/// Length of the first stop.
pub const FIRST_STOP_NS: Nanos = 100_000_000;
/// Length of the longest stop. Between two such stops batch can stay for about 4 ms: an overlap of less than 0.01 %.
pub const LONGEST_STOP_NS: Nanos = 60_000_000_000;
/// Time without any step after which earlier steps are forgotten.
pub const FORGIVEN_AFTER_NS: Nanos = 120_000_000_000;

/// Observation of batch on all lanes of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Situation {
    /// Whether a runnable batch thread has a scheduling class that the holder cannot preempt.
    pub outranks: bool,
    /// Longest time, over all lanes, for which batch has stayed on a lane that it has to leave beside a busy service.
    /// `None` if it has left all of them.
    pub stayed_ns: Option<Nanos>,
}

/// Step of the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// No action is taken.
    Wait,
    /// Threads that outrank the holder are moved to SCHED_IDLE.
    Demote,
    /// Batch is put back into its groups, and onto the lanes that it may use.
    PutBack,
    /// All batch is stopped; threads that outrank the holder are demoted, too.
    Stop,
    /// Batch continues in the states that the keepers of its lanes want.
    GoOn,
}

/// State of one session's watchdog.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watchdog {
    demotions: u32,
    put_back: bool,
    stopped_until: Option<Nanos>,
    stops: u32,
    last_step: Nanos,
}

impl Watchdog {
    /// Returns the step that follows from an observation at `now`.
    pub fn observe(&mut self, now: Nanos, situation: Situation) -> Step {
        if now.saturating_sub(self.last_step) >= FORGIVEN_AFTER_NS && self.stopped_until.is_none() {
            *self = Self::default();
        }
        let step = self.next_step(now, situation);
        if step != Step::Wait {
            self.last_step = now;
        }
        step
    }

    fn next_step(&mut self, now: Nanos, seen: Situation) -> Step {
        let stays = seen.stayed_ns.is_some_and(|stayed| stayed >= STAY_MAX_NS);
        if let Some(until) = self.stopped_until {
            return match () {
                // A stop may not have taken effect, or another program may have undone it.
                () if stays => Step::Stop,
                () if now >= until => {
                    self.stopped_until = None;
                    self.put_back = false;
                    Step::GoOn
                }
                () => Step::Wait,
            };
        }
        if seen.outranks {
            self.demotions += 1;
            return if self.demotions > DEMOTIONS_MAX { self.stop(now) } else { Step::Demote };
        }
        match (stays, self.put_back) {
            (true, true) => self.stop(now),
            (true, false) => {
                self.put_back = true;
                Step::PutBack
            }
            (false, _) => {
                self.put_back &= seen.stayed_ns.is_some();
                Step::Wait
            }
        }
    }

    fn stop(&mut self, now: Nanos) -> Step {
        let lasts = FIRST_STOP_NS.saturating_mul(1 << self.stops.min(20)).min(LONGEST_STOP_NS);
        self.stops += 1;
        self.stopped_until = Some(now + lasts);
        Step::Stop
    }

    /// Returns the time of the next check without an alarm; `None`: only after an alarm.
    pub fn next_check_at(&self, now: Nanos, situation: Situation) -> Option<Nanos> {
        match self.stopped_until {
            Some(until) => Some((now + FIRST_STOP_NS / 4).min(until.max(now + STAY_MAX_NS))),
            None => (situation != Situation::default() || self.put_back).then(|| now + STAY_MAX_NS),
        }
    }

    /// Returns whether all batch is stopped now.
    pub fn is_stopped(&self) -> bool {
        self.stopped_until.is_some()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const MS: Nanos = 1_000_000;
    const NOTHING: Situation = Situation { outranks: false, stayed_ns: None };
    const OUTRANKS: Situation = Situation { outranks: true, stayed_ns: None };

    fn situation_after_stay(ms: u64) -> Situation {
        Situation { outranks: false, stayed_ns: Some(ms * MS) }
    }

    fn run_watchdog(looks: &[(u64, Situation)]) -> Vec<Step> {
        let mut dog = Watchdog::default();
        looks.iter().map(|(at_ms, seen)| dog.observe(at_ms * MS, *seen)).collect()
    }

    #[test]
    fn watchdog_steps_get_stronger() {
        use Step::*;
        let looks = [
            (1, situation_after_stay(1)),
            (2, situation_after_stay(2)),
            (4, situation_after_stay(4)),
            (6, NOTHING),
            (103, NOTHING),
            (104, NOTHING),
        ];
        assert_eq!(run_watchdog(&looks), [Wait, PutBack, Stop, Wait, Wait, GoOn]);
        // Batch had left after it was put back, so the next violation begins with the first step.
        let looks = [(2, situation_after_stay(2)), (4, NOTHING), (6, situation_after_stay(2))];
        assert_eq!(run_watchdog(&looks), [PutBack, Wait, PutBack]);
        // Batch that stays after a stop is stopped again.
        assert_eq!(
            run_watchdog(&[(2, situation_after_stay(2)), (4, situation_after_stay(4)), (6, situation_after_stay(6))]),
            [PutBack, Stop, Stop]
        );
    }

    #[test]
    fn a_thread_that_promotes_itself_again_is_stopped() {
        use Step::*;
        let looks = [(0, OUTRANKS), (1, OUTRANKS), (2, OUTRANKS), (3, OUTRANKS), (4, NOTHING), (103, NOTHING)];
        assert_eq!(run_watchdog(&looks), [Demote, Demote, Demote, Stop, Wait, GoOn]);
        // The next stop is twice as long.
        let looks = [(0, OUTRANKS), (1, OUTRANKS), (2, OUTRANKS), (3, OUTRANKS), (103, NOTHING)];
        let again = [(104, OUTRANKS), (204, NOTHING), (304, NOTHING)];
        assert_eq!(run_watchdog(&[&looks[..], &again].concat())[5..], [Stop, Wait, GoOn]);
    }

    #[test]
    fn old_steps_are_forgotten() {
        let later = FORGIVEN_AFTER_NS / MS + 3;
        let looks = [(0, OUTRANKS), (1, OUTRANKS), (2, OUTRANKS), (later, OUTRANKS)];
        assert_eq!(run_watchdog(&looks), [Step::Demote; 4]);
        let soon = later - 10;
        assert_eq!(run_watchdog(&[(0, OUTRANKS), (1, OUTRANKS), (2, OUTRANKS), (soon, OUTRANKS)])[3], Step::Stop);
    }

    proptest! {
        /// At any behaviour of batch each stop ends. Batch that outranks the holder at every check is stopped nearly
        /// all the time in the end.
        #[test]
        fn each_stop_ends_and_gets_longer(seen in prop::collection::vec((any::<bool>(), 0_u64..10), 1..200)) {
            let mut dog = Watchdog::default();
            let (mut now, mut lasted, mut began) = (0, 0, None);
            for (outranks, stayed) in seen {
                let situation = Situation { outranks, stayed_ns: (stayed > 3).then_some(stayed * MS) };
                let was_stopped = dog.is_stopped();
                let step = dog.observe(now, situation);
                prop_assert_eq!(step == Step::GoOn, was_stopped && !dog.is_stopped());
                if !was_stopped && dog.is_stopped() {
                    prop_assert_eq!(step, Step::Stop);
                    began = Some(now);
                }
                if step == Step::GoOn {
                    let took = now - began.take().unwrap();
                    prop_assert!(took >= lasted);
                    lasted = took.min(LONGEST_STOP_NS);
                }
                let next = dog.next_check_at(now, situation);
                prop_assert!(next.is_none_or(|next| next > now));
                prop_assert!(next.is_some() || !dog.is_stopped());
                // The simulated time advances to the next check.
                now = next.unwrap_or(now + MS);
            }
        }
    }
}
