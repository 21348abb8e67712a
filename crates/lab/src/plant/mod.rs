//! A service in which some requests are slow, each of exactly one cause that is known: with it one finds out whether
//! somebody who explains slow requests does so rightly.
//!
//! `plant` is the service: it serves one connection after another. `GET /plain` takes some microseconds of work, and
//! `GET /planted` meets the cause, too. [`ask`] is its client, which writes down which request was which, and when.
//!
//! - `accomplice`: a process beside the service that disturbs it when it is told to
//! - `group`: a control group of the service's own
//! - `ways`: how each cause is produced

mod accomplice;
pub mod ask;
mod group;
mod ways;

use std::io::{Read, Write, stdout};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::clock::{Nanos, now_ns};
use crate::place;

/// Longer heads are no requests of our client.
const HEAD_BYTES_MAX: usize = 4096;

/// Options of `plant`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What slows the planted requests
    #[arg(value_enum)]
    cause: Planted,
    /// CPU of the service
    #[arg(long, default_value_t = 0)]
    cpu: usize,
    /// CPU of what disturbs it from elsewhere, and to which it is moved
    #[arg(long, default_value_t = 1)]
    other_cpu: usize,
    /// How long a planted request is disturbed, at least (the kernel decides for Nagle's algorithm)
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    delay_ms: u64,
    /// Microseconds of work for each request
    #[arg(long, value_name = "US", default_value_t = 50)]
    work_us: u64,
    /// Directory on a disk, for reads from it
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

impl Args {
    fn delay_ns(&self) -> Nanos {
        self.delay_ms * 1_000_000
    }
}

/// Causes that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Planted {
    /// The response goes out in two writes, and the client delays its acknowledgement
    Nagle,
    /// Memory is used for the first time
    Faults,
    /// A process of higher priority has the CPU
    Hog,
    /// A real-time thread has the CPU
    Thief,
    /// The group has used up its CPU quota
    Throttle,
    /// Another thread of the service holds a lock
    Lock,
    /// The request reads from a disk
    Disk,
    /// The thread is moved from CPU to CPU
    Migrate,
    /// The process is stopped
    Stop,
    /// The group is frozen
    Freeze,
    /// The request is handed to a thread that is busy
    HandOver,
    /// Another service is asked, which is slow
    Downstream,
    /// Nothing; the client loses the response (ask --lose-ms)
    Retransmit,
}

/// What a planted request meets.
trait Way {
    /// Disturbs the request that runs now.
    fn strike(&mut self) -> Result<()>;

    /// Whether responses go out in two writes, with Nagle's algorithm.
    fn in_two_writes(&self) -> bool {
        false
    }
}

/// Prints `ready port=N pid=N` and serves until killed.
pub fn run(args: &Args) -> Result<()> {
    // First, while this process has one thread: accomplices are forked from it.
    let mut way = ways::prepare(args)?;
    place::pin_to(args.cpu)?;
    let door = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on 127.0.0.1")?;
    println!("ready port={} pid={}", door.local_addr()?.port(), std::process::id());
    stdout().flush().context("cannot print on standard output that the service is ready")?;
    for stream in door.incoming() {
        serve(stream.context("cannot accept a connection")?, &mut *way, args.work_us * 1000)?;
    }
    Ok(())
}

/// Answers all requests of a connection.
fn serve(mut stream: TcpStream, way: &mut dyn Way, work_ns: Nanos) -> Result<()> {
    stream.set_nodelay(!way.in_two_writes())?;
    while let Some(is_planted) = next_request(&mut stream) {
        spin(work_ns);
        if is_planted {
            way.strike()?;
        }
        // A client that is gone is noticed at the next read.
        let _ = answer(&mut stream, is_planted && way.in_two_writes());
    }
    Ok(())
}

/// Reads a request; whether it is a planted one, or none at the connection's end.
fn next_request(stream: &mut TcpStream) -> Option<bool> {
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

fn answer(stream: &mut TcpStream, in_two_writes: bool) -> std::io::Result<()> {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
    const BODY: &[u8] = b"ok\n";
    if in_two_writes {
        stream.write_all(HEAD)?;
        stream.write_all(BODY)
    } else {
        stream.write_all(&[HEAD, BODY].concat())
    }
}

/// Works for so long, without a system call.
fn spin(length_ns: Nanos) {
    let end_ns = now_ns() + length_ns;
    while now_ns() < end_ns {
        std::hint::spin_loop();
    }
}
