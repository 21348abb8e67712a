//! The requests that were kept, the slowest first: how long, when, and where the time went.

use crate::markup::{escape, section};
use crate::trace::{Request, Trace};
use crate::unit::Unit;

use super::causes::button;
use super::parts::{color, main_part};

/// The table. It scrolls within its frame, so that hundreds of requests do not push the timeline away.
pub(super) fn slowest(trace: &Trace) -> String {
    if trace.requests.is_empty() {
        return String::new();
    }
    let most = trace.requests.iter().map(|request| request.latency_us).fold(f64::MIN_POSITIVE, f64::max);
    let rows: String = trace.requests.iter().map(|request| one(trace, request, most)).collect();
    let body = format!(
        "<p class=\"caption\">The length of a bar is how long the request took; its colours are where the time went. A \
         request's button shows it in the timeline below.</p>\n\
         <div class=\"scroll tall\" tabindex=\"0\" role=\"region\" aria-labelledby=\"slowest\">\n\
         <table class=\"slowest\">\n<thead><tr><th scope=\"col\">Request</th><th scope=\"col\">Took</th>\
         <th scope=\"col\">Arrived at</th><th scope=\"col\">Mostly</th><th scope=\"col\">Where the time went</th></tr>\
         </thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>"
    );
    section("slowest", "The slowest requests", &body)
}

fn one(trace: &Trace, request: &Request, most: f64) -> String {
    let mostly = main_part(&request.time).map_or("", |part| trace.name_of(&part.cause));
    let slow = if request.latency_us > trace.limit_us { "" } else { " (usual)" };
    format!(
        "<tr><th scope=\"row\">{}</th><td>{}{slow}</td><td>{:.3} s</td><td class=\"words\">{}</td>\
         <td class=\"parts\">{}</td></tr>\n",
        button(request.number),
        Unit::Us.human(request.latency_us),
        request.arrived_us / 1e6,
        escape(mostly),
        parts(trace, request, most),
    )
}

fn parts(trace: &Trace, request: &Request, most: f64) -> String {
    let part = |part: &crate::trace::Part| {
        let words = format!("{}: {}", trace.name_of(&part.cause), Unit::Us.human(part.us));
        format!(
            "<i style=\"width: {:.2}%; background: {}\" title=\"{}\"></i>",
            100.0 * part.us / most,
            color(&part.cause),
            escape(&words)
        )
    };
    request.time.iter().map(part).collect()
}
