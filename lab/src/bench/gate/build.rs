//! The programs of the benchmark: built by gcc, run with the gate's library preloaded and no lane
//! arrays.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::bench::workshop;
use sidelane_lanes::gate::{Gate, GateChoice};

const SOURCES: [(&str, &str); 3] = [
    ("sidelane_gate.h", include_str!("../../../../runtime/c/sidelane_gate.h")),
    ("examples/calls.c", include_str!("../../../../runtime/c/examples/calls.c")),
    ("examples/kernels.c", include_str!("../../../../runtime/c/examples/kernels.c")),
];

/// The folder in which programs are built and run.
pub(super) struct GateBuild {
    programs: workshop::CBuild,
    library: PathBuf,
}

impl GateBuild {
    pub(super) fn open() -> Result<Self> {
        let programs = workshop::CBuild::open(&SOURCES)?;
        let Gate::Instrumented { library } = Gate::choose(GateChoice::Instrumented, &[])? else {
            unreachable!("the gate that was asked for")
        };
        Ok(Self { programs, library })
    }

    pub(super) fn dir(&self) -> &Path {
        self.programs.dir()
    }

    /// Builds an example as `name`.
    pub(super) fn build(&self, example: &str, name: &str, options: &[&str]) -> Result<PathBuf> {
        self.programs.build(&format!("examples/{example}"), name, options)
    }

    /// `program` with the library, as under Sidelane, but without lane arrays: only the fast path
    /// runs.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", &self.library).env_remove("SIDELANE_GATE").current_dir(self.dir());
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        command
    }

    /// The number that `checked` prints less that of `plain`; the two run in turns.
    pub(super) fn added(&self, plain: &Path, checked: &Path, args: &[&str]) -> Result<f64> {
        Ok(self.figure(checked, args)? - self.figure(plain, args)?)
    }

    fn figure(&self, program: &Path, args: &[&str]) -> Result<f64> {
        let output = self.command(program).args(args).output().with_context(|| format!("{}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().with_context(|| format!("{} printed `{text}` where a time was expected", program.display()))
    }
}
