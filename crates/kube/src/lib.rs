//! Batch lanes as a resource of Kubernetes.
//!
//! `sidelane-kube` runs on each node beside the agent. It reads the agent's [offer](offer::Offer) and carries it to the
//! scheduler, by one of two transports: by [`device_plugin`], as the extended resource `sidelane.dev/lane`, or by dynamic
//! resource allocation. For that, [`publisher`] keeps the node's [ResourceSlice](mod@slice), and [`dra`] prepares claims.
//! In the other direction [`pods`] reports to the agent which pods have lanes.
//!
//! # Invariants
//!
//! - Only lent lanes are allocated (`src/device_plugin.rs`: `only_lent_lanes_are_allocated`; `src/slice.rs`:
//!   `only_lent_lanes_are_devices`; `src/dra.rs`: `only_lent_lanes_are_prepared`).
//! - No two pods without a claim in common have one lane (`src/dra.rs`: `a_lane_of_another_pod_is_refused`).
//! - A pod keeps a lane that is withdrawn (`src/dra.rs`: `pod_keeps_a_lane_that_is_withdrawn`).
//! - The agent knows a pod as batch before a process of it runs (`src/pods.rs`:
//!   `pod_of_a_prepared_claim_has_its_lanes_at_once`).
//! - Without an agent no lane is lent (`src/offer.rs`: `offer_has_the_lanes_that_the_agent_judges`).
//! - The slice follows the offer, is made anew when a kubelet has deleted it, and goes with the driver
//!   (`src/publisher.rs`: `slice_follows_the_offer_and_is_made_anew`).
//! - Lanes are registered again when the kubelet has restarted: *not guarded* but by `make test-kubernetes`.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod api;
pub mod api_server;
mod channel;
pub mod device_plugin;
pub mod dra;
pub mod offer;
pub mod pods;
pub mod publisher;
pub mod registration;
pub mod slice;
mod warnings;
