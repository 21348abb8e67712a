//! Tests of namespaces of containers: processes in another one are found, counted and named correctly, or refused with
//! advice. Containers are made by unshare(1).

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;

use common::agent::SIDELANE;
use common::c_program::compile;
use common::lanes::{LANES, REQUEST_LANE};
use common::{SPIN, Service, can_observe_requests, lock_lanes, process, wait_until};
use sidelane_channels::app;
use sidelane_host::clock::now_ns;
use sidelane_host::procfs::{pid_in_own_namespace, threads, with_descendants};
use sidelane_host::service::Target;
use sidelane_host::topology::Topology;
use sidelane_requests::emitted::Emitters;
use sidelane_requests::{Request, Requests};
use sidelane_tracker::tracker::{LaneLending, Purpose};
use sidelane_tracker::tracking::{LaneUse, ServiceTracking};

/// Options of unshare(1) for a container.
const CONTAINER: [&str; 5] = ["--pid", "--fork", "--kill-child", "--mount-proc", "--cgroup"];

/// Processes in a container, ended when dropped.
struct Container(Child);

impl Container {
    /// Starts a program in a container. `more` are unshare(1) options for further namespaces of the container.
    fn start(namespace_options: &[&str], program: &[&str]) -> Option<Self> {
        let mut command = Command::new("unshare");
        command
            .args(CONTAINER)
            .args(namespace_options)
            .args(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        match process::kill_with_test(&mut command).spawn() {
            Ok(child) => Some(Self(child)),
            Err(error) => {
                sidelane_testing::skip(format!("needs unshare(1): {error}"));
                None
            }
        }
    }

    /// Returns the processes in the container, by their ids outside.
    fn pids(&self) -> BTreeSet<u32> {
        let all = with_descendants(&BTreeSet::from([self.0.id()]));
        all.into_iter().filter(|pid| pid_in_own_namespace(*pid).is_some_and(|own| own != *pid)).collect()
    }

    /// Waits until the container prints a line, and returns it.
    fn line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line
    }

    fn write(&mut self, line: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{line}").unwrap();
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // SAFETY: plain system call; the child is not reaped yet, so the group is its own.
        unsafe { libc::killpg(self.0.id() as libc::pid_t, libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

/// The emitted file contains thread ids of the container's PID namespace, and the kernel uses other ids.
#[test]
fn emitted_thread_ids_of_a_container_are_translated() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compile("cc", &["-std=gnu99"], "emit_turns", dir.path()) else { return };
    let Some(mut container) = Container::start(&[], &[program.to_str().unwrap(), "1"]) else { return };
    wait_until("the program in the container emits", || Emitters::find(&container.pids()).is_some());
    let pids = container.pids();
    let mut emitters = Emitters::find(&pids).unwrap();
    let mut seen: Vec<Request> = Vec::new();
    emitters.drain(|request| seen.push(*request));
    for turn in ["one", "two"] {
        let end = dir.path().join(turn);
        std::fs::File::create(&end).unwrap();
        container.write(end.to_str().unwrap());
        let before = seen.len();
        wait_until("its request is read", || {
            emitters.drain(|request| seen.push(*request));
            seen.len() > before
        });
    }
    let own: BTreeSet<u32> = pids.iter().flat_map(|pid| threads(*pid)).collect();
    assert!(seen.iter().all(|request| own.contains(&request.tid)), "{seen:?} by {own:?}");
}

#[test]
fn signals_that_a_program_in_a_container_emits_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("tag.c");
    let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../runtime/c/sidelane_signal.h");
    let main = "int main(void) { sidelane_set(sidelane_tag(\"phase\"), 1); puts(\"ready\"); fflush(stdout); return getchar(); }";
    std::fs::write(&source, format!("#define _GNU_SOURCE\n#include <stdio.h>\n#include \"{header}\"\n{main}\n"))
        .unwrap();
    let program = dir.path().join("tag");
    let compiled = Command::new("cc").args(["-pthread", "-o"]).arg(&program).arg(&source).output();
    let Ok(compiled) = compiled else { return sidelane_testing::skip("needs cc") };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let Some(mut container) = Container::start(&[], &[program.to_str().unwrap()]) else { return };
    assert_eq!(container.line(), "ready\n");
    let names: Vec<String> = container
        .pids()
        .into_iter()
        .flat_map(app::EmittedSignals::find)
        .flat_map(|emitted| emitted.names())
        .map(|emitted| emitted.name)
        .collect();
    assert_eq!(names, ["phase"]);
}

/// In the container the ids of processes are not the kernel's.
#[test]
fn missing_host_pid_namespace_is_refused_with_advice() {
    let Some(_turn) = lock_lanes() else { return };
    for proc in [&["--mount-proc"][..], &[]] {
        let script = format!("sleep 1000 & exec {SIDELANE} run --lanes {LANES} --pin-service --service pid:$! -- true");
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]).args(proc).args(["sh", "-c", &script]);
        let Ok(output) = process::kill_with_test(&mut command).output() else {
            return sidelane_testing::skip("needs unshare(1)");
        };
        let said = String::from_utf8_lossy(&output.stderr);
        // With another container's /proc, the service may not even be found.
        let refused = said.contains("--pid=host") && said.contains("hostPID");
        assert!(!output.status.success() && (refused || proc.is_empty()), "{said}");
    }
}

/// The service has its own namespaces of network, processes, cgroups and mounts; so has the observer, except for
/// processes.
#[test]
fn container_requests_are_counted_from_host_and_container() {
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    let installed = |program| Command::new(program).arg("--version").output().is_ok();
    if !["redis-server", "redis-cli", "nsenter"].into_iter().all(installed) || Command::new("ip").output().is_err() {
        return sidelane_testing::skip("needs redis-server, redis-cli, nsenter and ip");
    }
    const PORT: &str = "6379";
    let serve = format!("ip link set lo up; exec redis-server --port {PORT} --save '' --loglevel warning");
    let Some(container) = Container::start(&["--net", "--mount"], &["sh", "-c", &serve]) else { return };
    let inside = || container.pids().first().map(ToString::to_string);
    let ask = |what: &[&str]| {
        let inside = inside().expect("the server runs");
        let mut command = Command::new("nsenter");
        command.args(["-t", &inside, "--net", "redis-cli", "-p", PORT]).args(what).output().unwrap()
    };
    wait_until("the server answers", || inside().is_some() && ask(&["ping"]).stdout == b"PONG\n");
    let target = format!("pid:{}", container.pids().first().unwrap());
    for wrapper in [&[][..], &["unshare", "--net", "--mount", "--cgroup", "--ipc", "--uts"]] {
        let mut words = wrapper.iter().copied().chain([SIDELANE, "requests", "--service", &target, "--for", "100s"]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut watching = process::kill_with_test(&mut command).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(watching.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert!(said.contains("seen at its sockets"), "{said}");
        // The client sends ten requests on one connection, after its handshake.
        let asked = ask(&["-r", "10", "ping"]);
        assert_eq!(asked.stdout, "PONG\n".repeat(10).as_bytes());
        // SAFETY: plain system call; the child is not reaped yet.
        unsafe { libc::kill(watching.id() as libc::pid_t, libc::SIGINT) };
        let output = watching.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.starts_with("sidelane: 10 requests of "), "{wrapper:?}: {said}");
    }
}

/// Two servers in one network namespace have the same port, at different addresses.
#[test]
fn requests_of_another_server_at_the_port_are_not_counted() {
    let Some(_turn) = lock_lanes() else { return };
    if !can_observe_requests() {
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let start = |address: &str| {
        let mut command = Command::new("redis-server");
        command.args(["--bind", address, "--port", &port.to_string(), "--save", "", "--loglevel", "warning"]);
        command.stdout(Stdio::null()).process_group(0);
        process::kill_with_test(&mut command).spawn()
    };
    let Ok(other) = start("127.0.0.2").map(Container) else { return sidelane_testing::skip("needs redis-server") };
    let ask = |count: &str| {
        let port = port.to_string();
        Command::new("redis-cli").args(["-h", "127.0.0.2", "-p", &port, "-r", count, "ping"]).output().unwrap().stdout
    };
    wait_until("the other server answers", || ask("1") == b"PONG\n");
    let service = Target::Pid(std::process::id()).find().unwrap();
    let service = sidelane_host::service::Service { pids: BTreeSet::from([std::process::id()]), ..service };
    let lanes = Topology::read("/sys".as_ref()).unwrap().declared_pairs(LANES).unwrap();
    let purpose = Purpose::Lend { requests: true, lent: LaneLending::default() };
    let tracking = ServiceTracking::with_own_tracker(&service, &lanes, LaneUse::default(), purpose).unwrap();
    let requests = Requests::track(&tracking, "this test", &service.pids).unwrap();
    assert!(requests.ports().contains(&port));
    tracking.tracker().attach().unwrap();
    assert_eq!(ask("20"), "PONG\n".repeat(20).as_bytes());
    assert_eq!(requests.memory().service().queue_len.load(Ordering::Acquire), 0);
    drop((listener, other));
}

/// Program that listens at a port, with the name of docker's proxy for containers.
const DOCKER_PROXY: &str = "import socket, sys, time
listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))
open('/proc/self/comm', 'w').write('docker-proxy')
time.sleep(1000)";

/// Starts a server at port 8000 of its own network, in which it has this address.
fn server_at(ip: &str) -> Option<Container> {
    let serve = format!(
        "ip link set lo up && ip address add {ip}/32 dev lo && \
         exec taskset -c {REQUEST_LANE} python3 -m http.server 8000 >/dev/null 2>&1"
    );
    Container::start(&["--net"], &["sh", "-c", &serve])
}

#[test]
fn published_port_is_followed_to_the_server_in_its_container() {
    let Some(_turn) = lock_lanes() else { return };
    if Command::new("ip").output().is_err() {
        return sidelane_testing::skip("needs ip");
    }
    let (Some(server), Some(_other)) = (server_at("10.77.0.2"), server_at("10.77.0.3")) else { return };
    let port = common::scripted::unused_address().port().to_string();
    let told = ["-proto", "tcp", "-container-ip", "10.77.0.2", "-container-port", "8000"];
    let proxy = Service::of_command("python3", &[&["-c", DOCKER_PROXY, &port], &told[..]].concat());
    let target: Target = format!("port:{port}").parse().unwrap();
    let mut found = None;
    wait_until("the server was found", || {
        found = target.find().ok();
        found.as_ref().is_some_and(|found| found.behind.is_some())
    });
    let found = found.unwrap();
    assert_eq!((found.pids, found.port), (server.pids(), Some(8000)));
    let run = common::Run::beside_service(target.to_string())
        .with_more_arguments(&["--dry-run"])
        .run_to_end(&["true"])
        .expect_exit_code(0);
    let behind = format!("behind docker-proxy (process {})", proxy.pid());
    assert!(run.stdout.contains(&behind), "{run}");
    drop(server);
    let refused = target.find().unwrap_err().to_string();
    assert!(
        refused.contains("no process that accepts them is found") && refused.contains("docker inspect"),
        "{refused}"
    );
}

/// While batch runs, a second process of the service's name starts, and one that listens beside the first.
#[test]
fn later_process_of_the_service_belongs_to_it_during_a_run() {
    let Some(_turn) = lock_lanes() else { return };
    let dir = tempfile::tempdir().unwrap();
    let name = format!("svc-{}", std::process::id());
    let program = dir.path().join(&name);
    process::copy_program("/bin/sh", &program);
    let program = program.to_str().unwrap();
    let _idle = Service::of_command(program, &["-c", "while :; do sleep 1000; done"]);
    let mut run = common::Run::beside_service(format!("comm:{name}")).start_script(&format!("echo ready; {SPIN}"));
    run.first_line();
    let since_ns = now_ns();
    let busy = Service::of_command(program, &["-c", SPIN]);
    run.wait_until_audited("hold", since_ns);
    drop(busy);
    run.signal(libc::SIGTERM);
    run.wait_for_end();
}

/// Program that listens at a port beside other listeners, and computes for ever after its first request.
const LISTENER: &str = "import socket, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
listener.bind(('127.0.0.1', int(sys.argv[1])))
listener.listen()
while not listener.accept()[0].recv(1):
    pass
while True:
    pass";

/// In a rolling restart a second process listens at the port (SO_REUSEPORT), and then the first one ends.
#[test]
fn successor_at_the_port_is_part_of_the_service() {
    let Some(_turn) = lock_lanes() else { return };
    let address = common::scripted::unused_address();
    let start = || Service::of_command("python3", &["-c", LISTENER, &address.port().to_string()]);
    let found = |processes| {
        let service = Target::Port(address.port()).find();
        service.is_ok_and(|service| service.pids.len() == processes)
    };
    let first = start();
    wait_until("the first one listened", || found(1));
    let mut run =
        common::Run::beside_service(format!("port:{}", address.port())).start_script(&format!("echo ready; {SPIN}"));
    run.first_line();
    let _successor = start();
    wait_until("both listened", || found(2));
    drop(first);
    wait_until("the successor was alone", || found(1));
    let asked_ns = sidelane_host::clock::now_ns();
    let mut client = std::net::TcpStream::connect(address).unwrap();
    client.write_all(b"?").unwrap();
    run.wait_until_audited("hold", asked_ns);
    run.signal(libc::SIGTERM);
    run.wait_for_end();
}
