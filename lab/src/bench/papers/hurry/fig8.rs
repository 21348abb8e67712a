//! Hurry-up's Figs. 6, 7 and 8: tail latency and energy against the static mapping, by load.

use sidelane_report::Unit;

use super::evidence::{HurryEvidence, mean_gain_percent, p90_ms, slowest_request_ms, watts};
use crate::bench::papers::evidence::{largest, smallest};
use crate::bench::papers::statement::PaperBound::{AtLeast, AtMost};
use crate::bench::papers::statement::{ABOUT, READ, Statement};

/// Settings in the scenario: the paper's rule as printed, Sidelane's rules, and the static mapping as their baseline.
const PRINTED: &str = "paper";
const OURS: &str = "hurry-up";
const OURS_AT_50: &str = "hurry-up, 50 ms";
const STATIC: &str = "static";
/// Load of the paper's Fig. 6.
const FIG6: f64 = 30.0;
/// Tolerated difference of the mean increase in energy from the paper's, whose points are read off a picture.
const ENERGY_TOLERANCE: f64 = 3.0;

pub(super) const STATEMENTS: [Statement<HurryEvidence>; 12] = [
    Statement {
        source: "Hurry-up §IV-B, Fig. 6",
        says: "the worst case falls from 1200 to 800 ms (÷ static)",
        wanted: AtMost(800.0 / 1200.0 * (1.0 + READ)),
        unit: Unit::Ratio,
        measured: |seen| {
            Some(
                seen.number_at(PRINTED, FIG6, slowest_request_ms)?
                    / seen.number_at(STATIC, FIG6, slowest_request_ms)?,
            )
        },
    },
    Statement {
        source: "Hurry-up §IV-B, Fig. 6",
        says: "to 800 ms",
        wanted: AtMost(800e3 * (1.0 + READ)),
        unit: Unit::Us,
        measured: |seen| Some(1e3 * seen.number_at(PRINTED, FIG6, slowest_request_ms)?),
    },
    Statement {
        source: "Hurry-up §IV-B, Fig. 7",
        says: "it takes 4.6 % more energy (mean of the loads, at least)",
        wanted: AtLeast(4.6 - ENERGY_TOLERANCE),
        unit: Unit::Percent,
        measured: |seen| Some(-mean_gain_percent(&seen.ratios(PRINTED, STATIC, watts)?)),
    },
    Statement {
        source: "Hurry-up §IV-B, Fig. 7",
        says: "and no more than that",
        wanted: AtMost(4.6 + ENERGY_TOLERANCE),
        unit: Unit::Percent,
        measured: |seen| Some(-mean_gain_percent(&seen.ratios(PRINTED, STATIC, watts)?)),
    },
    Statement {
        source: "Hurry-up §IV-B, Fig. 7",
        says: "its tail is higher at 5 than at 10 requests/s (÷)",
        wanted: AtLeast(1.0),
        unit: Unit::Ratio,
        measured: |seen| Some(seen.number_at(PRINTED, 5.0, p90_ms)? / seen.number_at(PRINTED, 10.0, p90_ms)?),
    },
    Statement {
        source: "Hurry-up §IV-B, Fig. 8",
        says: "it lowers the tail at all loads (p90 ÷ static, most)",
        wanted: AtMost(1.0),
        unit: Unit::Ratio,
        measured: |seen| largest(seen.ratios(PRINTED, STATIC, p90_ms)?),
    },
    Statement {
        source: "Hurry-up §IV-B, Fig. 8",
        says: "by 39.5 % on average",
        wanted: AtLeast(39.5 * (1.0 - READ)),
        unit: Unit::Percent,
        measured: |seen| Some(mean_gain_percent(&seen.ratios(PRINTED, STATIC, p90_ms)?)),
    },
    Statement {
        source: "Hurry-up §IV-B, Fig. 8",
        says: "by 86 % at 20 requests/s",
        wanted: AtLeast(86.0 * (1.0 - READ)),
        unit: Unit::Percent,
        measured: |seen| p90_gain_percent(seen, 20.0),
    },
    Statement {
        source: "Hurry-up §IV-B, Fig. 8",
        says: "at 40 only by 10 %",
        wanted: AtMost(10.0 * (1.0 + ABOUT)),
        unit: Unit::Percent,
        measured: |seen| p90_gain_percent(seen, 40.0),
    },
    Statement {
        source: "Hurry-up §IV-B, Fig. 8",
        says: "ours lowers it by as much on average as theirs by their own account, 39.5 %",
        wanted: AtLeast(39.5),
        unit: Unit::Percent,
        measured: |seen| Some(mean_gain_percent(&seen.ratios(OURS, STATIC, p90_ms)?)),
    },
    Statement {
        source: "Hurry-up §IV-B, Fig. 8",
        says: "ours does so with the paper's threshold, too",
        wanted: AtLeast(39.5),
        unit: Unit::Percent,
        measured: |seen| Some(mean_gain_percent(&seen.ratios(OURS_AT_50, STATIC, p90_ms)?)),
    },
    Statement {
        source: "Hurry-up §IV-B, Fig. 8",
        says: "ours is later than the rule as printed at no load (gain in p90 against it, least)",
        wanted: AtLeast(0.0),
        unit: Unit::Percent,
        measured: |seen| smallest(seen.ratios(OURS, PRINTED, p90_ms)?.into_iter().map(|ratio| 100.0 * (1.0 - ratio))),
    },
];

fn p90_gain_percent(seen: &HurryEvidence, load: f64) -> Option<f64> {
    Some(100.0 * (1.0 - seen.number_at(PRINTED, load, p90_ms)? / seen.number_at(STATIC, load, p90_ms)?))
}

#[cfg(test)]
mod tests {
    use super::super::evidence::tests::run;
    use super::*;
    use crate::bench::papers::statement::failing_statements;

    /// Returns the statements that fail for runs with these loads. Each load has the p90 in milliseconds of the static
    /// mapping, the printed rule and Sidelane's rule; `power_ratio` is the power of both rules divided by the static
    /// mapping's.
    fn failing_with_loads(loads: [(f64, [f64; 3]); 5], power_ratio: f64) -> Vec<&'static str> {
        let of_load = |(load, p90): (f64, [f64; 3])| {
            let runs = [
                (STATIC, p90[0], 1.0),
                (PRINTED, p90[1], power_ratio),
                (OURS, p90[2], power_ratio),
                (OURS_AT_50, p90[2], power_ratio),
            ];
            runs.map(|(setting, p90, watts)| run(setting, (load, None), p90, watts))
        };
        failing_statements(&STATEMENTS, &HurryEvidence { outcomes: loads.into_iter().flat_map(of_load).collect() })
    }

    const PAPERS: [(f64, [f64; 3]); 5] = [
        (5.0, [400.0, 260.0, 200.0]),
        (10.0, [400.0, 240.0, 200.0]),
        (20.0, [1000.0, 140.0, 140.0]),
        (30.0, [300.0, 200.0, 200.0]),
        (40.0, [900.0, 810.0, 600.0]),
    ];

    #[test]
    fn figures_of_the_paper_pass_and_weaker_ones_fail() {
        let all = STATEMENTS.map(|statement| statement.says);
        assert_eq!(failing_with_loads(PAPERS, 1.046), [""; 0]);
        assert_eq!(failing_with_loads(PAPERS, 1.01), [all[2]]);
        assert_eq!(failing_with_loads(PAPERS, 1.09), [all[3]]);
        let with = |at: usize, p90: [f64; 3]| {
            let mut loads = PAPERS;
            loads[at].1 = p90;
            failing_with_loads(loads, 1.046)
        };
        assert_eq!(with(0, [400.0, 220.0, 200.0]), [all[4]]);
        assert_eq!(with(2, [700.0, 140.0, 140.0]), [all[7]]);
        assert_eq!(with(3, [300.0, 245.0, 200.0]), [all[0], all[1]]);
        assert_eq!(with(4, [900.0, 910.0, 600.0]), [all[5]]);
        assert_eq!(with(4, [900.0, 700.0, 800.0]), [all[8], all[11]]);
        let weak = PAPERS.map(|(load, [static_ms, ..])| (load, [static_ms, 0.9 * static_ms, 0.8 * static_ms]));
        assert_eq!(failing_with_loads(weak, 1.046), [all[0], all[1], all[6], all[7], all[9], all[10]].to_vec());
    }
}
