//! Adaptation of the demo to this machine: its load, the length of a run, and the bound of p99.
//!
//! Problem. On a virtual machine whose host is busy, two equal runs of the service alone differ, so no tool could keep
//! p99 within 5 % of alone there. A demo that promises this fails for a reason that is not Sidelane's.
//!
//! Approach. Some equal runs without batch come first. The ratio of their highest and lowest p99 is the machine's own
//! noise. If it is large, the load is lower, so that one late request delays fewer others, and runs are longer. The
//! bound of p99 is then never below the noise.

use anyhow::Result;

use super::{DemoOptions, DemoPlan, load_pattern};
use crate::experiment::fixture::Fixture;
use crate::experiment::learn::LearningOptions;
use crate::experiment::run::{self, RunSpec};
use crate::experiment::setting::Setting;

/// Number of equal runs from which the noise is measured.
const EQUAL_RUNS: usize = 3;
/// Ratio of p99 between equal runs up to which a machine is quiet.
const QUIET: f64 = 1.10;
/// Bound of p99 over alone on a quiet machine.
const P99_OVER_ALONE: f64 = 1.05;
/// Load of the request lane on a quiet machine, and on a noisy one.
const LOADS: [f64; 2] = [0.5, 0.3];
/// Length of a run on a noisy machine, over the usual length.
const LONGER: f64 = 1.5;

/// Choices for this machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adaptation {
    /// Share of the request lane that the load keeps busy.
    pub load: f64,
    /// Length of a run, over the usual length.
    pub longer: f64,
    /// Ratio of p99 between equal runs without batch; `None` if it was not measured.
    noise: Option<f64>,
}

impl Adaptation {
    /// Returns the choices that do not depend on the machine.
    pub fn fixed(options: &DemoOptions) -> Self {
        Self { load: options.load.unwrap_or(LOADS[0]), longer: 1.0, noise: None }
    }

    /// Returns the bound of p99 over alone.
    pub fn p99_bound(&self) -> f64 {
        self.noise.unwrap_or(1.0).max(P99_OVER_ALONE)
    }

    /// Returns what the demo adapted, for users; `None` if the machine's noise was not measured.
    pub fn sentence(&self) -> Option<String> {
        let (noise, bound) = (self.noise?, self.p99_bound());
        let (load, differ) = (self.load * 100.0, (noise - 1.0) * 100.0);
        Some(format!(
            "Equal runs without batch differ by {differ:.0} % in p99 here: the load is {load:.0} %, and p99 may be \
             {bound:.2}× alone"
        ))
    }
}

/// Measures the noise of this machine, and chooses load, length and bound.
pub fn adapt(options: &DemoOptions, fixture: &Fixture, plan: DemoPlan) -> Result<Adaptation> {
    let usual = Adaptation::fixed(options);
    let first = Adaptation { noise: measure_noise(options, fixture, plan, usual.load)?, ..usual };
    if first.noise.is_none_or(|noise| noise <= QUIET) {
        return Ok(first);
    }
    let plan = DemoPlan { run: plan.run.mul_f64(LONGER), ..plan };
    let load = options.load.unwrap_or(LOADS[1]);
    let calmer = Adaptation { load, longer: LONGER, noise: measure_noise(options, fixture, plan, load)? };
    Ok(if calmer.p99_bound() < first.p99_bound() { calmer } else { first })
}

/// Returns the ratio between the highest and the lowest p99 of equal runs without batch; `None` without requests.
fn measure_noise(options: &DemoOptions, fixture: &Fixture, plan: DemoPlan, load: f64) -> Result<Option<f64>> {
    let task = RunSpec {
        fixture,
        rhythm: load_pattern(fixture, plan, load, 0),
        batch: &options.batch,
        batch_alone_per_s: 1.0,
        draw: false,
        experience: LearningOptions::default(),
    };
    let runs = (0..EQUAL_RUNS).map(|_| Ok(run::run(task, &Setting::ALONE)?.p99_us()));
    Ok(spread(&runs.collect::<Result<Vec<f64>>>()?))
}

/// Returns the highest value over the lowest; `None` if one is missing or zero.
fn spread(values: &[f64]) -> Option<f64> {
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    (low > 0.0 && high.is_finite()).then(|| high / low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_the_spread_of_equal_runs() {
        assert_eq!(spread(&[20.0, 10.0, 15.0]), Some(2.0));
        assert_eq!((spread(&[]), spread(&[0.0, 1.0]), spread(&[1.0, f64::NAN])), (None, None, Some(1.0)));
    }

    #[test]
    fn bound_is_never_below_the_noise_of_the_machine() {
        let bound = |noise| Adaptation { load: 0.5, longer: 1.0, noise }.p99_bound();
        assert_eq!([bound(None), bound(Some(1.01)), bound(Some(1.3))], [1.05, 1.05, 1.3]);
    }
}
