//! A trace of requests as HTML: what made them slow, all of them by latency, and the slowest. The timelines are drawn by
//! tale.js.

mod causes;
mod parts;
mod slowest;
mod spread;

use crate::tale::Tale;

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
