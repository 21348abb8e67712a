//! Entry point of `sidelane-lab-packaging DIR`, which writes the man pages of the laboratory.

use std::env;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;

fn main() -> Result<()> {
    let share = env::args_os().nth(1).context("no folder was named; run `sidelane-lab-packaging DIR`")?;
    sidelane_packaging::write_man_pages(&sidelane_lab::cli::Cli::command(), Path::new(&share))
}
