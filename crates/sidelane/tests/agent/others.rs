//! Beside another Sidelane: an agent is alone, and shares no CPU with a run.

use crate::common::lanes::LANES;
use crate::common::{Run, Service, lanes_to_ourselves, wait_until};
use crate::daemon::{Daemon, File, status};
use crate::groups::{Place, Tree};

#[test]
fn a_second_agent_is_refused_and_told_of_the_first() {
    let Some(_turn) = lanes_to_ourselves() else { return };
    let file = File::of_nobody();
    let first = Daemon::start(&file, 0, 0);
    let second = Daemon::launch(&file, Run::with_arguments(&[])).run.wait_for_end();
    let pid = format!("process {}", first.run.pid());
    second.must_exit(1).must_say(&["an agent runs on this machine already", &pid, "sidelane status"]);
    assert_eq!(status()["agent"]["pid"].as_u64(), Some(u64::from(first.run.pid())));
    first.end();
}

#[test]
fn a_run_is_refused_on_the_cpus_of_an_agent() {
    let Some(_turn) = lanes_to_ourselves() else { return };
    let service = Service::idle();
    let daemon = Daemon::start(&File::of_nobody(), 0, 0);
    let run = Run::with_arguments(&["run", "--lanes", LANES, "--service", &service.target()]).complete(&["true"]);
    let agent = format!("CPU 1 belongs to the agent (process {})", daemon.run.pid());
    run.must_exit(125).must_say(&[&agent]);
    daemon.end();
}

#[test]
fn an_agent_leaves_the_lanes_of_a_run_alone_and_takes_them_when_it_has_ended() {
    let Some(_turn) = lanes_to_ourselves() else { return };
    let Some(tree) = Tree::make(Place::NoLists) else { return };
    let service = Service::idle();
    let batch = tree.container("one");
    let mut run = Run::beside(service.target()).start_script(crate::common::UNTIL_END_OF_INPUT);
    run.first_line();
    let daemon = Daemon::start(&File::of_nobody().replace("/nobody", tree.path()), 0, 1);
    wait_until("batch was kept off the run's lane and the reserved CPU", || batch.is_frozen());
    let told = status();
    let lane = told["cpus"].as_array().unwrap().iter().find(|cpu| cpu["cpu"] == 1).unwrap();
    assert_eq!(lane["owner"], format!("sidelane run (process {})", run.pid()));
    run.wait_for_end().must_exit(0);
    wait_until("batch had the lane", || batch.cpus() == "1" && !batch.is_frozen());
    daemon.end();
    assert_eq!(batch.cpus(), "0-1");
}
