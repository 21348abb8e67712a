//! Parser and writer of HTTP/1.1 heads and bodies, without I/O. Ambiguous input is refused, never guessed.
//!
//! A proxy and a server that parse the same bytes differently can be made to disagree about the end of a request. So
//! heads are written anew from the parsed form, and everything that two parsers could read differently is refused.

mod body;
mod fields;
mod forwarded;
mod number;
mod request;
mod response;
mod target;

pub use body::{BadBody, Body};
pub use forwarded::{Forwarded, Peer};
pub use number::RequestNumber;
pub use request::{Refused, RequestHead, read_request};
pub(crate) use response::keeps_client_connection;
pub use response::{BadResponse, ResponseContext, ResponseHead, read_response, write_error};

/// Maximum number of header fields in a head.
const FIELDS_MAX: usize = 100;
