//! Drawing of small multiples: panels with the same horizontal axis, and a line for each setting.

use crate::chart::{Line, Multiples, Panel, ScaleKind};
use crate::drawing::axis::{Axis, tick_label};
use crate::drawing::svg::{SERIES, distinct, draw_curve, draw_line_sample, figure, legend, svg_line, svg_text};
use crate::markup::escape;

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = HEIGHT - 42.0;
/// Height of a line of text.
const LABEL_HEIGHT: f64 = 14.0;
/// Space between a drawn line and its name above it.
const LABEL_ROOM: f64 = 5.0;
/// Estimated width of a letter. The width of a name cannot be measured here, so the estimate is the width of wide
/// letters.
const LETTER_WIDTH: f64 = 7.0;
/// Most points of a line for which each point gets a dot.
const DOTS_MAX: usize = 40;

/// Draws the panels as HTML.
pub(super) fn draw_multiples(figure_number: usize, chart: &Multiples) -> String {
    let names = distinct(chart.panels.iter().flat_map(|panel| panel.lines.iter().map(|line| &line.setting)));
    let panels: String = chart.panels.iter().map(|panel| draw_panel(chart, panel, &names)).collect();
    let columns = chart.columns.clamp(1, 4);
    let body =
        format!("{}\n<div class=\"panels columns-{columns}\">\n{panels}</div>", legend(&names, draw_line_sample));
    figure(figure_number, "multiples", &chart.title, &chart.caption, &body)
}

fn draw_panel(chart: &Multiples, panel: &Panel, names: &[String]) -> String {
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let limit = panel.limit.as_ref().map(|limit| limit.value);
    // All panels share the horizontal axis, so that they can be compared.
    let all = chart.panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
    let across = Axis::from_values(ScaleKind::Linear, all.map(|point| point.0), (LEFT, WIDTH - RIGHT));
    let up =
        Axis::from_values(panel.scale, points().map(|point| point.1).chain(limit).chain(panel.up_to), (BOTTOM, TOP));
    let lines: String = panel.lines.iter().map(|drawn| draw_line(drawn, names, &across, &up)).collect();
    let inside = draw_grid(chart, panel, &across, &up) + &limit_line(panel, &across, &up) + &lines;
    let title = escape(&panel.title);
    format!(
        "<div class=\"panel\"><h3>{title}</h3><svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{title}\">{inside}</svg></div>\n"
    )
}

fn draw_line(drawn: &Line, names: &[String], across: &Axis, up: &Axis) -> String {
    let index = names.iter().position(|name| *name == drawn.setting).unwrap_or(0);
    let places: Vec<(f64, f64)> = drawn.points.iter().map(|(x, y)| (across.position(*x), up.position(*y))).collect();
    let corners: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    // With more points, dots would cover each other, and the line shows as much as dots.
    let dotted = if places.len() > DOTS_MAX { &[] } else { places.as_slice() };
    let dots: String = dotted.iter().map(|place| dot(index, *place)).collect();
    if corners.is_empty() { dots } else { draw_curve(index, &format!("M{}", corners.join("L"))) + &dots }
}

/// Draws a measured point as a dot. A line between two dots was not measured.
fn dot(index: usize, (x, y): (f64, f64)) -> String {
    let style = index % SERIES;
    format!("<circle class=\"dot series-{style}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\"/>")
}

fn draw_grid(chart: &Multiples, panel: &Panel, across: &Axis, up: &Axis) -> String {
    let row = |value: f64| {
        let y = up.position(value);
        svg_line("grid", (LEFT, y), (WIDTH - RIGHT, y))
            + &svg_text(LEFT - 7.0, y + 4.0, "end", &tick_label(panel.unit, value))
    };
    let column = |value: f64| {
        let x = across.position(value);
        svg_line("grid", (x, BOTTOM), (x, BOTTOM + 4.0))
            + &svg_text(x, BOTTOM + 17.0, "middle", &tick_label(chart.across_unit, value))
    };
    let rows: String = up.ticks().into_iter().map(row).collect();
    let columns: String = across.ticks().into_iter().map(column).collect();
    rows + &columns + &svg_text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 6.0, "middle", &chart.across)
}

fn limit_line(panel: &Panel, across: &Axis, up: &Axis) -> String {
    let Some(limit) = &panel.limit else { return String::new() };
    let y = up.position(limit.value);
    let name = format!("{} {}", limit.name, tick_label(panel.unit, limit.value));
    let places: Vec<(f64, f64)> = panel.lines.iter().flat_map(|line| points_along(line, across, up)).collect();
    let place = label_place(y, name.len() as f64 * LETTER_WIDTH, &places);
    svg_line("limit", (LEFT, y), (WIDTH - RIGHT, y)) + &svg_text(place.x, place.y, place.anchor, &name)
}

/// Returns points of a drawn line that lie close together. A line that crosses a label therefore has a point within
/// that label.
fn points_along(line: &Line, across: &Axis, up: &Axis) -> Vec<(f64, f64)> {
    const STEPS: usize = 16;
    let corners: Vec<(f64, f64)> = line.points.iter().map(|(x, y)| (across.position(*x), up.position(*y))).collect();
    let between = |from: (f64, f64), to: (f64, f64), part: f64| {
        (from.0 + (to.0 - from.0) * part, from.1 + (to.1 - from.1) * part)
    };
    let steps = |pair: &[(f64, f64)]| {
        let (from, to) = (pair[0], pair[1]);
        (0..STEPS).map(move |step| between(from, to, step as f64 / STEPS as f64))
    };
    corners.windows(2).flat_map(steps).chain(corners.last().copied()).collect()
}

/// Place of a text in the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TextPlace {
    x: f64,
    y: f64,
    anchor: &'static str,
}

/// Returns a place for the name of a line that ends at height `y`. The name stands above or below the line, at its left
/// or right end, inside the picture. `places` are the points of drawn lines; the name covers as few of them as
/// possible.
fn label_place(y: f64, width: f64, line_points: &[(f64, f64)]) -> TextPlace {
    let covered = |place: &TextPlace| {
        let left = if place.anchor == "start" { place.x } else { place.x - width };
        let is_in = |(x, y): &&(f64, f64)| {
            (left..=left + width).contains(x) && (place.y - LABEL_HEIGHT..=place.y + LABEL_ROOM).contains(y)
        };
        line_points.iter().filter(is_in).count()
    };
    let (above, below) = (y - LABEL_ROOM, y + LABEL_HEIGHT);
    let ends = [(LEFT + 6.0, "start"), (WIDTH - RIGHT - 6.0, "end")];
    let all = [above, below].into_iter().flat_map(|y| ends.map(|(x, anchor)| TextPlace { x, y, anchor }));
    let inside = all.filter(|place| place.y - LABEL_HEIGHT >= TOP - LABEL_ROOM && place.y <= BOTTOM);
    let usual = TextPlace { x: LEFT + 6.0, y: below, anchor: "start" };
    inside.min_by_key(covered).unwrap_or(usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_is_placed_where_no_line_is() {
        let (left, right) = ((LEFT + 40.0, 100.0), (WIDTH - RIGHT - 40.0, 100.0));
        let place = |places: &[(f64, f64)]| label_place(105.0, 80.0, places);
        assert_eq!(place(&[]), TextPlace { x: LEFT + 6.0, y: 100.0, anchor: "start" });
        assert_eq!(place(&[left]), TextPlace { x: WIDTH - RIGHT - 6.0, y: 100.0, anchor: "end" });
        assert_eq!(place(&[left, right]).y, 119.0);
    }

    #[test]
    fn label_is_placed_within_the_picture() {
        assert_eq!(label_place(TOP, 80.0, &[]).y, TOP + LABEL_HEIGHT);
        assert_eq!(label_place(BOTTOM, 80.0, &[(LEFT + 10.0, BOTTOM - 5.0)]).y, BOTTOM - LABEL_ROOM);
    }
}
