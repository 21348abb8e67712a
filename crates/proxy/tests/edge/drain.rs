//! Tests of the drain at the end of a proxy.

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use sidelane_proxy::config::Config;

use crate::scene::{Proxy, http_config, redis_config};
use crate::scripted::{read_to_end, read_until, send_answer, start_answering_server, start_server};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// Starts a server that answers a request for `/slow` only after a message on the returned channel.
fn server_with_delayed_answer() -> (std::net::SocketAddr, Sender<()>) {
    let (tell, told) = channel::<()>();
    let told = Arc::new(Mutex::new(told));
    let address = start_answering_server(move |stream, head| {
        if head.contains("/slow") {
            let _ = told.lock().unwrap().recv();
        }
        send_answer(stream, "well")
    });
    (address, tell)
}

fn send_request(client: &mut TcpStream, path: &str) {
    client.write_all(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).unwrap();
}

#[test]
fn requests_in_flight_are_answered_and_idle_connections_closed() {
    const SLOW: usize = 5;
    let (address, tell) = server_with_delayed_answer();
    let proxy = Proxy::start(http_config(address, None));
    let mut idle = proxy.connect();
    send_request(&mut idle, "/");
    let answer = read_until(&mut idle, "well");
    assert!(!answer.contains("Connection: close"), "{answer}");
    let mut slow: Vec<TcpStream> = (0..SLOW).map(|_| proxy.connect()).collect();
    slow.iter_mut().for_each(|client| send_request(client, "/slow"));
    proxy.wait_until("the requests", |state| state.in_flight == SLOW);
    // This client connects before the drain, and sends its request after the begin of the drain.
    let mut fresh = proxy.connect();
    proxy.drain();
    assert_eq!(read_to_end(&mut idle), "", "an idle connection is closed");
    assert!(proxy.refuses(), "no client comes any more");
    send_request(&mut fresh, "/");
    let answer = read_to_end(&mut fresh);
    assert!(answer.contains("Connection: close") && answer.ends_with("well"), "{answer}");
    (0..SLOW).for_each(|_| tell.send(()).unwrap());
    for client in &mut slow {
        let answer = read_to_end(client);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("well"), "{answer}");
        assert!(answer.contains("Connection: close"), "{answer}");
    }
    drop((slow, fresh));
    let state = proxy.wait_until_drained();
    assert_eq!((state.counts.answered, state.in_flight, state.clients), (SLOW as u64 + 2, 0, 0), "{state:?}");
}

fn with_drain_limit(config: Config, limit: Duration) -> Config {
    let mut config = config;
    config.limits.drain = limit;
    config
}

#[test]
fn connections_beyond_the_drain_limit_are_cut_and_reported() {
    let address = start_server(|mut stream| {
        let head = read_until(&mut stream, "\r\n\r\n");
        if head.contains("Upgrade") {
            let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
            stream.write_all(switch.as_bytes()).unwrap();
            let said = read_until(&mut stream, "\n");
            stream.write_all(said.as_bytes()).unwrap();
        }
        thread::park();
    });
    let proxy = Proxy::start(with_drain_limit(http_config(address, None), Duration::from_millis(500)));
    let mut tunnel = proxy.connect();
    tunnel.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n").unwrap();
    read_until(&mut tunnel, "\r\n\r\n");
    let mut waiting = proxy.connect();
    waiting.write_all(GET).unwrap();
    let mut idle = proxy.connect();
    proxy.wait_until("both", |state| state.in_flight == 1 && state.tunnels == 1 && state.clients == 3);
    proxy.drain();
    tunnel.write_all(b"still here\n").unwrap();
    assert_eq!(read_until(&mut tunnel, "\n"), "still here\n");
    assert_eq!(read_to_end(&mut idle), "");
    let state = proxy.wait_until_drained();
    assert_eq!((state.in_flight, state.tunnels), (1, 1), "{state:?}");
    assert_eq!((read_to_end(&mut tunnel), read_to_end(&mut waiting)), (String::new(), String::new()));
}

#[test]
fn redis_clients_get_pending_replies_during_the_drain() {
    let (tell, told) = channel::<()>();
    let told = Arc::new(Mutex::new(told));
    let address = start_server(move |mut stream| {
        for _ in 0..2 {
            read_until(&mut stream, "key\r\n");
        }
        told.lock().unwrap().recv().unwrap();
        stream.write_all(b"+one\r\n+two\r\n").unwrap();
        thread::park();
    });
    let proxy = Proxy::start(redis_config(address, None));
    let (mut idle, mut owed) = (proxy.connect(), proxy.connect());
    owed.write_all(b"GET key\r\nGET key\r\n").unwrap();
    proxy.wait_until("both commands", |state| state.in_flight == 2 && state.clients == 2);
    proxy.drain();
    assert_eq!(read_to_end(&mut idle), "");
    tell.send(()).unwrap();
    assert_eq!(read_to_end(&mut owed), "+one\r\n+two\r\n");
    drop(owed);
    let state = proxy.wait_until_drained();
    assert_eq!((state.counts.answered, state.in_flight, state.clients), (2, 0, 0), "{state:?}");
}
