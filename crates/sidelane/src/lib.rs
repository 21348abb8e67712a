//! Sidelane: batch work in the idle moments of latency-critical services.

pub mod agent;
pub mod audit;
pub mod bench;
pub mod calibrate;
pub mod channel;
pub mod claim;
pub mod cli;
pub mod cpu_mask;
pub mod demo;
pub mod doctor;
pub mod experiment;
pub mod hurry;
pub mod interference;
pub mod lab;
pub mod lane;
pub mod list;
pub mod log_file;
pub mod machine;
pub mod note;
pub mod observe;
pub mod proxy;
pub mod request;
pub mod sim;
pub mod tale;
pub mod undo;
pub mod until;
