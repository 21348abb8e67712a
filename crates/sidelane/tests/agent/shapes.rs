//! Tests of the shape of batch's cgroup trees: whatever their owner creates, moves or renames in them, the agent still
//! treats their processes as batch.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::common::process::DEADLINE;
use crate::common::{Run, SPIN, lock_lanes, process, wait_until};
use crate::daemon::{Daemon, File, status};
use crate::groups::{Place, Tree};
use crate::service::Program;

/// Thread that reads repeatedly which CPUs a process may use.
struct CpuListWatch {
    ends: Arc<AtomicBool>,
    reader: JoinHandle<Vec<String>>,
}

impl CpuListWatch {
    fn start(pid: u32) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let reader = std::thread::spawn(move || {
            let mut seen: Vec<String> = Vec::new();
            while !told.load(Ordering::Acquire) {
                let cpus = process::allowed_cpus(pid).unwrap_or_default();
                if seen.last() != Some(&cpus) {
                    seen.push(cpus);
                }
            }
            seen
        });
        Self { ends, reader }
    }

    fn stop_and_take_lists(self) -> Vec<String> {
        self.ends.store(true, Ordering::Release);
        self.reader.join().expect("the reader does not panic")
    }
}

fn names(status: &Value) -> Vec<String> {
    let containers = status["containers"].as_array().cloned().unwrap_or_default();
    let mut names: Vec<String> =
        containers.iter().filter_map(|container| container["name"].as_str().map(str::to_owned)).collect();
    names.sort_unstable();
    names
}

fn notes(status: &Value) -> Vec<String> {
    let notes = status["notes"].as_array().cloned().unwrap_or_default();
    notes.iter().filter_map(|note| note["note"].as_str().map(str::to_owned)).collect()
}

fn is_batch_running() -> bool {
    let status = status();
    let cpus = status["cpus"].as_array().cloned().unwrap_or_default();
    cpus.iter().any(|cpu| cpu["batch_percent"].as_f64() > Some(1.0))
}

#[track_caller]
fn check_group_below_a_container_is_confined(place: Place) {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(place) else { return };
    let program = Program::new();
    let service = program.start("0");
    let mut one = tree.container("one");
    let mut daemon = Daemon::start(
        &File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path()),
        1,
        1,
    );
    wait_until("batch had left the reserved CPU", || one.cpus() == "1");
    let watch = CpuListWatch::start(one.pid());
    one.create_cgroup_below("x", None);
    // A scan that has found the second container has also found all cgroups created before it.
    let second = tree.container("second");
    daemon.wait_for_managed_counts(1, 2);
    let child = one.start_process(SPIN);
    one.move_process_below(child, "x");
    one.move_process_below(one.pid(), "x");
    one.create_cgroup_below("x/y", None);
    let third = tree.container("third");
    daemon.wait_for_managed_counts(1, 3);
    one.move_process_below(child, "x/y");
    let expected = ["one", "second", "third"].map(|name| format!("{}/{name}", tree.path()));
    wait_until("all processes were where they should be", || {
        [one.pid(), child].iter().all(|pid| process::allowed_cpus(*pid).as_deref() == Some("1"))
    });
    assert_eq!(names(&status()), expected);
    drop((second, third));
    daemon.wait_for_managed_counts(1, 1);
    wait_until("what is below it is counted as batch", is_batch_running);
    assert_eq!(watch.stop_and_take_lists(), ["1"]);
    daemon.end();
    let given_back = [one.pid(), child].map(|pid| process::allowed_cpus(pid).unwrap_or_default());
    assert_eq!(
        (given_back, tree.cpu_list(), one.cpu_list()),
        (["0-1", "0-1"].map(str::to_owned), tree.cpu_list(), one.cpu_list())
    );
    if place == Place::Lists {
        assert_eq!([tree.cpu_list(), one.cpu_list(), one.cpu_list_below("x"), one.cpu_list_below("x/y")], ["0-1"; 4]);
    }
    service.must_be_untouched();
}

#[test]
fn new_subgroup_is_part_of_its_container_with_cpusets() {
    check_group_below_a_container_is_confined(Place::Lists);
}

#[test]
fn new_subgroup_is_part_of_its_container_without_cpusets() {
    check_group_below_a_container_is_confined(Place::NoLists);
}

/// Each hierarchy of cgroup version 1 has its own tree.
#[test]
fn subgroup_in_one_v1_hierarchy_is_no_new_container() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let program = Program::new();
    let service = program.start("0");
    let one = tree.container("one");
    let mut daemon = Daemon::start(
        &File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path()),
        1,
        1,
    );
    wait_until("batch had left the reserved CPU", || one.cpus() == "1");
    let watch = CpuListWatch::start(one.pid());
    for number in 0..one.hierarchy_count() {
        one.create_cgroup_below(&format!("x{number}"), Some(number));
        one.move_process_below(one.pid(), &format!("x{number}"));
    }
    let second = tree.container("second");
    daemon.wait_for_managed_counts(1, 2);
    drop(second);
    daemon.wait_for_managed_counts(1, 1);
    assert_eq!(
        (watch.stop_and_take_lists().as_slice(), names(&status())),
        (&["1".to_owned()][..], vec![format!("{}/one", tree.path())])
    );
    daemon.end();
    assert_eq!([one.cpus(), one.cpu_list(), tree.cpu_list()], ["0-1"; 3]);
    service.must_be_untouched();
}

#[track_caller]
fn check_tree_with_processes_is_one_container(place: Place) {
    let Some(_turn) = lock_lanes() else { return };
    let Some(mut tree) = Tree::make(place) else { return };
    let program = Program::new();
    let service = program.start("0");
    let (one, second) = (tree.container("one"), tree.container("second"));
    let file = File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path());
    let mut daemon = Daemon::start(&file, 1, 2);
    wait_until("batch had left the reserved CPU", || one.cpus() == "1" && second.cpus() == "1");
    let watch = CpuListWatch::start(one.pid());
    let own = tree.start_in_tree(SPIN);
    let path = tree.path().to_owned();
    daemon.run.wait_until("the tree was one container", |_| names(&status()) == [path.clone()]);
    daemon.run.wait_until("its own process was confined", |_| process::allowed_cpus(own).as_deref() == Some("1"));
    let is_mixed = |note: &String| note.contains("processes of its own, so it is one container");
    daemon.run.wait_until("that was noted", |_| notes(&status()).iter().any(is_mixed));
    assert_eq!((watch.stop_and_take_lists().as_slice(), second.cpus().as_str()), (&["1".to_owned()][..], "1"));
    tree.end_processes_started_in_tree();
    daemon.run.wait_until("the note was over", |_| !notes(&status()).iter().any(is_mixed));
    let ended = daemon.end();
    let noted = ended.stderr.lines().filter(|line| is_mixed(&(*line).to_owned())).count();
    assert_eq!(noted, 1, "{ended}");
    assert_eq!([one.cpus(), second.cpus()], ["0-1", "0-1"]);
    service.must_be_untouched();
}

#[test]
fn tree_with_own_processes_is_one_container_with_cpusets() {
    check_tree_with_processes_is_one_container(Place::Lists);
}

#[test]
fn tree_with_processes_is_one_container_without_cpusets() {
    check_tree_with_processes_is_one_container(Place::NoLists);
}

/// The kernel lists no processes of threaded cgroups.
#[test]
fn a_container_in_a_threaded_group_is_confined() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::NoLists) else { return };
    if !tree.make_threaded("") {
        return;
    }
    tree.create_cgroup_below("one");
    if !tree.make_threaded("one") {
        return;
    }
    let (program, mut shell) = (Program::new(), Command::new("sh"));
    let service = program.start("0");
    let mut batch = process::kill_with_test(&mut shell).args(["-c", SPIN]).spawn().unwrap();
    tree.move_process_below(batch.id(), "one");
    let file = File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path());
    let daemon = Daemon::start(&file, 1, 1);
    wait_until("batch had left the reserved CPU", || process::allowed_cpus(batch.id()).as_deref() == Some("1"));
    daemon.end();
    assert_eq!(process::allowed_cpus(batch.id()).as_deref(), Some("0-1"));
    batch.kill().unwrap();
    batch.wait().unwrap();
    service.must_be_untouched();
}

/// The agent does not change the thread's scheduling class, so it has no class to restore.
#[test]
fn a_container_with_a_thread_in_sched_deadline_is_confined() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let program = Program::new();
    let service = program.start("0");
    let one = tree.start_container_with_script("one", &format!("exec {DEADLINE} sh -c '{SPIN}'"));
    let is_there = || process::scheduling_class(one.pid()).as_deref() == Some("6");
    wait_until("the container was in its class, or refused", || is_there() || !process::is_alive(one.pid()));
    if !is_there() {
        return sidelane_testing::skip("needs chrt, and a group that allows SCHED_DEADLINE");
    }
    let daemon = Daemon::start(
        &File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path()),
        1,
        1,
    );
    wait_until("batch had left the reserved CPU", || one.cpus() == "1");
    assert!(is_there(), "its class was changed");
    daemon.end();
    assert_eq!((one.cpus().as_str(), is_there()), ("0-1", true));
    service.must_be_untouched();
}

#[test]
fn groups_below_a_container_are_paused_with_it() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::NoLists) else { return };
    let dir = tempfile::tempdir().unwrap();
    let offline = dir.path().join("offline");
    std::fs::write(&offline, "").unwrap();
    let one = tree.container("one");
    let file = File::with_absent_targets().replace("/nobody", tree.path());
    let run = Run::with_arguments(&[]).with_variable("SIDELANE_OFFLINE", offline.to_str().unwrap());
    let mut daemon = Daemon::launch(&file, run);
    daemon.wait_for_managed_counts(0, 1);
    one.create_cgroup_below("x", None);
    one.move_process_below(one.pid(), "x");
    std::fs::write(&offline, "1").unwrap();
    wait_until("what is below it stood still", || one.read_file_below("x", "cgroup.events").contains("frozen 1"));
    std::fs::write(&offline, "").unwrap();
    wait_until("it went on", || one.read_file_below("x", "cgroup.events").contains("frozen 0"));
    assert_eq!(names(&status()), [format!("{}/one", tree.path())]);
    daemon.end();
}

#[test]
fn batch_with_the_name_of_a_service_stays_batch() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let program = Program::new();
    let service = program.start("0");
    let mut one = tree.container("one");
    let file = File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path());
    let mut daemon = Daemon::start(&file.replace("[metric]", "[intervals]\nprocesses = \"50ms\"\n[metric]"), 1, 1);
    wait_until("batch had left the reserved CPU", || one.cpus() == "1");
    let watch = CpuListWatch::start(one.pid());
    let impostor = one.start_process(&format!("exec {} 1000", program.path()));
    let stays = |note: &String| note.contains(&format!("process {impostor} matches")) && note.contains("stays batch");
    daemon.run.wait_until("that was noted", |_| notes(&status()).iter().any(stays));
    let told = status();
    assert_eq!((names(&told).len(), told["services"].as_array().map(Vec::len)), (1, Some(1)), "{told}");
    assert_eq!(
        (watch.stop_and_take_lists().as_slice(), process::allowed_cpus(impostor).as_deref()),
        (&["1".to_owned()][..], Some("1"))
    );
    one.end_processes_except_first();
    daemon.run.wait_until("the note was over", |_| !notes(&status()).iter().any(stays));
    let ended = daemon.end();
    assert_eq!(ended.stderr.matches("stays batch").count(), 1, "{ended}");
    service.must_be_untouched();
}

/// A program that starts jobs may be configured as a service. Its jobs are its children, but belong to batch if they
/// are in a cgroup of batch.
#[test]
fn a_process_of_a_service_in_a_group_of_batch_is_batch() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let program = Program::new();
    let (service, launched) = (program.start("0"), program.start("0-1"));
    let one = tree.container("one");
    let mut daemon = Daemon::start(
        &File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path()),
        1,
        1,
    );
    tree.create_cgroup_below("two");
    tree.move_process_below(launched.pid(), "two");
    daemon.wait_for_managed_counts(1, 2);
    wait_until("it was confined", || launched.cpus() == "1" && one.cpus() == "1");
    drop(launched);
    daemon.end();
    service.must_be_untouched();
}

#[test]
fn notes_about_containers_end_with_them() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::NoLists) else { return };
    let mut daemon = Daemon::start(&File::with_absent_targets().replace("/nobody", tree.path()), 0, 0);
    let is_brief = |note: &String| note.contains("/brief-");
    for number in 0..10 {
        let brief = tree.container(&format!("brief-{number}"));
        daemon.run.wait_until("it was noted that it has no list", |_| notes(&status()).iter().any(is_brief));
        drop(brief);
        daemon.run.wait_until("the note was over", |_| !notes(&status()).iter().any(is_brief));
    }
    daemon.end();
}

#[test]
fn services_beyond_the_limit_are_named_and_wait_in_order() {
    let Some(_turn) = lock_lanes() else { return };
    let programs: Vec<Program> = (0..66).map(|_| Program::new()).collect();
    let mut services: Vec<_> = programs.iter().map(|program| Some(program.start("0"))).collect();
    let table = |(number, program): (usize, &Program)| {
        format!("[[service]]\nname = \"s{number}\"\n{}", program.service_match_line())
    };
    let tables: Vec<String> = programs.iter().enumerate().map(table).collect();
    let file = File::with_holmes_policy().with_batch("/nobody").with_lines(&tables.join("\n"));
    let mut daemon = Daemon::start(&file, 63, 0);
    let says = |what: &str| notes(&status()).iter().any(|note| note.contains(what));
    daemon.run.wait_until("that was noted", |_| says("3 service(s) are not managed") && says("s63, s64, s65"));
    services[5] = None;
    daemon
        .run
        .wait_until("the next one took the place", |_| says("2 service(s) are not managed") && says(": s64, s65;"));
    daemon.wait_for_managed_counts(63, 0);
    daemon.end();
}
