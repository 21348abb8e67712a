use std::path::Path;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use sidelane_agent::status::{
    CpuStatus, DecisionStatus, IdleTimeStatus, LaneStatus, NoteStatus, OverlapStatus, SlowerStatus, Snapshot,
};

use super::*;
use crate::recording::Frame;

/// Name of the environment variable with which the pictures are written instead of compared.
const WRITE: &str = "SIDELANE_WRITE_PICTURES";

/// Draws the view without colours, and returns the lines of the terminal.
pub fn draw(view: &View, width: u16, height: u16) -> Vec<String> {
    let buffer = draw_with(view, Paint { has_color: false }, width, height);
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

fn draw_with(view: &View, paint: Paint, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| super::draw(view, paint, frame.area(), frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

/// Returns the lanes of `pairs` cores after `step` frames. The load of a core goes up and down.
fn lanes(pairs: u32, step: u64) -> impl Iterator<Item = LaneStatus> {
    let load = |pair: u32, at: u64| [10, 30, 70, 100, 60, 20][((at + u64::from(pair) * 2) % 6) as usize];
    let until = move |pair, of: fn(u64) -> u64| (0..step).map(|at| of(load(pair, at))).sum::<u64>();
    let service = |pair: u32| if pair.is_multiple_of(2) { "redis".to_owned() } else { "search".to_owned() };
    let request = move |pair: u32| LaneStatus {
        cpu: pair,
        role: "request".to_owned(),
        service: service(pair),
        service_ns: until(pair, |load| load),
        idle_ns: until(pair, |load| 100 - load),
        ..LaneStatus::default()
    };
    let batch = move |pair: u32| LaneStatus {
        cpu: pair + pairs,
        role: "batch".to_owned(),
        service: service(pair),
        request_lanes: pair.to_string(),
        held_ns: until(pair, |load| load),
        batch_ns: until(pair, |load| (100 - load) * 8 / 10),
        other_ns: until(pair, |load| (100 - load) / 10),
        stolen_ns: until(pair, |load| (100 - load) / 20),
        idle_ns: until(pair, |load| (100 - load) / 20),
        ..LaneStatus::default()
    };
    (0..pairs).map(request).chain((0..pairs).map(batch))
}

fn services(step: u64) -> Vec<ServiceStatus> {
    let service = |name: &str, in_time_percent, percent| {
        let slower = Some(SlowerStatus { percent, low_percent: percent - 1.0, high_percent: percent + 1.0 });
        ServiceStatus {
            name: name.to_owned(),
            used_percent: 143.0,
            requests: Some(RequestStatus {
                count: step * 120,
                latency_p50_ns: Some(121_000),
                latency_p99_ns: Some(1_180_000),
                slo: Some("p99=5ms".to_owned()),
                in_time_percent: Some(in_time_percent),
                lost: 0,
            }),
            slowdown: Some(SlowdownStatus { p50: slower, p99: slower, allowed_percent: 5.0, min_idle_ns: Some(8_000) }),
            idle_time: Some(IdleTimeStatus { batch_percent: 91.0, ..IdleTimeStatus::default() }),
            ..ServiceStatus::default()
        }
    };
    let silent = ServiceStatus {
        name: "mailer".to_owned(),
        requests_missing: Some("it listens at no port".to_owned()),
        ..ServiceStatus::default()
    };
    vec![service("redis", 99.98, 1.4), service("search", 98.2, 7.0), silent]
}

/// Returns the status after `step` frames of 100 ms.
fn status(pairs: u32, step: u64) -> Snapshot {
    let container = |name: &str, state: &str, wanted, cpu_ns| ContainerStatus {
        name: name.to_owned(),
        state: state.to_owned(),
        cpus: "4-7".to_owned(),
        wanted,
        cpu_ns: Some(cpu_ns),
        ..ContainerStatus::default()
    };
    let decision =
        |ago_s, action: &str, why: &str| DecisionStatus { ago_s, action: action.to_owned(), why: why.to_owned() };
    let mut status = Snapshot {
        lanes: lanes(pairs, step).collect(),
        services: services(step),
        containers: vec![
            container("/batch/encode", "running", 4, step * 320_000_000),
            container("/kubepods/besteffort/pod12/report", "paused", 2, 12_000_000_000),
        ],
        last_decisions: vec![
            decision(310.0, "run /batch/encode on CPUs 4-7", "no interference for 80 ms"),
            decision(2.4, "pause /kubepods/besteffort/pod12/report", "interference"),
        ],
        notes: vec![NoteStatus { note: "requests of mailer cannot be seen; name its port".to_owned(), times: 1 }],
        ..Snapshot::default()
    };
    status.agent.pid = 7;
    (status.agent.version, status.agent.policy) = ("0.1.0".to_owned(), "holmes".to_owned());
    status.agent.uptime_s = 750.0;
    status
}

fn view(pairs: u32, frames: u64) -> View {
    let mut view = View::new("agent", false);
    for step in 0..frames {
        view.push(Frame { at_ms: step * 100, status: Some(Box::new(status(pairs, step))), away: None });
    }
    view
}

/// Compares a picture with the stored one.
#[track_caller]
fn check_picture(name: &str, lines: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/draw/pictures").join(name);
    let text = lines.join("\n") + "\n";
    if std::env::var_os(WRITE).is_some() {
        return std::fs::write(path, text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == text, "{name} is another picture now (write it with {WRITE}=1):\n{text}");
}

#[test]
fn pictures_at_four_widths_are_as_stored() {
    for (width, height) in [(60, 24), (80, 24), (160, 40), (200, 50)] {
        let lines = draw(&view(4, 60), width, height);
        assert!(lines.iter().all(|line| display_width(line) <= usize::from(width)));
        check_picture(&format!("{width}.txt"), &lines);
    }
}

#[test]
fn lanes_of_a_large_machine_are_in_columns() {
    check_picture("64-lanes.txt", &draw(&view(32, 60), 160, 40));
}

#[test]
fn help_lies_above_the_picture() {
    let mut view = view(4, 60);
    view.shows_help = true;
    check_picture("help.txt", &draw(&view, 80, 24));
}

#[test]
fn source_that_is_away_is_named_with_its_reason() {
    let mut view = view(4, 60);
    view.push(Frame { at_ms: 6_000, status: None, away: Some("it has ended".to_owned()) });
    view.push(Frame { at_ms: 8_500, status: None, away: Some("it has ended".to_owned()) });
    let lines = draw(&view, 80, 24);
    assert!(lines[0].ends_with("○ away 2.5 s"), "{}", lines[0]);
    assert_eq!(lines[1], " it has ended; trying again");
}

#[test]
fn broken_promise_is_the_first_line_below_the_header() {
    let mut status = status(1, 5);
    status.services[0].overlap =
        Some(OverlapStatus { broken: Some("promise broken: batch ran".to_owned()), ..OverlapStatus::default() });
    let mut view = View::new("agent", false);
    view.push(Frame { at_ms: 0, status: Some(Box::new(status)), away: None });
    assert_eq!(draw(&view, 80, 24)[2], " promise broken: batch ran");
}

#[test]
fn machine_without_lanes_shows_its_cpus() {
    let cpu = |cpu, service_percent, batch_percent| CpuStatus {
        cpu,
        service_percent,
        batch_percent,
        busy_percent: service_percent + batch_percent,
        ..CpuStatus::default()
    };
    let status =
        Snapshot { cpus: vec![cpu(0, 90.0, 0.0), cpu(1, 0.0, 100.0), cpu(2, 0.0, 0.0)], ..Snapshot::default() };
    let mut view = View::new("agent", false);
    (0..40).for_each(|step| {
        view.push(Frame { at_ms: step * 100, status: Some(Box::new(status.clone())), away: None });
    });
    let lines = draw(&view, 60, 12);
    assert!(lines[2].starts_with(" CPUs  # request"), "{lines:?}");
    assert!(lines[3].contains("####") && lines[4].contains("====") && lines[5].contains("····"), "{lines:?}");
}

#[test]
fn characters_tell_uses_apart_without_colours() {
    let letters: std::collections::BTreeSet<&str> = Use::ALL.into_iter().map(Paint::letter).collect();
    assert_eq!(letters.len(), Use::ALL.len());
    let buffer = draw_with(&view(4, 60), Paint { has_color: false }, 100, 30);
    assert!(buffer.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    let colored = draw_with(&view(4, 60), Paint { has_color: true }, 100, 30);
    let colors: std::collections::BTreeSet<String> =
        colored.content().iter().map(|cell| format!("{:?}", cell.fg)).collect();
    assert!(colors.len() >= Use::ALL.len(), "{colors:?}");
}

#[test]
fn same_state_is_the_same_picture() {
    let view = view(4, 60);
    assert_eq!(draw(&view, 120, 40), draw(&view, 120, 40));
}

#[test]
fn any_size_of_the_terminal_is_drawn() {
    let mut view = view(4, 60);
    for (width, height) in [(1, 1), (2, 3), (20, 5), (29, 9), (31, 200), (400, 10), (400, 200)] {
        for shows_help in [false, true] {
            view.shows_help = shows_help;
            draw(&view, width, height);
        }
    }
}

#[test]
fn names_are_cut_to_their_columns() {
    assert_eq!(fit("redis", 7), "redis  ");
    assert_eq!(fit("a long name", 7), "a long…");
    assert_eq!(fit_end("/kubepods/pod12/report", 10), "…12/report");
    assert_eq!(right("12 %", 6), "  12 %");
    assert_eq!(cut("日本語", 5), "日本…");
}

#[test]
fn objective_is_met_by_the_share_that_its_percentile_names() {
    let service = |slo: &str, percent| ServiceStatus {
        requests: Some(RequestStatus {
            slo: Some(slo.to_owned()),
            in_time_percent: Some(percent),
            ..RequestStatus::default()
        }),
        ..ServiceStatus::default()
    };
    assert_eq!(is_objective_met(&service("p99=5ms", 99.2)), Some(true));
    assert_eq!(is_objective_met(&service("p99.9=5ms", 99.2)), Some(false));
    assert_eq!(is_objective_met(&ServiceStatus::default()), None);
}
