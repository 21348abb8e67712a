//! C programs of the runtime's tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `runtime/c/tests/NAME.c` into `dir`; `None` without a compiler, with a message.
pub fn compile(compiler: &str, dialect: &[&str], name: &str, dir: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../runtime/c/tests/{name}.c"));
    let program = dir.join(name);
    let strict = ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"];
    let ran = Command::new(compiler).args(dialect).args(strict).arg("-o").arg(&program).arg(&source).status();
    let Ok(status) = ran else {
        sidelane_skip::skip(format!("there is no compiler {compiler} here"));
        return None;
    };
    assert!(status.success(), "{compiler} on {}: {status}", source.display());
    Some(program)
}
