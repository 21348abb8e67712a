//! Hand-computed cases of Holmes, from Algorithms 1 to 3, on four cores of two CPUs. CPU 0 is reserved, and CPU 4 is
//! its sibling.

use sidelane_policy::Policy;
use sidelane_policy::cpus::{CoreTopology, CpuAction, CpuReason};
use sidelane_policy::holmes::{Holmes, HolmesConfig};

use crate::scene::{MS, MachineState, Scene, confine, four_cores, mask, pause, place};

/// Returns the configuration of the tests: E is 40 and T 0.8 as in the paper; S is 100 ms.
fn config() -> HolmesConfig {
    HolmesConfig { reserved: mask(&[0]), calm_ns: 100 * MS, ..HolmesConfig::default() }
}

fn holmes() -> Holmes {
    Holmes::new(config(), four_cores())
}

/// Returns a machine with a service on CPU 0, and container 0 on all CPUs that are not beside a service.
fn with_a_service_and_a_large_container() -> (Holmes, Scene) {
    let (mut holmes, mut scene) = (holmes(), Scene::with_cpus(8));
    scene.add_service(0, &[0]);
    scene.add_container(0, 6);
    assert_eq!(scene.observe_after(&mut holmes, 0), [confine(0, &[1, 2, 3, 5, 6, 7]), place(0, &[0])]);
    (holmes, scene)
}

/// Returns the machine of `with_a_service_and_a_large_container`, with container 1 on the sibling of CPU 0.
fn with_a_container_on_the_sibling() -> (Holmes, Scene) {
    let (mut holmes, mut scene) = with_a_service_and_a_large_container();
    scene.add_container(1, 1);
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(1, &[4])]);
    (holmes, scene)
}

// Section for Algorithm 1: process launching.

#[test]
fn service_gets_reserved_cpus_and_container_the_others() {
    let (mut holmes, mut scene) = (holmes(), Scene::with_cpus(8));
    scene.add_service(0, &[5]);
    assert_eq!(scene.observe_after(&mut holmes, 0), [place(0, &[0])]);
    assert_eq!(holmes.why(), CpuReason::Launched);
    scene.add_service(0, &[0]);
    scene.add_container(0, 2);
    assert_eq!(scene.observe_after(&mut holmes, 200 * MS), [confine(0, &[1, 2])]);
    assert_eq!(scene.observe_after(&mut holmes, MS), []);
    assert_eq!(holmes.why(), CpuReason::Steady);
}

#[test]
fn service_is_not_placed_without_permission_of_its_owner() {
    let (mut holmes, mut scene) = (holmes(), Scene::with_cpus(8));
    scene.add_service(0, &[2]);
    scene.seen.services[0].as_mut().unwrap().may_be_placed = false;
    assert_eq!(scene.observe_after(&mut holmes, 0), []);
    let service = scene.seen.services[0].as_mut().unwrap();
    (service.may_be_placed, service.allowed) = (true, mask(&[2, 6]));
    assert_eq!(scene.observe_after(&mut holmes, MS), [], "no reserved CPU is among those that it may run on");
}

/// Case of §4.3: a new container gets non-sibling CPUs first, then others with a VPI below E.
#[test]
fn launched_container_gets_siblings_last_and_at_low_vpi() {
    let (mut holmes, mut scene) = with_a_service_and_a_large_container();
    scene.set_interference(0, 39.9);
    scene.add_container(1, 1);
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(1, &[4])]);
    let (mut holmes, mut scene) = with_a_service_and_a_large_container();
    scene.set_interference(0, 40.0);
    scene.add_container(1, 1);
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(1, &[1])], "it shares a CPU with the first container");
}

/// Returns a machine with a service that its owner keeps on CPU 1, and container 0 on all CPUs that are not beside a
/// service.
fn with_a_service_elsewhere() -> (Holmes, Scene) {
    let (mut holmes, mut scene) = (holmes(), Scene::with_cpus(8));
    scene.add_service(0, &[1]);
    scene.seen.services[0].as_mut().unwrap().may_be_placed = false;
    scene.add_container(0, 4);
    assert_eq!(scene.observe_after(&mut holmes, 0), [confine(0, &[2, 3, 6, 7])]);
    (holmes, scene)
}

/// Batch gets the siblings of a service's CPU before that CPU itself. The CPU counts as the service's until the calm
/// time S after the service last ran there.
#[test]
fn cpu_of_a_service_is_given_last_until_calm_time_ends() {
    for (away_ms, cpus) in [(0, [4, 5]), (100, [4, 5]), (101, [1, 5])] {
        let (mut holmes, mut scene) = with_a_service_elsewhere();
        scene.observe_after(&mut holmes, MS);
        scene.seen.services[0].as_mut().unwrap().ran_on = mask(&[]);
        scene.add_container(1, 2);
        assert_eq!(scene.observe_after(&mut holmes, away_ms * MS), [confine(1, &cpus)], "{away_ms} ms");
    }
}

/// Case of §4.3: the effect of batch on a service is measured before more batch comes.
#[test]
fn running_container_gets_one_sibling_per_observation() {
    let (mut holmes, mut scene) = with_a_service_elsewhere();
    scene.add_container(0, 7);
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(0, &[2, 3, 4, 5, 6, 7])]);
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(0, &[1, 2, 3, 4, 5, 6, 7])]);
}

/// Batch always keeps four CPUs, and they change only if they must.
#[test]
fn a_cpu_that_is_kept_for_the_floor_stays_the_same() {
    let mut holmes = Holmes::new(HolmesConfig { floor: 4, ..config() }, four_cores());
    let mut scene = Scene::with_cpus(8);
    for (service, cpu) in [1, 2, 3].into_iter().enumerate() {
        scene.add_service(service, &[cpu]);
        scene.seen.services[service].as_mut().unwrap().may_be_placed = false;
    }
    scene.set_interference(2, 50.0);
    scene.set_interference(3, 50.0);
    scene.observe_after(&mut holmes, 0);
    assert_eq!(holmes.allowed_batch_cpus(), mask(&[1, 2, 4, 5]), "2 is kept");
    scene.set_interference(3, 0.0);
    scene.set_interference(1, 50.0);
    scene.observe_after(&mut holmes, 100 * MS);
    assert_eq!(holmes.allowed_batch_cpus(), mask(&[2, 3, 4, 7]), "and 1 is not, though it comes first");
}

// Section for Algorithm 2: process running.

/// Lines 1 to 8 of Algorithm 2: batch leaves a sibling when its VPI reaches E.
#[test]
fn batch_leaves_disturbed_sibling_for_another_free_cpu() {
    let (mut holmes, mut scene) = with_a_container_on_the_sibling();
    scene.seen.containers[0].as_mut().unwrap().wanted = 5;
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(0, &[1, 2, 3, 5, 6])]);
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(1, &[7])]);
    scene.add_container(1, 2);
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(1, &[4, 7])]);
    scene.set_interference(0, 40.0);
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(1, &[1, 7])]);
    assert_eq!(holmes.why(), CpuReason::Interference);
    assert_eq!(
        (holmes.reserved(), holmes.cpus_withheld_from_batch(), holmes.allowed_batch_cpus()),
        (mask(&[0]), mask(&[4]), mask(&[1, 2, 3, 5, 6, 7]))
    );
}

/// Lines 12 to 15 of Algorithm 2, with a calm time S of 100 ms: batch returns after calm.
#[test]
fn batch_returns_to_the_sibling_after_the_calm_time() {
    let (mut holmes, mut scene) = with_a_container_on_the_sibling();
    scene.set_interference(0, 50.0);
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(1, &[1])]);
    assert_eq!(scene.observe_after(&mut holmes, 30 * MS), [], "it is still disturbed");
    scene.set_interference(0, 39.0);
    assert_eq!(scene.observe_after(&mut holmes, 99 * MS), []);
    assert_eq!(holmes.next_wakeup(), Some(scene.now + MS));
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(1, &[4])]);
    assert_eq!(holmes.why(), CpuReason::Calm);
}

/// Line 13 of Algorithm 2: containers return one at a time, by priority first, then by fewest CPUs.
#[test]
fn siblings_come_back_to_one_container_after_the_other() {
    let (mut holmes, mut scene) = (holmes(), Scene::with_cpus(8));
    scene.add_service(0, &[0]);
    scene.set_interference(0, 50.0);
    scene.add_container(0, 8);
    scene.add_container(1, 8);
    let without_the_sibling = [1, 2, 3, 5, 6, 7];
    let launched = [confine(0, &without_the_sibling), confine(1, &without_the_sibling), place(0, &[0])];
    assert_eq!(scene.observe_after(&mut holmes, 0), launched);
    scene.set_interference(0, 0.0);
    let all = [1, 2, 3, 4, 5, 6, 7];
    assert_eq!(scene.observe_after(&mut holmes, 100 * MS), [confine(0, &all)]);
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(1, &all)]);
    assert_eq!(scene.observe_after(&mut holmes, MS), []);
}

/// Lines 17 to 20 of Algorithm 2: one reserved CPU is busy for more than 80 % over 10 ms.
#[test]
fn busy_reserved_cpus_get_a_cpu_beside_no_service() {
    let (mut holmes, mut scene) = (holmes(), Scene::with_cpus(8));
    scene.add_service(0, &[0]);
    scene.add_container(0, 2);
    assert_eq!(scene.observe_after(&mut holmes, 0), [confine(0, &[1, 2]), place(0, &[0])]);
    scene.seen.cpus[0].busy = 0.81;
    assert_eq!(scene.observe_after(&mut holmes, 9 * MS), [], "the window is not over");
    assert_eq!(scene.observe_after(&mut holmes, MS), [place(0, &[0, 3])], "batch is not on that core");
    assert_eq!(holmes.why(), CpuReason::ReservedBusy);
    assert_eq!((holmes.reserved(), holmes.cpus_withheld_from_batch()), (mask(&[0, 3]), mask(&[7])));
    scene.seen.cpus[3].busy = 0.79;
    assert_eq!(scene.observe_after(&mut holmes, 10 * MS), [], "80 % of two CPUs is not exceeded");
}

/// Line 18 of Algorithm 2, "deprive": batch loses the sibling of the new reserved CPU, too.
#[test]
fn batch_on_every_core_loses_one_to_reserved_cpus() {
    let (mut holmes, mut scene) = with_a_service_and_a_large_container();
    scene.seen.cpus[0].busy = 1.0;
    let actions = scene.observe_after(&mut holmes, 10 * MS);
    assert_eq!(actions, [confine(0, &[2, 3, 4, 6, 7]), place(0, &[0, 1])], "it gets the sibling of 0, which is calm");
    assert_eq!(holmes.cpus_withheld_from_batch(), mask(&[5]));
}

/// Case of §4.3, "but VPI is less than E": the reserve does not grow while batch disturbs it.
#[test]
fn reserved_cpus_do_not_grow_while_batch_disturbs_them() {
    let (mut holmes, mut scene) = with_a_container_on_the_sibling();
    scene.seen.cpus[0].busy = 0.9;
    scene.set_interference(0, 50.0);
    assert_eq!(scene.observe_after(&mut holmes, 10 * MS), [confine(1, &[1])]);
    scene.seen.cpus[0].busy = 0.7;
    assert_eq!(scene.observe_after(&mut holmes, 10 * MS), []);
    assert_eq!(holmes.reserved(), mask(&[0]));
}

#[test]
fn added_reserved_cpu_is_given_up_after_long_idle_time() {
    let (mut holmes, mut scene) = with_a_service_and_a_large_container();
    scene.seen.cpus[0].busy = 1.0;
    scene.observe_after(&mut holmes, 10 * MS);
    scene.seen.cpus[0].busy = 0.3;
    scene.seen.cpus[1].busy = 0.3;
    scene.add_service(0, &[0, 1]);
    let mut waited = 0;
    while holmes.reserved() == mask(&[0, 1]) {
        scene.observe_after(&mut holmes, 10 * MS);
        waited += 10;
    }
    assert_eq!(waited, 1010, "ten calm times after the first window in which one would have done");
    assert_eq!(holmes.why(), CpuReason::ReservedIdle);
}

// Section for Algorithm 3: process exiting.

/// Lines 1 to 5 of Algorithm 3: the siblings of an ended service are free.
#[test]
fn when_the_service_ends_its_siblings_are_free() {
    let (mut holmes, mut scene) = with_a_container_on_the_sibling();
    scene.set_interference(0, 50.0);
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(1, &[1])]);
    scene.seen.services[0] = None;
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(1, &[4])]);
    assert_eq!(holmes.why(), CpuReason::Exited);
}

/// Case of §4.3, "traffic of the latency-critical service is over": batch waits the calm time S at most, even if it was
/// the cause before.
#[test]
fn when_traffic_is_over_the_siblings_are_free() {
    let (mut holmes, mut scene) = with_a_container_on_the_sibling();
    for vpi in [50.0, 0.0, 50.0] {
        scene.set_interference(0, vpi);
        scene.observe_after(&mut holmes, 100 * MS);
    }
    scene.set_interference(0, 0.0);
    assert_eq!(scene.observe_after(&mut holmes, 100 * MS), [], "it has to be calm for twice as long");
    scene.seen.cpus[0].serving = 0.01;
    assert_eq!(scene.observe_after(&mut holmes, 99 * MS), []);
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(1, &[4])]);
}

/// The time without traffic restarts at each onset of interference.
#[test]
fn idle_time_before_interference_is_no_end_of_traffic() {
    let (mut holmes, mut scene) = with_a_container_on_the_sibling();
    scene.set_interference(0, 50.0);
    scene.observe_after(&mut holmes, MS);
    scene.set_interference(0, 0.0);
    scene.seen.cpus[0].serving = 0.0;
    assert_eq!(scene.observe_after(&mut holmes, 90 * MS), []);
    scene.seen.cpus[0].interference = Some(50.0);
    assert_eq!(scene.observe_after(&mut holmes, MS), []);
    scene.seen.cpus[0].interference = None;
    assert_eq!(scene.observe_after(&mut holmes, 20 * MS), [], "only 20 ms are without traffic");
    assert_eq!(scene.observe_after(&mut holmes, 80 * MS), [confine(1, &[4])]);
}

/// The wait for the calm time S doubles if interference follows within two waits after batch's return. It is S again
/// after a longer calm.
#[test]
fn wait_is_reset_after_long_calm_beside_batch() {
    let (mut holmes, mut scene) = with_a_container_on_the_sibling();
    let mut wait_after = |calm_ms: u64| {
        scene.observe_after(&mut holmes, calm_ms * MS);
        scene.set_interference(0, 50.0);
        assert_eq!(scene.observe_after(&mut holmes, 0), [confine(1, &[1])]);
        scene.set_interference(0, 0.0);
        (1..).find(|_| !scene.observe_after(&mut holmes, 10 * MS).is_empty()).unwrap() * 10
    };
    assert_eq!([wait_after(1), wait_after(200), wait_after(410)], [100, 200, 100]);
}

/// Lines 6 to 10 of Algorithm 2: a container moves to the CPUs of an ended container.
#[test]
fn container_on_sibling_moves_to_cpus_of_an_ended_one() {
    let (mut holmes, mut scene) = with_a_container_on_the_sibling();
    scene.seen.containers[0] = None;
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(1, &[1])]);
    assert_eq!(holmes.why(), CpuReason::Exited);
}

/// The same sequence as in `tests/smt/agent.sh`, where the agent makes these decisions with real cgroups.
#[test]
fn on_two_cores_batch_leaves_the_sibling_and_comes_back() {
    let cores = CoreTopology::from_cores([mask(&[0, 1]), mask(&[2, 3])]);
    let (mut holmes, mut scene) = (Holmes::new(config(), cores), Scene::with_cpus(4));
    scene.add_service(0, &[0]);
    (0..2).for_each(|container| scene.add_container(container, 4));
    let (all, away) = ([1, 2, 3], [2, 3]);
    assert_eq!(scene.observe_after(&mut holmes, 0), [confine(0, &all), confine(1, &all), place(0, &[0])]);
    scene.set_interference(0, 50.0);
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(0, &away), confine(1, &away)]);
    scene.seen.cpus[0].interference = None;
    assert_eq!(scene.observe_after(&mut holmes, 100 * MS), [confine(0, &all)]);
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(1, &all)]);
}

// Section for decisions that the paper leaves open.

/// Batch is the cause of the interference, so its wait (at first the calm time S) doubles each time it returns too
/// soon.
#[test]
fn batch_that_always_disturbs_returns_after_doubling_waits() {
    let (mut holmes, mut scene) = with_a_container_on_the_sibling();
    let (mut told, mut onsets) = (MachineState::default(), Vec::new());
    told.carry_out(&[confine(1, &[4])]);
    for _ in 0..1000 {
        let disturbs = told.used().contains(4);
        scene.set_interference(0, if disturbs { 60.0 } else { 20.0 });
        let actions = scene.observe_after(&mut holmes, 10 * MS);
        onsets.extend((disturbs && !actions.is_empty()).then_some(scene.now / (100 * MS)));
        told.carry_out(&actions);
    }
    assert_eq!(onsets, [0, 1, 3, 7, 15, 31, 63, 95], "in calm times");
}

#[test]
fn batch_leaves_no_cpu_without_smt() {
    let (mut holmes, mut scene) = (Holmes::new(config(), CoreTopology::default()), Scene::with_cpus(4));
    scene.add_service(0, &[0]);
    scene.add_container(0, 4);
    assert_eq!(scene.observe_after(&mut holmes, 0), [confine(0, &[1, 2, 3]), place(0, &[0])]);
    scene.set_interference(0, 100.0);
    assert_eq!(scene.observe_after(&mut holmes, MS), []);
}

#[test]
fn batch_leaves_all_four_cpus_of_a_core() {
    let cores = CoreTopology::from_cores([mask(&[0, 1, 2, 3]), mask(&[4, 5, 6, 7])]);
    let (mut holmes, mut scene) = (Holmes::new(config(), cores), Scene::with_cpus(8));
    scene.add_service(0, &[0]);
    scene.add_container(0, 8);
    assert_eq!(scene.observe_after(&mut holmes, 0), [confine(0, &[1, 2, 3, 4, 5, 6, 7]), place(0, &[0])]);
    scene.set_interference(0, 100.0);
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(0, &[4, 5, 6, 7])]);
}

/// On two CPUs of one core batch is paused, or keeps its CPU if there is a floor.
#[test]
fn batch_without_a_cpu_is_paused_unless_there_is_a_floor() {
    for (floor, actions) in [(0, vec![pause(0)]), (1, vec![])] {
        let cores = CoreTopology::from_cores([mask(&[0, 1])]);
        let (mut holmes, mut scene) = (Holmes::new(HolmesConfig { floor, ..config() }, cores), Scene::with_cpus(2));
        scene.add_service(0, &[0]);
        scene.add_container(0, 1);
        assert_eq!(scene.observe_after(&mut holmes, 0), [confine(0, &[1]), place(0, &[0])]);
        scene.set_interference(0, 100.0);
        assert_eq!(scene.observe_after(&mut holmes, MS), actions);
        scene.seen.cpus[0].interference = None;
        let back: Vec<CpuAction> = (0..100).flat_map(|_| scene.observe_after(&mut holmes, MS)).collect();
        assert_eq!(back, if floor == 0 { vec![confine(0, &[1])] } else { vec![] });
    }
}

#[test]
fn a_container_moves_from_a_cpu_that_goes_offline() {
    let (mut holmes, mut scene) = (holmes(), Scene::with_cpus(8));
    scene.add_container(0, 1);
    assert_eq!(scene.observe_after(&mut holmes, 0), [confine(0, &[1])]);
    scene.seen.cpus[1].online = false;
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(0, &[2])]);
    assert_eq!(holmes.why(), CpuReason::CpusChanged);
}

/// Batch has the CPUs 1 to 7. A container of high priority that asks for more gets all of them. The other container
/// shares one CPU with it.
#[test]
fn low_priority_container_shares_cpus_only_if_it_had_none() {
    let (mut holmes, mut scene) = (holmes(), Scene::with_cpus(8));
    scene.add_container(0, 3);
    assert_eq!(scene.observe_after(&mut holmes, 0), [confine(0, &[1, 2, 3])]);
    scene.add_container(1, 5);
    scene.seen.containers[1].as_mut().unwrap().priority = 1;
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(0, &[6, 7]), confine(1, &[1, 2, 3, 4, 5])]);
    scene.seen.containers[1].as_mut().unwrap().wanted = 8;
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(0, &[6]), confine(1, &[1, 2, 3, 4, 5, 6, 7])]);
}

#[test]
fn more_containers_than_cpus_share_them_evenly() {
    let (mut holmes, mut scene) = (holmes(), Scene::with_cpus(8));
    (0..14).for_each(|container| scene.add_container(container, 1));
    let mut told = MachineState::default();
    told.carry_out(&scene.observe_after(&mut holmes, 0));
    for cpu in 1..8 {
        let count = told.containers.iter().flatten().filter(|cpus| cpus.contains(cpu)).count();
        assert_eq!(count, 2, "CPU {cpu}");
    }
}

#[test]
fn unpausable_container_runs_where_it_disturbs_least() {
    let (mut holmes, mut scene) = with_a_container_on_the_sibling();
    scene.seen.containers[1].as_mut().unwrap().allowed = mask(&[0, 4]);
    scene.make_unpausable(1);
    scene.set_interference(0, 50.0);
    assert_eq!(scene.observe_after(&mut holmes, MS), [], "the disturbed sibling is not as bad as the reserved CPU");
    scene.seen.containers[1].as_mut().unwrap().allowed = mask(&[0]);
    assert_eq!(scene.observe_after(&mut holmes, MS), [confine(1, &[0])], "it may use nothing else");
    scene.seen.containers[1].as_mut().unwrap().can_pause = true;
    assert_eq!(scene.observe_after(&mut holmes, MS), [pause(1)], "a freezer has appeared");
    scene.make_unpausable(1);
    scene.seen.containers[1].as_mut().unwrap().allowed = mask(&[]);
    assert_eq!(scene.observe_after(&mut holmes, MS), [], "there is no CPU that it may use");
}
