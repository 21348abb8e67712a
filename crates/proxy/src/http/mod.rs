//! HTTP/1.1 as bytes: heads and where bodies end. Pure; what is wrong is refused, never guessed.
//!
//! A proxy and a server that read the same bytes differently can be made to disagree about where a request ends. So
//! heads are written anew from what was read, and anything that two readers could read in two ways is refused.

mod body;
mod fields;
mod forwarded;
mod number;
mod request;
mod response;
mod target;

pub use body::{BadBody, Body};
pub use forwarded::{Forwarded, Peer};
pub use number::Number;
pub use request::{Refused, RequestHead, read_request};
pub(crate) use response::client_goes_on;
pub use response::{BadResponse, ResponseHead, Wanted, read_response, write_error};

/// The most header fields of a head.
const FIELDS_MAX: usize = 100;
