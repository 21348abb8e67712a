//! Where it is known from how much services are disturbed, and recordings of that.
//!
//! - `source`: counters, harm, a recording, or nothing; and what each says of itself in results
//! - `replay`: recordings: written, read, and told again

pub mod replay;
pub mod source;
