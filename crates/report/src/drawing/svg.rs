//! Parts of SVG that several pictures use.

use crate::markup::escape;

/// Number of colours in page.css; further settings repeat them.
pub(crate) const SERIES: usize = 8;
/// Dashes of lines, in addition to colours, so that lines differ in print and for colour-blind users. The second line
/// of a colour has other dashes than the first. curves.js has the same dashes.
const DASHES: [[&str; SERIES]; 2] =
    [["2 4", "", "9 4", "", "6 3 2 3", "", "12 4", "3 2"], ["8 4", "2 4", "", "8 4", "", "2 4", "", "9 3 2 3"]];

/// Draws the frame of a picture, with title and caption, as the script does for its pictures.
pub(super) fn figure(number: usize, kind: &str, title: &str, caption: &str, body: &str) -> String {
    let id = format!("{kind}-{number}");
    format!(
        "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{}</h2>\n<p class=\"caption\">{}</p>\n\
         <figure>\n{body}\n</figure>\n</section>\n",
        escape(title),
        escape(caption)
    )
}

/// Draws a legend: each name after a short piece of its line.
pub(super) fn legend(names: &[String], draw_sample: impl Fn(usize) -> String) -> String {
    let item = |(index, name): (usize, &String)| format!("<li>{}{}</li>\n", draw_sample(index), escape(name));
    let items: String = names.iter().enumerate().map(item).collect();
    format!("<ul class=\"legend\">\n{items}</ul>")
}

/// Draws a short piece of the line of series `index`.
pub(super) fn draw_line_sample(index: usize) -> String {
    let path = draw_curve(index, "M0 5H26");
    format!("<svg width=\"26\" height=\"10\" aria-hidden=\"true\">{path}</svg>")
}

pub(super) fn draw_curve(index: usize, path: &str) -> String {
    let style = index % SERIES;
    let dashes = DASHES[index / SERIES % DASHES.len()][style];
    format!("<path class=\"curve series-{style}\" stroke-dasharray=\"{dashes}\" d=\"{path}\"/>")
}

/// Returns the distinct names, in the order of their first appearance.
pub(super) fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for name in names {
        if !seen.contains(name) {
            seen.push(name.clone());
        }
    }
    seen
}

pub(super) fn svg_text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escape(words))
}

pub(super) fn svg_line(class: &str, from: (f64, f64), to: (f64, f64)) -> String {
    let ((x1, y1), (x2, y2)) = (from, to);
    format!("<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn lines_of_one_colour_differ_in_their_dashes() {
        let lines: BTreeSet<String> = (0..2 * SERIES).map(|index| draw_curve(index, "M0 0")).collect();
        assert_eq!(lines.len(), 2 * SERIES);
    }
}
