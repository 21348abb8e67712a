//! The terms on which a lane is lent, computed from the requests that have finished, ten times a second.
//!
//! That is often enough: a budget that comes too late costs the intended amount for one more tenth of a second.

use core::ops::DerefMut;

use crate::Nanos;
use crate::borrow::deadline::QueuedCost;
use crate::borrow::harm::{Finished, HarmEstimate, HarmMeter, HarmSource};
use crate::borrow::headroom::{Headroom, Standing};
use crate::borrow::lending::{Budget, Objective};
use crate::borrow::seen::{Harm, Terms};
use crate::borrow::window::LatencyWindow;

/// Interval at which terms are agreed.
pub const EVERY_NS: Nanos = 100_000_000;

/// Computes the terms. `W` is the type in which its owner keeps the window of latencies, which is large: a box.
#[derive(Clone, Debug)]
pub struct TermsMeter<W> {
    terms: Terms,
    harm: HarmMeter,
    queued: QueuedCost,
    aim: Option<Aim<W>>,
}

/// Knowledge from past requests. Another meter for the same service and batch continues with it.
#[derive(Clone, Copy, Debug)]
pub struct Learned {
    harm: HarmMeter,
    queued: QueuedCost,
    headroom: Option<Headroom>,
}

impl Learned {
    /// Returns the loss of a request to batch beside it, with its error; `None` while it is unknown.
    pub fn harm(&self) -> Option<HarmEstimate> {
        self.harm.estimate()
    }
}

/// Data from which a budget is computed that is not given.
#[derive(Clone, Debug)]
struct Aim<W> {
    objective: Objective,
    headroom: Headroom,
    window: W,
}

impl<W: DerefMut<Target = LatencyWindow>> TermsMeter<W> {
    /// Creates a meter that knows only the budget, if that is given; for an objective it begins with none. `by_age`:
    /// the result is an age, see [`super::PolicyKind::is_by_age`]. A `window` is made only for an objective.
    pub fn new(budget: Budget, by_age: bool, queued: QueuedCost, window: impl FnOnce() -> W) -> Self {
        let budget_ns = if let Budget::Given(ns) = budget { ns } else { 0 };
        let aim = if let Budget::Slo(objective) = budget {
            Some(Aim { objective, headroom: Headroom::of(objective.limit_ns, by_age), window: window() })
        } else {
            None
        };
        Self { terms: Terms { budget_ns, ..Terms::default() }, harm: HarmMeter::default(), queued, aim }
    }

    /// Takes in a request that has finished.
    pub fn finished(&mut self, latency_ns: Nanos, request: &Finished) {
        self.harm.add(request);
        self.finished_unseen(latency_ns, request.server_ns);
    }

    /// Takes in a request that has finished, if it is unknown what ran beside it: it does not count for harm.
    pub fn finished_unseen(&mut self, latency_ns: Nanos, server_ns: Nanos) {
        self.queued.add(server_ns);
        if let Some(aim) = &mut self.aim {
            aim.window.record(latency_ns);
        }
    }

    /// Agrees new terms; to be called once in [`EVERY_NS`].
    pub fn agree(&mut self) -> Terms {
        self.terms.harm = self.harm.harm();
        self.terms.queued_ns = self.queued.queued_ns();
        if let Some(aim) = &mut self.aim {
            self.terms.budget_ns = aim.headroom.look(&aim.window.last_second(aim.objective.percentile));
            aim.window.next_look();
        }
        self.terms
    }

    /// Returns the knowledge so far.
    pub fn learned(&self) -> Learned {
        Learned { harm: self.harm, queued: self.queued, headroom: self.aim.as_ref().map(|aim| aim.headroom) }
    }

    /// Continues with the knowledge of another meter. A computed budget changes at the next look.
    pub fn take_over(&mut self, learned: &Learned) {
        (self.harm, self.queued) = (learned.harm, learned.queued);
        if let Some((aim, headroom)) = self.aim.as_mut().zip(learned.headroom) {
            aim.headroom = headroom;
        }
        (self.terms.harm, self.terms.queued_ns) = (self.harm.harm(), self.queued.queued_ns());
    }

    /// Returns the terms that are agreed now.
    pub fn present(&self) -> Terms {
        self.terms
    }

    /// Returns the service's relation to its objective when they were agreed.
    pub fn standing(&self) -> Standing {
        self.aim.as_ref().map_or(Standing::Unknown, |aim| aim.headroom.standing())
    }

    /// Returns the harm by all that is known; the terms get it when they are next agreed.
    pub fn harm(&self) -> Harm {
        self.harm.harm()
    }

    /// Returns its source.
    pub fn harm_source(&self) -> HarmSource {
        self.harm.source()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::borrow::deadline::QUEUE_WEIGHT;
    use std::boxed::Box;

    const MS: Nanos = 1_000_000;

    fn meter(budget: Budget) -> TermsMeter<Box<LatencyWindow>> {
        TermsMeter::new(budget, false, QueuedCost::new(QUEUE_WEIGHT, 1), Box::default)
    }

    /// Takes in requests with server times of 1 ms alone and 1.2 ms beside batch, and a latency of `latency_ns`.
    fn serve(meter: &mut TermsMeter<Box<LatencyWindow>>, requests: u64, latency_ns: Nanos) {
        for number in 0..requests {
            let (server_ns, co_run_ns) = if number % 2 == 0 { (MS, 0) } else { (1_200_000, 1_200_000) };
            meter.finished(latency_ns, &Finished { server_ns, co_run_ns, waited: false, counters: None });
        }
    }

    #[test]
    fn given_budget_stays_and_harm_is_learned() {
        let mut meter = meter(Budget::Given(5 * MS));
        assert_eq!(meter.present(), Terms { budget_ns: 5 * MS, ..Terms::default() });
        serve(&mut meter, 1_000, 40 * MS);
        assert_eq!(meter.present().harm, Harm::FULL, "nothing was agreed");
        let terms = meter.agree();
        assert_eq!((terms, terms.budget_ns, terms.harm), (meter.present(), 5 * MS, meter.harm()));
        assert!((160_000..200_000).contains(&terms.harm.ppm()), "{:?}", terms.harm);
        assert!((2 * MS..3 * MS).contains(&terms.queued_ns), "{}", terms.queued_ns);
        assert_eq!((meter.harm_source(), meter.standing()), (HarmSource::ServerTimes, Standing::Unknown));
    }

    #[test]
    fn an_objective_leaves_a_budget_while_it_is_met() {
        let mut meter = meter(Budget::Slo(Objective { percentile: 99.0, limit_ns: 100 * MS }));
        assert_eq!(meter.agree().budget_ns, 0);
        for _ in 0..20 {
            serve(&mut meter, 10, 40 * MS);
            meter.agree();
        }
        assert!(meter.present().budget_ns > 50 * MS, "{:?}", meter.present());
        assert_eq!(meter.standing(), Standing::Met);
        serve(&mut meter, 10, 101 * MS);
        assert_eq!(meter.agree().budget_ns, 0);
        assert_eq!(meter.standing(), Standing::Late);
    }

    #[test]
    fn unseen_requests_give_service_time_but_no_harm() {
        let mut meter = meter(Budget::Given(MS));
        (0..1_000).for_each(|_| meter.finished_unseen(2 * MS, MS));
        let terms = meter.agree();
        assert_eq!((terms.harm, terms.queued_ns), (Harm::FULL, 2 * MS));
    }
}
