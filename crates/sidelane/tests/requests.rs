//! Tests of requests as observed at a service's sockets, compared with the record of the service or the client.
//!
//! Counts and the order of events do not depend on the machine's load; `sidelane-lab bench requests` measures how exact
//! the times are.

mod common;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::agent::SIDELANE;
use common::{Footprint, Watching, can_observe_requests, lab_binary_path, lock_lanes};
use serde_json::Value;
use sidelane_host::service::{Service, Target};
use sidelane_host::topology::Lanes;
use sidelane_lab::bench::workload::{
    DESIGNS, RealServer, RealServerKind, ServiceCpus, compare_echo_server, observe_requests_during,
};
use sidelane_lab::programs::LabBinary;
use sidelane_requests::{Request, Requests, Window};
use sidelane_tracker::tracker::Purpose;
use sidelane_tracker::tracking::{LaneUse, ServiceTracking};

const PLACE: ServiceCpus = ServiceCpus { server_cpu: 0, client_cpu: 1 };
const RATE_PER_S: f64 = 500.0;
const SECONDS: f64 = 2.0;

/// Returns the lanes and the lab, if everything that these tests need exists.
fn lock_lanes_and_find_lab() -> Option<(common::lanes::Turn, LabBinary)> {
    let turn = lock_lanes()?;
    if !can_observe_requests() {
        return None;
    }
    lab_binary_path().map(|path| (turn, LabBinary::with_path(path)))
}

fn check_echo_requests_match(design: &str, ip: &str) {
    let Some((_turn, lab)) = lock_lanes_and_find_lab() else { return };
    let (agreement, window) = compare_echo_server(&lab, design, ip, PLACE, RATE_PER_S, SECONDS).unwrap();
    assert!(agreement.told > 0, "{} requests", agreement.told);
    assert_eq!((agreement.missed, agreement.invented), (0, 0), "of {}", agreement.told);
    assert_eq!(agreement.disordered, 0, "of {}", agreement.told);
    assert_eq!((window.counts.dropped, window.counts.unasked, window.counts.unanswered), (0, 0, 0));
}

#[test]
fn requests_of_an_event_loop_match_its_journal() {
    check_echo_requests_match(DESIGNS[0], "127.0.0.1");
}

#[test]
fn requests_of_a_thread_per_connection_match_its_journal() {
    check_echo_requests_match(DESIGNS[1], "127.0.0.1");
}

#[test]
fn requests_of_a_thread_pool_match_its_journal() {
    check_echo_requests_match(DESIGNS[2], "127.0.0.1");
}

#[test]
fn requests_over_ipv6_match_the_journal() {
    if TcpListener::bind("[::1]:0").is_err() {
        return sidelane_testing::skip("needs IPv6");
    }
    check_echo_requests_match(DESIGNS[0], "::1");
}

fn check_every_request_is_observed(kind: RealServerKind) {
    let Some((_turn, lab)) = lock_lanes_and_find_lab() else { return };
    if !kind.is_installed() {
        return sidelane_testing::skip(format!("needs {}", kind.program()));
    }
    let server = RealServer::start(kind, PLACE).unwrap();
    let mut client = Value::Null;
    let load = || {
        client = server.run_load(&lab, PLACE, RATE_PER_S, SECONDS)?;
        Ok(())
    };
    let (seen, window) = observe_requests_during(server.pid(), PLACE, load).unwrap();
    assert_eq!(Some(server.count_load_requests(&seen)), client["requests"].as_u64());
    // Each request also waited for the client's wakeup. A bucket of the histogram is 3 % wide.
    let latency_us = window.latency.percentile_ns(50.0).unwrap() as f64 / 1e3;
    assert!(latency_us <= client["p50_us"].as_f64().unwrap() * 1.03, "{latency_us} µs in the server, {client}");
    assert!(seen.iter().all(|request| request.arrived_ns <= request.started_ns));
    assert!(seen.iter().all(|request| request.started_ns < request.finished_ns));
}

#[test]
fn every_request_of_redis_is_seen() {
    check_every_request_is_observed(RealServerKind::Redis);
}

#[test]
fn every_request_of_memcached_is_seen() {
    check_every_request_is_observed(RealServerKind::Memcached);
}

/// Runs a service in this process with one connection, controlled by the test: `script` gets the client's end and the
/// service's. Returns the observed requests.
fn observe_scripted_requests(script: impl FnOnce(&mut TcpStream, &mut TcpStream) + Send) -> Option<Vec<Request>> {
    let (_turn, _) = lock_lanes_and_find_lab()?;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server.set_nodelay(true).unwrap();
    let run = || {
        script(&mut client, &mut server);
        Ok(())
    };
    let (seen, _) = observe_requests_during(std::process::id(), PLACE, run).unwrap();
    Some(seen)
}

fn send(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
}

fn receive(stream: &mut TcpStream, length: usize) {
    stream.read_exact(&mut vec![0; length]).unwrap();
}

#[test]
fn a_request_and_a_response_in_parts_are_one() {
    let seen = observe_scripted_requests(|client, server| {
        for _ in 0..3 {
            send(client, b"head");
            receive(server, 4);
            send(client, b"body");
            receive(server, 4);
            send(server, b"head");
            send(server, b"body");
            receive(client, 8);
        }
    });
    let Some(seen) = seen else { return };
    assert_eq!(seen.iter().map(|request| request.sends).collect::<Vec<_>>(), [2, 2, 2]);
}

#[test]
fn a_peek_and_an_empty_receive_take_nothing() {
    let seen = observe_scripted_requests(|client, server| {
        server.set_nonblocking(true).unwrap();
        assert!(server.read(&mut [0]).is_err());
        server.set_nonblocking(false).unwrap();
        send(client, b"ask");
        server.peek(&mut [0; 3]).unwrap();
        receive(server, 3);
        send(server, b"answer");
    });
    assert_eq!(seen.map_or(1, |seen| seen.len()), 1);
}

/// Several requests on one connection before an answer look like parts of one request.
#[test]
fn merged_requests_are_counted() {
    let Some((_turn, _)) = lock_lanes_and_find_lab() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let run = || {
        for parts in [2, 1, 3] {
            (0..parts).for_each(|_| {
                send(&mut client, b"ask");
                receive(&mut server, 3);
            });
            send(&mut server, b"answer");
        }
        Ok(())
    };
    let (seen, window) = observe_requests_during(std::process::id(), PLACE, run).unwrap();
    assert_eq!((seen.len(), window.counts.joined), (3, 2));
    assert!(window.notes().any(|note| note.to_string().contains("67 % of the requests")));
}

#[test]
fn a_service_that_is_named_by_its_port_is_measured_there_alone() {
    let Some((_turn, _)) = lock_lanes_and_find_lab() else { return };
    let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [port, other] = listeners.each_ref().map(|listener| listener.local_addr().unwrap().port());
    let ports = |target: Target| {
        let service = Service { pids: BTreeSet::from([std::process::id()]), ..target.find().unwrap() };
        let lanes = Lanes::without_batch_lanes("0".parse().unwrap());
        let purpose = Purpose::Watch { requests: true };
        let tracking = ServiceTracking::with_own_tracker(&service, &lanes, LaneUse::default(), purpose).unwrap();
        let mut requests = Requests::track(&tracking, "this test", &service.pids).unwrap();
        requests.update_processes(&service.pids).unwrap();
        requests.ports()
    };
    assert_eq!(ports(Target::Port(port)), BTreeSet::from([port]));
    assert!(ports(Target::Pid(std::process::id())).is_superset(&BTreeSet::from([port, other])));
}

#[test]
fn requests_answered_one_by_one_are_told_apart() {
    let seen = observe_scripted_requests(|client, server| {
        (0..3).for_each(|_| send(client, b"ask"));
        receive(server, 9);
        (0..3).for_each(|_| send(server, b"answer"));
    });
    let Some(seen) = seen else { return };
    assert_eq!(seen.len(), 3);
    assert!(seen.windows(2).all(|pair| pair[1].started_ns == pair[0].finished_ns));
    assert_eq!(seen.iter().map(|request| request.waited).collect::<Vec<_>>(), [false, true, true]);
}

#[test]
fn requests_received_and_answered_together_are_one() {
    let seen = observe_scripted_requests(|client, server| {
        (0..3).for_each(|_| send(client, b"ask"));
        receive(server, 9);
        send(server, b"answers");
    });
    assert_eq!(seen.map_or(1, |seen| seen.len()), 1);
}

#[test]
fn a_request_larger_than_segment_and_buffer_is_one() {
    const BYTES: usize = 1 << 20;
    let seen = observe_scripted_requests(|client, server| {
        thread::scope(|scope| {
            scope.spawn(|| send(client, &vec![b'.'; BYTES]));
            receive(server, BYTES);
        });
        send(server, b"answer");
    });
    assert_eq!(seen.map_or(1, |seen| seen.len()), 1);
}

/// Runs a service with one connection for each of `scripts`, which get the client's end and the service's. Returns the
/// figures of their requests.
fn observe_window(scripts: &[fn(TcpStream, TcpStream)]) -> Option<Window> {
    let (_turn, _) = lock_lanes_and_find_lab()?;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let run = || {
        for script in scripts {
            let client = TcpStream::connect(listener.local_addr()?)?;
            script(client, listener.accept()?.0);
        }
        Ok(())
    };
    Some(observe_requests_during(std::process::id(), PLACE, run).unwrap().1)
}

/// Pause before the client closes. A message whose client closes directly after it counts as one that asks for no
/// response.
const LINGER: Duration = Duration::from_millis(5);

fn exchange_request(client: &mut TcpStream, server: &mut TcpStream) {
    send(client, b"ask");
    receive(server, 3);
}

/// Reads until the client has closed its end of the connection.
fn read_to_end(server: &mut TcpStream) {
    assert!(matches!(server.read(&mut [0; 9]), Ok(0) | Err(_)));
}

#[test]
fn a_client_that_closes_has_abandoned_its_request() {
    let window = observe_window(&[
        |mut client, mut server| {
            exchange_request(&mut client, &mut server);
            thread::sleep(LINGER);
            drop(client);
            read_to_end(&mut server);
        },
        // The client closes by a reset.
        |mut client, mut server| {
            exchange_request(&mut client, &mut server);
            thread::sleep(LINGER);
            rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
            drop(client);
            read_to_end(&mut server);
        },
        // The service answers after the client has closed.
        |mut client, mut server| {
            exchange_request(&mut client, &mut server);
            thread::sleep(LINGER);
            drop(client);
            read_to_end(&mut server);
            send(&mut server, b"answer");
            // The service writes until the client's reset has arrived.
            while server.write(b"more").is_ok() {}
        },
        // No thread reads the request.
        |mut client, server| {
            send(&mut client, b"ask");
            thread::sleep(LINGER);
            drop(client);
            server.peek(&mut [0]).unwrap();
        },
    ]);
    let Some(window) = window else { return };
    assert_eq!(window.abandoned.histogram.count(), 4, "{window:?}");
    assert!(window.abandoned.percentile_ns(1.0) >= Some(LINGER.as_nanos() as u64), "{window:?}");
    assert_eq!((window.answered_count(), window.closed_by_service, window.one_way, window.unanswered()), (0, 0, 0, 0));
}

#[test]
fn a_client_that_stops_sending_gets_its_response() {
    let window = observe_window(&[|mut client, mut server| {
        exchange_request(&mut client, &mut server);
        client.shutdown(Shutdown::Write).unwrap();
        read_to_end(&mut server);
        thread::sleep(LINGER);
        send(&mut server, b"answer");
        receive(&mut client, 6);
    }]);
    let Some(window) = window else { return };
    assert_eq!(
        (window.answered_count(), window.abandoned.histogram.count(), window.counts.unanswered),
        (1, 0, 0),
        "{window:?}"
    );
}

#[test]
fn service_that_closes_without_a_response_is_reported() {
    let window = observe_window(&[
        |mut client, mut server| {
            exchange_request(&mut client, &mut server);
            drop(server);
            read_to_end(&mut client);
        },
        // The service closes by a reset, because it leaves unread bytes.
        |mut client, mut server| {
            exchange_request(&mut client, &mut server);
            send(&mut client, b"more");
            server.peek(&mut [0]).unwrap();
            drop(server);
            read_to_end(&mut client);
        },
    ]);
    let Some(window) = window else { return };
    assert_eq!((window.closed_by_service, window.abandoned.histogram.count()), (2, 0), "{window:?}");
}

#[test]
fn another_thread_may_answer_a_request() {
    let seen = observe_scripted_requests(|client, server| {
        for _ in 0..5 {
            send(client, b"ask");
            receive(server, 3);
            thread::scope(|scope| drop(scope.spawn(|| send(server, b"answer"))));
            receive(client, 6);
        }
    });
    assert_eq!(seen.map_or(5, |seen| seen.len()), 5);
}

#[test]
fn the_command_counts_logs_and_leaves_nothing_behind() {
    let Some((_turn, lab)) = lock_lanes_and_find_lab() else { return };
    if !RealServerKind::Memcached.is_installed() {
        return sidelane_testing::skip("needs memcached");
    }
    let before = Footprint::capture();
    let dir = tempfile::tempdir().unwrap();
    let (json, log) = (dir.path().join("figures.json"), dir.path().join("requests.jsonl"));
    let server = RealServer::start(RealServerKind::Memcached, PLACE).unwrap();
    let target = format!("pid:{}", server.pid());
    let files = ["--json", json.to_str().unwrap(), "--log", log.to_str().unwrap()];
    let mut watching = Watching::start(&[&[target.as_str(), "--for", "100s"], &files[..]].concat());
    watching.wait_until_observing();
    let client = server.run_load(&lab, PLACE, RATE_PER_S, 1.0).unwrap();
    let said = watching.stop();
    for word in ["server time", "queueing", "latency", "threads", "seen at its sockets"] {
        assert!(said.contains(word), "no `{word}` in {said}");
    }
    let figures: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(figures["rows"][0]["requests_count"], client["requests"], "{said}");
    let log = std::fs::read_to_string(log).unwrap();
    let number = |line| serde_json::from_str::<Value>(line).unwrap()["number"].as_u64().unwrap();
    let numbers: BTreeSet<u64> = log.lines().map(number).collect();
    assert_eq!(Some(numbers.len() as u64), client["requests"].as_u64());
    before.wait_until_restored();
}

#[test]
fn a_service_without_a_tcp_port_is_refused_with_advice() {
    let Some(_ready) = lock_lanes_and_find_lab() else { return };
    let _socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let service = common::Service::idle();
    let output = Command::new(SIDELANE).args(["requests", "--service", &service.target()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("listens on no TCP port") && said.contains("runtime/c/sidelane.h"), "{said}");
}
