//! Steps of the calibration: the rates at which two threads send requests to memory, and the measured values (Holmes,
//! HPDC'22, §3.1).

use std::thread;
use std::time::Duration;

use anyhow::Result;
use sidelane_host::events::Formula;

use super::analysis::Sample;
use super::counters::{Counters, values};
use super::memory::MemoryThread;
use crate::reaction::pair::TestPair;

/// Difference between two consecutive request rates in the paper, in requests per second.
const STEP_PER_S: f64 = 5_000.0;
/// Time for which the second thread works before and after a measurement.
const MARGIN: Duration = Duration::from_millis(50);
/// Size of the memory area in the paper. The area is at least this large, and [`CACHES`] times the largest cache.
const AREA_MB: u64 = 600;
const CACHES: u64 = 4;

/// Length and number of the steps of a calibration.
#[derive(Clone, Copy, Debug)]
pub struct CalibrationPlan {
    /// Length of each step.
    pub step: Duration,
    /// Largest number of steps from the lowest rate to the highest.
    pub steps_max: usize,
}

impl CalibrationPlan {
    /// Full measurement: the paper's second per step, in ten steps.
    pub const FULL: Self = Self { step: Duration::from_secs(1), steps_max: 10 };
    /// Quick measurement: five short steps.
    pub const QUICK: Self = Self { step: Duration::from_millis(300), steps_max: 5 };
}

/// Step of the calibration, with its measured values.
#[derive(Clone, Debug)]
pub struct Step {
    /// Name of the step in results.
    pub name: String,
    /// Requests per second of the measured thread.
    pub own_per_s: f64,
    /// Requests per second of the thread on the other CPU.
    pub other_per_s: f64,
    /// Sample for the analysis.
    pub sample: Sample,
}

/// Two threads that send requests to memory, on the two CPUs of a pair.
pub struct Bench<'a> {
    own: MemoryThread,
    other: MemoryThread,
    candidates: &'a [Formula],
    counters: Option<Counters>,
    effort: CalibrationPlan,
}

impl<'a> Bench<'a> {
    /// Starts the threads on both CPUs of `pair`. Counts `candidates` on the first CPU, if they can be counted.
    pub fn start(
        pair: &TestPair,
        candidates: &'a [Formula],
        counters: Option<Counters>,
        plan: CalibrationPlan,
    ) -> Result<Self> {
        let area_mb = (CACHES * largest_cache_mb()).max(AREA_MB) as usize;
        let start = |cpu: u32| MemoryThread::start(cpu, area_mb);
        Ok(Self { own: start(pair.request)?, other: start(pair.batch)?, candidates, counters, effort: plan })
    }

    /// Runs all steps. First one thread runs alone at each rate. Then the second thread runs at each rate, beside the
    /// measured thread at its highest rate. Last, the measured thread runs at each rate, beside the second thread at
    /// its highest rate.
    pub fn measure(&mut self, mut on_step: impl FnMut(&Step)) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        let mut add = |step: Step| {
            on_step(&step);
            steps.push(step);
        };
        let fastest = self.run_step("one thread, as fast as possible", None, None)?;
        let rates = rates(fastest.own_per_s, self.effort.steps_max);
        add(fastest);
        for rate in &rates {
            add(self.run_step(&format!("one thread, {rate:.0} /s"), Some(*rate), None)?);
        }
        for rate in rates.iter().copied().map(Some).chain([None]) {
            let other = rate.map_or("as fast as possible".to_owned(), |rate| format!("at {rate:.0} /s"));
            add(self.run_step(&format!("two threads, the second {other}"), None, Some(rate))?);
        }
        for rate in &rates {
            add(self.run_step(&format!("two threads, at {rate:.0} /s"), Some(*rate), Some(None))?);
        }
        Ok(steps)
    }

    /// Runs one step. A rate of `None` is the highest possible rate; without `other_rate` the second thread does not
    /// run.
    fn run_step(&mut self, name: &str, own_rate: Option<f64>, other_rate: Option<Option<f64>>) -> Result<Step> {
        if let Some(rate) = other_rate {
            self.other.begin_step(rate, self.effort.step + 2 * MARGIN)?;
            thread::sleep(MARGIN);
        }
        let before = self.counters.as_ref().map(Counters::read).transpose()?;
        self.own.begin_step(own_rate, self.effort.step)?;
        let answer = self.own.finish_step()?;
        let after = self.counters.as_ref().map(Counters::read).transpose()?;
        let other_per_s = if other_rate.is_some() { self.other.finish_step()?.per_s } else { 0.0 };
        let values = before.zip(after).map(|(before, after)| values(self.candidates, &before, &after));
        let sample =
            Sample { alone: other_rate.is_none(), latency_ns: answer.mean_ns, values: values.unwrap_or_default() };
        Ok(Step { name: name.to_owned(), own_per_s: answer.per_s, other_per_s, sample })
    }
}

/// Returns rates below the highest one: multiples of the paper's step, or fractions of the highest rate if that is low.
fn rates(highest_per_s: f64, steps_max: usize) -> Vec<f64> {
    let step = STEP_PER_S * (highest_per_s / STEP_PER_S / steps_max as f64).ceil();
    let step = if highest_per_s < STEP_PER_S * steps_max as f64 / 2.0 {
        (highest_per_s / steps_max as f64).floor()
    } else {
        step
    };
    (1..steps_max).map(|at| step * at as f64).filter(|rate| *rate >= 1.0 && *rate < highest_per_s).collect()
}

/// Returns the size of the largest cache of the first CPU, in megabytes.
fn largest_cache_mb() -> u64 {
    const KB_PER_MB: u64 = 1024;
    let size = |index: usize| {
        let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()?;
        text.trim().strip_suffix('K')?.parse::<u64>().ok()
    };
    (0..).map_while(size).max().unwrap_or_default() / KB_PER_MB
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_a_fast_machine_are_those_of_the_paper() {
        assert_eq!(rates(45_000.0, 10), [5e3, 1e4, 1.5e4, 2e4, 2.5e4, 3e4, 3.5e4, 4e4]);
        assert_eq!(rates(74_000.0, 10), [1e4, 2e4, 3e4, 4e4, 5e4, 6e4, 7e4]);
        assert_eq!(rates(1_000.0, 5), [200.0, 400.0, 600.0, 800.0]);
        assert!(rates(0.0, 5).is_empty());
    }
}
