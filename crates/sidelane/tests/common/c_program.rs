//! Compilation of C programs for the runtime's tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `runtime/c/tests/NAME.c` into `dir`. Without a compiler, prints a message and returns `None`.
pub fn compile(compiler: &str, dialect: &[&str], name: &str, dir: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../runtime/c/tests/{name}.c"));
    let program = dir.join(name);
    let strict = ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"];
    let ran = Command::new(compiler).args(dialect).args(strict).arg("-o").arg(&program).arg(&source).status();
    let Ok(status) = ran else {
        sidelane_testing::skip(format!("there is no compiler {compiler} here"));
        return None;
    };
    assert!(status.success(), "{compiler} on {}: {status}", source.display());
    Some(program)
}

/// Compiles the C program `source` into `dir`. Without a compiler, prints a message and returns `None`.
pub fn compile_text(name: &str, source: &str, dir: &Path) -> Option<PathBuf> {
    compile_text_with(&["cc"], name, source, dir)
}

/// Compiles the C program `source` into `dir`, with this compiler and these options.
pub fn compile_text_with(compiler: &[&str], name: &str, source: &str, dir: &Path) -> Option<PathBuf> {
    let (text, program) = (dir.join(format!("{name}.c")), dir.join(name));
    std::fs::write(&text, source).expect("a file can be made in a temporary directory");
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-O1", "-Wall", "-pthread", "-o"]).arg(&program).arg(&text);
    let Ok(compiled) = command.output() else {
        sidelane_testing::skip(format!("there is no compiler {} here", compiler[0]));
        return None;
    };
    if !compiled.status.success() {
        sidelane_testing::skip(format!("cannot compile {name}.c: {}", String::from_utf8_lossy(&compiled.stderr)));
        return None;
    }
    Some(program)
}
