//! The overlap promise: a bound on the time in which batch runs on lanes beside a service without permission. It is
//! judged every second over the last minute, for each service.

use std::collections::BTreeMap;

use sidelane_policy::Nanos;
use sidelane_report::terminal::{Level, eprint_with_level};

use super::Agent;
use crate::tracked::AgentService;
use sidelane_diagnostics::note::Note;
use sidelane_lanes::gate::Gate;
use sidelane_lanes::note::LaneNote;
use sidelane_lanes::promise::{Circumstances, OverlapPromise};

/// Interval of judgements of the overlap promise.
const JUDGE_NS: Nanos = 1_000_000_000;
/// Age up to which a note explains overlap, equal to the time span over which overlap is judged.
const EXPLAINS_NS: Nanos = 60_000_000_000;

/// Overlap promises that are broken now, and the notes that explain overlap.
#[derive(Debug, Default)]
pub(super) struct Promises {
    due_ns: Nanos,
    /// Notes that explain overlap, each with the time of its last occurrence.
    explaining: BTreeMap<Note, Nanos>,
    /// Time at which the agent last continued after it had been stopped.
    stopped_ns: Option<Nanos>,
    /// Overlap promises that are broken now, by service.
    broken: BTreeMap<String, OverlapPromise>,
}

impl Promises {
    /// Takes in a note, which may explain later overlap.
    pub(super) fn record_note(&mut self, note: &Note, now_ns: Nanos) {
        if LaneNote::best_overlap_explanation([note]).is_some() {
            self.explaining.insert(note.clone(), now_ns);
        }
    }

    /// Notes that the agent was stopped until now.
    pub(super) fn record_agent_stop(&mut self, now_ns: Nanos) {
        self.stopped_ns = Some(now_ns);
    }

    /// Returns the overlap promise to a service if it is broken now.
    pub(super) fn broken_promise_to(&self, service: &str) -> Option<&OverlapPromise> {
        self.broken.get(service)
    }

    /// Returns the overlap promises to services that were broken, or are kept again, since the last call.
    fn update_broken_promises(&mut self, judged: Vec<OverlapPromise>) -> Vec<(OverlapPromise, bool)> {
        let before = std::mem::take(&mut self.broken);
        let changed = |promise: &OverlapPromise| promise.is_broken() != before.contains_key(&promise.service);
        let news = judged.iter().filter(|promise| changed(promise)).map(|one| (one.clone(), one.is_broken())).collect();
        let broken = judged.into_iter().filter(OverlapPromise::is_broken);
        self.broken = broken.map(|promise| (promise.service.clone(), promise)).collect();
        news
    }

    fn circumstances(&mut self, gate: &Gate, now_ns: Nanos) -> Circumstances {
        let is_recent = |at_ns: &Nanos| now_ns.saturating_sub(*at_ns) < EXPLAINS_NS;
        self.explaining.retain(|_, at_ns| is_recent(at_ns));
        Circumstances {
            gate: gate.clone(),
            was_stopped: self.stopped_ns.as_ref().is_some_and(is_recent),
            note: LaneNote::best_overlap_explanation(self.explaining.keys()).cloned(),
        }
    }
}

impl Agent {
    /// Judges the overlap beside each service that has lanes, and notes which overlap promises were broken or hold
    /// again.
    pub(super) fn judge_overlap(&mut self, now_ns: Nanos) {
        let Some(gates) = self.gates.as_ref().filter(|_| now_ns >= self.promises.due_ns) else { return };
        self.promises.due_ns = now_ns + JUDGE_NS;
        let circumstances = self.promises.circumstances(gates.gate(), now_ns);
        let memory = self.tracked.tracker().memory();
        for (_, served) in self.tracked.services.iter_mut() {
            if let Some(kept) = &mut served.tracked.kept {
                let counted = memory.overlap(&kept.request_lanes, &kept.lanes_with_keepers());
                kept.overlap.record_counters(now_ns, counted);
            }
        }
        let services = self.tracked.services.iter();
        let judged = services.filter_map(|(_, served)| overlap_promise_to(served, circumstances.clone())).collect();
        for (promise, is_broken) in self.promises.update_broken_promises(judged) {
            let what = match is_broken {
                true => promise.to_string(),
                false => format!("promise kept again: overlap beside {} is within its bound", promise.service),
            };
            eprint_with_level(Level::Warning, &format!("sidelane: {what}"));
            self.log_note("promise", &what);
        }
    }
}

/// Judges the overlap promise to a service by the overlap of the last minute; `None` if the service has no lanes.
fn overlap_promise_to(served: &AgentService, circumstances: Circumstances) -> Option<OverlapPromise> {
    let overlap = served.tracked.kept.as_ref()?.overlap.recent();
    Some(OverlapPromise::new(served.found.name.clone(), overlap, None, circumstances))
}

#[cfg(test)]
mod tests {
    use sidelane_policy::borrow::promise::Overlap;

    use super::*;

    const S: u64 = 1_000_000_000;

    fn promise_with_overlap(overlap_ns: u64) -> OverlapPromise {
        let overlap = Overlap { service_ns: 10 * S, overlap_ns, turns: 100 };
        OverlapPromise::new("redis".into(), overlap, None, Circumstances::default())
    }

    #[test]
    fn broken_and_restored_promise_are_reported() {
        let mut promises = Promises::default();
        let mut news = |overlap_ns| {
            let news = promises.update_broken_promises(vec![promise_with_overlap(overlap_ns)]);
            news.into_iter().map(|(_, is_broken)| is_broken).collect::<Vec<_>>()
        };
        assert_eq!(
            (news(0), news(5 * S), news(6 * S), news(0), news(0)),
            (vec![], vec![true], vec![], vec![false], vec![])
        );
    }

    #[test]
    fn a_service_that_is_gone_has_no_broken_promise() {
        let mut promises = Promises::default();
        promises.update_broken_promises(vec![promise_with_overlap(5 * S)]);
        assert!(promises.broken_promise_to("redis").is_some());
        assert!(promises.update_broken_promises(vec![]).is_empty() && promises.broken_promise_to("redis").is_none());
    }

    #[test]
    fn note_explains_only_the_overlap_of_its_minute() {
        let mut promises = Promises::default();
        promises.record_note(&LaneNote::GuardianEnded.into(), S);
        promises.record_note(&LaneNote::Leaks { times: 3 }.into(), S);
        let mut note = |at_s| promises.circumstances(&Gate::Holder, at_s * S).note;
        assert_eq!((note(60), note(61)), (Some(LaneNote::Leaks { times: 3 }.into()), None));
    }
}
