//! Tests of planted causes: each planted request is as slow as requested. The tests do not assert that other requests
//! are faster: the machine may slow them, too.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Service, lab_command, run_ok};
use sidelane_testing::skip;

const DELAY_NS: u64 = 10_000_000;
const DELAY: [&str; 2] = ["--delay-ms", "10"];
const REQUESTS: usize = 12;
const EVERY: usize = 4;

/// Record of one request in the client's truth file.
struct Truth {
    number: u64,
    planted: bool,
    sent_ns: u64,
    latency_ns: u64,
}

fn run_client(address: &str, folder: &Path, options: &[&str]) -> Vec<Truth> {
    let truth = folder.join("truth");
    let mut command = lab_command(&["ask", "--target", address, "--requests", "12", "--every", "4"]);
    command.args(options).arg("--truth").arg(&truth);
    run_ok(command);
    let read = |line: &str| {
        let numbers: Vec<u64> = line.split(',').map(|number| number.parse().unwrap()).collect();
        assert!(numbers[2] <= numbers[3], "{line}");
        let (sent_ns, latency_ns) = (numbers[2], numbers[3] - numbers[2]);
        Truth { number: numbers[0], planted: numbers[1] == 1, sent_ns, latency_ns }
    };
    fs::read_to_string(truth).unwrap().lines().map(read).collect()
}

/// Plants `cause`, and checks that every planted request took at least `least_ns`.
fn check_planted_cause(cause: &str, least_ns: u64, options: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(&[&["plant", cause][..], &DELAY].concat());
    assert_planted_slow(cause, least_ns, run_client(&service.address(), folder.path(), options));
}

fn assert_planted_slow(cause: &str, least_ns: u64, truth: Vec<Truth>) {
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
fn unprivileged_causes_last_as_long_as_requested() {
    for cause in ["faults", "lock", "condition", "migrate", "stop", "hand-over", "sleep"] {
        check_planted_cause(cause, DELAY_NS, &[]);
    }
}

#[test]
fn slow_services_and_processes_delay_as_requested() {
    for cause in ["downstream", "unix-socket", "late-answer", "no-answer", "full-pipe"] {
        check_planted_cause(cause, DELAY_NS, &[]);
    }
}

#[test]
fn full_accept_queue_delays_a_request_by_a_second() {
    check_planted_cause("connect", 1_000_000_000, &[]);
}

#[test]
fn client_that_reads_late_or_leaves_delays_as_requested() {
    let reads_late = |bytes| ["--read-after-ms", "10", "--receive-buffer", bytes];
    check_planted_cause("slow-reader", DELAY_NS, &reads_late("131072"));
    check_planted_cause("small-window", DELAY_NS, &reads_late("4096"));
    check_planted_cause("abandoned", DELAY_NS, &["--leave-after-ms", "10"]);
}

/// The planted response takes three delays: two round trips more than a short response.
#[test]
fn long_response_to_a_far_client_takes_round_trips() {
    if is_root() && Path::new("/dev/net/tun").exists() {
        let folder = tempfile::tempdir().unwrap();
        let service = Service::start(&[&["plant", "congestion-window"][..], &DELAY].concat());
        let address = format!("198.18.77.2:{}", service.port());
        assert_planted_slow("congestion-window", 3 * DELAY_NS, run_client(&address, folder.path(), &["--afresh"]));
    }
}

#[test]
fn twin_requests_wait_for_timers_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(&["plant", "event-loop", "--delay-ms", "10"]);
    let truth = run_client(&service.address(), folder.path(), &["--twin"]);
    assert_eq!(truth.len(), REQUESTS + REQUESTS / EVERY);
    for pair in truth.windows(2).filter(|pair| pair[0].number == pair[1].number) {
        let [first, second] = pair else { panic!("two") };
        assert!(first.latency_ns >= DELAY_NS && second.latency_ns >= DELAY_NS);
        assert!(first.sent_ns < second.sent_ns && second.sent_ns < first.sent_ns + first.latency_ns);
    }
}

#[test]
fn a_lost_response_is_sent_again() {
    check_planted_cause("retransmit", DELAY_NS, &["--lose-ms", "10"]);
}

#[test]
fn competing_threads_delay_as_requested() {
    if is_root() {
        check_planted_cause("hog", DELAY_NS, &[]);
        check_planted_cause("real-time", DELAY_NS, &[]);
    }
}

/// With a CPU quota, the kernel decides how long the service is throttled: at least half of the delay.
#[test]
fn cgroups_delay_the_service_and_are_removed_after_it() {
    if is_root() {
        check_planted_cause("throttle", DELAY_NS / 2, &[]);
        check_planted_cause("freeze", DELAY_NS, &[]);
    }
}

#[test]
fn disk_reads_and_file_locks_delay_as_requested() {
    for cause in ["disk", "file-lock"] {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let dir: PathBuf = folder.path().to_owned();
        check_planted_cause_in(cause, &dir);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "nothing but the truth is left");
    }
}

fn check_planted_cause_in(cause: &str, dir: &Path) {
    let service = Service::start(&["plant", cause, "--delay-ms", "10", "--dir", dir.to_str().unwrap()]);
    let truth = run_client(&service.address(), dir, &[]);
    assert!(truth.iter().all(|request| !request.planted || request.latency_ns >= DELAY_NS));
}

/// The client's kernel delays the acknowledgement only if it considers the connection interactive. The test therefore
/// asserts only that planted requests are answered.
#[test]
fn response_in_two_writes_is_complete() {
    check_planted_cause("nagle", 0, &[]);
}
