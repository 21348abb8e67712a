//! Drawing in SVG, here and not in the page's script, so that these pictures are there without it.
//!
//! Colours and line styles are classes of page.css: light and dark have one home.

mod axis;
mod bars;
mod heatmap;
mod intervals;
mod multiples;
pub(crate) mod svg;

use crate::result::ResultFile;

use bars::bars;
use heatmap::heatmap;
use intervals::intervals;
use multiples::multiples;

/// What of `result` is drawn here, as HTML.
pub(super) fn pictures(result: &ResultFile) -> String {
    drawn(&result.bars, bars)
        + &drawn(&result.heatmaps, heatmap)
        + &drawn(&result.intervals, intervals)
        + &drawn(&result.multiples, multiples)
}

fn drawn<T>(charts: &[T], draw: fn(usize, &T) -> String) -> String {
    charts.iter().enumerate().map(|(number, chart)| draw(number, chart)).collect()
}
