//! Tests of slow requests with a known cause, which a trace has to name.
//!
//! The speed of the machine does not matter. Planted requests are slower by 20 ms, and most of them have to be named,
//! not all. `sidelane-lab bench tail` shows how many are. Requests that the host of a virtual machine delayed for longer
//! than the planted cause, by the kernel's own clock of stolen time, are not counted.

mod common;

use std::path::PathBuf;

use common::{Turn, can_observe_requests, lab_binary_path, lock_lanes};
use sidelane_lab::bench::tail::{Attribution, TailOptions, attribute_planted_cause};
use sidelane_lab::programs::LabBinary;
use sidelane_stats::rounds::RoundOptions;
use sidelane_timeline::cause::Cause;

fn lock_lanes_and_find_lab() -> Option<(Turn, LabBinary)> {
    let turn = lock_lanes()?;
    if !can_observe_requests() {
        return None;
    }
    lab_binary_path().map(|path| (turn, LabBinary::with_path(path)))
}

/// Returns options in which files for reads from a disk lie in the build's directory, which is on a disk.
fn options() -> TailOptions {
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    TailOptions { round_options: RoundOptions { quick: true, rounds: None }, lanes: None, parts: None, cache }
}

/// Plants causes, and checks that the trace names each for most of its requests.
fn check_causes_are_named(causes: &[&str]) {
    let Some((_turn, lab)) = lock_lanes_and_find_lab() else { return };
    for name in causes {
        let (claim, claims) = attribute_planted_cause(lab.clone(), &options(), name).unwrap();
        let count = |of: Option<Attribution>| claims.get(&of).copied().unwrap_or(0);
        let all = claims.values().sum::<u64>() - count(Some(Attribution::Cause(Cause::Stolen)));
        if all == 0 {
            sidelane_testing::skip(format!("{name}: the host stole the CPU from each planted request"));
            continue;
        }
        let named = count(Some(claim));
        assert!(named * 2 > all, "{name}: {claim:?} was claimed for {named} of {all}: {claims:?}");
    }
}

#[test]
fn interference_on_the_cpu_is_named() {
    check_causes_are_named(&["sibling", "hog", "real-time", "throttle"]);
}

#[test]
fn stopped_and_frozen_process_is_named() {
    check_causes_are_named(&["stop", "freeze"]);
}

#[test]
fn waits_of_threads_are_named() {
    check_causes_are_named(&["lock", "file-lock", "hand-over", "condition", "sleep", "event-loop"]);
}

#[test]
fn waits_for_other_services_and_processes_are_named() {
    check_causes_are_named(&["downstream", "downstream-http", "downstream-grpc", "unix-socket", "full-pipe"]);
}

#[test]
fn late_and_missing_answers_of_other_services_are_named() {
    check_causes_are_named(&["late-answer", "no-answer", "connect"]);
}

#[test]
fn delays_of_a_response_by_network_and_client_are_named() {
    check_causes_are_named(&["nagle", "retransmit", "slow-reader", "small-window", "congestion-window", "abandoned"]);
}
