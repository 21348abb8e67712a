//! Batch lanes as a resource of Kubernetes.
//!
//! `sidelane-kube` runs on each node beside the agent. It reads the agent's [offer](offer::Offer) and carries it to the
//! scheduler: by [`device_plugin`], as the extended resource `sidelane.dev/lane`. The offer is plain data, so another
//! transport only has to follow it. In the other direction [`pods`] reports to the agent which pods have lanes.
//!
//! # Invariants
//!
//! - Only lent lanes are allocated (`src/device_plugin.rs`: `only_lent_lanes_are_allocated`).
//! - Without an agent no lane is lent (`src/offer.rs`: `offer_has_the_lanes_that_the_agent_judges`).
//! - Lanes are registered again when the kubelet has restarted: *not guarded* but by `make test-kubernetes`.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod api;
mod channel;
pub mod device_plugin;
pub mod offer;
pub mod pods;
pub mod registration;
