//! Tests of energy meters: machines with different meters, and faults of meters.

use std::fs;

use super::*;
use crate::fixture::{create_file_tree, write};

/// Files of a server with two sockets. Zones and names follow the kernel's Documentation/power/powercap/powercap.rst.
/// Notebooks also have `psys` and the copy under `intel-rapl-mmio`. Ranges are those of a Core i7-4770S.
const TWO_SOCKETS: &str = "
    class/powercap/intel-rapl/enabled: 1
    class/powercap/intel-rapl:0/name: package-0
    class/powercap/intel-rapl:0/energy_uj: 262143000000
    class/powercap/intel-rapl:0/max_energy_range_uj: 262143999938
    class/powercap/intel-rapl:0:0/name: core
    class/powercap/intel-rapl:0:0/energy_uj: 5000000
    class/powercap/intel-rapl:1/name: package-1
    class/powercap/intel-rapl:1/energy_uj: 7000000
    class/powercap/intel-rapl:1/max_energy_range_uj: 262143999938
    class/powercap/intel-rapl:2/name: psys
    class/powercap/intel-rapl:2/energy_uj: 60293987000000
    class/powercap/intel-rapl-mmio:0/name: package-0
    class/powercap/intel-rapl-mmio:0/energy_uj: 262143000000
    class/hwmon/hwmon0/name: scpi_sensors
    class/hwmon/hwmon0/energy1_input: 1";

/// Files of an Arm Juno r1. Labels and numbers are those of Arm's page "Energy monitoring on Juno".
const JUNO: &str = "
    class/hwmon/hwmon0/name: scpi_sensors
    class/hwmon/hwmon0/power1_input: 645000
    class/hwmon/hwmon0/energy1_label: BOARD_ENERGY_SYS
    class/hwmon/hwmon0/energy1_input: 27697142
    class/hwmon/hwmon0/energy2_label: BOARD_ENERGY_BIG
    class/hwmon/hwmon0/energy2_input: 3956123
    class/hwmon/hwmon0/energy3_label: BOARD_ENERGY_LITTLE
    class/hwmon/hwmon0/energy3_input: 778037
    class/hwmon/hwmon0/energy4_label: BOARD_ENERGY_GPU
    class/hwmon/hwmon0/energy4_input: 2142136";

/// Returns the error of a machine with the files of `file_tree`, which has no usable meter.
fn energy_open_error(file_tree: &str) -> String {
    Energy::open(create_file_tree(file_tree).path()).expect_err("no meter").to_string()
}

#[test]
fn energy_of_packages_is_added_up_once() {
    let sys = create_file_tree(TWO_SOCKETS);
    let mut energy = Energy::open(sys.path()).expect("packages");
    assert_eq!(energy.to_string(), "powercap: package-0, package-1");
    assert_eq!(energy.joules().expect("joules"), 0.0);
    let set = |zone: &str, uj: &str| write(&sys.path().join(format!("class/powercap/{zone}/energy_uj")), uj);
    for part in ["intel-rapl:0:0", "intel-rapl:2", "intel-rapl-mmio:0"] {
        set(part, "90000000000000");
    }
    assert_eq!(energy.joules().expect("joules"), 0.0);
    set("intel-rapl:1", "8500000");
    assert_eq!(energy.joules().expect("joules"), 1.5);
    // The meter of package-0 restarts at 0: 0.999938 J to the end of its range, and 2 J.
    set("intel-rapl:0", "2000000");
    assert_eq!(energy.joules().expect("joules"), 1.5 + 2.999938);
}

#[test]
fn energy_of_a_board_excludes_its_graphics() {
    let sys = create_file_tree(JUNO);
    let mut energy = Energy::open(sys.path()).expect("meters");
    assert_eq!(energy.to_string(), "hwmon: BOARD_ENERGY_SYS, BOARD_ENERGY_BIG, BOARD_ENERGY_LITTLE");
    for (input, uj) in [(1, "28697142"), (2, "4456123"), (3, "878037"), (4, "9000000")] {
        write(&sys.path().join(format!("class/hwmon/hwmon0/energy{input}_input")), uj);
    }
    assert_eq!(energy.joules().expect("joules"), 1.6);
}

#[test]
fn missing_energy_meter_error_lists_the_sources_read() {
    let start = "energy is not measured (no package in powercap; no energy meter in hwmon); use a machine";
    assert!(energy_open_error("").starts_with(start), "{}", energy_open_error(""));
    let others = "
        class/powercap/intel-rapl:0/name: psys
        class/powercap/intel-rapl:0/energy_uj: 1
        class/hwmon/hwmon0/name: coretemp
        class/hwmon/hwmon0/temp1_input: 40000
        class/hwmon/hwmon1/name: i915
        class/hwmon/hwmon1/energy1_input: 1";
    let what = "(no package in powercap; no energy meter in hwmon that is known to measure CPUs (i915))";
    assert!(energy_open_error(others).contains(what), "{}", energy_open_error(others));
}

#[test]
fn unreadable_package_is_an_error_and_not_left_out() {
    let sys = create_file_tree(TWO_SOCKETS);
    fs::remove_file(sys.path().join("class/powercap/intel-rapl:1/energy_uj")).expect("a file");
    let error = anyhow::Error::from(Energy::open(sys.path()).expect_err("a part"));
    let error = format!("{error:#}");
    assert!(
        error.starts_with("energy is not measured, because a meter cannot be read; run as root: cannot read "),
        "{error}"
    );
    assert!(error.contains("intel-rapl:1/energy_uj; check its permissions"), "{error}");
}

#[test]
fn vanished_meter_makes_the_sum_an_error() {
    let sys = create_file_tree(TWO_SOCKETS);
    let mut energy = Energy::open(sys.path()).expect("packages");
    // A test cannot make an open file vanish. An empty file fails like the file of a driver that was unloaded.
    let file = sys.path().join("class/powercap/intel-rapl:1/energy_uj");
    fs::write(&file, "").expect("a file");
    let error = energy.joules().expect_err("a part").to_string();
    assert!(error.starts_with("cannot read the energy meter package-1 ("), "{error}");
    assert!(error.contains("intel-rapl:1/energy_uj) any more, so energy is not measured"), "{error}");
    // The meter can be read again, and the sum lacks no energy.
    write(&file, "9000000");
    assert_eq!(energy.joules().expect("joules"), 2.0);
}

#[test]
fn decreasing_meter_makes_the_sum_an_error() {
    let sys = create_file_tree(JUNO);
    let mut energy = Energy::open(sys.path()).expect("meters");
    write(&sys.path().join("class/hwmon/hwmon0/energy2_input"), "5");
    let error = energy.joules().expect_err("it went back").to_string();
    assert!(error.starts_with("the energy meter BOARD_ENERGY_BIG went back from 3956123 to 5 µJ"), "{error}");
}
