//! The checks of the sweep over loads, batch jobs and policies.

use sidelane_policy::borrow::contention_cost::ContentionCostEstimate;

use super::plan::SweepPlan;
use super::samples::{Figures, SampleKey, Samples};
use super::sweep::Sweep;
use sidelane_report::{Check, Interval, Unit};
use sidelane_stats::interval::of_median;

/// Policies in the order of the lane time that they lend: each must let batch run at least as much as the previous one.
const POLICIES: [(&str, &str); 5] = [
    ("borrow_idle", "borrow idle"),
    ("fixed_budget", "fixed budget"),
    ("refresh_budget", "refresh budget"),
    ("dynamic_refresh", "dynamic refresh"),
    ("deadline", "deadline"),
];
/// Loads, among the measured ones, at which the policy `deadline` must gain, and the required gain.
const DEADLINE_LOADS: [u8; 2] = [50, 70];
const DEADLINE_OVER_DYNAMIC: f64 = 1.1;
const ALONE: &str = "alone";
/// Tolerated difference between two policies that do the same, on a noisy machine.
const NOISE: f64 = 0.02;
/// Tolerated difference in the runs of Redis, whose client takes up to half of the batch lane.
const REDIS_NOISE: f64 = 0.05;
/// Required gain of batch under dynamic refresh. In the paper's Fig. 11 both lanes reach 1.5 instead of 1.0 at moderate
/// load, so batch's share doubles.
const DYNAMIC_OVER_IDLE: f64 = 1.3;
const P99_OVER_ALONE: f64 = 1.05;
/// How close the learned contention cost must come to the emulated one.
const CONTENTION_COST_WITHIN: f64 = 0.1;
const LEARNS: &str = "dynamic_refresh";

/// Returns the checks on the search service.
pub(super) fn of_search(sweep: &Sweep) -> Vec<Check> {
    let mut checks = of_moderate_load(sweep);
    checks.extend(sweep.plan.loads.iter().filter_map(|load| of_deadline(sweep, *load)));
    checks.extend(POLICIES.map(|(policy, title)| {
        let name = format!("p99 over the SLO, {title}, worst load");
        Check::interval_at_most(name, worst_of_slo(sweep, policy), 1.0, Unit::Ratio)
    }));
    checks
}

/// Returns the comparisons at moderate load.
fn of_moderate_load(sweep: &Sweep) -> Vec<Check> {
    let (plan, samples) = (&sweep.plan, &sweep.samples);
    let load = plan.moderate();
    let mut checks = Vec::new();
    for pair in POLICIES.windows(2) {
        let name = format!("batch's time at {load} %, {} over {}", pair[1].1, pair[0].1);
        let gain = gain(plan, samples, pair[1].0, pair[0].0);
        checks.push(Check::interval_at_least(name, gain, 1.0 - NOISE, Unit::Ratio));
    }
    let name = format!("batch's time at {load} %, dynamic refresh over borrow idle");
    let gain = gain(plan, samples, "dynamic_refresh", "borrow_idle");
    checks.push(Check::interval_at_least(name, gain, DYNAMIC_OVER_IDLE, Unit::Ratio));
    let name = format!("p99 at {load} % over alone, borrow idle, median of pairs");
    checks.push(Check::interval_at_most(name, p99_over_alone(plan, samples), P99_OVER_ALONE, Unit::OverAlone));
    checks.extend(sweep.emulated_contention_cost.map(|emulated| contention_cost_check(sweep, emulated)));
    checks
}

/// Whether the learned contention cost is the emulated one. The emulated contention cost is the same with all batch
/// kernels, so the mean over them is taken, weighted by their precision: one session's estimate
/// alone has a wider interval than the bound.
fn contention_cost_check(sweep: &Sweep, emulated: f64) -> Check {
    let percent = |contention_cost: f64| 100.0 * contention_cost;
    let learned = sweep.plan.batches.iter().filter_map(|batch| sweep.samples.last_contention_cost(batch, LEARNS));
    let off = mean_of(learned).map(|contention_cost| {
        let interval = Interval::of_mean(percent(contention_cost.mean), percent(contention_cost.error));
        interval.apart_from(percent(emulated), |one, other| (one - other).abs())
    });
    let name = format!("contention cost learned by dynamic refresh is off the {:.0} % emulated by", percent(emulated));
    Check::interval_at_most(name, off, percent(CONTENTION_COST_WITHIN), Unit::Percent)
}

/// Returns the mean of estimates of one number, each weighted by the inverse of its squared error.
fn mean_of(estimates: impl Iterator<Item = ContentionCostEstimate>) -> Option<ContentionCostEstimate> {
    let add = |(weights, sum), one: ContentionCostEstimate| {
        let weight = one.error.powi(2).recip();
        (weights + weight, sum + weight * one.mean)
    };
    let (weights, sum) = estimates.filter(|one| one.error > 0.0).fold((0.0, 0.0), add);
    (weights > 0.0).then(|| ContentionCostEstimate { mean: sum / weights, error: weights.sqrt().recip() })
}

/// Returns the check on the gain of the policy `deadline` at one of its loads.
fn of_deadline(sweep: &Sweep, load: u8) -> Option<Check> {
    let name = format!("batch's time at {load} %, deadline well over dynamic refresh");
    let gain = gain_at(&sweep.plan, &sweep.samples, load, "deadline", "dynamic_refresh");
    let check = Check::interval_at_least(name, gain, DEADLINE_OVER_DYNAMIC, Unit::Ratio);
    DEADLINE_LOADS.contains(&load).then_some(check)
}

/// Returns the checks on the sweep over Redis.
pub(super) fn of_redis(sweep: &Sweep) -> Vec<Check> {
    let (plan, samples) = (&sweep.plan, &sweep.samples);
    let gains = POLICIES.windows(2).map(|pair| gain(plan, samples, pair[1].0, pair[0].0));
    let worst = POLICIES.iter().map(|(policy, _)| worst_of_slo(sweep, policy));
    let (least, most) = (all_of(gains, Interval::min), all_of(worst, Interval::max));
    vec![
        Check::interval_at_least(
            "redis: batch's time, each policy over the one before",
            least,
            1.0 - REDIS_NOISE,
            Unit::Ratio,
        ),
        Check::interval_at_most("redis: p99 over its SLO, worst policy", most, 1.0, Unit::Ratio),
    ]
}

/// Returns the loads at which some check needs more rounds.
pub(super) fn undecided_loads(sweep: &Sweep) -> Vec<u8> {
    let plan = &sweep.plan;
    let is_undecided = |load: &&u8| {
        let moderate = **load == plan.moderate() && of_moderate_load(sweep).iter().any(Check::is_undecided);
        let deadline = of_deadline(sweep, **load).is_some_and(|check| check.is_undecided());
        moderate || deadline || POLICIES.iter().any(|(policy, _)| is_slo_undecided(sweep, **load, policy))
    };
    plan.loads.iter().filter(is_undecided).copied().collect()
}

fn is_slo_undecided(sweep: &Sweep, load: u8, policy: &str) -> bool {
    let check = |over| Check::interval_at_most("", over, 1.0, Unit::Ratio);
    within_alone(sweep, load) && over_slo(sweep, load, policy).any(|over| check(over).is_undecided())
}

/// Returns the worst of several numbers by `worse`; `None` if one is missing.
fn all_of(
    mut numbers: impl Iterator<Item = Option<Interval>>,
    worse: fn(Interval, Interval) -> Interval,
) -> Option<Interval> {
    let first = numbers.next()??;
    numbers.try_fold(first, |worst, next| Some(worse(worst, next?)))
}

/// Returns the ratio of batch's time under two policies at moderate load: the median of pairs, with the batch kernel
/// that gained least.
fn gain(plan: &SweepPlan, samples: &Samples, policy: &str, other: &str) -> Option<Interval> {
    gain_at(plan, samples, plan.moderate(), policy, other)
}

fn gain_at(plan: &SweepPlan, samples: &Samples, load: u8, policy: &str, other: &str) -> Option<Interval> {
    let of_batch = |batch: &String| {
        let at = SampleKey { load, batch, setting: policy };
        of_median(samples.ratios(at, other, |run| run.batch_utilisation))
    };
    all_of(plan.batches.iter().map(of_batch), Interval::min)
}

/// Returns the largest ratio of the policy's p99 to the objective. Loads at which the service alone misses its
/// objective are excluded: no policy can improve them.
fn worst_of_slo(sweep: &Sweep, policy: &str) -> Option<Interval> {
    let loads = sweep.plan.loads.iter().filter(|load| within_alone(sweep, **load));
    all_of(loads.flat_map(|load| over_slo(sweep, *load, policy)), Interval::max)
}

fn within_alone(sweep: &Sweep, load: u8) -> bool {
    let alone_us = sweep.samples.median(SampleKey { load, batch: "", setting: ALONE }, |run| Some(run.p99_us));
    alone_us.is_some_and(|alone_us| alone_us <= sweep.promise.slo_us)
}

/// Returns the ratio of the policy's p99 to the objective at one load, for each batch kernel.
fn over_slo(sweep: &Sweep, load: u8, policy: &str) -> impl Iterator<Item = Option<Interval>> {
    let over = move |batch: &String| {
        let runs = sweep.samples.at(SampleKey { load, batch, setting: policy });
        of_median(runs.map(|run| run.figures.p99_us / sweep.promise.slo_us))
    };
    sweep.plan.batches.iter().map(over)
}

/// Returns the ratio of p99 over alone in all pairs at moderate load, with all batch kernels.
fn p99_over_alone(plan: &SweepPlan, samples: &Samples) -> Option<Interval> {
    let load = plan.moderate();
    let p99_us = |run: &Figures| Some(run.p99_us);
    let of_batch = |batch: &String| samples.ratios(SampleKey { load, batch, setting: "borrow_idle" }, ALONE, p99_us);
    of_median(plan.batches.iter().flat_map(of_batch))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use super::super::objective::Promise;
    use super::super::plan::Comparison;
    use super::super::samples::tests::run;
    use super::*;
    use sidelane_report::Verdict;
    use sidelane_stats::rounds::Limit;

    /// Returns a sweep of six rounds at 50 % load with the batch kernel `loop`, with p99 and batch utilisation of each
    /// policy. The service alone has a p99 of 10 ms, and its objective is 25 ms.
    fn sweep(policies: [(f64, f64); 5]) -> Sweep {
        let mut runs = Vec::new();
        for round in 0..6 {
            runs.push(run(round, 50, None, ALONE, 10_000.0, 0.0));
            for ((name, _), (p99_us, batch)) in POLICIES.iter().zip(policies) {
                runs.push(run(round, 50, Some("loop"), name, p99_us, batch));
            }
        }
        Sweep {
            plan: SweepPlan {
                service: "search",
                loads: vec![50],
                batches: vec!["loop".to_owned()],
                comparison: Comparison::Policies,
                limit: Limit { first: 6, rounds: 6, time: Duration::MAX },
                run: Duration::from_secs(1),
                warm_up: Duration::ZERO,
                learning: Duration::ZERO,
            },
            promise: Promise::of(Some(25_000.0), BTreeMap::from([(50, 10_000.0)]), 50),
            samples: Samples(runs),
            mean_service_us: 1.0,
            client_percent: 0.0,
            send_lag_us: 0.0,
            notes: BTreeSet::new(),
            emulated_contention_cost: None,
            learned: BTreeMap::new(),
        }
    }

    const GOOD: [(f64, f64); 5] =
        [(10_100.0, 0.48), (14_000.0, 0.6), (15_000.0, 0.7), (20_000.0, 0.9), (21_000.0, 1.0)];

    fn failing(sweep: &Sweep) -> Vec<String> {
        of_search(sweep).into_iter().filter(|check| !check.ok).map(|check| check.name).collect()
    }

    #[test]
    fn policies_within_their_bounds_pass() {
        assert_eq!(failing(&sweep(GOOD)), [""; 0]);
        assert!(of_redis(&sweep(GOOD)).iter().all(|check| check.ok));
    }

    #[test]
    fn a_policy_that_borrows_less_than_the_one_before_fails() {
        let mut policies = GOOD;
        policies[2].1 = 0.58;
        assert_eq!(failing(&sweep(policies)), ["batch's time at 50 %, refresh budget over fixed budget"]);
        policies[2].1 = 0.56;
        assert!(!of_redis(&sweep(policies))[0].ok);
        policies[2].1 = 0.595;
        assert_eq!(failing(&sweep(policies)), [""; 0], "within the noise");
    }

    #[test]
    fn harm_is_judged_by_what_is_emulated() {
        let of = |mean, error| {
            let mut sweep = sweep(GOOD);
            sweep.emulated_contention_cost = Some(0.4);
            let dynamic = sweep.samples.0.iter_mut().filter(|run| run.setting == LEARNS);
            dynamic.for_each(|run| run.figures.contention_cost = Some(ContentionCostEstimate { mean, error }));
            of_search(&sweep).into_iter().find(|check| check.name.starts_with("contention cost")).unwrap().verdict
        };
        assert_eq!(of(0.42, 0.02), Verdict::Holds);
        assert_eq!(of(0.42, 0.1), Verdict::Undecided);
        assert_eq!(of(0.6, 0.02), Verdict::Missed);
    }

    #[test]
    fn mean_weights_estimates_by_their_error() {
        let estimates = [(0.5, 0.1), (0.4, 0.05)].map(|(mean, error)| ContentionCostEstimate { mean, error });
        let mean = mean_of(estimates.into_iter()).unwrap();
        assert!((mean.mean - 0.42).abs() < 1e-9 && (mean.error - 0.05 / 1.25_f64.sqrt()).abs() < 1e-9, "{mean:?}");
        assert_eq!(mean_of([].into_iter()), None);
    }

    #[test]
    fn a_budget_that_is_not_used_fails() {
        let all_the_same = [(10_000.0, 0.48); 5];
        let wanted = [
            "batch's time at 50 %, dynamic refresh over borrow idle",
            "batch's time at 50 %, deadline well over dynamic refresh",
        ];
        assert_eq!(failing(&sweep(all_the_same)), wanted);
    }

    #[test]
    fn a_missed_objective_fails_unless_the_service_misses_it_alone() {
        let mut policies = GOOD;
        policies[3].0 = 25_100.0;
        assert_eq!(failing(&sweep(policies)), ["p99 over the SLO, dynamic refresh, worst load"]);
        assert!(!of_redis(&sweep(policies))[1].ok);
        let mut overloaded = sweep(GOOD);
        overloaded.plan.loads.push(90);
        overloaded.samples.0.push(run(0, 90, None, ALONE, 80_000.0, 0.0));
        overloaded.samples.0.extend(POLICIES.map(|(name, _)| run(0, 90, Some("loop"), name, 99_000.0, 0.1)));
        assert_eq!(failing(&overloaded), [""; 0]);
        assert!(undecided_loads(&overloaded).is_empty());
    }

    #[test]
    fn a_slower_service_fails_and_so_does_a_missing_measurement() {
        let mut policies = GOOD;
        policies[0].0 = 10_600.0;
        assert_eq!(failing(&sweep(policies)), ["p99 at 50 % over alone, borrow idle, median of pairs"]);
        let mut empty = sweep(GOOD);
        empty.samples.0.retain(|run| run.setting != "dynamic_refresh");
        assert_eq!(failing(&empty).len(), 5);
    }

    #[test]
    fn more_rounds_are_taken_where_something_is_undecided() {
        let mut noisy = sweep(GOOD);
        assert!(undecided_loads(&noisy).is_empty());
        noisy.plan.loads.push(80);
        for round in 0..6 {
            let p99_us = if round == 3 { 60_000.0 } else { 20_000.0 };
            noisy.samples.0.push(run(round, 80, None, ALONE, 12_000.0, 0.0));
            noisy.samples.0.extend(POLICIES.map(|(name, _)| run(round, 80, Some("loop"), name, p99_us, 0.1)));
        }
        assert_eq!(undecided_loads(&noisy), [80]);
        assert!(of_search(&noisy).iter().filter(|check| !check.ok).all(Check::is_undecided));
    }
}
