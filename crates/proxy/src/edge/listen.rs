//! Acceptor of clients, with limits for their number.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::connection::is_out_of_files;
use super::deadline::Deadline;
use super::handshake::open_client_stream;
use super::shared::Shared;
use super::team::{ClientSlot, Message, clients_of_process};
use super::{http, resp};
use crate::config::Protocol;
use crate::http::write_error;

/// Number of open files per client: its own connection and one connection to each server.
const FILES_OF_CLIENT: u64 = 3;
/// Number of open files reserved for everything else.
const FILES_KEPT: u64 = 64;
/// Maximum number of rejected clients that get time to read the error answer. Further rejected clients are disconnected
/// at once.
const TOLD_MAX: usize = 16;
/// Pause before the next accept if the system has no open files left.
const WITHOUT_FILES: Duration = Duration::from_millis(10);

/// Raises the soft limit of open files to the hard limit. Shells and systemd set 1024 at first, for programs that use
/// `select`.
pub(super) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Ignore an error: the proxy then serves fewer clients, and counts those that it turns away.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Returns the maximum number of clients of this process: the present clients, and those for which open files are free.
fn clients_max() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |open| open.count() as u64);
    let more = (files.saturating_sub(open + FILES_KEPT) / FILES_OF_CLIENT).max(1);
    clients_of_process().saturating_add(usize::try_from(more).unwrap_or(usize::MAX))
}

/// Acceptor of clients for all threads of the proxy, up to the client limits of the proxy and of the process.
pub(super) struct Acceptor<'a> {
    shared: &'a Rc<Shared>,
    own_max: usize,
    all_max: usize,
}

impl<'a> Acceptor<'a> {
    pub(super) fn new(shared: &'a Rc<Shared>) -> Self {
        Self { shared, own_max: shared.config.limits.clients.unwrap_or(usize::MAX), all_max: clients_max() }
    }

    /// Accepts clients. Returns only if the listener has failed permanently.
    pub(super) async fn accept(&self, listener: &TcpListener) -> io::Result<()> {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.serve_or_turn_away(stream),
                // Continue after an error of a single client or of the whole system.
                Err(error) if is_out_of_files(&error) => sleep(WITHOUT_FILES).await,
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Accepts the clients whose connections the kernel has made already, and closes the listener.
    pub(super) fn accept_pending(&self, listener: TcpListener) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(stream) = accept_with(&listener, flags) {
            if let Ok(stream) = TcpStream::from_std(stream.into()) {
                self.serve_or_turn_away(stream);
            }
        }
    }

    fn serve_or_turn_away(&self, stream: TcpStream) {
        match self.has_client_room(0) {
            true => self.serve_or_pass_on(stream),
            false => turn_away(self.shared, stream, self.has_client_room(TOLD_MAX)),
        }
    }

    /// Gives the client to the thread with the fewest clients.
    fn serve_or_pass_on(&self, stream: TcpStream) {
        let seat = self.shared.seat.least_loaded();
        let slot = ClientSlot::register(&seat);
        if seat.index == self.shared.seat.index {
            return serve_client(self.shared, stream, slot);
        }
        // A client that cannot be passed on is lost: its socket or the other thread is broken.
        let _ = stream.into_std().map(|socket| seat.team.send(seat.index, Message::Client(socket, slot)));
    }

    fn has_client_room(&self, excess: usize) -> bool {
        let (own, all) = (self.shared.seat.team.total_clients(), clients_of_process());
        own < self.own_max.saturating_add(excess) && all < self.all_max.saturating_add(excess)
    }
}

/// Serves a client in a task of its own.
pub(super) fn serve_client(shared: &Rc<Shared>, stream: TcpStream, slot: ClientSlot) {
    // Ignore an error: without this option, answers are only delayed.
    let _ = stream.set_nodelay(true);
    let shared = Rc::clone(shared);
    drop(spawn_local(async move {
        let _slot = slot;
        let Some((stream, input)) = open_client_stream(&shared, stream).await else { return };
        match shared.config.protocol {
            Protocol::Http => http::serve(shared, stream, input).await,
            Protocol::Redis => resp::serve(shared, stream, input).await,
        }
    }));
}

/// Answers a client above the limit with an error. If `lingers`, keeps the connection open until the client has read
/// the error. With TLS there is no answer: a handshake would cost more than the request.
fn turn_away(shared: &Rc<Shared>, stream: TcpStream, lingers: bool) {
    shared.turned_away.set(shared.turned_away.get() + 1);
    if shared.config.tls.is_some() {
        return;
    }
    let mut answer = Vec::new();
    match shared.config.protocol {
        Protocol::Http => write_error(503, "too many clients", &mut answer),
        Protocol::Redis => answer.extend_from_slice(b"-ERR sidelane: too many clients\r\n"),
    }
    // Ignore an error: the answer always fits into an empty socket, so an error means that the client is gone.
    let _ = stream.try_write(&answer);
    if lingers {
        let (slot, limits) = (ClientSlot::register(&shared.seat), shared.config.limits);
        drop(spawn_local(async move {
            let _slot = slot;
            http::linger(&stream, &mut Deadline::new(&limits)).await;
        }));
    }
}
