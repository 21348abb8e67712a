//! What the pieces of a trace share: colours, swatches, the legend.

use crate::markup::escape;
use crate::trace::{CauseWords, Part, Trace};

/// The colour of a cause, as a value for CSS: page/trace.css has one for each.
pub(super) fn color(cause: &str) -> String {
    let plain: String = cause.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect();
    format!("var(--cause-{plain}, var(--other))")
}

/// A small square in the colour of a cause.
pub(super) fn swatch(cause: &str) -> String {
    format!("<span class=\"swatch\" style=\"background: {}\" aria-hidden=\"true\"></span>", color(cause))
}

/// The names of all causes, with what they mean.
pub(super) fn legend(trace: &Trace) -> String {
    let item = |words: &CauseWords| {
        let (name, meaning) = (escape(&words.name), escape(&words.meaning));
        format!("<li title=\"{meaning}\">{}{name}</li>\n", swatch(&words.cause))
    };
    format!("<ul class=\"legend\">\n{}</ul>\n", trace.causes.iter().map(item).collect::<String>())
}

/// The cause that took most of the time, where there is one.
pub(super) fn main_part(time: &[Part]) -> Option<&Part> {
    time.iter().max_by(|one, other| one.us.total_cmp(&other.us))
}
