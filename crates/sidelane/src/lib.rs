//! Sidelane: batch work in the idle moments of latency-critical services.

// These end a program whose output nobody reads any more: `sidelane_report::terminal` is what writes.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod agent;
pub mod aside;
pub mod audit;
pub mod bench;
pub mod calibrate;
pub mod channel;
pub mod claim;
pub mod cli;
pub mod compare;
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
pub mod own_threads;
pub mod progress_lines;
pub mod proxy;
pub mod request;
pub mod sim;
pub mod tale;
pub mod undo;
pub mod until;
pub mod verbs;
pub mod watch_progress;
