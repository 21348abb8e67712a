//! Helpers that run the lab's binary in tests.

// Each test file uses only some of these helpers.
#![allow(dead_code)]

pub mod emulation;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

/// Returns a command of the lab's binary with these arguments.
pub fn lab_command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidelane-lab"));
    command.args(args);
    command
}

/// Runs a command that must succeed; returns its standard error.
#[track_caller]
pub fn run_ok(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?} failed: {}", stderr_text(&output));
    stderr_text(&output)
}

/// Runs a command that must fail with this exit code; returns its standard error.
#[track_caller]
pub fn run_failing(mut command: Command, code: i32) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{command:?} said: {}", stderr_text(&output));
    stderr_text(&output)
}

fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
pub fn read_json(path: &str) -> serde_json::Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Service `serve` that runs until dropped.
pub struct Service {
    child: Child,
    port: u16,
}

impl Service {
    /// Starts the service and waits until it reports that it is ready.
    pub fn start(args: &[&str]) -> Service {
        let mut child = lab_command(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line
            .split_whitespace()
            .find_map(|word| word.strip_prefix("port="))
            .and_then(|port| port.parse().ok())
            .unwrap_or_else(|| panic!("the service said {line:?}"));
        Service { child, port }
    }

    /// Returns the address on which the service listens.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns how often each thread of the service was switched in.
    pub fn switch_ins_by_thread(&self) -> Vec<u64> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let schedstat = |thread: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(thread.unwrap().path().join("schedstat")).unwrap()
        };
        threads.map(schedstat).map(|text| text.split_whitespace().nth(2).unwrap().parse().unwrap()).collect()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
