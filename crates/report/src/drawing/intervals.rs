//! Drawing of means and their intervals on a logarithmic axis, since the means differ by factors of thousands.

use crate::chart::{Intervals, Mean, ScaleKind};
use crate::drawing::axis::{Axis, tick_label};
use crate::drawing::svg::{distinct, figure, legend, svg_line, svg_text};
use crate::markup::escape;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 220.0;
const RIGHT: f64 = 100.0;
const TOP: f64 = 6.0;
const FOOT: f64 = 44.0;
/// Height of the line of one mean.
const LINE_HEIGHT: f64 = 17.0;
const GROUP_GAP: f64 = 12.0;

/// Draws means with their intervals as HTML.
pub(super) fn draw_intervals(figure_number: usize, chart: &Intervals) -> String {
    let kinds = series_by_origin(chart);
    let names: Vec<String> = kinds.iter().map(|(series, measured)| series_label(series, *measured)).collect();
    let series = distinct(chart.groups.iter().flat_map(|group| group.means.iter().map(|mean| &mean.series)));
    let sample = |index: usize| {
        let (name, measured) = &kinds[index];
        let mark = draw_mark(series_index(&series, name), *measured, 6.0, 6.0);
        format!("<svg width=\"12\" height=\"12\" aria-hidden=\"true\">{mark}</svg>")
    };
    let body = format!("{}\n{}", legend(&names, sample), draw_svg(chart, &series));
    figure(figure_number, "intervals", &chart.title, &chart.caption, &body)
}

/// Returns each series, and whether this run measured it; measured ones come first. A series from a paper has the
/// colour of the measured series with the same name.
fn series_by_origin(chart: &Intervals) -> Vec<(String, bool)> {
    let means = || chart.groups.iter().flat_map(|group| &group.means);
    let of = |measured: bool| {
        let series = distinct(means().filter(|mean| mean.half_width.is_some() == measured).map(|mean| &mean.series));
        series.into_iter().map(move |series| (series, measured))
    };
    of(true).chain(of(false)).collect()
}

fn series_label(series: &str, measured: bool) -> String {
    if measured { series.to_owned() } else { format!("{series}, from the paper") }
}

fn series_index(series: &[String], name: &str) -> usize {
    series.iter().position(|known| known == name).unwrap_or(0)
}

fn draw_svg(chart: &Intervals, series: &[String]) -> String {
    let lines: usize = chart.groups.iter().map(|group| group.means.len()).sum();
    let bottom = TOP + lines as f64 * LINE_HEIGHT + chart.groups.len() as f64 * GROUP_GAP;
    let values = chart
        .groups
        .iter()
        .flat_map(|group| &group.means)
        .flat_map(|mean| [mean.mean, mean.mean + mean.half_width.unwrap_or(0.0)]);
    let axis = Axis::from_values(ScaleKind::Log, values, (LEFT, WIDTH - RIGHT));
    let mut inside = draw_grid(chart, &axis, bottom);
    let mut y = TOP + GROUP_GAP / 2.0;
    for group in &chart.groups {
        let middle = y + group.means.len() as f64 * LINE_HEIGHT / 2.0;
        inside += &svg_text(LEFT - 14.0, middle + 4.0, "end", &group.name);
        for mean in &group.means {
            inside += &draw_mean(chart, &axis, series, mean, y + LINE_HEIGHT / 2.0);
            y += LINE_HEIGHT;
        }
        y += GROUP_GAP;
        inside += &svg_line("grid", (10.0, y - GROUP_GAP / 2.0), (WIDTH, y - GROUP_GAP / 2.0));
    }
    let height = bottom + FOOT;
    let named = escape(&chart.title);
    format!("<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{named}\">{inside}</svg>")
}

fn draw_grid(chart: &Intervals, axis: &Axis, bottom: f64) -> String {
    let tick = |value: f64| {
        let x = axis.position(value);
        svg_line("grid", (x, TOP), (x, bottom)) + &svg_text(x, bottom + 17.0, "middle", &tick_label(chart.unit, value))
    };
    let ticks: String = axis.ticks().into_iter().map(tick).collect();
    ticks + &svg_text((LEFT + WIDTH - RIGHT) / 2.0, bottom + 36.0, "middle", &chart.across)
}

/// Draws a mark at the mean, whiskers to the ends of the interval, and the number.
fn draw_mean(chart: &Intervals, axis: &Axis, series: &[String], mean: &Mean, y: f64) -> String {
    let index = series_index(series, &mean.series);
    let x = axis.position(mean.mean);
    let half_width = mean.half_width.unwrap_or(0.0);
    let (from, to) = (axis.position(mean.mean - half_width), axis.position(mean.mean + half_width));
    let whisker = match mean.half_width {
        Some(_) => svg_line(&format!("whisker series-{index}"), (from, y), (to, y)),
        None => String::new(),
    };
    let number = svg_text(x.max(to) + 10.0, y + 4.0, "start", &tick_label(chart.unit, mean.mean.round()));
    svg_line(&format!("stem series-{index}"), (LEFT, y), (x, y))
        + &whisker
        + &draw_mark(index, mean.half_width.is_some(), x, y)
        + &number
}

/// Draws the mark of a mean: filled if this run measured it, hollow if it is from another source, such as a paper.
fn draw_mark(index: usize, measured: bool, x: f64, y: f64) -> String {
    let class = if measured { "dot" } else { "ring" };
    format!("<circle class=\"{class} series-{index}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>")
}
