//! The simulated runs of Holmes' figures, and the numbers that statements take from them.

use sidelane_sim::Outcome;
use sidelane_sim::machine::figures::{MachineFigures, ServiceFigures};
use sidelane_stats::ranks::percentile;

/// Scenario key that names the workload of a run.
const WORKLOAD: &str = "case";

/// Stores of the evaluation, each with YCSB's workloads.
pub(super) const STORES: [&str; 4] = ["redis", "rocksdb", "wiredtiger", "memcached"];

/// Workload whose queries do not suffer from siblings (§6.2).
pub(super) const INSENSITIVE: &str = "wiredtiger-e";

/// Function that takes a number from the figures of one service.
pub(super) type ServiceFigureSelector = fn(&ServiceFigures) -> f64;

pub(super) fn mean_ns(service: &ServiceFigures) -> f64 {
    service.whole.mean_ns
}

pub(super) fn p99_ns(service: &ServiceFigures) -> f64 {
    service.whole.p99_ns as f64
}

/// Results of all simulated runs of a scenario.
#[derive(Default)]
pub struct HolmesEvidence {
    pub(super) outcomes: Vec<Outcome<MachineFigures>>,
}

impl From<Vec<Outcome<MachineFigures>>> for HolmesEvidence {
    fn from(outcomes: Vec<Outcome<MachineFigures>>) -> Self {
        Self { outcomes }
    }
}

impl HolmesEvidence {
    /// Returns the runs of one setting, by workload.
    pub(super) fn runs_of_setting<'s>(
        &self,
        setting: &'s str,
    ) -> impl Iterator<Item = (&str, &MachineFigures)> + use<'_, 's> {
        let own = self.outcomes.iter().filter(move |outcome| outcome.setting == setting);
        own.filter_map(|outcome| Some((outcome.text(WORKLOAD)?, &outcome.figures)))
    }

    /// Returns the run of one workload under one setting.
    pub(super) fn find_run(&self, workload: &str, setting: &str) -> Option<&MachineFigures> {
        self.runs_of_setting(setting).find(|(of, _)| *of == workload).map(|(_, figures)| figures)
    }

    /// Returns a number of the service under one setting, divided by the same number under another setting.
    pub(super) fn ratio(
        &self,
        workload: &str,
        (own, other): (&str, &str),
        number: ServiceFigureSelector,
    ) -> Option<f64> {
        let of = |setting| Some(number(self.find_run(workload, setting)?.services.first()?));
        Some(of(own)? / of(other)?)
    }

    /// Returns the ratio of a number under two settings for all workloads; `None` without workloads.
    pub(super) fn ratios(&self, settings: (&str, &str), number: ServiceFigureSelector) -> Option<Vec<(&str, f64)>> {
        let ratio = |(workload, _)| Some((workload, self.ratio(workload, settings, number)?));
        let ratios: Vec<(&str, f64)> = self.runs_of_setting(settings.0).map(ratio).collect::<Option<_>>()?;
        (!ratios.is_empty()).then_some(ratios)
    }
}

/// Returns the median of the numbers; for an even count the lower of the two middle numbers.
pub(super) fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    percentile(&numbers, 50.0)
}

#[cfg(test)]
pub(super) mod tests {
    use sidelane_sim::machine::figures::LatencyFigures;
    use sidelane_sim::scenario::PointValue;

    use super::*;

    /// Returns a run of a workload whose latencies are `latency_factor` times the latencies of the service alone.
    pub(in crate::bench::papers::holmes) fn run(
        workload: &str,
        setting: &str,
        latency_factor: f64,
    ) -> Outcome<MachineFigures> {
        let ns = |us: f64| (us * latency_factor * 1e3) as u64;
        let whole = LatencyFigures {
            count: 1000,
            mean_ns: 60e3 * latency_factor,
            p50_ns: ns(50.0),
            p90_ns: ns(136.0),
            p99_ns: ns(300.0),
            max_ns: ns(900.0),
        };
        let service = ServiceFigures {
            whole,
            violations: Some(0.1 * latency_factor),
            vpi: Some(28.0 * latency_factor),
            ..Default::default()
        };
        let figures = MachineFigures { services: vec![service], ..MachineFigures::default() };
        let at = vec![(WORKLOAD.to_owned(), PointValue::Text(workload.to_owned()))];
        Outcome { at, setting: setting.to_owned(), figures, fleet: None }
    }

    #[test]
    fn ratios_are_of_one_workload_and_none_may_be_missing() {
        let mut evidence = HolmesEvidence { outcomes: vec![run("a", "alone", 1.0), run("a", "holmes", 1.5)] };
        assert_eq!(evidence.ratio("a", ("holmes", "alone"), mean_ns), Some(1.5));
        assert_eq!(evidence.ratios(("holmes", "alone"), mean_ns), Some(vec![("a", 1.5)]));
        evidence.outcomes.push(run("b", "holmes", 2.0));
        assert_eq!(evidence.ratios(("holmes", "alone"), mean_ns), None);
    }

    #[test]
    fn median_of_an_even_count_is_the_lower_middle_one() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.0));
    }
}
