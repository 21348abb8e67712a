//! The state of the view: what was seen in the last seconds, and what the user has chosen. It changes only by frames
//! and keys, so a test can draw any state.

use std::collections::{BTreeMap, VecDeque};

use sidelane_agent::status::{CpuStatus, LaneStatus, Snapshot};
use sidelane_host::cpulist::CpuSet;
use sidelane_report::perfetto::TraceBuilder;

use crate::recording::Frame;

/// Number of frames that are kept: 30 s at 10 frames a second.
pub const KEPT: usize = 300;
/// Number of the last frames over which shares and rates are averaged: a second.
const RECENT: usize = 10;
const NS_PER_MS: u64 = 1_000_000;

/// Use of a lane. A strip stacks the uses in this order, from the bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The service ran.
    Request,
    /// Batch ran.
    Batch,
    /// Another program, the kernel or an interrupt ran.
    Other,
    /// The lane was kept free of batch.
    Held,
    /// The hypervisor took the lane.
    Stolen,
    /// Nothing ran.
    Idle,
}

impl Use {
    /// All uses, in their order.
    pub const ALL: [Self; 6] = [Self::Request, Self::Batch, Self::Other, Self::Held, Self::Stolen, Self::Idle];

    /// Returns the name of the use.
    pub fn name(self) -> &'static str {
        ["request", "batch", "other", "held", "stolen", "idle"][self as usize]
    }
}

/// Times of a lane in one frame, by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mix([u64; 6]);

impl Mix {
    /// Returns the time of a use.
    pub fn time(&self, of: Use) -> u64 {
        self.0[of as usize]
    }

    /// Returns all time.
    pub fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// Returns the share of a use, 0 to 1.
    pub fn share(&self, of: Use) -> f64 {
        self.time(of) as f64 / self.sum().max(1) as f64
    }

    /// Returns the two longest uses, in the order of the strip, with the share of the first in both.
    pub fn two_longest(&self) -> (Use, Use, f64) {
        // Computed for each column of each lane, at each frame.
        let (mut one, mut two) = (Use::ALL[0], Use::ALL[1]);
        if self.time(two) > self.time(one) {
            (one, two) = (two, one);
        }
        for of in Use::ALL.into_iter().skip(2) {
            if self.time(of) > self.time(one) {
                (one, two) = (of, one);
            } else if self.time(of) > self.time(two) {
                two = of;
            }
        }
        let (low, high) = if (one as usize) < two as usize { (one, two) } else { (two, one) };
        let both = self.time(low).saturating_add(self.time(high)).max(1);
        (low, high, self.time(low) as f64 / both as f64)
    }

    fn plus(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|index| self.0[index].saturating_add(other.0[index])))
    }

    /// Returns the times between two snapshots of a lane; `None` if the lane's times began again.
    fn between(then: &LaneStatus, now: &LaneStatus) -> Option<Self> {
        let times = |lane: &LaneStatus| {
            [lane.service_ns, lane.batch_ns, lane.other_ns, lane.held_ns, lane.stolen_ns, lane.idle_ns]
        };
        let (then, now) = (times(then), times(now));
        // Times of one moment are read one after the other, so a short one may go back a little.
        let all = |times: [u64; 6]| times.into_iter().fold(0, u64::saturating_add);
        let mix = Self(std::array::from_fn(|index| now[index].saturating_sub(then[index])));
        (all(now) > all(then) && mix.sum() > 0).then_some(mix)
    }

    fn of_cpu(cpu: &CpuStatus) -> Self {
        let parts = |percent: f64| (percent.clamp(0.0, 100.0) * 1e4) as u64;
        let (service, batch) = (parts(cpu.service_percent), parts(cpu.batch_percent));
        let other = parts(cpu.busy_percent).saturating_sub(service + batch);
        let idle = parts(100.0).saturating_sub(service + batch + other);
        Self([service, batch, other, 0, 0, idle])
    }
}

/// Lane or CPU, with its recent past.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// Number of the CPU.
    pub cpu: u32,
    /// Role: `request` or `batch`; empty for a CPU that is no lane.
    pub role: String,
    /// Name of the service; empty for a CPU that is no lane.
    pub service: String,
    /// Reason why batch may not run on the lane now.
    pub held_because: Option<String>,
    /// First request lane of its core, by which lanes are sorted.
    core: u32,
    last: Option<LaneStatus>,
    /// Times of each frame, the newest last; `None` if unknown.
    pub past: VecDeque<Option<Mix>>,
}

impl Lane {
    /// Returns the times of the last second.
    pub fn recent(&self) -> Mix {
        let last = self.past.iter().rev().take(RECENT).flatten();
        last.fold(Mix::default(), |sum, mix| sum.plus(mix))
    }
}

/// Order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// By core, then by name.
    #[default]
    Core,
    /// By batch, the most first.
    Batch,
    /// By use by services, the most first.
    Service,
}

impl Sort {
    /// Returns the next order.
    pub fn next(self) -> Self {
        match self {
            Self::Core => Self::Batch,
            Self::Batch => Self::Service,
            Self::Service => Self::Core,
        }
    }

    /// Returns the name of the order.
    pub fn name(self) -> &'static str {
        ["core", "batch", "service"][self as usize]
    }
}

/// Connection to the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The last frame has a status.
    Live,
    /// The source does not answer since this time, for this reason.
    Away { since_ms: u64, why: String },
    /// The recording has ended.
    Ended,
}

/// State of the view.
pub struct View {
    /// Name of the source.
    pub source: String,
    /// Whether the source is a recording.
    pub is_replay: bool,
    /// Last status.
    pub status: Box<Snapshot>,
    /// Lanes, or CPUs without lanes.
    lanes: BTreeMap<(u32, String), Lane>,
    /// Times of the kept frames.
    times: VecDeque<u64>,
    /// CPU times of containers and counts of requests at some of the last frames, for rates.
    counts: VecDeque<(u64, BTreeMap<String, u64>)>,
    /// Connection to the source.
    pub connection: Connection,
    /// Order of rows.
    pub sort: Sort,
    /// Whether the picture is paused.
    pub is_paused: bool,
    /// Whether the help is shown.
    pub shows_help: bool,
    /// Message instead of the keys.
    pub message: Option<String>,
}

impl View {
    /// Makes the view of a source that was not seen yet.
    pub fn new(source: &str, is_replay: bool) -> Self {
        Self {
            source: source.to_owned(),
            is_replay,
            status: Box::default(),
            lanes: BTreeMap::new(),
            times: VecDeque::new(),
            counts: VecDeque::new(),
            connection: Connection::Away { since_ms: 0, why: "no answer yet".to_owned() },
            sort: Sort::default(),
            is_paused: false,
            shows_help: false,
            message: None,
        }
    }

    /// Takes a frame. A paused picture ignores it.
    pub fn push(&mut self, frame: Frame) {
        if self.is_paused {
            return;
        }
        self.times.push_back(frame.at_ms);
        match frame.status {
            Some(status) => self.push_status(frame.at_ms, status),
            None => {
                self.lanes.values_mut().for_each(|lane| lane.past.push_back(None));
                let why = frame.away.unwrap_or_else(|| "no answer".to_owned());
                let since_ms = match &self.connection {
                    Connection::Away { since_ms, .. } => *since_ms,
                    Connection::Live | Connection::Ended => frame.at_ms,
                };
                self.connection = Connection::Away { since_ms, why };
            }
        }
        if self.times.len() > KEPT {
            self.times.pop_front();
        }
        self.lanes.values_mut().filter(|lane| lane.past.len() > KEPT).for_each(|lane| {
            lane.past.pop_front();
        });
    }

    fn push_status(&mut self, at_ms: u64, status: Box<Snapshot>) {
        if status.agent.pid != self.status.agent.pid {
            self.counts.clear();
            self.lanes.values_mut().for_each(|lane| lane.last = None);
        }
        let keyed = |lane: &LaneStatus| (lane.cpu, lane.role.clone());
        let is_lane = |cpu: u32| status.lanes.iter().any(|lane| lane.cpu == cpu);
        let others = status.cpus.iter().filter(|cpu| !is_lane(cpu.cpu)).map(|cpu| (cpu.cpu, String::new()));
        let now: Vec<(u32, String)> = status.lanes.iter().map(keyed).chain(others).collect();
        self.lanes.retain(|key, _| now.contains(key));
        for lane in &status.lanes {
            let entry = self.lanes.entry(keyed(lane)).or_default();
            let mix = entry.last.as_ref().and_then(|last| Mix::between(last, lane));
            let core = lane.request_lanes.parse::<CpuSet>().ok().and_then(|cpus| cpus.first()).unwrap_or(lane.cpu);
            (entry.cpu, entry.core, entry.role, entry.service) =
                (lane.cpu, core, lane.role.clone(), lane.service.clone());
            entry.held_because.clone_from(&lane.held_because);
            entry.last = Some(lane.clone());
            entry.past.push_back(mix);
        }
        for cpu in status.cpus.iter().filter(|cpu| !is_lane(cpu.cpu)) {
            let entry = self.lanes.entry((cpu.cpu, String::new())).or_default();
            (entry.cpu, entry.core) = (cpu.cpu, cpu.cpu);
            entry.past.push_back(Some(Mix::of_cpu(cpu)));
        }
        let cpu_times = status.containers.iter().filter_map(|one| Some((format!("batch {}", one.name), one.cpu_ns?)));
        let requests = status.services.iter().filter_map(|one| {
            let count = one.requests.as_ref()?.count;
            Some((format!("requests {}", one.name), count))
        });
        self.counts.push_back((at_ms, cpu_times.chain(requests).collect()));
        while self.counts.len() > RECENT + 1 {
            self.counts.pop_front();
        }
        (self.status, self.connection) = (status, Connection::Live);
    }

    /// Returns the increase of a count per second, over the last second.
    fn rate(&self, name: &str) -> Option<f64> {
        let first = self.counts.iter().find_map(|(at_ms, counts)| Some((*at_ms, *counts.get(name)?)))?;
        let (at_ms, counts) = self.counts.back()?;
        let seconds = at_ms.checked_sub(first.0).filter(|ms| *ms > 0)? as f64 / 1e3;
        Some(counts.get(name)?.checked_sub(first.1)? as f64 / seconds)
    }

    /// Returns the CPUs that a container used in the last second.
    pub fn container_cpus(&self, name: &str) -> Option<f64> {
        self.rate(&format!("batch {name}")).map(|ns| ns / 1e9)
    }

    /// Returns the requests of a service per second, in the last second.
    pub fn request_rate(&self, name: &str) -> Option<f64> {
        self.rate(&format!("requests {name}"))
    }

    /// Returns the time of the last frame, in milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        self.times.back().copied().unwrap_or(0)
    }

    /// Returns the time that the last `frames` frames cover, in milliseconds.
    pub fn span_ms(&self, frames: usize) -> u64 {
        let first = self.times.iter().rev().take(frames.max(1)).next_back().copied().unwrap_or(0);
        self.now_ms().saturating_sub(first)
    }

    /// Returns the lanes in the chosen order.
    pub fn sorted_lanes(&self) -> Vec<&Lane> {
        let mut lanes: Vec<&Lane> = self.lanes.values().collect();
        let by = |of: Use| move |lane: &&Lane| std::cmp::Reverse((lane.recent().share(of) * 1e3) as u64);
        lanes.sort_by_key(|lane| (lane.role.is_empty(), lane.core, lane.role != "request", lane.cpu));
        match self.sort {
            Sort::Core => {}
            Sort::Batch => lanes.sort_by_key(by(Use::Batch)),
            Sort::Service => lanes.sort_by_key(by(Use::Request)),
        }
        lanes
    }

    /// Returns the kept frames as a trace for Perfetto: a track of uses and a track of each share for each lane.
    pub fn to_trace(&self) -> TraceBuilder {
        let ns = |ms: u64| ms.saturating_mul(NS_PER_MS);
        let times: Vec<u64> = self.times.iter().map(|ms| ns(*ms)).collect();
        let mut trace =
            TraceBuilder::new(&format!("sidelane top: {}", self.source), times.first().copied().unwrap_or(0));
        for lane in self.sorted_lanes() {
            let role =
                if lane.role.is_empty() { String::new() } else { format!(" ({} lane of {})", lane.role, lane.service) };
            let track = trace.add_slice_track(&format!("CPU {}{role}", lane.cpu));
            let begins = &times[times.len().saturating_sub(lane.past.len())..];
            let past = lane.past.iter().skip(lane.past.len().saturating_sub(begins.len()));
            // A frame tells about the time since the frame before.
            let known: Vec<(u64, u64, Mix)> = begins
                .windows(2)
                .zip(past.skip(1))
                .filter_map(|(span, mix)| Some((span[0], span[1], (*mix)?)))
                .filter(|(from_ns, to_ns, _)| from_ns < to_ns)
                .collect();
            for (from_ns, to_ns, mix) in &known {
                let longest = Use::ALL.into_iter().max_by_key(|of| mix.time(*of)).unwrap_or(Use::Idle);
                trace.add_slice(track, (*from_ns, *to_ns), longest.name());
            }
            for of in Use::ALL.into_iter().filter(|of| known.iter().any(|(_, _, mix)| mix.time(*of) > 0)) {
                let counter = trace.add_counter(&format!("CPU {} {} %", lane.cpu, of.name()));
                known.iter().for_each(|(from_ns, _, mix)| trace.set_value(counter, *from_ns, mix.share(of) * 100.0));
            }
        }
        trace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(cpu: u32, role: &str, batch_ns: u64, held_ns: u64) -> LaneStatus {
        LaneStatus { cpu, role: role.to_owned(), service: "redis".to_owned(), batch_ns, held_ns, ..Default::default() }
    }

    fn frame(at_ms: u64, pid: u32, lanes: Vec<LaneStatus>) -> Frame {
        let mut status = Snapshot { lanes, ..Default::default() };
        status.agent.pid = pid;
        Frame { at_ms, status: Some(Box::new(status)), away: None }
    }

    #[test]
    fn a_frame_tells_the_times_since_the_frame_before() {
        let mut view = View::new("agent", false);
        view.push(frame(0, 1, vec![lane(1, "batch", 50, 900)]));
        view.push(frame(100, 1, vec![lane(1, "batch", 80, 910)]));
        let lane_1 = view.sorted_lanes()[0].clone();
        assert_eq!(lane_1.past, [None, Some(Mix([0, 30, 0, 10, 0, 0]))]);
        assert_eq!(lane_1.recent().two_longest(), (Use::Batch, Use::Held, 0.75));
        view.push(frame(200, 2, vec![lane(1, "batch", 90, 920)]));
        assert_eq!(view.sorted_lanes()[0].past.back(), Some(&None), "another agent");
        view.push(frame(300, 2, vec![lane(1, "batch", 0, 0)]));
        assert_eq!(view.sorted_lanes()[0].past.back(), Some(&None), "the times began again");
    }

    #[test]
    fn absent_agent_is_away_until_it_returns() {
        let mut view = View::new("agent", false);
        view.push(frame(0, 1, vec![]));
        assert_eq!(view.connection, Connection::Live);
        let away = |at_ms| Frame { at_ms, status: None, away: Some("it has ended".to_owned()) };
        view.push(away(100));
        view.push(away(200));
        assert_eq!(view.connection, Connection::Away { since_ms: 100, why: "it has ended".to_owned() });
        view.push(frame(300, 1, vec![]));
        assert_eq!(view.connection, Connection::Live);
    }

    #[test]
    fn lanes_of_a_core_are_neighbours_unless_sorted_by_use() {
        let beside = |cpu, request: &str| LaneStatus { request_lanes: request.to_owned(), ..lane(cpu, "batch", 0, 0) };
        let lanes = vec![lane(0, "request", 0, 0), lane(1, "request", 0, 0), beside(2, "0"), beside(3, "1")];
        let mut view = View::new("agent", false);
        view.push(frame(0, 1, lanes.clone()));
        let cpus = |view: &View| view.sorted_lanes().iter().map(|lane| lane.cpu).collect::<Vec<_>>();
        assert_eq!(cpus(&view), [0, 2, 1, 3]);
        let grown = lanes.into_iter().map(|lane| LaneStatus { batch_ns: u64::from(lane.cpu), idle_ns: 5, ..lane });
        view.push(frame(100, 1, grown.collect()));
        view.sort = view.sort.next();
        assert_eq!(cpus(&view), [3, 2, 1, 0]);
    }

    #[test]
    fn rates_are_of_the_last_second() {
        let mut view = View::new("agent", false);
        for second in 0..40_u64 {
            let mut status = Snapshot::default();
            let (name, cpu_ns) = ("/batch/a".to_owned(), Some(second * second * 100_000_000));
            status.containers = vec![sidelane_agent::status::ContainerStatus { name, cpu_ns, ..Default::default() }];
            view.push(Frame { at_ms: second * 100, status: Some(Box::new(status)), away: None });
        }
        let cpus = view.container_cpus("/batch/a").unwrap();
        assert!((cpus - (39.0_f64.powi(2) - 29.0_f64.powi(2)) / 10.0).abs() < 1e-9, "{cpus}");
        assert_eq!(view.container_cpus("/batch/b"), None);
    }

    #[test]
    fn paused_picture_ignores_frames() {
        let mut view = View::new("agent", false);
        view.push(frame(0, 1, vec![]));
        view.is_paused = true;
        view.push(frame(100, 1, vec![]));
        assert_eq!(view.now_ms(), 0);
    }
}
