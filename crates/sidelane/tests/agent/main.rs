//! Tests of the agent on real cgroups and processes: it carries out its decisions despite faults, and undoes them.

#[path = "../common/mod.rs"]
mod common;
mod daemon;
mod faults;
mod flights;
mod groups;
mod halts;
mod hazards;
mod hurries;
mod interference;
mod lanes;
mod manager;
mod metrics;
mod monitoring;
mod observe;
mod others;
mod pods;
mod proxies;
mod scene;
mod service;
mod shapes;
mod shares;
mod top;
