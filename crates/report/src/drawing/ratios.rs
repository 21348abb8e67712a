//! Drawing of ratios with their intervals on a logarithmic axis around "no difference".

use crate::chart::{RatioLine, Ratios};
use crate::drawing::svg::{figure, svg_line, svg_text};
use crate::markup::escape;
use crate::unit::Unit;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 215.0;
const RIGHT: f64 = 235.0;
const TOP: f64 = 30.0;
const LINE_HEIGHT: f64 = 27.0;
const FOOT: f64 = 24.0;
/// Smallest factor that the axis reaches to both sides, and the largest: ratios beyond it are drawn at the edge.
const REACH: (f64, f64) = (1.25, 1_000.0);
/// Ratios that have a line of the grid, if the axis reaches them.
const TICKS: [f64; 11] = [1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1_000.0];
/// Smallest distance of two lines of the grid, as a part of the distance from the middle to an edge: room for a label.
const TICK_GAP: f64 = 0.26;

/// Draws ratios as HTML. All numbers are in the text too.
pub(super) fn draw_ratios(figure_number: usize, chart: &Ratios) -> String {
    let ends = |line: &RatioLine| [line.ratio].into_iter().chain(line.ends.into_iter().flatten());
    let values = chart.lines.iter().flat_map(ends).filter(|ratio| ratio.is_finite() && *ratio > 0.0);
    let reach = values.map(|ratio| ratio.ln().abs()).fold(REACH.0.ln(), f64::max).min(REACH.1.ln()) * 1.08;
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let half = (WIDTH - RIGHT - LEFT) / 2.0;
    let position = |ratio: f64| {
        let log = if ratio > 0.0 { ratio.ln() } else { f64::NEG_INFINITY };
        middle + half * (log / reach).clamp(-1.0, 1.0)
    };
    let bottom = TOP + chart.lines.len() as f64 * LINE_HEIGHT;
    let lines: String = chart.lines.iter().enumerate().map(|(at, line)| draw_line(at, line, position)).collect();
    let head = svg_text(LEFT - 14.0, TOP - 12.0, "end", "figure")
        + &svg_text(WIDTH - RIGHT + 16.0, TOP - 12.0, "start", "ratio")
        + &svg_text(WIDTH - 4.0, TOP - 12.0, "end", "medians, before and after");
    let body = format!(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-labelledby=\"ratios-{figure_number}\">\n\
         <svg class=\"chart ratios\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{}\">{head}{}{lines}</svg>\n\
         </div>",
        bottom + FOOT,
        escape(&chart.title),
        draw_grid(position, reach, bottom)
    );
    figure(figure_number, "ratios", &chart.title, &chart.caption, &body)
}

fn draw_grid(position: impl Fn(f64) -> f64, reach: f64, bottom: f64) -> String {
    let mut last = 0.0;
    let has_room = |tick: &f64| {
        let place = tick.ln() / reach;
        let is_shown = place <= 0.97 && place - last >= TICK_GAP;
        last = if is_shown { place } else { last };
        is_shown
    };
    let shown = TICKS.into_iter().filter(has_room).flat_map(|tick| [1.0 / tick, tick]);
    let tick = |(class, ratio): (&str, f64)| {
        let x = position(ratio);
        svg_line(class, (x, TOP - 4.0), (x, bottom)) + &svg_text(x, bottom + 17.0, "middle", &Unit::Ratio.human(ratio))
    };
    shown.map(|ratio| tick(("grid", ratio))).collect::<String>() + &tick(("even", 1.0))
}

fn draw_line(at: usize, line: &RatioLine, position: impl Fn(f64) -> f64) -> String {
    let y = TOP + (at as f64 + 0.5) * LINE_HEIGHT;
    let class = match line.ends {
        Some([low, _]) if low > 1.0 => "more",
        Some([_, high]) if high < 1.0 => "less",
        _ => "same",
    };
    let human = |ratio: f64| Unit::Ratio.human(ratio);
    let bar = line.ends.map(|[low, high]| svg_line("bar", (position(low), y), (position(high), y)));
    let ends = line.ends.map(|[low, high]| format!(" ({} to {})", human(low), human(high)));
    let [before, after] = &line.values;
    let words = format!("{}: {}{}; {before}, {after}", line.name, human(line.ratio), ends.clone().unwrap_or_default());
    format!(
        "<g class=\"{class}\"><title>{}</title>{}{}<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"5\"/>\
         <g class=\"name\">{}</g><g class=\"name\">{}</g>{}</g>",
        escape(&words),
        svg_line("row", (0.0, y + LINE_HEIGHT / 2.0), (WIDTH, y + LINE_HEIGHT / 2.0)),
        bar.unwrap_or_default(),
        position(line.ratio),
        svg_text(LEFT - 14.0, y + 4.0, "end", &shortened(&line.name)),
        svg_text(WIDTH - RIGHT + 16.0, y + 4.0, "start", &human(line.ratio)),
        svg_text(WIDTH - 4.0, y + 4.0, "end", &format!("{before} → {after}")),
    )
}

/// Returns a name that fits beside the axis; the tooltip has all of it.
fn shortened(name: &str) -> String {
    const LETTERS_MAX: usize = 30;
    match name.chars().count() {
        0..=LETTERS_MAX => name.to_owned(),
        _ => name.chars().take(LETTERS_MAX - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(lines: Vec<RatioLine>) -> Ratios {
        let (title, caption) = ("<b> of a".to_owned(), String::new());
        Ratios { title, caption, of: ["a".into(), "b".into()], lines }
    }

    fn line(ratio: f64, ends: Option<[f64; 2]>) -> RatioLine {
        RatioLine { name: "latency p99".into(), values: ["1 ms".into(), "2 ms".into()], ratio, ends }
    }

    #[test]
    fn certain_differences_are_coloured_by_direction() {
        let lines = vec![
            line(2.0, Some([1.8, 2.2])),
            line(0.5, Some([0.4, 0.9])),
            line(1.1, Some([0.9, 1.3])),
            line(3.0, None),
        ];
        let html = draw_ratios(0, &chart(lines));
        assert_eq!(
            ["more", "less", "same"].map(|class| html.matches(&format!("<g class=\"{class}\">")).count()),
            [1, 1, 2]
        );
        assert!(html.contains("&lt;b&gt; of a") && html.contains("2.00× (1.80× to 2.20×)"), "{html}");
    }

    #[test]
    fn ratios_without_a_place_are_drawn_at_the_edge() {
        let odd = [0.0, f64::INFINITY, f64::NAN, 1e300, 1e-300];
        let html = draw_ratios(0, &chart(odd.map(|ratio| line(ratio, Some([0.0, ratio]))).to_vec()));
        assert!(!html.contains("=\"NaN") && !html.contains("=\"inf"), "{html}");
        draw_ratios(0, &chart(Vec::new()));
    }
}
