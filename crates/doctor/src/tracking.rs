//! Test of the lane tracker: loads and attaches it, checks that it counts, and detaches it.

use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::finding::Finding;
use super::kernel::tracker_kernel_advice;
use crate::reaction::pair::TestPair;
use sidelane_diagnostics::machine;
use sidelane_host::service::Service;
use sidelane_lanes::placement::wait_for_lane_switches;
use sidelane_tracker::tracker::{LaneLending, Purpose, TrackerError};
use sidelane_tracker::tracking::{LaneUse, ServiceTracking};

/// Length of the test, in which some context switches happen even on an idle lane.
const WATCH: Duration = Duration::from_millis(50);

/// Tests the tracker on `pair`.
pub fn check_tracker(pair: &TestPair) -> Finding {
    const NAME: &str = "lane tracker";
    match count_switches(pair) {
        Ok(0) => Finding::blocks(
            NAME,
            "attached, but the kernel program counts no context switch",
            "check /proc/sys/kernel/bpf_stats_enabled and the security modules",
        ),
        Ok(switches) => {
            Finding::works(NAME, format!("loaded, attached, counted {switches} context switches, detached"))
        }
        Err(error) => tracker_error_finding(NAME, &error),
    }
}

fn count_switches(pair: &TestPair) -> Result<u64> {
    let lanes = pair.lanes();
    let purpose = Purpose::Lend { requests: false, lent: LaneLending::default() };
    let tracking = ServiceTracking::with_own_tracker(&Service::default(), &lanes, LaneUse::default(), purpose)?;
    let tracker = tracking.tracker();
    tracker.attach()?;
    wait_for_lane_switches(&tracker.memory(), &lanes.request_lanes)?;
    thread::sleep(WATCH);
    let accounting = tracker.memory().accounting();
    tracker.detach();
    Ok([pair.request, pair.batch].iter().map(|cpu| accounting.lane(*cpu).switches).sum())
}

fn tracker_error_finding(name: &'static str, error: &anyhow::Error) -> Finding {
    let (detail, fix) = match error.downcast_ref::<TrackerError>() {
        Some(TrackerError::NoBtf) => {
            ("cannot be loaded into a kernel without BTF".to_owned(), "see the line BTF above")
        }
        Some(TrackerError::Refused(source)) => (
            format!("the kernel refuses to load it: {source}"),
            "see the line BPF privilege below; in a container, \
                                                                  allow the bpf system call",
        ),
        Some(TrackerError::OtherPids) => {
            ("process numbers here differ from those in the kernel".to_owned(), "see the line process numbers below")
        }
        // The detail contains the kernel's own message.
        Some(TrackerError::Bpf { step, source }) => {
            (format!("cannot {step}: {source:#}"), tracker_kernel_advice(&machine::kernel_release()))
        }
        Some(_) => (format!("{error:#}"), tracker_kernel_advice(&machine::kernel_release())),
        None => (error.to_string(), "choose other lanes with --lanes"),
    };
    Finding::blocks(name, detail, fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_and_missing_kernel_feature_are_distinguished() {
        let fix = |error: TrackerError| tracker_error_finding("lane tracker", &error.into()).fix;
        let denied = libbpf_rs::Error::from_raw_os_error(libc::EPERM);
        assert_eq!(fix(TrackerError::NoBtf).as_deref(), Some("see the line BTF above"));
        assert_eq!(fix(TrackerError::OtherPids).as_deref(), Some("see the line process numbers below"));
        assert!(fix(TrackerError::Refused(denied)).is_some_and(|fix| fix.contains("privilege")));
    }
}
