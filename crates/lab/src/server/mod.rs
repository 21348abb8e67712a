//! A service of one thread: it does all work, and sleeps in the kernel when there is none.
//!
//! It is like the Lucene demo server of Elfen's section 5, but requests queue in one place: they
//! wait in their sockets, and epoll returns the sockets in the order in which they became ready.
//! One thread makes service times independent of each other. What a request is, and what the answer
//! to it, is up to an [`Answer`].

mod connection;

use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;

use crate::sibling::{Pace, PaceArgs};
use connection::Connection;

/// Sockets taken from epoll at a time.
const EVENTS_MAX: usize = 64;

/// The listening socket's number in epoll; a connection's number is its slot.
const LISTENER: u64 = u64::MAX;

/// What a service does with what it receives.
pub trait Answer {
    /// Answers the first request in `received`, and appends the answer to `reply`.
    fn answer(&mut self, received: &[u8], reply: &mut Vec<u8>) -> Answered;
}

/// What became of the first request.
#[derive(Debug, PartialEq, Eq)]
pub enum Answered {
    /// Its end has not arrived yet.
    Partial,
    /// The request had `length` bytes and is answered.
    Whole { length: usize, fate: Fate },
}

/// Whether a connection stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Keep,
    Close,
}

/// Where a service listens, and how late it answers.
#[derive(Debug, clap::Args)]
pub struct ServerArgs {
    /// Port on 127.0.0.1; 0 picks a free one
    #[arg(long)]
    port: u16,
    /// Answer each request as late as beside a real sibling lane
    #[command(flatten)]
    pace: PaceArgs,
}

/// Serves until killed.
pub fn run(args: &ServerArgs, answer: impl Answer) -> Result<()> {
    let sibling = args.pace.find()?;
    let mut pace = sibling.as_ref().map(|sibling| sibling.join()).transpose()?;
    let mut server = Server::bind(answer, args.port)?;
    announce(server.listener.local_addr()?.port())?;
    loop {
        server.serve_ready(&mut pace)?;
    }
}

/// Tells the parent process that the service accepts connections, and on which port.
fn announce(port: u16) -> Result<()> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "ready port={port} pid={}", std::process::id())
        .and_then(|()| stdout.flush())
        .context("cannot print on standard output that the service is ready")
}

struct Server<A> {
    answer: A,
    listener: TcpListener,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    /// Slots of closed connections are `None` until used again.
    connections: Vec<Option<Connection>>,
}

impl<A: Answer> Server<A> {
    fn bind(answer: A, port: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).with_context(|| {
            format!(
                "cannot listen on 127.0.0.1:{port}; is another service there? \
                     (--port 0 picks a free one)"
            )
        })?;
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        Ok(Server { answer, listener, epoll, events: Vec::with_capacity(EVENTS_MAX), connections: Vec::new() })
    }

    /// Waits until sockets are ready, and serves each once.
    fn serve_ready(&mut self, pace: &mut Option<Pace<'_>>) -> Result<()> {
        self.events.clear();
        rustix::io::retry_on_intr(|| epoll::wait(&self.epoll, spare_capacity(&mut self.events), None))
            .context("epoll_wait failed")?;
        for position in 0..self.events.len() {
            match self.events[position].data.u64() {
                LISTENER => self.accept_all()?,
                slot => self.serve_connection(slot as usize, pace),
            }
        }
        Ok(())
    }

    fn serve_connection(&mut self, slot: usize, pace: &mut Option<Pace<'_>>) {
        let connection = &mut self.connections[slot];
        let fate = connection.as_mut().map(|open| open.serve(&mut self.answer, pace));
        if fate == Some(Fate::Close) {
            *connection = None;
        }
    }

    fn accept_all(&mut self) -> Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, _peer)) => self.adopt(stream)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The peer gave up while it was waiting to be accepted.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error).context("cannot accept a connection"),
            }
        }
    }

    fn adopt(&mut self, stream: TcpStream) -> Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let slot = self.free_slot();
        epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(slot as u64), epoll::EventFlags::IN)?;
        self.connections[slot] = Some(Connection::new(stream));
        Ok(())
    }

    fn free_slot(&mut self) -> usize {
        let free = self.connections.iter().position(Option::is_none);
        free.unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        })
    }
}
