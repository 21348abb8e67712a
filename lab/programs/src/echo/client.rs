//! `sidelane-lab echo-client`: an open-loop client whose sending habits make requests hard to tell apart for an outside
//! observer.
//!
//! On some connections it sends several requests without waiting, each in a write of its own. On all other connections,
//! some requests come in two writes, some are larger than a segment, and some ask for a reply in two sends. No request
//! has two of these habits: an observer could find the end of such a request only with knowledge of the protocol.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;

use super::wire::{EchoRequest, HEAD_BYTES, encode_request, parse_reply};
use crate::clock::{Nanos, SECOND_NS, now_ns, seconds_to_ns, timespec};
use crate::poisson::Arrivals;
use crate::rng::Rng;
use crate::{numbers, scheduling};

/// Options of `sidelane-lab echo-client`.
#[derive(Debug, clap::Args)]
pub struct EchoClientArgs {
    /// Address of the service
    #[arg(long, value_name = "IP:PORT")]
    target: SocketAddr,
    /// Requests per second, on average
    #[arg(long, value_parser = numbers::positive)]
    rate: f64,
    /// Seconds to run
    #[arg(long, value_parser = numbers::positive)]
    seconds: f64,
    /// Connections, of which every fourth sends several requests without waiting
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u16).range(4..))]
    connections: u16,
    /// Of a hundred requests, those with one of the habits
    #[arg(long, default_value_t = 10, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    habits: u8,
    /// File for when each request was sent and answered
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    /// CPU to run on
    #[arg(long)]
    cpu: Option<usize>,
}

/// Number of requests that are sent together, on a connection that does not wait for each reply.
const TOGETHER: u64 = 3;
const SMALL_BYTES: usize = 40;
/// Size of a large request body: more than a segment carries, on loopback too.
const LARGE_BYTES: usize = 150_000;
/// Longest time without a reply before the service counts as dead.
const SILENCE_MAX_NS: Nanos = 20 * SECOND_NS;

struct Connection {
    stream: TcpStream,
    /// Ids and send times of the unanswered requests, oldest first.
    under_way: VecDeque<(u64, Nanos)>,
    received: Vec<u8>,
    several: bool,
}

struct Client {
    connections: Vec<Connection>,
    idle: [VecDeque<usize>; 2],
    epoll: OwnedFd,
    rng: Rng,
    habits: f64,
    sent: u64,
    log: BufWriter<File>,
}

/// Sends the load and prints `sent=N` after the last answer.
pub fn run(args: &EchoClientArgs) -> Result<()> {
    scheduling::minimize_timer_slack()?;
    if let Some(cpu) = args.cpu {
        scheduling::pin_to(cpu)?;
    }
    let mut client = Client::connect(args)?;
    // Mean number of requests in a turn: one of eight turns sends [`TOGETHER`] requests, every other turn sends one.
    let mean = 1.0 + (TOGETHER - 1) as f64 / 8.0;
    let start_ns = now_ns();
    let end_ns = start_ns + seconds_to_ns(args.seconds);
    for due_ns in Arrivals::new(Rng::new(1, 1), args.rate / mean).map(|due_ns| start_ns + due_ns) {
        if due_ns >= end_ns {
            break;
        }
        client.receive_until(due_ns)?;
        client.send_next_requests()?;
    }
    client.finish()
}

impl Client {
    fn connect(args: &EchoClientArgs) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let count = usize::from(args.connections);
        let connections = (0..count).map(|number| Connection::open(args.target, number)).collect::<Result<Vec<_>>>()?;
        for (number, connection) in connections.iter().enumerate() {
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&epoll, &connection.stream, data, epoll::EventFlags::IN)?;
        }
        let (several, single) = (0..count).partition(|number| connections[*number].several);
        let log = File::create(&args.log).with_context(|| format!("cannot write {}", args.log.display()))?;
        Ok(Client {
            connections,
            idle: [single, several],
            epoll,
            rng: Rng::new(1, 2),
            habits: f64::from(args.habits) / 100.0,
            sent: 0,
            log: BufWriter::new(log),
        })
    }

    /// Sends one request, or several at once, as soon as a connection is free.
    fn send_next_requests(&mut self) -> Result<()> {
        let several = self.rng.below(8) == 0;
        let since_ns = now_ns();
        let number = loop {
            if let Some(number) = self.idle[usize::from(several)].pop_front() {
                break number;
            }
            self.fail_if_silent(since_ns)?;
            self.receive_replies_until(now_ns() + SECOND_NS)?;
        };
        if several {
            (0..TOGETHER).try_for_each(|_| self.send(number, false, SMALL_BYTES, 0))
        } else {
            self.send_with_random_framing(number)
        }
    }

    /// Sends one request with at most one sending habit, such as a body in two writes.
    fn send_with_random_framing(&mut self, connection_index: usize) -> Result<()> {
        if self.rng.next_f64() >= self.habits {
            return self.send(connection_index, false, SMALL_BYTES, 0);
        }
        match self.rng.below(10) {
            0..5 => self.send(connection_index, true, SMALL_BYTES, 0),
            5..9 => self.send(connection_index, false, SMALL_BYTES, HEAD_BYTES),
            _ => self.send(connection_index, false, LARGE_BYTES, 0),
        }
    }

    /// Sends a request. The first `first_bytes` bytes go out in a write of their own.
    fn send(
        &mut self,
        connection_index: usize,
        reply_in_parts: bool,
        body_bytes: usize,
        first_write_bytes: usize,
    ) -> Result<()> {
        self.sent += 1;
        let bytes = encode_request(EchoRequest { id: self.sent, in_parts: reply_in_parts }, body_bytes);
        let connection = &mut self.connections[connection_index];
        connection.under_way.push_back((self.sent, now_ns()));
        let (first, rest) = bytes.split_at(first_write_bytes);
        if !first.is_empty() {
            connection.stream.write_all(first).context("cannot send")?;
        }
        connection.send_all(rest)
    }

    fn receive_until(&mut self, due_ns: Nanos) -> Result<()> {
        while now_ns() < due_ns {
            self.receive_replies_until(due_ns)?;
        }
        Ok(())
    }

    /// Waits for replies until `end_ns` at the latest, and reads them.
    fn receive_replies_until(&mut self, end_ns: Nanos) -> Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        let timeout = timespec(end_ns.saturating_sub(now_ns()));
        rustix::io::retry_on_intr(|| epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)))?;
        for event in events {
            let number = event.data.u64() as usize;
            let connection = &mut self.connections[number];
            let busy = !connection.under_way.is_empty();
            connection.receive(&mut self.log)?;
            if busy && connection.under_way.is_empty() {
                self.idle[usize::from(connection.several)].push_back(number);
            }
        }
        Ok(())
    }

    fn fail_if_silent(&self, since_ns: Nanos) -> Result<()> {
        ensure!(now_ns() - since_ns < SILENCE_MAX_NS, "the service has not answered for 20 s; is it stuck?");
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        let since_ns = now_ns();
        while self.connections.iter().any(|connection| !connection.under_way.is_empty()) {
            self.fail_if_silent(since_ns)?;
            self.receive_replies_until(now_ns() + SECOND_NS)?;
        }
        self.log.flush().context("cannot write the log")?;
        println!("sent={}", self.sent);
        Ok(())
    }
}

impl Connection {
    fn open(target: SocketAddr, number: usize) -> Result<Self> {
        let stream = TcpStream::connect(target).context("cannot connect; is the service running there?")?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Connection { stream, under_way: VecDeque::new(), received: vec![], several: number.is_multiple_of(4) })
    }

    /// Sends all bytes; a large request may not fit into the socket's buffer at once.
    fn send_all(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(length) => bytes = &bytes[length..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => return Err(error).context("cannot send"),
            }
        }
        Ok(())
    }

    fn receive(&mut self, log: &mut impl Write) -> Result<()> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => anyhow::bail!("the service closed a connection"),
            Ok(length) => self.received.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("a connection broke"),
        }
        let received_ns = now_ns();
        while let Some((id, length)) = parse_reply(&self.received) {
            let (wanted, sent_ns) = self
                .under_way
                .pop_front()
                .context("the service sent a reply without a request; is it `sidelane-lab echo-server`?")?;
            ensure!(
                id == wanted,
                "the service answered request {id}, but the oldest request without a reply is {wanted}; is it \
                 `sidelane-lab echo-server`?"
            );
            writeln!(log, "{id},{sent_ns},{received_ns}").context("cannot write the log")?;
            self.received.drain(..length);
        }
        Ok(())
    }
}
