//! Tests of real programs of several protocols: their requests are counted as their clients count them, or the result
//! says that they are not.
//!
//! No payload is read. So requests that a client writes in one call look like one request, and a handshake looks like a
//! request. The count is compared with the number that each client was told to send.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::process::kill_with_test;
use common::scripted::unused_address;
use common::{Run, Turn, UNTIL_END_OF_INPUT, Watching, can_observe_requests, lock_lanes, wait_until};
use serde_json::Value;
use tempfile::TempDir;

const REQUESTS: u32 = 1000;
/// Largest deviation of the count in percent: a handshake, settings and the end of one connection may add this share.
const OFF_PERCENT_MAX: f64 = 1.0;

const PIECES: &str = "came in several pieces before they were answered";
const IN_ONE_GO: &str = "that a client sends together (pipelining, HTTP/2, gRPC) count as one";
const HANDSHAKES: &str = "if they use TLS, HTTP/2 or WebSocket, their handshakes";

/// Service on its own port, with its own directory, ended when dropped.
struct Service {
    child: Child,
    port: String,
    dir: TempDir,
    _turn: Turn,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Service {
    /// Starts the command that `command` returns for a port and a directory.
    fn start(needs: &[&str], command: impl FnOnce(&str, &Path) -> Command) -> Option<Self> {
        let turn = lock_lanes()?;
        if !can_observe_requests() || !all_installed(needs) {
            return None;
        }
        let (address, dir) = (unused_address(), tempfile::tempdir().unwrap());
        let port = address.port().to_string();
        let mut command = command(&port, dir.path());
        command.current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = kill_with_test(&mut command).spawn().unwrap();
        let service = Self { child, port, dir, _turn: turn };
        wait_until("the service listens", || TcpStream::connect(address).is_ok());
        Some(service)
    }

    /// Returns the counts and the text of `sidelane requests` while `client` sends its requests.
    fn observe_client(&self, client: &mut Command) -> RequestsReport {
        let json = self.dir.path().join("figures.json");
        let target = format!("port:{}", self.port);
        let mut watching = Watching::start(&[&target, "--for", "100s", "--json", json.to_str().unwrap()]);
        watching.wait_until_observing();
        let asked = client.stdin(Stdio::null()).output().unwrap();
        assert!(asked.status.success(), "{client:?}: {}", String::from_utf8_lossy(&asked.stderr));
        let said = watching.stop();
        let figures: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
        let notes = figures["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap().to_owned());
        RequestsReport {
            requests: figures["rows"][0]["requests_count"].as_f64().unwrap(),
            notes: notes.collect(),
            said,
        }
    }
}

struct RequestsReport {
    requests: f64,
    notes: Vec<String>,
    said: String,
}

impl RequestsReport {
    fn is_count_right(&self) -> bool {
        (self.requests / f64::from(REQUESTS) - 1.0).abs() * 100.0 <= OFF_PERCENT_MAX
    }

    /// Fails unless the count is the client's, and the text has no further note that casts doubt on it.
    fn check_count_is_right(&self) {
        assert!(self.is_count_right() && !self.says(PIECES) && !self.says(HANDSHAKES), "{}", self.said);
    }

    /// Fails unless the count differs from the client's, and the text contains these words.
    fn check_count_is_wrong_with(&self, words: &str) {
        assert!(!self.is_count_right(), "{}", self.said);
        self.must_say(words);
    }

    fn must_say(&self, words: &str) {
        assert!(self.says(words), "no `{words}` in {}", self.said);
    }

    fn says(&self, words: &str) -> bool {
        self.notes.iter().any(|note| note.contains(words))
    }
}

/// Returns whether all of `needs` are installed: programs, and modules of Python as `python:NAME`.
fn all_installed(needs: &[&str]) -> bool {
    let missing = needs.iter().find(|need| match need.strip_prefix("python:") {
        Some(module) => !succeeds(python().args(["-c", &format!("import {module}")])),
        None => program(need).is_none(),
    });
    missing.inspect(|missing| sidelane_testing::skip(format!("needs {missing}: run scripts/deps.sh test"))).is_none()
}

fn succeeds(command: &mut Command) -> bool {
    let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    ended.is_ok_and(|status| status.success())
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    places.map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn command(name: &str, arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(program(name).expect("it was looked for"));
    command.args(arguments);
    command
}

/// Returns a command of the system's Python, for which packages install modules.
fn python() -> Command {
    Command::new("/usr/bin/python3")
}

/// Returns a command that runs a program of `protocols/`.
fn script(name: &str, arguments: &[&str]) -> Command {
    let mut command = python();
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protocols").join(name)).args(arguments);
    command
}

/// Creates a self-signed certificate, and its key.
fn certify(dir: &Path) {
    let words = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -keyout key -out certificate";
    assert!(succeeds(command("openssl", &words.split(' ').collect::<Vec<_>>()).current_dir(dir)));
}

fn redis(port: &str, options: &str) -> Command {
    let bare = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
    let mut redis = command("redis-server", &bare);
    redis.args(options.replace("PORT", port).split(' '));
    redis
}

fn redis_benchmark(service: &Service, options: &str) -> Command {
    let options = format!("-p {} -n {REQUESTS} -t ping_mbulk {options}", service.port);
    command("redis-benchmark", &options.split(' ').collect::<Vec<_>>())
}

const REDIS: [&str; 2] = ["redis-server", "redis-benchmark"];

#[test]
fn redis_is_counted_right_until_its_clients_pipeline() {
    let Some(service) = Service::start(&REDIS, |port, _| redis(port, "--port PORT")) else { return };
    service.observe_client(&mut redis_benchmark(&service, "-c 4")).check_count_is_right();
    service.observe_client(&mut redis_benchmark(&service, "-c 4 -P 16")).check_count_is_wrong_with(IN_ONE_GO);
}

#[test]
fn run_that_lends_by_requests_notes_merged_requests() {
    let Some(service) = Service::start(&REDIS, |port, _| redis(port, "--port PORT")) else { return };
    let options = ["--pin-service", "--policy", "fixed-budget", "--budget", "2ms"];
    let mut run = Run::beside_service(format!("port:{}", service.port))
        .with_more_arguments(&options)
        .start_script(UNTIL_END_OF_INPUT);
    run.first_line();
    assert!(succeeds(&mut redis_benchmark(&service, "-c 4 -P 16")));
    let run = run.wait_for_end().expect_exit_code(0);
    assert!(run.result().notes.iter().any(|note| note.contains(IN_ONE_GO)), "{run}");
}

/// Each TLS record is received in two parts, head and body, and still counts as one request.
#[test]
fn redis_over_tls_is_counted_right_on_connections_that_are_kept() {
    let needs = [&REDIS[..], &["openssl"]].concat();
    let options = "--port 0 --tls-port PORT --tls-cert-file certificate --tls-key-file key --tls-auth-clients no";
    let service = Service::start(&needs, |port, dir| {
        certify(dir);
        redis(port, options)
    });
    let Some(service) = service else { return };
    service.observe_client(&mut redis_benchmark(&service, "-c 1 --tls --insecure")).check_count_is_right();
}

#[test]
fn http2_is_counted_right_with_one_stream_at_a_time() {
    let service = Service::start(&["nghttpd", "h2load"], |port, dir| {
        fs::write(dir.join("page"), "answer").unwrap();
        command("nghttpd", &["--no-tls", "-d", ".", port])
    });
    let Some(service) = service else { return };
    let page = format!("http://127.0.0.1:{}/page", service.port);
    let requests = REQUESTS.to_string();
    let load = |streams| command("h2load", &["-n", &requests, "-c", "1", "-m", streams, &page]);
    service.observe_client(&mut load("1")).check_count_is_right();
    service.observe_client(&mut load("10")).check_count_is_wrong_with(IN_ONE_GO);
}

#[test]
fn grpc_is_counted_right_with_one_call_at_a_time() {
    let service = Service::start(&["python:grpc"], |port, _| script("grpc_server.py", &[port]));
    let Some(service) = service else { return };
    let calls = |at_a_time| script("grpc_client.py", &[&service.port, &REQUESTS.to_string(), at_a_time]);
    assert!(service.observe_client(&mut calls("1")).is_count_right());
    service.observe_client(&mut calls("10")).must_say(PIECES);
}

#[test]
fn websockets_are_counted_right_with_one_message_at_a_time() {
    let service = Service::start(&["python:websockets"], |port, _| script("websocket_server.py", &[port]));
    let Some(service) = service else { return };
    let messages = |at_a_time| script("websocket_client.py", &[&service.port, &REQUESTS.to_string(), at_a_time]);
    service.observe_client(&mut messages("1")).check_count_is_right();
    service.observe_client(&mut messages("10")).must_say(PIECES);
}

/// Starts nginx with a certificate.
fn start_nginx() -> Option<Service> {
    Service::start(&["nginx", "openssl"], |port, dir| {
        certify(dir);
        let config = include_str!("protocols/nginx.conf").replace("ADDRESS", &format!("127.0.0.1:{port}"));
        fs::write(dir.join("conf"), config).unwrap();
        command("nginx", &["-c", "conf", "-p", dir.to_str().unwrap()])
    })
}

#[test]
fn tls_handshakes_are_noted_without_keep_alive() {
    let Some(service) = start_nginx() else { return };
    let requests = REQUESTS.to_string();
    let ask = |on_each| script("https_client.py", &[&service.port, &requests, on_each]);
    service.observe_client(&mut ask(&requests)).check_count_is_right();
    service.observe_client(&mut ask("10")).check_count_is_wrong_with(HANDSHAKES);
}

#[test]
fn expect_100_continue_counts_as_a_request_and_is_noted() {
    let Some(service) = Service::start(&[], |port, _| script("http_server.py", &[port])) else { return };
    let seen = service.observe_client(&mut script("http_client.py", &[&service.port, &REQUESTS.to_string()]));
    seen.check_count_is_wrong_with("and a handshake or `100 Continue` counts, too");
}
