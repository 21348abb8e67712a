//! How a test says that it cannot run here.
//!
//! A test that returns early has passed, as far as Rust's test harness knows. So a test that cannot run
//! calls [`skip`] before it returns: the reason goes to standard error, and a line to the file that
//! `SIDELANE_TEST_SKIPS` names, from which `scripts/test.sh` counts it as skipped.

use std::env;
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::thread;

/// The environment variable that names the file.
pub const FILE: &str = "SIDELANE_TEST_SKIPS";

/// Says that the calling test does not run, and why. To be called on the test's own thread, which has
/// its name.
///
/// # Panics
/// When the file cannot be written: a test that is skipped must not be counted as passed.
pub fn skip(reason: impl Display) {
    let reason = reason.to_string();
    eprintln!("skipped: {reason}");
    if let Some(file) = env::var_os(FILE) {
        let line = line(&program(), thread::current().name().unwrap_or("unnamed"), &reason);
        append(&file, &line).unwrap_or_else(|error| panic!("{FILE}={}: {error}", file.display()));
    }
}

/// Program, test and reason: one line, with tabs between.
fn line(program: &str, test: &str, reason: &str) -> String {
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{program}\t{test}\t{reason}\n")
}

/// The file name of the test program; two of them may have tests of one name.
fn program() -> String {
    let path = env::current_exe().unwrap_or_default();
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// In one write, for tests end at the same time.
fn append(file: &OsStr, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_several_lines_is_one_line() {
        assert_eq!(line("run-1", "it_runs", "needs\n\ta compiler "), "run-1\tit_runs\tneeds a compiler\n");
    }
}
