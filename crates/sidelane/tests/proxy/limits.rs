//! Tests that clients and servers beyond the limits get clear errors, and all others are served.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use serde_json::json;

use crate::common::scripted::{
    read_to_end, refusing_address, send_answer, start_answering_server, start_recording_server, unused_address,
};
use crate::common::wait_until;
use crate::scene::Proxy;

const QUIET: [&str; 2] = ["--hazard", "none"];

/// Starts a proxy in front of a server that answers.
fn start_working_proxy(options: &[&str]) -> Proxy {
    let address = start_answering_server(|stream, _| send_answer(stream, "well"));
    Proxy::start(address, None, &[&QUIET[..], options].concat())
}

#[test]
fn backups_that_cannot_be_used_are_refused() {
    let [active, one, two, three, four] = [(); 5].map(|()| unused_address().to_string());
    let twice = |options| format!("cannot use {active} for {options}; give each its own address");
    for (backups, error) in [
        (vec![&active], twice("both --active and --backup")),
        (vec![&one, &two, &one], format!("cannot use {one} for two --backup; give each its own address")),
        (vec![&one, &two, &three, &four], "cannot use 4 backups; name at most 3".to_owned()),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidelane"));
        command.args(["proxy", "--listen", "127.0.0.1:0", "--active", &active]);
        let ended = command.args(backups.iter().flat_map(|backup| ["--backup", backup])).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(125), "{said}");
        assert!(said.contains(&error), "{said}");
    }
}

#[test]
fn malformed_http_is_refused_with_400() {
    let proxy = start_working_proxy(&[]);
    for wrong in ["hello\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"] {
        assert!(proxy.send_and_read_to_end(wrong.as_bytes()).starts_with("HTTP/1.1 400 "), "{wrong:?}");
    }
    let chunks = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    assert!(proxy.send_and_read_to_end(chunks.as_bytes()).starts_with("HTTP/1.1 400 "));
    assert!(proxy.get("/").ends_with("well"));
}

#[test]
fn a_head_that_is_too_long_is_refused_with_431() {
    let proxy = start_working_proxy(&[]);
    let long = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "x".repeat(40_000));
    assert!(proxy.send_and_read_to_end(long.as_bytes()).starts_with("HTTP/1.1 431 "));
    let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "a: b\r\n".repeat(200));
    assert!(proxy.send_and_read_to_end(many.as_bytes()).starts_with("HTTP/1.1 431 "));
}

#[test]
fn unfinished_head_gets_408_and_delays_no_other_client() {
    let proxy = start_working_proxy(&["--head-time", "200ms"]);
    let mut slow: Vec<TcpStream> = (0..50).map(|_| proxy.connect()).collect();
    slow.iter_mut().for_each(|client| client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nX-").unwrap());
    assert!(proxy.get("/").ends_with("well"));
    for client in &mut slow {
        let answer = read_to_end(client);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
}

#[test]
fn silent_server_gives_504_and_missing_server_502() {
    let (silent, _seen) = start_recording_server(|_, _| {
        std::thread::park();
        true
    });
    let proxy = Proxy::start(silent, None, &[&QUIET[..], &["--answer-time", "200ms"]].concat());
    assert!(proxy.get("/").starts_with("HTTP/1.1 504 "));
    let proxy = Proxy::start(refusing_address(), Some(refusing_address()), &QUIET);
    assert!(proxy.get("/").starts_with("HTTP/1.1 502 "));
    assert_eq!(proxy.finish()["counts"]["failed"], json!(1));
}

#[test]
fn a_flood_of_clients_is_turned_away_with_503_and_ends() {
    const FILES: u64 = 128;
    let (address, _seen) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let proxy = Proxy::start_with_open_file_limits(address, None, &QUIET, Some((FILES, FILES)));
    let mut flood: Vec<TcpStream> = (0..200).map(|_| proxy.connect()).collect();
    let told = read_to_end(&mut flood[60]);
    assert!(told.starts_with("HTTP/1.1 503 "), "{told}");
    // Clients that were admitted are served.
    flood[0].write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    assert!(read_to_end(&mut flood[0]).ends_with("well"));
    drop(flood);
    wait_until("the flood is over", || proxy.get("/").ends_with("well"));
    let summary = proxy.finish();
    assert!(summary["turned_away"].as_u64() > Some(100), "{summary}");
}

#[test]
fn proxy_raises_its_limit_of_open_files() {
    let (address, _seen) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let proxy = Proxy::start_with_open_file_limits(address, None, &QUIET, Some((128, 1024)));
    let mut clients: Vec<TcpStream> = (0..200).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        assert!(read_to_end(client).ends_with("well"));
    }
    assert_eq!(proxy.finish()["turned_away"], json!(0));
}

#[test]
fn wrong_options_are_named() {
    let wrong = [("--active", "9001"), ("--hazard", "gc"), ("--hedge", "sometimes"), ("--budget", "200")];
    for (option, value) in wrong {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sidelane"));
        command.args(["proxy", "--listen", "127.0.0.1:0", "--active", "127.0.0.1:1", option, value]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(option), "{said}");
    }
}
