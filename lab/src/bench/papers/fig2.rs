//! Elfen's Fig. 2: latencies grow with load alone, faster than in proportion.

use super::evidence::{Evidence, largest, lc_utilisation, p99_ms};
use super::statement::PaperBound::{AtLeast, AtMost};
use super::statement::{ABOUT, READ, Statement};
use sidelane_report::Unit;

const SLO_MS: f64 = 100.0;

pub(super) const STATEMENTS: [Statement; 6] = [
    Statement {
        source: "Elfen §2, Fig. 2",
        says: "p99 hits a wall above 120 RPS: it is 100 ms there, and not sooner",
        wanted: AtLeast(120.0 * (1.0 - READ)),
        unit: Unit::PerS,
        measured: load_at_slo,
    },
    Statement {
        source: "Elfen §2, Fig. 2",
        says: "p99 hits a wall above 120 RPS: it is 100 ms there, and not later",
        wanted: AtMost(120.0 * (1.0 + READ)),
        unit: Unit::PerS,
        measured: load_at_slo,
    },
    Statement {
        source: "Elfen §2, Fig. 2",
        says: "p99 climbs slowly at first, then quickly: its last rise ÷ its first (a straight line has 1)",
        // The bound stands for the paper's "non-linear"; its text has no number.
        wanted: AtLeast(2.0),
        unit: Unit::Ratio,
        measured: slope_ratio,
    },
    Statement {
        source: "Elfen §2, Fig. 2",
        says: "the request lane is only 70 % busy at 120 RPS",
        wanted: AtMost(0.7 * (1.0 + READ)),
        unit: Unit::Ratio,
        measured: |seen| {
            seen.runs_of_setting("alone").with_parameter(super::evidence::RATE, 120.0).only_number(lc_utilisation)
        },
    },
    Statement {
        source: "Elfen §5, Fig. 10(a)",
        says: "one core sustains about 70 RPS at a p99 of 60 ms, and not less",
        wanted: AtLeast(70.0 * (1.0 - ABOUT)),
        unit: Unit::PerS,
        measured: |seen| seen.runs_of_setting("alone").highest_load_within(p99_ms, 60.0),
    },
    Statement {
        source: "Elfen §5, Fig. 10(a)",
        says: "one core sustains about 70 RPS at a p99 of 60 ms, and not more",
        wanted: AtMost(70.0 * (1.0 + ABOUT)),
        unit: Unit::PerS,
        measured: |seen| seen.runs_of_setting("alone").highest_load_within(p99_ms, 60.0),
    },
];

fn load_at_slo(seen: &Evidence) -> Option<f64> {
    seen.runs_of_setting("alone").highest_load_within(p99_ms, SLO_MS)
}

/// Returns how much faster p99 grows with the load at the highest loads than at the lowest: the ratio of the two
/// slopes.
fn slope_ratio(seen: &Evidence) -> Option<f64> {
    let line = seen.runs_of_setting("alone").points_by_load(p99_ms);
    let slopes: Vec<f64> = line.windows(2).map(|pair| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0)).collect();
    let first = slopes.first().filter(|_| slopes.len() > 1)?;
    largest(slopes.last().copied()).map(|last| last / first)
}

#[cfg(test)]
mod tests {
    use sidelane_sim::Outcome;

    use super::super::evidence::tests::{evidence, run};
    use super::super::statement::failing_statements;
    use super::*;

    fn runs(p99_ms: [f64; 5], lane_utilisation_at_120: f64) -> Vec<Outcome> {
        let loads = [20.0, 40.0, 80.0, 120.0, 140.0];
        let of = |(rate, p99_ms)| run("alone", "", rate, p99_ms, (lane_utilisation_at_120 * rate / 120.0, 0.0));
        loads.into_iter().zip(p99_ms).map(of).collect()
    }

    #[test]
    fn saturation_at_120_rps_passes_and_elsewhere_fails() {
        let says = |p99_ms, lane| failing_statements(&STATEMENTS, &evidence(runs(p99_ms, lane)));
        assert_eq!(says([30.0, 38.0, 65.0, 99.0, 160.0], 0.7), [""; 0]);
        assert_eq!(says([30.0, 38.0, 65.0, 190.0, 400.0], 0.7), [STATEMENTS[0].says]);
        assert_eq!(says([30.0, 38.0, 65.0, 80.0, 120.0], 0.7), [STATEMENTS[1].says]);
        assert_eq!(says([30.0, 43.0, 65.0, 99.0, 115.0], 0.7), [STATEMENTS[2].says]);
        assert_eq!(says([30.0, 38.0, 65.0, 99.0, 160.0], 0.8), [STATEMENTS[3].says]);
        assert_eq!(says([30.0, 38.0, 90.0, 99.0, 160.0], 0.7), [STATEMENTS[4].says]);
        assert_eq!(says([30.0, 38.0, 55.0, 99.0, 160.0], 0.7), [STATEMENTS[5].says]);
    }
}
