//! SVG drawings, made here and not by the page's script, so that the page shows them without one.
//!
//! Colours and line styles are classes of page.css, which defines the light and the dark theme.

mod axis;
mod bars;
mod heatmap;
mod intervals;
mod multiples;
pub(crate) mod svg;
pub(crate) mod trace;

use crate::result::ResultFile;

use bars::bars;
use heatmap::heatmap;
use intervals::intervals;
use multiples::multiples;

/// The pictures of `result` that are drawn here, as HTML.
pub(super) fn pictures(result: &ResultFile) -> String {
    drawn(&result.bars, bars)
        + &drawn(&result.heatmaps, heatmap)
        + &drawn(&result.intervals, intervals)
        + &drawn(&result.multiples, multiples)
}

fn drawn<T>(charts: &[T], draw: fn(usize, &T) -> String) -> String {
    charts.iter().enumerate().map(|(number, chart)| draw(number, chart)).collect()
}
