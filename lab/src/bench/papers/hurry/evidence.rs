//! The simulated runs of Hurry-up's figures, and the numbers that statements take from them.

use sidelane_sim::Outcome;
use sidelane_sim::machine::figures::MachineFigures;

use crate::bench::papers::evidence::largest;

/// Scenario keys of the load and of the cost of moving a thread.
const RATE: &str = "service.0.arrivals.rate_per_s";
const MOVE_US: &str = "machine.migration_us";

/// Function that takes a number from the figures of one run.
pub(super) type MachineFigureSelector = fn(&MachineFigures) -> f64;

/// Returns the service's p90 in milliseconds; NaN without a service, since then nothing was measured.
pub(super) fn p90_ms(figures: &MachineFigures) -> f64 {
    figures.services.first().map_or(f64::NAN, |service| service.whole.p90_ns as f64 / 1e6)
}

pub(super) fn slowest_request_ms(figures: &MachineFigures) -> f64 {
    figures.services.first().map_or(f64::NAN, |service| service.whole.max_ns as f64 / 1e6)
}

/// Returns the mean power; NaN for a run that took no time.
pub(super) fn watts(figures: &MachineFigures) -> f64 {
    figures.energy_j / (figures.elapsed_ns as f64 / 1e9)
}

/// Results of all simulated runs of a scenario.
#[derive(Default)]
pub struct HurryEvidence {
    pub(super) outcomes: Vec<Outcome<MachineFigures>>,
}

impl From<Vec<Outcome<MachineFigures>>> for HurryEvidence {
    fn from(outcomes: Vec<Outcome<MachineFigures>>) -> Self {
        Self { outcomes }
    }
}

impl HurryEvidence {
    /// Returns load and number of each run of a setting. `move_us` selects the cost of moving a thread, if the scenario
    /// sweeps that cost.
    pub(super) fn points_by_load(
        &self,
        setting: &str,
        move_cost_us: Option<f64>,
        number: MachineFigureSelector,
    ) -> Vec<(f64, f64)> {
        let own = self.outcomes.iter().filter(|outcome| outcome.setting == setting);
        let own = own.filter(|outcome| outcome.number(MOVE_US) == move_cost_us);
        own.filter_map(|outcome| Some((outcome.number(RATE)?, number(&outcome.figures)))).collect()
    }

    /// Returns the number of a setting at one load.
    pub(super) fn number_at(&self, setting: &str, load: f64, number: MachineFigureSelector) -> Option<f64> {
        self.points_by_load(setting, None, number).into_iter().find(|(at, _)| *at == load).map(|(_, number)| number)
    }

    /// Returns the number under the setting `own` divided by the number under `other`, for each load. `None` if a run
    /// is missing.
    pub(super) fn ratios(&self, own: &str, other: &str, number: MachineFigureSelector) -> Option<Vec<f64>> {
        let own = self.points_by_load(own, None, number);
        let ratio = |(load, own): &(f64, f64)| Some(own / self.number_at(other, *load, number)?);
        own.iter().map(ratio).collect::<Option<Vec<f64>>>().filter(|ratios| !ratios.is_empty())
    }

    /// Returns the swept costs of moving a thread, in microseconds. The only element is `None` if the scenario sweeps
    /// no cost.
    pub(super) fn move_costs_us(&self) -> Vec<Option<f64>> {
        let mut all: Vec<_> = self.outcomes.iter().map(|outcome| outcome.number(MOVE_US)).collect();
        all.sort_by(|one, other| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal));
        all.dedup();
        all
    }

    /// Returns the settings whose names begin with `prefix`, in the order of the scenario.
    pub(super) fn settings(&self, prefix: &str) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for outcome in self.outcomes.iter().filter(|outcome| outcome.setting.starts_with(prefix)) {
            if !names.contains(&outcome.setting.as_str()) {
                names.push(&outcome.setting);
            }
        }
        names
    }
}

/// Returns by how many percent the mean of these ratios is below 1.
pub(super) fn mean_gain_percent(ratios: &[f64]) -> f64 {
    100.0 * (1.0 - ratios.iter().sum::<f64>() / ratios.len() as f64)
}

/// Returns the largest of several numbers; `None` if any number is missing.
pub(super) fn maximum_of_all(numbers: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    largest(numbers.collect::<Option<Vec<f64>>>()?)
}

#[cfg(test)]
pub(super) mod tests {
    use sidelane_sim::machine::figures::{LatencyFigures, ServiceFigures};
    use sidelane_sim::scenario::PointValue;

    use super::*;

    /// Returns a run with this p90 in milliseconds and this power; the slowest request takes four times the p90.
    pub(in crate::bench::papers::hurry) fn run(
        setting: &str,
        (rate_per_s, move_us): (f64, Option<f64>),
        p90_ms: f64,
        watts: f64,
    ) -> Outcome<MachineFigures> {
        let ns = (p90_ms * 1e6) as u64;
        let whole = LatencyFigures { p90_ns: ns, max_ns: 4 * ns, ..Default::default() };
        let services = vec![ServiceFigures { whole, ..Default::default() }];
        let figures = MachineFigures { services, energy_j: watts, elapsed_ns: 1_000_000_000, ..Default::default() };
        let rate = (RATE.to_owned(), PointValue::Number(rate_per_s));
        let cost = move_us.map(|us| (MOVE_US.to_owned(), PointValue::Number(us)));
        Outcome { at: [rate].into_iter().chain(cost).collect(), setting: setting.to_owned(), figures, fleet: None }
    }

    #[test]
    fn ratios_are_of_one_load_and_none_may_be_missing() {
        let mut evidence =
            HurryEvidence { outcomes: vec![run("a", (5.0, None), 50.0, 1.0), run("b", (5.0, None), 100.0, 2.0)] };
        assert_eq!(evidence.ratios("a", "b", p90_ms), Some(vec![0.5]));
        assert_eq!((evidence.number_at("b", 5.0, watts), evidence.number_at("b", 6.0, watts)), (Some(2.0), None));
        evidence.outcomes.push(run("a", (6.0, None), 50.0, 1.0));
        assert_eq!((evidence.ratios("a", "b", p90_ms), evidence.ratios("c", "b", p90_ms)), (None, None));
        assert_eq!(mean_gain_percent(&[0.5, 0.7]), 40.0);
    }

    #[test]
    fn settings_and_costs_are_those_that_ran() {
        let at = |us| (5.0, Some(us));
        let runs = [("given 1", at(2.0)), ("given 2", at(1.0)), ("given 1", at(1.0)), ("learnt", at(1.0))];
        let evidence = HurryEvidence { outcomes: runs.map(|(setting, at)| run(setting, at, 1.0, 1.0)).to_vec() };
        assert_eq!(evidence.settings("given"), ["given 1", "given 2"]);
        assert_eq!(evidence.move_costs_us(), [Some(1.0), Some(2.0)]);
    }
}
