//! The reference pages in `docs/reference` say what the code says: each option, key, metric, note, cause, exit code and
//! file has its line, and no line describes an item that the code no longer has.
//!
//! Options, notes, causes and reasons are written from the code: `SIDELANE_WRITE_REFERENCE=1 cargo test -p sidelane
//! --test reference`.

mod agent_file;
mod causes;
mod exit_codes;
#[path = "../tidy/files.rs"]
mod files;
mod metrics;
mod notes;
mod options;
mod pages;
mod programs;
mod reasons;
mod results;
mod run_files;
mod scenarios;
mod sources;
