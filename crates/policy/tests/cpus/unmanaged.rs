//! Unmanaged batch, worked by hand: four cores of two CPUs, of which the keepers of lanes send batch away from some.

use sidelane_policy::Policy;
use sidelane_policy::cpus::Reason;
use sidelane_policy::unmanaged::Unmanaged;

use crate::scene::{MS, Scene, confine, four_cores, mask, pause};

/// A container that may run everywhere, one on the lane 4 alone, and one far from it.
fn started() -> (Unmanaged, Scene) {
    let (mut unmanaged, mut scene) = (Unmanaged::new(four_cores()), Scene::of(8));
    (0..3).for_each(|place| scene.container(place, 1));
    allow(&mut scene, 1, &[4]);
    allow(&mut scene, 2, &[3, 7]);
    assert_eq!(scene.look(&mut unmanaged, 0), []);
    (unmanaged, scene)
}

fn allow(scene: &mut Scene, place: usize, cpus: &[usize]) {
    scene.seen.containers[place].as_mut().unwrap().allowed = mask(cpus);
}

fn evict(scene: &mut Scene, lane: usize, evicted: bool) {
    (scene.seen.cpus[lane].online, scene.seen.cpus[lane].evicted) = (!evicted, evicted);
}

#[test]
fn batch_is_left_alone_while_it_may_have_its_lanes() {
    let (mut unmanaged, mut scene) = started();
    scene.seen.cpus.iter_mut().for_each(|cpu| cpu.busy = 1.0);
    scene.interference(0, 100.0);
    assert_eq!(scene.look(&mut unmanaged, MS), []);
    assert_eq!((unmanaged.why(), unmanaged.next_wakeup()), (Reason::Steady, None));
}

#[test]
fn batch_leaves_the_core_of_a_lane_that_it_is_sent_away_from_until_it_may_come_back() {
    let (mut unmanaged, mut scene) = started();
    evict(&mut scene, 4, true);
    assert_eq!(scene.look(&mut unmanaged, MS), [confine(0, &[1, 2, 3, 5, 6, 7]), pause(1)]);
    assert_eq!(unmanaged.why(), Reason::CpusChanged);
    assert_eq!(scene.look(&mut unmanaged, MS), []);
    evict(&mut scene, 5, true);
    assert_eq!(scene.look(&mut unmanaged, MS), [confine(0, &[2, 3, 6, 7])]);
    evict(&mut scene, 4, false);
    assert_eq!(scene.look(&mut unmanaged, MS), [confine(0, &[0, 2, 3, 4, 6, 7]), confine(1, &[4])]);
    evict(&mut scene, 5, false);
    assert_eq!(scene.look(&mut unmanaged, MS), [confine(0, &[0, 1, 2, 3, 4, 5, 6, 7])]);
}

#[test]
fn a_container_that_comes_meanwhile_keeps_off_the_lane_too() {
    let (mut unmanaged, mut scene) = started();
    evict(&mut scene, 7, true);
    assert_eq!(scene.look(&mut unmanaged, MS), [confine(0, &[0, 1, 2, 4, 5, 6]), pause(2)]);
    scene.container(3, 1);
    allow(&mut scene, 3, &[2, 3]);
    assert_eq!(scene.look(&mut unmanaged, MS), [confine(3, &[2])]);
    assert_eq!(unmanaged.why(), Reason::Launched);
}

/// The kernel itself moves what ran on a CPU that goes.
#[test]
fn cpus_that_go_offline_are_no_affair_of_it_unless_it_has_confined_somebody() {
    let (mut unmanaged, mut scene) = started();
    scene.seen.cpus[4].online = false;
    assert_eq!(scene.look(&mut unmanaged, MS), []);
    evict(&mut scene, 7, true);
    assert_eq!(scene.look(&mut unmanaged, MS), [confine(0, &[0, 1, 2, 5, 6]), pause(2)]);
    scene.seen.cpus[4].online = true;
    assert_eq!(scene.look(&mut unmanaged, MS), [confine(0, &[0, 1, 2, 4, 5, 6])]);
}
