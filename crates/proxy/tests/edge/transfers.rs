//! Tests with answers that are long, cut off, or read slowly.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size;
use sidelane_proxy::config::Config;

use crate::scene::{Proxy, TIMEOUT, http_config};
use crate::scripted::{read_until, start_server};

/// Size of a body that exceeds the buffers on the way.
const LONG: usize = 16 << 20;

/// Starts a server whose answer has no length. It sends `bytes` bytes and then nothing, and reports the end of the
/// connection.
fn endless_server(bytes: usize) -> (SocketAddr, Receiver<()>) {
    let (told, ends) = channel();
    let address = start_server(move |mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        let answer = format!("HTTP/1.1 200 OK\r\n\r\nbegin{}", "x".repeat(bytes));
        let _ = stream.write_all(answer.as_bytes());
        let _ = stream.read(&mut [0]);
        told.send(()).unwrap();
    });
    (address, ends)
}

fn begin_download(proxy: &Proxy) -> TcpStream {
    let mut client = proxy.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    read_until(&mut client, "begin");
    client
}

/// Reads the rest of an answer, and returns how it ends.
fn read_rest(mut client: TcpStream) -> Result<usize, ErrorKind> {
    client.read_to_end(&mut Vec::new()).map_err(|error| error.kind())
}

#[test]
fn answer_without_length_is_reset_when_the_proxy_ends() {
    let config = |address| {
        let mut config = http_config(address, None);
        config.limits.drain = Duration::from_millis(100);
        config
    };
    for is_orderly in [true, false] {
        let proxy = Proxy::start(config(endless_server(0).0));
        let client = begin_download(&proxy);
        match is_orderly {
            true => {
                proxy.drain();
                proxy.wait_until_drained();
            }
            false => drop(proxy.finish()),
        }
        assert_eq!(read_rest(client), Err(ErrorKind::ConnectionReset), "{is_orderly}");
    }
}

fn with_idle_time(mut config: Config, time: Duration) -> Config {
    config.limits.idle_time = time;
    config
}

#[test]
fn client_that_does_not_read_is_reset() {
    let (address, ends) = endless_server(LONG);
    let proxy = Proxy::start(with_idle_time(http_config(address, None), Duration::from_millis(300)));
    let client = begin_download(&proxy);
    ends.recv_timeout(TIMEOUT).expect("the server's connection ends");
    assert_eq!(read_rest(client), Err(ErrorKind::ConnectionReset));
    let counts = proxy.finish().counts;
    assert_eq!((counts.left, counts.answered), (1, 0), "{counts:?}");
}

#[test]
fn slow_but_steady_client_gets_its_whole_answer() {
    /// Duration of slow reading, in units of the idle time. The buffers between server and client are full during this
    /// time.
    const TIMES: u32 = 3;
    let address = start_server(|mut stream| {
        read_until(&mut stream, "\r\n\r\n");
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {LONG}\r\n\r\nbegin");
        stream.write_all(answer.as_bytes()).unwrap();
        let _ = stream.write_all(&vec![b'x'; LONG - 5]);
    });
    let idle_time = Duration::from_secs(2);
    let proxy = Proxy::start(with_idle_time(http_config(address, None), idle_time));
    let mut client = begin_download(&proxy);
    set_socket_recv_buffer_size(&client, 16 << 10).unwrap();
    let (start, mut slowly) = (Instant::now(), 0);
    while start.elapsed() < TIMES * idle_time {
        slowly += client.read(&mut [0; 2048]).unwrap();
        thread::sleep(Duration::from_millis(30));
    }
    set_socket_recv_buffer_size(&client, 1 << 20).unwrap();
    let mut rest = vec![0; LONG - 5 - slowly];
    client.read_exact(&mut rest).unwrap();
}
