//! Tests of a swap to a server that accepts connections slowly.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use sidelane_policy::hedge::{Hazard, Server};

use crate::scene::{Proxy, TIMEOUT, http_config};
use crate::scripted::{read_until, refusing_address, send_answer, start_recording_server};

/// Starts a server whose accept queue holds three connections, and that accepts one of them every 50 ms.
fn server_slow_to_accept(answer: fn(&mut TcpStream) -> bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 2).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                while matches!(stream.peek(&mut [0]), Ok(1..)) {
                    read_until(&mut stream, "\r\n\r\n");
                    if !answer(&mut stream) {
                        return;
                    }
                }
            });
            thread::sleep(Duration::from_millis(50));
        }
    });
    address
}

/// Checks that the backup answers all waiting clients when the active server gets a hazard.
fn check_backup_answers_all(clients: usize, backup: SocketAddr) {
    let (active, requests) = start_recording_server(|_, _| {
        thread::park();
        true
    });
    let mut config = http_config(active, Some(backup));
    config.table.budget.burst = clients as u64;
    let proxy = Proxy::start(config);
    let mut clients: Vec<TcpStream> = (0..clients).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        requests.recv_timeout(TIMEOUT).expect("the active server gets it");
    }
    proxy.publish_hazards(Server::First, [Hazard::JvmGc]);
    for client in &mut clients {
        let answer = read_until(client, "backup");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let counts = proxy.finish().counts;
    assert_eq!(counts.answered, clients.len() as u64, "{counts:?}");
    let swaps = [Hazard::JvmGc, Hazard::Unreachable].map(|hazard| counts.swaps[hazard as usize]);
    assert_eq!(swaps, [1, 0], "{counts:?}");
}

#[test]
fn burst_of_requests_causes_no_burst_of_connects() {
    check_backup_answers_all(300, server_slow_to_accept(|stream| send_answer(stream, "backup")));
}

#[test]
fn server_that_closes_connections_gets_one_at_a_time() {
    let closes = |stream: &mut TcpStream| {
        let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 6\r\n\r\nbackup";
        stream.write_all(answer).unwrap();
        false
    };
    check_backup_answers_all(12, server_slow_to_accept(closes));
}

#[test]
fn queued_requests_go_to_backup_if_no_server_listens() {
    const CLIENTS: usize = 100;
    let (well, _seen) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let proxy = Proxy::start(http_config(refusing_address(), Some(well)));
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| proxy.connect()).collect();
    clients.iter_mut().for_each(|client| client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap());
    for client in &mut clients {
        assert!(read_until(client, "well").starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(proxy.finish().counts.swaps[Hazard::Unreachable as usize], 1);
}
