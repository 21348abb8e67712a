//! Running `sidelane trace` in tests.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::Value;

use super::agent::SIDELANE;

/// Running process of `sidelane trace`.
pub struct Tracing {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Tracing {
    /// Starts `sidelane trace`, and waits until it records.
    pub fn start(service: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(SIDELANE);
        command.args(["trace", "--service", service]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("sidelane starts");
        let mut tracing = Self { said: BufReader::new(child.stderr.take().expect("a pipe")), child };
        let first = tracing.line();
        assert!(first.contains("the requests of"), "{first}");
        tracing
    }

    /// Returns the next line on standard error.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line
    }

    /// Sends SIGINT, as Ctrl-C does, waits for the end, and returns the standard output.
    pub fn stop(mut self) -> String {
        // SAFETY: plain system call; the child is not reaped yet.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGINT) };
        let mut told = String::new();
        self.child.stdout.take().expect("a pipe").read_to_string(&mut told).unwrap();
        let mut errors = String::new();
        self.said.read_to_string(&mut errors).unwrap();
        assert!(self.child.wait().unwrap().success(), "{errors}");
        told
    }
}

/// Returns the JSON in a file.
pub fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Returns a path as a string for an argument.
pub fn path_str(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

/// Returns the text without line breaks, which depend on the terminal's width.
pub fn without_line_breaks(told: &str) -> String {
    told.split_whitespace().collect::<Vec<_>>().join(" ")
}
