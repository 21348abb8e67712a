//! How each machine in `tests/fixtures/topology` is read and described. Its lanes are tested in
//! `pairs`.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::cpulist::CpuSet;
use crate::topology::*;

mod pairs;

/// Reads the machine described by the fixture of that name.
fn machine(name: &str) -> Topology {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/topology");
    let text = fs::read_to_string(dir.join(format!("{name}.txt"))).expect(name);
    read_text(&text).expect(name)
}

/// Reads the machine described by `text`, in the form of the fixtures.
fn read_text(text: &str) -> Result<Topology, ReadError> {
    let root = TempDir::new().expect("a temporary directory");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (path, content) = line.split_once(':').expect(line);
        for path in expand(path) {
            write(&root.path().join(path), content.trim());
        }
    }
    Topology::read(root.path())
}

/// Expands `cpu{0,4}/online` to `cpu0/online` and `cpu4/online`.
fn expand(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else {
        return vec![path.to_owned()];
    };
    let (list, after) = rest.split_once('}').expect(path);
    set(list).iter().map(|cpu| format!("{before}{cpu}{after}")).collect()
}

fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().expect("a file in a directory")).expect("a directory");
    fs::write(path, format!("{content}\n")).expect("a file");
}

fn set(list: &str) -> CpuSet {
    list.parse().expect(list)
}

#[test]
fn describes_each_machine_in_a_line() {
    let lines = [
        ("big_little_arm", "8 CPUs: 4 P-cores, 4 E-cores, 1 socket, no SMT"),
        ("hybrid_intel", "24 CPUs: 8 P-cores with 2 lanes, 8 E-cores, 1 socket"),
        ("numa_2_socket", "16 CPUs: 8 cores with 2 lanes, 2 sockets, 2 NUMA nodes"),
        ("siblings_offline", "8 CPUs (2 offline): 2 cores with 2 lanes, 2 cores, 1 socket"),
        ("smt2_desktop", "8 CPUs: 4 cores with 2 lanes, 1 socket"),
        ("smt4_power9", "32 CPUs: 8 cores with 4 lanes, 2 sockets, 2 NUMA nodes"),
        ("smt_off", "8 CPUs (4 offline), 1 socket, SMT switched off"),
        ("vm_bare", "4 CPUs, 1 socket, no SMT"),
        ("vm_no_smt", "2 CPUs, 1 socket, no SMT"),
    ];
    for (name, line) in lines {
        assert_eq!(machine(name).describe(), line, "{name}");
    }
}

#[test]
fn kinds_come_from_intel_lists_or_arm_capacities() {
    let kind = |name: &str, cpu: u32| machine(name).cpu(cpu).map(|found| found.kind);
    assert_eq!(kind("hybrid_intel", 15), Some(CpuKind::Performance));
    assert_eq!(kind("hybrid_intel", 16), Some(CpuKind::Efficiency));
    assert_eq!(kind("big_little_arm", 3), Some(CpuKind::Efficiency));
    assert_eq!(kind("big_little_arm", 4), Some(CpuKind::Performance));
    assert_eq!(kind("vm_no_smt", 0), Some(CpuKind::Uniform));
}

#[test]
fn speeds_are_read_where_the_machine_tells_them() {
    let little = machine("big_little_arm").cpu(0).cloned().expect("CPU 0");
    assert_eq!((little.capacity, little.freq_max_khz), (Some(462), Some(1_844_000)));
    let bare = machine("vm_bare").cpu(0).cloned().expect("CPU 0");
    assert_eq!((bare.capacity, bare.freq_max_khz), (None, None));
}

#[test]
fn an_unknown_socket_is_socket_0() {
    let text = "devices/system/cpu/online: 0\n\
                devices/system/cpu/cpu0/topology/physical_package_id: -1";
    let cpu = read_text(text).expect("a machine").cpus.remove(0);
    assert_eq!((cpu.package, cpu.siblings), (0, set("0")));
}

#[test]
fn unreadable_content_is_an_error_that_names_the_file() {
    let empty = read_text("").expect_err("no CPUs").to_string();
    assert!(empty.contains("/devices/system/cpu; check that sysfs is mounted"), "{empty}");
    let list = format!("{:#}", anyhow::Error::from(read_text("devices/system/cpu/online: zero").expect_err("no list")));
    assert!(
        list.contains("cpu/online holds no list of CPUs; check that sysfs is mounted there: CPU list `zero`"),
        "{list}"
    );
    let number = "devices/system/cpu/online: 0\ndevices/system/cpu/cpu0/cpu_capacity: lots";
    let number = read_text(number).expect_err("no number").to_string();
    assert!(number.contains("cpu0/cpu_capacity holds `lots`, not a number"), "{number}");
}

#[test]
fn this_machine_can_be_read() {
    let here = Topology::read(Path::new("/sys")).expect("this machine");
    assert!(!here.online().is_empty(), "{}", here.describe());
}
