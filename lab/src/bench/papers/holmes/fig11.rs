//! Holmes' Fig. 11: how many requests miss the objective, which is the 90th percentile of the service alone.

use sidelane_report::Unit;
use sidelane_sim::machine::figures::ServiceFigures;

use super::evidence::{HolmesEvidence, INSENSITIVE, median};
use crate::bench::papers::evidence::{largest, smallest};
use crate::bench::papers::statement::PaperBound::{AtLeast, AtMost};
use crate::bench::papers::statement::{ABOUT, Statement};

/// Share of requests of the service alone that miss the objective, by its definition.
const ALONE: f64 = 0.1;

pub(super) const STATEMENTS: [Statement<HolmesEvidence>; 4] = [
    Statement {
        source: "Holmes §6.2, Fig. 11",
        says: "in most cases as many requests miss the objective as alone (median of the workloads)",
        wanted: AtMost(ALONE * (1.0 + ABOUT)),
        unit: Unit::Ratio,
        measured: |seen| median(violation_shares(seen, "holmes")?),
    },
    Statement {
        source: "Holmes §6.2, Fig. 11",
        says: "under PerfIso significantly more, wherever its latency is higher at all (least ÷ alone)",
        wanted: AtLeast(1.0 + ABOUT),
        unit: Unit::OverAlone,
        measured: |seen| {
            let ratios = seen.ratios(("perfiso", "alone"), violations)?;
            smallest(ratios.into_iter().filter(|(workload, _)| *workload != INSENSITIVE).map(|(_, ratio)| ratio))
        },
    },
    Statement {
        source: "Holmes §6.2, Fig. 11",
        says: "under PerfIso usually above 25 % (median of the workloads)",
        wanted: AtLeast(0.25),
        unit: Unit::Ratio,
        measured: |seen| median(violation_shares(seen, "perfiso")?),
    },
    Statement {
        source: "Holmes §6.2, Fig. 11",
        says: "around 90 % in the worst case",
        wanted: AtLeast(0.9 * (1.0 - ABOUT)),
        unit: Unit::Ratio,
        measured: |seen| largest(violation_shares(seen, "perfiso")?),
    },
];

/// Returns the share of requests that miss the objective; NaN without an objective, since then nothing was measured.
fn violations(service: &ServiceFigures) -> f64 {
    service.violations.unwrap_or(f64::NAN)
}

fn violation_shares(seen: &HolmesEvidence, setting: &str) -> Option<Vec<f64>> {
    seen.runs_of_setting(setting).map(|(_, figures)| Some(violations(figures.services.first()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::evidence::tests::run;
    use super::*;
    use crate::bench::papers::statement::failing_statements;

    /// Returns the statements that fail for three workloads. Each number is the share of requests that miss the
    /// objective under Holmes or PerfIso, divided by that share alone.
    fn failing_with_violations(holmes: [f64; 3], perfiso: [f64; 3]) -> Vec<&'static str> {
        let mut outcomes = Vec::new();
        for (at, workload) in ["redis-a", "redis-b", "rocksdb-a"].into_iter().enumerate() {
            outcomes.push(run(workload, "alone", 1.0));
            outcomes.push(run(workload, "holmes", holmes[at]));
            outcomes.push(run(workload, "perfiso", perfiso[at]));
        }
        failing_statements(&STATEMENTS, &HolmesEvidence { outcomes })
    }

    #[test]
    fn figures_of_the_paper_pass_and_weaker_ones_fail() {
        let all = STATEMENTS.map(|statement| statement.says);
        assert_eq!(failing_with_violations([1.0, 5.0, 1.0], [3.0, 9.0, 2.6]), [""; 0]);
        assert_eq!(failing_with_violations([1.0, 5.0, 1.2], [3.0, 9.0, 2.6]), [all[0]]);
        assert_eq!(failing_with_violations([1.0, 1.0, 1.0], [3.0, 9.0, 1.05]), [all[1]]);
        assert_eq!(failing_with_violations([1.0, 1.0, 1.0], [2.0, 9.0, 1.5]), [all[2]]);
        assert_eq!(failing_with_violations([1.0, 1.0, 1.0], [3.0, 7.0, 2.6]), [all[3]]);
    }
}
