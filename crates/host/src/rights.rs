//! Rights by which a process outranks others on a CPU, and how a process gives them up for good.
//!
//! Two rights lead into a real-time class or to a higher priority by nice value: the capability CAP_SYS_NICE, and the
//! limits RLIMIT_RTPRIO and RLIMIT_NICE. CAP_SYS_RESOURCE can raise the limits again, so it is given up too. The kernel
//! checks both capabilities in the initial user namespace, so a user namespace of the process's own does not help it.

use std::fs;
use std::io;

use crate::capabilities::{CAP_SETPCAP, CAP_SYS_NICE, CAP_SYS_RESOURCE, Capabilities, StartedPrograms};

/// Capabilities that lead into a real-time class, to a higher priority by nice value, or to the limits that allow
/// either.
const CAPABILITIES: Capabilities = Capabilities::of(&[CAP_SYS_NICE, CAP_SYS_RESOURCE]);

/// Whether this process can give up the rights to higher priorities for its children too. Without CAP_SETPCAP a setuid
/// program, or any program of root, regains the capabilities from the bounding set.
pub fn can_drop_priority_rights() -> bool {
    Capabilities::own().has(CAP_SETPCAP) || CAPABILITIES.in_bounding_set().next().is_none()
}

/// Takes the rights to real-time classes and to higher priorities from the calling process and from all that it starts.
/// The process must have one thread. Setuid programs still work: they get every other capability.
///
/// # Errors
/// If the kernel refuses a part; the other parts are done.
pub fn drop_priority_rights() -> io::Result<()> {
    let limits = [libc::RLIMIT_RTPRIO, libc::RLIMIT_NICE].map(|limit| set_limit(limit, 0, 0));
    let bounding = CAPABILITIES.remove_from_bounding_set();
    // The inheritable capabilities are cleared, too, and the kernel then clears the ambient ones.
    let sets = Capabilities(!CAPABILITIES.0).limit_sets(StartedPrograms::LoseThem);
    limits.into_iter().chain([bounding, sets]).collect()
}

/// Whether a core dump of this machine goes to a program that the kernel starts outside of any group. Otherwise the
/// crashing process writes a file itself.
pub fn is_core_dump_piped() -> bool {
    is_pipe(&fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default())
}

fn is_pipe(pattern: &str) -> bool {
    pattern.starts_with('|')
}

/// Makes the kernel start no program for a core dump of the calling process and its children. If core dumps go to a
/// pipe, the kernel ignores every value of RLIMIT_CORE except 1, which means no dump. The hard limit stays, so a
/// program that wants a dump can raise its own.
///
/// # Errors
/// If the hard limit is 0, and this process may not raise it.
pub fn disable_piped_core_dumps() -> io::Result<()> {
    let hard = limit(libc::RLIMIT_CORE)?.rlim_max;
    set_limit(libc::RLIMIT_CORE, 1, hard.max(1))
}

fn limit(resource: libc::__rlimit_resource_t) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is an rlimit to be filled in.
    check(unsafe { libc::getrlimit(resource, &mut limit) })?;
    Ok(limit)
}

fn set_limit(resource: libc::__rlimit_resource_t, soft: u64, hard: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: `limit` is a valid rlimit.
    check(unsafe { libc::setrlimit(resource, &limit) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    /// Returns status and limits of a child that gave up its priority rights and then executed another program.
    fn status_and_limits_of_child() -> String {
        let mut child = Command::new("cat");
        // SAFETY: plain system calls between fork and exec.
        unsafe { child.args(["/proc/self/status", "/proc/self/limits"]).pre_exec(drop_priority_rights) };
        String::from_utf8(child.output().unwrap().stdout).unwrap()
    }

    #[test]
    fn rights_that_were_given_up_do_not_come_back_with_exec() {
        if !can_drop_priority_rights() {
            return sidelane_testing::skip("needs CAP_SETPCAP");
        }
        let told = status_and_limits_of_child();
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            let line = told.lines().find_map(|line| line.strip_prefix(&format!("{set}:"))).unwrap();
            let bits = u64::from_str_radix(line.trim(), 16).unwrap();
            assert!(bits & CAPABILITIES.0 == 0, "{set}: {bits:x}");
        }
        for limit in ["Max realtime priority", "Max nice priority"] {
            let line = told.lines().find_map(|line| line.strip_prefix(limit)).unwrap();
            assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["0", "0"], "{limit}");
        }
    }

    #[test]
    fn core_pattern_with_a_leading_bar_is_a_pipe() {
        assert!(is_pipe("|/usr/lib/systemd/systemd-coredump %P %u"));
        assert!(!is_pipe("core.%p") && !is_pipe("/var/cores/|%e") && !is_pipe(""));
    }
}
