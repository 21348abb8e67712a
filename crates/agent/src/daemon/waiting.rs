//! Services and containers that were found and are not managed yet: they are tried again at growing intervals.

use sidelane_policy::Nanos;

/// Interval of slow checks while services and batch run.
pub(super) const SLOW_LOOK_NS: Nanos = 200_000_000;
/// First interval of checks whether a new container has a process.
const LOOK_NS: Nanos = 1_000_000;
/// Shortest and longest interval of attempts after a refusal.
const REFUSED_NS: [Nanos; 2] = [1_000_000_000, 60_000_000_000];

/// A service or container that is not managed yet.
#[derive(Clone, Debug)]
pub(super) struct Waiting<T> {
    pub(super) item: T,
    pub(super) since_ns: Nanos,
    pub(super) due_ns: Nanos,
}

impl<T> Waiting<T> {
    /// Makes an entry whose first attempt is due at once.
    pub(super) fn due_now(item: T, now_ns: Nanos) -> Self {
        Self { item, since_ns: now_ns, due_ns: now_ns }
    }

    pub(super) fn is_due(&self, now_ns: Nanos) -> bool {
        now_ns >= self.due_ns
    }

    /// Sets the next attempt for a container that is still being made.
    pub(super) fn schedule_after_incomplete(&mut self, now_ns: Nanos) {
        self.due_ns = now_ns + (now_ns - self.since_ns).clamp(LOOK_NS, SLOW_LOOK_NS);
    }

    /// Sets the next attempt after a constant time, because all slots are taken.
    pub(super) fn schedule_after_lack_of_slots(&mut self, now_ns: Nanos) {
        self.due_ns = now_ns + REFUSED_NS[0];
    }

    /// Sets the next attempt after a failure whose reason may pass.
    pub(super) fn schedule_after_refusal(&mut self, now_ns: Nanos) {
        let [least, most] = REFUSED_NS;
        self.due_ns = now_ns + (now_ns - self.since_ns).clamp(least, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: Nanos = 1_000_000_000;

    #[test]
    fn refused_entry_is_retried_with_doubling_delays() {
        let mut waiting = Waiting::due_now((), 0);
        assert!(waiting.is_due(0));
        let mut tried = Vec::new();
        for _ in 0..9 {
            tried.push(waiting.due_ns / SECOND_NS);
            waiting.schedule_after_refusal(waiting.due_ns);
        }
        assert_eq!(tried, [0, 1, 2, 4, 8, 16, 32, 64, 124]);
    }

    #[test]
    fn incomplete_entry_is_retried_soon() {
        let mut waiting = Waiting::due_now((), 0);
        waiting.schedule_after_incomplete(0);
        assert_eq!(waiting.due_ns, LOOK_NS);
        waiting.schedule_after_incomplete(SECOND_NS);
        assert_eq!(waiting.due_ns, SECOND_NS + SLOW_LOOK_NS);
    }
}
