//! Tests of an agent beside another Sidelane. The agent is the only one of the machine, shares no CPU with a run, and
//! moves no thread that another Sidelane moves.

use crate::common::busy::{BIG, CLIENTS, LITTLE};
use crate::common::lanes::LANES;
use crate::common::{Busy, Footprint, Hurrying, Run, Service, lock_lanes, wait_until};
use crate::daemon::{Daemon, File, status};
use crate::groups::{Place, Tree};

#[test]
fn second_agent_is_refused_with_the_pid_of_the_first() {
    let Some(_turn) = lock_lanes() else { return };
    let file = File::with_absent_targets();
    let first = Daemon::start(&file, 0, 0);
    let second = Daemon::launch(&file, Run::with_arguments(&[])).run.wait_for_end();
    let pid = format!("process {}", first.run.pid());
    second.expect_exit_code(125).expect_stderr_contains(&["cannot start a second agent", &pid, "sidelane status"]);
    assert_eq!(status()["agent"]["pid"].as_u64(), Some(u64::from(first.run.pid())));
    first.end();
}

#[test]
fn a_run_is_refused_on_the_cpus_of_an_agent() {
    let Some(_turn) = lock_lanes() else { return };
    let service = Service::idle();
    let daemon = Daemon::start(&File::with_absent_targets(), 0, 0);
    let run = Run::with_arguments(&["run", "--lanes", LANES, "--service", &service.target()]).run_to_end(&["true"]);
    let agent = format!("cannot use CPU 1: the agent (process {})", daemon.run.pid());
    run.expect_exit_code(125).expect_stderr_contains(&[&agent]);
    daemon.end();
}

#[test]
fn agent_takes_lanes_of_a_run_only_after_its_end() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::NoLists) else { return };
    let service = Service::idle();
    let batch = tree.container("one");
    let mut run = Run::beside_service(service.target()).start_script(crate::common::UNTIL_END_OF_INPUT);
    run.first_line();
    let daemon = Daemon::start(&File::with_absent_targets().replace("/nobody", tree.path()), 0, 1);
    wait_until("batch was kept off the run's lane and the reserved CPU", || batch.is_frozen());
    let told = status();
    let lane = told["cpus"].as_array().unwrap().iter().find(|cpu| cpu["cpu"] == 1).unwrap();
    assert_eq!(lane["owner"], format!("sidelane run (process {})", run.pid()));
    run.wait_for_end().expect_exit_code(0);
    wait_until("batch had the lane", || batch.cpus() == "1" && !batch.is_frozen());
    daemon.end();
    assert_eq!(batch.cpus(), "0-1");
}

const PLACED: &str = "may_be_placed = true";

/// Starts a service that works all the time. Returns it with the file of an agent that places it on the reserved CPU.
fn start_service_to_place() -> Option<(Busy, File)> {
    let busy = Busy::start("thread-per-connection", None)?;
    let table = format!("port = {}\n{PLACED}", busy.address.port());
    Some((busy, File::with_holmes_policy().with_service(&table).with_batch("/nobody")))
}

/// Returns whether each thread of the service has only the reserved CPU.
fn is_placed(busy: &Busy) -> bool {
    busy.cpus_by_thread().values().all(|cpus| cpus == BIG)
}

#[test]
fn hurry_is_refused_while_the_agent_places_the_service() {
    let Some(_turn) = lock_lanes() else { return };
    let Some((busy, file)) = start_service_to_place() else { return };
    let (cpus, before) = (busy.cpus_by_thread(), Footprint::capture());
    let daemon = Daemon::start(&file, 1, 0);
    wait_until("the service was placed", || is_placed(&busy));
    let arguments = ["hurry", "--service", &busy.target(), "--big", BIG, "--little", LITTLE];
    let refused = Run::with_arguments(&arguments).start_without_batch().wait_for_end().expect_exit_code(125);
    refused.expect_stderr_contains(&[&format!(
        "cannot move threads of process {}: the agent (process {}) places them; remove may_be_placed of this service \
         from the agent's file and send the agent SIGHUP, or stop the agent",
        busy.pid(),
        daemon.run.pid()
    )]);
    daemon.reload(&file.replace(PLACED, ""));
    wait_until("the service had its CPUs back", || busy.cpus_by_thread() == cpus);
    wait_until("the agent let go of its threads", || before.added_since().iter().all(|what| !what.contains("threads")));
    Hurrying::start(&busy, &[]).stop();
    daemon.end();
    assert_eq!(busy.cpus_by_thread(), cpus);
    before.wait_until_restored();
}

#[test]
fn service_moved_by_hurry_is_placed_after_its_end() {
    let Some(_turn) = lock_lanes() else { return };
    let Some((busy, file)) = start_service_to_place() else { return };
    let (cpus, before) = (busy.cpus_by_thread(), Footprint::capture());
    let other = Hurrying::start(&busy, &["--mapping", "all-little"]);
    wait_until("each worker is bound", || busy.bound_thread_count() >= CLIENTS);
    let mut daemon = Daemon::start(&file, 1, 0);
    let note = format!(
        "service the service is not placed: cannot move threads of process {}: another sidelane (process {}) \
         moves them already; end that sidelane, or wait for its end; the agent places the service by itself when that \
         process has ended",
        busy.pid(),
        other.child.id()
    );
    let told_of = || status()["notes"].as_array().is_some_and(|all| all.iter().any(|told| told["note"] == note));
    daemon.run.wait_until("it was told of", |_| told_of());
    let is_elsewhere = |cpus: &String| cpus != BIG;
    assert!(
        status()["services"][0]["placed"].is_null() && busy.cpus_by_thread().values().all(is_elsewhere),
        "{:?}",
        busy.cpus_by_thread()
    );
    other.stop();
    wait_until("the service was placed", || is_placed(&busy));
    daemon.run.wait_until("that was told", |_| !told_of() && status()["services"][0]["placed"] == BIG);
    daemon.run.kill();
    wait_until("each thread had the CPUs back that it had", || busy.cpus_by_thread() == cpus);
    before.wait_until_restored();
}
