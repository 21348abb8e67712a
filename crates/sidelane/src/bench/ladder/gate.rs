//! The instrumented gate: batch that checks for itself and naps in place (Elfen §3.3).

use std::env;
use std::path::PathBuf;

use anyhow::{Result, bail};

use super::Latency;

pub(super) const NAME: &str = "instrumented gate";
const LIBRARY: &str = "libsidelane_gate.so";

/// A T2 has to run under a session that hands it the lane words, and to contain checks.
pub(super) fn measure() -> Result<Option<Latency>> {
    match library() {
        None => bail!("there is no {LIBRARY} beside sidelane: build it with `cargo build --release --workspace`"),
        Some(path) => bail!("{} is there, but this bench does not drive it yet", path.display()),
    }
}

/// Where the library lies: beside this binary.
fn library() -> Option<PathBuf> {
    let beside = env::current_exe().ok()?.with_file_name(LIBRARY);
    beside.is_file().then_some(beside)
}
