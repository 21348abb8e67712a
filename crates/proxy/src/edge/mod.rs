//! Sockets and time: the proxy's only I/O. It runs on one thread; each client has a task.

mod buffer;
mod client_memory;
mod connect_queue;
mod connection;
mod deadline;
mod drain;
mod ended;
mod http;
mod listen;
mod pace;
mod resp;
mod samples;
mod shared;
mod timers;
mod tunnel;
mod warm_up;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use sidelane_policy::Nanos;
use sidelane_policy::hedge::{Ejection, Hazard, Server};
use tokio::net::TcpListener;

use crate::access::Sender;
use crate::config::{Config, TraceLookup};
use crate::hazard_board::HazardBoard;
use crate::request_table::{Counts, ServerCounts};
use listen::Acceptor;
use shared::{Shared, now};

/// A proxy that listens.
pub struct Proxy {
    shared: Rc<Shared>,
    listener: TcpListener,
}

/// Tells what a running proxy does.
#[derive(Clone)]
pub struct View(Rc<Shared>);

/// What a proxy does, and has done.
#[derive(Clone, Debug, Serialize)]
pub struct State {
    /// The server that new requests go to.
    pub active: SocketAddr,
    /// Why.
    pub why: String,
    /// Requests that are not answered.
    pub in_flight: usize,
    /// Clients that are connected.
    pub clients: usize,
    /// Connections that are one server's: tied, or of another protocol.
    pub tunnels: usize,
    /// Clients that were turned away, because there were too many.
    pub turned_away: u64,
    /// Connections to servers that were not made, because this machine had no open files or ports left.
    pub without_link: u64,
    /// Lines of the access log that were lost, because the file could not be written or not fast enough.
    pub log_lost: u64,
    /// Hedges that the budget allows.
    pub hedges_left: u64,
    /// Hazards that began so far, by server, as watchers told them.
    pub hazards_begun: [u32; 2],
    /// Whether it takes no more clients.
    pub drains: bool,
    /// The active server at first, and its backup.
    pub by_server: Vec<ServerState>,
    /// Counted since the start.
    pub counts: Counts,
}

impl Proxy {
    /// Takes the clients that come to `listener`, which [`listen`] made, and tells `log` of each request. To be called, as all that follows, within
    /// a tokio runtime of one thread, in a `LocalSet`.
    pub fn open(
        listener: std::net::TcpListener,
        config: Config,
        board: Arc<HazardBoard>,
        trace_lookup: TraceLookup,
        log: Option<Sender>,
    ) -> io::Result<Self> {
        listen::raise_open_files();
        let listener = TcpListener::from_std(listener)?;
        Ok(Self { shared: Shared::new(config, (board, trace_lookup), log, warm_up::HELPERS), listener })
    }

    /// Tells what it does.
    pub fn view(&self) -> View {
        View(Rc::clone(&self.shared))
    }

    /// Serves clients until `end` is ready, and drains then; or until it is dropped, or cannot go on.
    pub async fn run(self, end: impl Future<Output = ()>) -> io::Result<()> {
        let (hazards, timers) =
            (timers::watch_hazards(Rc::clone(&self.shared)), timers::run_timers(Rc::clone(&self.shared)));
        tokio::select! {
            result = hazards => result,
            () = timers => Ok(()),
            result = self.serve(end) => result,
        }
    }

    async fn serve(self, end: impl Future<Output = ()>) -> io::Result<()> {
        let Self { shared, listener } = self;
        let acceptor = Acceptor::new(&shared);
        tokio::select! {
            result = acceptor.accept(&listener) => return result,
            () = end => {}
        }
        acceptor.accept_the_last(listener);
        drain::run(&shared).await;
        Ok(())
    }
}

impl View {
    /// Waits until a server goes out of service, or may come back. A change that comes before the call counts.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// What it does now.
    pub fn state(&self) -> State {
        let (shared, table) = (&self.0, self.0.table.borrow());
        State {
            active: shared.address(table.active()),
            why: table.why().to_string(),
            in_flight: table.in_flight(),
            clients: shared.clients.get(),
            tunnels: shared.tunnels.get(),
            turned_away: shared.turned_away.get(),
            without_link: shared.without_link.get(),
            log_lost: shared.log_lost(),
            hedges_left: table.hedges_left(),
            hazards_begun: Server::BOTH.map(|server| shared.board.word(server).read().began),
            drains: shared.drain.has_begun(),
            by_server: server_states(shared),
            counts: table.counts().clone(),
        }
    }
}

impl State {
    /// Adds what another proxy, which takes no more clients, has counted: it was at the same address before.
    pub fn add_counts(&mut self, other: &Self) {
        self.turned_away += other.turned_away;
        self.without_link += other.without_link;
        self.log_lost += other.log_lost;
        self.counts.add(&other.counts);
        for theirs in &other.by_server {
            match self.by_server.iter_mut().find(|server| server.address == theirs.address) {
                Some(server) => server.counts.add(&theirs.counts),
                None => self.by_server.push(ServerState { ejected: None, ..theirs.clone() }),
            }
        }
    }

    /// Adds what another proxy still does.
    pub fn add_work(&mut self, other: &Self) {
        self.in_flight += other.in_flight;
        self.clients += other.clients;
        self.tunnels += other.tunnels;
    }

    /// Swaps so far, by hazard.
    pub fn swaps(&self) -> impl Iterator<Item = (Hazard, u64)> {
        Hazard::ALL.into_iter().map(|hazard| (hazard, self.counts.swaps[hazard as usize]))
    }
}

/// One server.
#[derive(Clone, Debug, Serialize)]
pub struct ServerState {
    /// Its address.
    pub address: SocketAddr,
    /// Its time out of service, while it is ejected.
    pub ejected: Option<Ejected>,
    /// Counted since the start.
    #[serde(flatten)]
    pub counts: ServerCounts,
}

/// The time of a server out of service.
#[derive(Clone, Debug, Serialize)]
pub struct Ejected {
    /// Its reason.
    pub why: String,
    /// Its whole seconds.
    pub seconds: u64,
    /// Those that are left.
    pub seconds_left: u64,
}

/// Those that there are.
fn server_states(shared: &Shared) -> Vec<ServerState> {
    let table = shared.table.borrow();
    let at = now();
    let state = |server| {
        let counts = table.server_counts(server);
        let ejected = table.ejection(server).map(|ejection| ejected(at, ejection, counts));
        ServerState { address: shared.address(server), ejected, counts: counts.clone() }
    };
    let is_there = |server: &Server| *server == Server::First || shared.config.backup.is_some();
    Server::BOTH.into_iter().filter(is_there).map(state).collect()
}

fn ejected(at: Nanos, ejection: Ejection, counts: &ServerCounts) -> Ejected {
    let last = counts.last_fault.map_or_else(String::new, |last| format!(" (the last one: {last})"));
    let seconds = |from: Nanos| Duration::from_nanos(ejection.until_ns.saturating_sub(from)).as_secs();
    Ejected { why: format!("{}{last}", ejection.fault), seconds: seconds(ejection.since_ns), seconds_left: seconds(at) }
}
