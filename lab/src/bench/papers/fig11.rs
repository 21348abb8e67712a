//! Elfen's Fig. 11: four policies on one core; the more aggressive the policy, the more utilisation.

use super::evidence::{Evidence, FigureSelector, RunSet, largest, p99_ms, smallest, utilisation};
use super::statement::PaperBound::{AtLeast, AtMost};
use super::statement::{READ, Statement};
use sidelane_report::Unit;

/// The paper's policies, as printed in its Fig. 9; least borrowing first.
const POLICIES: [&str; 4] = ["borrow-idle", "elfen-fixed", "elfen-refresh", "elfen-dynamic"];
const SLO_MS: f64 = 100.0;
/// Loads that count as moderate, around half load, which is 80 RPS (§5, Fig. 12).
const MODERATE: std::ops::RangeInclusive<f64> = 60.0..=100.0;
/// Smallest ratio of two policies' utilisations that still counts as equal.
const SAME: f64 = 0.98;

pub(super) const STATEMENTS: [Statement; 8] = [
    Statement {
        source: "Elfen §5, Fig. 11",
        says: "requests meet the 100 ms under every policy (where they do so alone)",
        wanted: AtMost(SLO_MS),
        unit: Unit::Ms,
        measured: worst_p99_ms,
    },
    Statement {
        source: "Elfen §5, Fig. 11",
        says: "more aggressive policies cost more p99, at moderate load (each ÷ the one before it, least)",
        wanted: AtLeast(SAME),
        unit: Unit::Ratio,
        measured: |seen| smallest_ratio_to_previous_policy(seen, p99_ms),
    },
    Statement {
        source: "Elfen §5, Fig. 11",
        says: "budgets improve utilisation over borrow idle, at every load that leaves a budget",
        wanted: AtLeast(1.0),
        unit: Unit::Ratio,
        measured: utilisation_over_borrow_idle,
    },
    Statement {
        source: "Elfen §5, Fig. 11",
        says: "fixed budget achieves over 1.4 at moderate load, beside each batch",
        wanted: AtLeast(1.4),
        unit: Unit::Ratio,
        measured: |seen| least_utilisation(seen, POLICIES[1]),
    },
    Statement {
        source: "Elfen §5, Fig. 11",
        says: "dynamic refresh achieves 1.5 at moderate load, beside each batch",
        wanted: AtLeast(1.5),
        unit: Unit::Ratio,
        measured: |seen| least_utilisation(seen, POLICIES[3]),
    },
    Statement {
        source: "Elfen §5, Fig. 11",
        says: "all budget policies achieve at least 1.2, beside each batch",
        wanted: AtLeast(1.2),
        unit: Unit::Ratio,
        measured: |seen| {
            smallest(POLICIES[1..].iter().map(|policy| least_utilisation(seen, policy)).collect::<Option<Vec<f64>>>()?)
        },
    },
    Statement {
        source: "Elfen §5, Fig. 11",
        says: "at high load utilisation drops (dynamic refresh at the highest load ÷ its best)",
        wanted: AtMost(1.0 - READ),
        unit: Unit::Ratio,
        measured: |seen| utilisation_kept_at_highest_load(seen),
    },
    Statement {
        source: "Elfen §5, Fig. 11",
        says: "dynamic refresh consistently has more utilisation than the other policies (least ratio)",
        wanted: AtLeast(SAME),
        unit: Unit::Ratio,
        measured: dynamic_refresh_utilisation_over_others,
    },
];

/// Returns the highest p99 of any policy, at loads at which the service alone keeps the objective.
fn worst_p99_ms(seen: &Evidence) -> Option<f64> {
    let highest = highest_load_within_slo(seen)?;
    let worst = |policy: &&str| largest(seen.runs_of_setting(policy).at_loads(0.0..=highest).numbers(p99_ms));
    largest(POLICIES.iter().map(worst).collect::<Option<Vec<f64>>>()?)
}

/// Returns the highest load at which the service alone keeps the objective.
fn highest_load_within_slo(seen: &Evidence) -> Option<f64> {
    Some(seen.runs_of_setting("alone").with_number_at_most(p99_ms, SLO_MS).points_by_load(p99_ms).last()?.0)
}

fn runs_at_moderate_load<'e>(seen: &'e Evidence, policy: &str) -> RunSet<'e> {
    seen.runs_of_setting(policy).at_loads(MODERATE)
}

/// Returns the smallest ratio of a number under one policy to the same number under the next less aggressive policy, at
/// moderate load.
fn smallest_ratio_to_previous_policy(seen: &Evidence, number: FigureSelector) -> Option<f64> {
    let step = |pair: &[&str]| smallest(seen.ratios(&runs_at_moderate_load(seen, pair[1]), pair[0], number)?);
    smallest(POLICIES.windows(2).map(step).collect::<Option<Vec<f64>>>()?)
}

fn utilisation_over_borrow_idle(seen: &Evidence) -> Option<f64> {
    let highest = highest_load_within_slo(seen)?;
    let over = |policy: &&str| {
        smallest(seen.ratios(&seen.runs_of_setting(policy).at_loads(0.0..=highest), POLICIES[0], utilisation)?)
    };
    smallest(POLICIES[1..].iter().map(over).collect::<Option<Vec<f64>>>()?)
}

/// Returns the utilisation of both lanes at moderate load, for the batch job for which it is lowest.
fn least_utilisation(seen: &Evidence, policy: &str) -> Option<f64> {
    let cells = runs_at_moderate_load(seen, policy);
    let of_batch = |batch: &&str| largest(cells.beside_batch(batch).numbers(utilisation));
    smallest(cells.batches().iter().map(of_batch).collect::<Option<Vec<f64>>>()?)
}

/// Returns the utilisation at the highest load, divided by the highest utilisation at any load, for the batch job for
/// which it drops least.
fn utilisation_kept_at_highest_load(seen: &Evidence) -> Option<f64> {
    let cells = seen.runs_of_setting(POLICIES[3]);
    let of_batch = |batch: &&str| {
        let cells = cells.beside_batch(batch);
        Some(cells.at_highest_load().only_number(utilisation)? / largest(cells.numbers(utilisation))?)
    };
    largest(cells.batches().iter().map(of_batch).collect::<Option<Vec<f64>>>()?)
}

fn dynamic_refresh_utilisation_over_others(seen: &Evidence) -> Option<f64> {
    let dynamic = seen.runs_of_setting(POLICIES[3]);
    let over = |other: &&str| smallest(seen.ratios(&dynamic, other, utilisation)?);
    smallest(POLICIES[..3].iter().map(over).collect::<Option<Vec<f64>>>()?)
}

#[cfg(test)]
mod tests {
    use sidelane_sim::Outcome;

    use super::super::evidence::tests::{evidence, run};
    use super::super::statement::failing_statements;
    use super::*;

    const GOOD_MS: [f64; 4] = [50.0, 60.0, 61.0, 70.0];
    const GOOD: [f64; 4] = [1.0, 1.41, 1.42, 1.6];

    /// Returns runs with this p99 and utilisation of the policies at moderate load; at high load batch borrows half as
    /// much.
    fn runs(p99_ms: [f64; 4], utilisations: [f64; 4]) -> Vec<Outcome> {
        let mut runs = Vec::new();
        for (rate, left, later) in [(20.0, 0.5, 0.5), (80.0, 1.0, 1.0), (120.0, 0.5, 1.3)] {
            runs.push(run("alone", "loop", rate, 50.0 * later, (0.5, 0.0)));
            for ((policy, p99_ms), both) in POLICIES.iter().zip(p99_ms).zip(utilisations) {
                let batch = 0.5 + (both - 1.0) * left;
                runs.push(run(policy, "loop", rate, p99_ms * later, (0.5, batch)));
            }
        }
        runs
    }

    #[test]
    fn figures_of_the_paper_pass_and_weaker_ones_fail() {
        let says = |p99_ms, both| failing_statements(&STATEMENTS, &evidence(runs(p99_ms, both)));
        let all = STATEMENTS.map(|statement| statement.says);
        assert_eq!(says(GOOD_MS, GOOD), [""; 0]);
        assert_eq!(says([50.0, 60.0, 61.0, 80.0], GOOD), [all[0]]);
        assert_eq!(says([50.0, 60.0, 55.0, 70.0], GOOD), [all[1]]);
        assert_eq!(says(GOOD_MS, [1.0, 1.3, 1.42, 1.6]), [all[3]]);
        assert_eq!(says(GOOD_MS, [1.0, 1.41, 1.42, 1.45]), [all[4]]);
        assert_eq!(says(GOOD_MS, [1.0, 1.41, 1.19, 1.6]), [all[5]]);
        assert_eq!(says(GOOD_MS, [1.0, 1.41, 1.42, 1.01]), [all[4], all[5], all[6], all[7]]);
        assert_eq!(says(GOOD_MS, [1.1, 1.41, 1.05, 1.6]), [all[2], all[5]]);
    }

    #[test]
    fn late_baseline_is_ignored_and_a_missing_policy_fails() {
        let mut late = runs(GOOD_MS, GOOD);
        late.iter_mut().filter(|run| run.number(super::super::evidence::RATE) == Some(120.0)).for_each(|run| {
            run.figures.p99_ns *= 3;
        });
        assert_eq!(failing_statements(&STATEMENTS, &evidence(late)), [""; 0]);
        let mut missing = runs(GOOD_MS, GOOD);
        missing.retain(|run| run.setting != POLICIES[2]);
        assert_eq!(failing_statements(&STATEMENTS, &evidence(missing)).len(), 5);
    }
}
