//! Running `sidelane hurry` in tests.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

use serde_json::Value;

use super::agent::SIDELANE;
use super::busy::{BIG, Busy, LITTLE};
use super::process;

pub const MOVED: &str = "long requests moved to big cores";

/// Running process of `sidelane hurry`.
pub struct Hurrying {
    pub child: Child,
    said: BufReader<ChildStderr>,
    log: PathBuf,
}

impl Hurrying {
    pub fn command(busy: &Busy, arguments: &[&str]) -> Command {
        Self::command_for(&busy.target(), &busy.file("moves"), arguments)
    }

    /// Creates the command `sidelane hurry` for any service, with its log in this file.
    pub fn command_for(service: &str, log: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(SIDELANE);
        command.args(["hurry", "--service", service, "--big", BIG, "--little", LITTLE]).args(arguments);
        command.arg("--log").arg(log).env(process::MARK, process::mark_of_this_test());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts `sidelane hurry`, and waits until it maps threads.
    pub fn start(busy: &Busy, arguments: &[&str]) -> Self {
        Self::start_command(&mut Self::command(busy, arguments), &busy.file("moves"))
    }

    pub fn start_command(command: &mut Command, log: &Path) -> Self {
        let mut child = command.spawn().unwrap();
        let mut hurrying = Self { said: BufReader::new(child.stderr.take().unwrap()), child, log: log.to_owned() };
        let mut first = String::new();
        hurrying.said.read_line(&mut first).unwrap();
        assert!(first.contains("mapping threads of"), "{first}");
        hurrying
    }

    /// Returns the logged moves up to now.
    pub fn moves(&self) -> Vec<Value> {
        let log = fs::read_to_string(&self.log).unwrap();
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    pub fn has_moved(&self) -> bool {
        self.moves().iter().any(|line| line["why"] == MOVED)
    }

    /// Sends SIGINT, as Ctrl-C does, waits for the end, and returns the standard output.
    pub fn stop(mut self) -> String {
        process::signal(self.child.id(), libc::SIGINT);
        let mut told = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut told).unwrap();
        assert!(self.wait().success(), "{told}");
        // The output is returned without line breaks, which depend on the width.
        told.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    pub fn wait(mut self) -> ExitStatus {
        let mut errors = String::new();
        self.said.read_to_string(&mut errors).unwrap();
        eprint!("{errors}");
        self.child.wait().unwrap()
    }
}
