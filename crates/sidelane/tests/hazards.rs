//! Tests of `sidelane hazards` with a real HAProxy in front of real servers.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use common::haproxy::Haproxy;
use common::nginx::{LONG_LEN, Nginx};
use common::process::{kill_with_test, signal};
use common::scripted::unused_address;
use common::{TIMEOUT, wait_until};
use serde_json::Value;

/// Running `sidelane hazards`.
struct Hazards {
    child: Child,
    /// Lines on standard error.
    said: Arc<Mutex<Vec<String>>>,
}

impl Hazards {
    /// Starts it, and waits until it watches.
    fn start(arguments: &[String]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidelane"));
        command.arg("hazards").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = kill_with_test(&mut command).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let said = Arc::new(Mutex::new(Vec::new()));
        let its_lines = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in lines {
                eprintln!("{line}");
                its_lines.lock().unwrap().push(line);
            }
        });
        let hazards = Self { child, said };
        wait_until("it watches", || hazards.has_printed("hazards of "));
        hazards
    }

    fn has_printed(&self, text: &str) -> bool {
        self.said.lock().unwrap().iter().any(|line| line.contains(text))
    }

    fn kill(&mut self) {
        signal(self.child.id(), libc::SIGKILL);
        let _ = self.child.wait();
    }

    /// Ends it, and returns what it prints.
    fn finish(mut self) -> String {
        signal(self.child.id(), libc::SIGTERM);
        assert!(self.child.wait().unwrap().success());
        let mut summary = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut summary).unwrap();
        summary
    }
}

impl Drop for Hazards {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the arguments that name these servers of the backend `web`: `s1`, `s2` and so on.
fn server_arguments(addresses: &[SocketAddr]) -> Vec<String> {
    let named = addresses.iter().enumerate();
    named.flat_map(|(at, address)| ["--server".to_owned(), format!("web/s{}={address}", at + 1)]).collect()
}

fn to_haproxy(haproxy: &Haproxy, addresses: &[SocketAddr], more: &[&str]) -> Vec<String> {
    let socket = ["--haproxy".to_owned(), haproxy.socket().display().to_string()];
    let more = more.iter().map(|argument| (*argument).to_owned());
    server_arguments(addresses).into_iter().chain(socket).chain(more).collect()
}

/// Returns the lines of a backend with these servers, each of the weight 100.
fn backend(addresses: &[SocketAddr]) -> Vec<String> {
    let named = addresses.iter().enumerate();
    named.map(|(at, address)| format!("server s{} {address} weight 100", at + 1)).collect()
}

/// Two servers behind a HAProxy.
struct Scene {
    one: Nginx,
    two: Nginx,
    haproxy: Haproxy,
}

impl Scene {
    fn start() -> Option<Self> {
        Self::with_lines(&[])
    }

    /// Starts them with further lines in the backend.
    fn with_lines(lines: &[&str]) -> Option<Self> {
        let (one, two) = (Nginx::start("one")?, Nginx::start("two")?);
        let lines = lines.iter().map(|line| (*line).to_owned());
        let haproxy = Haproxy::start(&lines.chain(backend(&[one.address, two.address])).collect::<Vec<_>>())?;
        Some(Self { one, two, haproxy })
    }

    fn addresses(&self) -> [SocketAddr; 2] {
        [self.one.address, self.two.address]
    }

    fn watch(&self, more: &[&str]) -> Hazards {
        Hazards::start(&to_haproxy(&self.haproxy, &self.addresses(), more))
    }

    fn wait_for_weights(&self, weights: [u32; 2]) {
        wait_until(&format!("the weights are {weights:?}"), || {
            ["s1", "s2"].map(|server| self.haproxy.weight(server)) == weights
        });
    }
}

#[test]
fn stopped_server_is_drained_until_it_runs_again() {
    let Some(scene) = Scene::start() else { return };
    let hazards = scene.watch(&["--hazard", "stopped"]);
    scene.one.signal(libc::SIGSTOP);
    scene.wait_for_weights([0, 100]);
    (0..10).for_each(|_| assert_eq!(scene.haproxy.get(), "two"));
    scene.one.signal(libc::SIGCONT);
    scene.wait_for_weights([100, 100]);
    let summary = hazards.finish();
    assert!(summary.starts_with("web/s1   1 stopped; drained once, for "), "{summary}");
    assert!(summary.ends_with("web/s2   no hazard; never drained\n"), "{summary}");
}

#[test]
fn restarted_server_is_drained_and_its_weight_rises() {
    let Some(mut scene) = Scene::start() else { return };
    let _hazards = scene.watch(&["--hazard", "restart", "--warm-up", "1h"]);
    scene.one.kill();
    scene.wait_for_weights([0, 100]);
    scene.one.restart();
    scene.wait_for_weights([10, 100]);
}

#[test]
fn killed_sidelane_leaves_no_server_drained() {
    let Some(scene) = Scene::start() else { return };
    let mut hazards = scene.watch(&["--hazard", "stopped"]);
    scene.haproxy.ask("set server web/s1 weight 70");
    scene.one.signal(libc::SIGSTOP);
    scene.wait_for_weights([0, 100]);
    hazards.kill();
    scene.wait_for_weights([70, 100]);
    scene.one.signal(libc::SIGCONT);
}

#[test]
fn ended_sidelane_leaves_no_server_drained() {
    let Some(scene) = Scene::start() else { return };
    let hazards = scene.watch(&["--hazard", "stopped"]);
    scene.one.signal(libc::SIGSTOP);
    scene.wait_for_weights([0, 100]);
    hazards.finish();
    assert_eq!(["s1", "s2"].map(|server| scene.haproxy.weight(server)), [100, 100]);
    scene.one.signal(libc::SIGCONT);
}

#[test]
fn last_server_that_haproxy_can_use_is_not_drained() {
    let Some(scene) = Scene::start() else { return };
    let (dir, socket) = socket_in_a_folder();
    let hazards = scene.watch(&["--hazard", "stopped", "--socket", &socket.display().to_string()]);
    scene.haproxy.ask("set server web/s2 state maint");
    let mut lines = connect(&socket);
    assert_eq!(read_event(&mut lines, "state")["server"], "web/s1");
    scene.one.signal(libc::SIGSTOP);
    assert_eq!(read_event(&mut lines, "begin")["state"], "ready");
    assert_eq!(scene.haproxy.weight("s1"), 100);
    scene.haproxy.ask("set server web/s2 state ready");
    scene.wait_for_weights([0, 100]);
    scene.haproxy.ask("set server web/s2 state maint");
    scene.wait_for_weights([100, 100]);
    scene.one.signal(libc::SIGCONT);
    assert_eq!(scene.haproxy.get(), "one");
    drop((hazards, dir));
}

#[test]
fn weight_of_an_operator_is_left_alone() {
    let Some(scene) = Scene::start() else { return };
    let hazards = scene.watch(&["--hazard", "stopped"]);
    scene.one.signal(libc::SIGSTOP);
    scene.wait_for_weights([0, 100]);
    scene.haproxy.ask("set server web/s1 weight 55");
    scene.one.signal(libc::SIGCONT);
    // An operator drains the second server. It has a hazard, too, and stays drained after it.
    scene.haproxy.ask("set server web/s2 weight 0");
    scene.two.signal(libc::SIGSTOP);
    scene.two.signal(libc::SIGCONT);
    let summary = hazards.finish();
    assert_eq!(["s1", "s2"].map(|server| scene.haproxy.weight(server)), [55, 0], "{summary}");
}

/// Lets one request reach the first server, which is stopped. The
/// second server is there only later, so that the request is in flight when the first one is drained. Returns what the
/// client gets.
fn answer_of_request_in_flight(scene: &Scene, hazards: &Hazards) -> String {
    scene.haproxy.ask("set server web/s2 state maint");
    scene.one.signal(libc::SIGSTOP);
    let mut client = TcpStream::connect(scene.haproxy.address).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let client_of = format!("src={} ", client.local_addr().unwrap());
    wait_until("the request is at the stopped server", || {
        scene.haproxy.ask("show sess").lines().any(|line| line.contains(&client_of) && line.contains("srv=s1"))
    });
    assert!(scene.haproxy.weight("s1") == 100 && !hazards.has_printed("retry-on"), "the only server is not drained");
    scene.haproxy.ask("set server web/s2 state ready");
    wait_until("it is drained", || scene.haproxy.weight("s1") == 0);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    scene.one.signal(libc::SIGCONT);
    scene.wait_for_weights([100, 100]);
    answer
}

#[test]
fn request_in_flight_is_sent_again() {
    let Some(scene) = Scene::with_lines(&["retry-on conn-failure empty-response", "option redispatch 1"]) else {
        return;
    };
    let hazards = scene.watch(&["--hazard", "stopped", "--resend"]);
    let answer = answer_of_request_in_flight(&scene, &hazards);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("two"), "{answer}");
    assert!(!hazards.finish().contains("cut"));
}

#[test]
fn answer_that_has_begun_is_not_cut() {
    let Some(scene) = Scene::with_lines(&["retry-on conn-failure empty-response", "option redispatch 1"]) else {
        return;
    };
    let hazards = scene.watch(&["--hazard", "stopped", "--resend"]);
    scene.haproxy.ask("set server web/s2 state maint");
    let mut client = TcpStream::connect(scene.haproxy.address).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(b"GET /long HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    client.read_exact(&mut [0; 1]).unwrap();
    let answer = answer_of_request_in_flight(&scene, &hazards);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("two"), "{answer}");
    let rest = client.read_to_end(&mut Vec::new()).unwrap();
    assert!(rest > LONG_LEN, "{rest} of {LONG_LEN} bytes");
    assert!(!hazards.finish().contains("cut"));
}

#[test]
fn resending_ends_if_haproxy_cuts_requests() {
    let Some(scene) = Scene::start() else { return };
    let hazards = scene.watch(&["--hazard", "stopped", "--resend"]);
    let answer = answer_of_request_in_flight(&scene, &hazards);
    assert!(answer.contains(" 502 "), "{answer}");
    wait_until("the user is told", || hazards.has_printed("retry-on conn-failure empty-response"));
    let summary = hazards.finish();
    assert!(summary.contains("; 1 requests cut\n"), "{summary}");
}

/// Asks for the weight of a server, as an agent check of HAProxy does.
fn agent_check(address: SocketAddr, server: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(format!("{server}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn agent_check_of_a_killed_sidelane_gives_the_weight_back() {
    let (Some(one), Some(two)) = (Nginx::start("one"), Nginx::start("two")) else { return };
    let (addresses, check) = ([one.address, two.address], unused_address());
    let lines = addresses.iter().enumerate().map(|(at, address)| {
        let name = format!("s{}", at + 1);
        format!(
            "server {name} {address} weight 100 agent-check agent-addr {} agent-port {} agent-inter 50ms agent-send \
             \"web/{name}\\n\"",
            check.ip(),
            check.port()
        )
    });
    let Some(haproxy) = Haproxy::start(&lines.collect::<Vec<_>>()) else { return };
    let to_checks = ["--agent-check".to_owned(), check.to_string(), "--hazard".to_owned(), "stopped".to_owned()];
    let mut hazards = Hazards::start(&[server_arguments(&addresses), to_checks.to_vec()].concat());
    assert_eq!((agent_check(check, "web/s1"), agent_check(check, "other")), ("100%\n".to_owned(), String::new()));
    one.signal(libc::SIGSTOP);
    wait_until("HAProxy has drained it", || haproxy.weight("s1") == 0);
    assert_eq!(haproxy.weight("s2"), 100);
    hazards.kill();
    wait_until("HAProxy uses it again", || haproxy.weight("s1") == 100);
    one.signal(libc::SIGCONT);
}

#[test]
fn agent_check_of_an_ended_sidelane_gives_the_weight_back() {
    let Some(one) = Nginx::start("one") else { return };
    let check = unused_address();
    let line = format!(
        "server s1 {} weight 100 agent-check agent-addr {} agent-port {} agent-inter 50ms",
        one.address,
        check.ip(),
        check.port()
    );
    let Some(haproxy) = Haproxy::start(&[line]) else { return };
    let to_checks = ["--agent-check", &check.to_string(), "--others", "1"].map(str::to_owned);
    let hazards = Hazards::start(&[server_arguments(&[one.address]), to_checks.to_vec()].concat());
    one.signal(libc::SIGSTOP);
    wait_until("HAProxy has drained it", || haproxy.weight("s1") == 0);
    hazards.finish();
    wait_until("HAProxy uses it again", || haproxy.weight("s1") == 100);
    one.signal(libc::SIGCONT);
}

/// Returns the path of a socket in a folder of its own.
fn socket_in_a_folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("hazards.sock");
    (dir, socket)
}

/// Connects to the socket, and returns the lines that come.
fn connect(socket: &Path) -> impl Iterator<Item = std::io::Result<String>> {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    BufReader::new(stream).lines()
}

/// Reads lines of JSON until one has this event.
fn read_event(lines: &mut impl Iterator<Item = std::io::Result<String>>, event: &str) -> Value {
    let mut parsed = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    parsed.find(|line| line["event"] == event).expect("the event comes")
}

#[test]
fn programs_read_the_state_and_then_each_hazard() {
    let (Some(one), Some(two)) = (Nginx::start("one"), Nginx::start("two")) else { return };
    let (_dir, socket) = socket_in_a_folder();
    // A socket that a killed process left behind.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let to_programs = ["--socket", &socket.display().to_string(), "--hazard", "stopped"].map(str::to_owned);
    let hazards = Hazards::start(&[server_arguments(&[one.address, two.address]), to_programs.to_vec()].concat());
    let mut lines = connect(&socket);
    assert_eq!(read_event(&mut lines, "state")["server"], "web/s1");
    assert_eq!(read_event(&mut lines, "state")["state"], "ready");
    one.signal(libc::SIGSTOP);
    let begun = read_event(&mut lines, "begin");
    assert_eq!((&begun["server"], &begun["hazard"]), (&"web/s1".into(), &"stopped".into()), "{begun}");
    assert_eq!((&begun["state"], &begun["share_percent"]), (&"drained".into(), &0.into()), "{begun}");
    let state = read_event(&mut connect(&socket), "state");
    assert_eq!((&state["hazards"][0], &state["state"]), (&"stopped".into(), &"drained".into()), "{state}");
    one.signal(libc::SIGCONT);
    let ended = read_event(&mut lines, "end");
    assert_eq!((&ended["hazards"], &ended["state"]), (&serde_json::json!([]), &"ready".into()), "{ended}");
    hazards.finish();
    assert!(!socket.exists());
}

#[test]
fn wrong_options_are_errors_with_advice() {
    let run = |arguments: &[&str]| {
        let ended = Command::new(env!("CARGO_BIN_EXE_sidelane")).arg("hazards").args(arguments).output().unwrap();
        assert!(!ended.status.success());
        String::from_utf8_lossy(&ended.stderr).into_owned()
    };
    let server = ["--server", "web/s1=127.0.0.1:1"];
    assert!(run(&server).contains("use --haproxy SOCKET, --agent-check ADDRESS or --socket PATH"));
    assert!(run(&["--server", "s1"]).contains("write NAME=ADDRESS:PORT, as in web/s1=127.0.0.1:9001"));
    let Some(scene) = Scene::start() else { return };
    let socket = scene.haproxy.socket().display().to_string();
    let said = run(&["--haproxy", &socket, "--server", &format!("web/s3={}", scene.one.address)]);
    assert!(said.contains("cannot find web/s3 in HAProxy") && said.contains("web/s1, web/s2"), "{said}");
}

#[test]
fn haproxy_that_comes_later_is_told() {
    let Some(scene) = Scene::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (real, named) = (scene.haproxy.socket(), dir.path().join("later"));
    let arguments = server_arguments(&scene.addresses());
    let to_later = ["--haproxy", &named.display().to_string(), "--hazard", "stopped"].map(str::to_owned);
    let hazards = Hazards::start(&[arguments, to_later.to_vec()].concat());
    wait_until("the user is told", || hazards.has_printed("check that HAProxy runs"));
    scene.one.signal(libc::SIGSTOP);
    std::os::unix::fs::symlink(real, &named).unwrap();
    scene.two.signal(libc::SIGSTOP);
    scene.two.signal(libc::SIGCONT);
    scene.wait_for_weights([0, 100]);
    scene.one.signal(libc::SIGCONT);
    scene.wait_for_weights([100, 100]);
}
