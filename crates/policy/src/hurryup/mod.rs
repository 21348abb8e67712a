//! Hurry-up policy (Nishtala et al.): long-running requests move to big cores, by Algorithm 1 of the paper.
//!
//! Problem. On a machine with big and little cores a request that starts on a little core by chance takes several times
//! as long there. At its start it is not known whether a request is long. Later it shows, since the request is still
//! under way.
//!
//! Approach. A service has a pool of threads, each bound to one core and each at work on one request at a time. A
//! request that has been on a little core for longer than a threshold changes places with the thread on a big core, the
//! longest first. [`HurryUp`] is told which threads joined and left the pool and which requests began and ended
//! ([`HurryEvent`]). It answers with the core of each thread ([`HurryAction`]). The caller moves the threads.
//!
//! Lines of Algorithm 1, and the files that implement them:
//!
//! | lines | what they do | where |
//! |---|---|---|
//! | 1, 4 to 8 | the table of requests | `table.rs` |
//! | 2, 3, 9, 10, 27 | the sampling loop | `mapper.rs` |
//! | 11 to 17 | threads with long requests on little cores | `long.rs` |
//! | 18 to 26 | each changes places with the thread on a big core | `swap.rs` |
//! | 15, 22, 24 | the core of each thread | `thread_placement.rs` |
//!
//! Beyond the paper, `preplace.rs` has threads begin on big cores if requests would move there at once, and
//! `oversubscription.rs` binds no thread that shares its core with others. Cases that the paper leaves open, or to
//! tuning, are in [`Options`], [`ScanTimes`] and [`Threshold`].

mod action;
mod config;
mod event;
mod lanes;
mod learning;
mod long;
mod mapper;
mod oversubscription;
mod preplace;
mod swap;
mod table;
mod thread_placement;
mod threshold_replay;

pub use action::{HurryAction, HurryActions, HurryReason};
pub use config::{Config, Learning, Mapping, Options, ScanTimes, Threshold};
pub use event::{BigLittleCores, HurryEvent, Request, Thread};
pub use lanes::classify_lanes;
pub use mapper::HurryUp;
pub use table::{LostRequests, MAX_REQUESTS};
pub use thread_placement::MAX_THREADS;
