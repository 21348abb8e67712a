//! A service in which some requests are slow, each for exactly one known cause. It tests tools that explain slow
//! requests.
//!
//! `plant` is the service: it serves one connection after another. `GET /plain` takes some microseconds of work. `GET
//! /planted` takes the same work and is also slowed by the cause. [`ask`] is its client, which records the kind and the
//! times of each request.
//!
//! - `accomplice`: the helper process that disturbs the service on request
//! - `event_loop`: the service as an event loop
//! - `group`: a cgroup for the service alone
//! - `cause`: the causes that can be planted; `causes`: how each cause is produced

mod accomplice;
pub mod ask;
mod cause;
mod causes;
mod event_loop;
mod group;

use std::io::{Read, Write, stdout};
use std::net::{TcpListener, TcpStream};

use anyhow::{Context, Result};

use crate::clock::Nanos;
use crate::scheduling;
pub use cause::PlantArgs;
use cause::{Planted, PlantedCause, spin};

/// Longest head of a request; the lab's client sends shorter ones.
const HEAD_BYTES_MAX: usize = 4096;

/// Prints `ready port=N pid=N` and serves until killed.
pub fn run(args: &PlantArgs) -> Result<()> {
    // Prepares the cause first, while this process has only one thread: the cause's helper process is forked from it.
    let mut way = causes::prepare_cause(args)?;
    scheduling::pin_to(args.cpu)?;
    let address = causes::listen_address(args.cause);
    let door = TcpListener::bind((address, 0)).with_context(|| format!("cannot listen on {address}"))?;
    // Sets the congestion control, which a connection inherits from its listener. BBR would treat a slow reader as a
    // slow network and pace. That would be a second cause beside the planted one.
    rustix::net::sockopt::set_tcp_congestion(&door, "reno").context("cannot set the congestion control reno")?;
    println!("ready port={} pid={}", door.local_addr()?.port(), std::process::id());
    stdout().flush().context("cannot print on standard output that the service is ready")?;
    if args.cause == Planted::EventLoop {
        return event_loop::serve_clients(&door, args);
    }
    for stream in door.incoming() {
        serve_connection(stream.context("cannot accept a connection")?, &mut *way, args.work_us * 1000)?;
    }
    Ok(())
}

/// Answers all requests of a connection.
fn serve_connection(mut stream: TcpStream, cause: &mut dyn PlantedCause, work_ns: Nanos) -> Result<()> {
    stream.set_nodelay(!cause.sends_response_in_two_writes())?;
    while let Some(is_planted) = next_request_is_planted(&mut stream) {
        spin(work_ns);
        if is_planted {
            cause.disturb_request()?;
        }
        // Ignores a failed send: the next read notices that the client has closed the connection.
        let bytes = if is_planted { cause.response_bytes() } else { 0 };
        let _ = send_response(&mut stream, is_planted && cause.sends_response_in_two_writes(), bytes);
    }
    Ok(())
}

/// Reads a request and returns whether it is a planted one; `None` at the connection's end.
fn next_request_is_planted(stream: &mut TcpStream) -> Option<bool> {
    let mut head = [0; HEAD_BYTES_MAX];
    let mut length = 0;
    while !head[..length].ends_with(b"\r\n\r\n") {
        match stream.read(&mut head[length..]) {
            Ok(0) | Err(_) => return None,
            Ok(read) => length += read,
        }
    }
    Some(head[..length].starts_with(b"GET /planted "))
}

fn send_response(stream: &mut TcpStream, in_two_writes: bool, body_bytes: usize) -> std::io::Result<()> {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
    const BODY: &[u8] = b"ok\n";
    if body_bytes > 0 {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {body_bytes}\r\n\r\n");
        stream.write_all(&[head.as_bytes(), &vec![b'.'; body_bytes]].concat())
    } else if in_two_writes {
        stream.write_all(HEAD)?;
        stream.write_all(BODY)
    } else {
        stream.write_all(&[HEAD, BODY].concat())
    }
}
