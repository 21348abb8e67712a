//! Parts of experiments: a service, a client that sends requests on time, a batch job beside the service, and the
//! figures of client and kernel.
//!
//! - `comparison`: the common part of all experiments: variants take turns in rounds until each claim is decided
//! - `place`: the lanes, and the client's CPU
//! - `fixture`: a service that is ready for requests; `search` and `store` start one
//! - `load`: the client
//! - `sibling`: a core whose lanes slow each other, if the machine has none
//! - `slow_cpu`: a little core, if the machine has none
//! - `batch`: the batch job and its progress
//! - `containers`: batch in cgroups of its own, which come and go
//! - `setting`: the way in which batch runs beside the service, as data
//! - `run`: one run of a service under load in one setting
//! - `learn`: load before a run, until the session has learned the costs of its service
//! - `socket`: latencies seen at the service's sockets, if the client disturbs its own measurement
//! - `timeline`: the threads on the lanes, in one short part of a run

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
