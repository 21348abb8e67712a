//! Parts of experiments: a service on its request lane, a client that asks it on time, a batch job beside it in some
//! setting, and the figures of client and kernel in one run.
//!
//! - `comparison`: the skeleton of experiments: variants take turns in rounds until each claim is decided
//! - `place`: the lanes, and the client's CPU
//! - `fixture`: a service that is ready for requests; `search` and `store` start one
//! - `load`: the client
//! - `sibling`: a core whose lanes slow each other, if the machine has none
//! - `slow_cpu`: a little core, if the machine has none
//! - `batch`: the batch job and its progress
//! - `containers`: batch in groups of its own, which come and go
//! - `setting`: the way in which batch runs beside the service, as data
//! - `run`: one run
//! - `learn`: load before it, until the session knows its service
//! - `socket`: the view of one run at the service's sockets, if the client disturbs its own measurement
//! - `timeline`: the threads on the lanes, in one short stretch of it

pub mod batch;
mod changes;
pub mod comparison;
pub mod containers;
pub mod fixture;
pub mod learn;
pub mod load;
pub mod place;
pub mod run;
pub mod search;
pub mod setting;
pub mod sibling;
pub mod slow_cpu;
pub mod socket;
pub mod store;
mod timeline;
