//! The choice of lanes on machines with and without SMT.

use super::*;
use sidelane_host::topology::{CoreId, Cpu, CpuKind};

/// Makes two cores with two lanes each: CPUs 0 and 1, 2 and 3.
fn two_cores_with_smt() -> Topology {
    topology_with_siblings(&["0-1", "0-1", "2-3", "2-3"])
}

fn two_cores_without_smt() -> Topology {
    topology_with_siblings(&["0", "1"])
}

fn topology_with_siblings(siblings: &[&str]) -> Topology {
    let cpu = |(id, siblings): (usize, &&str)| Cpu {
        id: id as u32,
        online: true,
        core: CoreId(id as u32),
        package: 0,
        numa_node: 0,
        siblings: cpu_set(siblings),
        kind: CpuKind::Uniform,
    };
    Topology { cpus: siblings.iter().enumerate().map(cpu).collect(), smt_switched_off: false }
}

fn cpu_set(cpus: &str) -> CpuSet {
    cpus.parse().unwrap()
}

fn choose_for_target(
    lane_requirements: LaneRequirements,
    topology: &Topology,
    target: Option<&str>,
) -> Result<(Option<u32>, u32, bool), LaneChoiceError> {
    let target = target.map(cpu_set);
    let places = choose_lanes(&lane_requirements, topology, &topology.online(), target.as_ref())?;
    Ok((places.observed, places.observer, places.same_core))
}

#[test]
fn observer_core_depends_on_memory_or_hardware_counters() {
    let lane_requirements = LaneRequirements::default();
    assert_eq!(choose_for_target(lane_requirements.clone(), &two_cores_with_smt(), Some("0")), Ok((Some(0), 3, false)));
    let counters = LaneRequirements { same_core: true, needs_lane: true, ..lane_requirements };
    assert_eq!(choose_for_target(counters.clone(), &two_cores_with_smt(), Some("0")), Ok((Some(0), 1, true)));
    assert_eq!(
        choose_for_target(counters, &two_cores_without_smt(), Some("0")),
        Ok((Some(0), 1, false)),
        "there is no sibling"
    );
}

#[test]
fn observer_avoids_the_cpus_of_the_target() {
    assert_eq!(
        choose_for_target(LaneRequirements::default(), &two_cores_with_smt(), Some("2-3")),
        Ok((None, 1, false))
    );
    assert_eq!(
        choose_for_target(LaneRequirements::default(), &two_cores_with_smt(), Some("0-3")),
        Ok((None, 3, false)),
        "there is no such place"
    );
}

#[test]
fn a_command_gets_a_lane_that_the_observer_does_not_have() {
    let lane_requirements = LaneRequirements { observer: Some(0), ..LaneRequirements::default() };
    assert_eq!(choose_for_target(lane_requirements, &two_cores_without_smt(), None), Ok((Some(1), 0, false)));
}

#[test]
fn placement_errors_name_the_cpus() {
    let lane = LaneRequirements { needs_lane: true, ..LaneRequirements::default() };
    assert_eq!(
        choose_for_target(lane, &two_cores_with_smt(), Some("0-3")),
        Err(LaneChoiceError::WhichLane(cpu_set("0-3")))
    );
    let same = LaneRequirements { observed: Some(1), observer: Some(1), ..LaneRequirements::default() };
    assert_eq!(choose_for_target(same, &two_cores_with_smt(), None), Err(LaneChoiceError::SameLane(1)));
    let far = LaneRequirements { observer: Some(9), ..LaneRequirements::default() };
    assert!(
        choose_for_target(far, &two_cores_with_smt(), None)
            .unwrap_err()
            .to_string()
            .contains("cannot use CPU 9 (--observer-cpu)")
    );
    let one = topology_with_siblings(&["0"]);
    assert_eq!(
        choose_for_target(LaneRequirements::default(), &one, Some("0")),
        Err(LaneChoiceError::NoLane(cpu_set("0")))
    );
}
