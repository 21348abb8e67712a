//! Outlier detection: whether a server fails its requests, and for how long it is ejected.
//!
//! Problem. A server may accept every connection and fail every request, because its disk is full, its database is lost
//! or its threads are stuck. Nothing on its machine shows that, but its answers do.
//!
//! Approach. The server is ejected after [`IN_A_ROW`] failures in a row, or when half of at least [`SHARE_MIN`]
//! requests failed within ten seconds. It is out for 30 s times the number of its ejections, 300 s at most. Each minute
//! in service takes one from that number. After its return the first [`TRIAL`] requests are a trial: one failure ejects
//! it again.
//!
//! Results of requests that were sent before the ejection or the return do not show the server's present state. They
//! are ignored: requests to a server that hung may still time out a minute later.

use core::fmt;

use crate::Nanos;

/// Number of failures in a row that eject a server.
pub const IN_A_ROW: u32 = 5;
/// Fewest requests in the window for which the share of failures counts.
pub const SHARE_MIN: u32 = 20;
/// Number of requests after a return, during which each failure ejects the server again.
pub const TRIAL: u32 = 5;

const SECOND_NS: Nanos = 1_000_000_000;
/// Largest number of ejections that counts for the time out of service.
const TIMES_MAX: u32 = 10;
/// Time in service that takes one from the number of ejections, as a multiple of the shortest ejection.
const CALM_TIMES: Nanos = 2;
/// Length of the window in seconds.
const WINDOW: usize = 10;

/// Request that a server has answered, or has failed to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Time at which the request was sent.
    pub sent_ns: Nanos,
    /// Whether the server failed the request.
    pub has_failed: bool,
}

/// Reason of an ejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This number of requests in a row failed.
    InARow(u32),
    /// Too large a share of the requests in the window failed.
    Share {
        /// Number of requests that failed.
        failed: u32,
        /// Number of all requests.
        of: u32,
    },
    /// A request failed shortly after the server's return.
    FailedAfterReturn,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InARow(count) => write!(f, "{count} requests in a row failed"),
            Self::Share { failed, of } => write!(f, "{failed} of {of} requests failed within {WINDOW} s"),
            Self::FailedAfterReturn => f.write_str("it failed again after it had come back"),
        }
    }
}

/// Ejection of a server: its time out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Start of the ejection.
    pub since_ns: Nanos,
    /// End of the ejection.
    pub until_ns: Nanos,
    /// Reason of the ejection.
    pub fault: Fault,
}

/// Results of the requests in the last ten seconds, by second.
#[derive(Clone, Debug, Default)]
struct Window {
    /// Number of all requests, and of failed requests, in each second.
    seconds: [(u32, u32); WINDOW],
    /// Second of the latest result.
    latest: u64,
}

impl Window {
    fn record_result(&mut self, now: Nanos, has_failed: bool) {
        let second = (now / SECOND_NS).max(self.latest);
        let passed = (second - self.latest).min(WINDOW as u64);
        for later in 1..=passed {
            self.seconds[((self.latest + later) % WINDOW as u64) as usize] = (0, 0);
        }
        self.latest = second;
        let (all, failed) = &mut self.seconds[(second % WINDOW as u64) as usize];
        *all = all.saturating_add(1);
        *failed = failed.saturating_add(u32::from(has_failed));
    }

    /// Returns the number of all requests in the window, and of those that failed.
    fn total_and_failed(&self) -> (u32, u32) {
        let add = |a: (u32, u32), b: &(u32, u32)| (a.0.saturating_add(b.0), a.1.saturating_add(b.1));
        self.seconds.iter().fold((0, 0), add)
    }
}

/// Results of one server's requests, and its ejections.
#[derive(Clone, Debug, Default)]
pub(super) struct Outlier {
    in_a_row: u32,
    window: Window,
    ejection: Option<Ejection>,
    /// Start time from which requests count; results of requests sent before are ignored.
    counts_from: Nanos,
    /// Number of requests that are left of the server's trial.
    trial: u32,
    /// Number of ejections, less one for each minute in service since then.
    times: u32,
    in_service_since: Nanos,
}

impl Outlier {
    /// Adds the result of a request. Returns a reason to eject the server, if there is one.
    pub(super) fn record_attempt(&mut self, now: Nanos, attempt: Attempt) -> Option<Fault> {
        if self.is_ejected() || attempt.sent_ns < self.counts_from {
            return None;
        }
        self.window.record_result(now, attempt.has_failed);
        if !attempt.has_failed {
            self.in_a_row = 0;
            self.trial = self.trial.saturating_sub(1);
            return None;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        let (of, failed) = self.window.total_and_failed();
        match () {
            () if self.trial > 0 => Some(Fault::FailedAfterReturn),
            () if self.in_a_row >= IN_A_ROW => Some(Fault::InARow(self.in_a_row)),
            () if of >= SHARE_MIN && failed >= of.div_ceil(2) => Some(Fault::Share { failed, of }),
            () => None,
        }
    }

    /// Ejects the server, for `out_ns` the first time.
    pub(super) fn eject(&mut self, now: Nanos, fault: Fault, out_ns: Nanos) {
        let calm = now.saturating_sub(self.in_service_since) / (CALM_TIMES * out_ns).max(1);
        self.times =
            self.times.saturating_sub(u32::try_from(calm).unwrap_or(u32::MAX)).saturating_add(1).min(TIMES_MAX);
        let until_ns = now.saturating_add(out_ns.saturating_mul(self.times.into()));
        self.ejection = Some(Ejection { since_ns: now, until_ns, fault });
    }

    /// Ends the ejection if its time is over. Returns whether it was over.
    pub(super) fn return_if_due(&mut self, now: Nanos) -> bool {
        let is_due = self.ejection.is_some_and(|ejection| now >= ejection.until_ns);
        if is_due {
            self.clear_results(now);
            self.trial = TRIAL;
        }
        is_due
    }

    /// Removes all results and their effects, except the number of ejections.
    pub(super) fn clear_results(&mut self, now: Nanos) {
        if self.ejection.take().is_some() {
            self.in_service_since = now;
        }
        self.trial = 0;
        self.counts_from = now;
        self.in_a_row = 0;
        self.window = Window::default();
    }

    /// Returns whether the server has returned and each failure ejects it again.
    pub(super) fn is_on_trial(&self) -> bool {
        self.trial > 0 && !self.is_ejected()
    }

    /// Returns whether successes matter now: the server is in service, and has failed requests lately or is on trial.
    pub(super) fn is_suspect(&self) -> bool {
        let has_failed = self.in_a_row > 0 || self.window.total_and_failed().1 > 0;
        !self.is_ejected() && (self.trial > 0 || has_failed)
    }

    pub(super) fn is_ejected(&self) -> bool {
        self.ejection.is_some()
    }

    pub(super) fn ejection(&self) -> Option<Ejection> {
        self.ejection
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT_NS: Nanos = 30 * SECOND_NS;
    const MINUTE_NS: Nanos = 60 * SECOND_NS;

    fn failed_attempt(sent_ns: Nanos) -> Attempt {
        Attempt { sent_ns, has_failed: true }
    }

    fn successful_attempt(sent_ns: Nanos) -> Attempt {
        Attempt { sent_ns, has_failed: false }
    }

    /// Ejects the server, advances the time to its return, and returns how long it was out.
    fn ejection_length(outlier: &mut Outlier, now: &mut Nanos) -> Nanos {
        outlier.eject(*now, Fault::FailedAfterReturn, OUT_NS);
        let out = outlier.ejection().expect("just ejected").until_ns - *now;
        *now += out;
        assert!(outlier.return_if_due(*now));
        out
    }

    #[test]
    fn five_failures_in_a_row_are_a_fault_unless_interrupted() {
        let mut outlier = Outlier::default();
        (0..4).for_each(|at| assert_eq!(outlier.record_attempt(at, failed_attempt(at)), None));
        assert_eq!(outlier.record_attempt(4, successful_attempt(4)), None);
        (5..9).for_each(|at| assert_eq!(outlier.record_attempt(at, failed_attempt(at)), None));
        assert_eq!(outlier.record_attempt(9, failed_attempt(9)), Some(Fault::InARow(5)));
    }

    #[test]
    fn half_of_requests_failed_in_ten_seconds_are_a_fault() {
        let mut outlier = Outlier::default();
        let mut note = |at: Nanos, has_failed| outlier.record_attempt(at, Attempt { sent_ns: at, has_failed });
        // A share is not judged below 20 requests: ten failures of nineteen requests are ignored.
        for turn in 0..19 {
            assert_eq!(note(turn, turn % 2 == 0), None);
        }
        assert_eq!(note(19, true), Some(Fault::Share { failed: 11, of: 20 }));
        // After ten seconds the earlier requests no longer count.
        let later = 11 * SECOND_NS;
        for turn in 0..19 {
            assert_eq!(note(later + turn, turn % 2 == 0), None);
        }
        assert_eq!(note(later + 19, false), None);
        assert_eq!(note(later + 20, true), Some(Fault::Share { failed: 11, of: 21 }));
    }

    #[test]
    fn a_window_forgets_second_by_second() {
        let mut window = Window::default();
        (0..30).for_each(|second| window.record_result(second * SECOND_NS, second % 2 == 0));
        assert_eq!(window.total_and_failed(), (10, 5));
        window.record_result(34 * SECOND_NS, true);
        assert_eq!(window.total_and_failed(), (6, 3), "those of seconds 25 to 29, and 34");
        window.record_result(100 * SECOND_NS, false);
        assert_eq!(window.total_and_failed(), (1, 0));
    }

    #[test]
    fn ejections_grow_and_minutes_in_service_shorten_the_next() {
        let (mut outlier, mut now) = (Outlier::default(), 1_000);
        for seconds in [30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 300, 300] {
            assert_eq!(ejection_length(&mut outlier, &mut now) / SECOND_NS, seconds);
        }
        now += 3 * MINUTE_NS;
        assert_eq!(ejection_length(&mut outlier, &mut now) / SECOND_NS, 240, "ten, less three, and one");
        now += 100 * MINUTE_NS;
        assert_eq!(ejection_length(&mut outlier, &mut now) / SECOND_NS, 30);
    }

    #[test]
    fn one_failure_on_trial_ejects_and_older_requests_are_ignored() {
        let mut outlier = Outlier::default();
        outlier.eject(0, Fault::InARow(5), OUT_NS);
        assert!(!outlier.return_if_due(OUT_NS - 1) && outlier.return_if_due(OUT_NS));
        assert_eq!(
            outlier.record_attempt(OUT_NS + 1, failed_attempt(OUT_NS - 1)),
            None,
            "it was sent before the return"
        );
        (0..u64::from(TRIAL) - 1)
            .for_each(|at| assert_eq!(outlier.record_attempt(OUT_NS + at, successful_attempt(OUT_NS + at)), None));
        assert_eq!(outlier.record_attempt(OUT_NS + 9, failed_attempt(OUT_NS + 9)), Some(Fault::FailedAfterReturn));
        assert_eq!(outlier.record_attempt(OUT_NS + 9, successful_attempt(OUT_NS + 9)), None);
        assert_eq!(outlier.record_attempt(OUT_NS + 10, failed_attempt(OUT_NS + 10)), None, "the trial is over");
    }
}
