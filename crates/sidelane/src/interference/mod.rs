//! Recordings of how much services are disturbed: written, read, and told again.

pub mod replay;
