//! Tests of the agent with `[lanes]`. Its policy decides which CPUs batch has, and holders keep batch off the service's
//! SMT sibling while the service works.

use std::net::TcpListener;
use std::process::Command;

use serde_json::Value;
use sidelane_host::cgroup::Hierarchy;
use sidelane_host::clock::now_ns;
use sidelane_host::procfs::{state, threads};

use crate::common::lanes::REQUEST_LANE;
use crate::common::process::{
    DEADLINE, allowed_cpus, class_priority_and_nice, cpu_ticks, is_alive, kill_with_test, scheduling_class, signal,
};
use crate::common::redis::busy_redis;
use crate::common::{Run, Running, SPIN, Words, lock_lanes, wait_until};
use crate::daemon::{Daemon, File, status};
use crate::groups::{Place, Tree};
use crate::metrics::http_get;
use crate::scene::{Scene, Setting};
use crate::service::Program;

#[test]
fn batch_leaves_its_lane_at_each_turn_of_the_service() {
    let Some(mut scene) = Scene::start() else { return };
    for _ in 0..5 {
        let summons = scene.words.summons();
        scene.service.work();
        wait_until("batch had left", || scene.words.is_kept_free() && scene.words.has_batch_left());
        assert!(scene.words.summons() > summons);
        scene.words.check_no_batch_while_held();
        scene.service.rest();
        wait_until("batch was back", || !scene.words.busy() && scene.words.is_batch_on_lane());
    }
    let cpus = status()["cpus"].clone();
    assert_eq!(cpus[1]["owner"], "the lane gate", "{cpus}");
    scene.end_and_check();
}

/// In cgroup version 1 each thread has a cgroup. One thread leaves the container's cgroups, and the other threads of
/// its process stay in them.
#[test]
fn container_with_a_thread_outside_is_still_held() {
    const TWO_THREADS: &str = "exec python3 -c 'import threading, time\nthreading.Thread(target=time.sleep, \
                               args=(1000,)).start()\nwhile True: pass'";
    let Some(mut scene) = Scene::start_with_setting(Setting { script: TWO_THREADS, ..Setting::default() }) else {
        return;
    };
    let pid = scene.batch.pid();
    wait_until("it had two threads", || threads(pid).len() == 2);
    let second = threads(pid).into_iter().find(|tid| *tid != pid).expect("one of two");
    let v1 =
        Hierarchy::all().into_iter().filter(|found| found.has_controller("cpuset") || found.has_controller("freezer"));
    let moved = v1.filter_map(|found| std::fs::write(found.own_dir()?.join("tasks"), second.to_string()).ok()).count();
    if moved == 0 {
        return sidelane_testing::skip("needs a cpuset or a freezer of cgroup v1");
    }
    for _ in 0..3 {
        scene.service.work();
        scene.wait_until_batch_leaves_lane();
        scene.service.rest();
        scene.wait_until_batch_returns();
    }
    scene.end_and_check();
}

/// The test changes the container's scheduling class, as the daemon rtkit does on request. The agent demotes a thread
/// only if its class outranks a holder's.
#[test]
fn container_outranking_the_holder_is_demoted_and_restored() {
    let Some(scene) = Scene::start() else { return };
    let batch = scene.batch.pid();
    let give = |priority: &str| Command::new("chrt").args(["-f", "-p", priority, &batch.to_string()]).output();
    let given = give("9").is_ok_and(|given| given.status.success());
    if !given {
        return sidelane_testing::skip("needs chrt, and a group that allows real-time threads");
    }
    assert_eq!(class_priority_and_nice(batch)[..2], [Some("1".to_owned()), Some("9".to_owned())]);
    give("10").unwrap();
    wait_until("batch was put down", || scheduling_class(batch).as_deref() == Some("0"));
    wait_until("it was noted", || status()["notes"].to_string().contains("another scheduling class"));
    scene.end_and_check_with(|| {
        let class = [Some("1".to_owned()), Some("10".to_owned())];
        assert_eq!(class_priority_and_nice(batch)[..2], class, "batch was not given its class back");
    });
}

/// Batch reverts each demotion at once, so only a refusal of lanes keeps it off.
#[test]
fn lanes_are_not_lent_to_batch_that_raises_itself_again() {
    let Some(mut scene) = Scene::start() else { return };
    let batch = scene.batch.pid();
    let raise = || Command::new("chrt").args(["-f", "-p", "20", &batch.to_string()]).output();
    if !raise().is_ok_and(|given| given.status.success()) {
        return sidelane_testing::skip("needs chrt, and a group that allows real-time threads");
    }
    wait_until("lanes were withheld", || {
        let _ = raise();
        status()["notes"].to_string().contains("no lane was lent for a time")
    });
    scene.daemon.run.wait_until_audited("lend", 0);
    wait_until("batch was put down", || scheduling_class(batch).as_deref() == Some("0"));
    scene.end_and_check_with(|| {
        let class = [Some("1".to_owned()), Some("20".to_owned())];
        assert_eq!(class_priority_and_nice(batch)[..2], class, "batch was not given its class back");
    });
}

/// The kernel refuses SCHED_DEADLINE to threads of a container that has a list of CPUs. So the thread of this test gets
/// the class before it joins the container.
#[test]
fn no_lane_is_lent_while_a_thread_of_batch_is_in_sched_deadline() {
    // The thread is started before the `Scene`, which confines the test and its later children to one CPU.
    let mut command = Command::new("sh");
    let command = kill_with_test(command.args(["-c", &format!("exec {DEADLINE} sleep 1000")]));
    let mut child = command.spawn().expect("a shell starts");
    let pid = child.id();
    wait_until("it was in its class, or refused", || scheduling_class(pid).as_deref() == Some("6") || !is_alive(pid));
    let Some(mut scene) = Scene::start() else {
        let _ = child.kill().and_then(|()| child.wait());
        return;
    };
    let joins_ns = now_ns();
    if !is_alive(pid) || !scene.batch.move_process_in(pid) {
        let _ = child.kill().and_then(|()| child.wait());
        return sidelane_testing::skip("needs chrt, and groups that take a thread in SCHED_DEADLINE");
    }
    scene.daemon.run.wait_until_audited("withhold", 0);
    wait_until("batch that has no other lane was paused", || scene.batch.is_frozen());
    let uptime = || status()["agent"]["uptime_s"].as_f64();
    let then = uptime().expect("the agent runs");
    wait_until("the agent had looked again and again", || {
        assert!(scene.batch.is_frozen(), "a lane was lent beside it");
        uptime() > Some(then + 2.0)
    });
    assert!(status()["notes"].to_string().contains("in SCHED_DEADLINE"), "{}", status()["notes"]);
    assert_eq!(scheduling_class(pid).as_deref(), Some("6"), "its class was changed");
    scene.batch.move_process_out(pid);
    child.kill().unwrap();
    child.wait().unwrap();
    scene.daemon.run.wait_until_audited("lend", 0);
    scene.wait_until_batch_returns();
    let actions: Vec<Value> = scene.daemon.run.audit().into_iter().map(|entry| entry["action"].clone()).collect();
    let count = |action: &str| actions.iter().filter(|found| *found == action).count();
    assert_eq!([count("withhold"), count("lend")], [1, 1], "{actions:?}");
    let audit = scene.daemon.run.audit();
    let withheld = audit.iter().find(|entry| entry["action"] == "withhold").expect("it was audited");
    // The agent withholds lanes within half a second after the thread joins. One more second is allowed for noise.
    let took_ns = withheld["at_ns"].as_u64().unwrap().saturating_sub(joins_ns);
    assert!(took_ns < 1_500_000_000, "lanes were withheld after {took_ns} ns");
    scene.end_and_check();
}

#[test]
fn held_lane_stays_held_during_a_reload() {
    let Some(mut scene) = Scene::start() else { return };
    scene.service.work();
    wait_until("batch had left", || scene.words.is_kept_free() && scene.words.has_batch_left());
    let file = scene.file.replace("name = \"the service\"", "name = \"the service\"\nslo = \"p99=5ms\"");
    scene.daemon.reload(&file);
    scene.daemon.run.wait_until_audited("reload", 0);
    scene.words.check_no_batch_while_held();
    assert!(scene.words.is_kept_free());
    scene.service.rest();
    scene.wait_until_batch_returns();
    scene.end_and_check();
}

#[test]
fn batch_on_one_long_held_lane_is_paused_until_service_rests() {
    let Some(mut scene) = Scene::start() else { return };
    scene.service.work();
    wait_until("batch was paused", || scene.batch.is_frozen());
    scene.service.rest();
    wait_until("batch went on", || !scene.batch.is_frozen() && scene.words.is_batch_on_lane());
    scene.end_and_check();
}

#[test]
fn an_agent_that_is_killed_while_it_holds_leaves_nothing_behind() {
    let Some(mut scene) = Scene::start() else { return };
    scene.service.work();
    wait_until("batch had left", || scene.words.is_kept_free() && scene.words.has_batch_left());
    scene.daemon.run.kill();
    wait_until("batch had its CPUs back", || scene.batch.cpus() == "0-1" && !scene.batch.is_frozen());
    assert_eq!(allowed_cpus(scene.service.pid()).as_deref(), Some(REQUEST_LANE), "the service was moved");
    drop((scene.batch, scene.tree));
    scene.before.wait_until_restored();
}

/// Neither holder nor guardian runs, so batch runs beside the service.
#[test]
fn excess_overlap_is_in_status_metrics_and_audit_log() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let lines = format!("[metrics]\nlisten = \"127.0.0.1:{port}\"");
    let Some(mut scene) = Scene::start_with_setting(Setting { lines: &lines, ..Setting::default() }) else { return };
    let (agent, guardian) = (scene.daemon.run.pid(), scene.daemon.run.wait_for_guardian_other_than(None));
    let overlap = || status()["services"][0]["overlap"].clone();
    let is_kept = |overlap: &Value| overlap["bound_percent"] == 1.0 && overlap["broken"].is_null();
    wait_until("the promise was kept", || is_kept(&overlap()));
    for pid in [guardian, agent] {
        signal(pid, libc::SIGSTOP);
    }
    wait_until("the agent was stopped", || state(&format!("/proc/{agent}/stat")) == Some('T'));
    scene.service.work();
    let before = cpu_ticks(scene.batch.pid());
    wait_until("batch ran beside the service for 50 ms", || cpu_ticks(scene.batch.pid()) >= before + 5);
    for pid in [agent, guardian] {
        signal(pid, libc::SIGCONT);
    }
    scene.service.rest();
    wait_until("the promise was broken", || overlap()["broken"].is_string());
    let broken = overlap()["broken"].as_str().unwrap().to_owned();
    assert!(broken.starts_with("promise broken: batch ran beside the service for "), "{broken}");
    let shown = Run::with_arguments(&["status"]).start_without_batch().wait_for_end().expect_exit_code(0).stdout;
    assert!(shown.starts_with("promise broken: "), "{shown}");
    let metrics = http_get(port, "/metrics");
    assert!(metrics.contains("sidelane_service_promise_broken{service=\"the service\"} 1"), "{metrics}");
    assert!(metrics.contains("sidelane_service_overlap_ratio{service=\"the service\"} 0."), "{metrics}");
    let audited = scene.daemon.run.audit().into_iter().find(|entry| entry["action"] == "promise");
    let audited = audited.expect("it is in the audit log");
    assert!(audited["why"].as_str().unwrap().starts_with("promise broken: "), "{audited}");
    scene.end_and_check();
}

#[test]
fn lane_is_lent_after_placement_moves_a_service_off_it() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let program = Program::new();
    let service = program.start("0-1");
    let batch = tree.container("one");
    let rule = format!("{}\nmay_be_placed = true", program.service_match_line());
    let file = File::with_holmes_policy()
        .with_service(&rule)
        .with_batch(tree.path())
        .with_lines("[lanes]\ngate = \"holder\"\npolicy = \"borrow-idle\"");
    let daemon = Daemon::start(&file, 1, 1);
    wait_until("the service was placed", || service.cpus() == REQUEST_LANE);
    wait_until("the sibling was kept", || status()["cpus"][1]["owner"] == "the lane gate");
    let notes = status()["notes"].to_string();
    assert!(!notes.contains("no lane is kept"), "{notes}");
    daemon.end();
    service.must_be_untouched();
    assert_eq!(batch.cpus(), "0-1");
}

/// The first process of the service's cgroup has ended; a later member of the cgroup works on the batch lane.
#[test]
fn batch_avoids_a_lane_with_a_later_member_of_the_service() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::NoLists) else { return };
    let mut service = tree.start_container_with_script("service", "exec taskset -c 0 sleep 1000");
    wait_until("the service was on its lane", || service.cpus() == REQUEST_LANE);
    let batch = tree.container("batch");
    let file = File::with_holmes_policy()
        .with_service(&format!("cgroup = \"{}/service\"", tree.path()))
        .with_batch(&format!("{}/batch", tree.path()))
        .with_lines("[lanes]\ngate = \"holder\"\npolicy = \"borrow-idle\"");
    let mut daemon = Daemon::start(&file, 1, 1);
    let words = Words::wait_and_map(&mut daemon.run);
    wait_until("batch was on its lane", || words.is_batch_on_lane());
    service.start_process(&format!("exec taskset -c 1 sh -c '{SPIN}'"));
    service.end_first_process();
    wait_until("batch that has no other lane was paused", || batch.is_frozen());
    let now = || status()["agent"]["uptime_s"].as_f64();
    let then = now().expect("the agent runs");
    // The agent makes its slow checks several times a second, so it has made several within 2 s.
    wait_until("the agent had looked again and again", || batch.is_frozen() && now() > Some(then + 2.0));
    daemon.end();
    assert!(!batch.is_frozen());
}

/// The agent measures the slowdown of requests against moments without batch, unless `max_slowdown` is "none".
#[test]
fn batch_is_kept_off_briefly_to_measure_its_cost() {
    let Some((_turn, server, _client)) = busy_redis() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let batch = tree.container("one");
    let with_lanes = |file: File, lanes: &str| {
        let file = file.with_service(&format!("port = {}", server.address().port())).with_batch(tree.path());
        Daemon::start(&file.with_lines(&format!("[lanes]\n{lanes}")), 1, 1)
    };
    let kept_off = |entry: &Value| entry["action"] == "evict" && entry["why"].as_str().unwrap().contains("kept off");
    let mut daemon = with_lanes(File::without_cpu_policy(), "gate = \"holder\"");
    let count = |run: &Running, is_it: &dyn Fn(&Value) -> bool| run.audit().iter().filter(|entry| is_it(entry)).count();
    daemon.run.wait_until("batch was kept off three times", |run| count(run, &kept_off) >= 3);
    daemon.run.wait_until("and had come back each time but the last", |run| {
        count(run, &|entry| entry["action"] == "restore") >= 2
    });
    wait_until("it really was off the core", || batch.is_frozen());
    wait_until("and came back", || !batch.is_frozen());
    let told = status()["services"][0].clone();
    assert!(told["requests_missing"].is_string(), "no objective asks for figures: {told}");
    daemon.end();

    // Without a bound batch is not kept off, and the lane is held at each request.
    let mut daemon = with_lanes(File::with_holmes_policy(), "policy = \"borrow-idle\"\nmax_slowdown = \"none\"");
    daemon.run.wait_until("lanes were held", |run| count(run, &|entry| entry["action"] == "hold") >= 300);
    let audit = daemon.end().audit();
    assert!(!audit.iter().any(kept_off), "{audit:#?}");
    assert_eq!((batch.cpus().as_str(), batch.is_frozen()), ("0-1", false));
    assert_eq!(allowed_cpus(server.pid()).as_deref(), Some(REQUEST_LANE), "the service was moved");
}

/// Two services share the request lane. The holder of the batch lane beside it keeps batch off for both.
#[test]
fn lane_is_kept_for_the_next_service_when_the_first_ends() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::Lists) else { return };
    let [(one, first), (other, mut second)] =
        [Program::start_working_on_command(), Program::start_working_on_command()];
    let _batch = tree.container("one");
    let file =
        File::with_holmes_policy().with_service(&one.service_match_line()).replace("the service", "the first one");
    let file = file.with_service(&other.service_match_line()).with_batch(tree.path());
    let mut daemon = Daemon::start(&file.with_lines("[lanes]\ngate = \"holder\"\npolicy = \"borrow-idle\""), 2, 1);
    let words = Words::wait_and_map(&mut daemon.run);
    wait_until("the sibling was kept", || status()["cpus"][1]["owner"] == "the lane gate");
    assert!(!status()["notes"].to_string().contains("no lane is kept"), "{}", status()["notes"]);
    drop(first);
    wait_until("one service was left", || status()["services"].as_array().map(Vec::len) == Some(1));
    wait_until("its sibling was kept", || status()["cpus"][1]["owner"] == "the lane gate");
    wait_until("batch was on its lane", || words.is_batch_on_lane());
    second.work();
    wait_until("batch had left", || words.is_kept_free() && words.has_batch_left());
    second.rest();
    daemon.end();
}
