//! Tests of SIGTERM: requests in flight are answered, and those that outlive the limit are cut and reported.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::common::scripted::{read_to_end, read_until, send_answer, start_recording_server, start_server};
use crate::common::wait_until;
use crate::scene::Proxy;

#[test]
fn requests_in_flight_at_sigterm_are_answered() {
    const CLIENTS: usize = 20;
    let (address, seen) = start_recording_server(|stream, _| {
        thread::sleep(Duration::from_millis(500));
        send_answer(stream, "well")
    });
    let proxy = Proxy::start(address, None, &["--hazard", "none"]);
    let mut idle = proxy.connect();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    read_until(&mut idle, "well");
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n").unwrap();
    }
    (0..=CLIENTS).for_each(|_| drop(seen.recv().unwrap()));
    proxy.send_sigterm();
    assert_eq!(read_to_end(&mut idle), "");
    for client in &mut clients {
        let answer = read_to_end(client);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("well"), "{answer}");
    }
    drop(clients);
    let summary = proxy.summary();
    assert_eq!(summary["counts"]["answered"], json!(CLIENTS + 1), "{summary}");
    assert_eq!(summary["cut_at_end"], json!({"requests": 0, "tunnels": 0}), "{summary}");
}

/// Starts a proxy with a tunnel that neither end closes.
fn start_with_tunnel(drain: &str) -> (Proxy, TcpStream) {
    let address = start_server(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        stream.write_all(switch.as_bytes()).unwrap();
        thread::park();
    });
    let proxy = Proxy::start(address, None, &["--hazard", "none", "--drain", drain]);
    let mut tunnel = proxy.connect();
    tunnel.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n").unwrap();
    read_until(&mut tunnel, "\r\n\r\n");
    (proxy, tunnel)
}

#[test]
fn tunnel_beyond_the_drain_limit_is_cut_and_reported() {
    let (proxy, mut tunnel) = start_with_tunnel("300ms");
    let summary = proxy.finish();
    assert_eq!(summary["cut_at_end"], json!({"requests": 0, "tunnels": 1}), "{summary}");
    assert_eq!(read_to_end(&mut tunnel), "");
}

#[test]
fn a_second_signal_ends_at_once() {
    let (proxy, mut tunnel) = start_with_tunnel("600s");
    proxy.send_sigterm();
    wait_until("it takes no more clients", || TcpStream::connect(proxy.address).is_err());
    // A signal that comes sooner counts as a repetition of the first one.
    thread::sleep(Duration::from_millis(600));
    let summary = proxy.finish();
    assert_eq!(summary["cut_at_end"], json!({"requests": 0, "tunnels": 1}), "{summary}");
    assert_eq!(read_to_end(&mut tunnel), "");
}
