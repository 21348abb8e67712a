//! Tests of HTTP through the proxy: connections, bodies, and requests that must not be repeated.

use std::io::{Read, Write};
use std::net::Shutdown;

use serde_json::json;

use crate::common::scripted::{
    read_to_end, read_until, refusing_address, send_answer, start_recording_server, start_server,
};
use crate::scene::Proxy;

#[test]
fn connections_are_kept_and_pipelined_answers_are_in_order() {
    let (address, seen) = start_recording_server(|stream, head| send_answer(stream, head.split(' ').nth(1).unwrap()));
    let proxy = Proxy::start(address, None, &["--hazard", "none"]);
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut client = proxy.connect();
    client.write_all((get("/a") + &get("/b") + &get("/c")).as_bytes()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let answers = read_to_end(&mut client);
    let places = ["/a", "/b", "/c"].map(|path| answers.find(path).expect("an answer"));
    assert!(places.is_sorted(), "{answers}");
    assert_eq!((seen.try_iter().count(), &proxy.finish()["counts"]["answered"]), (3, &json!(3)));
}

#[test]
fn unsafe_request_is_sent_once_if_its_server_is_lost() {
    let (breaking, at_first) = start_recording_server(|_, _| false);
    let (whole, at_second) = start_recording_server(|stream, _| send_answer(stream, "whole"));
    let proxy = Proxy::start(breaking, Some(whole), &["--hazard", "none"]);
    let post = "POST /pay HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert!(proxy.send_and_read_to_end(post.as_bytes()).starts_with("HTTP/1.1 502 "));
    assert_eq!((at_first.try_iter().count(), at_second.try_iter().count()), (1, 0));
    assert!(proxy.get("/read").ends_with("whole"));
    assert_eq!((at_first.try_iter().count(), at_second.try_iter().count()), (1, 1));
    assert_eq!(proxy.finish()["counts"]["sent_again"], json!(1));
}

#[test]
fn unsent_request_of_any_method_goes_to_the_backup() {
    let (there, seen) = start_recording_server(|stream, _| send_answer(stream, "there"));
    let proxy = Proxy::start(refusing_address(), Some(there), &["--hazard", "none"]);
    let post = "POST /pay HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert!(proxy.send_and_read_to_end(post.as_bytes()).ends_with("there"));
    assert_eq!(seen.try_iter().count(), 1);
}

#[test]
fn bodies_of_any_kind_arrive_whole_in_both_directions() {
    const LONG: usize = 3_000_000;
    let address = start_server(|mut stream| {
        let head = read_until(&mut stream, "\r\n\r\n");
        let mut body = vec![0; LONG];
        match head.contains("chunked") {
            true => body = read_until(&mut stream, "0\r\n\r\n").into_bytes(),
            false => stream.read_exact(&mut body).unwrap(),
        }
        write!(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len()).unwrap();
        stream.write_all(&body).unwrap();
        stream.write_all(b"\r\n0\r\n\r\n").unwrap();
    });
    let proxy = Proxy::start(address, None, &["--hazard", "none"]);
    let body = "x".repeat(LONG);
    let head = format!("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {LONG}\r\n\r\n");
    let answer = proxy.send_and_read_to_end((head + &body).as_bytes());
    assert!(answer.ends_with(&format!("{LONG:x}\r\n{body}\r\n0\r\n\r\n")), "{} bytes", answer.len());
    let head = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunks = "5\r\nhello\r\n0\r\n\r\n";
    assert!(proxy.send_and_read_to_end(format!("{head}{chunks}").as_bytes()).contains(chunks));
}

#[test]
fn a_client_that_waits_for_100_continue_gets_it_from_the_server() {
    let address = start_server(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        let body = read_until(&mut stream, "!");
        send_answer(&mut stream, &body);
    });
    let proxy = Proxy::start(address, None, &["--hazard", "none"]);
    let mut client = proxy.connect();
    let head = "PUT / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 6\r\n\r\n";
    client.write_all(head.as_bytes()).unwrap();
    assert_eq!(read_until(&mut client, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"hello!").unwrap();
    assert!(read_to_end(&mut client).ends_with("hello!"));
}

#[test]
fn after_an_upgrade_bytes_are_passed_on_in_both_directions() {
    let address = start_server(|mut stream| {
        assert!(read_until(&mut stream, "\r\n\r\n").contains("Upgrade: echo\r\n"));
        let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        stream.write_all(switch.as_bytes()).unwrap();
        let said = read_until(&mut stream, "\n");
        stream.write_all(said.to_uppercase().as_bytes()).unwrap();
    });
    let proxy = Proxy::start(address, None, &["--hazard", "none"]);
    let mut client = proxy.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n").unwrap();
    assert!(read_until(&mut client, "\r\n\r\n").starts_with("HTTP/1.1 101 "));
    client.write_all(b"hello\n").unwrap();
    assert_eq!(read_to_end(&mut client), "HELLO\n");
}

#[test]
fn truncated_answer_is_not_passed_on_as_complete() {
    let address = start_server(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").unwrap();
    });
    let proxy = Proxy::start(address, None, &["--hazard", "none"]);
    let answer = proxy.get("/");
    assert!(answer.contains("Content-Length: 100") && answer.ends_with("half"), "{answer}");
    let counts = &proxy.finish()["counts"];
    assert_eq!((&counts["answered"], &counts["cut"]), (&json!(0), &json!(1)));
}
