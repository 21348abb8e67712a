//! The time that a worker loses beside a lane that works, and beside an idle lane.
//!
//! Each lane has a worker, and the sibling is switched on and off in turns. A worker's share of work in a stretch with
//! the sibling is compared with the mean share in the stretches before and after it. Clock reads of the worker and
//! other programs on the lane therefore affect stretches with and without the sibling alike. The worker's total loss,
//! divided by the share of its time in which the other lane worked, is its loss per time of overlap.
//!
//! The cost of the sibling is the loss beside a lane without a worker, and the kernel program's time in context
//! switches. Other programs, such as this bench, also run on that lane; the loss that they should cause does not count
//! as cost.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::worker::{LossSource, Rest, Worker};
use crate::experiment::place::ExperimentCpus;
use crate::experiment::sibling::{EmulatedSibling, LaneReport, Slowdown, SlowdownMechanism};
use crate::programs::LabBinary;
use sidelane_report::{Check, Interval, Row, Unit};
use sidelane_stats::interval::median_interval;
use sidelane_stats::ranks::median;
use sidelane_stats::rounds::{Limit, RoundOptions, Turn, run_until_decided};

/// Share of its time that each lane should lose while the other lane works, in percent.
pub(super) const ASKED_PERCENT: f64 = 40.0;
const ASKED: Slowdown = Slowdown { service: 5.0 / 3.0, batch: 5.0 / 3.0, nap: 1.0 };
/// Utilisation of the request lane during the measurements of the lost time, in percent.
const LOADS_PERCENT: [u64; 3] = [30, 60, 90];
/// Utilisation of the request lane during the measurement of the cost, in percent. It is high, since a service that is
/// hardly ever idle pays the whole cost.
const COST_LOAD_PERCENT: u64 = 90;
/// Length of a worker's burst of work in nanoseconds, as long as some requests.
const BURST_NS: f64 = 1_000_000.0;
/// Wait after the sibling is switched on or off, until the steal emulator has adapted its interval of wakeups.
const SETTLE: Duration = Duration::from_millis(30);

/// Emulation mechanism, and the bounds on its accuracy and cost.
#[derive(Clone, Copy)]
struct MechanismBounds {
    carrier: SlowdownMechanism,
    name: &'static str,
    loss: LossSource,
    /// Largest accepted difference between the lost time and the requested lost time, in percent.
    within_percent: f64,
    /// Largest accepted share of its time that a lane loses beside an idle lane, in percent.
    cost_percent: f64,
}

const CARRIERS: [MechanismBounds; 2] = [
    MechanismBounds {
        carrier: SlowdownMechanism::BuiltIn,
        name: "built in",
        loss: LossSource::MadeUp,
        within_percent: 2.0,
        cost_percent: 0.5,
    },
    MechanismBounds {
        carrier: SlowdownMechanism::Steal,
        name: "steal",
        loss: LossSource::Taken,
        within_percent: 5.0,
        cost_percent: 3.0,
    },
];

/// Measurements of one emulation mechanism at one load.
pub(super) struct EmulationMeasurement {
    wanted: MechanismBounds,
    load_percent: u64,
    /// Whether a worker also ran on the batch lane, beside the worker on the request lane.
    beside: bool,
    /// Loss of service and of batch per time of overlap, in percent, one value per pair of stretches. Without a worker
    /// on the batch lane the values are the cost of the mechanism.
    lost_percent: [Vec<f64>; 2],
    /// Emulator's own report of the last stretch.
    report: Option<[LaneReport; 2]>,
}

const STRETCH: Duration = Duration::from_millis(150);
/// Pairs of stretches with and without the sibling: `first` pairs always, then more until the checks are decided, up to
/// `rounds` pairs or `time`.
pub(super) const PAIRS: Limit = Limit { first: 41, rounds: 164, time: Duration::from_secs(60) };
const PAIRS_QUICK: Limit = Limit { first: 9, rounds: 36, time: Duration::from_secs(15) };

pub(super) fn measure_emulation(
    place: ExperimentCpus,
    round_options: RoundOptions,
) -> Result<Vec<EmulationMeasurement>> {
    let bench = Bench {
        place,
        lab: LabBinary::find()?,
        scratch: tempfile::tempdir().context("cannot make a directory for scratch files")?,
        limit: round_options.limit(PAIRS_QUICK, PAIRS),
    };
    let unit_ns = bench.measure_unit_ns()?;
    let mut achieved = Vec::new();
    for wanted in CARRIERS {
        for load_percent in LOADS_PERCENT {
            achieved.push(bench.measure_mechanism(wanted, load_percent, true, unit_ns)?);
        }
        achieved.push(bench.measure_mechanism(wanted, COST_LOAD_PERCENT, false, unit_ns)?);
    }
    Ok(achieved)
}

struct Bench {
    place: ExperimentCpus,
    lab: LabBinary,
    scratch: tempfile::TempDir,
    limit: Limit,
}

impl Bench {
    /// Measures the time of one unit of work in nanoseconds.
    fn measure_unit_ns(&self) -> Result<f64> {
        let worker = self.start_worker(self.place.request, None, None)?;
        let before = worker.read_counters();
        thread::sleep(STRETCH);
        worker.read_counters().unit_ns_since(before).context("a worker did nothing")
    }

    fn start_worker(&self, cpu: u32, rest: Option<Rest>, sibling: Option<&EmulatedSibling>) -> Result<Worker> {
        Worker::start(&self.lab, cpu, self.scratch.path().join(format!("worker-{cpu}")), rest, sibling)
    }

    /// Measures one mechanism at one load, with or without a worker on the batch lane.
    fn measure_mechanism(
        &self,
        bounds: MechanismBounds,
        load_percent: u64,
        with_batch: bool,
        unit_ns: f64,
    ) -> Result<EmulationMeasurement> {
        let mut sibling = EmulatedSibling::start(self.place, &self.lab, bounds.carrier)?;
        let mut workers = vec![self.start_worker(
            self.place.request,
            Some(rest_between_bursts(load_percent, unit_ns)),
            Some(&sibling),
        )?];
        if with_batch {
            workers.push(self.start_worker(self.place.batch, None, Some(&sibling))?);
        }
        let mut achieved = EmulationMeasurement {
            wanted: bounds,
            load_percent,
            beside: with_batch,
            lost_percent: Default::default(),
            report: None,
        };
        let mut before = self.work_shares(bounds.loss, &workers);
        let pair = |achieved: &mut EmulationMeasurement, _: Turn<'_>| {
            sibling.begin(ASKED)?;
            thread::sleep(SETTLE);
            let began = sibling.report()?;
            let with = self.work_shares(bounds.loss, &workers);
            let ended = sibling.report()?;
            sibling.end()?;
            thread::sleep(SETTLE);
            let after = self.work_shares(bounds.loss, &workers);
            achieved.add_pair(&[&before, &with, &after], &began, ended);
            before = after;
            Ok(())
        };
        run_until_decided(&achieved.name(), self.limit, &mut achieved, pair, EmulationMeasurement::checks)?;
        Ok(achieved)
    }

    /// Returns the share of a stretch in which each worker worked.
    fn work_shares(&self, loss: LossSource, workers: &[Worker]) -> Vec<Option<f64>> {
        let before: Vec<_> = workers.iter().map(Worker::read_counters).collect();
        thread::sleep(STRETCH);
        workers
            .iter()
            .zip(before)
            .map(|(worker, before)| worker.read_counters().work_share_since(before, loss))
            .collect()
    }
}

/// Returns bursts of a millisecond, with enough sleep between them that the lane is busy for `load_percent` of its
/// time.
fn rest_between_bursts(load_percent: u64, unit_ns: f64) -> Rest {
    let idle_ns = BURST_NS * (100.0 / load_percent as f64 - 1.0);
    Rest { after_units: (BURST_NS / unit_ns).max(1.0) as u64, length: Duration::from_nanos(idle_ns as u64) }
}

/// Returns by how many percent the work share with the sibling is below the mean of the shares before and after it.
fn loss_percent(before: Option<f64>, with: Option<f64>, after: Option<f64>) -> Option<f64> {
    let without = (before? + after?) / 2.0;
    Some(100.0 * (1.0 - with? / without))
}

/// Figures of a lane between two reports of the emulator.
struct LaneReportDelta {
    /// Share of the lane's work in which the other lane worked too.
    beside: f64,
    /// Share of time that the kernel program spent in context switches.
    switching: f64,
}

impl LaneReportDelta {
    fn between(began: &LaneReport, ended: &LaneReport) -> Self {
        let worked_ns = (ended.worked_ns - began.worked_ns).max(1) as f64;
        let switches = (ended.switches - began.switches) as f64;
        Self {
            beside: (ended.both_ns - began.both_ns) as f64 / worked_ns,
            switching: switches * ended.switch_ns.unwrap_or(0.0) / worked_ns,
        }
    }

    /// Returns the loss per time of overlap, in percent.
    fn loss_per_overlap_percent(&self, loss_percent: f64) -> f64 {
        loss_percent / self.beside
    }

    /// Returns the part of the loss that the emulator was not asked to cause, in percent.
    fn unrequested_loss_percent(&self, loss_percent: f64) -> f64 {
        loss_percent - ASKED_PERCENT * self.beside + 100.0 * self.switching
    }
}

impl EmulationMeasurement {
    fn name(&self) -> String {
        let beside = if self.beside { "beside batch" } else { "beside an idle lane" };
        format!("{}, {beside}", self.wanted.name)
    }

    /// Adds a pair of stretches: the work shares before, with and after the sibling, and the emulator's reports at the
    /// start and the end.
    fn add_pair(&mut self, shares: &[&[Option<f64>]; 3], began: &[LaneReport; 2], ended: [LaneReport; 2]) {
        let [before, with, after] = shares;
        for (lane, lost) in self.lost_percent.iter_mut().enumerate().take(before.len()) {
            let between = LaneReportDelta::between(&began[lane], &ended[lane]);
            let percent = loss_percent(before[lane], with[lane], after[lane]);
            lost.extend(percent.map(|percent| match self.beside {
                true => between.loss_per_overlap_percent(percent),
                false => between.unrequested_loss_percent(percent),
            }));
        }
        self.report = Some(ended);
    }

    pub(super) fn row(&self) -> Row {
        let lost = |lane: usize| median(self.lost_percent[lane].iter().copied());
        let report = |figure: &dyn Fn(&[LaneReport; 2]) -> Option<f64>| self.report.as_ref().and_then(figure);
        let mut row = Row::new(self.name());
        row.put("load_percent", self.load_percent as f64);
        row.put("service_lost_percent", lost(0).filter(|_| self.beside)).put("batch_lost_percent", lost(1));
        row.put("cost_percent", lost(0).filter(|_| !self.beside));
        row.put("service_slowdown_ratio", report(&|lanes| lanes[0].slowdown));
        row.put("batch_slowdown_ratio", report(&|lanes| lanes[1].slowdown));
        row.put("wake_ups_count", report(&|lanes| Some((lanes[0].wake_ups + lanes[1].wake_ups) as f64)));
        row.put("per_switch_ns", report(&|lanes| lanes[0].switch_ns));
        row
    }

    pub(super) fn checks(&self) -> Vec<Check> {
        let lost = |lane: usize| median_interval(self.lost_percent[lane].iter().copied());
        if !self.beside {
            let name = format!("{}: what it costs the service beside an idle lane", self.wanted.name);
            return vec![Check::interval_at_most(name, lost(0), self.wanted.cost_percent, Unit::Percent)];
        }
        let check = |who: &str, lost: Option<Interval>| {
            let (carrier, load) = (self.wanted.name, self.load_percent);
            let name = format!(
                "{carrier}, request lane {load} % busy: what {who} loses is off the {ASKED_PERCENT} % asked by"
            );
            Check::interval_at_most(name, lost.map(distance_from_requested), self.wanted.within_percent, Unit::Percent)
        };
        vec![check("the service", lost(0)), check("batch", lost(1))]
    }
}

/// Returns the distance of a loss from the requested one, in either direction.
fn distance_from_requested(lost_percent: Interval) -> Interval {
    let above = lost_percent.map(|percent| percent - ASKED_PERCENT);
    above.max(lost_percent.map_decreasing(|percent| ASKED_PERCENT - percent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_length_follows_from_the_load() {
        let half = rest_between_bursts(50, 5_000.0);
        assert_eq!((half.after_units, half.length), (200, Duration::from_millis(1)));
        assert_eq!(rest_between_bursts(80, 5_000.0).length, Duration::from_micros(250));
    }

    #[test]
    fn lost_time_is_relative_to_work_without_sibling() {
        assert_eq!(loss_percent(Some(0.75), Some(0.5), Some(1.25)), Some(50.0));
        assert_eq!(loss_percent(Some(1.0), None, Some(1.0)), None);
    }

    #[test]
    fn requested_lost_time_is_not_part_of_the_cost() {
        let report = |worked_ns, both_ns, switches| LaneReport {
            worked_ns,
            both_ns,
            slowdown: None,
            spun_ns: 0,
            taken_ns: 0,
            wake_ups: 0,
            switches,
            switch_ns: Some(200.0),
        };
        let between = LaneReportDelta::between(&report(1_000, 500, 10), &report(101_000, 25_500, 15));
        assert_eq!((between.beside, between.switching), (0.25, 0.01));
        assert_eq!((between.loss_per_overlap_percent(10.0), between.unrequested_loss_percent(10.5)), (40.0, 1.5));
    }

    #[test]
    fn too_much_lost_time_is_as_wrong_as_too_little() {
        for lost_percent in [37.0, 43.0] {
            assert_eq!(distance_from_requested(Interval::exact(lost_percent)).measured, 3.0);
        }
        let both_sides = median_interval([36.0, 39.0, 39.5, 40.5, 41.0, 43.0]).map(distance_from_requested).unwrap();
        assert_eq!((both_sides.measured, both_sides.high), (0.0, Some(4.0)));
    }

    #[test]
    fn requested_loss_percent_matches_the_slowdown() {
        assert!((ASKED.service_loss_percent() - ASKED_PERCENT).abs() < 1e-9);
        assert!((ASKED.batch_loss_percent() - ASKED_PERCENT).abs() < 1e-9);
    }
}
