//! The files of /proc and of cgroups that contain numbers about a process.

use std::path::{Path, PathBuf};

use crate::list::{ListedSignal, SignalGroup};
use sidelane_channels::SyscallReader;
use sidelane_channels::file::FileNumber;
use sidelane_channels::hsperf::Value;
use sidelane_host::cgroup::Hierarchy;

/// A number in a known file: the file's name, the number's field, its unit, and its meaning.
type KnownFile = (&'static str, Option<&'static str>, Option<&'static str>, &'static str);

const OF_PROCESS: [KnownFile; 11] = [
    ("stat", Some("14"), Some("clock ticks"), "time in the program"),
    ("stat", Some("15"), Some("clock ticks"), "time in the kernel"),
    ("stat", Some("10"), None, "page faults without reading a disk"),
    ("stat", Some("12"), None, "page faults that read a disk"),
    ("stat", Some("20"), None, "threads"),
    ("schedstat", Some("1"), Some("ns"), "time the first thread ran"),
    ("schedstat", Some("2"), Some("ns"), "time the first thread waited for a CPU"),
    ("status", Some("VmRSS"), Some("KiB"), "memory in use"),
    ("status", Some("nonvoluntary_ctxt_switches"), None, "times the first thread was preempted"),
    ("io", Some("read_bytes"), Some("bytes"), "read from disks"),
    ("io", Some("write_bytes"), Some("bytes"), "written to disks"),
];

const OF_GROUP_V2: [KnownFile; 7] = [
    ("cpu.stat", Some("usage_usec"), Some("µs"), "CPU time of the group"),
    ("cpu.stat", Some("nr_throttled"), None, "times the group was throttled"),
    ("cpu.stat", Some("throttled_usec"), Some("µs"), "how long it was throttled"),
    ("cpu.pressure", Some("total"), Some("µs"), "time in which some of the group waited for a CPU"),
    ("memory.pressure", Some("total"), Some("µs"), "time in which some of the group waited for memory"),
    ("io.pressure", Some("total"), Some("µs"), "time in which some of the group waited for disks"),
    ("memory.current", None, Some("bytes"), "memory of the group"),
];

const OF_GROUP_V1: [KnownFile; 4] = [
    ("cpuacct.usage", None, Some("ns"), "CPU time of the group"),
    ("cpu.stat", Some("nr_throttled"), None, "times the group was throttled"),
    ("cpu.stat", Some("throttled_time"), Some("ns"), "how long it was throttled"),
    ("memory.usage_in_bytes", None, Some("bytes"), "memory of the group"),
];

/// Returns the numbers that can be read in this process's files, with their current values.
pub(super) fn file_signals(pid: u32) -> SignalGroup {
    let own = OF_PROCESS.iter().filter_map(|known| read_known_file(&PathBuf::from(format!("/proc/{pid}")), known));
    let mut signals: Vec<ListedSignal> = own.collect();
    for hierarchy in Hierarchy::all() {
        let files: &[KnownFile] = if hierarchy.is_v2() { &OF_GROUP_V2 } else { &OF_GROUP_V1 };
        let Some(dir) = hierarchy.dir_of(pid) else { continue };
        signals.extend(files.iter().filter_map(|known| read_known_file(&dir, known)));
    }
    // The `cpu` and `cpuacct` names of one v1 hierarchy have the same files, so each directory is read once.
    let mut seen = Vec::new();
    signals.retain(|signal| {
        let field = signal.signal.rsplit_once('/').map(|(_, file)| file.to_owned());
        let is_new = !seen.contains(&field);
        seen.push(field);
        is_new
    });
    let notes =
        if signals.is_empty() { vec![format!("no file of process {pid} can be read; run as root")] } else { vec![] };
    SignalGroup { title: "Files", signals, notes }
}

fn read_known_file(dir: &Path, (file, field, unit, about): &KnownFile) -> Option<ListedSignal> {
    let path = dir.join(file);
    let value = FileNumber::open(&path, *field).ok()?.read().ok()?;
    let field = field.map(|field| format!("#{field}")).unwrap_or_default();
    let signal = format!("counter:file:{}{field}", path.display());
    Some(ListedSignal { signal, value: Some(Value::Number(value)), unit: *unit, about: (*about).to_owned() })
}
