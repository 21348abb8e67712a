//! All requests by latency: how many took so long, and where their time went.

use crate::chart::ScaleKind;
use crate::drawing::axis::{Axis, label};
use crate::drawing::svg::{rule, text};
use crate::markup::{escape, section};
use crate::trace::{Bar, Trace};
use crate::unit::Unit;

use super::parts::{color, legend};

const WIDTH: f64 = 1040.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = HEIGHT - 46.0;

/// The picture with its legend.
pub(super) fn spread(trace: &Trace) -> String {
    if trace.spread.is_empty() {
        return String::new();
    }
    let caption = "A bar is all requests that took about as long; its height is their number, on a logarithmic scale. \
                   Its colours are where their time went: half a bar in one colour is half of their time.";
    let body = format!("<p class=\"caption\">{caption}</p>\n<figure>\n{}{}\n</figure>", legend(trace), drawing(trace));
    section("spread", "How long requests took", &body)
}

fn drawing(trace: &Trace) -> String {
    let ends = trace.spread.iter().flat_map(|bar| [bar.from_us, bar.to_us]).chain([trace.limit_us]);
    let across = Axis::of(ScaleKind::Log, ends, (LEFT, WIDTH - RIGHT));
    // One request is a bar too: the axis begins below it.
    let counts = trace.spread.iter().map(|bar| bar.requests_count as f64).chain([0.7]);
    let up = Axis::of(ScaleKind::Log, counts, (BOTTOM, TOP));
    let bars: String = trace.spread.iter().map(|bar| one(trace, bar, &across, &up)).collect();
    let inside = grid(&across, &up) + &bars + &limit(trace, &across);
    format!(
        "<svg class=\"chart spread\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"Requests by latency\">{inside}</svg>"
    )
}

fn one(trace: &Trace, bar: &Bar, across: &Axis, up: &Axis) -> String {
    let (left, right) = (across.at(bar.from_us), across.at(bar.to_us));
    let top = up.at(bar.requests_count as f64);
    let all: f64 = bar.time.iter().map(|part| part.us).sum::<f64>().max(f64::MIN_POSITIVE);
    let mut y = BOTTOM;
    let mut parts = String::new();
    for part in &bar.time {
        let height = (BOTTOM - top) * part.us / all;
        y -= height;
        parts += &format!(
            "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" style=\"fill: {}\"/>",
            (right - left - 1.0).max(1.0),
            color(&part.cause)
        );
    }
    format!("<g>{parts}<title>{}</title></g>", escape(&words(trace, bar, all)))
}

/// What the tooltip says: the range, the number, and the three largest causes.
fn words(trace: &Trace, bar: &Bar, all: f64) -> String {
    let mut time: Vec<_> = bar.time.iter().collect();
    time.sort_by(|one, other| other.us.total_cmp(&one.us));
    let largest = time
        .iter()
        .take(3)
        .map(|part| format!("{} {}", trace.name_of(&part.cause), Unit::Percent.human(100.0 * part.us / all)));
    format!(
        "{} to {}: {} requests; {}",
        Unit::Us.human(bar.from_us),
        Unit::Us.human(bar.to_us),
        Unit::Count.human(bar.requests_count as f64),
        largest.collect::<Vec<_>>().join(", ")
    )
}

fn limit(trace: &Trace, across: &Axis) -> String {
    let x = across.at(trace.limit_us);
    let words = format!("{} {}", trace.limit_name, Unit::Us.human(trace.limit_us));
    // On the side with room.
    let (anchor, beside) = if x > WIDTH / 2.0 { ("end", x - 6.0) } else { ("start", x + 6.0) };
    rule("limit", (x, TOP - 14.0), (x, BOTTOM)) + &text(beside, TOP - 6.0, anchor, &words)
}

fn grid(across: &Axis, up: &Axis) -> String {
    let row = |value: f64| {
        let y = up.at(value);
        rule("grid", (LEFT, y), (WIDTH - RIGHT, y)) + &text(LEFT - 8.0, y + 4.0, "end", &label(Unit::Count, value))
    };
    let column = |value: f64| {
        let x = across.at(value);
        rule("grid", (x, BOTTOM), (x, BOTTOM + 4.0)) + &text(x, BOTTOM + 18.0, "middle", &label(Unit::Us, value))
    };
    let rows: String = up.ticks().into_iter().filter(|tick| *tick >= 1.0).map(row).collect();
    let columns: String = across.ticks().into_iter().map(column).collect();
    rows + &columns
        + &text(
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 6.0,
            "middle",
            "latency, from the first segment to the last of the response",
        )
}
