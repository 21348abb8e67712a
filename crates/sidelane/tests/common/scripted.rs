//! HTTP servers that behave as a test says, and functions that read what clients receive.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::net::{AddressFamily, SocketType};

/// Reads to the end of the connection. A reset counts as an end, too.
pub fn read_to_end(client: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let _ = client.read_to_end(&mut all);
    String::from_utf8_lossy(&all).into_owned()
}

/// Reads until the text `end` has come. Returns all that was read.
pub fn read_until(stream: &mut impl Read, end: &str) -> String {
    let mut all = Vec::new();
    let mut byte = [0];
    while !all.ends_with(end.as_bytes()) {
        match stream.read(&mut byte) {
            Ok(1) => all.push(byte[0]),
            other => panic!("{other:?} after {}", all.escape_ascii()),
        }
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// Starts a server in this process: each connection is served by `serve`.
pub fn start_server(serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Starts a server that calls `answer` with each request head that it reads, until that returns false.
pub fn start_answering_server(
    answer: impl Fn(&mut TcpStream, &str) -> bool + Send + Sync + Clone + 'static,
) -> SocketAddr {
    start_server(move |mut stream| {
        while let Some(head) = read_head(&mut stream) {
            if !answer(&mut stream, &head) {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        }
    })
}

/// Starts a server that sends each request head that it reads to a channel, and then calls `answer`. It ends when the
/// receiver is dropped.
pub fn start_recording_server(
    answer: impl Fn(&mut TcpStream, &str) -> bool + Send + Sync + Clone + 'static,
) -> (SocketAddr, Receiver<String>) {
    let (sender, receiver) = channel();
    let address =
        start_answering_server(move |stream, head| sender.send(head.to_owned()).is_ok() && answer(stream, head));
    (address, receiver)
}

fn read_head(stream: &mut TcpStream) -> Option<String> {
    let (mut all, mut byte) = (Vec::new(), [0]);
    while !all.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        all.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&all).into_owned())
}

/// Sends an answer with this body. Returns whether it was sent.
pub fn send_answer(stream: &mut TcpStream, body: &str) -> bool {
    stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).is_ok()
}

/// Sends an answer with this status and body, in one piece. If a server closes while parts of its answer are
/// unacknowledged and parts of the request unread, these parts of the answer are lost.
pub fn send_answer_with_status(stream: &mut TcpStream, status: u16, body: &str) -> bool {
    let answer = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).is_ok()
}

/// Returns an address that refuses connections until this process ends: its port is taken, and no socket listens there.
pub fn refusing_address() -> SocketAddr {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
    std::mem::forget(socket);
    address
}

/// Returns an address that a server of the test can listen at.
pub fn unused_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
