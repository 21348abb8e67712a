//! Tests with servers that close a connection just before a request comes on it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::scene::{Proxy, TIMEOUT, http_config};
use crate::scripted::{read_until, send_answer};

/// Size of a body that exceeds the receive buffer of a connection to [`FullServer`].
const BODY: usize = 8192;
/// Maximum number of attempts to send a request within 100 ms after another one.
const ATTEMPTS: usize = 20;

/// Server whose first connection accepts only one head. Bytes sent there later stay in the proxy's kernel.
struct FullServer {
    address: SocketAddr,
    /// Channel that makes the server close its sending direction of the first connection.
    end: Sender<()>,
    /// Channel that reports how the proxy ended the first connection.
    ends: Receiver<Result<usize, ErrorKind>>,
}

impl FullServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Accepted connections inherit the buffer size from the listener.
        set_socket_recv_buffer_size(&listener, 1).unwrap();
        let address = listener.local_addr().unwrap();
        let ((end, asked), (told, ends)) = (channel::<()>(), channel());
        thread::spawn(move || {
            let mut first = listener.accept().unwrap().0;
            thread::spawn(move || {
                read_until(&mut first, "\r\n\r\n");
                send_answer(&mut first, "first");
                asked.recv().unwrap();
                first.shutdown(Shutdown::Write).unwrap();
                let _ = told.send(first.read_to_end(&mut Vec::new()).map_err(|error| error.kind()));
            });
            for mut stream in listener.incoming().map_while(Result::ok) {
                read_until(&mut stream, "/second");
                read_until(&mut stream, "end");
                send_answer(&mut stream, "well");
            }
        });
        Self { address, end, ends }
    }
}

/// Sends `request` after another request on the same connection. Returns the answer to `request`, and how the proxy
/// ended the connection of the first request.
fn send_second_request(request: &str) -> (String, Result<usize, ErrorKind>) {
    let server = FullServer::start();
    let proxy = Proxy::start(http_config(server.address, None));
    let mut client = proxy.connect();
    let first = format!("POST /first HTTP/1.1\r\nHost: h\r\nContent-Length: {BODY}\r\n\r\n{}", "x".repeat(BODY));
    client.write_all(first.as_bytes()).unwrap();
    read_until(&mut client, "first");
    // A state from before this would pass for one with the second request.
    proxy.wait_until("the end of the first request", |state| state.counts.answered == 1 && state.in_flight == 0);
    client.write_all(request.as_bytes()).unwrap();
    proxy.wait_until("the second request", |state| state.in_flight == 1 || state.counts.answered == 2);
    server.end.send(()).unwrap();
    let answer = read_answer(&mut client);
    proxy.finish();
    (answer, server.ends.recv_timeout(TIMEOUT).unwrap())
}

fn read_answer(client: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(b"well") && !answer.ends_with(b"lost\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn a_request_that_its_server_cannot_have_read_is_sent_again() {
    let (answer, end) = send_second_request("GET /second HTTP/1.1\r\nHost: h\r\nX: end\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(end, Err(ErrorKind::ConnectionReset), "the server does not get it later");
}

#[test]
fn a_body_that_its_server_cannot_have_read_is_sent_again() {
    // Try several times: after more than 100 ms, the proxy would not reuse the connection and would not send the body
    // on it.
    let was_sent_there = (0..ATTEMPTS).any(|_| {
        let (answer, end) = send_second_request("POST /second HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nend");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        end == Err(ErrorKind::ConnectionReset)
    });
    assert!(was_sent_there);
}
