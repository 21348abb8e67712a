//! A trace of requests as HTML: what made them slow, all of them by latency, and the slowest. The timelines are drawn by
//! trace.js.

mod causes;
mod parts;
mod slowest;
mod spread;

use crate::trace::Trace;

/// The whole of it.
pub(crate) fn trace(trace: &Trace) -> String {
    causes::causes(trace) + &spread::spread(trace) + &slowest::slowest(trace) + &timeline(trace)
}

/// The frame that the script fills.
fn timeline(trace: &Trace) -> String {
    if trace.requests.is_empty() {
        return String::new();
    }
    "<noscript><p>The timelines of single requests need JavaScript; everything else on this page does not.</p>\
     </noscript>\n<div id=\"trace\" hidden></div>\n"
        .to_owned()
}
