//! Drawing of a trace of requests as HTML: the causes that made requests slow, all requests by latency, and the slowest
//! requests. trace.js draws the timelines.

use std::cmp::Reverse;

use sidelane_timeline::cause::Cause;
use sidelane_timeline::diagnosis::{Bar, CauseTime, Finding, UndetectableCause};

use crate::chart::ScaleKind;
use crate::drawing::axis::{Axis, tick_label};
use crate::drawing::svg::{svg_line, svg_text};
use crate::markup::{escape, section};
use crate::trace::{CauseText, TimelineView, TraceSection};
use crate::unit::Unit;

/// Draws all parts of a trace as HTML.
pub(crate) fn draw_trace(trace: &TraceSection) -> String {
    draw_causes(trace) + &draw_latency_bars(trace) + &slowest_table(trace) + &timeline_frame(trace)
}

/// Draws the empty frame for the timelines, which the script fills.
fn timeline_frame(trace: &TraceSection) -> String {
    if trace.requests.is_empty() {
        return String::new();
    }
    "<noscript><p>The timelines of single requests need JavaScript; everything else on this page does not.</p>\
     </noscript>\n<div id=\"trace\" hidden></div>\n"
        .to_owned()
}

/// Returns the colour of a cause, as a value for CSS: page/trace.css has one for each cause.
fn color(cause: Cause) -> String {
    format!("var(--cause-{cause}, var(--other))")
}

/// Draws a small square in the colour of a cause.
fn swatch(cause: Cause) -> String {
    format!("<span class=\"swatch\" style=\"background: {}\" aria-hidden=\"true\"></span>", color(cause))
}

/// Draws the names of all causes, with their meanings.
fn legend(trace: &TraceSection) -> String {
    let item = |words: &CauseText| {
        let (name, meaning) = (escape(&words.name), escape(&words.meaning));
        format!("<li title=\"{meaning}\">{}{name}</li>\n", swatch(words.cause))
    };
    format!("<ul class=\"legend\">\n{}</ul>\n", trace.causes.iter().map(item).collect::<String>())
}

fn to_us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// Returns the cause that took most of the time, if there is one.
fn longest_cause(time: &[CauseTime]) -> Option<&CauseTime> {
    time.iter().max_by_key(|part| part.ns)
}

/// Share of the lost time below which a cause gets only one line, at the end.
const LARGE_PERCENT: f64 = 1.0;

/// Draws the causes, the largest first, and the causes that could not be determined.
fn draw_causes(trace: &TraceSection) -> String {
    let is_large = |found: &&Finding| found.share_percent >= LARGE_PERCENT;
    let large: String = trace.found.iter().filter(is_large).map(|found| draw_finding(trace, found)).collect();
    let (small, missing) = (draw_small_causes(trace), draw_undetectable_causes(trace));
    if large.is_empty() && small.is_empty() && missing.is_empty() {
        return String::new();
    }
    section(
        "causes",
        "What made requests slow, and what to do",
        &format!("<ol class=\"causes\">\n{large}</ol>{small}{missing}"),
    )
}

fn draw_small_causes(trace: &TraceSection) -> String {
    let small = trace.found.iter().filter(|found| found.share_percent < LARGE_PERCENT);
    let item = |found: &Finding| {
        let (name, share) = (escape(found.cause.name()), Unit::Percent.human(found.share_percent));
        format!("<li>{name}: {share} of the lost time</li>\n")
    };
    collapsed_list("Small causes", &small.map(item).collect::<String>())
}

/// Draws a list that is closed at first; nothing if it is empty.
fn collapsed_list(title: &str, items: &str) -> String {
    if items.is_empty() {
        return String::new();
    }
    format!("<details class=\"fold\">\n<summary>{title}</summary>\n<ul>\n{items}</ul>\n</details>")
}

fn draw_finding(trace: &TraceSection, found: &Finding) -> String {
    let share = found.share_percent.clamp(0.0, 100.0);
    let evidence: String = found.evidence.iter().map(|seen| format!("<li>{}</li>", escape(seen))).collect();
    format!(
        "<li>\n<h3>{}{}</h3>\n<div class=\"share\"><i style=\"width: {share:.1}%; background: {}\"></i></div>\n\
         <p class=\"faint\">{}</p>\n<ul class=\"seen\">{evidence}</ul>\n<p><strong>What to do:</strong> {}</p>\n{}</li>\n",
        swatch(found.cause),
        escape(found.cause.name()),
        color(found.cause),
        escape(&finding_numbers(found)),
        escape(&found.advice),
        example_buttons(trace, &found.examples),
    )
}

fn finding_numbers(found: &Finding) -> String {
    let requests = match found.requests {
        1 => "most of it in 1 slow request".to_owned(),
        many => format!("most of it in {} slow requests", Unit::Count.human(many as f64)),
    };
    let share = Unit::Percent.human(found.share_percent);
    format!("{share} of the lost time of slow requests ({}), {requests}", Unit::Ns.human(found.tail_ns as f64))
}

/// Draws buttons for the requests that show a cause best. A request whose timeline is not in `trace` gets no button.
fn example_buttons(trace: &TraceSection, examples: &[u64]) -> String {
    let kept = examples.iter().filter(|number| trace.requests.iter().any(|request| request.number == **number));
    let buttons: Vec<String> = kept.map(|number| request_button(*number)).collect();
    if buttons.is_empty() {
        String::new()
    } else {
        format!("<p class=\"shown-by\">Shown by {}</p>\n", buttons.join(" "))
    }
}

/// Draws a button that shows a request in the timeline below.
fn request_button(number: u64) -> String {
    format!("<button type=\"button\" class=\"request\" data-request=\"{number}\">request {number}</button>")
}

fn draw_undetectable_causes(trace: &TraceSection) -> String {
    let item = |missing: &UndetectableCause| {
        format!("<li><strong>{}</strong>: {}</li>\n", escape(missing.cause.name()), escape(&missing.why))
    };
    collapsed_list("What is not known here, and why", &trace.cannot_tell.iter().map(item).collect::<String>())
}

const WIDTH: f64 = 1040.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = HEIGHT - 46.0;

/// Draws the bars of all requests by latency, with their legend.
fn draw_latency_bars(trace: &TraceSection) -> String {
    if trace.spread.is_empty() {
        return String::new();
    }
    let caption = "Each bar is the requests of about one latency. Its height is their number, on a logarithmic scale. \
                   Its colours show where their time went: half a bar in one colour is half of their time.";
    let body = format!("<p class=\"caption\">{caption}</p>\n<figure>\n{}{}\n</figure>", legend(trace), draw_svg(trace));
    section("spread", "How long requests took", &body)
}

fn draw_svg(trace: &TraceSection) -> String {
    let ends = trace.spread.iter().flat_map(|bar| [to_us(bar.from_ns), to_us(bar.to_ns)]).chain([trace.limit_us]);
    let across = Axis::from_values(ScaleKind::Log, ends, (LEFT, WIDTH - RIGHT));
    // A bar may have one request, so the axis begins below 1.
    let counts = trace.spread.iter().map(|bar| bar.requests as f64).chain([0.7]);
    let up = Axis::from_values(ScaleKind::Log, counts, (BOTTOM, TOP));
    let bars: String = trace.spread.iter().map(|one| draw_bar(one, &across, &up)).collect();
    let inside = draw_grid(&across, &up) + &bars + &draw_limit(trace, &across);
    format!(
        "<svg class=\"chart spread\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"Requests by latency\">{inside}</svg>"
    )
}

fn draw_bar(bar: &Bar, across: &Axis, up: &Axis) -> String {
    let (left, right) = (across.position(to_us(bar.from_ns)), across.position(to_us(bar.to_ns)));
    let top = up.position(bar.requests as f64);
    let all: f64 = bar.time.iter().map(|part| part.ns as f64).sum::<f64>().max(f64::MIN_POSITIVE);
    let mut y = BOTTOM;
    let mut parts = String::new();
    for part in &bar.time {
        let height = (BOTTOM - top) * part.ns as f64 / all;
        y -= height;
        parts += &format!(
            "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" style=\"fill: {}\"/>",
            (right - left - 1.0).max(1.0),
            color(part.cause)
        );
    }
    format!("<g>{parts}<title>{}</title></g>", escape(&tooltip(bar, all)))
}

/// Returns the tooltip of a bar: the range, the number of requests, and the three largest causes.
fn tooltip(bar: &Bar, sum_ns: f64) -> String {
    let mut time: Vec<_> = bar.time.iter().collect();
    time.sort_by_key(|part| Reverse(part.ns));
    let largest = time
        .iter()
        .take(3)
        .map(|part| format!("{} {}", part.cause.name(), Unit::Percent.human(100.0 * part.ns as f64 / sum_ns)));
    format!(
        "{} to {}: {} requests; {}",
        Unit::Ns.human(bar.from_ns as f64),
        Unit::Ns.human(bar.to_ns as f64),
        Unit::Count.human(bar.requests as f64),
        largest.collect::<Vec<_>>().join(", ")
    )
}

fn draw_limit(trace: &TraceSection, across: &Axis) -> String {
    let x = across.position(trace.limit_us);
    let words = format!("{} {}", trace.limit_name, Unit::Us.human(trace.limit_us));
    // The text stands left or right of the line, on the side with more room.
    let (anchor, beside) = if x > WIDTH / 2.0 { ("end", x - 6.0) } else { ("start", x + 6.0) };
    svg_line("limit", (x, TOP - 14.0), (x, BOTTOM)) + &svg_text(beside, TOP - 6.0, anchor, &words)
}

fn draw_grid(across: &Axis, up: &Axis) -> String {
    let row = |value: f64| {
        let y = up.position(value);
        svg_line("grid", (LEFT, y), (WIDTH - RIGHT, y))
            + &svg_text(LEFT - 8.0, y + 4.0, "end", &tick_label(Unit::Count, value))
    };
    let column = |value: f64| {
        let x = across.position(value);
        svg_line("grid", (x, BOTTOM), (x, BOTTOM + 4.0))
            + &svg_text(x, BOTTOM + 18.0, "middle", &tick_label(Unit::Us, value))
    };
    let rows: String = up.ticks().into_iter().filter(|tick| *tick >= 1.0).map(row).collect();
    let columns: String = across.ticks().into_iter().map(column).collect();
    rows + &columns
        + &svg_text(
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 6.0,
            "middle",
            "latency, from the first segment to the last of the response",
        )
}

/// Draws the table of the slowest requests. The table scrolls within its frame, so that hundreds of requests do not
/// push the timeline away.
fn slowest_table(trace: &TraceSection) -> String {
    if trace.requests.is_empty() {
        return String::new();
    }
    let most = trace.requests.iter().map(|request| request.latency_us).fold(f64::MIN_POSITIVE, f64::max);
    let rows: String = trace.requests.iter().map(|request| request_row(trace, request, most)).collect();
    let body = format!(
        "<p class=\"caption\">The length of a bar is the latency of the request; its colours show where the time went. \
         The button of a request shows it in the timeline below.</p>\n<div class=\"scroll tall\" tabindex=\"0\" \
         role=\"region\" aria-labelledby=\"slowest\">\n<table class=\"slowest\">\n<thead><tr><th \
         scope=\"col\">Request</th><th scope=\"col\">Took</th><th scope=\"col\">Arrived at</th><th \
         scope=\"col\">Mostly</th><th scope=\"col\">Where the time \
         went</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>"
    );
    section("slowest", "The slowest requests", &body)
}

fn request_row(trace: &TraceSection, request: &TimelineView, longest_us: f64) -> String {
    let mostly = longest_cause(&request.time).map_or("", |part| part.cause.name());
    let slow = if request.latency_us > trace.limit_us { "" } else { " (usual)" };
    format!(
        "<tr><th scope=\"row\">{}</th><td>{}{slow}</td><td>{:.3} s</td><td class=\"words\">{}</td>\
         <td class=\"parts\">{}</td></tr>\n",
        request_button(request.number),
        Unit::Us.human(request.latency_us),
        request.arrived_us / 1e6,
        escape(mostly),
        time_bar(request, longest_us),
    )
}

fn time_bar(request: &TimelineView, longest_us: f64) -> String {
    let part = |part: &CauseTime| {
        let words = format!("{}: {}", part.cause.name(), Unit::Ns.human(part.ns as f64));
        format!(
            "<i style=\"width: {:.2}%; background: {}\" title=\"{}\"></i>",
            100.0 * to_us(part.ns) / longest_us,
            color(part.cause),
            escape(&words)
        )
    };
    request.time.iter().map(part).collect()
}
