//! What made requests slow: each cause with its share, what was seen, and what to do.

use crate::markup::{escape, section};
use crate::trace::{Found, Trace};
use crate::unit::Unit;

use super::parts::{color, swatch};

/// A cause of less is named at the end, in one line.
const LARGE_PERCENT: f64 = 1.0;

/// The causes, the largest first, and what could not be told.
pub(super) fn causes(trace: &Trace) -> String {
    let is_large = |found: &&Found| found.share_percent >= LARGE_PERCENT;
    let large: String = trace.found.iter().filter(is_large).map(|found| one(trace, found)).collect();
    let (small, missing) = (small(trace), cannot_tell(trace));
    if large.is_empty() && small.is_empty() && missing.is_empty() {
        return String::new();
    }
    section(
        "causes",
        "What made requests slow, and what to do",
        &format!("<ol class=\"causes\">\n{large}</ol>{small}{missing}"),
    )
}

fn small(trace: &Trace) -> String {
    let small = trace.found.iter().filter(|found| found.share_percent < LARGE_PERCENT);
    let item = |found: &Found| {
        let (name, share) = (escape(trace.name_of(&found.cause)), Unit::Percent.human(found.share_percent));
        format!("<li>{name}: {share} of the lost time</li>\n")
    };
    fold("Small causes", &small.map(item).collect::<String>())
}

/// A list that is closed at first; nothing if it is empty.
fn fold(title: &str, items: &str) -> String {
    if items.is_empty() {
        return String::new();
    }
    format!("<details class=\"fold\">\n<summary>{title}</summary>\n<ul>\n{items}</ul>\n</details>")
}

fn one(trace: &Trace, found: &Found) -> String {
    let share = found.share_percent.clamp(0.0, 100.0);
    let evidence: String = found.evidence.iter().map(|seen| format!("<li>{}</li>", escape(seen))).collect();
    format!(
        "<li>\n<h3>{}{}</h3>\n<div class=\"share\"><i style=\"width: {share:.1}%; background: {}\"></i></div>\n\
         <p class=\"faint\">{}</p>\n<ul class=\"seen\">{evidence}</ul>\n<p><strong>What to do:</strong> {}</p>\n{}</li>\n",
        swatch(&found.cause),
        escape(trace.name_of(&found.cause)),
        color(&found.cause),
        escape(&figures(found)),
        escape(&found.advice),
        examples(trace, &found.examples),
    )
}

fn figures(found: &Found) -> String {
    let requests = match found.requests_count {
        1 => "most of it in 1 slow request".to_owned(),
        many => format!("most of it in {} slow requests", Unit::Count.human(many as f64)),
    };
    let share = Unit::Percent.human(found.share_percent);
    format!("{share} of the time that slow requests lost ({}), {requests}", Unit::Us.human(found.tail_us))
}

/// Buttons that lead to the requests which show it best, of those that were kept.
fn examples(trace: &Trace, examples: &[u64]) -> String {
    let kept = examples.iter().filter(|number| trace.requests.iter().any(|request| request.number == **number));
    let buttons: Vec<String> = kept.map(|number| button(*number)).collect();
    if buttons.is_empty() {
        String::new()
    } else {
        format!("<p class=\"shown-by\">Shown by {}</p>\n", buttons.join(" "))
    }
}

/// A button that shows a request in the timeline below.
pub(super) fn button(number: u64) -> String {
    format!("<button type=\"button\" class=\"request\" data-request=\"{number}\">request {number}</button>")
}

fn cannot_tell(trace: &Trace) -> String {
    let item = |missing: &crate::trace::CannotTell| {
        format!("<li><strong>{}</strong>: {}</li>\n", escape(trace.name_of(&missing.cause)), escape(&missing.why))
    };
    fold("What could not be told here, and why", &trace.cannot_tell.iter().map(item).collect::<String>())
}
