//! `sidelane bench hold`: what watching and holding lanes costs the service, and what leaks.
//!
//! Costs are paired: two processes, one of them the service, hand the request lane to each
//! other a fixed number of times, alternately with and without what is to be priced, and the
//! difference is divided by how often it happened. The lane is never idle, so nothing hides in
//! idle time, and the service's own CPU is the waker, which is the dearest case: a waker on
//! another CPU (a network interrupt, a client) pays for the summons itself.

use std::ffi::OsString;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Map, json};
use sidelane_policy::borrow::BorrowConfig;
use sidelane_signal::LaneClass;

use super::floor::Floor;
use super::median::median;
use crate::lab::{Lab, Service};
use crate::lane::batch::BatchClass;
use crate::lane::beside::{Beside, keep_off};
use crate::lane::books::{Books, reaction_figures};
use crate::lane::gate::Gate;
use crate::lane::holder::HolderBooks;
use crate::lane::service::Target;
use crate::lane::session::{Session, SessionOptions};
use crate::lane::terms::Lending;
use crate::lane::topology::{Lanes, Topology};
use crate::lane::tracker::{ServiceCgroup, Tracker};
use crate::machine;
use crate::report::{Check, ResultFile, Row, Unit};

/// Two context switches and two wake-ups.
const SWITCHES_PER_BOUNCE: f64 = 2.0;
const TRACKED_BOUNCES: u64 = 10_000;
/// Each side works about 30 µs, so that a hold begins and ends in each bounce.
const HELD_WORK: u64 = 100_000;
const HELD_BOUNCES: u64 = 1_000;
/// Longer than any idle moment between two bounces: one hold lasts through all of them.
const LASTING_MIN_IDLE_NS: u64 = 10_000_000;
const LONG_HOLD: Duration = Duration::from_secs(10);
const PULSES: Duration = Duration::from_secs(3);

const TRACKING_LIMIT_NS: f64 = 100.0;
const HOLD_LIMIT_US: f64 = 3.0;
const LEAK_LIMIT_PERCENT: f64 = 0.1;
const PULSES_OVERLAP_LIMIT_PERCENT: f64 = 5.0;
const PULSES_SHARE_LIMIT_PERCENT: f64 = 60.0;

/// Measures everything. `quick` takes fewer pairs.
pub fn run(lanes: &str, quick: bool) -> Result<ResultFile> {
    let scratch = tempfile::tempdir().context("cannot make a directory for scratch files")?;
    let pair = Topology::read(Path::new("/sys"))?.declared_pairs(lanes)?;
    let bench = Bench { pair, lab: Lab::find()?, lanes, pairs: if quick { 11 } else { 41 }, scratch };
    let mut settings = Map::new();
    settings.insert("lanes".into(), json!(lanes));
    settings.insert("pairs_count".into(), json!(bench.pairs));
    let mut result = ResultFile::new(machine::describe(bench.pair.kind), settings);
    let (tracking_ns, floor_ns) = bench.tracking_ns().context("tracking cost")?;
    result.rows.push(row("tracking", &[("per_switch_ns", tracking_ns)]));
    result.rows.push(row("empty_programs", &[("per_switch_ns", floor_ns)]));
    let hold_us = bench.hold_us().context("cost of a hold")?;
    result.rows.push(row("hold_begun", &[("lc_cost_per_hold_us", hold_us)]));
    let leak_percent = bench.long_hold(&mut result).context("long hold")?;
    let (overlap_percent, share_percent) = bench.reactions(&mut result).context("reactions")?;
    result.checks = vec![
        Check::at_most("tracking, per context switch of the request lane", tracking_ns, TRACKING_LIMIT_NS, Unit::Ns),
        Check::at_most("hold begun by the request lane's own CPU", hold_us, HOLD_LIMIT_US, Unit::Us),
        Check::at_most("leak in a hold of 10 s", leak_percent, LEAK_LIMIT_PERCENT, Unit::Percent),
        Check::at_most("overlap with pulses of 200 µs", overlap_percent, PULSES_OVERLAP_LIMIT_PERCENT, Unit::Percent),
        Check::at_least("idle time between them", share_percent, PULSES_SHARE_LIMIT_PERCENT, Unit::Percent),
    ];
    Ok(result)
}

fn row(setting: &str, figures: &[(&str, Option<f64>)]) -> Row {
    let mut row = Row::new(setting);
    for (key, value) in figures {
        row.put(key, *value);
    }
    row
}

struct Bench<'a> {
    lab: Lab,
    lanes: &'a str,
    pair: Lanes,
    pairs: usize,
    scratch: tempfile::TempDir,
}

impl Bench<'_> {
    /// What the tracker adds to one context switch and the wake-up that goes with it; and what
    /// the kernel alone charges for calling programs there.
    fn tracking_ns(&self) -> Result<(Option<f64>, Option<f64>)> {
        let mut bouncer = self.bouncer(0)?;
        let beside = Beside::find(Target::Pid(bouncer.pid()), Some(self.lanes), false)?;
        let mut tracker = Tracker::load(&beside.lanes, ServiceCgroup::default())?;
        let floor = Floor::load()?;
        tracker.set_class(bouncer.pid(), LaneClass::Lc);
        keep_off(&beside.lanes.requests)?;
        let (mut tracked_ns, mut floor_ns) = (Vec::new(), Vec::new());
        let per_switch = |with: f64, without: f64| (with - without) / (TRACKED_BOUNCES as f64 * SWITCHES_PER_BOUNCE);
        for _ in 0..self.pairs {
            let without = bounce(&mut bouncer, TRACKED_BOUNCES)?;
            tracker.attach()?;
            let tracked = bounce(&mut bouncer, TRACKED_BOUNCES)?;
            tracker.detach();
            let links = floor.attach()?;
            let floored = bounce(&mut bouncer, TRACKED_BOUNCES)?;
            drop(links);
            tracked_ns.push(per_switch(tracked, without));
            floor_ns.push(per_switch(floored, without));
        }
        Ok((median(tracked_ns), median(floor_ns)))
    }

    /// What a hold that begins costs the request lane that rings for it: bounces with a hold at
    /// each, against bounces under a single hold that lasts. The batch lane is busy in both.
    fn hold_us(&self) -> Result<Option<f64>> {
        let mut bouncer = self.bouncer(HELD_WORK)?;
        let mut added_us = Vec::new();
        for _ in 0..self.pairs {
            let (lasting_ns, _) = self.bounce_beside(&mut bouncer, LASTING_MIN_IDLE_NS)?;
            let (each_ns, holds) = self.bounce_beside(&mut bouncer, BorrowConfig::default().min_idle_ns)?;
            added_us.push((each_ns - lasting_ns) / holds.max(1) as f64 / 1e3);
        }
        Ok(median(added_us))
    }

    /// Time of the bounces, and how many holds the request lane began meanwhile.
    fn bounce_beside(&self, bouncer: &mut Service, min_idle_ns: u64) -> Result<(f64, u64)> {
        let mut session = self.session(bouncer.pid(), min_idle_ns)?;
        bounce(bouncer, HELD_BOUNCES / 10)?;
        let before = session.memory().books();
        let took_ns = bounce(bouncer, HELD_BOUNCES)?;
        let holds = session.memory().books().since(&before).sum(|lane| lane.lc_summons);
        session.kill();
        session.end()?;
        Ok((took_ns, holds))
    }

    /// The service busy for ten seconds without a break, batch always ready to run.
    fn long_hold(&self, result: &mut ResultFile) -> Result<Option<f64>> {
        let busy_us = (LONG_HOLD + Duration::from_secs(3)).as_micros().to_string();
        let (spent, holders) = self.watch_pulse([&busy_us, "1000", "1"], LONG_HOLD)?;
        let leak_percent = spent.overlap_percent(&self.pair);
        result.rows.push(row(
            "long_hold",
            &[
                ("lc_busy_s", Some(spent.lc_ns(&self.pair) as f64 / 1e9)),
                ("leak_percent", leak_percent),
                ("evictions_count", Some(holders.evictions as f64)),
            ],
        ));
        Ok(leak_percent)
    }

    /// Reactions to a service that a timer on its own CPU wakes; returns the overlap and batch's share of the
    /// idle time.
    fn reactions(&self, result: &mut ResultFile) -> Result<(Option<f64>, Option<f64>)> {
        let (spent, _) = self.watch_pulse(["200", "600", "1000000"], PULSES)?;
        let overlap_percent = spent.overlap_percent(&self.pair);
        let share_percent = spent.batch_share_of_idle_percent(&self.pair);
        let mut figures = vec![("overlap_percent", overlap_percent), ("batch_share_of_idle_percent", share_percent)];
        figures.extend(reaction_figures(spent.reaction_off(), spent.reaction_on()));
        result.rows.push(row("pulses_woken_by_own_timer", &figures));
        Ok((overlap_percent, share_percent))
    }

    /// What the kernel counted in `length` of batch beside a pulse, and what the holders did.
    /// The rhythm: busy and idle microseconds, and how often.
    fn watch_pulse(&self, rhythm: [&str; 3], length: Duration) -> Result<(Books, HolderBooks)> {
        let (cpu, [busy_us, idle_us, count]) = (self.request_lane(), rhythm);
        let options = ["--cpu", &cpu, "--busy-us", busy_us, "--idle-us", idle_us, "--count", count];
        let pulse = self.lab.start(["pulse"].into_iter().chain(options))?;
        let mut session = self.session(pulse.pid(), BorrowConfig::default().min_idle_ns)?;
        let before = session.memory().books();
        thread::sleep(length);
        let spent = session.memory().books().since(&before);
        session.kill();
        Ok((spent, session.end()?.holders))
    }

    fn bouncer(&self, work: u64) -> Result<Service> {
        let cpu = self.request_lane();
        self.lab.start(["bounce", "--cpu", &cpu, "--work", &work.to_string()])
    }

    fn request_lane(&self) -> String {
        self.lanes.split(':').next().unwrap_or_default().to_owned()
    }

    fn session(&self, service: u32, min_idle_ns: u64) -> Result<Session> {
        let mut beside = Beside::find(Target::Pid(service), Some(self.lanes), false)?;
        // Of two bouncing processes the parent is the service, its child a bystander.
        beside.service.pids.retain(|pid| *pid == service);
        let options = SessionOptions {
            class: BatchClass::Idle,
            hold: Some(Lending {
                config: BorrowConfig { min_idle_ns, ..BorrowConfig::default() },
                ..Lending::default()
            }),
            gate: Gate::Holder,
            audit: None,
        };
        let counter = self.scratch.path().join("counter");
        let command = ["batch", "loop", "--counter"].map(OsString::from);
        let command = [vec![self.lab.path().into()], command.to_vec(), vec![counter.into()]].concat();
        Session::start(beside, &command, options)
    }
}

fn bounce(bouncer: &mut Service, bounces: u64) -> Result<f64> {
    let answer = bouncer.ask(&bounces.to_string())?;
    answer.parse().with_context(|| format!("`{answer}` is not a time"))
}
