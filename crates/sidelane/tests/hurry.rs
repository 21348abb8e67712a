//! Tests of `sidelane hurry`: long requests move to big cores, and the service gets its CPUs back after any kind of
//! end.
//!
//! On machines without big and little cores the tests declare CPU 0 to be big. They check the moves, not the gain.

mod common;

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::agent::SIDELANE;
use common::busy::{BIG, CLIENTS, LITTLE, MESSAGE, OTHERS, send_request};
use common::hurrying::MOVED;
use common::{Busy, Footprint, Hurrying, Run, lock_lanes, wait_until};
use serde_json::Value;
use sidelane_host::cgroup::{BatchGroup, Hierarchy};
use sidelane_host::clock::now_ns;

/// Environment variable with the number of times that the agent is killed; more kills hit rarer moments.
const KILLS_VARIABLE: &str = "SIDELANE_HURRY_KILLS";
const KILLS: u64 = 8;
/// Exit code of `sidelane run` for its own errors.
const EXIT_OWN_FAILURE: i32 = 125;

#[test]
fn long_requests_move_to_big_cores_and_cpus_are_restored() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = Busy::start("thread-per-connection", None) else { return };
    let (cpus, before) = (busy.cpus_by_thread(), Footprint::capture());
    let hurrying = Hurrying::start(&busy, &["--threshold", "1ms"]);
    wait_until("each worker is bound", || busy.bound_thread_count() >= CLIENTS);
    wait_until("a long request moved", || hurrying.has_moved());
    let moves = hurrying.moves();
    for line in moves.iter().filter(|line| line["why"] == MOVED && line["cpu"] == 0) {
        let waited_ns = line["at_ns"].as_u64().unwrap() - line["seen"]["since_ns"].as_u64().unwrap();
        assert!(waited_ns > 1_000_000, "it was not long: {line}");
    }
    let told = hurrying.stop();
    assert!(told.contains("moved to big cores") && told.contains("big CPUs 0 and little CPUs 1"), "{told}");
    assert_eq!(busy.cpus_by_thread(), cpus);
    before.wait_until_restored();
}

#[test]
fn baseline_mappings_move_no_thread() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = Busy::start("thread-per-connection", None) else { return };
    let before = busy.cpus_by_thread();
    for (mapping, cpus) in [("all-big", BIG), ("all-little", LITTLE)] {
        let hurrying = Hurrying::start(&busy, &["--mapping", mapping]);
        wait_until(mapping, || busy.cpus_by_thread().values().filter(|found| *found == cpus).count() >= CLIENTS);
        assert!(!hurrying.has_moved());
        hurrying.stop();
        assert_eq!(busy.cpus_by_thread(), before);
    }
    let hurrying = Hurrying::start(&busy, &["--mapping", "kernel", "--for", "1s"]);
    assert!(hurrying.wait().success());
    assert!(fs::read_to_string(busy.file("moves")).unwrap().is_empty(), "nothing was done to threads");
}

#[test]
fn worker_of_a_pool_is_bound_and_not_the_receiver() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = Busy::start("pool", None) else { return };
    let hurrying = Hurrying::start(&busy, &["--threshold", "1ms"]);
    wait_until("a long request moved", || hurrying.has_moved());
    hurrying.stop();
}

#[test]
fn more_threads_than_cores_are_bound_for_long_requests_only() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = Busy::start("thread-per-connection", None) else { return };
    let cpus = busy.cpus_by_thread();
    let hurrying = Hurrying::start(&busy, &["--threshold", "1ms"]);
    let mut streams: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(busy.address).unwrap()).collect();
    for stream in &mut streams {
        send_request(stream).and_then(|()| stream.read_exact(&mut [0; MESSAGE])).unwrap();
    }
    let acts = |what: &str, since: usize| hurrying.moves()[since..].iter().any(|line| line["action"] == what);
    wait_until("a long request is confined to big cores", || acts("bind_to_big", 0));
    let since = hurrying.moves().len();
    wait_until("its thread is free again, and another one confined", || {
        acts("restore", since) && acts("bind_to_big", since)
    });
    assert!(!acts("bind", since), "no thread is bound to one core");
    let told = hurrying.stop();
    assert!(told.contains("more than cores: only long requests are bound, to big cores"), "{told}");
    let now = busy.cpus_by_thread();
    assert!(cpus.iter().all(|(tid, cpus)| now[tid] == *cpus), "{now:?}, were {cpus:?}");
}

/// Gives each thread CPUs of its own, as in a process that has set its own affinities.
fn set_own_affinities(busy: &Busy) {
    for (tid, cpus) in busy.threads().into_iter().zip([&[0_u32][..], &[1], &[0, 1]].into_iter().cycle()) {
        sidelane_host::priority::pin_thread(tid, cpus).unwrap();
    }
}

#[test]
fn a_killed_agent_leaves_each_thread_the_cpus_that_it_had() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = Busy::start("thread-per-connection", None) else { return };
    set_own_affinities(&busy);
    let (cpus, before) = (busy.cpus_by_thread(), Footprint::capture());
    let kills = std::env::var(KILLS_VARIABLE).map_or(KILLS, |kills| kills.parse().unwrap());
    for kill in 0..kills {
        let mut child = Hurrying::command(&busy, &["--threshold", "1ms"]).spawn().unwrap();
        // The kill comes at any moment: before the mapper is ready, while threads are bound, or later.
        thread::sleep(Duration::from_millis(kill * 7919 % 600));
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until("each thread has the CPUs that it had", || busy.cpus_by_thread() == cpus);
        before.wait_until_restored();
    }
}

#[test]
fn threads_may_end_at_any_moment() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = Busy::start("thread-per-connection", None) else { return };
    let hurrying = Hurrying::start(&busy, &["--threshold", "1ms"]);
    let mut streams = 0;
    wait_until("threads came and went, and requests moved", || {
        let mut stream = TcpStream::connect(busy.address).unwrap();
        send_request(&mut stream).unwrap();
        streams += 1;
        // Every second connection is closed while its thread works on its request.
        (streams % 2 == 0 || stream.read_exact(&mut [0; MESSAGE]).is_ok()) && streams >= 200 && hurrying.has_moved()
    });
    assert!(hurrying.stop().contains("moved to big cores"));
    assert_eq!(busy.bound_thread_count(), 0, "{:?}", busy.cpus_by_thread());
}

#[test]
fn refused_move_to_a_core_outside_the_cpuset_is_reported() {
    let Some(_turn) = lock_lanes() else { return };
    let name = format!("hurry-{}", std::process::id());
    let cpuset = Hierarchy::all().into_iter().find(|hierarchy| hierarchy.has_controller("cpuset"));
    let Some(leaf) = cpuset.and_then(|hierarchy| BatchGroup::create(&hierarchy, &name).ok()) else {
        return sidelane_testing::skip("needs a group with a list of CPUs (cpuset of cgroup v1)".to_owned());
    };
    {
        let Some(busy) = Busy::start("thread-per-connection", Some(&leaf)) else { return };
        let hurrying = Hurrying::start(&busy, &["--threshold", "1ms"]);
        wait_until("a long request moved", || hurrying.has_moved());
        leaf.write("cpuset.cpus", LITTLE).unwrap();
        let shrunk_ns = now_ns();
        let is_try = |line: &Value| line["at_ns"].as_u64() > Some(shrunk_ns) && line["cpu"] == 0;
        wait_until("a thread was sent to the core that is gone", || hurrying.moves().iter().any(is_try));
        assert!(hurrying.stop().contains("moves were refused: the service's cgroup does not have the core"));
        assert!(busy.cpus_by_thread().values().all(|cpus| cpus == LITTLE), "{:?}", busy.cpus_by_thread());
    }
    wait_until("the group is empty", || fs::remove_dir(&leaf.dir).is_ok());
}

#[test]
fn a_request_that_comes_in_parts_is_one_request() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = Busy::start("thread-per-connection", None) else { return };
    let hurrying = Hurrying::start(&busy, &["--mapping", "static"]);
    wait_until("each worker is bound", || busy.bound_thread_count() >= CLIENTS);
    let mut stream = TcpStream::connect(busy.address).unwrap();
    let known = busy.bound_thread_count();
    wait_until("its worker is bound", || {
        send_request(&mut stream).and_then(|()| stream.read_exact(&mut [0; MESSAGE])).unwrap();
        busy.bound_thread_count() > known
    });
    stream.set_nodelay(true).unwrap();
    for _ in 0..4 {
        for _ in 0..MESSAGE {
            // A request is sent byte by byte. The pause is long enough that the kernel program observes most bytes
            // separately.
            thread::sleep(Duration::from_millis(20));
            stream.write_all(&[0]).unwrap();
        }
        stream.read_exact(&mut [0; MESSAGE]).unwrap();
    }
    let told = hurrying.stop();
    // The recorded end of a few client requests may be missing, because their records came late.
    let unended = told.split(" requests had no end that was seen").next().filter(|before| before.len() < told.len());
    let unended = unended.and_then(|before| before.rsplit(' ').next()?.parse().ok()).unwrap_or(0);
    assert!(unended < MESSAGE, "as many as a request has parts: {told}");
}

/// A CPU is declared offline, because a test must not take one from the machine.
#[cfg(debug_assertions)]
#[test]
fn offline_big_core_is_left_and_used_again_when_online() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = Busy::start("thread-per-connection", None) else { return };
    let offline = busy.file("offline");
    fs::write(&offline, "").unwrap();
    let mut command = Hurrying::command(&busy, &["--threshold", "1ms"]);
    let hurrying = Hurrying::start_command(command.env("SIDELANE_OFFLINE", &offline), &busy.file("moves"));
    wait_until("a long request moved", || hurrying.has_moved());
    fs::write(&offline, BIG).unwrap();
    wait_until("no thread is bound to the core", || busy.cpus_by_thread().values().all(|cpus| cpus != BIG));
    fs::write(&offline, "").unwrap();
    wait_until("a thread is on the core again", || busy.cpus_by_thread().values().any(|cpus| cpus == BIG));
    hurrying.stop();
    assert_eq!(busy.bound_thread_count(), 0, "{:?}", busy.cpus_by_thread());
}

#[test]
fn siblings_can_be_named_on_equal_cores() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = Busy::start("thread-per-connection", None) else { return };
    let mut command = Command::new(SIDELANE);
    command.args(["hurry", "--service", &busy.target(), "--siblings", "0,1", "--threshold", "1ms", "--for", "1s"]);
    let output = command.output().unwrap();
    let (told, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("a lane is big while its siblings are idle"), "{said}");
    assert!(told.contains("on lanes of the cores {0-1}"), "{told}");
    assert_eq!(busy.bound_thread_count(), 0, "{:?}", busy.cpus_by_thread());
}

#[test]
fn a_service_that_is_started_again_is_found() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = Busy::start("thread-per-connection", None) else { return };
    let port = busy.address.port();
    let log = busy.file("moves");
    let hurrying = Hurrying::start_command(&mut Hurrying::command_for(&format!("port:{port}"), &log, &[]), &log);
    wait_until("each worker is bound", || busy.bound_thread_count() >= CLIENTS);
    drop(busy);
    let Some(busy) = Busy::start_at(port, "thread-per-connection", None) else { return };
    wait_until("each worker is bound again", || busy.bound_thread_count() >= CLIENTS);
    assert!(hurrying.stop().contains("threads"));
    assert_eq!(busy.bound_thread_count(), 0, "{:?}", busy.cpus_by_thread());
}

#[test]
fn process_that_already_moves_the_threads_is_named() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = Busy::start("thread-per-connection", None) else { return };
    let first = Hurrying::start(&busy, &[]);
    let output = Hurrying::command(&busy, &[]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let (pid, owner) = (busy.pid(), first.child.id());
    let expected = format!(
        "sidelane: cannot move threads of process {pid}: another sidelane (process {owner}) moves them already; end \
         that sidelane, or wait for its end\n"
    );
    assert_eq!((output.status.code(), said), (Some(EXIT_OWN_FAILURE), expected));
    // A run with --pin-service would move the service's threads, too, so it is refused.
    let run = Run::beside_service(busy.target())
        .with_more_arguments(&["--pin-service"])
        .run_to_end(&["true"])
        .expect_exit_code(EXIT_OWN_FAILURE);
    run.expect_stderr_contains(&[&format!("cannot move threads of process {pid}: another sidelane (process {owner})")]);
    first.stop();
}

#[test]
fn pipe_lines_of_several_writers_are_read() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(busy) = Busy::start("thread-per-connection", None) else { return };
    let (pipe, workers) = (busy.file("pipe"), busy.threads().split_off(OTHERS));
    let (first, second) = (workers[0], workers[1]);
    let hurrying = Hurrying::start(&busy, &["--stats", &format!("pipe:{}", pipe.display()), "--threshold", "20ms"]);
    // The first writer is killed within a line, and its clock is years ahead.
    write_to_pipe(&pipe, &format!("{first};a;99999999999999\nnonsense\n{second};cut"));
    wait_until("the first worker is bound", || busy.cpus_by_thread()[&first] == BIG);
    // The next lines report an end, a start by a thread of another process, and a start.
    write_to_pipe(&pipe, &format!("{first};a;1\n1;b;1\n{second};c;1\n"));
    wait_until("the second worker has moved to the big core", || {
        hurrying.has_moved() && busy.cpus_by_thread()[&second] == BIG
    });
    let told = hurrying.stop();
    for trouble in [
        "2 lines of the pipe could not be read; write THREAD;REQUEST;MILLISECONDS",
        "1 lines of the pipe name a thread",
        "lines of the pipe have an impossible time",
    ] {
        assert!(told.contains(trouble), "{told}");
    }
    assert!(!pipe.exists(), "what was made is removed");
}

fn write_to_pipe(pipe: &Path, lines: &str) {
    OpenOptions::new().write(true).open(pipe).unwrap().write_all(lines.as_bytes()).unwrap();
}

#[test]
fn wrong_arguments_of_hurry_have_exact_errors() {
    let refused = |arguments: &[&str]| {
        let output = Command::new(SIDELANE).arg("hurry").args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = refused(&["--service", "port:1", "--big", "0"]);
    assert!(code == Some(2) && said.contains("--little <CPUS>"), "{said}");
    let (code, said) = refused(&["--service", "port:1", "--stats", "hurry"]);
    let advice = "cannot use `hurry` for --stats; write pipe: and the path of a named pipe, as in pipe:/run/hurry";
    assert!(code == Some(2) && said.contains(advice), "{said}");
    let (code, said) = refused(&["--service", "port:1", "--big", "0", "--little", "0"]);
    assert!(code == Some(EXIT_OWN_FAILURE) && said.contains("--big") && said.contains("--little"), "{said}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let stats = format!("pipe:{}", file.path().display());
    let me = format!("pid:{}", std::process::id());
    let (code, said) = refused(&["--service", &me, "--big", "0", "--little", "1", "--stats", &stats]);
    assert!(code == Some(EXIT_OWN_FAILURE) && said.contains("it is not a named pipe; remove it"), "{said}");
}
