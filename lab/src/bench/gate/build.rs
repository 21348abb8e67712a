//! The programs of the gate benchmark: gcc builds the programs, which run with the gate's library preloaded but without
//! the shared arrays of lane states.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::bench::c_build;
use sidelane_lanes::gate::{Gate, GateChoice};

const SOURCES: [(&str, &str); 3] = [
    ("sidelane_gate.h", include_str!("../../../../runtime/c/sidelane_gate.h")),
    ("examples/calls.c", include_str!("../../../../runtime/c/examples/calls.c")),
    ("examples/kernels.c", include_str!("../../../../runtime/c/examples/kernels.c")),
];

/// Folder in which programs are built and run, and the gate's library.
pub(super) struct GateBuild {
    programs: c_build::CBuild,
    library: PathBuf,
}

impl GateBuild {
    pub(super) fn open() -> Result<Self> {
        let programs = c_build::CBuild::with_sources(&SOURCES)?;
        let Gate::Instrumented { library } = Gate::choose(GateChoice::Instrumented, &[])? else {
            unreachable!("the gate that was asked for")
        };
        Ok(Self { programs, library })
    }

    pub(super) fn dir(&self) -> &Path {
        self.programs.dir()
    }

    /// Builds an example of `runtime/c/examples` as the program `name`.
    pub(super) fn build(&self, example: &str, name: &str, options: &[&str]) -> Result<PathBuf> {
        self.programs.build(&format!("examples/{example}"), name, options)
    }

    /// Returns a command for `program` with the library preloaded, as under Sidelane. It gets no shared arrays of lane
    /// states, so only the fast path of each check runs.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", &self.library).env_remove("SIDELANE_GATE").current_dir(self.dir());
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        command
    }

    /// Runs both programs in turn, and returns the time that `checked_program` prints less the time that
    /// `plain_program` prints.
    pub(super) fn measure_added_time(
        &self,
        plain_program: &Path,
        checked_program: &Path,
        args: &[&str],
    ) -> Result<f64> {
        Ok(self.run_and_parse_time(checked_program, args)? - self.run_and_parse_time(plain_program, args)?)
    }

    fn run_and_parse_time(&self, program: &Path, args: &[&str]) -> Result<f64> {
        let output = self.command(program).args(args).output().with_context(|| format!("{}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().with_context(|| format!("{} printed `{text}` where a time was expected", program.display()))
    }
}
