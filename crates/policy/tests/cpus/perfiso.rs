//! Hand-computed cases of PerfIso: eight CPUs, B = 2, judged every millisecond.

use sidelane_policy::Policy;
use sidelane_policy::cpus::{CpuAction, CpuReason};
use sidelane_policy::perfiso::{PerfIso, PerfIsoConfig};

use crate::scene::{MS, Scene, confine, mask, pause};

fn perfiso() -> PerfIso {
    PerfIso::new(PerfIsoConfig { buffer: 2, floor: 1, window_ns: MS })
}

/// Makes the CPUs of batch busy. All other CPUs together are busy with the load of `service_load` CPUs.
fn set_cpu_load(scene: &mut Scene, policy: &PerfIso, service_load: f64) {
    scene.seen.cpus.iter_mut().for_each(|cpu| cpu.busy = 0.0);
    policy.allowed_batch_cpus().iter().for_each(|cpu| scene.seen.cpus[cpu].busy = 1.0);
    let others: Vec<usize> = scene.seen.online().without(&policy.allowed_batch_cpus()).iter().collect();
    others.iter().for_each(|cpu| scene.seen.cpus[*cpu].busy = service_load / others.len() as f64);
}

fn started_perfiso() -> (PerfIso, Scene) {
    let (mut perfiso, mut scene) = (perfiso(), Scene::with_cpus(8));
    scene.add_container(0, 8);
    assert_eq!(scene.observe_after(&mut perfiso, 0), [confine(0, &[2, 3, 4, 5, 6, 7])]);
    (perfiso, scene)
}

#[test]
fn batch_has_all_but_the_buffer_while_services_are_idle() {
    let (mut perfiso, mut scene) = started_perfiso();
    set_cpu_load(&mut scene, &perfiso, 0.0);
    assert_eq!(scene.observe_after(&mut perfiso, MS), []);
    assert_eq!((perfiso.why(), perfiso.next_wakeup()), (CpuReason::Steady, Some(2 * MS)), "after the next window");
}

#[test]
fn all_cpus_that_the_buffer_lacks_are_taken_at_once() {
    let (mut perfiso, mut scene) = started_perfiso();
    set_cpu_load(&mut scene, &perfiso, 1.6);
    assert_eq!(scene.observe_after(&mut perfiso, MS), [confine(0, &[4, 5, 6, 7])]);
    assert_eq!(perfiso.why(), CpuReason::TooFewIdle);
    set_cpu_load(&mut scene, &perfiso, 1.6);
    assert_eq!(scene.observe_after(&mut perfiso, MS), [], "2.4 CPUs are idle");
}

#[test]
fn cpus_that_the_buffer_does_not_need_come_back_one_by_one() {
    let (mut perfiso, mut scene) = started_perfiso();
    set_cpu_load(&mut scene, &perfiso, 2.0);
    assert_eq!(scene.observe_after(&mut perfiso, MS), [confine(0, &[4, 5, 6, 7])]);
    for cpus in [&[3, 4, 5, 6, 7][..], &[2, 3, 4, 5, 6, 7]] {
        set_cpu_load(&mut scene, &perfiso, 0.0);
        assert_eq!(scene.observe_after(&mut perfiso, MS), [confine(0, cpus)]);
        assert_eq!(perfiso.why(), CpuReason::EnoughIdle);
    }
    set_cpu_load(&mut scene, &perfiso, 0.0);
    assert_eq!(scene.observe_after(&mut perfiso, MS), []);
}

#[test]
fn observation_within_a_window_changes_nothing() {
    let (mut perfiso, mut scene) = started_perfiso();
    set_cpu_load(&mut scene, &perfiso, 2.0);
    assert_eq!(scene.observe_after(&mut perfiso, MS / 100), []);
    set_cpu_load(&mut scene, &perfiso, 0.0);
    assert_eq!(scene.observe_after(&mut perfiso, MS), [], "a burst of 10 µs is 0.02 CPUs of a millisecond");
}

#[test]
fn batch_keeps_the_floor_and_containers_are_one_group() {
    let (mut perfiso, mut scene) = started_perfiso();
    scene.add_container(1, 1);
    scene.add_container(2, 1);
    scene.seen.containers[2].as_mut().unwrap().allowed = mask(&[2, 3]);
    assert_eq!(scene.observe_after(&mut perfiso, 0), [confine(1, &[2, 3, 4, 5, 6, 7]), confine(2, &[2, 3])]);
    scene.seen.cpus.iter_mut().for_each(|cpu| cpu.busy = 1.0);
    let actions = scene.observe_after(&mut perfiso, MS);
    assert_eq!(actions, [confine(0, &[4, 5, 6, 7]), confine(1, &[4, 5, 6, 7]), pause(2)]);
    (0..3).for_each(|_| drop(scene.observe_after(&mut perfiso, MS)));
    assert_eq!(perfiso.allowed_batch_cpus(), mask(&[7]));
    assert_eq!(scene.observe_after(&mut perfiso, MS), []);
}

#[test]
fn offline_cpus_do_not_count_as_idle() {
    let (mut perfiso, mut scene) = started_perfiso();
    scene.seen.cpus[7].online = false;
    assert_eq!(scene.observe_after(&mut perfiso, 0), [confine(0, &[1, 2, 3, 4, 5, 6])]);
    assert_eq!(perfiso.why(), CpuReason::CpusChanged);
}

#[test]
fn window_restarts_when_cpus_change() {
    let (mut perfiso, mut scene) = started_perfiso();
    set_cpu_load(&mut scene, &perfiso, 2.0);
    assert_eq!(scene.observe_after(&mut perfiso, MS / 2), []);
    scene.seen.cpus[7].online = false;
    assert_eq!(scene.observe_after(&mut perfiso, 0), [confine(0, &[1, 2, 3, 4, 5, 6])]);
    assert_eq!(scene.observe_after(&mut perfiso, MS / 2), [], "half a window of these CPUs");
    assert_ne!(scene.observe_after(&mut perfiso, MS / 2), []);
}

/// CPU 7 is a lane that is evicted and restored every half window.
#[test]
fn evicted_and_restored_lanes_do_not_delay_the_window() {
    let (mut perfiso, mut scene) = started_perfiso();
    let mut sizes = vec![perfiso.allowed_batch_cpus().len()];
    for half in 0..8 {
        scene.seen.cpus[7].online = half % 2 == 1;
        scene.seen.cpus.iter_mut().for_each(|cpu| cpu.busy = 1.0);
        scene.observe_after(&mut perfiso, MS / 2);
        sizes.push(perfiso.allowed_batch_cpus().len());
    }
    assert!(sizes.windows(2).all(|pair| pair[1] <= pair[0]), "{sizes:?}");
    assert_eq!(sizes.last(), Some(&1), "no CPU is idle, and batch is left its floor: {sizes:?}");
}

#[test]
fn unpausable_container_gets_the_highest_cpu() {
    let mut perfiso = PerfIso::new(PerfIsoConfig { buffer: 2, floor: 0, window_ns: MS });
    let mut scene = Scene::with_cpus(8);
    scene.add_container(0, 8);
    scene.add_container(1, 8);
    scene.make_unpausable(1);
    scene.observe_after(&mut perfiso, 0);
    let mut told = Vec::new();
    for _ in 0..4 {
        scene.seen.cpus.iter_mut().for_each(|cpu| cpu.busy = 1.0);
        told.extend(scene.observe_after(&mut perfiso, MS));
    }
    assert!(told.contains(&pause(0)), "{told:?}");
    let last = told.iter().rfind(|action| matches!(action, CpuAction::Confine { container: 1, .. }));
    assert_eq!(last, Some(&confine(1, &[7])), "{told:?}");
}
