//! Tests of the division into big and little cores, on the machines in `tests/fixtures/topology`.

use super::*;
use crate::fixture::{cpu_set, create_file_tree, create_machine_sysfs};

fn cores_of_fixture(name: &str) -> Cores {
    Cores::find(create_machine_sysfs(name).path()).expect(name)
}

/// Returns the list of sources in the error of a machine whose cores are equal.
fn equal_cores_error(sys_root: &Path) -> String {
    match Cores::find(sys_root).expect_err("equal cores") {
        CoresError::AllEqual(equal) => equal.looked_at,
        error => panic!("{error}"),
    }
}

fn cores_from_lists(big: &str, little: &str) -> Result<Cores, String> {
    Cores::from_user_lists(&cpu_set(big), &cpu_set(little), &cpu_set("0-5")).map_err(|error| error.to_string())
}

#[test]
fn each_machine_is_described_in_one_line() {
    let lines = [
        ("juno_r1", "big CPUs 1-2, little CPUs 0,3-5 with 43.5 % of their speed (cpu_capacity: 446 to 1024)"),
        ("rk3588", "big CPUs 4-7, little CPUs 0-3 with 38.7 % of their speed (cpu_capacity: 397 to 1024)"),
        ("apple_m1", "big CPUs 4-7, little CPUs 0-3 with 48.1 % of their speed (cpu_capacity: 493 to 1024)"),
        ("big_little_arm", "big CPUs 4-7, little CPUs 0-3 with 45.1 % of their speed (cpu_capacity: 462 to 1024)"),
        ("hybrid_intel", "big CPUs 0-15, little CPUs 16-23 with 76.0 % of their speed (PMUs cpu_core and cpu_atom)"),
    ];
    for (name, line) in lines {
        assert_eq!(cores_of_fixture(name).to_string(), line, "{name}");
    }
}

#[test]
fn equal_cores_error_lists_the_sources_read() {
    let graviton = create_machine_sysfs("graviton");
    assert_eq!(
        Cores::find(graviton.path()).expect_err("equal cores").to_string(),
        "cannot find big and little cores: all cores are equal (cpu_capacity 1024 everywhere; no PMUs cpu_core and \
         cpu_atom; no cpuinfo_max_freq; no acpi_cppc/highest_perf); if some are faster, name them with --big CPUS \
         --little CPUS"
    );
    assert_eq!(
        equal_cores_error(create_machine_sysfs("preferred_cores").path()),
        "no cpu_capacity; no PMUs cpu_core and cpu_atom; cpuinfo_max_freq 5100000 everywhere; \
         acpi_cppc/highest_perf 33 to 47 in small steps"
    );
}

#[test]
fn clocks_and_rankings_are_used_without_capacities() {
    let clocks = create_file_tree(
        "devices/system/cpu/online: 0-3
         devices/system/cpu/cpu{0-3}/cpu_capacity: 1024
         devices/system/cpu/cpu{0-1}/cpufreq/cpuinfo_max_freq: 4900000
         devices/system/cpu/cpu{2-3}/cpufreq/cpuinfo_max_freq: 3500000",
    );
    let clocks = Cores::find(clocks.path()).expect("two sizes");
    assert_eq!(
        clocks.to_string(),
        "big CPUs 0-1, little CPUs 2-3 with 71.4 % of their speed (cpuinfo_max_freq: 3500000 to 4900000)"
    );
    let rankings = create_file_tree(
        "devices/system/cpu/online: 0-2
         devices/system/cpu/cpu{0-1}/acpi_cppc/highest_perf: 65
         devices/system/cpu/cpu2/acpi_cppc/highest_perf: 39",
    );
    let rankings = Cores::find(rankings.path()).expect("two sizes");
    // A ranking does not measure speed, so the text has no percentage.
    assert_eq!(rankings.to_string(), "big CPUs 0-1, little CPUs 2 (acpi_cppc/highest_perf: 39 to 65)");
}

#[test]
fn an_offline_cpu_is_neither_big_nor_little() {
    let one_off = create_file_tree(
        "devices/system/cpu/present: 0-3
         devices/system/cpu/online: 0,2-3
         devices/system/cpu/cpu{0-1}/cpu_capacity: 1024
         devices/system/cpu/cpu{2-3}/cpu_capacity: 446",
    );
    let cores = Cores::find(one_off.path()).expect("two sizes");
    assert_eq!((cores.big, cores.little), (cpu_set("0"), cpu_set("2-3")));
    let all_little_off = create_file_tree(
        "devices/system/cpu/present: 0-3
         devices/system/cpu/online: 0-1
         devices/cpu_core/cpus: 0-1
         devices/cpu_atom/cpus: 2-3
         devices/system/cpu/cpu{0-1}/cpu_capacity: 1024
         devices/system/cpu/cpu{2-3}/cpu_capacity: 446",
    );
    assert!(equal_cores_error(all_little_off.path()).contains("PMU cpu_core without cpu_atom"));
}

#[test]
fn missing_capacity_of_one_cpu_gives_no_division() {
    let missing = create_file_tree(
        "devices/system/cpu/online: 0-2
         devices/system/cpu/cpu0/cpu_capacity: 1024
         devices/system/cpu/cpu1/cpu_capacity: 446
         devices/system/cpu/cpu{0-2}/cpufreq/cpuinfo_max_freq: 0",
    );
    assert_eq!(
        equal_cores_error(missing.path()),
        "no cpu_capacity of CPUs 2; no PMUs cpu_core and cpu_atom; no cpuinfo_max_freq; no acpi_cppc/highest_perf"
    );
}

#[test]
fn cpu_lists_of_the_user_are_used_unchanged() {
    let cores = cores_from_lists("0,1", "2-5").expect("two lists");
    assert_eq!((&cores.big, &cores.little, cores.little_speed_milli), (&cpu_set("0-1"), &cpu_set("2-5"), None));
    assert_eq!(cores.to_string(), "big CPUs 0-1, little CPUs 2-5 (given)");
    // A CPU may be missing in the lists of big and little CPUs.
    assert!(cores_from_lists("1", "0").is_ok());
}

#[test]
fn invalid_cpu_lists_of_the_user_are_refused() {
    let refusals = [
        ("", "2-5", "--big names no CPU; name the CPUs of both kinds, as in --big 0,1 --little 2-5"),
        ("0", "", "--little names no CPU; name"),
        ("0-2", "2-5", "CPUs 2 are in both --big and --little; name each CPU in one of them"),
        (
            "0",
            "4-7",
            "--little names CPUs 6-7, which are not online; name some of 0-5, or switch a CPU on with `echo 1 > ",
        ),
    ];
    for (big, little, start) in refusals {
        let error = cores_from_lists(big, little).expect_err(start);
        assert!(error.starts_with(start), "{error}");
    }
}

#[test]
fn this_machine_is_read_without_a_fault() {
    match Cores::find(Path::new("/sys")) {
        Ok(_) | Err(CoresError::AllEqual(_)) => {}
        Err(error) => panic!("{error}"),
    }
}
