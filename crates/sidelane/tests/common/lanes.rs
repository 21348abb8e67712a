//! Checks whether this machine can run the tests, and a lock for the lanes, which all tests use.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use sidelane_rollback::claim::Claim;

use super::agent::SIDELANE;
use super::deadline::TIMEOUT;
use super::{holds_within, process};

/// Request lane and batch lane of every test, as in `--lanes`.
pub const LANES: &str = "0:1";
/// Request lane of every test, in the kernel's format of a CPU list.
pub const REQUEST_LANE: &str = "0";
/// Batch lane of every test, in the kernel's format of a CPU list.
pub const BATCH_LANE: &str = "1";

const BATCH_CPU: u32 = 1;
/// Longest time for a guardian to clean up after a failed test.
const GUARDIAN_TIMEOUT: Duration = Duration::from_secs(5);

/// Exclusive use of the lanes, until dropped.
pub struct Turn {
    _lock: File,
}

impl Drop for Turn {
    /// Ends the processes that a failed test left, which must not disturb the next test. The test's guardian cleans up
    /// first.
    fn drop(&mut self) {
        holds_within(GUARDIAN_TIMEOUT, || process::marked_pids().is_empty());
        process::marked_pids().into_iter().for_each(process::kill);
    }
}

/// Waits for exclusive use of the lanes. If the test cannot run, prints a message and returns `None`.
pub fn lock_lanes() -> Option<Turn> {
    missing_requirement().map(sidelane_testing::skip).is_none().then(wait_for_lanes_lock)
}

/// Waits for exclusive use of the lanes, for a test that can also run without them. Returns `None` if they cannot be
/// used.
pub fn lock_lanes_if_available() -> Option<Turn> {
    missing_requirement().is_none().then(wait_for_lanes_lock)
}

fn wait_for_lanes_lock() -> Turn {
    let path = std::env::temp_dir().join("sidelane-tests-lanes.lock");
    let lock = File::create(&path).unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
    flock(&lock, FlockOperation::LockExclusive).expect("a lock can be waited for");
    let free = holds_within(TIMEOUT, || Claim::take_batch_lane(BATCH_CPU).is_ok());
    assert!(free, "batch lane {BATCH_CPU} is lent by another sidelane that is not of these tests");
    Turn { _lock: lock }
}

fn missing_requirement() -> Option<&'static str> {
    let is_root = rustix::process::geteuid().is_root();
    let has_btf = Path::new("/sys/kernel/btf/vmlinux").exists();
    let has_lanes =
        [0, 1].iter().all(|cpu| rustix::thread::sched_getaffinity(None).is_ok_and(|cpus| cpus.is_set(*cpu)));
    let needs = [(is_root, "needs root"), (has_btf, "needs a kernel with BTF"), (has_lanes, "needs CPUs 0 and 1")];
    needs.into_iter().find(|(met, _)| !met).map(|(_, reason)| reason)
}

/// Returns the path of the lab's binary. If it has not been built, prints a message and returns `None`.
pub fn lab_binary_path() -> Option<PathBuf> {
    let path = Path::new(SIDELANE).with_file_name("sidelane-lab");
    if !path.exists() {
        sidelane_testing::skip(format!("needs {}: run `cargo build -p sidelane-lab` first", path.display()));
        return None;
    }
    Some(path)
}

/// Returns whether this kernel and this process's rights allow observing requests; otherwise the test is skipped.
pub fn can_observe_requests() -> bool {
    sidelane_requests::can_track().inspect_err(|error| sidelane_testing::skip(error)).is_ok()
}
