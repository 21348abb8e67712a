//! Tests of an agent with `[lanes]` that cannot act, because it is frozen or its holder was demoted. Batch is still off
//! the lane while the service works.

use std::process::Command;
use std::thread;
use std::time::Instant;

use sidelane_host::cgroup::Hierarchy;

use crate::common::process::{class_priority_and_nice, threads_named, wants_cpu};
use crate::common::{FreezableGroup, TIMEOUT, wait_until};
use crate::daemon::status;
use crate::groups::Place;
use crate::scene::{Scene, Setting};

/// The test freezes the agent's cgroup, as `systemctl freeze` and `docker pause` do. Batch has another cgroup, and
/// would run on without the guardian.
#[test]
fn batch_is_frozen_while_the_agent_is_frozen() {
    for hierarchy in FreezableGroup::hierarchies() {
        for place in [Place::Lists, Place::NoLists] {
            // The test runs on its own thread, which stays on the request lane.
            let once = || check_batch_is_frozen_while_the_agent_is(&hierarchy, place);
            thread::scope(|scope| scope.spawn(once).join()).expect("batch was frozen and thawed");
        }
    }
}

#[track_caller]
fn check_batch_is_frozen_while_the_agent_is(hierarchy: &Hierarchy, place: Place) {
    let Some(mut scene) = Scene::start_with_setting(Setting { place, home: Some(hierarchy), ..Setting::default() })
    else {
        return;
    };
    for works_before in [false, true] {
        if works_before {
            scene.service.work();
            scene.wait_until_batch_leaves_lane();
        }
        freeze(&scene, true);
        wait_until("batch was frozen, and stood still", || scene.batch.is_frozen() && !wants_cpu(scene.batch.pid()));
        if !works_before {
            scene.service.work();
            wait_until("the service worked", || scene.words.busy());
            assert!(scene.batch.is_frozen() && !scene.words.is_batch_on_lane());
        }
        freeze(&scene, false);
        scene.wait_until_batch_leaves_lane();
        scene.service.rest();
        scene.wait_until_batch_returns();
        assert!(!scene.batch.is_frozen());
    }
    scene.end_and_check();
}

/// Freezes or thaws the agent. The kernel program reports the halt to the guardian, which does not wait for its next
/// check.
#[track_caller]
fn freeze(scene: &Scene, frozen: bool) {
    let told = scene.words.halt_event_bytes();
    scene.home.as_ref().expect("the agent has a group of its own").freeze(frozen);
    if frozen {
        wait_until("the kernel program had told of the halt", || scene.words.halt_event_bytes() > told);
    }
}

/// An administrator can demote the holder, and so can batch with CAP_SYS_NICE.
#[test]
fn demoted_holder_of_the_agent_is_promoted_again() {
    let Some(mut scene) = Scene::start() else { return };
    let holder = holder_of(&scene);
    let lowered = Command::new("chrt").args(["-i", "-p", "0", &holder.to_string()]).status();
    if !lowered.is_ok_and(|lowered| lowered.success()) {
        return sidelane_testing::skip("needs chrt");
    }
    scene.service.work();
    scene.wait_until_batch_leaves_lane();
    wait_until("the holder had its class back", || {
        class_priority_and_nice(holder)[..2] == ["1", "10"].map(|word| Some(word.to_owned()))
    });
    scene.service.rest();
    scene.wait_until_batch_returns();
    wait_until("it was noted", || {
        status()["notes"].to_string().contains("scheduling class of the holder of batch lane 1")
    });
    scene.end_and_check();
}

/// Batch command that is in the kernel almost all the time, in calls that no freeze interrupts: MAP_POPULATE fills the
/// memory.
const IN_LONG_SYSTEM_CALLS: &str = "exec python3 -c 'import mmap\nwhile True: \
                                        mmap.mmap(-1, 1 << 28, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000).close()'";

#[test]
fn lane_is_held_until_batch_in_a_long_syscall_is_frozen() {
    let setting = Setting { script: IN_LONG_SYSTEM_CALLS, ..Setting::default() };
    let Some(mut scene) = Scene::start_with_setting(setting) else { return };
    let (freezer, deadline) = (scene.batch.freezer(), Instant::now() + TIMEOUT);
    while !scene.words.work_until_frozen_and_check_rehold(&mut scene.service, &freezer) {
        assert!(Instant::now() < deadline, "batch was never found awake after an eviction");
        scene.wait_until_batch_returns();
    }
    scene.wait_until_batch_returns();
    scene.end_and_check();
}

fn holder_of(scene: &Scene) -> u32 {
    threads_named(scene.daemon.run.pid(), "holder-1")[0]
}
