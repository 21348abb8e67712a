//! Settings that are compared, and the figures of one run in each of them. A round has a run in each setting.

use std::time::Duration;

use sidelane_policy::borrow::promise::Overlap;
use sidelane_report::Interval;
use sidelane_requests::at_socket::{SocketTimes, latency_at_percentile_us};
use sidelane_stats::interval::median_interval;
use sidelane_tracker::ledger::Ledger;

/// Batch that runs beside the service in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    /// No batch runs.
    Alone,
    /// Batch runs where it would run without Sidelane.
    Unmanaged,
    /// Batch runs under Sidelane.
    Sidelane,
}

impl Setting {
    /// All settings in the order of the results.
    pub(super) const ALL: [Self; 3] = [Self::Alone, Self::Unmanaged, Self::Sidelane];

    /// Returns the settings of a round in their order. Each order comes once in six rounds, so that no setting always
    /// follows the same other setting.
    pub(super) fn order_in_round(round: u64) -> [Self; 3] {
        use Setting::{Alone, Sidelane, Unmanaged};
        const ORDERS: [[Setting; 3]; 6] = [
            [Alone, Unmanaged, Sidelane],
            [Sidelane, Alone, Unmanaged],
            [Unmanaged, Sidelane, Alone],
            [Alone, Sidelane, Unmanaged],
            [Sidelane, Unmanaged, Alone],
            [Unmanaged, Alone, Sidelane],
        ];
        ORDERS[(round % 6) as usize]
    }

    /// Returns the name of the setting in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Unmanaged => "unmanaged",
            Self::Sidelane => "sidelane",
        }
    }

    /// Returns the setting as it is written in the name of a check, such as "with Sidelane".
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Unmanaged => "unmanaged",
            Self::Sidelane => "with Sidelane",
        }
    }
}

/// Measured figures of one run.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    /// Length of the run.
    pub(super) length: Duration,
    /// Latencies of the requests; `None` without requests.
    pub(super) seen: Option<SocketTimes>,
    /// Figures of batch; `None` without batch.
    pub(super) batch: Option<BatchFigures>,
}

/// Figures of batch in one run.
#[derive(Clone, Debug, Default)]
pub(super) struct BatchFigures {
    /// CPU time of batch.
    pub(super) cpu: Duration,
    /// Increase of batch's own counter; `None` if the user named none.
    pub(super) work: Option<u64>,
    /// Time in which batch ran beside the service without permission.
    pub(super) overlap: Overlap,
    /// Number of wakeups of a keeper that cost CPU time of the service's lanes.
    pub(super) paid_wake_ups: u64,
    /// All time of the batch lanes, by what had them.
    pub(super) ledger: Ledger,
}

impl Figures {
    pub(super) fn requests(&self) -> u64 {
        self.seen.as_ref().map_or(0, |seen| seen.requests)
    }

    pub(super) fn requests_per_s(&self) -> Option<f64> {
        self.per_s(self.requests() as f64)
    }

    pub(super) fn p50_us(&self) -> Option<f64> {
        self.latencies_sufficient_for(50.0).map(|seen| seen.p50_us)
    }

    pub(super) fn p99_us(&self) -> Option<f64> {
        self.latencies_sufficient_for(99.0).map(|seen| seen.p99_us)
    }

    pub(super) fn percentile_us(&self, percentile: f64) -> Option<f64> {
        latency_at_percentile_us(&self.latencies_sufficient_for(percentile)?.curve, percentile)
    }

    pub(super) fn overlap_percent(&self) -> Option<f64> {
        let Overlap { service_ns, overlap_ns, .. } = self.batch.as_ref()?.overlap;
        (service_ns > 0).then(|| overlap_ns as f64 * 100.0 / service_ns as f64)
    }

    /// Returns the CPU time of batch in seconds per minute; `None` without batch.
    pub(super) fn batch_cpu_a_minute_s(&self) -> Option<f64> {
        Some(60.0 * self.per_s(self.batch.as_ref()?.cpu.as_secs_f64())?)
    }

    pub(super) fn batch_work_per_s(&self) -> Option<f64> {
        self.per_s(self.batch.as_ref()?.work? as f64)
    }

    pub(super) fn paid_wake_ups_per_s(&self) -> Option<f64> {
        self.per_s(self.batch.as_ref()?.paid_wake_ups as f64)
    }

    fn latencies_sufficient_for(&self, percentile: f64) -> Option<&SocketTimes> {
        self.seen.as_ref().filter(|seen| seen.requests >= requests_needed_for(percentile))
    }

    fn per_s(&self, count: f64) -> Option<f64> {
        (!self.length.is_zero()).then(|| count / self.length.as_secs_f64())
    }
}

/// Returns the overlap of all runs in a setting.
pub(super) fn overlap_of(rounds: &[Round], setting: Setting) -> Overlap {
    let runs = rounds.iter().filter_map(|round| Some(round.figures_of(setting).batch.as_ref()?.overlap));
    runs.fold(Overlap::default(), |sum, one| sum.plus(&one))
}

/// Returns the number of requests that a percentile needs, so that at least one is beyond it.
pub(super) fn requests_needed_for(percentile: f64) -> u64 {
    (100.0 / (100.0 - percentile)).round() as u64
}

/// Figures of a run in each setting, by the number of the setting.
#[derive(Clone, Debug, Default)]
pub(super) struct Round([Figures; 3]);

impl Round {
    pub(super) fn figures_of(&self, setting: Setting) -> &Figures {
        &self.0[setting as usize]
    }

    pub(super) fn put(&mut self, setting: Setting, figures: Figures) {
        self.0[setting as usize] = figures;
    }
}

/// Returns a figure of all rounds in one setting, without missing values.
pub(super) fn figures_in_rounds<'a>(
    rounds: &'a [Round],
    setting: Setting,
    figure: impl Fn(&Figures) -> Option<f64> + 'a,
) -> impl Iterator<Item = f64> + 'a {
    rounds.iter().filter_map(move |round| figure(round.figures_of(setting)))
}

/// Returns the ratio of a figure in a setting to the same figure without batch. Each round gives a ratio of its own
/// runs; the result is the median of these ratios with its interval.
pub(super) fn ratio_to_alone(
    rounds: &[Round],
    setting: Setting,
    figure: impl Fn(&Figures) -> Option<f64>,
) -> Option<Interval> {
    let ratio = |round: &Round| {
        let ratio = figure(round.figures_of(setting))? / figure(round.figures_of(Setting::Alone))?;
        ratio.is_finite().then_some(ratio)
    };
    median_interval(rounds.iter().filter_map(ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_settings_is_balanced_over_six_rounds() {
        let orders: Vec<[Setting; 3]> = (0..6).map(Setting::order_in_round).collect();
        for one in Setting::ALL {
            assert_eq!(orders.iter().filter(|order| order[0] == one).count(), 2, "{one:?}");
            for other in Setting::ALL.into_iter().filter(|other| *other != one) {
                let follows = |order: &&[Setting; 3]| order.windows(2).any(|pair| pair == [other, one]);
                assert_eq!(orders.iter().filter(follows).count(), 2, "{one:?} after {other:?}");
            }
        }
        assert_eq!(Setting::order_in_round(6), Setting::order_in_round(0));
    }

    #[test]
    fn a_percentile_of_too_few_requests_is_missing() {
        let seen = |requests: u64| {
            let seen: Vec<(u64, u64)> = (0..requests).map(|at| (at, 1_000)).collect();
            Figures { length: Duration::from_secs(1), seen: SocketTimes::from_latencies(&seen, 0), batch: None }
        };
        assert_eq!((seen(99).p50_us(), seen(99).p99_us(), seen(100).p99_us()), (Some(1.0), None, Some(1.0)));
        assert_eq!((requests_needed_for(50.0), requests_needed_for(99.9)), (2, 1_000));
        assert_eq!((seen(0).p50_us(), seen(0).requests_per_s()), (None, Some(0.0)));
    }

    #[test]
    fn batch_work_is_reported_as_a_rate() {
        let batch = BatchFigures { cpu: Duration::from_millis(500), work: Some(30), ..BatchFigures::default() };
        let figures = Figures { length: Duration::from_secs(2), seen: None, batch: Some(batch) };
        assert_eq!((figures.batch_cpu_a_minute_s(), figures.batch_work_per_s()), (Some(15.0), Some(15.0)));
        assert_eq!(Figures::default().batch_cpu_a_minute_s(), None);
    }
}
