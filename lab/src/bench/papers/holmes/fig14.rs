//! Holmes' Fig. 14: latency at interference thresholds (E) from 40 to 80, compared with the latency of the service
//! alone.

use sidelane_report::Unit;
use sidelane_sim::Outcome;
use sidelane_sim::machine::figures::{MachineFigures, ServiceFigures};

use super::evidence::{HolmesEvidence, ServiceFigureSelector, mean_ns, p99_ns};
use crate::bench::papers::evidence::{largest, smallest};
use crate::bench::papers::statement::PaperBound::{AtLeast, AtMost};
use crate::bench::papers::statement::{READ, Statement};

/// Scenario key of the interference threshold (E in Holmes' paper).
const THRESHOLD: &str = "setting.1.interference_threshold";
const THRESHOLDS: [f64; 5] = [40.0, 50.0, 60.0, 70.0, 80.0];
/// Tolerated difference of two runs that differ only in the placement of containers.
const SAME: f64 = 0.01;

const MEASURES: [ServiceFigureSelector; 4] =
    [mean_ns, |service| service.whole.p50_ns as f64, |service| service.whole.p90_ns as f64, p99_ns];

pub(super) const STATEMENTS: [Statement<HolmesEvidence>; 3] = [
    Statement {
        source: "Holmes §6.4, Fig. 14",
        says: "with E = 40 latency is almost that of alone (mean, p50, p90, p99; most)",
        wanted: AtMost(1.0 + READ),
        unit: Unit::OverAlone,
        measured: |seen| {
            largest(
                MEASURES
                    .iter()
                    .map(|number| largest(ratios_at_threshold(seen, 40.0, *number)?))
                    .collect::<Option<Vec<f64>>>()?,
            )
        },
    },
    Statement {
        source: "Holmes §6.4, Fig. 14",
        says: "a higher E never yields a lower latency (mean at one E ÷ at the E before, least)",
        wanted: AtLeast(1.0 - SAME),
        unit: Unit::Ratio,
        measured: |seen| {
            let step = |pair: &[f64]| {
                smallest(ratios_of_pairs(
                    &ratios_at_threshold(seen, pair[1], mean_ns)?,
                    &ratios_at_threshold(seen, pair[0], mean_ns)?,
                ))
            };
            smallest(THRESHOLDS.windows(2).map(step).collect::<Option<Vec<f64>>>()?)
        },
    },
    Statement {
        source: "Holmes §6.4, Fig. 14",
        says: "and E = 80 a higher one (mean ÷ at E = 40, least)",
        wanted: AtLeast(1.0 + READ),
        unit: Unit::Ratio,
        measured: |seen| {
            smallest(ratios_of_pairs(
                &ratios_at_threshold(seen, 80.0, mean_ns)?,
                &ratios_at_threshold(seen, 40.0, mean_ns)?,
            ))
        },
    },
];

/// Returns a number of each store at this threshold, divided by the same number of the store alone; `None` without
/// runs.
fn ratios_at_threshold(seen: &HolmesEvidence, threshold: f64, number: ServiceFigureSelector) -> Option<Vec<f64>> {
    let of = |setting: &'static str| {
        let own =
            move |run: &&Outcome<MachineFigures>| run.setting == setting && run.number(THRESHOLD) == Some(threshold);
        seen.outcomes.iter().filter(own).map(|run| run.figures.services.first())
    };
    let ratio = |(own, alone): (Option<&ServiceFigures>, Option<&ServiceFigures>)| Some(number(own?) / number(alone?));
    let ratios: Vec<f64> = of("holmes").zip(of("alone")).map(ratio).collect::<Option<_>>()?;
    (!ratios.is_empty()).then_some(ratios)
}

fn ratios_of_pairs(own: &[f64], other: &[f64]) -> Vec<f64> {
    own.iter().zip(other).map(|(own, other)| own / other).collect()
}

#[cfg(test)]
mod tests {
    use sidelane_sim::scenario::PointValue;

    use super::super::evidence::tests::run;
    use super::*;
    use crate::bench::papers::statement::failing_statements;

    /// Returns the statements that fail for runs with this ratio of latency to the latency alone, one ratio per
    /// threshold.
    fn failing_with_ratios(latency_ratios: [f64; 5]) -> Vec<&'static str> {
        let mut outcomes = Vec::new();
        for (threshold, times) in THRESHOLDS.into_iter().zip(latency_ratios) {
            for (setting, times) in [("alone", 1.0), ("holmes", times)] {
                let mut run = run("redis-a", setting, times);
                run.at.push((THRESHOLD.to_owned(), PointValue::Number(threshold)));
                outcomes.push(run);
            }
        }
        failing_statements(&STATEMENTS, &HolmesEvidence { outcomes })
    }

    #[test]
    fn figures_of_the_paper_pass_and_weaker_ones_fail() {
        let all = STATEMENTS.map(|statement| statement.says);
        assert_eq!(failing_with_ratios([1.0, 1.1, 1.1, 1.3, 1.4]), [""; 0]);
        assert_eq!(failing_with_ratios([1.1, 1.1, 1.1, 1.3, 1.4]), [all[0]]);
        assert_eq!(failing_with_ratios([1.0, 1.2, 1.1, 1.3, 1.4]), [all[1]]);
        assert_eq!(failing_with_ratios([1.0, 1.0, 1.0, 1.0, 1.0]), [all[2]]);
    }
}
