//! SVG drawings that the page shows without a script: this code draws them when the page is written.
//!
//! Colours and line styles are classes of page.css, which defines the light and the dark theme.

mod axis;
mod heatmap;
mod intervals;
mod multiples;
mod ratios;
pub(crate) mod svg;
pub(crate) mod trace;

use crate::chart::{BarRow, Bars, Quantity};
use crate::drawing::svg::{SERIES, figure};
use crate::markup::escape;
use crate::result::ResultFile;
use crate::unit::{MISSING, Unit};

use heatmap::draw_heatmap;
use intervals::draw_intervals;
use multiples::draw_multiples;
use ratios::draw_ratios;

/// Draws the pictures of `result` that need no script, as HTML.
pub(super) fn draw_pictures(result: &ResultFile) -> String {
    draw_all(&result.bars, draw_bars)
        + &draw_all(&result.heatmaps, draw_heatmap)
        + &draw_all(&result.intervals, draw_intervals)
        + &draw_all(&result.multiples, draw_multiples)
}

/// Draws the ratios of a comparison, as HTML. They are its main result, so the page has them before all other pictures.
pub(super) fn draw_all_ratios(result: &ResultFile) -> String {
    draw_all(&result.ratios, draw_ratios)
}

fn draw_all<T>(charts: &[T], draw: fn(usize, &T) -> String) -> String {
    charts.iter().enumerate().map(|(number, chart)| draw(number, chart)).collect()
}

/// Draws numbers as a table whose cells have bars. The table is readable without the bars.
fn draw_bars(figure_number: usize, chart: &Bars) -> String {
    let titles: String = chart.columns.iter().map(|column| title_cell(&column.name)).collect();
    let most: Vec<f64> = (0..chart.columns.len()).map(|column| column_max(chart, column)).collect();
    let rows: String =
        chart.rows.iter().enumerate().map(|(index, row)| draw_row(index, row, &chart.columns, &most)).collect();
    let body = format!(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-labelledby=\"bars-{figure_number}\">\n\
         <table class=\"bars\">\n<thead><tr>{}{titles}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>",
        title_cell(&chart.of)
    );
    figure(figure_number, "bars", &chart.title, &chart.caption, &body)
}

fn title_cell(words: &str) -> String {
    format!("<th scope=\"col\">{}</th>", escape(words))
}

/// Returns the value of a full bar in a column: the highest one.
fn column_max(chart: &Bars, column: usize) -> f64 {
    let values = chart.rows.iter().filter_map(|row| row.values.get(column).copied().flatten());
    values.fold(f64::MIN_POSITIVE, f64::max)
}

fn draw_row(index: usize, row: &BarRow, columns: &[Quantity], column_maxima: &[f64]) -> String {
    let cells = columns.iter().zip(&row.values).zip(column_maxima);
    let cells: String = cells.map(|((column, value), most)| draw_cell(column.unit, *value, *most)).collect();
    let name = escape(&row.name);
    format!("<tr class=\"{}\"><th scope=\"row\">{}{name}</th>{cells}</tr>\n", color_class(index), swatch(index))
}

/// Returns the CSS class of the colour that series.js gives to value number `index` of a signal. Values that series.js
/// draws in grey have the class `others`.
fn color_class(index: usize) -> String {
    if index + 1 < SERIES { format!("series-{}", index + 1) } else { "others".to_owned() }
}

fn swatch(index: usize) -> String {
    format!("<span class=\"swatch {}\" aria-hidden=\"true\"></span>", color_class(index))
}

fn draw_cell(unit: Unit, value: Option<f64>, column_max: f64) -> String {
    let Some(value) = value else {
        return format!("<td class=\"missing\" aria-label=\"not measured\">{MISSING}</td>");
    };
    let share = 100.0 * (value / column_max).clamp(0.0, 1.0);
    let words = escape(&unit.human(value));
    format!("<td><div class=\"measure\"><span>{words}</span><i style=\"width: {share:.1}%\"></i></div></td>")
}
