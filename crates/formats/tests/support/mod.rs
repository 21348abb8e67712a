//! Compilation of the C programs in `abi/tests`, for the tests that compare C with Rust.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiler flags that make every warning an error, since the headers are compiled with the flags of other projects.
const STRICT: [&str; 4] = ["-O2", "-Wall", "-Wextra", "-Werror"];

/// Compiled program, deleted when dropped.
pub struct Program(PathBuf);

impl Program {
    /// Returns a command that runs the program.
    pub fn command(&self) -> Command {
        Command::new(&self.0)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // A failure only leaves a small file in the target directory.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Compiles `abi/tests/{source}` with the C compiler (`$CC`, or `cc`). Without a compiler, it prints a message and
/// returns `None`.
pub fn compile_c(source: &str) -> Option<Program> {
    compile(&compiler("CC", "cc"), &["-std=c99", "-pedantic"], source)
}

/// Compiles `abi/tests/{source}` with the C++ compiler (`$CXX`, or `c++`), otherwise like [`compile_c`].
#[allow(dead_code, reason = "each test program takes what it needs of this module")]
pub fn compile_cpp(source: &str) -> Option<Program> {
    compile(&compiler("CXX", "c++"), &["-std=c++11", "-x", "c++"], source)
}

fn compiler(variable: &str, default: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| default.to_owned())
}

fn compile(compiler: &str, dialect: &[&str], source: &str) -> Option<Program> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../abi/tests").join(source);
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{source}{}-{}", dialect[0], std::process::id()));
    let ran = Command::new(compiler).args(STRICT).args(dialect).arg("-o").arg(&program).arg(&path).status();
    match ran {
        Ok(status) if status.success() => Some(Program(program)),
        Ok(status) => panic!("{compiler} on {}: {status}", path.display()),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            sidelane_testing::skip(format!("there is no compiler {compiler:?} here"));
            None
        }
        Err(e) => panic!("{compiler}: {e}"),
    }
}
