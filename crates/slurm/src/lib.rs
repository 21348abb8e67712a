//! Batch lanes as a node of Slurm.
//!
//! `sidelane-slurm` runs beside the agent. It reads the agent's [offer](offer::Offer) every second and keeps a node of
//! Slurm equal to it: [`decision`] says what to do, and [`node`] does it with Slurm's own commands. Jobs need nothing of
//! it: a rule of the agent's file finds their cgroups.
//!
//! # Invariants
//!
//! - A node that was drained by an administrator is not resumed (`src/decision.rs`:
//!   `nodes_drained_by_others_stay_drained`).
//! - Jobs are requeued only while the agent says that a service needs its lanes (`src/decision.rs`:
//!   `jobs_are_requeued_only_when_services_need_all_lanes`).
//! - Without an agent no job starts (`src/decision.rs`: `without_an_agent_no_job_starts_and_none_is_requeued`).

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod decision;
pub mod follow;
pub mod node;
pub mod offer;
