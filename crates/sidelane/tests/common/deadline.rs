//! Waiting for conditions, instead of sleeping for a fixed time.

use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for an event, far longer than any event takes, even on a machine with ten other tasks.
pub const TIMEOUT: Duration = Duration::from_secs(180);
/// Interval of checks of a condition.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Waits until `condition` holds; `what` completes the sentence "waited in vain until".
#[track_caller]
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    assert!(holds_within(TIMEOUT, condition), "waited {TIMEOUT:?} in vain until {what}");
}

/// Waits until `condition` holds; returns false if it does not hold in time.
pub fn holds_within(timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + timeout;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(LOOK_EVERY);
    }
    true
}
