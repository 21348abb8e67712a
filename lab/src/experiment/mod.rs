//! Parts of experiments: a service on its request lane, a client that asks it on time, a batch job beside it in some
//! setting, and the figures of client and kernel in one run.
//!
//! - `comparison`: the skeleton of experiments: variants take turns in rounds until each claim is decided
//! - `place`: which lanes, and where the client runs
//! - `stage`: a service that is ready to be asked; `search` and `store` put one up
//! - `load`: the client
//! - `sibling`: a core whose lanes slow each other, where the machine has none
//! - `slow_cpu`: a little core, where the machine has none
//! - `batch`: the batch job and its progress
//! - `containers`: batch in groups of its own, which come and go
//! - `setting`: how batch runs beside the service, as data
//! - `run`: one run
//! - `learn`: load before it, until the session knows its service
//! - `socket`: what the service's sockets show of one run, where the client is in its own way
//! - `timeline`: who ran on the lanes, in one short stretch of it

pub mod batch;
mod changes;
pub mod comparison;
pub mod containers;
pub mod learn;
pub mod load;
pub mod place;
pub mod run;
pub mod search;
pub mod setting;
pub mod sibling;
pub mod slow_cpu;
pub mod socket;
pub mod stage;
pub mod store;
mod timeline;
