//! C programs that a benchmark builds during its run. The lab's binary contains their sources, so that a benchmark
//! needs no source tree.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// Temporary folder in which programs are built and run.
pub struct CBuild {
    dir: TempDir,
}

impl CBuild {
    /// Creates a directory with these sources, each at its path.
    pub fn with_sources(sources: &[(&str, &str)]) -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot make a directory for programs")?;
        for (path, source) in sources {
            let path = dir.path().join(path);
            path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            std::fs::write(path, source)?;
        }
        Ok(Self { dir })
    }

    /// Returns the directory, which is removed when this is dropped.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Builds the program `source` with gcc as `name`.
    pub fn build(&self, source: &str, name: &str, options: &[&str]) -> Result<PathBuf> {
        let program = self.dir.path().join(name);
        let mut gcc = Command::new("gcc");
        gcc.arg("-O2").args(options).arg("-o").arg(&program).arg(self.dir.path().join(source));
        let status = gcc.status().context("cannot run gcc: apt-get install gcc libc6-dev")?;
        ensure!(status.success(), "{gcc:?} failed");
        Ok(program)
    }
}
