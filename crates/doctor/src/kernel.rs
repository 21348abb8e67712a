//! Build and run-time settings of the kernel that matter for lanes.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use sidelane_policy::borrow::BorrowConfig;

use super::finding::Finding;
use sidelane_diagnostics::machine;
use sidelane_lanes::gate::sched_ext::{Unavailable, check_sched_ext_available};

const BTF: &str = "/sys/kernel/btf/vmlinux";
/// Tracepoints of context switches, which the lane tracker needs.
const LANE_EVENTS: [&str; 8] = [
    "sched_switch",
    "sched_waking",
    "sched_wakeup",
    "sched_wakeup_new",
    "sched_migrate_task",
    "sched_process_fork",
    "sched_process_free",
    "cpuhp_exit",
];
/// Tracepoints of requests, which the tracking of requests needs.
const REQUEST_EVENTS: [&str; 4] = ["sk_data_ready", "sock_recv_length", "sock_send_length", "net_dev_start_xmit"];

/// Returns findings about the kernel from checks that change nothing.
pub fn check_kernel() -> Vec<Finding> {
    let types = fs::read(BTF);
    let events = types.as_deref().map(attachable_tracepoints).unwrap_or_default();
    vec![
        check_btf(types.as_ref().map(Vec::len)),
        check_lane_tracepoints(&events),
        check_request_tracepoints(&events),
        check_sched_ext(check_sched_ext_available()),
        check_rt_throttling(read_kernel_sysctl("sched_rt_runtime_us"), read_kernel_sysctl("sched_rt_period_us")),
        check_fair_server(&machine::kernel_release(), read_fair_server_ns()),
        check_preempt_rt(is_realtime()),
    ]
}

fn check_btf(size_bytes: Result<usize, &io::Error>) -> Finding {
    const NAME: &str = "BTF";
    match size_bytes {
        Ok(bytes) => Finding::works(NAME, format!("{BTF}, {} KiB", bytes / 1024)),
        Err(error) => Finding::blocks(
            NAME,
            format!("{BTF}: {error}"),
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y, as those of Debian, Ubuntu, Fedora and RHEL are",
        ),
    }
}

/// Returns the tracepoints that BPF programs can attach to: the kernel's type information contains the name of each
/// tracepoint's callback.
fn attachable_tracepoints(btf_types: &[u8]) -> BTreeSet<&str> {
    let names = btf_types.split(|byte| *byte == 0).filter_map(|name| name.strip_prefix(b"btf_trace_"));
    names.filter_map(|name| std::str::from_utf8(name).ok()).collect()
}

fn check_lane_tracepoints(present: &BTreeSet<&str>) -> Finding {
    const NAME: &str = "lane tracepoints";
    match missing_tracepoints(&LANE_EVENTS, present) {
        None => Finding::works(NAME, LANE_EVENTS.join(" ")),
        Some(lacking) => Finding::blocks(NAME, format!("lacking: {lacking}"), "boot a kernel of 5.8 or later with BTF"),
    }
}

fn check_request_tracepoints(present: &BTreeSet<&str>) -> Finding {
    const NAME: &str = "request tracepoints";
    match missing_tracepoints(&REQUEST_EVENTS, present) {
        None => Finding::works(NAME, REQUEST_EVENTS.join(" ")),
        Some(lacking) => Finding::optional(NAME, format!("missing: {lacking}; requests at TCP sockets cannot be seen"))
            .with_fix("boot a kernel of 6.3 or later"),
    }
}

fn missing_tracepoints(wanted: &[&str], present: &BTreeSet<&str>) -> Option<String> {
    let lacking: Vec<&str> = wanted.iter().copied().filter(|event| !present.contains(event)).collect();
    (!lacking.is_empty()).then(|| lacking.join(" "))
}

fn check_sched_ext(available: Result<(), Unavailable>) -> Finding {
    const NAME: &str = "sched_ext";
    match available {
        Ok(()) => Finding::works(NAME, "batch can have a scheduler of its own"),
        Err(Unavailable::NotInKernel) => Finding::optional(NAME, "not in this kernel; --gate sched-ext cannot be used")
            .with_fix("boot 6.12 or later with CONFIG_SCHED_CLASS_EXT=y"),
        Err(why) => Finding::optional(NAME, format!("{why}; --gate sched-ext cannot be used")),
    }
}

fn read_kernel_sysctl(name: &str) -> Option<i64> {
    fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok()
}

fn check_rt_throttling(runtime_us: Option<i64>, period_us: Option<i64>) -> Finding {
    const NAME: &str = "RT throttling";
    match (runtime_us, period_us) {
        (Some(..0), _) => Finding::works(NAME, format!("off; {}", eviction_explanation())),
        (Some(0), _) => Finding::blocks(
            NAME,
            "real-time threads get no CPU time, so no lane can be held",
            "sysctl -w kernel.sched_rt_runtime_us=950000",
        ),
        (Some(runtime_us), Some(period_us)) => {
            let (runtime_ms, period_ms) = (runtime_us / 1_000, period_us / 1_000);
            Finding::works(
                NAME,
                format!("real-time threads get {runtime_ms} of {period_ms} ms; {}", eviction_explanation()),
            )
        }
        _ => Finding::optional(NAME, "unknown: cannot read it from /proc/sys/kernel"),
    }
}

/// Returns why neither real-time throttling nor the fair server lets batch run on a held lane: batch is evicted before.
fn eviction_explanation() -> String {
    let evict_after_ms = BorrowConfig::default().evict_after_ns / 1_000_000;
    format!("batch gets no CPU time this way: it is moved off a lane that is held for {evict_after_ms} ms")
}

/// Returns the time per second that a fair server gives ordinary threads; `None` if debugfs does not show it.
fn read_fair_server_ns() -> Option<u64> {
    fs::read_to_string("/sys/kernel/debug/sched/fair_server/cpu0/runtime").ok()?.trim().parse().ok()
}

fn check_fair_server(release: &str, runtime_ns: Option<u64>) -> Finding {
    const NAME: &str = "fair server";
    const FIRST: (u32, u32) = (6, 12);
    match (parse_version(release), runtime_ns) {
        (_, Some(0)) => Finding::works(NAME, "off"),
        (_, Some(ns)) => Finding::works(NAME, format!("gives ordinary threads {} ms a second", ns / 1_000_000)),
        (Some(this), None) if this >= FIRST => Finding::works(
            NAME,
            format!("gives ordinary threads 50 ms a second unless changed; {}", eviction_explanation()),
        ),
        _ => Finding::works(NAME, "none in this kernel"),
    }
}

/// Returns whether the kernel is built with PREEMPT_RT, which reports that in a file.
fn is_realtime() -> bool {
    fs::read_to_string("/sys/kernel/realtime").is_ok_and(|text| text.trim() == "1")
}

fn check_preempt_rt(is_realtime: bool) -> Finding {
    const NAME: &str = "PREEMPT_RT";
    match is_realtime {
        false => Finding::works(NAME, "no: interrupts preempt every thread"),
        true => Finding::optional(
            NAME,
            "yes: a holder is woken through a kernel thread (irq_work), and interrupt threads preempt it, so lanes are \
             held later; not tested",
        )
        .with_fix("check the latency of the gates below, or boot a kernel without PREEMPT_RT"),
    }
}

/// Returns advice for a kernel that rejects the lane tracker.
pub fn tracker_kernel_advice(release: &str) -> &'static str {
    /// First kernel release whose BPF has the atomic operations that the kernel program uses.
    const FIRST: (u32, u32) = (5, 12);
    match parse_version(release) {
        Some(this) if this < FIRST => "boot a kernel of 5.12 or later (docs/reference/kernels.md lists tested ones)",
        _ => "allow the bpf system call (container, kernel lockdown)",
    }
}

/// Returns the first two numbers of a kernel release.
fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn tracepoints_are_found_by_their_whole_names() {
        let there = attachable_tracepoints(b"\x01\x02\0task_struct\0btf_trace_sched_switch\0xbtf_trace_sched_waking\0");
        assert_eq!(there, BTreeSet::from(["sched_switch"]));
        let found = check_lane_tracepoints(&there);
        assert_eq!(found.state, State::Blocks);
        assert!(found.detail.starts_with("lacking: sched_waking "), "{}", found.detail);
        assert_eq!(check_request_tracepoints(&there).state, State::Optional);
        assert_eq!(check_request_tracepoints(&BTreeSet::from(REQUEST_EVENTS)).state, State::Works);
    }

    #[test]
    fn real_time_kernel_is_reported_with_its_consequence() {
        assert_eq!(check_preempt_rt(false).state, State::Works);
        let found = check_preempt_rt(true);
        assert!(
            found.state == State::Optional && found.detail.contains("irq_work") && found.fix.is_some(),
            "{found:?}"
        );
    }

    #[test]
    fn real_time_budget_of_zero_blocks_a_run() {
        assert_eq!(check_rt_throttling(Some(0), Some(1_000_000)).state, State::Blocks);
        assert!(check_rt_throttling(Some(-1), Some(1_000_000)).detail.starts_with("off"));
        assert!(check_rt_throttling(Some(950_000), Some(1_000_000)).detail.contains("950 of 1000 ms"));
        assert_eq!(check_rt_throttling(None, None).state, State::Optional);
    }

    #[test]
    fn kernel_too_old_for_the_tracker_is_reported() {
        assert!(tracker_kernel_advice("5.10.0-32-cloud-amd64").contains("5.12 or later"));
        assert!(tracker_kernel_advice("6.1.0-50-cloud-amd64").contains("bpf system call"));
    }

    #[test]
    fn fair_server_exists_since_linux_6_12() {
        assert_eq!(parse_version("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(parse_version("6.12"), Some((6, 12)));
        assert_eq!(parse_version("weird"), None);
        assert!(check_fair_server("6.12.0", None).detail.contains("50 ms"));
        assert_eq!(check_fair_server("6.1.0-13-amd64", None).detail, "none in this kernel");
        assert_eq!(check_fair_server("6.12.0", Some(0)).detail, "off");
    }
}
