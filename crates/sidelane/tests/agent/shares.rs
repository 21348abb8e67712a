//! Tests of sharing: containers get the CPUs that the policy gives them, through any mechanism, and get their original
//! CPUs back.

use crate::common::{Footprint, Run, lock_lanes, wait_until};
use crate::daemon::{Daemon, File, status};
use crate::groups::{Place, Tree};
use crate::service::Program;

#[track_caller]
fn batch_leaves_reserved_cpus(place: Place) {
    let Some(_turn) = lock_lanes() else { return };
    let before = Footprint::capture();
    let Some(tree) = Tree::make(place) else { return };
    let program = Program::new();
    let service = program.start("0");
    let (one, other) = (tree.container("one"), tree.container("other"));
    let lists = [tree.cpu_list(), one.cpu_list(), other.cpu_list()];
    assert_eq!([one.cpus(), other.cpus()], ["0-1", "0-1"]);
    let daemon = Daemon::start(
        &File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path()),
        1,
        2,
    );
    wait_until("batch had left the reserved CPU", || one.cpus() == "1" && other.cpus() == "1");
    let told = status();
    assert_eq!(told["cpus"][0]["reserved"], true, "{told}");
    assert_eq!(told["containers"][0]["cpus"], "1", "{told}");
    service.must_be_untouched();
    let ended = daemon.end();
    let confined = ended.audit().into_iter().filter(|line| line["action"] == "confine").count();
    assert!(confined >= 2, "{ended}");
    assert_eq!([one.cpus(), other.cpus()], ["0-1", "0-1"]);
    assert_eq!([tree.cpu_list(), one.cpu_list(), other.cpu_list()], lists);
    service.must_be_untouched();
    drop((one, other, tree));
    before.wait_until_restored();
}

#[test]
fn batch_leaves_reserved_cpus_by_the_lists_of_its_groups() {
    batch_leaves_reserved_cpus(Place::Lists);
}

#[test]
fn batch_leaves_reserved_cpus_by_thread_without_cpusets() {
    batch_leaves_reserved_cpus(Place::NoLists);
}

#[test]
fn later_container_starts_confined_and_gets_its_parents_cpus() {
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
    wait_until("the tree had left the reserved CPU", || tree.cpu_list() == "1");
    let later = tree.container("later");
    assert_eq!(later.cpus(), "1");
    daemon.wait_for_managed_counts(1, 2);
    daemon.end();
    assert_eq!([one.cpus(), later.cpus(), later.cpu_list(), tree.cpu_list()], ["0-1", "0-1", "0-1", "0-1"]);
    service.must_be_untouched();
}

#[test]
fn a_service_is_placed_only_where_its_file_says_so() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::NoLists) else { return };
    let (free, placed) = (Program::new(), Program::new());
    let (left_alone, moved) = (free.start("0-1"), placed.start("0-1"));
    let _batch = tree.container("one");
    let table = |name, rule, more| format!("[[service]]\nname = \"{name}\"\n{rule}\n{more}");
    let file = File::with_holmes_policy().with_batch(tree.path()).with_lines(&table(
        "left alone",
        free.service_match_line(),
        "",
    ));
    let file = file.with_lines(&table("placed", placed.service_match_line(), "may_be_placed = true"));
    let daemon = Daemon::start(&file, 2, 1);
    wait_until("the service was placed", || moved.cpus() == "0");
    left_alone.must_be_untouched();
    daemon.end();
    left_alone.must_be_untouched();
    moved.must_be_untouched();
}

#[test]
fn later_process_of_a_placed_service_is_placed_and_restored() {
    let Some(_turn) = lock_lanes() else { return };
    let program = Program::new();
    let first = program.start("0-1");
    let table = format!("{}\nmay_be_placed = true", program.service_match_line());
    let file = File::with_holmes_policy().with_service(&table).with_batch("/nobody");
    let daemon = Daemon::start(&file.replace("[metric]", "[intervals]\nprocesses = \"100ms\"\n[metric]"), 1, 0);
    wait_until("the service was placed", || first.cpus() == "0");
    let second = program.start("0-1");
    wait_until("who came later was placed", || second.cpus() == "0");
    drop(first);
    daemon.end();
    second.must_be_untouched();
}

#[test]
fn a_dry_run_says_what_would_be_done_and_does_nothing() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let before = Footprint::capture();
    let program = Program::new();
    let service = program.start("0");
    let batch = tree.container("one");
    let file = File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path());
    let mut daemon = Daemon::launch(&file, Run::with_arguments(&["agent", "--dry-run"]));
    daemon.run.wait_until("it was said what would be done", |run| run.output().contains("would run"));
    let claims: Vec<String> = before.added_since().into_iter().filter(|what| what.starts_with("claim")).collect();
    assert_eq!((batch.cpus().as_str(), claims), ("0-1", vec![]));
    let ended = daemon.end();
    assert!(ended.stdout.contains("/one on CPUs 1:"), "{ended}");
    assert_eq!(batch.cpus(), "0-1");
    service.must_be_untouched();
}

#[test]
fn without_an_agent_the_status_says_how_to_start_one() {
    let Some(_turn) = lock_lanes() else { return };
    let asked = Run::with_arguments(&["status"]).start_without_batch().wait_for_end();
    asked.expect_exit_code(125).expect_stderr_contains(&["no agent runs", "sidelane agent --config FILE"]);
}
