//! Small multiples: panels with the same horizontal axis, and a line for each setting.

use crate::chart::{Line, Multiples, Panel, ScaleKind};
use crate::drawing::axis::{Axis, label};
use crate::drawing::svg::{SERIES, distinct, figure, legend, line, line_sample, rule, text};
use crate::markup::escape;

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = HEIGHT - 42.0;
/// Of a line of text.
const LABEL_HEIGHT: f64 = 14.0;
/// Only lines with at most this many points get a dot at each point.
const DOTS_MAX: usize = 40;

/// The pictures, as HTML.
pub(super) fn multiples(number: usize, chart: &Multiples) -> String {
    let names = distinct(chart.panels.iter().flat_map(|panel| panel.lines.iter().map(|line| &line.setting)));
    let panels: String = chart.panels.iter().map(|panel| one(chart, panel, &names)).collect();
    let columns = chart.columns.clamp(1, 4);
    let body = format!("{}\n<div class=\"panels columns-{columns}\">\n{panels}</div>", legend(&names, line_sample));
    figure(number, "multiples", &chart.title, &chart.caption, &body)
}

fn one(chart: &Multiples, panel: &Panel, names: &[String]) -> String {
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let limit = panel.limit.as_ref().map(|limit| limit.value);
    // All panels share the axis across, so that one can be held against its neighbours.
    let all = chart.panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
    let across = Axis::of(ScaleKind::Linear, all.map(|point| point.0), (LEFT, WIDTH - RIGHT));
    let up = Axis::of(panel.scale, points().map(|point| point.1).chain(limit).chain(panel.up_to), (BOTTOM, TOP));
    let lines: String = panel.lines.iter().map(|drawn| one_line(drawn, names, &across, &up)).collect();
    let inside = grid(chart, panel, &across, &up) + &limit_line(panel, &up) + &lines;
    let title = escape(&panel.title);
    format!(
        "<div class=\"panel\"><h3>{title}</h3><svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{title}\">{inside}</svg></div>\n"
    )
}

fn one_line(drawn: &Line, names: &[String], across: &Axis, up: &Axis) -> String {
    let index = names.iter().position(|name| *name == drawn.setting).unwrap_or(0);
    let places: Vec<(f64, f64)> = drawn.points.iter().map(|(x, y)| (across.at(*x), up.at(*y))).collect();
    let corners: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    // Where they would cover each other, the line tells as much.
    let dotted = if places.len() > DOTS_MAX { &[] } else { places.as_slice() };
    let dots: String = dotted.iter().map(|place| dot(index, *place)).collect();
    if corners.is_empty() { dots } else { line(index, &format!("M{}", corners.join("L"))) + &dots }
}

/// What was measured: a line between two of them is only drawn.
fn dot(index: usize, (x, y): (f64, f64)) -> String {
    let style = index % SERIES;
    format!("<circle class=\"dot series-{style}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\"/>")
}

fn grid(chart: &Multiples, panel: &Panel, across: &Axis, up: &Axis) -> String {
    let row = |value: f64| {
        let y = up.at(value);
        rule("grid", (LEFT, y), (WIDTH - RIGHT, y)) + &text(LEFT - 7.0, y + 4.0, "end", &label(panel.unit, value))
    };
    let column = |value: f64| {
        let x = across.at(value);
        rule("grid", (x, BOTTOM), (x, BOTTOM + 4.0))
            + &text(x, BOTTOM + 17.0, "middle", &label(chart.across_unit, value))
    };
    let rows: String = up.ticks().into_iter().map(row).collect();
    let columns: String = across.ticks().into_iter().map(column).collect();
    rows + &columns + &text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 6.0, "middle", &chart.across)
}

fn limit_line(panel: &Panel, up: &Axis) -> String {
    let Some(limit) = &panel.limit else { return String::new() };
    let y = up.at(limit.value);
    let name = format!("{} {}", limit.name, label(panel.unit, limit.value));
    // Above the line, unless that is beyond the picture.
    let beside = if y - TOP < LABEL_HEIGHT { LABEL_HEIGHT } else { -5.0 };
    rule("limit", (LEFT, y), (WIDTH - RIGHT, y)) + &text(LEFT + 6.0, y + beside, "start", &name)
}
