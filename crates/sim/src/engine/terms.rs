//! The terms on which lanes are lent, computed ten times a second as in
//! `sidelane/src/lane/terms.rs`.

use std::collections::VecDeque;

use sidelane_policy::borrow::Terms;
use sidelane_policy::borrow::deadline::QueuedCost;
use sidelane_policy::borrow::harm::{Counters, Finished, HarmMeter};
use sidelane_policy::borrow::headroom::{Headroom, LastSecond};

use super::core::Request;
use crate::model::{Beside, Budget, Decider, Model, Objective};
use crate::time::{MS, Nanos};

/// How often terms are computed.
pub(super) const EVERY_NS: Nanos = 100 * MS;
/// A computation uses at least the requests of the last second.
const LOOKS_MIN: usize = 10;
/// It uses those of up to ten seconds, until there are enough for a percentile.
const LOOKS_MAX: usize = 100;
const REQUESTS_WANTED: usize = 100;
/// Buckets for each power of two, as in the agent.
const SUB_BITS: u32 = 5;
const BUCKETS: usize = (u64::BITS as usize) << SUB_BITS;

/// Computes budget and harm.
#[derive(Clone, Debug)]
pub(super) struct TermsKeeper {
    /// Whether any lane's policy uses a budget.
    pub(super) wanted: bool,
    terms: Terms,
    counters: bool,
    harm: HarmMeter,
    queued: QueuedCost,
    objective: Option<(Objective, Headroom, Recent)>,
}

impl TermsKeeper {
    pub(super) fn new(model: &Model) -> Self {
        let (by, budget, queue_weight) = match &model.setting.beside {
            Beside::Lent(lending) => (Some(lending.by), lending.budget, lending.queue_weight),
            _ => (None, Budget::None, 0.0),
        };
        let by_age = matches!(by, Some(Decider::Policy(kind)) if kind.is_by_age());
        let budget_ns = if let Budget::Given(ns) = budget { ns } else { 0 };
        let objective = model.objective.filter(|_| budget == Budget::Slo);
        Self {
            wanted: by.is_some_and(Decider::lends),
            terms: Terms { budget_ns, ..Terms::default() },
            counters: model.machine.counters,
            harm: HarmMeter::default(),
            queued: QueuedCost::new(queue_weight, model.service.workers),
            objective: objective.map(|slo| (slo, Headroom::of(slo.limit_ns, by_age), Recent::default())),
        }
    }

    pub(super) fn present(&self) -> Terms {
        self.terms
    }

    /// Adds a request; with `glitch`, its counters are wrong.
    pub(super) fn finished(&mut self, request: &Request, now: Nanos, glitch: bool) {
        if !self.wanted {
            return;
        }
        let server_ns = now - request.started;
        let counted =
            Counters { instructions: (request.work.ns() as u64) << (if glitch { 4 } else { 0 }), cycles: server_ns };
        self.queued.add(server_ns);
        self.harm.add(&Finished {
            server_ns,
            co_run_ns: request.co_run_ns,
            waited: request.waited,
            counters: Some(counted).filter(|_| self.counters),
        });
        if let Some((_, _, recent)) = &mut self.objective {
            recent.record(now - request.arrived);
        }
    }

    /// Computes new terms.
    pub(super) fn keep(&mut self) {
        self.terms.harm = self.harm.harm();
        self.terms.queued_ns = self.queued.queued_ns();
        if let Some((slo, headroom, recent)) = &mut self.objective {
            self.terms.budget_ns = headroom.look(&recent.last_second(slo.percentile));
            recent.next_look();
        }
    }
}

/// The latencies of the last periods, as bucket numbers.
#[derive(Clone, Debug)]
struct Recent {
    buckets: VecDeque<u16>,
    looks: VecDeque<usize>,
    counts: Vec<u32>,
}

impl Default for Recent {
    fn default() -> Self {
        Self { buckets: VecDeque::new(), looks: VecDeque::from([0]), counts: vec![0; BUCKETS] }
    }
}

impl Recent {
    fn record(&mut self, latency_ns: Nanos) {
        self.buckets.push_back(bucket(latency_ns) as u16);
        if let Some(present) = self.looks.back_mut() {
            *present += 1;
        }
    }

    fn next_look(&mut self) {
        if self.looks.len() == LOOKS_MAX {
            let oldest = self.looks.pop_front().unwrap_or(0);
            self.buckets.drain(..oldest);
        }
        self.looks.push_back(0);
    }

    fn last_second(&mut self, percentile: f64) -> LastSecond {
        let mut wanted = 0;
        for (look, count) in self.looks.iter().rev().enumerate() {
            if look >= LOOKS_MIN && wanted >= REQUESTS_WANTED {
                break;
            }
            wanted += count;
        }
        self.counts.fill(0);
        self.buckets.iter().rev().take(wanted).for_each(|bucket| self.counts[usize::from(*bucket)] += 1);
        LastSecond { requests: wanted as u64, latency_ns: self.percentile_ns(wanted, percentile) }
    }

    fn percentile_ns(&self, requests: usize, percentile: f64) -> Nanos {
        let rank = libm::ceil(requests as f64 * percentile / 100.0).max(1.0) as usize;
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += *count as usize;
            seen >= rank
        });
        at.map_or(0, middle_ns)
    }
}

fn bucket(ns: Nanos) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(SUB_BITS + 1);
    ((shift as usize) << SUB_BITS) + (ns >> shift) as usize
}

fn middle_ns(bucket: usize) -> Nanos {
    let shift = (bucket >> SUB_BITS).saturating_sub(1);
    let low = bucket - (shift << SUB_BITS);
    ((low as u64) << shift) + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_stands_for_its_latencies_within_2_percent() {
        for ns in [0, 1, 31, 32, 33, 63, 64, 100, 999, 4_400, 123_456, 9_999_999_999, u64::MAX / 2] {
            let read = middle_ns(bucket(ns));
            assert!(read.abs_diff(ns) / 2 <= ns / 100, "{ns} read as {read}");
        }
    }

    #[test]
    fn a_look_is_of_the_last_second_or_of_a_hundred_requests() {
        let mut recent = Recent::default();
        for look in 0..300_u64 {
            (0..5).for_each(|_| recent.record(1_000 * (look + 1)));
            let seen = recent.last_second(99.0);
            assert_eq!(seen.requests, (5 * (look + 1)).min(100));
            assert!(seen.latency_ns.abs_diff(1_000 * (look + 1)) * 50 <= 1_000 * (look + 1));
            recent.next_look();
        }
        assert!(recent.buckets.len() <= 5 * LOOKS_MAX);
    }
}
