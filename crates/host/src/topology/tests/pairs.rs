//! Tests of the lanes that each shape of machine lends, and of the errors if it lends none.

use proptest::prelude::*;

use crate::topology::tests::*;

const MACHINES: [&str; 14] = [
    "apple_m1",
    "big_little_arm",
    "graviton",
    "hybrid_intel",
    "juno_r1",
    "numa_2_socket",
    "preferred_cores",
    "rk3588",
    "siblings_offline",
    "smt2_desktop",
    "smt4_power9",
    "smt_off",
    "vm_bare",
    "vm_no_smt",
];

/// Writes lanes in short: `REQUESTS>BATCH` for each batch lane.
fn format_lanes(lanes: &Lanes) -> String {
    let pair = |lane: &BatchLane| format!("{}>{}", lane.request_lanes, lane.cpu);
    lanes.batch.iter().map(pair).collect::<Vec<_>>().join(" ")
}

fn smt_lanes(fixture: &str, service: &str) -> Lanes {
    topology_of_fixture(fixture).smt_pairs(&cpu_set(service)).expect(fixture)
}

fn smt_lanes_error(fixture: &str, service: &str) -> String {
    topology_of_fixture(fixture).smt_pairs(&cpu_set(service)).expect_err(fixture).to_string()
}

fn declared_lanes(spec: &str) -> Result<Lanes, String> {
    topology_of_fixture("siblings_offline").declared_pairs(spec).map_err(|error| error.to_string())
}

#[test]
fn sibling_of_each_request_lane_is_a_batch_lane() {
    let lanes = smt_lanes("smt2_desktop", "0-1");
    assert_eq!(format_lanes(&lanes), "0>4 1>5");
    assert_eq!(lanes.request_lanes, cpu_set("0-1"));
    assert_eq!((lanes.needs_pin, lanes.kind), (false, PairKind::Smt));
}

#[test]
fn request_lane_is_the_lane_of_the_service() {
    assert_eq!(format_lanes(&smt_lanes("smt2_desktop", "4,1")), "4>0 1>5");
}

#[test]
fn an_unpinned_service_keeps_the_lowest_lane_of_each_core() {
    let lanes = smt_lanes("smt2_desktop", "0-7");
    assert_eq!(format_lanes(&lanes), "0>4 1>5 2>6 3>7");
    assert_eq!((lanes.request_lanes, lanes.needs_pin), (cpu_set("0-3"), true));
}

#[test]
fn service_on_one_of_four_lanes_gives_three_batch_lanes() {
    assert_eq!(format_lanes(&smt_lanes("smt4_power9", "5")), "5>4 5>6 5>7");
}

#[test]
fn each_batch_lane_has_both_request_lanes_of_its_core() {
    let lanes = smt_lanes("smt4_power9", "16,18");
    assert_eq!(format_lanes(&lanes), "16,18>17 16,18>19");
    assert!(!lanes.needs_pin);
}

#[test]
fn cores_of_two_sockets_with_equal_core_ids_stay_apart() {
    assert_eq!(format_lanes(&smt_lanes("numa_2_socket", "0,4")), "0>8 4>12");
    let far = topology_of_fixture("numa_2_socket").cpu(12).cloned().expect("CPU 12");
    assert_eq!((far.core, far.package, far.numa_node), (CoreId(4), 1, 1));
}

#[test]
fn core_with_one_lane_stays_with_the_service() {
    let lanes = smt_lanes("hybrid_intel", "2,20");
    assert_eq!(format_lanes(&lanes), "2>3");
    assert_eq!(lanes.request_lanes, cpu_set("2,20"));
}

#[test]
fn an_offline_sibling_is_not_lent() {
    let lanes = smt_lanes("siblings_offline", "0-1");
    assert_eq!(format_lanes(&lanes), "0>4");
    let offline = topology_of_fixture("siblings_offline").cpu(5).cloned().expect("CPU 5");
    assert_eq!((offline.online, offline.core, offline.siblings), (false, CoreId(5), cpu_set("5")));
}

#[test]
fn affinity_may_name_missing_cpus() {
    assert_eq!(format_lanes(&smt_lanes("smt2_desktop", "3,8-127")), "3>7");
}

#[test]
fn error_without_smt_has_the_best_remedy() {
    let fixes = [
        ("vm_no_smt", "declare a pair, as in --lanes 1:0"),
        ("smt_off", "switch SMT on with `echo on > /sys/devices/system/cpu/smt/control`"),
        ("siblings_offline", "allow the service on some of CPUs 0,2,4,6"),
    ];
    for (name, fix) in fixes {
        let error = smt_lanes_error(name, "1");
        assert!(error.starts_with("cannot find a batch lane beside CPU 1: "), "{error}");
        assert!(error.contains(fix), "{name}: {error}");
    }
}

#[test]
fn without_smt_offline_cpus_are_suggested() {
    let text = "devices/system/cpu/present: 0-1\ndevices/system/cpu/online: 0";
    let error = topology_from_text(text).expect("a machine").smt_pairs(&cpu_set("0")).expect_err("one lane");
    assert!(error.to_string().contains("switch CPUs 1 on"), "{error}");
}

#[test]
fn a_service_on_no_online_cpu_is_an_error() {
    assert_eq!(
        smt_lanes_error("siblings_offline", "5,7"),
        "cannot use request lanes 5,7: none of them is online; allow the service CPUs of 0-4,6"
    );
}

#[test]
fn declared_pairs_are_taken_as_written() {
    let lanes = declared_lanes("2:3, 0:1+4").expect("lanes");
    assert_eq!(format_lanes(&lanes), "0>1 2>3 0>4");
    assert_eq!((lanes.request_lanes, lanes.needs_pin), (cpu_set("0,2"), false));
    assert_eq!(lanes.kind, PairKind::Declared);
    // A declared pair that shares a core is still an SMT pair.
    assert_eq!(declared_lanes("0:4").expect("lanes").kind, PairKind::Smt);
}

#[test]
fn invalid_declared_pairs_are_refused() {
    let refusals = [
        ("0:8", "cannot use CPU 8: it does not exist; name some of 0-7"),
        ("5:0", "cannot use CPU 5: it is offline; name some of 0-4,6, or switch it on with `echo 1 > "),
        ("1:1", "cannot use CPU 1 as request lane and batch lane at once; name it once"),
        ("0:1,1:2", "cannot use CPU 1 as request lane and batch lane at once; name it once"),
        ("0:2,1:2", "CPU 2 is named as batch lane twice; name each batch lane once"),
        ("0:1,2", "cannot read `2` in --lanes `0:1,2`; write REQUEST:BATCH, as in 0:1"),
        ("0:", "cannot read `0:` in --lanes `0:`; write REQUEST:BATCH, as in 0:1"),
        ("", "cannot read `` in --lanes ``; write REQUEST:BATCH, as in 0:1"),
    ];
    for (spec, start) in refusals {
        let error = declared_lanes(spec).expect_err(spec);
        assert!(error.starts_with(start), "{spec}: {error}");
    }
}

/// Checks properties of all lanes, for any machine and any CPUs of the service.
fn check_lanes(machine: &Topology, service: &CpuSet, lanes: &Lanes) {
    let lent: CpuSet = lanes.batch.iter().map(|lane| lane.cpu).collect();
    let allowed = service.intersection(&machine.online());
    assert!(!lanes.batch.is_empty() && lent.len() == lanes.batch.len());
    assert_eq!(lanes.request_lanes, allowed.difference(&lent));
    assert_eq!(lanes.needs_pin, lanes.request_lanes != allowed);
    for lane in &lanes.batch {
        let core = &machine.cpu(lane.cpu).expect("a lane of this machine").siblings;
        assert_eq!(lane.request_lanes, core.intersection(&lanes.request_lanes));
        assert!(!lane.request_lanes.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn lanes_are_valid_for_any_cpus_of_the_service(
        name in proptest::sample::select(&MACHINES[..]),
        service in proptest::collection::vec(0u32..34, 0..20),
    ) {
        let (machine, service) = (topology_of_fixture(name), service.into_iter().collect());
        if let Ok(lanes) = machine.smt_pairs(&service) {
            check_lanes(&machine, &service, &lanes);
        }
    }
}
