//! Planted causes: each planted request is as slow as was asked for. That others are faster is not asserted: the
//! machine may slow them, too.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Service, lab, run_ok};
use sidelane_skip::skip;

const DELAY_NS: u64 = 10_000_000;
const DELAY: [&str; 2] = ["--delay-ms", "10"];
const REQUESTS: usize = 12;
const EVERY: usize = 4;

/// What the client wrote down.
struct Truth {
    number: u64,
    planted: bool,
    latency_ns: u64,
}

fn ask(service: &Service, folder: &Path, options: &[&str]) -> Vec<Truth> {
    let truth = folder.join("truth");
    let mut command = lab(&["ask", "--target", &service.address(), "--requests", "12", "--every", "4"]);
    command.args(options).arg("--truth").arg(&truth);
    run_ok(command);
    let read = |line: &str| {
        let numbers: Vec<u64> = line.split(',').map(|number| number.parse().unwrap()).collect();
        assert!(numbers[2] <= numbers[3], "{line}");
        Truth { number: numbers[0], planted: numbers[1] == 1, latency_ns: numbers[3] - numbers[2] }
    };
    fs::read_to_string(truth).unwrap().lines().map(read).collect()
}

/// Plants `cause`, and checks that exactly the planted requests were disturbed for so long.
fn plant(cause: &str, least_ns: u64, options: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(&[&["plant", cause][..], &DELAY].concat());
    let truth = ask(&service, folder.path(), options);
    assert_eq!(truth.len(), REQUESTS);
    for request in truth {
        assert_eq!(request.planted, (request.number as usize).is_multiple_of(EVERY));
        assert!(!request.planted || request.latency_ns >= least_ns, "{cause}: {} ns", request.latency_ns);
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root() || {
        skip("real-time priorities and control groups need root");
        false
    }
}

#[test]
fn causes_that_need_no_privileges_last_as_long_as_was_asked_for() {
    for cause in ["faults", "lock", "migrate", "stop", "hand-over", "downstream"] {
        plant(cause, DELAY_NS, &[]);
    }
}

#[test]
fn a_lost_response_is_sent_again() {
    plant("retransmit", DELAY_NS, &["--lose-ms", "10"]);
}

#[test]
fn others_on_the_cpu_take_as_long_as_was_asked_for() {
    if is_root() {
        plant("hog", DELAY_NS, &[]);
        plant("thief", DELAY_NS, &[]);
    }
}

/// The kernel decides how long the quota lasts: at least half of that is without CPU.
#[test]
fn groups_hold_the_service_up_and_are_gone_after_it() {
    if is_root() {
        plant("throttle", DELAY_NS / 2, &[]);
        plant("freeze", DELAY_NS, &[]);
    }
}

#[test]
fn a_disk_is_read_for_as_long_as_was_asked_for() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir: PathBuf = folder.path().to_owned();
    plant_in(&dir);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "nothing but the truth is left");
}

fn plant_in(dir: &Path) {
    let service = Service::start(&["plant", "disk", "--delay-ms", "10", "--dir", dir.to_str().unwrap()]);
    let truth = ask(&service, dir, &[]);
    assert!(truth.iter().all(|request| !request.planted || request.latency_ns >= DELAY_NS));
}

/// The client's kernel delays the acknowledgement only when it takes the connection for a dialogue, so only that
/// planted requests are answered is asserted.
#[test]
fn a_response_in_two_writes_is_whole() {
    plant("nagle", 0, &[]);
}
