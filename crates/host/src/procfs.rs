//! Processes and threads, as `/proc` lists them. Processes that end during the listing are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};

use crate::cpulist::CpuSet;

/// Bit of SIGKILL in the sets of POSIX signals in /proc.
const SIGKILL_BIT: u64 = 1 << 8;

/// Returns the name and number of a thread for messages, as in `"worker" (4711)`. Special characters are escaped, since
/// a program may put any byte into the name of its thread.
pub fn thread_name(pid: u32, tid: u32) -> String {
    let name = text_of(&format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    format!("{:?} ({tid})", name.trim_end())
}

/// Returns the numbers of all threads of a process.
pub fn threads(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the name of a process as [`printable_name`] gives it, 15 characters at most; `None` if the process has
/// ended.
pub fn command_name(pid: u32) -> Option<String> {
    fs::read(format!("/proc/{pid}/comm")).ok().map(|name| printable_name(&name))
}

/// Returns the name of a process or thread in a form that is safe in a terminal or a line. A program may put any byte
/// into its name: control characters are replaced by `?`.
pub fn printable_name(name: &[u8]) -> String {
    String::from_utf8_lossy(name).trim_end().replace(char::is_control, "?")
}

/// Whether any thread of the process is alive. Dead threads stay in the process table until they are reaped, and the
/// first thread may end before the others. A process that cannot be read, for lack of a free descriptor, is alive.
pub fn is_alive(pid: u32) -> bool {
    let runs = |stat: &str| {
        try_parse_stat_fields(stat, |fields| living(fields).map(drop)).map_or(true, |living| living.is_some())
    };
    let is_threads = |tid| runs(&format!("/proc/{pid}/task/{tid}/stat"));
    // The first thread is checked first, because listing the others costs more.
    runs(&format!("/proc/{pid}/stat")) || threads(pid).into_iter().any(is_threads)
}

/// Returns the fields of a `stat` file from the state on; `None` for a zombie.
fn living(fields: &str) -> Option<&str> {
    Some(fields).filter(|fields| !fields.starts_with(['Z', 'X']))
}

/// Passes the fields of a `stat` file to `parse`, from the third field (the state) on.
fn parse_stat_fields<T>(stat_path: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    try_parse_stat_fields(stat_path, parse).ok().flatten()
}

/// As [`parse_stat_fields`]; `None` also if the thread has ended.
///
/// # Errors
/// If the file cannot be read for another reason, such as no free descriptor.
fn try_parse_stat_fields<T>(stat_path: &str, parse: impl FnOnce(&str) -> Option<T>) -> io::Result<Option<T>> {
    // The buffer is longer than any line of a `stat` file, so one read is enough. This function is called often.
    let mut bytes = [0; 1024];
    let length = match fs::File::open(stat_path).and_then(|mut file| file.read(&mut bytes)) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => return Ok(None),
        read => read?,
    };
    Ok(stat_fields_after_name(&bytes[..length]).and_then(parse))
}

/// Returns the text after the name in a thread's `stat`. The name in parentheses may contain any byte; the state
/// follows the last `) `.
fn stat_fields_after_name(stat: &[u8]) -> Option<&str> {
    let name_end = stat.windows(2).rposition(|end| end == b") ")?;
    std::str::from_utf8(&stat[name_end + 2..]).ok()
}

/// Returns the state letter in the `stat` file of a process or thread; `None` if the file cannot be read.
pub fn state(stat_path: &str) -> Option<char> {
    parse_stat_fields(stat_path, |fields| fields.chars().next())
}

/// Returns the start time of the thread with this number, in clock ticks since boot.
pub fn start_time_ticks(tid: u32) -> Option<u64> {
    parse_stat_fields(&format!("/proc/{tid}/stat"), start_time)
}

/// Returns the start time of the thread with this number, in clock ticks since boot; `None` if it has ended or is a
/// zombie.
///
/// # Errors
/// If the kernel does not tell, for example for lack of a free descriptor.
pub fn start_time_ticks_if_alive(tid: u32) -> io::Result<Option<u64>> {
    try_parse_stat_fields(&format!("/proc/{tid}/stat"), |fields| living(fields).and_then(start_time))
}

fn start_time(fields: &str) -> Option<u64> {
    /// Index of the field `starttime`, counted from the state, which is the third field.
    const START_TIME: usize = 22 - 3;
    fields.split(' ').nth(START_TIME)?.parse().ok()
}

/// Whether a process is a kernel thread.
pub fn is_kernel_thread(pid: u32) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    flags(pid).is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// Whether the kernel refuses to change the CPU affinity of a thread. It refuses for its own threads of one CPU, and
/// before Linux 6.3 for workers of io_uring.
pub fn has_fixed_affinity(tid: u32) -> bool {
    const PF_NO_SETAFFINITY: u64 = 0x0400_0000;
    flags(tid).is_some_and(|flags| flags & PF_NO_SETAFFINITY != 0)
}

/// Whether the first thread of a process is exiting or a zombie.
pub fn is_exiting(pid: u32) -> bool {
    const PF_EXITING: u64 = 0x4;
    flags(pid).is_some_and(|flags| flags & PF_EXITING != 0)
}

/// Whether a thread of the process is in a system call that no signal interrupts (state `D`).
pub fn has_uninterruptible_thread(pid: u32) -> bool {
    threads(pid).into_iter().any(|tid| state(&format!("/proc/{pid}/task/{tid}/stat")) == Some('D'))
}

/// Returns the kernel's flags of a thread (`PF_…`).
fn flags(tid: u32) -> Option<u64> {
    parse_stat_fields(&format!("/proc/{tid}/stat"), flags_in)
}

fn flags_in(fields: &str) -> Option<u64> {
    /// Index of the field `flags`, counted from the state, which is the third field.
    const FLAGS: usize = 9 - 3;
    fields.split(' ').nth(FLAGS)?.parse().ok()
}

/// Returns these processes and all their descendants.
pub fn with_descendants(roots: &BTreeSet<u32>) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for pid in all_pids() {
        if let Some(parent) = parent(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = BTreeSet::new();
    let mut rest: Vec<u32> = roots.iter().copied().collect();
    while let Some(pid) = rest.pop() {
        if found.insert(pid) {
            rest.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found
}

/// Returns the numbers of all processes that are visible in this PID namespace.
pub fn all_pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the living ones among these processes, with all living descendants that their threads still list as
/// children. [`with_descendants`] reads the whole of `/proc`, this function reads only the threads of a few processes.
/// It does not find a process whose parent has ended.
pub fn living_with_descendants(roots: &BTreeSet<u32>) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut rest: Vec<u32> = roots.iter().copied().collect();
    while let Some(pid) = rest.pop() {
        if is_alive(pid) && found.insert(pid) {
            rest.extend(threads(pid).into_iter().flat_map(|tid| children(pid, tid)));
        }
    }
    found
}

fn children(pid: u32, tid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Returns the process that a thread belongs to.
pub fn process_of(tid: u32) -> Option<u32> {
    status_field(&format!("/proc/{tid}/status"), "Tgid:")?.parse().ok()
}

/// Returns the parent of a process.
pub fn parent(pid: u32) -> Option<u32> {
    status_field(&format!("/proc/{pid}/status"), "PPid:")?.parse().ok()
}

/// Returns whether SIGKILL was sent to a process that has not ended yet. In a frozen cgroup of version 1 it cannot end.
pub fn is_killed(pid: u32) -> bool {
    let pending = status_field(&format!("/proc/{pid}/status"), "SigPnd:");
    let pending = pending.and_then(|set| u64::from_str_radix(&set, 16).ok());
    pending.is_some_and(|set| set & SIGKILL_BIT != 0)
}

fn status_field(path: &str, field: &str) -> Option<String> {
    field_in(&text_of(path)?, field).map(str::to_owned)
}

fn field_in<'a>(status: &'a str, field: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(field).map(str::trim))
}

/// Reads a file of /proc. Some files contain the name of a process, which may have any byte: bytes that are not UTF-8
/// are replaced.
pub fn text_of(path: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

/// Returns the CPUs that a thread may run on; `None` if it has ended.
pub fn thread_cpus(pid: u32, tid: u32) -> Option<CpuSet> {
    status_field(&format!("/proc/{pid}/task/{tid}/status"), "Cpus_allowed_list:")?.parse().ok()
}

/// Returns the CPUs that any thread of these processes may run on.
pub fn allowed_cpus(pids: &BTreeSet<u32>) -> CpuSet {
    let all = pids.iter().flat_map(|pid| threads(*pid).into_iter().filter_map(|tid| thread_cpus(*pid, tid)));
    all.fold(CpuSet::default(), |sum, cpus| sum.union(&cpus))
}

/// Returns the number that a process or thread has in its own PID namespace, and whether that namespace is another
/// one than this process's. `task` is its folder in `/proc`.
fn innermost_namespace_id(task: &str) -> Option<(u32, bool)> {
    parse_last_id(&status_field(&format!("{task}/status"), "NSpid:")?)
}

/// Returns the last of a thread's numbers, which are listed from the outer PID namespace to its own, and whether
/// there are several.
fn parse_last_id(ids: &str) -> Option<(u32, bool)> {
    let numbers: Vec<&str> = ids.split_whitespace().collect();
    Some((numbers.last()?.parse().ok()?, numbers.len() > 1))
}

/// Returns the number that a process has in its own PID namespace; in a container it differs from `pid`.
pub fn pid_in_own_namespace(pid: u32) -> Option<u32> {
    innermost_namespace_id(&format!("/proc/{pid}")).map(|(own, _)| own)
}

/// Whether a process has a different number in its own PID namespace than in the PID namespace of this process.
pub fn is_in_other_pid_namespace(pid: u32) -> bool {
    innermost_namespace_id(&format!("/proc/{pid}")).is_some_and(|(_, other)| other)
}

/// Returns the threads of a process, by their numbers in the process's own PID namespace.
pub fn threads_by_namespace_tid(pid: u32) -> BTreeMap<u32, u32> {
    let numbered = |tid| Some((innermost_namespace_id(&format!("/proc/{pid}/task/{tid}"))?.0, tid));
    threads(pid).into_iter().filter_map(numbered).collect()
}

/// Whether each thread of these processes is pinned to a single CPU. Different threads may have different CPUs.
pub fn is_each_thread_pinned(pids: &BTreeSet<u32>) -> bool {
    let places = pids.iter().flat_map(|pid| threads(*pid).into_iter().filter_map(|tid| thread_cpus(*pid, tid)));
    places.into_iter().all(|cpus| cpus.len() == 1)
}

/// Highest process id on any 64-bit kernel.
const PID_MAX: u32 = 1 << 22;

/// Returns an upper bound of all process and thread ids.
pub fn pid_max() -> u32 {
    let text = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    text.trim().parse().unwrap_or(PID_MAX)
}

/// Returns the CPUs that this process may use.
pub fn own_cpus() -> CpuSet {
    allowed_cpus(&BTreeSet::from([std::process::id()]))
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;

    use super::*;

    #[test]
    fn living_descendants_exclude_orphaned_processes() {
        let script = "sleep 1000 & echo $!; (sleep 1000 >&- & echo $!); read -r _";
        let mut command = std::process::Command::new("sh");
        let command = command.args(["-c", script]).stdin(std::process::Stdio::piped());
        let mut shell = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let said = std::io::BufReader::new(shell.stdout.take().unwrap());
        let numbers: Vec<u32> = said.lines().take(2).map(|line| line.unwrap().parse().unwrap()).collect();
        // The subshell ends after it has printed the number of its child. Only then is the child an orphan.
        let subshell = |pid: u32| is_alive(pid) && parent(pid) == Some(shell.id());
        while parent(numbers[1]).is_some_and(subshell) {
            std::thread::yield_now();
        }
        let found = living_with_descendants(&BTreeSet::from([shell.id()]));
        for pid in &numbers {
            // SAFETY: plain system call, on a process that this test has started.
            unsafe { libc::kill(*pid as libc::pid_t, libc::SIGKILL) };
        }
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert_eq!(found, BTreeSet::from([shell.id(), numbers[0]]));
    }

    #[test]
    fn last_listed_id_is_that_of_the_own_namespace() {
        assert_eq!(parse_last_id("4711"), Some((4711, false)));
        assert_eq!(parse_last_id("4711\t23\t1"), Some((1, true)));
        assert_eq!(parse_last_id(""), None);
        let me = std::process::id();
        assert_eq!((pid_in_own_namespace(me), is_in_other_pid_namespace(me)), (Some(me), false));
        assert!(threads_by_namespace_tid(me).iter().all(|(own, tid)| own == tid));
    }

    #[test]
    fn process_with_two_allowed_cpus_is_not_pinned() {
        let me = BTreeSet::from([std::process::id()]);
        assert_eq!(is_each_thread_pinned(&me), own_cpus().len() == 1);
        let mut pinned = std::process::Command::new("taskset");
        let cpu = own_cpus().iter().next().expect("this thread runs").to_string();
        let Ok(mut child) = pinned.args(["-c", &cpu, "sleep", "1000"]).spawn() else {
            return sidelane_testing::skip("needs taskset");
        };
        let theirs = BTreeSet::from([child.id()]);
        while read_comm(child.id()) != "sleep" {
            std::thread::yield_now();
        }
        assert!(is_each_thread_pinned(&theirs));
        child.kill().and_then(|()| child.wait()).unwrap();
    }

    fn read_comm(pid: u32) -> String {
        fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
    }

    #[test]
    fn thread_with_a_name_that_is_not_utf8_is_read() {
        let named = std::thread::Builder::new().spawn(|| {
            rustix::thread::set_name(c"\xff) R 1 (\n").unwrap();
            let (pid, tid) = (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get() as u32);
            assert!(thread_cpus(pid, tid).is_some_and(|cpus| !cpus.is_empty()));
            assert_eq!(innermost_namespace_id(&format!("/proc/{pid}/task/{tid}")).map(|(own, _)| own), Some(tid));
            assert!(flags(tid).is_some() && start_time_ticks_if_alive(tid).unwrap().is_some());
        });
        named.unwrap().join().unwrap();
    }

    #[test]
    fn a_name_has_no_control_character() {
        let named = std::thread::spawn(|| {
            rustix::thread::set_name(c"a\n\x1b]0;\x07\xc2\x9b\r").unwrap();
            command_name(rustix::thread::gettid().as_raw_nonzero().get() as u32)
        });
        assert_eq!(named.join().unwrap().as_deref(), Some("a??]0;??"));
    }

    #[test]
    fn fuzzed_status_and_stat_are_read_or_left_out() {
        sidelane_testing::fuzz("status", |bytes| {
            let text = String::from_utf8_lossy(bytes);
            for field in ["PPid:", "Cpus_allowed_list:", "NSpid:", "Uid:"] {
                let value = field_in(&text, field);
                let _ = value.map(|value| (parse_last_id(value), value.parse::<CpuSet>()));
            }
            let _ = stat_fields_after_name(bytes).map(|fields| (start_time(fields), flags_in(fields)));
        });
    }
}
