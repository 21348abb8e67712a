//! Privileges of this process, compared with those that `sidelane run` needs.

use std::io;
use std::thread;

use super::finding::{Finding, State};
use crate::reaction::pair::TestPair;
use sidelane_host::capabilities::{CAP_SYS_ADMIN, CAP_SYS_NICE, Capabilities};
use sidelane_host::cgroup::Hierarchy;
use sidelane_host::priority::{HOLDER_PRIORITY, make_this_thread_fifo};
use sidelane_host::resident::keep_code_in_memory;
use sidelane_lanes::preflight_errors::GRANT;
use sidelane_rollback::claim::{Claim, ClaimError};

/// Returns findings about the privileges of this process.
pub fn check_privileges() -> Vec<Finding> {
    let held = Capabilities::own();
    vec![
        check_bpf(held),
        check_real_time(held, try_real_time_class()),
        check_locked_memory(keep_code_in_memory()),
        check_cgroup_access(&unwritable_groups()),
    ]
}

fn check_bpf(held: Capabilities) -> Finding {
    const NAME: &str = "BPF privilege";
    if held.has(CAP_SYS_ADMIN) {
        return Finding::works(NAME, "CAP_SYS_ADMIN");
    }
    let lacking = held.missing_for_bpf();
    match lacking.is_empty() {
        true => Finding::works(NAME, "CAP_BPF and CAP_PERFMON"),
        false => Finding::blocks(NAME, format!("lacking {}", lacking.join(" and ")), GRANT),
    }
}

/// Tries to make a thread real-time, which ends at once, to test the privilege.
fn try_real_time_class() -> io::Result<()> {
    thread::spawn(|| make_this_thread_fifo(HOLDER_PRIORITY)).join().expect("the thread does not panic")
}

fn check_real_time(held: Capabilities, attempt: io::Result<()>) -> Finding {
    const NAME: &str = "SCHED_FIFO";
    match (attempt, held.has(CAP_SYS_NICE)) {
        (Ok(()), true) => Finding::works(NAME, "CAP_SYS_NICE"),
        (Ok(()), false) => Finding::works(NAME, "granted by this user's real-time limit"),
        (Err(error), true) => Finding::blocks(
            NAME,
            format!("refused although this process has CAP_SYS_NICE: {error}"),
            "give this process's cgroup real-time time (cpu.rt_runtime_us of its v1 cpu group), or allow \
             sched_setscheduler in the container",
        ),
        (Err(error), false) => Finding::blocks(NAME, format!("refused without CAP_SYS_NICE: {error}"), GRANT),
    }
}

fn check_locked_memory(attempt: io::Result<()>) -> Finding {
    const NAME: &str = "locked memory";
    match attempt {
        Ok(()) => Finding::works(NAME, "a holder never waits for a page of its code"),
        Err(error) => Finding::degrades(
            NAME,
            format!(
                "{error}: when memory is short, batch may run while the holder of its lane waits for a page of its \
                     code"
            ),
            "grant CAP_IPC_LOCK, or raise the limit (ulimit -l unlimited)",
        ),
    }
}

/// Returns the cgroups of this process in which it cannot create others.
fn unwritable_groups() -> Vec<String> {
    let useful = |found: &Hierarchy| found.is_v2() || found.has_controller("freezer") || found.has_controller("cpuset");
    let own = Hierarchy::all().into_iter().filter(useful).filter_map(|found| found.own_dir());
    let closed = own.filter(|dir| rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_err());
    closed.map(|dir| dir.display().to_string()).collect()
}

fn check_cgroup_access(unwritable: &[String]) -> Finding {
    const NAME: &str = "cgroup access";
    match unwritable.is_empty() {
        true => Finding::works(NAME, "this process can make groups below its own"),
        false => Finding::degrades(
            NAME,
            format!("cannot make groups in {}", unwritable.join(", ")),
            "run as root, or in a delegated group (`systemd-run --user --scope -p Delegate=yes`)",
        ),
    }
}

const CLAIM: &str = "lane claim";

/// Claims the batch lane, as `sidelane run` does, and returns the finding about it.
pub fn claim_batch_lane(pair: &TestPair) -> (Option<Claim>, Finding) {
    match Claim::take_batch_lane(pair.batch) {
        Ok(claim) => {
            let path = claim.path().display().to_string();
            (Some(claim), Finding::works(CLAIM, path))
        }
        Err(error @ (ClaimError::Taken { .. } | ClaimError::Agents { .. } | ClaimError::Serves { .. })) => {
            (None, Finding::optional(CLAIM, format!("{error}; gates were not measured")))
        }
        Err(error) => {
            (None, Finding::blocks(CLAIM, error.to_string(), "run as root, or give this user write access there"))
        }
    }
}

/// Returns whether a finding of [`claim_batch_lane`] means that another Sidelane uses the lane.
pub fn is_claimed_elsewhere(finding: &Finding) -> bool {
    finding.state == State::Optional
}

#[cfg(test)]
mod tests {
    use sidelane_host::capabilities::{CAP_BPF, CAP_PERFMON};

    use super::*;

    fn capabilities_with_bits(bits: &[u32]) -> Capabilities {
        Capabilities(bits.iter().fold(0, |all, bit| all | 1 << bit))
    }

    #[test]
    fn only_the_effective_capability_set_is_read() {
        let status = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t000000c000000000\nCapBnd:\t000001ffffffffff\n";
        let held = Capabilities::parse(status).unwrap();
        assert_eq!(held, capabilities_with_bits(&[CAP_PERFMON, CAP_BPF]));
        assert_eq!(Capabilities::parse("Name:\tx\n"), None);
    }

    #[test]
    fn bpf_needs_both_new_capabilities_or_sys_admin() {
        assert_eq!(check_bpf(capabilities_with_bits(&[CAP_SYS_ADMIN])).state, State::Works);
        assert_eq!(check_bpf(capabilities_with_bits(&[CAP_BPF, CAP_PERFMON])).state, State::Works);
        assert_eq!(check_bpf(capabilities_with_bits(&[CAP_PERFMON])).detail, "lacking CAP_BPF");
        assert_eq!(check_bpf(capabilities_with_bits(&[])).state, State::Blocks);
    }

    #[test]
    fn advice_depends_on_why_sched_fifo_was_refused() {
        let refused = || Err(io::Error::from_raw_os_error(libc::EPERM));
        let without = check_real_time(capabilities_with_bits(&[]), refused());
        let with = check_real_time(capabilities_with_bits(&[CAP_SYS_NICE]), refused());
        assert_eq!((without.state, with.state), (State::Blocks, State::Blocks));
        assert_ne!(without.fix, with.fix);
        assert_eq!(check_real_time(capabilities_with_bits(&[]), Ok(())).state, State::Works);
    }

    #[test]
    fn refused_memory_locking_is_a_degradation() {
        assert_eq!(check_locked_memory(Ok(())).state, State::Works);
        let refused = check_locked_memory(Err(io::Error::from_raw_os_error(libc::EPERM)));
        assert_eq!(refused.state, State::Degrades);
        assert!(refused.fix.is_some_and(|fix| fix.contains("CAP_IPC_LOCK")));
    }

    #[test]
    fn unwritable_cgroups_are_named_in_the_finding() {
        assert_eq!(check_cgroup_access(&[]).state, State::Works);
        let closed = check_cgroup_access(&["/sys/fs/cgroup".into()]);
        assert_eq!(closed.state, State::Degrades);
        assert!(closed.detail.contains("/sys/fs/cgroup"));
    }
}
