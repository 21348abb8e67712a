//! The comparison of measured with simulated values.

use sidelane_report::{Check, Interval, Row, Unit};
use sidelane_stats::interval::median_interval;

/// Largest accepted ratio between a measured and a simulated latency. Single runs of the *same* setting differ by a
/// factor of up to 1.23 on a virtual machine (pairs of `sidelane-lab demo`), so a model cannot be more exact.
const LATENCY_FACTOR: f64 = 1.25;
/// Largest accepted difference in utilisation, as a share of a lane's time. The model lacks the kernel's own threads,
/// wakeups and the agent.
const UTILISATION: f64 = 0.1;

/// Latencies and utilisations of a run that are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::bench) struct ComparedFigures {
    pub(in crate::bench) p50_us: f64,
    pub(in crate::bench) p99_us: f64,
    pub(super) lc_utilisation: f64,
    /// CPU time of batch divided by the run's length; `None` if batch did not run.
    pub(in crate::bench) batch_utilisation: Option<f64>,
}

/// One setting at one load, measured and simulated.
#[derive(Clone, Debug)]
pub(super) struct SettingComparison {
    /// Name of the comparison, such as `60 %, borrow-idle`.
    pub(super) name: String,
    pub(super) load_percent: f64,
    /// Measured figures, one per round.
    pub(super) measured: Vec<ComparedFigures>,
    pub(super) simulated: ComparedFigures,
    /// Share of the batch lane's time that the client used, so that batch could not; the model has no client.
    pub(super) client: f64,
}

impl SettingComparison {
    pub(super) fn checks(&self) -> Vec<Check> {
        let simulated = &self.simulated;
        let latency = |what, measured: fn(&ComparedFigures) -> f64, simulated| {
            let name = format!("{what} at {}: measured over simulated, whichever is more", self.name);
            let ratio =
                self.median(|seen| Some(measured(seen))).map(|one| one.distance_from(simulated, ratio_of_larger));
            Check::interval_at_most(name, ratio, LATENCY_FACTOR, Unit::Ratio)
        };
        let lane = |what, measured: fn(&ComparedFigures) -> Option<f64>, simulated, limit| {
            let name = format!("{what} lane at {}: measured less simulated, of its time", self.name);
            let apart = |one: f64, other: f64| (one - other).abs();
            let difference = self.median(measured).map(|one| one.distance_from(simulated, apart));
            Check::interval_at_most(name, difference, limit, Unit::Ratio)
        };
        let mut checks = vec![
            latency("p50", |seen| seen.p50_us, simulated.p50_us),
            latency("p99", |seen| seen.p99_us, simulated.p99_us),
            lane("request", |seen| Some(seen.lc_utilisation), simulated.lc_utilisation, UTILISATION),
        ];
        // Checks the batch lane's utilisation only if batch runs in the model.
        let limit = round_bound(UTILISATION + self.client);
        checks.extend(
            simulated.batch_utilisation.map(|batch| lane("batch", |seen| seen.batch_utilisation, batch, limit)),
        );
        checks
    }

    fn median(&self, figure: impl Fn(&ComparedFigures) -> Option<f64>) -> Option<Interval> {
        median_interval(self.measured.iter().filter_map(figure).filter(|figure| figure.is_finite()))
    }

    /// Returns the measured and the simulated row.
    pub(super) fn rows(&self) -> [Row; 2] {
        [("measured", &self.medians()), ("simulated", &self.simulated)].map(|(from, seen)| {
            let mut row = Row::new(format!("{}, {from}", self.name));
            row.put("load_percent", self.load_percent).put("p50_us", seen.p50_us).put("p99_us", seen.p99_us);
            row.put("service_utilisation_ratio", seen.lc_utilisation);
            row.put("batch_utilisation_ratio", seen.batch_utilisation);
            row
        })
    }

    fn medians(&self) -> ComparedFigures {
        let of = |figure: fn(&ComparedFigures) -> Option<f64>| self.median(figure).map(|median| median.measured);
        ComparedFigures {
            p50_us: of(|seen| Some(seen.p50_us)).unwrap_or(f64::NAN),
            p99_us: of(|seen| Some(seen.p99_us)).unwrap_or(f64::NAN),
            lc_utilisation: of(|seen| Some(seen.lc_utilisation)).unwrap_or(f64::NAN),
            batch_utilisation: of(|seen| seen.batch_utilisation),
        }
    }
}

/// Returns the larger number divided by the smaller one.
pub(in crate::bench) fn ratio_of_larger(one: f64, other: f64) -> f64 {
    (one / other).max(other / one)
}

/// Rounds a bound to few digits.
fn round_bound(limit: f64) -> f64 {
    (limit * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: ComparedFigures =
        ComparedFigures { p50_us: 400.0, p99_us: 4000.0, lc_utilisation: 0.5, batch_utilisation: Some(0.5) };

    fn failing_checks(measured: ComparedFigures, simulated: ComparedFigures, client_share: f64) -> Vec<String> {
        let name = "50 %, borrow-idle".to_owned();
        let compared = SettingComparison {
            name,
            load_percent: 50.0,
            measured: vec![measured; 6],
            simulated,
            client: client_share,
        };
        let checks = compared.checks().into_iter().filter(|check| !check.ok);
        checks.map(|check| check.name.split(" at").next().unwrap().to_owned()).collect()
    }

    #[test]
    fn measured_figures_may_be_above_or_below_simulated() {
        assert_eq!(failing_checks(SEEN, SEEN, 0.0), [""; 0]);
        let other = ComparedFigures { p50_us: 310.0, p99_us: 5100.0, ..SEEN };
        assert_eq!(failing_checks(other, SEEN, 0.0), ["p50", "p99"]);
        assert_eq!(failing_checks(SEEN, other, 0.0), ["p50", "p99"]);
        let busier = ComparedFigures { lc_utilisation: 0.65, ..SEEN };
        assert_eq!(failing_checks(busier, SEEN, 0.0), ["request lane"]);
        assert_eq!(failing_checks(SEEN, busier, 0.0), ["request lane"]);
    }

    #[test]
    fn client_time_does_not_count_against_batch() {
        let less = ComparedFigures { batch_utilisation: Some(0.35), ..SEEN };
        assert_eq!(failing_checks(less, SEEN, 0.0), ["batch lane"]);
        assert_eq!(failing_checks(less, SEEN, 0.06), [""; 0]);
    }

    #[test]
    fn unmeasured_figures_do_not_agree() {
        let none = ComparedFigures { p99_us: f64::NAN, batch_utilisation: None, ..SEEN };
        assert_eq!(failing_checks(none, SEEN, 0.0), ["p99", "batch lane"]);
        let alone = ComparedFigures { batch_utilisation: None, ..SEEN };
        assert_eq!(failing_checks(alone, alone, 0.0), [""; 0]);
    }
}
