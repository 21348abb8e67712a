//! `sidelane-lab bench hold`: the cost of watching and holding lanes for the service, and the remaining overlap.
//!
//! Costs are measured in pairs. Two processes, one of them the service, alternate on the request lane a fixed number of
//! times. They do so in turn with and without the measured feature. The difference is divided by the number of its
//! uses. The lane is never idle, so no cost is hidden in idle time. The service's own CPU sends the wakeup, which is
//! the most expensive case: a waker on another CPU (a network interrupt, a client) would pay for the summons instead of
//! the service.

use std::ffi::OsString;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use sidelane_policy::borrow::{BorrowConfig, Lending};

use crate::bench::floor::EmptyPrograms;
use crate::experiment::comparison::Report;
use crate::programs::{LabBinary, LabProcess};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::service::{Service as Tracked, Target};
use sidelane_host::topology::{Lanes, Topology};
use sidelane_lanes::batch::BatchClass;
use sidelane_lanes::gate::{Gate, GateReason};
use sidelane_lanes::holder::KeeperCounts;
use sidelane_lanes::placement::Placement;
use sidelane_lanes::session::{Session, SessionOptions};
use sidelane_report::{Check, Interval, ResultFile, Row, Unit};
use sidelane_rollback::own_threads::keep_off_cpus;
use sidelane_stats::interval::{bootstrap_interval, median_interval};
use sidelane_stats::ranks::median;
use sidelane_stats::rounds::{Limit, RoundOptions, Turn, measure_until_decided, run_until_decided};
use sidelane_tracker::accounting::{Accounting, reaction_percentiles};
use sidelane_tracker::histogram::Histogram;
use sidelane_tracker::tracker::{LaneLending, Purpose};
use sidelane_tracker::tracking::{LaneUse, ServiceTracking};

/// Context switches in one bounce: a message from one thread to another and back. Each context switch follows a wakeup.
const SWITCHES_PER_BOUNCE: f64 = 2.0;
const TRACKED_BOUNCES: u64 = 10_000;
/// Loop rounds that each process works in a bounce, 65 µs on a fast CPU: long enough that a hold begins and ends in
/// each bounce.
const HELD_WORK: u64 = 500_000;
const HELD_BOUNCES: u64 = 1_000;
/// Idle time before a hold ends, longer than the gap between two bounces, so that one hold lasts through all of them. A
/// session with a longer wait evicts batch instead of holding it.
const LASTING_MIN_IDLE_NS: u64 = 1_000_000;
const LONG_HOLD: Duration = Duration::from_secs(10);
const PULSES: Duration = Duration::from_secs(3);

const TRACKING_LIMIT_NS: f64 = 100.0;
/// Largest ratio of the tracker's cost to that of empty programs, which is the kernel's own cost of calling any
/// program.
const TRACKING_OVER_EMPTY_LIMIT: f64 = 2.0;
/// Largest ratio of a context switch's cost with sixty services to that with one.
const CROWDED_OVER_ONE_LIMIT: f64 = 1.1;
const SERVICES: usize = 60;
const HOLD_LIMIT_US: f64 = 3.0;
const LEAK_LIMIT_PERCENT: f64 = 0.1;
const PULSES_OVERLAP_LIMIT_PERCENT: f64 = 5.0;
const PULSES_SHARE_LIMIT_PERCENT: f64 = 60.0;

/// Pairs of runs in a cost measurement: `first` pairs always, then more until the checks are decided, up to `rounds`
/// pairs or `time`.
const PAIRS: Limit = Limit { first: 41, rounds: 164, time: Duration::from_secs(90) };
const PAIRS_QUICK: Limit = Limit { first: 11, rounds: 44, time: Duration::from_secs(15) };
/// Number of parts into which a long hold is divided; the parts are its rounds.
const HOLD_PARTS: u32 = 10;
/// Number of parts into which the run with pulses is divided.
const PULSES_PARTS: u32 = 10;

/// Measures the costs of tracking and holds, the batch work that leaks through a long hold, and the reaction times.
pub fn run(lanes: &str, round_options: RoundOptions) -> Result<ResultFile> {
    let scratch = tempfile::tempdir().context("cannot make a directory for scratch files")?;
    let pair = Topology::read(Path::new("/sys"))?.declared_pairs(lanes)?;
    let limit = round_options.limit(PAIRS_QUICK, PAIRS);
    let bench = Bench { pair, lab: LabBinary::find()?, lanes, limit, scratch };
    let mut report = Report::with_settings(json!({ "lanes": lanes, "pairs_limit_count": limit.rounds }));
    let SwitchCost { tracking_ns, crowded_ns, floor_ns } = bench.measure_switch_cost().context("tracking cost")?;
    report.rows.push(cost_row("tracking", "per_switch_ns", &tracking_ns));
    report.rows.push(cost_row("tracking_60_services", "per_switch_ns", &crowded_ns));
    report.rows.push(cost_row("empty_programs", "per_switch_ns", &floor_ns));
    let hold_us = bench.measure_hold_cost_us().context("cost of a hold")?;
    report.rows.push(cost_row("hold_begun", "service_cost_per_hold_us", &hold_us));
    let leak_percent = bench.measure_long_hold(&mut report).context("long hold")?;
    let [overlap_percent, share_percent] = bench.measure_reactions(&mut report).context("reactions")?;
    report.checks = vec![
        tracking_check(&tracking_ns),
        tracking_over_empty_check(&tracking_ns, &floor_ns),
        many_services_check(&crowded_ns, &tracking_ns),
        hold_check(&hold_us),
        Check::interval_at_most("leak in a hold of 10 s", leak_percent, LEAK_LIMIT_PERCENT, Unit::Percent),
        Check::interval_at_most(
            "overlap with pulses of 200 µs",
            overlap_percent,
            PULSES_OVERLAP_LIMIT_PERCENT,
            Unit::Percent,
        ),
        Check::interval_at_least("idle time between them", share_percent, PULSES_SHARE_LIMIT_PERCENT, Unit::Percent),
    ];
    Ok(report.into_result_file(bench.pair.kind, round_options, limit.rounds))
}

fn tracking_check(per_switch_ns: &[f64]) -> Check {
    let name = "tracking, per context switch of the request lane";
    Check::interval_at_most(name, median_interval(per_switch_ns.iter().copied()), TRACKING_LIMIT_NS, Unit::Ns)
}

fn tracking_over_empty_check(tracking_ns: &[f64], floor_ns: &[f64]) -> Check {
    let name = "tracking, per context switch, over empty programs";
    Check::interval_at_most(name, median_ratio(tracking_ns, floor_ns), TRACKING_OVER_EMPTY_LIMIT, Unit::Ratio)
}

fn many_services_check(crowded_ns: &[f64], tracking_ns: &[f64]) -> Check {
    let name = "tracking with 60 services, per context switch, over one service";
    Check::interval_at_most(name, median_ratio(crowded_ns, tracking_ns), CROWDED_OVER_ONE_LIMIT, Unit::Ratio)
}

/// Returns the ratio of the medians of two costs over the same rounds.
fn median_ratio(numerator_ns: &[f64], denominator_ns: &[f64]) -> Option<Interval> {
    let pairs: Vec<(f64, f64)> = numerator_ns.iter().copied().zip(denominator_ns.iter().copied()).collect();
    bootstrap_interval(&pairs, |pairs| {
        let above = median(pairs.iter().map(|(above, _)| *above))?;
        let below = median(pairs.iter().map(|(_, below)| *below)).filter(|below| *below > 0.0)?;
        Some(above / below)
    })
}

fn hold_check(per_hold_us: &[f64]) -> Check {
    let name = "hold begun by the request lane's own CPU";
    Check::interval_at_most(name, median_interval(per_hold_us.iter().copied()), HOLD_LIMIT_US, Unit::Us)
}

fn cost_row(setting: &str, key: &str, pair_costs: &[f64]) -> Row {
    row(setting, &[(key, median(pair_costs.iter().copied())), ("pairs_count", Some(pair_costs.len() as f64))])
}

fn row(setting: &str, figures: &[(&str, Option<f64>)]) -> Row {
    let mut row = Row::new(setting);
    for (key, value) in figures {
        row.put(key, *value);
    }
    row
}

struct Bench<'a> {
    lab: LabBinary,
    lanes: &'a str,
    pair: Lanes,
    limit: Limit,
    scratch: tempfile::TempDir,
}

impl Bench<'_> {
    /// Returns the tracker's cost per context switch and wakeup, with one service and with sixty, and the kernel's own
    /// cost of calling programs there.
    fn measure_switch_cost(&self) -> Result<SwitchCost> {
        let mut bouncer = self.start_bouncer(0)?;
        let beside = Placement::find(Target::Pid(bouncer.pid()), Some(self.lanes), false)?;
        let served = Tracked::of_process(bouncer.pid());
        let purpose = Purpose::Lend { requests: false, lent: LaneLending::default() };
        let track = || ServiceTracking::with_own_tracker(&served, &beside.lanes, LaneUse::default(), purpose);
        let (one, first_of_sixty) = (track()?, track()?);
        let _others = self.add_sleeping_services(&first_of_sixty)?;
        let floor = EmptyPrograms::for_tracking()?;
        keep_off_cpus(&beside.lanes.request_lanes)?;
        let (mut floor_ns, mut crowded_ns) = (Vec::new(), Vec::new());
        let per_switch = |with: f64, without: f64| (with - without) / (TRACKED_BOUNCES as f64 * SWITCHES_PER_BOUNCE);
        let round = || {
            let without = measure_bounces_ns(&mut bouncer, TRACKED_BOUNCES)?;
            let tracked = measure_tracked_bounces_ns(&mut bouncer, &one)?;
            let crowded = measure_tracked_bounces_ns(&mut bouncer, &first_of_sixty)?;
            let links = floor.attach()?;
            let floored = measure_bounces_ns(&mut bouncer, TRACKED_BOUNCES)?;
            drop(links);
            floor_ns.push(per_switch(floored, without));
            crowded_ns.push(per_switch(crowded, without));
            Ok(per_switch(tracked, without))
        };
        let tracking_ns = measure_until_decided("tracking", self.limit, round, tracking_check)?;
        Ok(SwitchCost { tracking_ns, crowded_ns, floor_ns })
    }

    /// Adds more services to the same tracker, each a process that sleeps.
    fn add_sleeping_services(&self, first: &ServiceTracking) -> Result<Vec<(ServiceTracking, LabProcess)>> {
        let nowhere = Lanes::without_batch_lanes(CpuSet::default());
        let other = |_| {
            let sleeper = self.start_bouncer(0)?;
            let service = Tracked::of_process(sleeper.pid());
            let tracking = ServiceTracking::start(first.tracker(), &service, &nowhere, LaneUse::default())?;
            Ok((tracking, sleeper))
        };
        (1..SERVICES).map(other).collect()
    }

    /// Returns the cost of a hold for the request lane that sends the summons. Runs with a hold at each bounce are
    /// compared with runs under one hold for all bounces. The batch lane is busy in both. A pair of runs with few holds
    /// does not count.
    fn measure_hold_cost_us(&self) -> Result<Vec<f64>> {
        let mut bouncer = self.start_bouncer(HELD_WORK)?;
        let mut per_hold_us = Vec::new();
        let pair = |per_hold_us: &mut Vec<f64>, _: Turn<'_>| {
            let (lasting_ns, _) = self.measure_bounces_beside_batch(&mut bouncer, LASTING_MIN_IDLE_NS)?;
            let (each_ns, holds) =
                self.measure_bounces_beside_batch(&mut bouncer, BorrowConfig::default().min_idle_ns)?;
            let are_enough = 2 * holds > HELD_BOUNCES;
            per_hold_us.extend(are_enough.then(|| (each_ns - lasting_ns) / holds as f64 / 1e3));
            Ok(())
        };
        run_until_decided("holds", self.limit, &mut per_hold_us, pair, |per_hold_us| vec![hold_check(per_hold_us)])?;
        Ok(per_hold_us)
    }

    /// Returns the time of the bounces, and the number of holds that the request lane began during them.
    fn measure_bounces_beside_batch(&self, bouncer: &mut LabProcess, min_idle_ns: u64) -> Result<(f64, u64)> {
        let mut session = self.start_session(bouncer.ready_number("partner")?, min_idle_ns)?;
        measure_bounces_ns(bouncer, HELD_BOUNCES / 10)?;
        let before = session.memory().accounting();
        let took_ns = measure_bounces_ns(bouncer, HELD_BOUNCES)?;
        let holds = session.memory().accounting().since(&before).sum(|lane| lane.lc_summons);
        session.kill();
        session.end()?;
        Ok((took_ns, holds))
    }

    /// Measures how much batch runs in spite of a long hold. The service is busy for ten seconds without a pause, and
    /// batch is always runnable.
    fn measure_long_hold(&self, report: &mut Report) -> Result<Option<Interval>> {
        let busy_us = (LONG_HOLD + Duration::from_secs(3)).as_micros().to_string();
        let (parts, holders) = self.measure_beside_pulse([&busy_us, "1000", "1"], LONG_HOLD, HOLD_PARTS)?;
        let leak_percent = bootstrap_interval(&parts, |parts| {
            let sum = |of: &dyn Fn(&Accounting) -> u64| parts.iter().map(|part| of(part)).sum::<u64>() as f64;
            let lc_ns = sum(&|part| part.service_ns(&self.pair));
            (lc_ns > 0.0).then(|| sum(&|part| part.sum(|lane| lane.overlap_ns)) * 100.0 / lc_ns)
        });
        let lc_ns: u64 = parts.iter().map(|part| part.service_ns(&self.pair)).sum();
        report.rows.push(row(
            "long_hold",
            &[
                ("service_busy_s", Some(lc_ns as f64 / 1e9)),
                ("leak_percent", leak_percent.map(|leak| leak.measured)),
                ("evictions_count", Some(holders.evictions as f64)),
            ],
        ));
        Ok(leak_percent)
    }

    /// Measures reactions to a service that a timer on its own CPU wakes. Returns the overlap and batch's share of the
    /// idle time.
    fn measure_reactions(&self, report: &mut Report) -> Result<[Option<Interval>; 2]> {
        let (parts, _) = self.measure_beside_pulse(["200", "600", "1000000"], PULSES, PULSES_PARTS)?;
        let median = |figure: &dyn Fn(&Accounting) -> Option<f64>| median_interval(parts.iter().filter_map(figure));
        let overlap_percent = median(&|part| part.overlap_percent(&self.pair));
        let share_percent = median(&|part| part.batch_share_of_idle_percent(&self.pair));
        let worst = |figure: &dyn Fn(&Accounting) -> Option<f64>| parts.iter().filter_map(figure).reduce(f64::max);
        let mut figures = vec![
            ("overlap_percent", overlap_percent.map(|overlap| overlap.measured)),
            ("batch_share_of_idle_percent", share_percent.map(|share| share.measured)),
            ("stolen_percent", worst(&|part| part.stolen_percent(&self.pair))),
            ("stolen_gap_max_us", worst(&|part| part.stolen_gap_max_us(&self.pair))),
        ];
        let (mut off, mut on) = (Histogram::default(), Histogram::default());
        for part in &parts {
            off.add(part.batch_off_latencies());
            on.add(part.batch_on_latencies());
        }
        figures.extend(reaction_percentiles(&off, &on));
        report.rows.push(row("pulses_woken_by_own_timer", &figures));
        Ok([overlap_percent, share_percent])
    }

    /// Runs batch beside a service that pulses, for `part_count` parts of `length`. Returns the lane accounting of each
    /// part, and the keeper's counts. `pulse_options` are the busy and the idle microseconds of a pulse, and the number
    /// of pulses.
    fn measure_beside_pulse(
        &self,
        pulse_options: [&str; 3],
        length: Duration,
        part_count: u32,
    ) -> Result<(Vec<Accounting>, KeeperCounts)> {
        let (cpu, [busy_us, idle_us, count]) = (self.request_lane(), pulse_options);
        let options = ["--cpu", &cpu, "--busy-us", busy_us, "--idle-us", idle_us, "--count", count];
        let pulse = self.lab.start(["pulse"].into_iter().chain(options))?;
        let mut session = self.start_session(pulse.pid(), BorrowConfig::default().min_idle_ns)?;
        let mut before = session.memory().accounting();
        let mut spent = Vec::new();
        for _ in 0..part_count {
            thread::sleep(length / part_count);
            let now = session.memory().accounting();
            spent.push(now.since(&before));
            before = now;
        }
        session.kill();
        Ok((spent, session.end()?.holders))
    }

    fn start_bouncer(&self, work: u64) -> Result<LabProcess> {
        let cpu = self.request_lane();
        self.lab.start(["bounce", "--cpu", &cpu, "--work", &work.to_string()])
    }

    fn request_lane(&self) -> String {
        self.lanes.split(':').next().unwrap_or_default().to_owned()
    }

    /// Starts a session with holders that wait for `min_idle_ns`.
    fn start_session(&self, service_pid: u32, min_idle_ns: u64) -> Result<Session> {
        let beside = Placement::find(Target::Pid(service_pid), Some(self.lanes), false)?;
        let options = SessionOptions {
            class: BatchClass::Idle,
            hold: Some(Lending {
                config: BorrowConfig { min_idle_ns, ..BorrowConfig::default() },
                ..Lending::default()
            }),
            gate: Gate::Holder,
            gate_reason: GateReason::Asked,
            max_overlap_ppm: None,
            audit: None,
            max_slowdown: None,
            quiet: false,
            allow_realtime: false,
        };
        let counter = self.scratch.path().join("counter");
        let command = ["batch", "loop", "--counter"].map(OsString::from);
        let command = [vec![self.lab.path().into()], command.to_vec(), vec![counter.into()]].concat();
        Session::start(vec![beside], &command, options)
    }
}

/// Costs of a context switch in nanoseconds, all measured in the same rounds.
struct SwitchCost {
    tracking_ns: Vec<f64>,
    crowded_ns: Vec<f64>,
    floor_ns: Vec<f64>,
}

fn measure_tracked_bounces_ns(bouncer: &mut LabProcess, tracking: &ServiceTracking) -> Result<f64> {
    tracking.tracker().attach()?;
    let took_ns = measure_bounces_ns(bouncer, TRACKED_BOUNCES);
    tracking.tracker().detach();
    took_ns
}

fn measure_bounces_ns(bouncer: &mut LabProcess, bounce_count: u64) -> Result<f64> {
    let answer = bouncer.query(&bounce_count.to_string())?;
    answer.parse().with_context(|| format!("`{answer}` is not a time"))
}
