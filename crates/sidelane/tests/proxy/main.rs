//! Tests of `sidelane proxy` in front of real servers, and of scripted ones.

#[path = "../common/mod.rs"]
mod common;

mod access;
mod ends;
mod hazards;
mod http;
mod limits;
mod outliers;
mod redis;
mod scene;
mod threads;
mod tls;
mod traces;
