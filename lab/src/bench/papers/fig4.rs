//! Elfen's Fig. 4: any co-runner on the other lane delays requests.

use super::evidence::{Evidence, RATE, batch_utilisation, p99_ms, smallest};
use super::statement::PaperBound::{AtLeast, AtMost};
use super::statement::{ABOUT, READ, Statement};
use sidelane_report::Unit;

/// Scenario key of the co-runner's slowdown, which is swept, since the paper does not give it.
const SLOWDOWN: &str = "slowdown.lucene.co-runner";
/// Least and most slowdown of the paper's §6: "30 to 50 %".
const LEAST: f64 = 1.3;
const MOST: f64 = 1.5;

pub(super) const STATEMENTS: [Statement; 6] = [
    Statement {
        source: "Elfen §2, Fig. 4",
        says: "alone, p99 is 76 ms at 100 RPS, and not less",
        wanted: AtLeast(76.0 * (1.0 - READ)),
        unit: Unit::Ms,
        measured: p99_alone_ms,
    },
    Statement {
        source: "Elfen §2, Fig. 4",
        says: "alone, p99 is 76 ms at 100 RPS, and not more",
        wanted: AtMost(76.0 * (1.0 + READ)),
        unit: Unit::Ms,
        measured: p99_alone_ms,
    },
    Statement {
        source: "Elfen §2, Fig. 4",
        says: "beside a co-runner that p99 takes around 40 RPS: at the most that co-runners cost (50 %, §6)",
        wanted: AtMost(40.0 * (1.0 + ABOUT)),
        unit: Unit::PerS,
        measured: |seen| load_with_same_p99(seen, MOST),
    },
    Statement {
        source: "Elfen §2, Fig. 4",
        says: "beside a co-runner that p99 takes around 40 RPS: at the least that co-runners cost (30 %, §6)",
        wanted: AtLeast(40.0 * (1.0 - ABOUT)),
        unit: Unit::PerS,
        measured: |seen| load_with_same_p99(seen, LEAST),
    },
    Statement {
        source: "Elfen §2, Fig. 4",
        says: "the 100 ms are missed at 100 RPS beside even the cheapest co-runner",
        wanted: AtLeast(100.0),
        unit: Unit::Ms,
        measured: |seen| smallest(seen.runs_of_setting("unmanaged").with_parameter(RATE, 100.0).numbers(p99_ms)),
    },
    Statement {
        source: "Elfen §2, Fig. 4",
        says: "the co-runner keeps the batch lane busy at every load",
        wanted: AtLeast(0.99),
        unit: Unit::Ratio,
        measured: |seen| smallest(seen.runs_of_setting("unmanaged").numbers(batch_utilisation)),
    },
];

fn p99_alone_ms(seen: &Evidence) -> Option<f64> {
    smallest(seen.runs_of_setting("alone").with_parameter(RATE, 100.0).numbers(p99_ms))
}

/// Returns the load beside a co-runner at which p99 equals that of the service alone at 100 RPS.
fn load_with_same_p99(seen: &Evidence, slowdown: f64) -> Option<f64> {
    seen.runs_of_setting("unmanaged")
        .with_parameter(SLOWDOWN, slowdown)
        .highest_load_within(p99_ms, p99_alone_ms(seen)?)
}

#[cfg(test)]
mod tests {
    use sidelane_sim::Outcome;
    use sidelane_sim::scenario::PointValue;

    use super::super::evidence::tests::{evidence, run};
    use super::super::statement::failing_statements;
    use super::*;

    /// Returns runs beside co-runners of both slowdowns. At the loads `same_p99_loads` their p99 equals the p99 of the
    /// service alone at 100 RPS.
    fn runs(alone_ms: f64, same_p99_loads: [f64; 2], batch: f64) -> Vec<Outcome> {
        let mut runs = Vec::new();
        for (slowdown, same_at) in [LEAST, MOST].into_iter().zip(same_p99_loads) {
            let mut put = |setting, rate, p99_ms, batch| {
                let mut run = run(setting, "", rate, p99_ms, (0.5, batch));
                run.at.push((SLOWDOWN.to_owned(), PointValue::Number(slowdown)));
                runs.push(run);
            };
            put("alone", 100.0, alone_ms, 0.0);
            for rate in [20.0, 100.0] {
                put("unmanaged", rate, alone_ms * rate / same_at, batch);
            }
        }
        runs
    }

    #[test]
    fn loads_outside_the_co_runners_range_fail() {
        let says =
            |alone_ms, same_at, batch| failing_statements(&STATEMENTS, &evidence(runs(alone_ms, same_at, batch)));
        assert_eq!(says(76.0, [60.0, 40.0], 1.0), [""; 0]);
        assert_eq!(says(60.0, [55.0, 40.0], 1.0), [STATEMENTS[0].says]);
        assert_eq!(says(90.0, [60.0, 40.0], 1.0), [STATEMENTS[1].says]);
        assert_eq!(says(76.0, [60.0, 50.0], 1.0), [STATEMENTS[2].says]);
        assert_eq!(says(76.0, [30.0, 30.0], 1.0), [STATEMENTS[3].says]);
        assert_eq!(says(76.0, [90.0, 40.0], 1.0), [STATEMENTS[4].says]);
        assert_eq!(says(76.0, [60.0, 40.0], 0.9), [STATEMENTS[5].says]);
    }
}
