//! Elfen's Fig. 5: the request lane is idle often, and for short times.

use sidelane_sim::engine::watch::Watch;
use sidelane_sim::time::{MS, Nanos};
use sidelane_sim::{Engine, Model};

use super::evidence::{Evidence, lc_utilisation};
use super::statement::PaperBound::{AtLeast, AtMost};
use super::statement::{READ, Statement};
use sidelane_report::{Row, Unit};

pub(super) const STATEMENTS: [Statement; 4] = [
    Statement {
        source: "Elfen §2, Fig. 5",
        says: "53 % of idle time is in periods of 15 ms or less, and not less",
        wanted: AtLeast(53.0 * (1.0 - READ)),
        unit: Unit::Percent,
        measured: |seen| idle_time_within_percent(&seen.idle_ns, 15 * MS),
    },
    Statement {
        source: "Elfen §2, Fig. 5",
        says: "53 % of idle time is in periods of 15 ms or less, and not more",
        wanted: AtMost(53.0 * (1.0 + READ)),
        unit: Unit::Percent,
        measured: |seen| idle_time_within_percent(&seen.idle_ns, 15 * MS),
    },
    Statement {
        source: "Elfen §3.2, Fig. 5",
        says: "most idle periods are longer than 1 ms",
        wanted: AtLeast(50.0),
        unit: Unit::Percent,
        measured: |seen| idle_periods_over_percent(&seen.idle_ns, MS),
    },
    Statement {
        source: "Elfen §2, Fig. 5",
        says: "the request lane is 71 % busy at 120 RPS",
        wanted: AtMost(0.71 * (1.0 + READ)),
        unit: Unit::Ratio,
        measured: utilisation_alone,
    },
];

fn utilisation_alone(seen: &Evidence) -> Option<f64> {
    seen.runs_of_setting("alone").only_number(lc_utilisation)
}

/// Returns the share of idle time that is in periods no longer than `limit_ns`, in percent.
fn idle_time_within_percent(idle_ns: &[Nanos], limit_ns: Nanos) -> Option<f64> {
    let sum = |idle_ns: &mut dyn Iterator<Item = &Nanos>| idle_ns.sum::<Nanos>() as f64;
    let all = sum(&mut idle_ns.iter());
    (all > 0.0).then(|| 100.0 * sum(&mut idle_ns.iter().filter(|ns| **ns <= limit_ns)) / all)
}

/// Returns the share of idle periods that are longer than `limit_ns`, in percent.
fn idle_periods_over_percent(idle_ns: &[Nanos], limit_ns: Nanos) -> Option<f64> {
    let longer = idle_ns.iter().filter(|ns| **ns > limit_ns).count();
    (!idle_ns.is_empty()).then(|| 100.0 * longer as f64 / idle_ns.len() as f64)
}

/// Recorder of the idle periods of request lanes.
#[derive(Default)]
struct IdlePeriods(Vec<Nanos>);

impl Watch for IdlePeriods {
    fn idle_period_ended(&mut self, ns: Nanos) {
        self.0.push(ns);
    }
}

/// Simulates the model, and returns the length of each idle period of the request lane.
pub(super) fn simulate_idle_periods_ns(model: &Model) -> Vec<Nanos> {
    let mut engine = Engine::new(model.clone(), IdlePeriods::default());
    engine.run();
    std::mem::take(&mut engine.watch().0)
}

pub(super) fn row(idle_ns: &[Nanos]) -> Row {
    let mut row = Row::new("Fig. 5: idle periods");
    row.put("idle_periods_count", idle_ns.len() as f64);
    row.put("idle_time_within_15_ms_percent", idle_time_within_percent(idle_ns, 15 * MS));
    row.put("idle_time_at_15_ms_percent", idle_time_at_15_ms_percent(idle_ns));
    row.put("idle_periods_over_1_ms_percent", idle_periods_over_percent(idle_ns, MS));
    row
}

/// Returns the share of idle time in periods of 15 ms, in percent. The paper has 2.3 %, but does not give the width of
/// its bins; here a bin is 1 ms wide, as in the paper's Fig. 1.
fn idle_time_at_15_ms_percent(idle_ns: &[Nanos]) -> Option<f64> {
    Some(idle_time_within_percent(idle_ns, 31 * MS / 2)? - idle_time_within_percent(idle_ns, 29 * MS / 2)?)
}

#[cfg(test)]
mod tests {
    use super::super::evidence::tests::run;
    use super::super::statement::failing_statements;
    use super::*;

    fn failing_with_idle_periods(idle_ms: &[Nanos], utilisation: f64) -> Vec<&'static str> {
        let outcomes = vec![run("alone", "", 120.0, 100.0, (utilisation, 0.0))];
        let idle_ns = idle_ms.iter().map(|ms| ms * MS).collect();
        failing_statements(&STATEMENTS, &Evidence { outcomes, idle_ns })
    }

    #[test]
    fn idle_share_counts_time_and_not_periods() {
        assert_eq!(failing_with_idle_periods(&[13, 20, 20], 0.71), [STATEMENTS[0].says]);
        assert_eq!(failing_with_idle_periods(&[15, 13, 25], 0.71), [""; 0]);
        assert_eq!(failing_with_idle_periods(&[15, 13, 16], 0.71), [STATEMENTS[1].says]);
        assert_eq!(failing_with_idle_periods(&[15, 8, 1, 1, 1, 1, 1, 25], 0.71), [STATEMENTS[2].says]);
        assert_eq!(failing_with_idle_periods(&[15, 13, 25], 0.8), [STATEMENTS[3].says]);
    }

    #[test]
    fn a_bin_is_a_millisecond_wide() {
        assert_eq!(idle_time_at_15_ms_percent(&[14 * MS, 15 * MS, 16 * MS, 55 * MS]), Some(15.0));
        assert_eq!(idle_time_at_15_ms_percent(&[]), None);
    }
}
