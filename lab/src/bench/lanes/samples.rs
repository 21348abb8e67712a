//! Figures of a sweep's runs, and the parameters that tell runs apart.

use crate::experiment::comparison;
use crate::experiment::setting::Setting;
use sidelane_policy::borrow::contention_cost::ContentionCostEstimate;

/// Figures of one run of the sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) requests: f64,
    pub(super) p50_us: f64,
    pub(super) p95_us: f64,
    pub(super) p99_us: f64,
    /// p99 that the client measured; the other percentiles were measured at the service's sockets.
    pub(super) client_p99_us: Option<f64>,
    pub(super) lc_utilisation: f64,
    /// CPU time of batch divided by the run's length. This field and all following ones are `None` if batch did not
    /// run.
    pub(super) batch_utilisation: Option<f64>,
    pub(super) batch_work_ratio: Option<f64>,
    pub(super) overlap_percent: Option<f64>,
    pub(super) lent_overlap_percent: Option<f64>,
    /// Contention cost that the session has estimated at its end. The next session starts from this estimate.
    pub(super) contention_cost: Option<ContentionCostEstimate>,
}

impl Figures {
    /// Returns the utilisation of both lanes; the maximum is 2, as in the paper's Figs. 2 and 11.
    pub(super) fn utilisation(&self) -> f64 {
        self.lc_utilisation + self.batch_utilisation.unwrap_or(0.0)
    }
}

/// Parameters of a cell of the sweep. Runs of one cell differ by the round alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SampleKey {
    pub(super) load: u8,
    /// Name of the batch kernel; empty for the service alone, which is the baseline of all kernels.
    pub(super) batch: &'static str,
    pub(super) setting: &'static str,
}

impl SampleKey {
    pub(super) fn new(load: u8, batch: &'static str, setting: &'static str) -> Self {
        let batch = if setting == Setting::ALONE.name { "" } else { batch };
        Self { load, batch, setting }
    }

    /// Returns the same cell under another setting.
    pub(super) fn with_setting(self, setting: &'static str) -> Self {
        Self::new(self.load, self.batch, setting)
    }
}

/// All runs of the sweep.
pub(super) type Samples = comparison::Samples<SampleKey, Figures>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_alone_is_the_baseline_of_every_batch_kernel() {
        let mut samples = Samples::default();
        for (batch, setting, p99_us) in
            [("loop", "alone", 10.0), ("loop", "borrow_idle", 12.0), ("flush", "borrow_idle", 15.0)]
        {
            samples.add(0, SampleKey::new(50, batch, setting), Figures { p99_us, ..Figures::default() });
        }
        let over_alone = |batch| {
            let cell = SampleKey::new(50, batch, "borrow_idle");
            samples.compare_by_round(cell, cell.with_setting("alone"), |one, alone| Some(one.p99_us / alone.p99_us))
        };
        assert_eq!((over_alone("loop"), over_alone("flush")), (vec![1.2], vec![1.5]));
    }

    #[test]
    fn utilisation_is_the_sum_of_both_lanes() {
        let alone = Figures { lc_utilisation: 0.5, ..Figures::default() };
        assert_eq!(alone.utilisation(), 0.5);
        assert_eq!(Figures { batch_utilisation: Some(0.4), ..alone }.utilisation(), 0.9);
    }
}
