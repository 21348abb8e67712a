//! Hurry-up's Fig. 9: tail latency and energy by threshold and load, and the threshold that is learnt.

use sidelane_report::Unit;

use super::evidence::{HurryEvidence, MachineFigureSelector, maximum_of_all, p90_ms, watts};
use crate::bench::papers::evidence::{largest, smallest};
use crate::bench::papers::statement::PaperBound::{AtLeast, AtMost};
use crate::bench::papers::statement::{READ, Statement};

/// Loads at which, according to the paper's text, a higher threshold makes requests slower and takes less energy.
const LOADS: [f64; 4] = [10.0, 15.0, 20.0, 30.0];
/// Cost of moving a thread on the paper's machine, in microseconds.
const MOVE_US: Option<f64> = Some(50.0);
/// Tolerated excess of the p90 with the learnt threshold over the p90 with the best swept threshold, as a fraction.
const LEARNT: f64 = 0.05;

pub(super) const STATEMENTS: [Statement<HurryEvidence>; 4] = [
    Statement {
        source: "Hurry-up §IV-B, Fig. 9",
        says: "at 10 to 30 requests/s a higher threshold entails a higher latency (p90 ÷ that at the next lower one, least)",
        wanted: AtLeast(1.0),
        unit: Unit::Ratio,
        measured: |seen| smallest(ratios_to_next_lower_threshold(seen, p90_ms)?),
    },
    Statement {
        source: "Hurry-up §IV-B, Fig. 9",
        says: "and a lower energy (÷ that at the next lower one, most)",
        wanted: AtMost(1.0),
        unit: Unit::Ratio,
        measured: |seen| largest(ratios_to_next_lower_threshold(seen, watts)?),
    },
    Statement {
        source: "Hurry-up §IV-B, Fig. 9",
        says: "at 40 requests/s the tail increases due to queuing, whatever the threshold (÷ at 30, least)",
        wanted: AtLeast(1.0 + READ),
        unit: Unit::Ratio,
        measured: |seen| smallest(queueing_ratios(seen)?),
    },
    Statement {
        source: "Hurry-up §IV-B, Fig. 9",
        says: "ours: the learnt threshold is as good as the best of a sweep (p90 ÷ its p90, most of all loads and costs)",
        wanted: AtMost(1.0 + LEARNT),
        unit: Unit::Ratio,
        measured: |seen| {
            maximum_of_all(seen.move_costs_us().into_iter().map(|move_us| largest(p90_over_best_given(seen, move_us)?)))
        },
    },
];

/// Returns a number at each threshold divided by the same number at the next lower threshold, for each load.
fn ratios_to_next_lower_threshold(seen: &HurryEvidence, number: MachineFigureSelector) -> Option<Vec<f64>> {
    let lines: Vec<_> =
        seen.settings("printed").iter().map(|name| seen.points_by_load(name, MOVE_US, number)).collect();
    let at = |line: &[(f64, f64)], load: f64| line.iter().find(|(at, _)| *at == load).map(|(_, number)| *number);
    let pairs = lines.windows(2).flat_map(|pair| LOADS.map(|load| Some(at(&pair[1], load)? / at(&pair[0], load)?)));
    pairs.collect::<Option<Vec<f64>>>().filter(|steps| !steps.is_empty())
}

/// Returns the p90 at 40 requests/s divided by the p90 at 30 requests/s, for each threshold.
fn queueing_ratios(seen: &HurryEvidence) -> Option<Vec<f64>> {
    let ratio = |name: &&str| {
        let line = seen.points_by_load(name, MOVE_US, p90_ms);
        let at = |load: f64| line.iter().find(|(at, _)| *at == load).map(|(_, p90)| *p90);
        Some(at(40.0)? / at(30.0)?)
    };
    seen.settings("printed").iter().map(ratio).collect()
}

/// Returns the p90 with the learnt threshold divided by the lowest p90 with a given threshold, for each load.
fn p90_over_best_given(seen: &HurryEvidence, move_cost_us: Option<f64>) -> Option<Vec<f64>> {
    let given: Vec<_> =
        seen.settings("given").iter().map(|name| seen.points_by_load(name, move_cost_us, p90_ms)).collect();
    let best = |load: f64| smallest(given.iter().flatten().filter(|(at, _)| *at == load).map(|(_, p90)| *p90));
    let learnt = seen.points_by_load("learnt", move_cost_us, p90_ms);
    learnt.into_iter().map(|(load, p90)| Some(p90 / best(load)?)).collect()
}

#[cfg(test)]
mod tests {
    use sidelane_sim::Outcome;
    use sidelane_sim::machine::figures::MachineFigures;

    use super::super::evidence::tests::run;
    use super::*;
    use crate::bench::papers::statement::failing_statements;

    /// Returns runs in which each step of the threshold multiplies the p90 by `p90_step` and the power by `power_step`.
    /// At a load of 40 requests/s the p90 is also multiplied by `queueing_factor`.
    fn runs(p90_step: f64, power_step: f64, queueing_factor: f64, learnt_factor: f64) -> Vec<Outcome<MachineFigures>> {
        let mut outcomes = Vec::new();
        for (load, move_us) in
            [5.0, 10.0, 15.0, 20.0, 30.0, 40.0].into_iter().flat_map(|load| [(load, 50.0), (load, 5e3)])
        {
            let at = (load, Some(move_us));
            let base = if load == 40.0 { 200.0 * queueing_factor } else { 200.0 };
            for (place, name) in ["25 ms", "50 ms", "100 ms"].into_iter().enumerate() {
                let p90 = base * p90_step.powi(place as i32);
                outcomes.push(run(&format!("printed {name}"), at, p90, 2.0 * power_step.powi(place as i32)));
                outcomes.push(run(&format!("given {name}"), at, p90, 2.0));
            }
            outcomes.push(run("learnt", at, learnt_factor * base, 2.0));
        }
        outcomes
    }

    #[test]
    fn figures_of_the_paper_pass_and_weaker_ones_fail() {
        let all = STATEMENTS.map(|statement| statement.says);
        let says = |step, less, queuing, learnt| {
            failing_statements(&STATEMENTS, &HurryEvidence { outcomes: runs(step, less, queuing, learnt) })
        };
        assert_eq!(says(1.1, 0.9, 2.0, 1.04), [""; 0]);
        assert_eq!(says(0.99, 0.9, 2.0, 0.99), [all[0]]);
        assert_eq!(says(1.1, 1.01, 2.0, 1.0), [all[1]]);
        assert_eq!(says(1.1, 0.9, 1.0, 1.0), [all[2]]);
        assert_eq!(says(1.1, 0.9, 2.0, 1.06), [all[3]]);
    }
}
