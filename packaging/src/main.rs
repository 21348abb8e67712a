//! Entry point of `sidelane-packaging DIR`, which writes man pages and completions.

use std::env;
use std::path::Path;

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let share = env::args_os().nth(1).context("no folder was named; run `sidelane-packaging DIR`")?;
    sidelane_packaging::write_pages_and_completions(Path::new(&share))
}
