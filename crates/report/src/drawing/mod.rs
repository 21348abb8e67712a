//! Drawing in SVG, here and not in the page's script, so that these pictures are there without it.
//!
//! Colours and line styles are classes of page.css: light and dark have one home.

mod axis;
mod bars;
mod heatmap;
mod intervals;
mod multiples;

use crate::markup::escape;
use crate::result::ResultFile;

use bars::bars;
use heatmap::heatmap;
use intervals::intervals;
use multiples::multiples;

/// How many line styles page.css tells apart; further settings start over.
pub(super) const SERIES: usize = 8;
/// Dashes beside colours, so that lines differ in print and to every eye: as in curves.js.
const DASHES: [&str; SERIES] = ["2 4", "", "9 4", "", "6 3 2 3", "", "12 4", "3 2"];

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

/// A picture with its title and caption, framed as those that the script draws.
fn figure(number: usize, kind: &str, title: &str, caption: &str, body: &str) -> String {
    let id = format!("{kind}-{number}");
    format!(
        "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{}</h2>\n<p class=\"caption\">{}</p>\n\
         <figure>\n{body}\n</figure>\n</section>\n",
        escape(title),
        escape(caption)
    )
}

/// The words of a legend, each behind a piece of its line.
fn legend(names: &[String], sample: impl Fn(usize) -> String) -> String {
    let item = |(index, name): (usize, &String)| format!("<li>{}{}</li>\n", sample(index), escape(name));
    let items: String = names.iter().enumerate().map(item).collect();
    format!("<ul class=\"legend\">\n{items}</ul>")
}

/// A short piece of the line of series `index`.
fn line_sample(index: usize) -> String {
    let path = line(index, "M0 5H26");
    format!("<svg width=\"26\" height=\"10\" aria-hidden=\"true\">{path}</svg>")
}

fn line(index: usize, path: &str) -> String {
    let style = index % SERIES;
    let dashes = DASHES[style];
    format!("<path class=\"curve series-{style}\" stroke-dasharray=\"{dashes}\" d=\"{path}\"/>")
}

/// The distinct names, in the order of their first appearance.
fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for name in names {
        if !seen.contains(name) {
            seen.push(name.clone());
        }
    }
    seen
}

fn text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escape(words))
}

fn rule(class: &str, from: (f64, f64), to: (f64, f64)) -> String {
    let ((x1, y1), (x2, y2)) = (from, to);
    format!("<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>")
}
