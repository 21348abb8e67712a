//! Drawing of a heat map: how often pairs of values occurred, as cells on two logarithmic axes. The more samples, the
//! darker the cell.
//!
//! Counts differ by powers of ten, so the shade follows the logarithm of the count. One colour in several strengths
//! can be read on light and dark backgrounds, and by colour-blind users.

use crate::chart::{Cell, Heatmap, Quantity, ScaleKind};
use crate::drawing::axis::{Axis, tick_label};
use crate::drawing::svg::{figure, svg_line, svg_text};
use crate::markup::escape;
use crate::unit::Unit;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = HEIGHT - 46.0;
/// Width of the strip for zero, which a logarithmic axis cannot show.
const ZERO_STRIP: f64 = 22.0;
const ZERO_GAP: f64 = 6.0;
/// Opacity of a cell with one sample.
const FAINTEST: f64 = 0.14;
/// Number of shades in the legend.
const LEGEND_STEPS: u32 = 5;

/// Draws a heat map as HTML.
pub(super) fn draw_heatmap(figure_number: usize, chart: &Heatmap) -> String {
    let most = chart.cells.iter().map(|cell| cell.count).max().unwrap_or(1);
    let body = format!(
        "{}\n<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-labelledby=\"heatmap-{figure_number}\">{}</div>",
        legend(most),
        draw_svg(chart, most)
    );
    figure(figure_number, "heatmap", &chart.title, &chart.caption, &body)
}

/// Draws the legend: shades from one sample to the highest count.
fn legend(highest_count: u64) -> String {
    let step = |step: u32| {
        let share = f64::from(step) / f64::from(LEGEND_STEPS - 1);
        let count = (highest_count as f64).powf(share).round();
        let patch = format!(
            "<rect class=\"heat\" width=\"15\" height=\"13\" fill-opacity=\"{:.2}\"/>",
            opacity_of_share(share)
        );
        let words = escape(&tick_label(Unit::Count, count));
        format!("<li><svg width=\"15\" height=\"13\" aria-hidden=\"true\">{patch}</svg>{words}</li>\n")
    };
    let steps: String = if highest_count > 1 { (0..LEGEND_STEPS).map(step).collect() } else { step(LEGEND_STEPS - 1) };
    format!("<ul class=\"legend\">\n<li>samples</li>\n{steps}</ul>")
}

/// Returns the opacity of a cell. `share` is the logarithm of the cell's count, divided by the logarithm of the highest
/// count.
fn opacity_of_share(share: f64) -> f64 {
    FAINTEST + (1.0 - FAINTEST) * share
}

fn cell_opacity(count: u64, highest_count: u64) -> f64 {
    let share = if highest_count > 1 { (count.max(1) as f64).ln() / (highest_count as f64).ln() } else { 1.0 };
    opacity_of_share(share)
}

/// One axis of a heat map. If a cell's range begins at zero, a strip for zero precedes the logarithmic axis.
struct HeatmapAxis<'a> {
    of: &'a Quantity,
    axis: Axis,
    /// Start and end of the strip for zero.
    zero: Option<(f64, f64)>,
}

impl<'a> HeatmapAxis<'a> {
    /// Returns an axis of a heat map between the positions `from` and `to`; `to` may be less than `from`.
    fn new(quantity: &'a Quantity, ranges: impl Iterator<Item = (f64, f64)> + Clone, (from, to): (f64, f64)) -> Self {
        let has_zero = ranges.clone().any(|(low, _)| low <= 0.0);
        let towards = (to - from).signum();
        let zero = has_zero.then_some((from, from + towards * ZERO_STRIP));
        let begins = if has_zero { from + towards * (ZERO_STRIP + ZERO_GAP) } else { from };
        let ends = ranges.filter(|(low, _)| *low > 0.0).flat_map(|(low, high)| [low, high]);
        Self { of: quantity, axis: Axis::from_values(ScaleKind::Log, ends, (begins, to)), zero }
    }

    /// Returns the positions of a range's ends, the lower first.
    fn positions(&self, (low, high): (f64, f64)) -> (f64, f64) {
        let (a, b) = match self.zero {
            Some(strip) if low <= 0.0 => strip,
            _ => (self.axis.position(low), self.axis.position(high)),
        };
        (a.min(b), a.max(b))
    }

    /// Returns positions and labels of the ticks, zero included. Ticks closer than `room` to the tick of zero are left
    /// out.
    fn ticks(&self, min_distance: f64) -> Vec<(f64, String)> {
        let zero = self.zero.map(|(from, to)| ((from + to) / 2.0, "≈0".to_owned()));
        let zero_at = zero.as_ref().map_or(f64::INFINITY, |(at, _)| *at);
        let others =
            self.axis.ticks().into_iter().map(|tick| (self.axis.position(tick), tick_label(self.of.unit, tick)));
        let free = others.filter(|(at, _)| (at - zero_at).abs() > min_distance);
        zero.into_iter().chain(free).collect()
    }

    fn range_text(&self, (low, high): (f64, f64)) -> String {
        let unit = self.of.unit;
        match low <= 0.0 {
            true => format!("{} below {}", self.of.name, tick_label(unit, high)),
            false => format!("{} {} to {}", self.of.name, tick_label(unit, low), tick_label(unit, high)),
        }
    }
}

fn draw_svg(chart: &Heatmap, highest_count: u64) -> String {
    let across = HeatmapAxis::new(&chart.across, chart.cells.iter().map(|cell| cell.across), (LEFT, WIDTH - RIGHT));
    let up = HeatmapAxis::new(&chart.up, chart.cells.iter().map(|cell| cell.up), (BOTTOM, TOP));
    let cells: String = chart.cells.iter().map(|cell| draw_cell(cell, &across, &up, highest_count)).collect();
    let inside = draw_grid(&across, &up) + &cells;
    let named = escape(&format!("{}: {} cells", chart.title, chart.cells.len()));
    format!(
        "<svg class=\"chart heatmap\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{named}\">{inside}</svg>"
    )
}

/// Draws one cell, with a tooltip that gives its ranges and its count.
fn draw_cell(cell: &Cell, across: &HeatmapAxis, up: &HeatmapAxis, highest_count: u64) -> String {
    let ((left, right), (top, bottom)) = (across.positions(cell.across), up.positions(cell.up));
    let words = format!(
        "{}; {}: {}",
        across.range_text(cell.across),
        up.range_text(cell.up),
        tick_label(Unit::Count, cell.count as f64)
    );
    format!(
        "<rect class=\"heat\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill-opacity=\"{:.2}\">\
         <title>{}</title></rect>",
        right - left,
        bottom - top,
        cell_opacity(cell.count, highest_count),
        escape(&words)
    )
}

fn draw_grid(across: &HeatmapAxis, up: &HeatmapAxis) -> String {
    let column = |(x, words): (f64, String)| {
        svg_line("grid", (x, TOP), (x, BOTTOM + 4.0)) + &svg_text(x, BOTTOM + 18.0, "middle", &words)
    };
    let row = |(y, words): (f64, String)| {
        svg_line("grid", (LEFT - 4.0, y), (WIDTH - RIGHT, y)) + &svg_text(LEFT - 9.0, y + 4.0, "end", &words)
    };
    let columns: String = across.ticks(42.0).into_iter().map(column).collect();
    let rows: String = up.ticks(16.0).into_iter().map(row).collect();
    columns
        + &rows
        + &svg_text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 6.0, "middle", &across.of.name)
        + &svg_text(4.0, 14.0, "start", &up.of.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_grows_with_the_logarithm_of_the_count() {
        assert!((cell_opacity(1, 10_000) - FAINTEST).abs() < 1e-9);
        assert!((cell_opacity(10_000, 10_000) - 1.0).abs() < 1e-9);
        assert!((cell_opacity(100, 10_000) - (1.0 + FAINTEST) / 2.0).abs() < 1e-9);
        assert!((cell_opacity(1, 1) - 1.0).abs() < 1e-9, "a single cell has full strength");
    }

    #[test]
    fn zero_has_a_strip_before_the_axis() {
        let of = Quantity { name: "misses".into(), unit: Unit::PerS };
        let ranges = [(0.0, 1.0), (10.0, 20.0)];
        let side = HeatmapAxis::new(&of, ranges.into_iter(), (100.0, 0.0));
        let ((zero_top, zero_bottom), (top, bottom)) = (side.positions(ranges[0]), side.positions(ranges[1]));
        assert_eq!((zero_top, zero_bottom), (100.0 - ZERO_STRIP, 100.0));
        assert!(0.0 <= top && top < bottom && bottom < zero_top);
    }
}
