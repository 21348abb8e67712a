//! Tests of the load generator against services that misbehave.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::{lab_command, read_json, run_failing, run_ok};

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

/// Starts a service for one connection, whose stream `serve` handles; returns its address.
fn start_service(serve: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || serve(listener.accept().unwrap().0));
    address
}

/// Reads one request of the load generator; returns false at the connection's end.
fn read_request(stream: &mut TcpStream) -> bool {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => request.push(byte[0]),
            _ => return false,
        }
    }
    true
}

/// Returns a command that sends a load of 1000 requests/s for one second over one connection.
fn load_command(target: &str, folder: &Path) -> Command {
    let queries = folder.join("queries");
    std::fs::write(&queries, "and a b\n").unwrap();
    let mut command = lab_command(&["load", "--target", target, "--protocol", "search", "--connections", "1"]);
    command
        .args(["--rate", "1000", "--seconds", "1", "--warmup-seconds", "0", "--seed", "1"])
        .arg("--queries")
        .arg(queries)
        .arg("--json")
        .arg(folder.join("result.json"));
    command
}

/// Checks for coordinated omission. A closed-loop client would report one slow reply among a thousand. But 200 requests
/// are due while the service stalls, and the latency of each must include its wait.
#[test]
fn stall_delays_all_requests_due_during_it() {
    const STALL: Duration = Duration::from_millis(200);
    let target = start_service(|mut stream| {
        let mut served = 0;
        while read_request(&mut stream) {
            served += 1;
            if served == 300 {
                thread::sleep(STALL);
            }
            stream.write_all(REPLY).unwrap();
        }
    });
    let folder = tempfile::tempdir().unwrap();
    run_ok(load_command(&target, folder.path()));

    let result = read_json(&folder.path().join("result.json").display().to_string());
    let at = |key: &str| result[key].as_f64().unwrap();
    assert_eq!(result["errors"], 0);
    assert!(at("max_us") >= 200_000.0, "{result}");
    assert!(at("p99_us") >= 150_000.0, "{result}");
    assert!(at("p90_us") >= 50_000.0, "{result}");
    assert!(at("send_lag_p99_us") >= 100_000.0, "{result}");
}

#[test]
fn a_service_that_closes_midway_is_reported() {
    let target = start_service(|mut stream| {
        for _ in 0..10 {
            read_request(&mut stream);
            stream.write_all(REPLY).unwrap();
        }
        read_request(&mut stream);
    });
    let folder = tempfile::tempdir().unwrap();
    let message = run_failing(load_command(&target, folder.path()), 125);
    assert!(message.contains(&target) && message.contains("closed"), "{message}");
}

#[test]
fn a_wrong_reply_is_reported() {
    let target = start_service(|mut stream| {
        read_request(&mut stream);
        stream.write_all(b"SSH-2.0-lab\r\n").unwrap();
        read_request(&mut stream);
    });
    let folder = tempfile::tempdir().unwrap();
    let message = run_failing(load_command(&target, folder.path()), 125);
    assert!(message.contains("not an HTTP reply") && message.contains("SSH"), "{message}");
}

#[test]
fn missing_service_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    drop(listener);
    let folder = tempfile::tempdir().unwrap();
    let message = run_failing(load_command(&target, folder.path()), 125);
    assert!(message.contains("is the service running"), "{message}");
}

#[test]
fn searches_without_queries_are_a_usage_error() {
    let command = lab_command(&[
        "load",
        "--target",
        "127.0.0.1:1",
        "--protocol",
        "search",
        "--rate",
        "1",
        "--seconds",
        "1",
        "--json",
        "x",
    ]);
    assert!(run_failing(command, 2).contains("--queries"));
}
