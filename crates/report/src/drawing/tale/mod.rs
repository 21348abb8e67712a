//! A trace of requests as HTML: what made them slow, all of them by latency, and the slowest. The timelines are drawn by
//! tale.js.

mod causes;
mod slowest;
mod spread;

use crate::markup::escape;
use crate::tale::{Part, Tale};

/// The whole of it.
pub(crate) fn tale(tale: &Tale) -> String {
    causes::causes(tale) + &spread::spread(tale) + &slowest::slowest(tale) + &timeline(tale)
}

/// The frame that the script fills.
fn timeline(tale: &Tale) -> String {
    if tale.requests.is_empty() {
        return String::new();
    }
    "<noscript><p>The timelines of single requests need JavaScript; everything else on this page does not.</p>\
     </noscript>\n<div id=\"tale\" hidden></div>\n"
        .to_owned()
}

/// The colour of a cause, as a value for CSS: page/tale.css has one for each.
fn color(cause: &str) -> String {
    let plain: String = cause.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect();
    format!("var(--cause-{plain}, var(--other))")
}

/// A small square in the colour of a cause.
fn swatch(cause: &str) -> String {
    format!("<span class=\"swatch\" style=\"background: {}\" aria-hidden=\"true\"></span>", color(cause))
}

/// The names of all causes, with what they mean.
fn legend(tale: &Tale) -> String {
    let item = |words: &crate::tale::CauseWords| {
        let (name, meaning) = (escape(&words.name), escape(&words.meaning));
        format!("<li title=\"{meaning}\">{}{name}</li>\n", swatch(&words.cause))
    };
    format!("<ul class=\"legend\">\n{}</ul>\n", tale.causes.iter().map(item).collect::<String>())
}

/// The cause that took most of the time, where there is one.
fn main_part(time: &[Part]) -> Option<&Part> {
    time.iter().max_by(|one, other| one.us.total_cmp(&other.us))
}
