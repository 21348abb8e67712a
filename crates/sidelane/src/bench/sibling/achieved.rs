//! What work loses beside a lane that works, and beside one that does not.
//!
//! A worker on each lane; the sibling is switched on and off, and each stretch with it is compared with the mean of
//! the one before it and the one after it, so that what the two CPUs take from each other anyway, and how the
//! machine's speed drifts, is in both. What a worker lost in all, divided
//! by the share of its time in which the other lane worked, is what it loses for each moment of that.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::worker::{Clock, Rest, Worker};
use crate::bench::median::median;
use crate::experiment::place::Place;
use crate::experiment::sibling::{Carrier, LaneReport, Sibling, Slowdown};
use crate::lab::Lab;
use crate::report::{Check, Row, Unit};

/// What each lane is to lose beside the other.
pub(super) const ASKED_PERCENT: f64 = 40.0;
const ASKED: Slowdown = Slowdown { service: 5.0 / 3.0, batch: 5.0 / 3.0, nap: 1.0 };
/// How busy the request lane is while what was achieved is measured.
const LOADS_PERCENT: [u64; 3] = [30, 60, 90];
/// And while the cost is: a service that is never idle pays for everything.
const COST_LOAD_PERCENT: u64 = 90;
/// A worker works so long at a time: some requests.
const BURST_NS: f64 = 1_000_000.0;
/// The first slices are taken by then, and the wake-ups have become rare where nothing overlaps.
const SETTLE: Duration = Duration::from_millis(30);

/// A carrier, and what is wanted of it.
#[derive(Clone, Copy)]
struct Wanted {
    carrier: Carrier,
    name: &'static str,
    clock: Clock,
    /// How near it has to come to what was asked.
    within_percent: f64,
    /// What it may cost a lane beside an idle one.
    cost_percent: f64,
}

const CARRIERS: [Wanted; 2] = [
    Wanted {
        carrier: Carrier::BuiltIn,
        name: "built in",
        clock: Clock::OwnTime,
        within_percent: 2.0,
        cost_percent: 0.5,
    },
    Wanted { carrier: Carrier::Thief, name: "thief", clock: Clock::BurstTime, within_percent: 5.0, cost_percent: 3.0 },
];

/// One carrier at one load.
pub(super) struct Achieved {
    wanted: Wanted,
    load_percent: u64,
    /// What the service and batch lost for each moment beside the other; nothing where the other one was idle.
    lost_percent: [Option<f64>; 2],
    /// What the service lost beside an idle lane.
    cost_percent: Option<f64>,
    /// The emulator's own account of the last stretch.
    report: [LaneReport; 2],
}

/// How long and how often.
#[derive(Clone, Copy)]
struct Pace {
    stretch: Duration,
    pairs: usize,
}

pub(super) fn run(place: Place, quick: bool) -> Result<Vec<Achieved>> {
    let bench = Bench {
        place,
        lab: Lab::find()?,
        scratch: tempfile::tempdir().context("cannot make a directory for scratch files")?,
        pace: Pace { stretch: Duration::from_millis(150), pairs: if quick { 9 } else { 41 } },
    };
    let unit_ns = bench.unit_ns()?;
    let mut achieved = Vec::new();
    for wanted in CARRIERS {
        for load_percent in LOADS_PERCENT {
            achieved.push(bench.beside(wanted, load_percent, unit_ns)?);
        }
        achieved.push(bench.cost(wanted, unit_ns)?);
    }
    Ok(achieved)
}

struct Bench {
    place: Place,
    lab: Lab,
    scratch: tempfile::TempDir,
    pace: Pace,
}

impl Bench {
    /// What a unit of work takes.
    fn unit_ns(&self) -> Result<f64> {
        let worker = self.worker(self.place.request, None, None)?;
        let before = worker.done();
        thread::sleep(self.pace.stretch);
        worker.done().speed_since(before, Clock::OwnTime).map(|speed| 1.0 / speed).context("a worker did nothing")
    }

    fn worker(&self, cpu: u32, rest: Option<Rest>, sibling: Option<&Sibling>) -> Result<Worker> {
        Worker::start(&self.lab, cpu, self.scratch.path().join(format!("worker-{cpu}")), rest, sibling)
    }

    fn beside(&self, wanted: Wanted, load_percent: u64, unit_ns: f64) -> Result<Achieved> {
        let mut sibling = Sibling::start(self.place, &self.lab, wanted.carrier)?;
        let service = self.worker(self.place.request, Some(rest(load_percent, unit_ns)), Some(&sibling))?;
        let batch = self.worker(self.place.batch, None, Some(&sibling))?;
        let (lost, report) = self.pairs(&mut sibling, wanted.clock, &[&service, &batch])?;
        let lost_percent = [0, 1].map(|lane| median(lost[lane].iter().copied()));
        Ok(Achieved { wanted, load_percent, lost_percent, cost_percent: None, report })
    }

    fn cost(&self, wanted: Wanted, unit_ns: f64) -> Result<Achieved> {
        let mut sibling = Sibling::start(self.place, &self.lab, wanted.carrier)?;
        let service = self.worker(self.place.request, Some(rest(COST_LOAD_PERCENT, unit_ns)), Some(&sibling))?;
        let (lost, report) = self.pairs(&mut sibling, wanted.clock, &[&service])?;
        let cost_percent = median(lost[0].iter().copied());
        Ok(Achieved { wanted, load_percent: COST_LOAD_PERCENT, lost_percent: [None; 2], cost_percent, report })
    }

    /// What each worker lost in each pair of stretches, in percent: of the time beside the other lane if there are two.
    fn pairs(
        &self,
        sibling: &mut Sibling,
        clock: Clock,
        workers: &[&Worker],
    ) -> Result<(Vec<Vec<f64>>, [LaneReport; 2])> {
        let mut lost = vec![Vec::new(); workers.len()];
        let mut last = None;
        let mut before = self.speeds(clock, workers);
        for _ in 0..self.pace.pairs {
            sibling.begin(ASKED)?;
            let with = self.speeds(clock, workers);
            let report = sibling.report()?;
            sibling.end()?;
            let after = self.speeds(clock, workers);
            for (lane, lost) in lost.iter_mut().enumerate() {
                let share = if workers.len() == 2 { share_beside(&report[lane]) } else { 1.0 };
                lost.extend(loss_percent(before[lane], with[lane], after[lane]).map(|percent| percent / share));
            }
            (before, last) = (after, Some(report));
        }
        Ok((lost, last.context("no pairs")?))
    }

    fn speeds(&self, clock: Clock, workers: &[&Worker]) -> Vec<Option<f64>> {
        thread::sleep(SETTLE);
        let before: Vec<_> = workers.iter().map(|worker| worker.done()).collect();
        thread::sleep(self.pace.stretch);
        workers.iter().zip(before).map(|(worker, before)| worker.done().speed_since(before, clock)).collect()
    }
}

/// Bursts of a millisecond with so much sleep between them that the lane is busy for `load_percent` of its time.
fn rest(load_percent: u64, unit_ns: f64) -> Rest {
    let idle_ns = BURST_NS * (100.0 / load_percent as f64 - 1.0);
    Rest { after_units: (BURST_NS / unit_ns).max(1.0) as u64, length: Duration::from_nanos(idle_ns as u64) }
}

/// What is missing of the speed without the sibling.
fn loss_percent(before: Option<f64>, with: Option<f64>, after: Option<f64>) -> Option<f64> {
    let without = (before? + after?) / 2.0;
    Some(100.0 * (1.0 - with? / without))
}

fn share_beside(lane: &LaneReport) -> f64 {
    lane.both_ns as f64 / lane.worked_ns as f64
}

impl Achieved {
    pub(super) fn row(&self) -> Row {
        let beside = if self.cost_percent.is_some() { "beside an idle lane" } else { "beside batch" };
        let mut row = Row::new(format!("{}, {beside}", self.wanted.name));
        row.put("load_percent", self.load_percent as f64);
        row.put("service_lost_percent", self.lost_percent[0]).put("batch_lost_percent", self.lost_percent[1]);
        row.put("cost_percent", self.cost_percent);
        row.put("service_slowdown_ratio", self.report[0].slowdown).put("batch_slowdown_ratio", self.report[1].slowdown);
        row.put("wake_ups_count", (self.report[0].wake_ups + self.report[1].wake_ups) as f64);
        row.put("per_switch_ns", self.report[0].switch_ns);
        row
    }

    pub(super) fn checks(&self) -> Vec<Check> {
        if self.cost_percent.is_some() {
            let name = format!("{}: what it costs the service beside an idle lane", self.wanted.name);
            return vec![Check::at_most(name, self.cost_percent, self.wanted.cost_percent, Unit::Percent)];
        }
        let check = |who: &str, lost_percent: Option<f64>| {
            let (carrier, load) = (self.wanted.name, self.load_percent);
            let name = format!(
                "{carrier}, request lane {load} % busy: what {who} loses is off the {ASKED_PERCENT} % asked by"
            );
            Check::at_most(
                name,
                lost_percent.map(|lost| (lost - ASKED_PERCENT).abs()),
                self.wanted.within_percent,
                Unit::Percent,
            )
        };
        vec![check("the service", self.lost_percent[0]), check("batch", self.lost_percent[1])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_bursts_and_rests() {
        let half = rest(50, 5_000.0);
        assert_eq!((half.after_units, half.length), (200, Duration::from_millis(1)));
        assert_eq!(rest(80, 5_000.0).length, Duration::from_micros(250));
    }

    #[test]
    fn a_drift_of_the_machine_is_no_loss() {
        assert_eq!(loss_percent(Some(1.0), Some(0.75), Some(2.0)), Some(50.0));
        assert_eq!(loss_percent(Some(1.0), None, Some(2.0)), None);
    }

    #[test]
    fn what_is_asked_is_a_slowdown() {
        assert!((ASKED.service_loss_percent() - ASKED_PERCENT).abs() < 1e-9);
        assert!((ASKED.batch_loss_percent() - ASKED_PERCENT).abs() < 1e-9);
    }
}
