//! The overlap promise: whether batch kept off a service, the known reason if it did not, and advice.
//!
//! The judgement is in `sidelane_policy::borrow::promise`. This file adds the text, for runs, comparisons and the
//! agent.

use std::fmt;

use sidelane_policy::borrow::promise::{BOUND_PPM, MARGIN_NS, Overlap, OverlapKind, OverlapVerdict};
use sidelane_report::{Check, Unit};

use super::gate::Gate;
use sidelane_diagnostics::note::Note;

/// Circumstances that may explain overlap.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// Gate that keeps batch off the lanes.
    pub gate: Gate,
    /// Whether this process was stopped in the judged time, so that no holder ran.
    pub was_stopped: bool,
    /// Note of the judged time that explains overlap best; see
    /// [`LaneNote::best_overlap_explanation`](crate::note::LaneNote::best_overlap_explanation).
    pub note: Option<Note>,
}

/// Overlap promise to one service, judged.
#[derive(Clone, Debug)]
pub struct OverlapPromise {
    /// Name of the service, as the user gave it.
    pub service: String,
    overlap: Overlap,
    bound_ppm: u32,
    why: OverlapCause,
}

/// Cause of overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OverlapCause {
    /// Gate for comparison, by its name.
    Gate(&'static str),
    ShortTurns {
        turn_ns: u64,
    },
    Stopped,
    Noted(Note),
    Unknown {
        each_ns: u64,
    },
}

impl OverlapCause {
    fn from_overlap(overlap: &Overlap, bound_ppm: u32, circumstances: Circumstances) -> Self {
        let Circumstances { gate, was_stopped, note } = circumstances;
        if matches!(gate, Gate::SchedIdle | Gate::CoreSched | Gate::Freezer) {
            return Self::Gate(gate.name());
        }
        match (overlap.kind(bound_ppm), note) {
            (OverlapKind::ShortTurns(turn_ns), _) => Self::ShortTurns { turn_ns },
            _ if was_stopped => Self::Stopped,
            (_, Some(note)) => Self::Noted(note),
            (OverlapKind::Stayed(each_ns), None) => Self::Unknown { each_ns },
        }
    }
}

impl fmt::Display for OverlapCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gate(name) => write!(
                f,
                "the gate {name} is for comparison and does not keep batch off the lane; use --gate holder (gate = \
                 \"holder\" in [lanes])"
            ),
            Self::ShortTurns { turn_ns } => write!(
                f,
                "the service runs for only {} at a time on average, and batch needs some µs to leave; allow that with \
                 --budget 2ms, or lend only longer pauses with --min-idle 1ms (budget, min_idle in [lanes])",
                Unit::Ns.human(*turn_ns as f64)
            ),
            Self::Stopped => write!(
                f,
                "sidelane was stopped (SIGSTOP), and batch ran until the guardian froze it; end sidelane with SIGTERM \
                 in place of stopping it"
            ),
            Self::Noted(note) => note.fmt(f),
            Self::Unknown { each_ns } => write!(
                f,
                "batch stayed for {} of each turn of the service on average; check batch's scheduling class (ps -eLo \
                 pid,tid,cls,rtprio,psr,comm) and this machine (sidelane doctor)",
                Unit::Ns.human(*each_ns as f64)
            ),
        }
    }
}

impl OverlapPromise {
    /// Judges the overlap beside `service` by the bound `bound_ppm`, in millionths of the service's time; `None`: 1 %.
    pub fn new(service: String, overlap: Overlap, bound_ppm: Option<u32>, circumstances: Circumstances) -> Self {
        let bound_ppm = bound_ppm.unwrap_or(BOUND_PPM);
        Self { service, overlap, bound_ppm, why: OverlapCause::from_overlap(&overlap, bound_ppm, circumstances) }
    }

    /// Returns whether the overlap exceeds the bound by more than a single accident explains.
    pub fn is_broken(&self) -> bool {
        self.overlap.verdict(self.bound_ppm) == OverlapVerdict::Broken
    }

    /// Returns the judgement as a check in a result.
    pub fn to_check(&self) -> Check {
        let percent = self.overlap.share_ppm().map(percent);
        let name = format!("overlap beside {}", self.service);
        let check = Check::at_most(name, percent, bound_percent(self.bound_ppm), Unit::Percent);
        match self.overlap.verdict(self.bound_ppm) {
            OverlapVerdict::Undecided => check.into_undecided(format!(
                "a longer run: only overlap of {} above the bound counts as broken",
                Unit::Ns.human(MARGIN_NS as f64)
            )),
            OverlapVerdict::Kept | OverlapVerdict::Broken => check,
        }
    }
}

/// Writes the text for a broken promise.
impl fmt::Display for OverlapPromise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, overlap, bound_ppm, why } = self;
        write!(f, "promise broken: batch ran beside {service} for {}: {why}", share_text(overlap, *bound_ppm))
    }
}

/// Returns the share of the overlap with its times and its bound.
pub fn share_text(overlap: &Overlap, bound_ppm: u32) -> String {
    let human = |ns: u64| Unit::Ns.human(ns as f64);
    let share =
        overlap.share_ppm().map_or_else(|| "an unknown share".to_owned(), |ppm| Unit::Percent.human(percent(ppm)));
    let (part, whole) = (human(overlap.overlap_ns), human(overlap.service_ns));
    format!("{share} of its time ({part} of {whole}; bound {})", Unit::Percent.human(bound_percent(bound_ppm)))
}

/// Returns a bound in millionths as percent.
pub fn bound_percent(bound_ppm: u32) -> f64 {
    percent(bound_ppm)
}

fn percent(ppm: u32) -> f64 {
    f64::from(ppm) / 1e4
}

#[cfg(test)]
mod tests {
    use sidelane_report::Verdict;

    use super::*;
    use crate::note::LaneNote;

    const MS: u64 = 1_000_000;

    fn promise(overlap: Overlap, bound_ppm: Option<u32>, circumstances: Circumstances) -> OverlapPromise {
        OverlapPromise::new("port:7000".to_owned(), overlap, bound_ppm, circumstances)
    }

    fn overlap_with_long_stays() -> Overlap {
        Overlap { service_ns: 5_000 * MS, overlap_ns: 2_750 * MS, turns: 500 }
    }

    #[test]
    fn promise_text_has_share_bound_cause_and_advice() {
        let unknown = promise(overlap_with_long_stays(), None, Circumstances::default()).to_string();
        let wanted = "promise broken: batch ran beside port:7000 for 55.0 % of its time (2.75 s of 5.00 s; bound 1.0 \
                      %): batch stayed for 5.5 ms of each turn of the service on average; check";
        assert!(unknown.starts_with(wanted), "{unknown}");
        let note = Some(LaneNote::Leaks { times: 7 }.into());
        let leaks = promise(overlap_with_long_stays(), Some(500), Circumstances { note, ..Circumstances::default() })
            .to_string();
        assert!(leaks.contains("bound 0.05 %): batch ran 7 times on a lane that was held;"), "{leaks}");
    }

    #[test]
    fn more_certain_cause_comes_first() {
        let note = Some(Note::from(LaneNote::Leaks { times: 1 }));
        let all = |gate| Circumstances { gate, was_stopped: true, note: note.clone() };
        let redis = Overlap { service_ns: 530 * MS, overlap_ns: 116 * MS, turns: 21_655 };
        let why = |overlap, circumstances| promise(overlap, None, circumstances).why;
        assert_eq!(why(overlap_with_long_stays(), all(Gate::SchedIdle)), OverlapCause::Gate("sched-idle"));
        assert_eq!(why(redis, all(Gate::Holder)), OverlapCause::ShortTurns { turn_ns: 24_474 });
        assert_eq!(why(overlap_with_long_stays(), all(Gate::Holder)), OverlapCause::Stopped);
        let noted = Circumstances { was_stopped: false, ..all(Gate::Holder) };
        assert_eq!(why(overlap_with_long_stays(), noted), OverlapCause::Noted(LaneNote::Leaks { times: 1 }.into()));
    }

    #[test]
    fn check_fails_only_if_the_promise_is_broken() {
        let verdict = |overlap, bound| {
            let promise = promise(overlap, bound, Circumstances::default());
            assert_eq!(promise.is_broken(), promise.to_check().verdict == Verdict::Missed);
            promise.to_check().verdict
        };
        assert_eq!(verdict(overlap_with_long_stays(), None), Verdict::Missed);
        assert_eq!(verdict(overlap_with_long_stays(), Some(600_000)), Verdict::Holds);
        let short = Overlap { service_ns: 20 * MS, overlap_ns: 8 * MS, turns: 2 };
        assert_eq!((verdict(short, None), verdict(Overlap::default(), None)), (Verdict::Undecided, Verdict::Undecided));
    }
}
