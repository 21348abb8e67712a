//! Sample results for tests: realistic results with four settings, their curves, and 50 ms of two lanes.
//!
//! The numbers are invented, similar to measurements of a prototype. They are the same in every run: the generator
//! below has a fixed seed.

use serde_json::{Map, json};
use sidelane_timeline::cause::Cause;
use sidelane_timeline::diagnosis::{Bar, CauseTime, Finding, UndetectableCause};

use crate::chart::{
    BarRow, Bars, Cell, Heatmap, IntervalGroup, Intervals, Limit, Line, Mean, Multiples, Panel, Quantity, ScaleKind,
};
use crate::check::Check;
use crate::interval::{Interval, Method};
use crate::picture::{Class, Curve, LaneTrack, Percentile, Role, Series, SignalSeries, SignalValues, Span, Timeline};
use crate::result::{Machine, Pair, ResultFile};
use crate::row::Row;
use crate::trace::{CauseText, TimelineView, TraceSection, ViewSpan};
use crate::unit::Unit;

const TIMELINE_NS: u64 = 50_000_000;
/// Time from the service's start until batch is off its lane, under `borrow_idle`.
const OFF_NS: u64 = 4_400;
/// Time from the service's stop until batch is on its lane again.
const ON_NS: u64 = 1_500;

/// Returns a result such as `sidelane-lab demo` writes on a machine without SMT and without hardware counters.
pub(crate) fn demo() -> ResultFile {
    let mut result = ResultFile::new(machine(), settings());
    result.rows = rows();
    result.checks = vec![
        Check::at_most("p99 with borrow_idle, over alone", 1.06, 1.10, Unit::OverAlone),
        Check::at_most("batch off its lane after the service starts, p50", 4_400.0, 5e3, Unit::Ns),
        Check::at_most("overlap with borrow_idle", 0.24, 0.2, Unit::Percent),
        Check::at_least("idle time given to batch", 91.0, 80.0, Unit::Percent),
    ];
    result.notes = vec![
        "No hardware counters in this machine: stalls per access are not measured.".into(),
        "The two lanes are declared a pair and share no core, so batch slows the service \
         only through caches and memory; on SMT lanes the unmanaged p99 is worse."
            .into(),
    ];
    result.curves = curves();
    result.timelines = timelines();
    result
}

/// Returns the result of a short run with an emulated sibling: one check is undecided.
pub(crate) fn undecided_result() -> ResultFile {
    let mut result = demo();
    let p99 = Interval { measured: 1.06, low: Some(1.01), high: Some(1.11), method: Method::OrderStatistics };
    result.settings.insert("sibling".into(), "emulated sibling, 40 %".into());
    let finding = "Batch beside search made p99 3.8 times as long; with Sidelane it stayed as it was.";
    result.settings.insert("finding".into(), finding.into());
    let mut check = Check::interval_at_most("p99 over alone", p99, 1.10, Unit::OverAlone);
    check.decided_by = Some("run it without --quick".into());
    result.checks = vec![check, Check::at_most("overlap", 0.24, 1.0, Unit::Percent)];
    result
}

/// Returns a trace with one slow request, which waited for a CPU, and a usual one.
pub(crate) fn trace_result() -> ResultFile {
    let mut result = ResultFile::new(machine(), Map::new());
    result.settings.insert("title".into(), "Why requests of port:8080 were slow".into());
    result.settings.insert("finding".into(), "1 of 2 requests took longer than 2 ms.".into());
    result.trace = Some(slow_requests());
    result
}

fn slow_requests() -> TraceSection {
    TraceSection {
        limit_us: 2_000.0,
        limit_name: "objective".into(),
        length_us: 1e6,
        causes: [Cause::OnCpu, Cause::RunQueue, Cause::Disk].map(CauseText::from).into(),
        found: vec![Finding {
            cause: Cause::RunQueue,
            requests: 1,
            tail_ns: 2_900_000,
            share_percent: 100.0,
            examples: vec![7],
            evidence: vec!["stress-ng had the CPU".into()],
            advice: "give it a CPU of its own".into(),
        }],
        cannot_tell: vec![UndetectableCause { cause: Cause::Disk, why: "no records of disks".into() }],
        spread: vec![
            bar(100_000, &[(Cause::OnCpu, 100_000)]),
            bar(3_000_000, &[(Cause::OnCpu, 100_000), (Cause::RunQueue, 2_900_000)]),
        ],
        requests: vec![request_view(7, 3_000.0), request_view(8, 100.0)],
    }
}

fn bar(ns: u64, time: &[(Cause, u64)]) -> Bar {
    Bar { from_ns: ns / 2, to_ns: ns * 2, requests: 1, time: cause_times(time) }
}

fn cause_times(time: &[(Cause, u64)]) -> Vec<CauseTime> {
    time.iter().map(|(cause, ns)| CauseTime { cause: *cause, ns: *ns }).collect()
}

fn request_view(number: u64, latency_us: f64) -> TimelineView {
    let span =
        |from_us, to_us, cause| ViewSpan { from_us, to_us, cause, words: "server on lane 1".into(), row: Some(0) };
    TimelineView {
        number,
        arrived_us: number as f64 * 1e4,
        latency_us,
        time: cause_times(&[(Cause::RunQueue, (latency_us * 1e3) as u64 - 100_000), (Cause::OnCpu, 100_000)]),
        spans: vec![span(0.0, latency_us - 100.0, Cause::RunQueue), span(latency_us - 100.0, latency_us, Cause::OnCpu)],
        ..TimelineView::default()
    }
}

/// Returns a chart of two kinds of naps, one of them with the paper's value.
pub(crate) fn intervals() -> Intervals {
    let mean = |series: &str, mean, half_width| Mean { series: series.into(), mean, half_width };
    let here = [mean("to sleep", 400.0, Some(20.0)), mean("to wake", 700.0, Some(900.0))];
    let there = [mean("to sleep", 11_518.0, None), mean("to wake", 3_968.0, None)];
    let group = |name: &str, means: Vec<Mean>| IntervalGroup { name: name.into(), means };
    Intervals {
        title: "How fast a lane sleeps".into(),
        caption: "Left is faster.".into(),
        unit: Unit::Cycles,
        across: "cycles".into(),
        groups: vec![group("PAUSE loop", here.to_vec()), group("futex", [here, there].concat())],
    }
}

/// Returns a chart of p99 and utilisation against load; one panel has no measurement.
pub(crate) fn multiples() -> Multiples {
    let panel = |unit, scale, limit, lines| Panel { title: "matrix".into(), unit, scale, up_to: None, limit, lines };
    let line = Line { setting: "<borrow idle>".into(), points: vec![(20.0, 9_000.0), (80.0, 40_000.0)] };
    let slo = Limit { name: "SLO".into(), value: 25_000.0 };
    Multiples {
        title: "What sharing costs".into(),
        caption: "Lower is better.".into(),
        across: "load".into(),
        across_unit: Unit::Percent,
        panels: vec![
            panel(Unit::Us, ScaleKind::Log, Some(slo), vec![line]),
            panel(Unit::Ratio, ScaleKind::Linear, None, Vec::new()),
        ],
        columns: 2,
    }
}

/// Returns a result such as `sidelane observe` writes: a tag and two rates.
pub(crate) fn observation() -> ResultFile {
    let mut result = ResultFile::new(machine(), settings());
    result.series = vec![Series { title: "Over time".into(), caption: "In bins.".into(), signals: signals() }];
    let per_s = |name: &str| Quantity { name: name.into(), unit: Unit::PerS };
    let cell = |across, up, count| Cell { across, up, count };
    result.heatmaps = vec![Heatmap {
        title: "<hits> against misses".into(),
        caption: "Darker is more often.".into(),
        across: per_s("<hits>"),
        up: per_s("misses"),
        cells: vec![
            cell((0.0, 1e3), (1e5, 1.5e5), 3),
            cell((2e6, 3e6), (1e5, 1.5e5), 40_000),
            cell((2e6, 3e6), (0.0, 1e3), 1),
        ],
    }];
    let row = |name: &str, values| BarRow { name: name.into(), values };
    result.bars = vec![Bars {
        title: "app.phase".into(),
        caption: "Hottest first.".into(),
        of: "value".into(),
        columns: vec![Quantity { name: "share of time".into(), unit: Unit::Percent }, per_s("<hits>")],
        rows: vec![row("<read>", vec![Some(75.0), Some(2.5e6)]), row("write", vec![Some(25.0), None])],
    }];
    result
}

/// Returns signals of four bins, one of them empty.
fn signals() -> Vec<SignalSeries> {
    let rate = |factor: f64| [Some(factor), None, Some(2.0 * factor), Some(factor)].to_vec();
    let signal = |name: &str, seen| SignalSeries {
        name: name.into(),
        from_us: 10.0,
        bin_us: 250.0,
        samples: vec![7, 0, 9, 2],
        values: seen,
    };
    let names = vec!["<read>".to_owned(), "write".to_owned()];
    vec![
        signal("app.phase", SignalValues::Tag { names, last: vec![Some(0), None, Some(1), Some(0)] }),
        signal("<hits>", SignalValues::Rate { unit: Unit::PerS, mean: rate(2e6), min: rate(1e6), max: rate(4e6) }),
    ]
}

fn machine() -> Machine {
    Machine {
        cpu: "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz".into(),
        lanes: 2,
        pair: Pair::Declared,
        kernel: "6.18.1".into(),
        virtual_machine: Some(true),
        pmu: false,
        gates: vec!["lane holder".into(), "cgroup freezer".into(), "SCHED_IDLE".into()],
        stolen_percent: Some(1.5),
        stolen_gap_max_us: Some(3_100.0),
        notes: vec!["2 CPUs, 1 socket, no SMT".into()],
    }
}

fn settings() -> Map<String, serde_json::Value> {
    let object = json!({
        "title": "Sidelane demo",
        "explanation": [
            "A small search service answers requests on lane 0 while a compile-like batch \
             job wants lane 1. The same load ran four times: alone, with batch unmanaged, \
             with batch at SCHED_IDLE, and with batch borrowing idle moments.",
            "Real: the service, the batch job, every latency and every switch were measured \
             on this machine in this run. Not real: the two lanes are declared a pair.",
        ],
        "lanes": "0:1",
        "requests_per_s": 650,
        "each_setting_s": 10,
    });
    match object {
        serde_json::Value::Object(settings) => settings,
        _ => unreachable!("an object was written above"),
    }
}

fn rows() -> Vec<Row> {
    let row = |setting: &str, us: [f64; 3], over_alone: f64, batch: [Option<f64>; 4]| {
        let mut row = Row::new(setting);
        row.put("p50_us", us[0]).put("p99_us", us[1]).put("p999_us", us[2]);
        row.put("p99_over_alone", over_alone);
        row.put("overlap_percent", batch[0]).put("batch_share_of_idle_percent", batch[1]);
        row.put("reaction_off_p50_ns", batch[2]).put("reaction_on_p50_ns", batch[3]);
        row
    };
    let shared = |overlap, share| [Some(overlap), Some(share), None, None];
    let borrowed = [Some(0.24), Some(91.0), Some(4_400.0), Some(1_500.0)];
    vec![
        row("alone", [412.0, 812.0, 1_340.0], 1.0, [None; 4]),
        row("unmanaged", [538.0, 3_104.0, 9_870.0], 3.823, shared(27.4, 100.0)),
        row("sched_idle", [431.0, 1_462.0, 4_120.0], 1.8, shared(26.9, 99.2)),
        row("borrow_idle", [415.0, 861.0, 1_502.0], 1.06, borrowed),
    ]
}

/// Settings with their median latency, and its growth with each further nine.
const CURVES: [(&str, f64, f64); 4] =
    [("alone", 412.0, 1.40), ("unmanaged", 538.0, 2.62), ("sched_idle", 431.0, 1.95), ("borrow_idle", 415.0, 1.45)];

fn curves() -> Vec<Curve> {
    let curve = |(setting, median_us, growth): (&str, f64, f64)| Curve {
        setting: setting.to_owned(),
        points: (0..100).map(|index| point(index, median_us, growth)).collect(),
    };
    CURVES.into_iter().map(curve).collect()
}

/// Returns a point of a latency curve. Points are evenly spaced on the axis of nines: 0, 90, 99, 99.9 and 99.99 are
/// 25 apart.
fn point(index: u32, median_us: f64, growth: f64) -> Percentile {
    let nines = f64::from(index) / 24.75;
    let bump = 1.0 + 0.03 * (nines * 9.0).sin();
    let us = median_us * growth.powf(nines - 0.3) * bump;
    Percentile { percentile: (1e8 * (1.0 - 10f64.powf(-nines))).round() / 1e6, us: us.round() }
}

fn timelines() -> Vec<Timeline> {
    let requests = request_turns();
    let always = [(0, TIMELINE_NS, Class::Batch)];
    let timeline = |setting: &str, batch_lane: &[Turn]| Timeline {
        setting: setting.to_owned(),
        lanes: vec![track(0, Role::Request, &requests), track(1, Role::Batch, batch_lane)],
    };
    vec![
        timeline("alone", &[]),
        timeline("unmanaged", &always),
        timeline("sched_idle", &always),
        timeline("borrow_idle", &batch_lane_turns(&requests)),
    ]
}

/// Turn on a lane: start, end, and the class that ran.
type Turn = (u64, u64, Class);

fn track(cpu: u32, role: Role, turns: &[Turn]) -> LaneTrack {
    let spans = turns.iter().map(|&(from_ns, to_ns, class)| Span::from_ns(from_ns, to_ns, class)).collect();
    LaneTrack { cpu, role, spans }
}

/// Generates requests at random times, one at a time, with idle time between them.
fn request_turns() -> Vec<Turn> {
    let mut random = Random(7);
    let mut turns = Vec::new();
    let mut now_ns = 0;
    while now_ns < TIMELINE_NS {
        let start_ns = now_ns + random.exponential_ns(1_100_000.0);
        let end_ns = start_ns + 120_000 + random.exponential_ns(300_000.0);
        turns.push((now_ns, start_ns, Class::Idle));
        turns.push((start_ns, end_ns, Class::Lc));
        now_ns = end_ns;
        if random.next_uniform() < 0.2 {
            now_ns += 18_000;
            turns.push((end_ns, now_ns, Class::Other));
        }
    }
    turns.retain(|&(_, to_ns, _)| to_ns <= TIMELINE_NS);
    turns
}

/// Returns the turns of the batch lane under `borrow_idle`: batch runs, and the holder soon after each request
/// starts.
fn batch_lane_turns(requests: &[Turn]) -> Vec<Turn> {
    let mut turns = Vec::new();
    let mut batch_since_ns = 0;
    for &(from_ns, to_ns, class) in requests {
        if class == Class::Lc {
            turns.push((batch_since_ns, from_ns + OFF_NS, Class::Batch));
            turns.push((from_ns + OFF_NS, to_ns + ON_NS, Class::Holder));
            batch_since_ns = to_ns + ON_NS;
        }
    }
    turns.push((batch_since_ns, TIMELINE_NS, Class::Batch));
    turns
}

/// Random generator: Knuth's MMIX; its high bits are random enough for a picture.
struct Random(u64);

impl Random {
    /// Draws a number above 0 and up to 1.
    fn next_uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 40) + 1) as f64 / (1 << 24) as f64
    }

    fn exponential_ns(&mut self, mean_ns: f64) -> u64 {
        (-mean_ns * self.next_uniform().ln()) as u64
    }
}
