//! Tests of TLS to clients: versions, sessions, bodies of any length, and handshakes that fail.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use rustls::{HandshakeKind, ProtocolVersion};
use sidelane_proxy::config::{Config, Protocol};
use sidelane_proxy::http::Forwarded;
use sidelane_proxy::tls::{Tls, TlsFiles};

use crate::certificates::{Certificate, TlsClient, connect};
use crate::scene::{Proxy, http_config, redis_config};
use crate::scripted::{
    read_to_end, read_until, send_answer, start_answering_server, start_recording_server, start_server,
};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
/// Length of a body that takes many records, and more than the buffers of a socket.
const LONG: usize = 3_000_000;

/// Issues a certificate, and starts a proxy that has it; `None` without openssl.
fn start_with_tls(config: Config) -> Option<(Proxy, Certificate)> {
    let dir = tempfile::tempdir().unwrap();
    let certificate = Certificate::issue(dir.path(), "own")?;
    // The directory is needed as long as the certificate.
    std::mem::forget(dir);
    let files = TlsFiles { cert: certificate.cert.clone(), key: certificate.key.clone() };
    let tls = Tls::open(&files, config.protocol).unwrap();
    Some((Proxy::start(Config { tls: Some(tls.config()), ..config }), certificate))
}

fn answering_server() -> SocketAddr {
    start_answering_server(|stream, _| send_answer(stream, "well"))
}

fn expect_answer(client: &mut TlsClient) {
    client.write_all(GET).unwrap();
    let answer = read_until(client, "\r\n\r\nwell");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn both_versions_are_served_and_sessions_resumed() {
    let Some((proxy, certificate)) = start_with_tls(http_config(answering_server(), None)) else { return };
    for (version, number) in
        [(&rustls::version::TLS12, ProtocolVersion::TLSv1_2), (&rustls::version::TLS13, ProtocolVersion::TLSv1_3)]
    {
        let config = certificate.client_config(&[version]);
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut client = connect(&config, proxy.address());
            (0..3).for_each(|_| expect_answer(&mut client));
            assert_eq!((client.conn.protocol_version(), client.conn.handshake_kind()), (Some(number), Some(kind)));
            assert_eq!(client.conn.alpn_protocol(), Some(&b"http/1.1"[..]), "HTTP/2 is not spoken");
        }
    }
    assert_eq!(proxy.finish().handshakes_failed, 0);
}

#[test]
fn servers_learn_that_the_client_spoke_tls() {
    let (address, heads) = start_recording_server(|stream, _| send_answer(stream, "well"));
    let config = Config { forwarded: Forwarded::Set, ..http_config(address, None) };
    let Some((proxy, certificate)) = start_with_tls(config) else { return };
    expect_answer(&mut certificate.connect(proxy.address()));
    let head = heads.recv().unwrap();
    assert!(head.contains("\r\nX-Forwarded-Proto: https\r\n"), "{head}");
    assert!(head.contains("\r\nForwarded: for=127.0.0.1;host=h;proto=https\r\n"), "{head}");
}

/// Starts a server that answers an upload of [`LONG`] bytes with its bytes.
fn mirror() -> SocketAddr {
    start_server(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        let mut body = vec![0; LONG];
        stream.read_exact(&mut body).unwrap();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {LONG}\r\n\r\n").unwrap();
        stream.write_all(&body).unwrap();
    })
}

#[test]
fn long_bodies_arrive_whole_over_tls() {
    let Some((proxy, certificate)) = start_with_tls(http_config(mirror(), None)) else { return };
    let mut client = certificate.connect(proxy.address());
    write!(client, "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {LONG}\r\n\r\n").unwrap();
    let body: Vec<u8> = (0..LONG).map(|at| (at % 251) as u8).collect();
    client.write_all(&body).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("an end that says that nothing is missing");
    assert!(answer.ends_with(&body), "{} bytes", answer.len());
}

/// Starts a relay to `to` that passes on the client's bytes one by one.
fn bytewise_relay(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let client = listener.accept().unwrap().0;
        let server = TcpStream::connect(to).unwrap();
        server.set_nodelay(true).unwrap();
        let (mut from, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut from, &mut back));
        let (mut client, mut byte) = (client, [0]);
        while let Ok(1) = client.read(&mut byte) {
            (&server).write_all(&byte).unwrap();
        }
    });
    address
}

#[test]
fn records_in_single_bytes_are_read() {
    let Some((proxy, certificate)) = start_with_tls(http_config(answering_server(), None)) else { return };
    let mut client = certificate.connect(bytewise_relay(proxy.address()));
    (0..3).for_each(|_| expect_answer(&mut client));
    assert_eq!(proxy.finish().counts.answered, 3);
}

#[test]
fn pipelined_requests_in_one_record_are_answered() {
    let Some((proxy, certificate)) = start_with_tls(http_config(answering_server(), None)) else { return };
    let mut client = certificate.connect(proxy.address());
    client.write_all(&GET.repeat(20)).unwrap();
    (0..20).for_each(|_| drop(read_until(&mut client, "\r\n\r\nwell")));
    assert_eq!(proxy.finish().counts.answered, 20);
}

#[test]
fn broken_off_answer_has_no_regular_end() {
    let address = start_server(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n").unwrap();
    });
    let Some((proxy, certificate)) = start_with_tls(http_config(address, None)) else { return };
    let mut client = certificate.connect(proxy.address());
    client.write_all(GET).unwrap();
    let mut answer = Vec::new();
    let end = client.read_to_end(&mut answer).expect_err("no close_notify");
    assert!(matches!(end.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{end}");
    assert!(answer.ends_with(b"half\r\n"), "{}", answer.escape_ascii());
}

#[test]
fn upgraded_connection_is_a_tunnel_over_tls() {
    let address = start_server(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        stream.write_all(switch.as_bytes()).unwrap();
        let mut body = vec![0; LONG];
        stream.read_exact(&mut body).unwrap();
        stream.write_all(&body).unwrap();
        let _ = stream.shutdown(Shutdown::Both);
    });
    let Some((proxy, certificate)) = start_with_tls(http_config(address, None)) else { return };
    let mut client = certificate.connect(proxy.address());
    client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n").unwrap();
    read_until(&mut client, "\r\n\r\n");
    let body: Vec<u8> = (0..LONG).map(|at| (at % 241) as u8).collect();
    client.write_all(&body).unwrap();
    let mut echoed = Vec::new();
    client.read_to_end(&mut echoed).expect("a regular end");
    assert!(echoed == body, "{} bytes", echoed.len());
}

#[test]
fn redis_commands_are_served_over_tls() {
    const COUNT: usize = 2000;
    let address = start_server(|mut stream| {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            let commands = bytes[..count].iter().filter(|byte| **byte == b'*').count();
            stream.write_all(&b"$4\r\nwell\r\n".repeat(commands)).unwrap();
        }
    });
    let Some((proxy, certificate)) = start_with_tls(redis_config(address, None)) else { return };
    assert_eq!(redis_config(address, None).protocol, Protocol::Redis);
    let mut client = certificate.connect(proxy.address());
    client.write_all(&b"GET k\r\n".repeat(COUNT)).unwrap();
    (0..COUNT).for_each(|_| assert_eq!(read_until(&mut client, "well\r\n"), "$4\r\nwell\r\n"));
    assert_eq!(client.conn.alpn_protocol(), None);
    drop(client);
    assert_eq!(proxy.finish().counts.answered, COUNT as u64);
}

#[test]
fn failed_handshakes_end_the_client_and_are_counted() {
    let Some((proxy, certificate)) = start_with_tls(http_config(answering_server(), None)) else { return };
    let mut plain = proxy.connect();
    plain.write_all(GET).unwrap();
    assert!(!read_to_end(&mut plain).contains("HTTP"), "plain HTTP gets no answer");
    proxy.wait_until("a client without TLS is counted", |state| state.handshakes_failed == 1);
    let mut suspicious = connect(&rogue_config(&certificate), proxy.address());
    suspicious.write_all(GET).expect_err("the client does not trust the certificate");
    drop(suspicious);
    proxy.wait_until("a refused certificate is counted", |state| state.handshakes_failed == 2);
    drop(proxy.connect());
    expect_answer(&mut certificate.connect(proxy.address()));
    proxy.wait_until("all are gone", |state| state.clients == 0);
    assert_eq!(proxy.finish().handshakes_failed, 2, "a health check that only connects is no failure");
}

#[test]
fn handshake_has_a_time_limit() {
    let mut config = http_config(answering_server(), None);
    config.limits.head_time = Duration::from_millis(200);
    let Some((proxy, _)) = start_with_tls(config) else { return };
    assert_eq!(read_to_end(&mut proxy.connect()), "");
    proxy.wait_until("a silent client is counted", |state| state.handshakes_failed == 1);
}

/// Returns the settings of a client that trusts another certificate.
fn rogue_config(certificate: &Certificate) -> std::sync::Arc<rustls::ClientConfig> {
    let other = Certificate::issue(certificate.cert.parent().unwrap(), "other").unwrap();
    other.client_config(rustls::ALL_VERSIONS)
}

#[test]
fn drain_answers_clients_that_had_connected() {
    let Some((proxy, certificate)) = start_with_tls(http_config(answering_server(), None)) else { return };
    let mut idle = certificate.connect(proxy.address());
    expect_answer(&mut idle);
    let mut fresh = certificate.connect(proxy.address());
    proxy.drain();
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).expect("a regular end");
    assert_eq!(rest, b"");
    expect_answer_and_end(&mut fresh);
    drop((idle, fresh));
    let state = proxy.wait_until_drained();
    assert_eq!((state.counts.answered, state.handshakes_failed, state.in_flight), (2, 0, 0), "{state:?}");
}

fn expect_answer_and_end(client: &mut TlsClient) {
    client.write_all(GET).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("a regular end");
    assert!(answer.contains("Connection: close") && answer.ends_with("well"), "{answer}");
}
