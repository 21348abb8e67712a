//! Helpers that emulate CPUs which slow each other, and run batch on these CPUs. They need root.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::lab_command;

/// Lock that runs one test at a time: all use the same CPUs.
static LANES: Mutex<()> = Mutex::new(());

/// Reserves CPUs 0 and 1 for the calling test; `None` if emulation cannot run on this machine.
pub fn reserve_test_lanes() -> Option<MutexGuard<'static, ()>> {
    // SAFETY: geteuid takes no arguments and touches no memory.
    let root = unsafe { libc::geteuid() } == 0;
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let reason = match (root, cpus) {
        (false, _) => "it takes root to load a kernel program",
        (_, 1) => "it takes two CPUs",
        _ if !Path::new("/sys/kernel/btf/vmlinux").exists() => "the kernel has no BTF",
        _ if are_cpus_siblings() => "CPUs 0 and 1 are real lanes of one core",
        _ => return Some(LANES.lock().unwrap_or_else(PoisonError::into_inner)),
    };
    sidelane_testing::skip(reason);
    None
}

fn are_cpus_siblings() -> bool {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
    list.is_ok_and(|list| list.trim() != "0")
}

/// Process that emulates slow CPUs until it is dropped.
pub struct Emulation {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Address of the emulation's memory, for `--sibling`.
    pub at: String,
}

impl Emulation {
    /// Starts a command of the lab, and waits until it reports that it is ready.
    pub fn start(args: &[&str]) -> Self {
        let mut child = lab_command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut emulation = Self { child, input, output, at: String::new() };
        let ready = emulation.read_line();
        let word =
            |key: &str| ready.split(' ').find_map(|word| word.strip_prefix(key)).unwrap_or_else(|| panic!("{ready}"));
        emulation.at = format!("{}:{}", word("pid="), word("fd="));
        emulation
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Sends a line to the emulation and returns its answer.
    pub fn query(&mut self, question: &str) -> String {
        writeln!(self.input, "{question}").unwrap();
        self.read_line()
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Batch job on one CPU that runs until dropped.
pub struct Worker {
    pub child: Child,
    counter: PathBuf,
}

impl Worker {
    /// Starts the batch job, and waits for its first unit of work.
    pub fn start(folder: &Path, cpu: &str, options: &[&str]) -> Self {
        let counter = folder.join(cpu);
        let mut command = Command::new("taskset");
        command.args(["-c", cpu, env!("CARGO_BIN_EXE_sidelane-lab"), "batch", "loop", "--counter"]);
        let worker = Self { child: command.arg(&counter).args(options).spawn().unwrap(), counter };
        worker.wait_for_units(1);
        worker
    }

    /// Returns the number of units done so far.
    pub fn units(&self) -> u64 {
        let bytes = std::fs::read(&self.counter).unwrap_or_default();
        bytes.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
    }

    /// Waits until `further_units` more units are done.
    pub fn wait_for_units(&self, further_units: u64) {
        let wanted = self.units() + further_units;
        while self.units() < wanted {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
