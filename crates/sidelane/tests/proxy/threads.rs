//! Tests of several serving threads: clients are divided, roles are common, and an end loses nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::common::nginx::Nginx;
use crate::common::scripted::{
    read_to_end, read_until, send_answer, send_answer_with_status, start_answering_server, start_recording_server,
};
use crate::common::tls::Certificate;
use crate::common::wait_until;
use crate::scene::Proxy;

const TWO_THREADS: [&str; 2] = ["--threads", "2"];
const CLIENTS: usize = 6;

fn send_get(client: &mut impl Write, path: &str) {
    client.write_all(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).unwrap();
}

#[test]
fn clients_are_divided_and_their_counts_added_up() {
    let server = start_answering_server(|stream, _| send_answer(stream, "well"));
    let proxy = Proxy::start(server, None, &[&TWO_THREADS[..], &["--hazard", "none"]].concat());
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| proxy.connect()).collect();
    let mut numbers: Vec<String> = Vec::new();
    for client in &mut clients {
        send_get(client, "/here");
        let answer = read_until(client, "\r\n\r\nwell");
        let number = answer.lines().find_map(|line| line.strip_prefix("Sidelane-Request: ")).expect("a number");
        numbers.push(number.to_owned());
    }
    let of_first = numbers.iter().filter(|number| number.split('-').next().unwrap().parse::<u64>().unwrap() % 2 == 1);
    assert_eq!(of_first.count(), CLIENTS / 2, "each thread has half of the clients: {numbers:?}");
    for number in &numbers {
        let told = proxy.get(&format!("/.sidelane/trace/{number}"));
        assert!(told.contains("GET /here"), "each thread answers for the other one: {told}");
    }
    assert!(proxy.get("/.sidelane/trace/2-0000000000000000").starts_with("HTTP/1.1 404 "));
    let summary = proxy.finish();
    assert_eq!(summary["counts"]["answered"], json!(CLIENTS), "{summary}");
}

#[test]
fn hazard_moves_the_requests_of_all_threads() {
    let (Some(one), Some(two)) = (Nginx::start("one"), Nginx::start("two")) else { return };
    let options = [&TWO_THREADS[..], &["--hazard", "stopped"]].concat();
    let proxy = Proxy::start(one.address, Some(two.address), &options);
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| proxy.connect()).collect();
    let mut ask_all = |name: &str| {
        clients.iter_mut().for_each(|client| send_get(client, "/"));
        clients.iter_mut().for_each(|client| drop(read_until(client, &format!("\r\n\r\n{name}"))));
    };
    ask_all("one");
    one.signal(libc::SIGSTOP);
    // Some of these requests are in flight at the stopped server when the first thread notices the stop.
    (0..20).for_each(|_| ask_all("two"));
    one.signal(libc::SIGCONT);
    wait_until("requests went back", || proxy.get("/").ends_with("one"));
    ask_all("one");
    drop(clients);
    let summary = proxy.finish();
    assert_eq!(summary["swaps"], json!({"stopped": 1}), "{summary}");
    assert_eq!(summary["counts"]["answered"], summary["counts"]["requests"], "{summary}");
}

#[test]
fn failures_of_all_threads_eject_a_server_once() {
    let (fails, seen) = start_recording_server(|stream, _| send_answer_with_status(stream, 503, "fails"));
    let (well, _at_backup) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let proxy = Proxy::start(fails, Some(well), &[&TWO_THREADS[..], &["--hazard", "none"]].concat());
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| proxy.connect()).collect();
    for client in &mut clients[..5] {
        send_get(client, "/");
        assert!(read_until(client, "\r\n\r\nfails").starts_with("HTTP/1.1 503 "));
    }
    for client in &mut clients {
        send_get(client, "/");
        read_until(client, "\r\n\r\nwell");
    }
    wait_until("the user is told", || proxy.has_printed("is out of service for 30 s: 5 requests in a row failed"));
    drop(clients);
    let summary = proxy.finish();
    assert_eq!((&summary["by_server"][0]["ejections"], seen.try_iter().count()), (&json!(1), 5), "{summary}");
}

/// Sends requests until the proxy refuses connections. Returns the number of answers. A request on a kept connection that
/// the proxy closed at the same time is sent again, as HTTP clients do.
fn ask_until_refused<T: Read + Write>(connect: impl Fn() -> Option<T>, answered: &AtomicUsize) {
    while let Some(mut client) = connect() {
        loop {
            let sent = client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").and_then(|()| client.flush());
            let mut answer = Vec::new();
            let mut byte = [0];
            while sent.is_ok() && !answer.ends_with(b"\r\n\r\nwell") && matches!(client.read(&mut byte), Ok(1)) {
                answer.push(byte[0]);
            }
            if answer.is_empty() {
                break;
            }
            let answer = String::from_utf8(answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("well"), "an answer is cut: {answer}");
            answered.fetch_add(1, Ordering::Relaxed);
            if answer.contains("Connection: close") {
                break;
            }
        }
    }
}

/// Connects a client; `None` if the proxy takes no more clients.
fn connect(address: SocketAddr) -> Option<TcpStream> {
    let client = TcpStream::connect(address).ok()?;
    client.set_read_timeout(Some(crate::common::TIMEOUT)).unwrap();
    Some(client)
}

#[test]
fn sigterm_under_load_loses_no_request_of_two_threads() {
    let server = start_answering_server(|stream, _| {
        thread::sleep(Duration::from_millis(1));
        send_answer(stream, "well")
    });
    let dir = tempfile::tempdir().unwrap();
    let certificate = Certificate::issue(dir.path(), "own");
    let files = certificate.as_ref().map(|own| [own.cert.to_str().unwrap(), own.key.to_str().unwrap()]);
    for files in [None, files].into_iter().take(1 + usize::from(files.is_some())) {
        let tls = files.map(|[cert, key]| ["--tls-cert", cert, "--tls-key", key]);
        let options = [&TWO_THREADS[..], &["--hazard", "none"], tls.as_ref().map_or(&[], |tls| &tls[..])].concat();
        let proxy = Proxy::start(server, None, &options);
        let (address, answered, ends) = (proxy.address, AtomicUsize::new(0), AtomicBool::new(false));
        let summary = thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| match files.and(certificate.as_ref()) {
                    None => ask_until_refused(|| connect(address), &answered),
                    Some(own) => {
                        let config = own.client_config(rustls::ALL_VERSIONS);
                        ask_until_refused(
                            || connect(address).map(|socket| crate::common::tls::wrap(&config, socket)),
                            &answered,
                        )
                    }
                });
            }
            // A client that comes anew for each request.
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) && files.is_none() {
                    let Some(mut client) = connect(address) else { break };
                    if client.write_all(b"GET / HTTP/1.0\r\n\r\n").is_ok() && read_to_end(&mut client).ends_with("well")
                    {
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            wait_until("there is load", || answered.load(Ordering::Relaxed) > 300);
            proxy.send_sigterm();
            let summary = proxy.summary();
            ends.store(true, Ordering::Relaxed);
            summary
        });
        let counts = &summary["counts"];
        assert_eq!(counts["answered"], json!(answered.into_inner()), "each answer reached its client: {summary}");
        assert_eq!(
            (&counts["failed"], &counts["cut"], &counts["requests"]),
            (&json!(0), &json!(0), &counts["answered"])
        );
        assert_eq!(summary["cut_at_end"], json!({"requests": 0, "tunnels": 0}), "{summary}");
    }
}

#[test]
fn access_log_has_the_lines_of_all_threads() {
    let server = start_answering_server(|stream, _| send_answer(stream, "well"));
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("access.log");
    let options = [&TWO_THREADS[..], &["--hazard", "none", "--access-log", log.to_str().unwrap()]].concat();
    let proxy = Proxy::start(server, None, &options);
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| proxy.connect()).collect();
    for number in 0..5 * CLIENTS {
        let client = &mut clients[number % CLIENTS];
        send_get(client, &format!("/{number}/"));
        read_until(client, "\r\n\r\nwell");
    }
    drop(clients);
    assert_eq!(proxy.finish()["log_lines_lost"], json!(0));
    let text = std::fs::read_to_string(log).unwrap();
    assert_eq!(text.lines().count(), 5 * CLIENTS, "{text}");
    (0..5 * CLIENTS).for_each(|number| assert_eq!(text.matches(&format!("GET /{number}/ ")).count(), 1));
}
