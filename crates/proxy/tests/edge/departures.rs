//! Tests with clients that leave before they get their answer.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use sidelane_policy::hedge::{Hazard, Server};

use crate::scene::{Proxy, TIMEOUT, http_config, with_hedge_timer};
use crate::scripted::{read_to_end, read_until, send_answer, start_recording_server, start_server};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// Starts a server that never answers. Its first channel reports each request, and its second channel each connection
/// that ends after a request.
fn silent_server() -> (SocketAddr, Receiver<()>, Receiver<()>) {
    let ((asked, requests), (closed, ends)) = (channel(), channel());
    let address = start_server(move |mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        asked.send(()).unwrap();
        while matches!(stream.read(&mut [0; 64]), Ok(1..)) {}
        closed.send(()).unwrap();
    });
    (address, requests, ends)
}

fn reset(client: TcpStream) {
    set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
}

#[test]
fn requests_of_departed_clients_are_closed_at_the_server() {
    const CLIENTS: usize = 100;
    let upload = b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello";
    for request in [GET, upload] {
        let (address, requests, ends) = silent_server();
        let (backup, seen) = start_recording_server(|stream, _| send_answer(stream, "backup"));
        let proxy = Proxy::start(http_config(address, Some(backup)));
        let clients: Vec<TcpStream> = (0..CLIENTS).map(|_| proxy.connect()).collect();
        for mut client in &clients {
            client.write_all(request).unwrap();
            requests.recv_timeout(TIMEOUT).expect("the server gets it");
        }
        clients.into_iter().for_each(reset);
        (0..CLIENTS).for_each(|_| ends.recv_timeout(TIMEOUT).expect("the server sees the end"));
        proxy.wait_until("the end", |state| state.in_flight == 0);
        proxy.publish_hazards(Server::FIRST, [Hazard::JvmGc]);
        proxy.wait_until("the swap", |state| state.counts.swaps[Hazard::JvmGc as usize] == 1);
        let counts = proxy.finish().counts;
        assert_eq!((counts.left, counts.hedges, seen.try_iter().count()), (CLIENTS as u64, 0, 0), "{counts:?}");
    }
}

#[test]
fn departed_client_ends_the_answer_at_the_server() {
    let (closed, ends) = channel();
    let address = start_server(move |mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").unwrap();
        while matches!(stream.read(&mut [0; 64]), Ok(1..)) {}
        closed.send(()).unwrap();
    });
    let proxy = Proxy::start(http_config(address, None));
    let mut client = proxy.connect();
    client.write_all(GET).unwrap();
    read_until(&mut client, "half");
    reset(client);
    ends.recv_timeout(TIMEOUT).expect("the server sees the end");
    proxy.wait_until("the end", |state| state.in_flight == 0 && state.counts.left == 1);
}

#[test]
fn half_closed_client_is_answered_and_not_hedged() {
    let (tell, told) = channel::<()>();
    let told = Arc::new(Mutex::new(told));
    let (active, requests) = start_recording_server(move |stream, _| {
        let _ = told.lock().unwrap().recv();
        send_answer(stream, "active")
    });
    let (backup, seen) = start_recording_server(|stream, _| send_answer(stream, "backup"));
    let proxy = Proxy::start(http_config(active, Some(backup)));
    let mut half_closed = proxy.connect();
    half_closed.write_all(b"GET /half HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    half_closed.shutdown(Shutdown::Write).unwrap();
    requests.recv_timeout(TIMEOUT).expect("the server gets it");
    // When the server has this client's request, the proxy has also seen the half-close of the first client.
    let mut open = proxy.connect();
    open.write_all(b"GET /open HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    requests.recv_timeout(TIMEOUT).expect("the server gets it");
    proxy.publish_hazards(Server::FIRST, [Hazard::JvmGc]);
    assert!(read_until(&mut open, "backup").starts_with("HTTP/1.1 200 "));
    (0..2).for_each(|_| tell.send(()).unwrap());
    assert!(read_to_end(&mut half_closed).ends_with("active"));
    let paths: Vec<String> = seen.try_iter().collect();
    assert!(paths.len() == 1 && paths[0].contains("/open"), "{paths:?}");
}

#[test]
fn half_closed_client_counts_as_gone_with_abort_on_close() {
    let (address, requests, ends) = silent_server();
    let mut config = with_hedge_timer(http_config(address, None), TIMEOUT);
    config.limits.abort_on_close = true;
    let proxy = Proxy::start(config);
    let mut client = proxy.connect();
    client.write_all(GET).unwrap();
    requests.recv_timeout(TIMEOUT).expect("the server gets it");
    client.shutdown(Shutdown::Write).unwrap();
    ends.recv_timeout(TIMEOUT).expect("the server sees the end");
    proxy.wait_until("the end", |state| state.in_flight == 0 && state.counts.left == 1);
}
