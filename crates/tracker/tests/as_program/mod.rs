//! A header of the kernel program, compiled as an ordinary program.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiled program; its file is removed when it is dropped.
pub struct Program {
    file: PathBuf,
}

impl Program {
    /// Compiles a C file in `tests`, which includes the header, with the headers in the file's folder in place of the
    /// kernel's. `name` is unique for each test. Without clang, prints a message and returns `None`.
    pub fn compile(source: &str, name: &str) -> Option<Self> {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (source, root) = (own.join("tests").join(source), own.join("../.."));
        let folder = source.parent().expect("it is in a folder");
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let mut clang = Command::new("clang");
        let clang = clang.arg("-I").arg(folder).arg("-I").arg(root.join("bpf")).arg("-I").arg(root);
        let ran = clang.args(["-O1", "-w", "-o"]).arg(&file).arg(&source).status();
        let Ok(status) = ran else {
            sidelane_testing::skip("there is no clang here".to_owned());
            return None;
        };
        assert!(status.success(), "clang: {status}");
        Some(Self { file })
    }

    /// Runs the program with these arguments, and returns the numbers that it prints.
    pub fn run(&self, args: impl IntoIterator<Item = String>) -> Vec<u64> {
        let ran = Command::new(&self.file).args(args).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let out = String::from_utf8(ran.stdout).unwrap();
        out.split_whitespace().map(|word| word.parse().unwrap()).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}
