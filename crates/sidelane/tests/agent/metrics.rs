//! Tests of the agent's metrics for Prometheus.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use sidelane_agent::status::SOCKET;
use sidelane_lab::bench::workload::RealServerKind;

use crate::common::c_program::compile;
use crate::common::process::kill_with_test;
use crate::common::{Run, Service, can_observe_requests, lock_lanes, wait_until};
use crate::daemon::{Daemon, File, status};
use crate::groups::{Place, Tree};
use crate::service::Program;

/// Requests a path from the server at the port, and returns the answer.
pub fn http_get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the port is open");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a request can be sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer comes");
    answer
}

#[test]
fn metrics_are_served_beside_silent_readers() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::NoLists) else { return };
    let program = Program::new();
    let service = program.start("0");
    let batch = tree.container("one");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = File::with_holmes_policy().with_service(&program.service_match_line()).with_batch(tree.path());
    let daemon = Daemon::start(&file.with_lines(&format!("[metrics]\nlisten = \"127.0.0.1:{port}\"")), 1, 1);
    wait_until("batch had left the reserved CPU", || batch.cpus() == "1");
    let _silent: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let answer = http_get(port, "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("# EOF\n"), "{answer}");
    for line in [
        "sidelane_containers{state=\"running\"} 1",
        "sidelane_decisions_total{action=\"confine\",reason=",
        "sidelane_cpu_batch_seconds_total{cpu=\"1\"}",
        "sidelane_service_used_cpus{service=\"the service\"}",
        "sidelane_agent_cpu_seconds_total ",
    ] {
        assert!(answer.contains(line), "no {line} in {answer}");
    }
    assert!(http_get(port, "/other").starts_with("HTTP/1.1 404"));
    daemon.end();
    service.must_be_untouched();
}

/// Only root may read the status, because it contains facts about programs; a wide umask does not change that.
#[test]
fn status_is_hidden_from_other_users() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::NoLists) else { return };
    let run = Run::with_arguments(&[]).through_wrapper(&["sh", "-c", "umask 0; exec \"$@\"", "sh"]);
    let mut daemon = Daemon::launch(
        &File::with_holmes_policy().with_service(&Program::new().service_match_line()).with_batch(tree.path()),
        run,
    );
    daemon.wait_for_managed_counts(0, 0);
    // Only this thread changes its user: threads of other tests stay root.
    let asked = thread::spawn(|| {
        let nobody = Uid::from_raw(65534);
        set_thread_res_uid(nobody, nobody, nobody).expect("root may become any user");
        UnixStream::connect(SOCKET).map(drop).map_err(|error| error.kind())
    });
    assert_eq!(asked.join().unwrap(), Err(ErrorKind::PermissionDenied));
    UnixStream::connect(SOCKET).expect("root may ask");
    daemon.end();
}

#[test]
fn requests_of_a_service_that_listens_late_are_counted() {
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    if !RealServerKind::Redis.is_installed() {
        return sidelane_testing::skip("needs redis-server");
    }
    let Some(tree) = Tree::make(Place::NoLists) else { return };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    let (go, data) = (dir.path().join("go"), dir.path().display());
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.1; done; exec redis-server --bind 127.0.0.1 --port {port} --save '' --dir {data}",
        go.display()
    );
    let _service = tree.start_container_with_script("service", &script);
    let rule = format!("cgroup = \"{}/service\"\nslo = \"p99=60s\"", tree.path());
    let file = File::with_holmes_policy().with_service(&rule).with_batch("/nobody");
    let file = file.replace("[metric]", "[intervals]\nprocesses = \"100ms\"\n[metric]");
    let daemon = Daemon::start(&file, 1, 0);
    assert!(status()["services"][0]["requests_missing"].is_string(), "{}", status());
    std::fs::write(go, "").unwrap();
    let connected = || TcpStream::connect(("127.0.0.1", port)).ok();
    wait_until("the service listened", || connected().is_some());
    let ask = || {
        let mut client = connected().expect("it listens");
        let mut answer = [0; 7];
        let asked = client.write_all(b"PING\r\n").and_then(|()| client.read_exact(&mut answer));
        asked.expect("it answers");
    };
    wait_until("its requests were counted", || {
        ask();
        status()["services"][0]["requests"]["count"].as_u64() > Some(0)
    });
    assert_eq!(status()["services"][0]["requests"]["in_time_percent"], 100.0);
    daemon.reload(&file.replace("p99=60s", "p99=1us"));
    let requests = || status()["services"][0]["requests"].clone();
    wait_until("it was judged by its new objective", || {
        requests()["slo"].as_str().is_some_and(|slo| slo.contains("1µs"))
    });
    let in_time = || requests()["in_time_percent"].as_f64();
    wait_until("requests were judged by it", || {
        ask();
        in_time().is_some()
    });
    assert_eq!(in_time(), Some(0.0), "those of before were not");
    daemon.end();
}

/// Reading emitted requests costs the service nothing.
#[test]
fn emitted_requests_are_counted_without_any_option() {
    let Some(_turn) = lock_lanes() else { return };
    let Some(tree) = Tree::make(Place::NoLists) else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compile("cc", &["-std=gnu99"], "emit_turns", dir.path()) else { return };
    let mut command = Command::new(&program);
    command.arg("1").stdin(Stdio::piped()).stdout(Stdio::null());
    let mut service = kill_with_test(&mut command).spawn().unwrap();
    let file = File::without_cpu_policy().with_service("comm = \"emit_turns\"").with_batch(tree.path());
    let daemon = Daemon::start(&file, 1, 0);
    let count = || status()["services"][0]["requests"]["count"].as_u64();
    let mut turns = service.stdin.take().unwrap();
    wait_until("its requests were counted", || {
        // A request lasts until the file named in this line exists. This file exists, so the request ends at once.
        writeln!(turns, "{}", program.display()).unwrap();
        count() > Some(0)
    });
    assert!(status()["services"][0]["requests_missing"].is_null(), "{}", status());
    daemon.end();
    drop(turns);
    service.wait().unwrap();
}

/// Program that accepts requests by TCP and by UDP, like HTTP/3 servers.
const BOTH: &str = "import socket, sys
stream, datagrams = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
datagrams.bind(('127.0.0.1', int(sys.argv[1])))
stream.bind(('127.0.0.1', int(sys.argv[1])))
stream.listen()
while True:
    stream.accept()";

#[test]
fn objective_of_a_service_with_udp_is_noted_as_tcp_only() {
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    // Higher ports mostly belong to clients, and are not reported.
    let port = (20_000..30_000).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("one is free");
    let _service = Service::of_command("python3", &["-c", BOTH, &port.to_string()]);
    wait_until("the service listened", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let service = format!("port = {port}\nslo = \"p99=5ms\"");
    let mut daemon = Daemon::start(&File::with_holmes_policy().with_service(&service).with_batch("/nobody"), 1, 0);
    let elsewhere = format!("may get requests at UDP port {port}");
    daemon.run.wait_until("it was told of", |run| run.errors().contains(&elsewhere));
    daemon.end().expect_stderr_contains(&[&elsewhere, "are of its TCP requests alone"]);
}

/// Program with 100 processes that listen in separate network namespaces, each with 500 open files.
const LARGE: &str = "import ctypes, os, socket, sys, time
def listen():
    s = socket.socket()
    s.bind(('0.0.0.0', 4711))
    s.listen()
    return s
while not os.path.exists(sys.argv[1] + '/go'):
    time.sleep(0.05)
read, write = os.pipe()
for _ in range(100):
    if os.fork() == 0:
        alone = ctypes.CDLL(None).unshare(0x40000000)
        kept = listen() if alone == 0 else None
        files = [os.open('/dev/null', 0) for _ in range(500)]
        os.write(write, b'1')
        time.sleep(1000)
for _ in range(100):
    os.read(read, 1)
open(sys.argv[1] + '/large', 'w')
time.sleep(1000)";

/// Returns the CPU time of the agent's main thread, and of all its threads.
fn cpu_ns_of_main_and_all_threads(pid: u32) -> (u64, u64) {
    let of = |tid: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
    };
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    (of(&pid.to_string()), tasks.map(|task| of(task.file_name().to_str().unwrap())).sum())
}

/// The cost of reading a service grows with its files and network namespaces; the agent's real-time thread reads
/// neither.
#[test]
fn large_service_does_not_load_the_real_time_thread() {
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    let Some(tree) = Tree::make(Place::NoLists) else { return };
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("large.py"), LARGE).unwrap();
    let script = format!("exec python3 {0}/large.py {0}", dir.path().display());
    let _service = tree.start_container_with_script("service", &script);
    let rule = format!("cgroup = \"{}/service\"\nslo = \"p99=60s\"", tree.path());
    let daemon = Daemon::start(&File::with_holmes_policy().with_service(&rule).with_batch("/nobody"), 1, 0);
    let pid = daemon.run.pid();
    // CPU time is measured over a fixed time.
    let in_a_while = || {
        let (own, all) = cpu_ns_of_main_and_all_threads(pid);
        thread::sleep(Duration::from_secs(4));
        let (own_later, all_later) = cpu_ns_of_main_and_all_threads(pid);
        (own_later - own, all_later - all)
    };
    let (own_before, _) = in_a_while();
    std::fs::write(dir.path().join("go"), "").unwrap();
    wait_until("the service was large", || dir.path().join("large").exists());
    wait_until("its requests could be seen", || status()["services"][0]["requests_missing"].is_null());
    let (own, all) = in_a_while();
    assert!(own < 4 * own_before, "{own} ns of the real-time thread, {own_before} ns before");
    assert!(all > own, "the rest was done elsewhere");
    daemon.end();
}
