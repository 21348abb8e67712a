//! A service of one or a few threads, which do all work and sleep in the kernel when there is none.
//!
//! The service is like the Lucene demo server of Elfen's section 5, but requests have a single queue: they wait in
//! their sockets, and epoll returns the sockets in the order in which they became ready. One thread makes service times
//! independent of each other. A [`RequestHandler`] parses the requests and answers them.
//!
//! Several threads take turns to wait for the next request, which one of them then receives, works on and answers. Each
//! core thus gets requests of every length, as in a pool whose threads share one queue.

mod connection;
mod slots;

use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;

use crate::sibling::{Pace, PaceArgs, Sibling};
use connection::ServerConnection;
use slots::Slots;

/// Number of ready sockets that a single-threaded server takes from epoll at a time.
const EVENTS_MAX: usize = 64;

/// Number of the listening socket in epoll; the number of a connection is its slot.
const LISTENER: u64 = u64::MAX;

/// Request handler of a service.
pub trait RequestHandler {
    /// Answers the first request in `received`, and appends the answer to `reply`.
    fn answer_first_request(&mut self, received: &[u8], reply: &mut Vec<u8>) -> AnswerOutcome;
}

/// Outcome of an attempt to answer the first received request.
#[derive(Debug, PartialEq, Eq)]
pub enum AnswerOutcome {
    /// The end of the request has not arrived yet.
    Partial,
    /// The request had `length` bytes and is answered.
    Whole { length: usize, fate: ConnectionAction },
}

/// Decision whether a connection stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionAction {
    Keep,
    Close,
}

/// Options of a server: its port, and the emulated sibling that delays answers.
#[derive(Debug, clap::Args)]
pub struct ServerArgs {
    /// Port on 127.0.0.1; 0 picks a free one
    #[arg(long)]
    port: u16,
    /// Options of the emulated sibling, which makes answers as late as beside a real sibling lane.
    #[command(flatten)]
    pace: PaceArgs,
}

/// Serves with this thread until the process is killed.
pub fn run(args: &ServerArgs, handler: impl RequestHandler) -> Result<()> {
    let sibling = args.pace.open_sibling()?;
    Server::open(args.port, false)?.run_worker(handler, sibling.as_ref())
}

/// Serves until the process is killed, with one thread for each of `handlers`. The calling thread runs the last
/// handler.
pub fn run_threads<A: RequestHandler + Send>(args: &ServerArgs, mut handlers: Vec<A>) -> Result<()> {
    let own = handlers.pop().context("a service needs a thread")?;
    let sibling = args.pace.open_sibling()?;
    let server = Server::open(args.port, !handlers.is_empty())?;
    thread::scope(|scope| {
        for (number, answer) in (1..).zip(handlers) {
            let work = || exit_on_error(server.run_worker(answer, sibling.as_ref()));
            thread::Builder::new().name(format!("worker-{number}")).spawn_scoped(scope, work)?;
        }
        exit_on_error(server.run_worker(own, sibling.as_ref()));
        Ok(())
    })
}

/// Ends the process if a worker thread fails.
fn exit_on_error(outcome: Result<()>) {
    if let Err(error) = outcome {
        eprintln!("sidelane-lab: {error:#}");
        std::process::exit(1);
    }
}

/// Tells the parent process that the service accepts connections, and on which port.
fn print_ready_line(port: u16) -> Result<()> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "ready port={port} pid={}", std::process::id())
        .and_then(|()| stdout.flush())
        .context("cannot print on standard output that the service is ready")
}

/// State that all threads of the service share.
struct Server {
    listener: TcpListener,
    epoll: OwnedFd,
    /// Whether several threads serve the connections, rather than one.
    is_shared: bool,
    /// Lock held by the thread that waits for requests.
    turn: Mutex<()>,
    connections: Mutex<Slots<ServerConnection>>,
}

impl Server {
    /// Opens the listening socket, and prints the port.
    fn open(port: u16, is_shared: bool) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).with_context(|| {
            format!(
                "cannot listen on 127.0.0.1:{port}; is another service there? \
                     (--port 0 picks a free one)"
            )
        })?;
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        print_ready_line(listener.local_addr()?.port())?;
        Ok(Server { listener, epoll, is_shared, turn: Mutex::default(), connections: Mutex::default() })
    }

    /// Runs the loop of one worker thread: it waits for requests and answers them.
    fn run_worker(&self, mut handler: impl RequestHandler, sibling: Option<&Sibling>) -> Result<()> {
        let mut pace = sibling.map(Sibling::start_pace).transpose()?;
        let mut events = Vec::with_capacity(if self.is_shared { 1 } else { EVENTS_MAX });
        loop {
            self.wait_for_ready_sockets(&mut events)?;
            for slot in events.iter().map(|event: &epoll::Event| event.data.u64()).filter(|slot| *slot != LISTENER) {
                self.serve_slot(slot as usize, &mut handler, &mut pace)?;
            }
        }
    }

    /// Waits until sockets are ready. New connections are accepted before another thread waits.
    fn wait_for_ready_sockets(&self, events: &mut Vec<epoll::Event>) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        events.clear();
        rustix::io::retry_on_intr(|| epoll::wait(&self.epoll, spare_capacity(events), None))
            .context("epoll_wait failed")?;
        if events.iter().any(|event| event.data.u64() == LISTENER) {
            self.accept_all()?;
        }
        Ok(())
    }

    fn serve_slot(&self, slot: usize, handler: &mut impl RequestHandler, pace: &mut Option<Pace<'_>>) -> Result<()> {
        let Some(mut connection) = self.connections().take(slot) else { return Ok(()) };
        let fate = connection.serve(handler, pace);
        // Locks the table of connections before this connection is armed again. Another thread may get its next request
        // at once, and must find the connection in the table.
        let mut connections = self.connections();
        if fate == ConnectionAction::Close {
            connections.release_slot(slot);
            return Ok(());
        }
        if self.is_shared {
            epoll::modify(
                &self.epoll,
                connection.stream(),
                epoll::EventData::new_u64(slot as u64),
                self.epoll_interest(),
            )
            .context("cannot wait for a connection's next request")?;
        }
        connections.put_back(slot, connection);
        Ok(())
    }

    fn accept_all(&self) -> Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, _peer)) => self.register_connection(stream)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // Ignores a client that gave up before its connection was accepted.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error).context("cannot accept a connection"),
            }
        }
    }

    fn register_connection(&self, stream: TcpStream) -> Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let mut connections = self.connections();
        let slot = connections.reserve();
        epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(slot as u64), self.epoll_interest())?;
        connections.put_back(slot, ServerConnection::new(stream));
        Ok(())
    }

    /// Returns the epoll flags of a connection. With several threads, a connection is disarmed until its request is
    /// answered.
    fn epoll_interest(&self) -> epoll::EventFlags {
        if self.is_shared { epoll::EventFlags::IN | epoll::EventFlags::ONESHOT } else { epoll::EventFlags::IN }
    }

    fn connections(&self) -> MutexGuard<'_, Slots<ServerConnection>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
