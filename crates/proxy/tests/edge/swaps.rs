//! Tests of swaps: to a server that accepts connections slowly, and between several backups.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use sidelane_policy::hedge::{Hazard, Server};

use crate::scene::{Proxy, TIMEOUT, http_config};
use crate::scripted::{read_until, refusing_address, send_answer, start_recording_server};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

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
        client.write_all(GET).unwrap();
        requests.recv_timeout(TIMEOUT).expect("the active server gets it");
    }
    proxy.publish_hazards(Server::FIRST, [Hazard::JvmGc]);
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
    for refusing in 1..=3 {
        let (well, _seen) = start_recording_server(|stream, _| send_answer(stream, "well"));
        let backups = (1..refusing).map(|_| refusing_address()).chain([well]);
        let proxy = Proxy::start(http_config(refusing_address(), backups));
        let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| proxy.connect()).collect();
        clients.iter_mut().for_each(|client| client.write_all(GET).unwrap());
        for client in &mut clients {
            assert!(read_until(client, "well").starts_with("HTTP/1.1 200 "));
        }
        assert_eq!(proxy.finish().counts.swaps[Hazard::Unreachable as usize], refusing);
    }
}

#[test]
fn second_backup_answers_while_two_servers_stand() {
    let (active, at_active) = start_recording_server(|_, _| {
        thread::park();
        true
    });
    let (lose_backup, lost) = channel::<()>();
    let lost = Arc::new(Mutex::new(lost));
    // The first backup stands until its connections end.
    let (first, at_first) = start_recording_server(move |_, _| lost.lock().unwrap().recv().is_ok());
    let (second, _at_second) = start_recording_server(|stream, _| send_answer(stream, "second"));
    let [its_number, first_number, _, _] = Server::ALL;
    let proxy = Proxy::start(http_config(active, [first, second]));
    let ask = || {
        let mut client = proxy.connect();
        client.write_all(GET).unwrap();
        client
    };
    let mut at_both = ask();
    at_active.recv_timeout(TIMEOUT).expect("the active server gets it");
    proxy.publish_hazards(its_number, [Hazard::Stopped]);
    at_first.recv_timeout(TIMEOUT).expect("the first backup gets it, too");
    let mut at_backup = ask();
    at_first.recv_timeout(TIMEOUT).expect("the first backup gets all now");
    proxy.publish_hazards(first_number, [Hazard::Stopped]);
    read_until(&mut at_backup, "second");
    read_until(&mut ask(), "second");
    // This request is at two servers, so the second backup gets it when one of them is lost.
    drop(lose_backup);
    read_until(&mut at_both, "second");
    proxy.publish_hazards(first_number, []);
    proxy.publish_hazards(its_number, []);
    proxy.wait_until("the return", |state| state.active == active);
    let state = proxy.finish();
    let counts = &state.counts;
    assert_eq!((counts.answered, counts.requests, counts.hedges, counts.sent_again), (3, 3, 2, 1), "{counts:?}");
    assert_eq!(counts.swaps[Hazard::Stopped as usize], 2, "{counts:?}");
    assert_eq!(state.by_server.iter().map(|server| server.address).collect::<Vec<_>>(), [active, first, second]);
}
