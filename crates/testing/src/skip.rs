//! Report of a test that it cannot run here.
//!
//! To Rust's test harness, a test that returns early has passed. So a test that cannot run calls [`skip`] before it
//! returns. The reason goes to standard error, and a line to the file in `SIDELANE_TEST_SKIPS`; `scripts/test.sh`
//! counts the test as skipped because of that line.

use std::env;
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::thread;

/// Name of the environment variable with the path of the file for skipped tests.
pub const FILE: &str = "SIDELANE_TEST_SKIPS";

/// Reports that the calling test does not run, and why. Must be called on the test's own thread,
/// whose name is the test's.
///
/// # Panics
///
/// If the file cannot be written: a skipped test must not be counted as passed.
pub fn skip(reason: impl Display) {
    let reason = reason.to_string();
    eprintln!("skipped: {reason}");
    if let Some(file) = env::var_os(FILE) {
        let line = skip_line(&test_program_name(), thread::current().name().unwrap_or("unnamed"), &reason);
        append(&file, &line).unwrap_or_else(|error| panic!("{FILE}={}: {error}", file.display()));
    }
}

/// Returns one line: program, test and reason, separated by tabs.
fn skip_line(program: &str, test: &str, reason: &str) -> String {
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{program}\t{test}\t{reason}\n")
}

/// Returns the file name of the test program; two programs may have tests with the same name.
fn test_program_name() -> String {
    let path = env::current_exe().unwrap_or_default();
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Appends a line to the file in one write, since tests may end at the same time.
fn append(file: &OsStr, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_several_lines_is_one_line() {
        assert_eq!(skip_line("run-1", "it_runs", "needs\n\ta compiler "), "run-1\tit_runs\tneeds a compiler\n");
    }
}
