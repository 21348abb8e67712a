//! All policies with one objective; each policy may use the budget that the objective leaves. No paper has this figure:
//! the statements are Sidelane's own, about its policy `deadline`.

use super::evidence::{Evidence, largest, p99_ms, smallest, utilisation};
use super::statement::PaperBound::{AtLeast, AtMost};
use super::statement::Statement;
use sidelane_report::Unit;

const SLO_MS: f64 = 100.0;
const DEADLINE: &str = "deadline";
const LEARNED: &str = "deadline, learned";
/// Elfen's policies, in Sidelane's version and as printed.
const ELFEN: [&str; 7] = [
    "borrow-idle",
    "fixed-budget",
    "refresh-budget",
    "dynamic-refresh",
    "elfen-fixed",
    "elfen-refresh",
    "elfen-dynamic",
];
/// Tolerated difference in utilisation between two policies that behave equally; a utilisation of 2 means that both
/// lanes are always busy.
const SAME: f64 = 0.01;

pub(super) const STATEMENTS: [Statement; 5] = [
    Statement {
        source: "Sidelane, policies",
        says: "requests meet the 100 ms under every policy, with what it may spend tuned to that",
        wanted: AtMost(SLO_MS),
        unit: Unit::Ms,
        measured: |seen| {
            largest(
                ELFEN
                    .iter()
                    .chain(&[DEADLINE])
                    .filter_map(|policy| largest(seen.runs_of_setting(policy).numbers(p99_ms))),
            )
        },
    },
    Statement {
        source: "Sidelane, policies",
        says: "utilisation of deadline less that of Elfen's, ours or as printed, at the same load, least",
        wanted: AtLeast(-SAME),
        unit: Unit::Ratio,
        measured: least_gain_over_elfen,
    },
    Statement {
        source: "Sidelane, policies",
        says: "utilisation of deadline ÷ that of an oracle that knows all demands, least",
        wanted: AtLeast(0.9),
        unit: Unit::Ratio,
        measured: |seen| smallest(seen.ratios(&seen.runs_of_setting(DEADLINE), "oracle", utilisation)?),
    },
    Statement {
        source: "Sidelane, policies",
        says: "requests meet the 100 ms under deadline that learns its age from them",
        wanted: AtMost(SLO_MS),
        unit: Unit::Ms,
        measured: |seen| largest(seen.runs_of_setting(LEARNED).numbers(p99_ms)),
    },
    Statement {
        source: "Sidelane, policies",
        says: "utilisation of deadline that learns its age ÷ that of dynamic refresh that learns its budget, least",
        wanted: AtLeast(1.0),
        unit: Unit::Ratio,
        measured: |seen| {
            smallest(seen.ratios(&seen.runs_of_setting(LEARNED), "dynamic-refresh, learned", utilisation)?)
        },
    },
];

fn least_gain_over_elfen(seen: &Evidence) -> Option<f64> {
    let over = |other: &&str| smallest(seen.differences(&seen.runs_of_setting(DEADLINE), other, utilisation)?);
    smallest(ELFEN.iter().map(over).collect::<Option<Vec<f64>>>()?)
}

#[cfg(test)]
mod tests {
    use sidelane_sim::Outcome;

    use super::super::evidence::tests::{evidence, run};
    use super::super::statement::failing_statements;
    use super::*;

    /// Returns runs in which all tuned policies have this p99, with the utilisation under Elfen's policies, under
    /// `deadline` and under the oracle.
    fn runs(p99_ms: f64, elfen: f64, deadline: f64, oracle: f64) -> Vec<Outcome> {
        let of = |setting: &str, p99_ms, both: f64| run(setting, "", 50.0, p99_ms, (0.3, both - 0.3));
        let mut runs: Vec<Outcome> = ELFEN.iter().map(|policy| of(policy, p99_ms, elfen)).collect();
        runs.extend([of(DEADLINE, p99_ms, deadline), of("oracle", p99_ms, oracle)]);
        runs.extend([of(LEARNED, p99_ms, deadline), of("dynamic-refresh, learned", p99_ms, 1.2)]);
        runs
    }

    #[test]
    fn deadline_without_gain_over_elfen_fails() {
        let says = |runs| failing_statements(&STATEMENTS, &evidence(runs));
        let all = STATEMENTS.map(|statement| statement.says);
        assert_eq!(says(runs(99.9, 1.4, 1.42, 1.43)), [""; 0]);
        assert_eq!(says(runs(100.1, 1.4, 1.42, 1.43)), [all[0], all[3]]);
        assert_eq!(says(runs(99.9, 1.44, 1.42, 1.43)), [all[1]]);
        assert_eq!(says(runs(99.9, 1.4, 1.42, 1.6)), [all[2]]);
        assert_eq!(says(runs(99.9, 1.1, 1.15, 1.2)), [all[4]]);
    }
}
