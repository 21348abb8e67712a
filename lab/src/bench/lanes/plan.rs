//! The plan of the lanes bench: the measurements, their number and their length, so that the bench ends in time.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use sidelane_policy::borrow::{Budget, PolicyKind};

use super::options::LanesOptions;
use super::step::StepPlan;
use crate::experiment::setting::Setting;
use sidelane_doctor::reaction::latency::ReactionPlan;
use sidelane_requests::objective;
use sidelane_stats::interval::ROUNDS_MIN as ROUNDS_FOR_AN_INTERVAL;
use sidelane_stats::rounds::{Limit, RoundOptions};

/// Load at which policies are compared: the paper's "moderate".
const MODERATE_PERCENT: u8 = 50;
const LOADS: [u8; 5] = [10, 30, 50, 70, 90];
const LOADS_QUICK: [u8; 2] = [50, 80];
/// Batch kernels of the full bench: the paper's three micro benchmarks (§4) and a real program.
const BATCHES: [&str; 4] = ["loop", "matrix", "flush", "zstd"];
const BATCH_QUICK: &str = "matrix";
/// Fewest rounds: a median of fewer rounds has no confidence interval.
const ROUNDS_MIN: u64 = ROUNDS_FOR_AN_INTERVAL as u64;
const ROUNDS_MAX: u64 = 40;
/// Additional time of a run: to start and end a session, and to begin watching the service's sockets if the client has
/// no CPU of its own.
const OVERHEAD: Duration = Duration::from_millis(700);
/// Longest time for a session to learn what batch costs a request. About one request in a hundred runs without batch
/// for comparison, and a mean needs some hundred such requests.
const LEARNING: Duration = Duration::from_secs(60);
const LEARNING_QUICK: Duration = Duration::from_secs(30);

/// Plan of the whole lanes bench.
pub(super) struct Plan {
    pub(super) round_options: RoundOptions,
    pub(super) naps: ReactionPlan,
    pub(super) search: SweepPlan,
    /// Plan of the sweep over Redis; `None` in the quick run.
    pub(super) redis: Option<SweepPlan>,
    pub(super) step: Option<StepPlan>,
    slo_us: Option<f64>,
}

/// Sweep of loads and batch kernels over one service.
#[derive(Clone, Debug)]
pub(super) struct SweepPlan {
    pub(super) service: &'static str,
    pub(super) loads: Vec<u8>,
    pub(super) batches: Vec<&'static str>,
    pub(super) comparison: Comparison,
    pub(super) limit: Limit,
    pub(super) run: Duration,
    pub(super) warm_up: Duration,
    /// Longest time under load before the first measured run with a batch kernel. In that time the session learns what
    /// batch costs a request.
    pub(super) learning: Duration,
}

/// Set of settings that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// The service alone and the policies.
    Policies,
    /// The service alone, the policies, the kernel's own mechanisms and a freezing daemon.
    Everything,
}

impl Plan {
    pub(super) fn from_options(options: &LanesOptions) -> Result<Self> {
        let slo_us = options.slo.map(|slo| slo.limit_ns as f64 / 1e3);
        if let Some(slo) = options.slo.filter(|slo| slo.percentile != 99.0) {
            anyhow::bail!(
                "bench lanes judges the p99, so it cannot use {}: write --slo p99=TIME",
                objective::format_objective(slo)
            );
        }
        let search = SweepPlan::for_search(options);
        ensure!(!search.loads.is_empty() && !search.batches.is_empty(), "no loads or no batch kernels to measure");
        let round_options = options.round_options;
        let full = !round_options.quick;
        Ok(Self {
            round_options,
            naps: nap_plan(round_options.quick),
            search,
            redis: full.then(|| SweepPlan::for_redis(round_options)),
            step: full.then_some(StepPlan::DEFAULT),
            slo_us,
        })
    }

    /// Returns the objective that the user gave, in microseconds.
    pub(super) fn slo_us(&self) -> Option<f64> {
        self.slo_us
    }
}

fn nap_plan(quick: bool) -> ReactionPlan {
    let (rounds, gate_ms) = if quick { (100, 600) } else { (300, 2_500) };
    ReactionPlan { rounds, gate_time: Duration::from_millis(gate_ms), sibling_pairs: 0 }
}

impl SweepPlan {
    fn for_search(options: &LanesOptions) -> Self {
        let (ms, quick) = (Duration::from_millis, options.round_options.quick);
        let (run, warm_up, time) =
            if quick { (ms(1_100), ms(250), ms(160_000)) } else { (ms(1_500), ms(400), ms(2_700_000)) };
        let learning = if quick { LEARNING_QUICK } else { LEARNING };
        let loads = match &options.loads {
            Some(loads) => loads.as_slice(),
            None if quick => &LOADS_QUICK,
            None => &LOADS,
        };
        let batches = match &options.batches {
            Some(asked) => BATCHES.into_iter().filter(|name| asked.iter().any(|one| one == name)).collect(),
            None if quick => vec![BATCH_QUICK],
            None => BATCHES.to_vec(),
        };
        // Sorts the loads, since a line in a chart goes from left to right, and drops duplicates.
        let loads: BTreeSet<u8> = loads.iter().copied().collect();
        let plan = Self {
            service: "search",
            loads: loads.into_iter().collect(),
            batches,
            comparison: if quick { Comparison::Policies } else { Comparison::Everything },
            limit: Limit { first: ROUNDS_MIN, rounds: ROUNDS_MIN, time },
            run,
            warm_up,
            learning,
        };
        let limit = Limit { rounds: plan.rounds_in(time), ..plan.limit };
        Self { limit: options.round_options.limit(limit, limit), ..plan }
    }

    fn for_redis(round_options: RoundOptions) -> Self {
        let limit = Limit { first: ROUNDS_MIN, rounds: 4 * ROUNDS_MIN, time: Duration::from_secs(300) };
        Self {
            service: "redis",
            loads: vec![MODERATE_PERCENT],
            batches: vec![BATCH_QUICK],
            comparison: Comparison::Policies,
            limit: round_options.limit(limit, limit),
            run: Duration::from_millis(1_500),
            warm_up: Duration::from_millis(400),
            learning: LEARNING_QUICK,
        }
    }

    /// Returns the number of rounds for which there is time.
    fn rounds_in(&self, length: Duration) -> u64 {
        let round = (self.run + self.warm_up + OVERHEAD) * self.runs_per_round() as u32;
        let rounds = length.as_millis() / round.as_millis().max(1);
        (rounds as u64).clamp(ROUNDS_MIN, ROUNDS_MAX)
    }

    fn runs_per_round(&self) -> usize {
        // Counts the runs of a setting in a round, by the same rule as the function `turns` in `sweep.rs`.
        let of = |setting: &Setting| match setting.runs_with_every_batch() {
            true => self.batches.len(),
            false => 1,
        };
        self.loads.len() * self.settings(0, 0).iter().map(of).sum::<usize>()
    }

    /// Returns the measured load at which policies are compared.
    pub(super) fn moderate_load(&self) -> u8 {
        let distance = |load: &&u8| load.abs_diff(MODERATE_PERCENT);
        self.loads.iter().min_by_key(distance).copied().unwrap_or(MODERATE_PERCENT)
    }

    /// Returns the settings: the service alone, then the policies in the order of lent time, least first, then the
    /// rules as printed in Elfen's paper. Under `deadline` batch may run until a request is `age_ns` old.
    pub(super) fn settings(&self, budget_ns: u64, age_ns: u64) -> Vec<Setting> {
        let others = [Setting::UNMANAGED, Setting::SCHED_IDLE, Setting::freezing_daemon()];
        let everything = self.comparison == Comparison::Everything;
        let printed = PolicyKind::ALL.into_iter().filter(|kind| everything && kind.is_paper_rule());
        let spends = |kind: PolicyKind| if kind.limits_by_age() { age_ns } else { budget_ns };
        let policies = PolicyKind::OURS.into_iter().chain(printed);
        let policies = policies.map(|kind| Setting::with_budget(kind, Budget::Given(spends(kind))));
        [Setting::ALONE].into_iter().chain(others.into_iter().filter(|_| everything)).chain(policies).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_with_loads(quick: bool, loads: Option<Vec<u8>>) -> Plan {
        let round_options = RoundOptions { quick, rounds: None };
        let options = LanesOptions {
            round_options,
            lanes: None,
            sibling: None,
            loads,
            batches: None,
            slo: None,
            cache: "/tmp".into(),
        };
        Plan::from_options(&options).unwrap()
    }

    /// Returns the duration of the first rounds if all settings take part in each.
    fn estimated_duration(plan: &SweepPlan) -> Duration {
        let runs = plan.loads.len() + plan.runs_per_round() * plan.limit.first as usize;
        let sessions = |setting: &Setting| if setting.runs_with_every_batch() { plan.batches.len() } else { 1 };
        let settings = plan.settings(1, 1).into_iter().filter(Setting::learns_contention_cost);
        let learning = plan.learning * settings.map(|setting| sessions(&setting)).sum::<usize>() as u32;
        learning + (plan.run + plan.warm_up + OVERHEAD) * runs as u32
    }

    #[test]
    fn full_and_quick_plan_keep_their_time_limits() {
        let full = plan_with_loads(false, None);
        let all = estimated_duration(&full.search) + estimated_duration(full.redis.as_ref().unwrap());
        assert!(all < Duration::from_secs(55 * 60), "{all:?}");
        let quick = plan_with_loads(true, None);
        assert!(
            estimated_duration(&quick.search) < Duration::from_secs(190),
            "{:?}",
            estimated_duration(&quick.search)
        );
        assert!(quick.redis.is_none() && quick.step.is_none());
    }

    #[test]
    fn fewer_loads_get_more_rounds() {
        assert!(
            plan_with_loads(false, Some(vec![50])).search.limit.rounds
                > plan_with_loads(false, None).search.limit.rounds
        );
    }

    #[test]
    fn settings_are_ordered_by_lent_time() {
        let names: Vec<&str> =
            plan_with_loads(true, None).search.settings(1, 2).iter().map(|setting| setting.name).collect();
        assert_eq!(names, ["alone", "borrow_idle", "fixed_budget", "refresh_budget", "dynamic_refresh", "deadline"]);
        assert_eq!(plan_with_loads(false, None).search.settings(1, 2).len(), 12);
    }

    #[test]
    fn moderate_load_is_the_one_closest_to_half() {
        assert_eq!(plan_with_loads(true, None).search.moderate_load(), 50);
        assert_eq!(plan_with_loads(true, Some(vec![20, 60, 90])).search.moderate_load(), 60);
    }
}
