//! The checks of the sweep over loads, batch jobs and policies.

use sidelane_policy::borrow::contention_cost::ContentionCostEstimate;

use super::samples::{SampleKey, Samples};
use super::sweep::Sweep;
use sidelane_report::{Check, Interval, Unit};
use sidelane_stats::interval::median_interval;

/// Policies in the order of the lane time that they lend: each policy must let batch run at least as much as the
/// previous policy.
const POLICIES: [(&str, &str); 5] = [
    ("borrow_idle", "borrow idle"),
    ("fixed_budget", "fixed budget"),
    ("refresh_budget", "refresh budget"),
    ("dynamic_refresh", "dynamic refresh"),
    ("deadline", "deadline"),
];
/// Loads, among the measured ones, at which batch must get more time under `deadline` than under dynamic refresh, and
/// the required ratio.
const DEADLINE_LOADS: [u8; 2] = [50, 70];
const DEADLINE_OVER_DYNAMIC: f64 = 1.1;
const ALONE: &str = "alone";
/// Tolerated difference, as a fraction, between two policies that behave equally on a noisy machine.
const NOISE: f64 = 0.02;
/// Tolerated difference, as a fraction, between two policies in the runs of Redis. The client of Redis takes up to half
/// of the batch lane.
const REDIS_NOISE: f64 = 0.05;
/// Required ratio of batch's time under dynamic refresh to its time under borrow idle. In the paper's Fig. 11 the
/// utilisation of both lanes reaches 1.5 instead of 1.0 at moderate load, so batch's share doubles.
const DYNAMIC_OVER_IDLE: f64 = 1.3;
const P99_OVER_ALONE: f64 = 1.05;
/// Largest accepted difference between the learned contention cost and the emulated one, as a fraction.
const CONTENTION_COST_WITHIN: f64 = 0.1;
const LEARNS: &str = "dynamic_refresh";

/// Returns the checks on the search service.
pub(super) fn search_checks(sweep: &Sweep, samples: &Samples) -> Vec<Check> {
    let mut checks = moderate_load_checks(sweep, samples);
    checks.extend(sweep.plan.loads.iter().filter_map(|load| deadline_check(sweep, samples, *load)));
    checks.extend(POLICIES.map(|(policy, title)| {
        let name = format!("p99 over the SLO, {title}, worst load");
        Check::interval_at_most(name, worst_p99_over_slo(sweep, samples, policy), 1.0, Unit::Ratio)
    }));
    checks
}

/// Returns the checks that compare policies at moderate load: batch's time, and the service's p99.
fn moderate_load_checks(sweep: &Sweep, samples: &Samples) -> Vec<Check> {
    let load = sweep.plan.moderate_load();
    let mut checks = Vec::new();
    for pair in POLICIES.windows(2) {
        let name = format!("batch's time at {load} %, {} over {}", pair[1].1, pair[0].1);
        let gain = batch_gain(sweep, samples, load, pair[1].0, pair[0].0);
        checks.push(Check::interval_at_least(name, gain, 1.0 - NOISE, Unit::Ratio));
    }
    let name = format!("batch's time at {load} %, dynamic refresh over borrow idle");
    let gain = batch_gain(sweep, samples, load, "dynamic_refresh", "borrow_idle");
    checks.push(Check::interval_at_least(name, gain, DYNAMIC_OVER_IDLE, Unit::Ratio));
    let name = format!("p99 at {load} % over alone, borrow idle, median of pairs");
    checks.push(Check::interval_at_most(name, p99_over_alone(sweep, samples), P99_OVER_ALONE, Unit::OverAlone));
    checks.extend(sweep.emulated_contention_cost.map(|emulated| contention_cost_check(sweep, samples, emulated)));
    checks
}

/// Returns the check whether the learned contention cost equals the emulated one. The emulated contention cost is the
/// same with all batch kernels, so the mean over them is taken, weighted by their precision: one session's estimate
/// alone has a wider interval than the bound.
fn contention_cost_check(sweep: &Sweep, samples: &Samples, emulated_cost: f64) -> Check {
    let percent = |contention_cost: f64| 100.0 * contention_cost;
    let last_with = |batch: &&'static str| {
        let learned = |cell: SampleKey| cell.setting == LEARNS && cell.batch == *batch;
        samples.0.iter().rfind(|sample| learned(sample.variant))?.figures.contention_cost
    };
    let learned = sweep.plan.batches.iter().filter_map(last_with);
    let off = weighted_mean(learned).map(|contention_cost| {
        let interval = Interval::from_mean(percent(contention_cost.mean), percent(contention_cost.error));
        interval.distance_from(percent(emulated_cost), |one, other| (one - other).abs())
    });
    let name =
        format!("contention cost learned by dynamic refresh is off the {:.0} % emulated by", percent(emulated_cost));
    Check::interval_at_most(name, off, percent(CONTENTION_COST_WITHIN), Unit::Percent)
}

/// Returns the mean of estimates of one number, each weighted by the inverse of its squared error.
fn weighted_mean(estimates: impl Iterator<Item = ContentionCostEstimate>) -> Option<ContentionCostEstimate> {
    let add = |(weights, sum), one: ContentionCostEstimate| {
        let weight = one.error.powi(2).recip();
        (weights + weight, sum + weight * one.mean)
    };
    let (weights, sum) = estimates.filter(|one| one.error > 0.0).fold((0.0, 0.0), add);
    (weights > 0.0).then(|| ContentionCostEstimate { mean: sum / weights, error: weights.sqrt().recip() })
}

/// Returns the check that batch gets more time under `deadline` than under dynamic refresh; `None` at loads without
/// this check.
fn deadline_check(sweep: &Sweep, samples: &Samples, load: u8) -> Option<Check> {
    let name = format!("batch's time at {load} %, deadline well over dynamic refresh");
    let gain = batch_gain(sweep, samples, load, "deadline", "dynamic_refresh");
    let check = Check::interval_at_least(name, gain, DEADLINE_OVER_DYNAMIC, Unit::Ratio);
    DEADLINE_LOADS.contains(&load).then_some(check)
}

/// Returns the checks on the sweep over Redis.
pub(super) fn redis_checks(sweep: &Sweep, samples: &Samples) -> Vec<Check> {
    let load = sweep.plan.moderate_load();
    let gains = POLICIES.windows(2).map(|pair| batch_gain(sweep, samples, load, pair[1].0, pair[0].0));
    let worst = POLICIES.iter().map(|(policy, _)| worst_p99_over_slo(sweep, samples, policy));
    let (least, most) = (worst_interval(gains, Interval::min), worst_interval(worst, Interval::max));
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

/// Returns the loads at which a check is still undecided and needs more rounds.
pub(super) fn undecided_loads(sweep: &Sweep, samples: &Samples) -> Vec<u8> {
    let is_undecided = |load: &&u8| {
        let moderate = || moderate_load_checks(sweep, samples).iter().any(Check::is_undecided);
        let deadline = deadline_check(sweep, samples, **load).is_some_and(|check| check.is_undecided());
        let slo = POLICIES.iter().any(|(policy, _)| is_slo_undecided(sweep, samples, **load, policy));
        deadline || slo || **load == sweep.plan.moderate_load() && moderate()
    };
    sweep.plan.loads.iter().filter(is_undecided).copied().collect()
}

fn is_slo_undecided(sweep: &Sweep, samples: &Samples, load: u8, policy: &'static str) -> bool {
    let check = |over: &Option<Interval>| Check::interval_at_most("", *over, 1.0, Unit::Ratio);
    keeps_slo_alone(sweep, samples, load)
        && p99_over_slo(sweep, samples, load, policy).iter().any(|over| check(over).is_undecided())
}

/// Returns the worst of several intervals by the rule `worse`; `None` if an interval is missing.
fn worst_interval(
    mut numbers: impl Iterator<Item = Option<Interval>>,
    worse: fn(Interval, Interval) -> Interval,
) -> Option<Interval> {
    let first = numbers.next()??;
    numbers.try_fold(first, |worst, next| Some(worse(worst, next?)))
}

/// Returns the ratio of batch's time under two policies at one load: the median over pairs of runs, for the batch
/// kernel that gained least.
fn batch_gain(
    sweep: &Sweep,
    samples: &Samples,
    load: u8,
    policy: &'static str,
    baseline: &'static str,
) -> Option<Interval> {
    let of_batch = |batch: &&'static str| {
        let cell = SampleKey::new(load, batch, policy);
        let over = samples.compare_by_round(cell, cell.with_setting(baseline), |one, other| {
            Some(one.batch_utilisation? / other.batch_utilisation?)
        });
        median_interval(over)
    };
    worst_interval(sweep.plan.batches.iter().map(of_batch), Interval::min)
}

/// Returns the largest ratio of the policy's p99 to the objective. Loads at which the service alone misses its
/// objective are excluded: no policy can improve them.
fn worst_p99_over_slo(sweep: &Sweep, samples: &Samples, policy: &'static str) -> Option<Interval> {
    let loads = sweep.plan.loads.iter().filter(|load| keeps_slo_alone(sweep, samples, **load));
    worst_interval(loads.flat_map(|load| p99_over_slo(sweep, samples, *load, policy)), Interval::max)
}

fn keeps_slo_alone(sweep: &Sweep, samples: &Samples, load: u8) -> bool {
    let alone_us = samples.median(SampleKey::new(load, "", ALONE), |run| Some(run.p99_us));
    alone_us.is_some_and(|alone_us| alone_us <= sweep.objective.slo_us)
}

/// Returns the ratio of the policy's p99 to the objective at one load, for each batch kernel.
fn p99_over_slo(sweep: &Sweep, samples: &Samples, load: u8, policy: &'static str) -> Vec<Option<Interval>> {
    let over = |batch: &&'static str| {
        let runs = samples.of_variant(SampleKey::new(load, batch, policy));
        median_interval(runs.map(|run| run.figures.p99_us / sweep.objective.slo_us))
    };
    sweep.plan.batches.iter().map(over).collect()
}

/// Returns the p99 beside batch divided by the p99 alone, over all pairs of runs at moderate load with all batch
/// kernels.
fn p99_over_alone(sweep: &Sweep, samples: &Samples) -> Option<Interval> {
    let of_batch = |batch: &&'static str| {
        let cell = SampleKey::new(sweep.plan.moderate_load(), batch, "borrow_idle");
        samples.compare_by_round(cell, cell.with_setting(ALONE), |one, alone| Some(one.p99_us / alone.p99_us))
    };
    median_interval(sweep.plan.batches.iter().flat_map(of_batch))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::super::objective::ServiceObjective;
    use super::super::plan::{Comparison, SweepPlan};
    use super::super::samples::Figures;
    use super::*;
    use sidelane_report::Verdict;
    use sidelane_stats::rounds::Limit;

    fn sweep_with_loads(loads: &[u8]) -> Sweep {
        Sweep {
            plan: SweepPlan {
                service: "search",
                loads: loads.to_vec(),
                batches: vec!["loop"],
                comparison: Comparison::Policies,
                limit: Limit { first: 6, rounds: 6, time: Duration::MAX },
                run: Duration::from_secs(1),
                warm_up: Duration::ZERO,
                learning: Duration::ZERO,
            },
            objective: ServiceObjective::from_p99_alone(Some(25_000.0), BTreeMap::from([(50, 10_000.0)]), 50),
            emulated_contention_cost: None,
        }
    }

    /// Adds a run beside the batch kernel `loop` with this p99 and this batch utilisation.
    fn add_run(samples: &mut Samples, round: u64, load: u8, setting: &'static str, p99_us: f64, batch: f64) {
        let batch_utilisation = Some(batch).filter(|_| setting != ALONE);
        let figures = Figures { p99_us, lc_utilisation: 0.5, batch_utilisation, ..Figures::default() };
        samples.add(round, SampleKey::new(load, "loop", setting), figures);
    }

    /// Returns six rounds at a load of 50 %; `policies` has the p99 and the batch utilisation of each policy. The
    /// service alone has a p99 of 10 ms, and its objective is 25 ms.
    fn samples(p99_and_batch_of_policies: [(f64, f64); 5]) -> Samples {
        let mut samples = Samples::default();
        for round in 0..6 {
            add_run(&mut samples, round, 50, ALONE, 10_000.0, 0.0);
            for ((name, _), (p99_us, batch)) in POLICIES.iter().zip(p99_and_batch_of_policies) {
                add_run(&mut samples, round, 50, name, p99_us, batch);
            }
        }
        samples
    }

    const GOOD: [(f64, f64); 5] =
        [(10_100.0, 0.48), (14_000.0, 0.6), (15_000.0, 0.7), (20_000.0, 0.9), (21_000.0, 1.0)];

    fn failing_search_checks(samples: &Samples) -> Vec<String> {
        search_checks(&sweep_with_loads(&[50]), samples)
            .into_iter()
            .filter(|check| !check.ok)
            .map(|check| check.name)
            .collect()
    }

    fn redis_checks_for(policies: [(f64, f64); 5]) -> Vec<Check> {
        redis_checks(&sweep_with_loads(&[50]), &samples(policies))
    }

    #[test]
    fn policies_within_their_bounds_pass() {
        assert_eq!(failing_search_checks(&samples(GOOD)), [""; 0]);
        assert!(redis_checks_for(GOOD).iter().all(|check| check.ok));
    }

    #[test]
    fn policy_that_lends_less_than_the_previous_one_fails() {
        let mut policies = GOOD;
        policies[2].1 = 0.58;
        assert_eq!(
            failing_search_checks(&samples(policies)),
            ["batch's time at 50 %, refresh budget over fixed budget"]
        );
        policies[2].1 = 0.56;
        assert!(!redis_checks_for(policies)[0].ok);
        policies[2].1 = 0.595;
        assert_eq!(failing_search_checks(&samples(policies)), [""; 0], "within the noise");
    }

    #[test]
    fn learned_contention_cost_is_compared_with_emulated() {
        let sweep = Sweep { emulated_contention_cost: Some(0.4), ..sweep_with_loads(&[50]) };
        let of = |mean, error| {
            let mut samples = samples(GOOD);
            let learned = samples.0.iter_mut().filter(|sample| sample.variant.setting == LEARNS);
            learned.for_each(|sample| sample.figures.contention_cost = Some(ContentionCostEstimate { mean, error }));
            let checks = search_checks(&sweep, &samples);
            checks.into_iter().find(|check| check.name.starts_with("contention cost")).unwrap().verdict
        };
        assert_eq!(of(0.42, 0.02), Verdict::Holds);
        assert_eq!(of(0.42, 0.1), Verdict::Undecided);
        assert_eq!(of(0.6, 0.02), Verdict::Missed);
    }

    #[test]
    fn mean_weights_estimates_by_their_error() {
        let estimates = [(0.5, 0.1), (0.4, 0.05)].map(|(mean, error)| ContentionCostEstimate { mean, error });
        let mean = weighted_mean(estimates.into_iter()).unwrap();
        assert!((mean.mean - 0.42).abs() < 1e-9 && (mean.error - 0.05 / 1.25_f64.sqrt()).abs() < 1e-9, "{mean:?}");
        assert_eq!(weighted_mean([].into_iter()), None);
    }

    #[test]
    fn policy_that_does_not_use_its_budget_fails() {
        let all_the_same = [(10_000.0, 0.48); 5];
        let wanted = [
            "batch's time at 50 %, dynamic refresh over borrow idle",
            "batch's time at 50 %, deadline well over dynamic refresh",
        ];
        assert_eq!(failing_search_checks(&samples(all_the_same)), wanted);
    }

    #[test]
    fn a_missed_objective_fails_unless_the_service_misses_it_alone() {
        let mut policies = GOOD;
        policies[3].0 = 25_100.0;
        assert_eq!(failing_search_checks(&samples(policies)), ["p99 over the SLO, dynamic refresh, worst load"]);
        assert!(!redis_checks_for(policies)[1].ok);
        let (sweep, mut overloaded) = (sweep_with_loads(&[50, 90]), samples(GOOD));
        add_run(&mut overloaded, 0, 90, ALONE, 80_000.0, 0.0);
        POLICIES.iter().for_each(|(name, _)| add_run(&mut overloaded, 0, 90, name, 99_000.0, 0.1));
        assert!(search_checks(&sweep, &overloaded).iter().all(|check| check.ok));
        assert!(undecided_loads(&sweep, &overloaded).is_empty());
    }

    #[test]
    fn a_slower_service_fails_and_so_does_a_missing_measurement() {
        let mut policies = GOOD;
        policies[0].0 = 10_600.0;
        assert_eq!(failing_search_checks(&samples(policies)), ["p99 at 50 % over alone, borrow idle, median of pairs"]);
        let mut empty = samples(GOOD);
        empty.0.retain(|sample| sample.variant.setting != "dynamic_refresh");
        assert_eq!(failing_search_checks(&empty).len(), 5);
    }

    #[test]
    fn loads_with_an_undecided_check_get_more_rounds() {
        let (sweep, mut noisy) = (sweep_with_loads(&[50, 80]), samples(GOOD));
        assert!(undecided_loads(&sweep_with_loads(&[50]), &noisy).is_empty());
        for round in 0..6 {
            let p99_us = if round == 3 { 60_000.0 } else { 20_000.0 };
            add_run(&mut noisy, round, 80, ALONE, 12_000.0, 0.0);
            POLICIES.iter().for_each(|(name, _)| add_run(&mut noisy, round, 80, name, p99_us, 0.1));
        }
        assert_eq!(undecided_loads(&sweep, &noisy), [80]);
        assert!(search_checks(&sweep, &noisy).iter().filter(|check| !check.ok).all(Check::is_undecided));
    }
}
