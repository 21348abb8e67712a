//! Tests of how each machine in `tests/fixtures/topology` is read and described. `pairs` tests its lanes.

use std::path::Path;

use crate::cpulist::CpuSet;
use crate::fixture::{self, cpu_set, create_file_tree};
use crate::topology::*;

mod pairs;

/// Reads the machine that the fixture of this name describes.
fn topology_of_fixture(name: &str) -> Topology {
    Topology::read(fixture::create_machine_sysfs(name).path()).expect(name)
}

/// Reads the machine that `text` describes, in the form of the fixtures.
fn topology_from_text(text: &str) -> Result<Topology, ReadError> {
    Topology::read(create_file_tree(text).path())
}

#[test]
fn each_machine_is_described_in_one_line() {
    let lines = [
        ("big_little_arm", "8 CPUs: 4 big cores, 4 little cores, 1 socket, no SMT"),
        ("graviton", "4 CPUs, 1 socket, no SMT"),
        ("hybrid_intel", "24 CPUs: 8 big cores with 2 lanes, 8 little cores, 1 socket"),
        ("juno_r1", "6 CPUs: 2 big cores, 4 little cores, 1 socket, no SMT"),
        ("numa_2_socket", "16 CPUs: 8 cores with 2 lanes, 2 sockets, 2 NUMA nodes"),
        ("siblings_offline", "8 CPUs (2 offline): 2 cores with 2 lanes, 2 cores, 1 socket"),
        ("smt2_desktop", "8 CPUs: 4 cores with 2 lanes, 1 socket"),
        ("smt4_power9", "32 CPUs: 8 cores with 4 lanes, 2 sockets, 2 NUMA nodes"),
        ("smt_off", "8 CPUs (4 offline), 1 socket, SMT switched off"),
        ("vm_bare", "4 CPUs, 1 socket, no SMT"),
        ("vm_no_smt", "2 CPUs, 1 socket, no SMT"),
    ];
    for (name, line) in lines {
        assert_eq!(topology_of_fixture(name).describe(), line, "{name}");
    }
}

#[test]
fn cores_are_big_little_or_uniform() {
    let kind = |name: &str, cpu: u32| topology_of_fixture(name).cpu(cpu).map(|found| found.kind);
    assert_eq!(kind("hybrid_intel", 15), Some(CpuKind::Big));
    assert_eq!(kind("hybrid_intel", 16), Some(CpuKind::Little));
    assert_eq!(kind("big_little_arm", 3), Some(CpuKind::Little));
    assert_eq!(kind("big_little_arm", 4), Some(CpuKind::Big));
    assert_eq!(kind("vm_no_smt", 0), Some(CpuKind::Uniform));
}

#[test]
fn an_unknown_socket_is_socket_0() {
    let text = "devices/system/cpu/online: 0\n\
                devices/system/cpu/cpu0/topology/physical_package_id: -1";
    let cpu = topology_from_text(text).expect("a machine").cpus.remove(0);
    assert_eq!((cpu.package, cpu.siblings), (0, cpu_set("0")));
}

#[test]
fn unreadable_content_is_an_error_that_names_the_file() {
    let empty = topology_from_text("").expect_err("no CPUs").to_string();
    assert!(empty.contains("/devices/system/cpu: no such file; check that sysfs is mounted"), "{empty}");
    let list = format!(
        "{:#}",
        anyhow::Error::from(topology_from_text("devices/system/cpu/online: zero").expect_err("no list"))
    );
    assert!(
        list.contains(
            "cpu/online: it is no CPU list; check that sysfs is mounted there: \
             cannot read CPU list `zero`"
        ),
        "{list}"
    );
    let number = "devices/system/cpu/online: 0\ndevices/system/cpu/cpu0/cpu_capacity: lots";
    let number = topology_from_text(number).expect_err("no number").to_string();
    assert!(number.contains("cpu0/cpu_capacity: it has `lots`"), "{number}");
}

#[test]
fn this_machine_can_be_read() {
    let here = Topology::read(Path::new("/sys")).expect("this machine");
    assert!(!here.online().is_empty(), "{}", here.describe());
}
