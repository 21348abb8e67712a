//! Hand-computed cases of the unmanaged policy: eight CPUs, from some of which containers are evicted.

use sidelane_policy::Policy;
use sidelane_policy::cpus::CpuReason;
use sidelane_policy::unmanaged::Unmanaged;

use crate::scene::{MS, Scene, confine, mask, pause};

/// Starts a container that may run everywhere, and one that may run only on CPU 4.
fn started_unmanaged() -> (Unmanaged, Scene) {
    let (mut unmanaged, mut scene) = (Unmanaged::default(), Scene::with_cpus(8));
    (0..2).for_each(|place| scene.add_container(place, 1));
    set_allowed_cpus(&mut scene, 1, &[4], true);
    assert_eq!(scene.observe_after(&mut unmanaged, 0), []);
    (unmanaged, scene)
}

fn set_allowed_cpus(scene: &mut Scene, slot: usize, cpus: &[usize], as_found: bool) {
    let container = scene.seen.containers[slot].as_mut().unwrap();
    (container.allowed, container.as_found) = (mask(cpus), as_found);
}

#[test]
fn batch_is_unchanged_while_evicted_from_no_lane() {
    let (mut unmanaged, mut scene) = started_unmanaged();
    scene.seen.cpus.iter_mut().for_each(|cpu| cpu.busy = 1.0);
    scene.set_interference(0, 100.0);
    assert_eq!(scene.observe_after(&mut unmanaged, MS), []);
    assert_eq!((unmanaged.why(), unmanaged.next_wakeup()), (CpuReason::Steady, None));
}

#[test]
fn evicted_batch_has_its_other_cpus_or_is_paused() {
    let (mut unmanaged, mut scene) = started_unmanaged();
    set_allowed_cpus(&mut scene, 0, &[1, 2, 3, 5, 6, 7], false);
    set_allowed_cpus(&mut scene, 1, &[], false);
    assert_eq!(scene.observe_after(&mut unmanaged, MS), [confine(0, &[1, 2, 3, 5, 6, 7]), pause(1)]);
    assert_eq!(unmanaged.why(), CpuReason::Launched);
    assert_eq!(scene.observe_after(&mut unmanaged, MS), []);
    set_allowed_cpus(&mut scene, 0, &[0, 1, 2, 3, 4, 5, 6, 7], true);
    set_allowed_cpus(&mut scene, 1, &[4], true);
    assert_eq!(scene.observe_after(&mut unmanaged, MS), [confine(0, &[0, 1, 2, 3, 4, 5, 6, 7]), confine(1, &[4])]);
}

#[test]
fn new_container_keeps_off_the_evicted_lane() {
    let (mut unmanaged, mut scene) = started_unmanaged();
    scene.add_container(3, 1);
    set_allowed_cpus(&mut scene, 3, &[2], false);
    assert_eq!(scene.observe_after(&mut unmanaged, MS), [confine(3, &[2])]);
}

/// The kernel itself moves threads off a CPU that goes offline.
#[test]
fn offline_cpus_matter_only_to_confined_containers() {
    let (mut unmanaged, mut scene) = started_unmanaged();
    scene.seen.cpus[4].online = false;
    assert_eq!(scene.observe_after(&mut unmanaged, MS), []);
    set_allowed_cpus(&mut scene, 0, &[0, 1, 2, 4, 5, 6], false);
    assert_eq!(scene.observe_after(&mut unmanaged, MS), [confine(0, &[0, 1, 2, 5, 6])]);
    assert_eq!(unmanaged.why(), CpuReason::Launched);
    scene.seen.cpus[4].online = true;
    assert_eq!(scene.observe_after(&mut unmanaged, MS), [confine(0, &[0, 1, 2, 4, 5, 6])]);
    assert_eq!(unmanaged.why(), CpuReason::CpusChanged);
}
