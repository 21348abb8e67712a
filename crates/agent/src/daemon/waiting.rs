//! Who was found and is not looked after yet: it is tried again, ever more rarely.

use sidelane_policy::Nanos;

/// Between two slow looks while services and batch run.
pub(super) const SLOW_LOOK_NS: Nanos = 200_000_000;
/// After a container was made, its first process is looked for so soon, then ever more rarely.
const LOOK_NS: Nanos = 1_000_000;
/// One that was refused is tried again so soon, then ever more rarely, up to once in so long.
const REFUSED_NS: [Nanos; 2] = [1_000_000_000, 60_000_000_000];

/// Somebody who waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting<T> {
    pub(super) what: T,
    pub(super) since_ns: Nanos,
    pub(super) due_ns: Nanos,
}

impl<T> Waiting<T> {
    /// It may be taken at once.
    pub(super) fn since(what: T, now_ns: Nanos) -> Self {
        Self { what, since_ns: now_ns, due_ns: now_ns }
    }

    pub(super) fn is_due(&self, now_ns: Nanos) -> bool {
        now_ns >= self.due_ns
    }

    /// It is still being made.
    pub(super) fn is_incomplete(&mut self, now_ns: Nanos) {
        self.due_ns = now_ns + (now_ns - self.since_ns).clamp(LOOK_NS, SLOW_LOOK_NS);
    }

    /// All places are taken: it is tried again after a constant time.
    pub(super) fn has_no_place(&mut self, now_ns: Nanos) {
        self.due_ns = now_ns + REFUSED_NS[0];
    }

    /// It could not be taken, for a reason that may pass.
    pub(super) fn was_refused(&mut self, now_ns: Nanos) {
        let [least, most] = REFUSED_NS;
        self.due_ns = now_ns + (now_ns - self.since_ns).clamp(least, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: Nanos = 1_000_000_000;

    #[test]
    fn who_is_refused_is_tried_again_ever_more_rarely_and_never_given_up() {
        let mut waiting = Waiting::since((), 0);
        assert!(waiting.is_due(0));
        let mut tried = Vec::new();
        for _ in 0..9 {
            tried.push(waiting.due_ns / SECOND_NS);
            waiting.was_refused(waiting.due_ns);
        }
        assert_eq!(tried, [0, 1, 2, 4, 8, 16, 32, 64, 124]);
    }

    #[test]
    fn who_is_being_made_is_looked_at_soon() {
        let mut waiting = Waiting::since((), 0);
        waiting.is_incomplete(0);
        assert_eq!(waiting.due_ns, LOOK_NS);
        waiting.is_incomplete(SECOND_NS);
        assert_eq!(waiting.due_ns, SECOND_NS + SLOW_LOOK_NS);
    }
}
