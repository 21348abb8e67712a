//! Tests of faults: after every fault the machine's settings are restored and the service is unchanged.

use std::fs;
use std::process::Command;

use sidelane_host::cgroup::Hierarchy;
use sidelane_host::clock::now_ns;

use crate::common::disk::audit_entries_at;
use crate::common::{Disk, Footprint, Run, lock_lanes, process, wait_until};
use crate::daemon::{Daemon, File, status};
use crate::groups::{Container, Place, Tree};
use crate::service::Program;

#[track_caller]
fn check_all_restored_after_kill(place: Place) {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let Some(tree) = Tree::make(place) else { return };
    let program = Program::new();
    let service = program.start("0");
    let one = tree.container("one");
    let lists = [tree.cpu_list(), one.cpu_list()];
    let file = File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path());
    let mut daemon = Daemon::start(&file, 1, 1);
    wait_until("batch had left the reserved CPU", || one.cpus() == "1");
    daemon.run.kill();
    wait_until("batch had its CPUs back", || one.cpus() == "0-1");
    wait_until("the groups had their lists back", || [tree.cpu_list(), one.cpu_list()] == lists);
    // A new agent can start after the killed one.
    let daemon = Daemon::start(&file, 1, 1);
    wait_until("batch had left the reserved CPU again", || one.cpus() == "1");
    daemon.end();
    assert_eq!([tree.cpu_list(), one.cpu_list()], lists);
    assert_eq!(one.cpus(), "0-1");
    service.must_be_untouched();
    drop((one, tree));
    before.wait_until_restored();
}

#[test]
fn a_killed_agent_gives_back_the_lists_of_groups() {
    check_all_restored_after_kill(Place::Lists);
}

#[test]
fn a_killed_agent_gives_back_the_cpus_of_threads() {
    check_all_restored_after_kill(Place::NoLists);
}

#[test]
fn a_killed_agent_gives_a_placed_service_its_cpus_back() {
    let Some(_turn) = lock_lanes() else { return };
    let program = Program::new();
    let service = program.start("0-1");
    let table = format!("{}\nmay_be_placed = true", program.service_match_line());
    let mut daemon = Daemon::start(&File::with_holmes_policy().with_service(&table).with_batch("/nobody"), 1, 0);
    wait_until("the service was placed", || service.cpus() == "0");
    daemon.run.kill();
    wait_until("the service had its CPUs back", || service.cpus() == "0-1");
    service.must_be_untouched();
}

#[test]
fn containers_may_vanish_at_any_moment() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let program = Program::new();
    let service = program.start("0");
    let steady = tree.container("steady");
    let mut daemon = Daemon::start(
        &File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path()),
        1,
        1,
    );
    for round in 0..20 {
        let some: Vec<_> = (0..3).map(|number| tree.container(&format!("brief-{round}-{number}"))).collect();
        if round % 2 == 0 {
            daemon
                .run
                .wait_until("one of them was seen", |_| status()["containers"].as_array().map(Vec::len) > Some(1));
        }
        drop(some);
    }
    daemon.wait_for_managed_counts(1, 1);
    wait_until("the steady one is where it was", || steady.cpus() == "1");
    let ended = daemon.end();
    assert!(!ended.stderr.contains("brief-"), "a container that vanished was noted: {ended}");
    assert_eq!([steady.cpus(), tree.cpu_list()], ["0-1", "0-1"]);
    service.must_be_untouched();
}

#[test]
fn cpus_changed_by_another_program_are_set_again() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let program = Program::new();
    let service = program.start("0");
    let one = tree.container("one");
    let daemon = Daemon::start(
        &File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path()),
        1,
        1,
    );
    wait_until("batch had left the reserved CPU", || one.cpus() == "1" && tree.cpu_list() == "1");
    tree.set_cpu_list("0-1");
    one.set_cpu_list("0");
    wait_until("batch was where it should be", || one.cpus() == "1");
    assert!(status()["agent"]["repairs_count"].as_u64() > Some(0));
    daemon.end();
    assert_eq!(one.cpus(), "0-1");
    service.must_be_untouched();
}

#[test]
fn narrowed_parent_cpuset_bounds_batch_and_is_reported() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(outer) = Tree::make(Place::Lists) else { return };
    let tree = outer.subtree("inner");
    let one = tree.container("one");
    let file = File::with_absent_targets().replace("/nobody", tree.path());
    let mut daemon = Daemon::start(&file, 0, 1);
    wait_until("batch had left the reserved CPU", || one.cpus() == "1" && tree.cpu_list() == "1");
    let told = |what: &str| status()["containers"][0][what].clone();
    assert_eq!(told("allowed"), "0-1");
    outer.set_cpu_list("1");
    daemon.run.wait_until("the bound was told", |_| told("allowed") == "1");
    let notes = status()["notes"].to_string();
    assert!(notes.contains("one can have CPUs 1 only"), "{notes}");
    daemon.reload(&file.replace("reserved = \"0\"", "reserved = \"1\""));
    wait_until("batch that has no CPU was paused", || one.is_frozen());
    daemon.run.wait_until("that was told", |_| told("state") == "paused");
    let repaired = || status()["agent"]["repairs_count"].as_u64();
    let before = repaired();
    assert_eq!(repaired(), before, "nothing is written again and again");
    outer.set_cpu_list("0-1");
    wait_until("batch had the CPU of the group above", || one.cpus() == "0" && !one.is_frozen());
    daemon.run.wait_until("the bound was told again", |_| told("allowed") == "0-1" && told("cpus") == "0");
    assert!(!status()["notes"].to_string().contains("can have CPUs"), "{}", status());
    daemon.end();
    assert_eq!([one.cpus(), tree.cpu_list()], ["0-1", "0-1"]);
}

#[test]
fn offline_cpu_is_left_and_used_again_when_online() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::NoLists) else { return };
    let dir = tempfile::tempdir().unwrap();
    let offline = dir.path().join("offline");
    fs::write(&offline, "").unwrap();
    let one = tree.container("one");
    let file = File::with_absent_targets().replace("/nobody", tree.path());
    let run = Run::with_arguments(&[]).with_variable("SIDELANE_OFFLINE", offline.to_str().unwrap());
    let mut daemon = Daemon::launch(&file, run);
    daemon.wait_for_managed_counts(0, 1);
    wait_until("batch had the CPU that is not reserved", || one.cpus() == "1");
    fs::write(&offline, "1").unwrap();
    wait_until("batch that has no CPU was paused", || one.is_frozen());
    assert_eq!(status()["cpus"].as_array().map(Vec::len), Some(1));
    fs::write(&offline, "").unwrap();
    wait_until("batch went on there", || one.cpus() == "1" && !one.is_frozen());
    fs::write(&offline, "1").unwrap();
    wait_until("batch was paused again", || one.is_frozen());
    daemon.end();
    assert!(!one.is_frozen());
}

#[test]
fn reload_of_a_bad_file_changes_nothing() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let program = Program::new();
    let service = program.start("0");
    let one = tree.container("one");
    let file = File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path());
    let mut daemon = Daemon::start(&file, 1, 1);
    wait_until("batch had left the reserved CPU", || one.cpus() == "1");
    daemon.reload(&file.replace("holmes", "homes"));
    daemon.run.wait_until("the bad file was refused", |run| run.errors().contains("cannot reload the agent's file"));
    assert_eq!(one.cpus(), "1");
    daemon.reload(&file.replace("reserved = \"0\"", "reserved = \"1\""));
    wait_until("batch had left the other CPU", || one.cpus() == "0");
    daemon.reload(&file.replace(tree.path(), "/somewhere-else"));
    wait_until("batch that is not named any more had its CPUs back", || one.cpus() == "0-1");
    daemon.wait_for_managed_counts(1, 0);
    daemon.end();
    service.must_be_untouched();
}

#[test]
fn a_service_that_is_started_again_is_found_again() {
    let Some(_turn) = lock_lanes() else { return };
    let program = Program::new();
    let service = program.start("0");
    let file = File::with_holmes_policy()
        .with_service(&program.service_match_line())
        .with_batch("/nobody")
        .replace("[metric]", "[intervals]\nprocesses = \"100ms\"\n[metric]");
    let mut daemon = Daemon::start(&file, 1, 0);
    drop(service);
    daemon.wait_for_managed_counts(0, 0);
    let again = program.start("0");
    daemon.wait_for_managed_counts(1, 0);
    daemon.end();
    again.must_be_untouched();
}

/// Starts an agent, and waits until it has confined this container. Returns the agent and its guardian's process id.
fn start_confining_agent(program: &Program, tree: &Tree, container: &Container) -> (Daemon, u32) {
    let file = File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path());
    let mut daemon = Daemon::start(&file, 1, 1);
    wait_until("batch had left the reserved CPU", || container.cpus() == "1");
    let guardian = daemon.run.wait_for_guardian_other_than(None);
    (daemon, guardian)
}

/// The agent still answers while its guardian is stopped. It confines a new container as soon as the replacement
/// guardian has the list of changes to undo.
#[test]
fn stopped_guardian_is_replaced_and_new_batch_is_confined() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::NoLists) else { return };
    let program = Program::new();
    let service = program.start("0");
    let one = tree.container("one");
    let (mut daemon, guardian) = start_confining_agent(&program, &tree, &one);
    process::stop_and_fill_pipe(guardian);
    let two = tree.container("two");
    daemon.run.wait_for_guardian_other_than(Some(guardian));
    daemon.run.wait_until("that was noted", |run| run.errors().contains("a new one took over"));
    wait_until("the container was taken by then", || two.cpus() == "1");
    daemon.end();
    assert_eq!([one.cpus(), two.cpus()], ["0-1", "0-1"]);
    service.must_be_untouched();
}

#[test]
fn killed_guardian_is_replaced_by_one_with_the_same_list() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let program = Program::new();
    let service = program.start("0");
    let one = tree.container("one");
    let (mut daemon, guardian) = start_confining_agent(&program, &tree, &one);
    process::kill(guardian);
    daemon.run.wait_for_guardian_other_than(Some(guardian));
    daemon.run.wait_until("that was noted", |run| run.errors().contains("a new one took over"));
    daemon.run.kill();
    wait_until("batch had its CPUs back", || one.cpus() == "0-1");
    service.must_be_untouched();
    drop((one, tree));
    before.wait_until_restored();
}

/// While the agent cannot open files, no guardian can be started.
#[test]
fn start_of_a_guardian_is_retried_after_a_failure() {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let Some(tree) = Tree::make(Place::NoLists) else { return };
    let program = Program::new();
    let service = program.start("0");
    let one = tree.container("one");
    let (mut daemon, guardian) = start_confining_agent(&program, &tree, &one);
    let pid = daemon.run.pid().to_string();
    let may_open = |files: &str| {
        let done = Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={files}:")]).status();
        done.is_ok_and(|status| status.success())
    };
    // The agent's new limit of open files is below the number that it has open: it can open no more. Waiting for events
    // needs fewer than 16 descriptors, and still works.
    if !may_open("16") {
        return sidelane_testing::skip("needs prlimit and CAP_SYS_RESOURCE");
    }
    process::kill(guardian);
    daemon.run.wait_until("it was noted", |run| {
        run.errors().contains(
            "cannot apply the file completely; the agent \
                                                                       tries again",
        )
    });
    assert!(may_open("1024"));
    daemon.run.wait_for_guardian_other_than(Some(guardian));
    daemon.run.wait_until("the new one took over", |run| run.errors().contains("a new one took over"));
    wait_until("batch was off the reserved CPU", || one.cpus() == "1");
    daemon.run.kill();
    wait_until("batch had its CPUs back", || one.cpus() == "0-1");
    service.must_be_untouched();
    drop((one, tree));
    before.wait_until_restored();
}

/// The test runs in a mount namespace of its own, so that no other process loses the hierarchy.
#[test]
fn groups_are_found_again_in_a_remounted_hierarchy() {
    let Some(_turn) = lock_lanes() else { return };
    let cpuset = Hierarchy::all().into_iter().find(|found| found.has_controller("cpuset"));
    let Some(mount) = cpuset.map(|found| found.mount.display().to_string()) else {
        return sidelane_testing::skip("needs a hierarchy of version 1 with lists of CPUs".to_owned());
    };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let program = Program::new();
    let service = program.start("0");
    let one = tree.container("one");
    let file = File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path());
    let mut daemon = Daemon::launch(&file, Run::with_arguments(&[]).through_wrapper(&["unshare", "--mount"]));
    daemon.wait_for_managed_counts(1, 1);
    wait_until("batch had left the reserved CPU", || one.cpus() == "1");
    let inside = |words: &[&str]| {
        let pid = daemon.run.pid().to_string();
        let done = Command::new("nsenter").args(["--target", &pid, "--mount"]).args(words).status();
        assert!(done.is_ok_and(|status| status.success()), "{words:?}");
    };
    inside(&["umount", &mount]);
    wait_until("the container was not to be had", || status()["containers"].as_array().is_some_and(Vec::is_empty));
    let mounted_ns = now_ns();
    inside(&["mount", "-t", "cgroup", "-o", "cpuset", "cgroup", &mount]);
    daemon.run.wait_until_audited("came", mounted_ns);
    daemon.end();
    assert_eq!([one.cpu_list(), tree.cpu_list(), one.cpus()], ["0-1", "0-1", "0-1"]);
    service.must_be_untouched();
}

#[test]
fn group_frozen_by_its_owner_stays_frozen_in_any_case() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::NoLists) else { return };
    let (owners, other) = (tree.container("owners"), tree.container("other"));
    let file = File::with_absent_targets().replace("/nobody", tree.path());
    let file = file.with_lines("[lanes]\ngate = \"holder\"\npolicy = \"borrow-idle\"");
    let mut daemon = Daemon::start(&file, 0, 2);
    wait_until("batch had left the reserved CPU", || owners.cpus() == "1" && other.cpus() == "1");
    owners.freeze(true);
    let guardian = daemon.run.wait_for_guardian_other_than(None);
    process::kill(guardian);
    daemon.run.wait_until("a new guardian took over", |run| run.errors().contains("a new one took over"));
    assert!(owners.is_frozen());
    daemon.run.signal(libc::SIGSTOP);
    wait_until("the guardian had stopped batch", || other.is_frozen());
    daemon.run.signal(libc::SIGCONT);
    wait_until("batch went on", || !other.is_frozen());
    assert!(owners.is_frozen());
    daemon.run.signal(libc::SIGSTOP);
    wait_until("the guardian had stopped batch again", || other.is_frozen());
    daemon.run.kill();
    wait_until("batch had its CPUs back", || owners.cpus() == "0-1" && other.cpus() == "0-1" && !other.is_frozen());
    assert!(owners.is_frozen());
}

#[test]
fn joined_moved_and_thawed_processes_are_confined_again() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::NoLists) else { return };
    let dir = tempfile::tempdir().unwrap();
    let offline = dir.path().join("offline");
    fs::write(&offline, "").unwrap();
    let mut one = tree.container("one");
    let file = File::with_absent_targets().replace("/nobody", tree.path());
    let run = Run::with_arguments(&[]).with_variable("SIDELANE_OFFLINE", offline.to_str().unwrap());
    let mut daemon = Daemon::launch(&file, run);
    daemon.wait_for_managed_counts(0, 1);
    wait_until("batch had left the reserved CPU", || one.cpus() == "1");
    let joined = one.start_process("exec sleep 1000");
    wait_until("who had joined was confined", || process::allowed_cpus(joined).as_deref() == Some("1"));
    let moved = Command::new("taskset").args(["-pc", "0", &one.pid().to_string()]).output();
    assert!(moved.is_ok_and(|moved| moved.status.success()));
    wait_until("who had been moved was confined", || one.cpus() == "1");
    fs::write(&offline, "1").unwrap();
    wait_until("batch that has no CPU was paused", || one.is_frozen());
    one.freeze(false);
    wait_until("batch was paused again", || one.is_frozen());
    daemon.end();
    assert!(!one.is_frozen());
    assert_eq!(process::allowed_cpus(joined).as_deref(), Some("0-1"));
    assert_eq!(one.cpus(), "0", "its owner's last word");
}

#[test]
fn recreated_group_does_not_get_settings_of_the_removed_one() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let one = tree.container("one");
    one.set_cpu_list("1");
    let steady = tree.container("steady");
    let mut daemon = Daemon::start(&File::with_absent_targets().replace("/nobody", tree.path()), 0, 2);
    wait_until("the tree had left the reserved CPU", || tree.cpu_list() == "1" && steady.cpus() == "1");
    daemon.run.signal(libc::SIGSTOP);
    drop(one);
    let again = tree.container("one");
    let made_ns = now_ns();
    daemon.run.signal(libc::SIGCONT);
    daemon.run.wait_until_audited("came", made_ns);
    daemon.wait_for_managed_counts(0, 2);
    daemon.end();
    assert_eq!([again.cpu_list(), steady.cpu_list(), tree.cpu_list()], ["0-1", "0-1", "0-1"]);
}

#[test]
fn placement_that_a_reload_removes_is_undone() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let program = Program::new();
    let service = program.start("0-1");
    let one = tree.container("one");
    let file =
        File::with_holmes_policy().with_service(&format!("{}\nmay_be_placed = true", program.service_match_line()));
    let file = file.with_batch(tree.path());
    let daemon = Daemon::start(&file, 1, 1);
    wait_until("the service was placed", || service.cpus() == "0" && one.cpus() == "1");
    daemon.reload(&file.replace("may_be_placed = true", ""));
    wait_until("the service had its CPUs back", || service.cpus() == "0-1");
    assert_eq!(one.cpus(), "1");
    daemon.reload(&file);
    wait_until("the service was placed again", || service.cpus() == "0" && one.cpus() == "1");
    daemon.reload(&file.replace("kind = \"holmes\"\nreserved = \"0\"", "kind = \"unmanaged\""));
    wait_until("all had their CPUs back", || service.cpus() == "0-1" && one.cpus() == "0-1");
    assert_eq!(status()["containers"][0]["state"], "as found");
    daemon.end();
    service.must_be_untouched();
}

fn lost_audit_line_count() -> Option<u64> {
    status()["agent"]["audit_lost_lines"].as_u64()
}

fn notes_of_the_log() -> Vec<String> {
    let notes = status()["notes"].as_array().cloned().unwrap_or_default();
    let notes = notes.iter().filter_map(|note| note["note"].as_str().map(str::to_owned));
    notes.filter(|note| note.contains("audit.jsonl")).collect()
}

/// Checks that the log and the status report the same number of lost lines, and that each line is whole.
#[track_caller]
fn check_lost_lines_are_logged(lost: u64, path: &std::path::Path) {
    let told: u64 = audit_entries_at(path).iter().filter_map(|line| line["lost_entries_count"].as_u64()).sum();
    assert_eq!(told, lost);
}

#[test]
fn a_full_disk_under_the_audit_log_does_not_end_the_agent() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(disk) = Disk::mount() else { return };
    let path = disk.path("audit.jsonl");
    disk.fill();
    let mut daemon = Daemon::launch_auditing(&File::with_absent_targets(), &path);
    daemon.wait_for_managed_counts(0, 0);
    wait_until("the status told of lost lines", || lost_audit_line_count() > Some(0));
    assert!(status()["agent"]["audit_error"].as_str().is_some_and(|error| error.contains("No space left")));
    wait_until("a note told of it", || notes_of_the_log().iter().any(|note| note.contains("cannot be written")));
    let before = lost_audit_line_count().unwrap();
    daemon.run.signal(libc::SIGHUP);
    wait_until("one more line was lost", || lost_audit_line_count() > Some(before));
    disk.remove_filler();
    wait_until("the log went on", || status()["agent"]["audit_error"].is_null() && !audit_entries_at(&path).is_empty());
    let lost = lost_audit_line_count().unwrap();
    check_lost_lines_are_logged(lost, &path);
    wait_until("a note told what is lost", || notes_of_the_log().iter().any(|note| note.contains("are lost")));
    daemon.end().expect_stderr_contains(&["cannot be written (No space left", &format!("{lost} lines of the log")]);
    assert_eq!(audit_entries_at(&path).last().expect("it was written")["action"], "end");
}

#[test]
fn audit_log_continues_when_its_directory_is_back() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(disk) = Disk::mount() else { return };
    let (folder, old) = (disk.path("logs"), disk.path("audit.jsonl.1"));
    let path = folder.join("audit.jsonl");
    fs::create_dir(&folder).unwrap();
    let mut daemon = Daemon::launch_auditing(&File::with_absent_targets(), &path);
    daemon.wait_for_managed_counts(0, 0);
    let reload = || daemon.run.signal(libc::SIGHUP);
    wait_until("the log was begun", || !audit_entries_at(&path).is_empty());
    // The log is rotated by a rename.
    fs::rename(&path, &old).unwrap();
    reload();
    wait_until("it went on under its name", || audit_entries_at(&path).iter().any(|line| line["action"] == "reload"));
    assert!(audit_entries_at(&old).iter().all(|line| line["action"] != "reload"));
    // The log's directory is removed.
    fs::remove_dir_all(&folder).unwrap();
    reload();
    wait_until("the loss was counted", || lost_audit_line_count() > Some(0));
    fs::create_dir(&folder).unwrap();
    wait_until("it went on in a new file", || !audit_entries_at(&path).is_empty());
    check_lost_lines_are_logged(lost_audit_line_count().unwrap(), &path);
    daemon.end();
}

#[test]
fn an_audit_log_at_a_wrong_path_is_an_error_at_the_start() {
    let Some(_turn) = lock_lanes() else { return };
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::launch_auditing(&File::with_absent_targets(), &dir.path().join("none/audit.jsonl"));
    let ended = daemon.run.wait_for_end();
    assert_ne!(ended.code, Some(0));
    ended.expect_stderr_contains(&["cannot write the audit log", "No such file or directory"]);
}
