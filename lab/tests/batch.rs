//! Tests of batch work, and of its counters as another process reads them.

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use common::{lab_command, run_ok};

/// Returns the units that each thread has finished.
fn units_by_thread(counters: &Path) -> Vec<u64> {
    let bytes = std::fs::read(counters).unwrap_or_default();
    let first_word = |line: &[u8]| u64::from_ne_bytes(line[..8].try_into().unwrap());
    bytes.chunks_exact(64).map(first_word).collect()
}

fn batch_command(kernel: &str, counters: &Path, options: &[&str]) -> Command {
    let mut command = lab_command(&["batch", kernel, "--counter"]);
    command.arg(counters).args(options);
    command
}

#[test]
fn every_thread_of_every_kernel_makes_progress() {
    let folder = tempfile::tempdir().unwrap();
    for kernel in ["loop", "matrix", "flush"] {
        let counters = folder.path().join(kernel);
        run_ok(batch_command(kernel, &counters, &["--seconds", "0.2", "--threads", "2"]));
        let units = units_by_thread(&counters);
        assert!(units.len() == 2 && units.iter().all(|&units| units > 0), "{kernel}: {units:?}");
    }
}

#[test]
fn counters_show_progress_until_sigterm_ends_batch() {
    let folder = tempfile::tempdir().unwrap();
    let counters = folder.path().join("counters");
    let mut child = batch_command("loop", &counters, &[]).spawn().unwrap();
    while units_by_thread(&counters).first().is_none_or(|&units| units < 100) {
        assert!(child.try_wait().unwrap().is_none(), "the batch ended by itself");
        std::thread::yield_now();
    }
    let pid = libc::pid_t::try_from(child.id()).unwrap();
    // SAFETY: kill has no memory effects; the child has not been waited for, so its pid is not reused.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    assert!(child.wait().unwrap().success());
}

#[test]
fn pulses_last_as_long_as_requested() {
    let start = Instant::now();
    run_ok(lab_command(&["pulse", "--cpu", "0", "--busy-us", "1000", "--idle-us", "2000", "--count", "10"]));
    assert!(start.elapsed().as_millis() >= 30);
}
