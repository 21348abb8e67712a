//! Benches: what Sidelane itself costs and leaks, as ratios and differences of interleaved runs.

mod floor;
pub mod hold;
pub mod median;
mod request_cost;
pub mod requests;
pub mod subject;
