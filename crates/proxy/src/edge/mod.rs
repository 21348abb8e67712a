//! All I/O of the proxy: sockets and timers. Each thread of a proxy runs it, with one task per client.

mod buffer;
mod client_memory;
mod client_stream;
mod connect_queue;
mod connection;
mod deadline;
mod drain;
mod ended;
mod handshake;
mod http;
mod listen;
mod messages;
mod pace;
mod resp;
mod samples;
mod shared;
mod team;
mod timers;
mod tunnel;
mod warm_up;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use sidelane_host::clock::now_ns;
use sidelane_policy::Nanos;
use sidelane_policy::hedge::{Ejection, Hazard};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::access::Sender;
use crate::export::{ExportCounts, ExportSender};
use crate::request_table::{Counts, ServerCounts};
use listen::Acceptor;
use shared::Shared;
use team::Message;
pub use team::{Member, open_team};

/// One thread of a proxy.
pub struct Proxy {
    shared: Rc<Shared>,
    /// Listening socket; `None` if another thread accepts the clients.
    listener: Option<TcpListener>,
    inbox: UnboundedReceiver<Message>,
}

/// Handle to read the state of a running thread.
#[derive(Clone)]
pub struct StateView(Rc<Shared>);

/// State of a proxy, with its counts.
#[derive(Clone, Debug, Serialize)]
pub struct State {
    /// Address of the server to which new requests go.
    pub active: SocketAddr,
    /// Reason why new requests go to the server `active`.
    pub why: String,
    /// Number of unanswered requests.
    pub in_flight: usize,
    /// Number of connected clients.
    pub clients: usize,
    /// Number of connections that belong to one server: tied Redis connections, or switched protocols.
    pub tunnels: usize,
    /// Number of clients that were turned away because there were too many.
    pub turned_away: u64,
    /// Number of clients whose TLS handshake failed or took too long.
    pub handshakes_failed: u64,
    /// Number of failed connects to servers for lack of open files or ports on this machine.
    pub local_connect_errors: u64,
    /// Number of lost access log lines, because the log could not be written, or not fast enough.
    pub log_lines_lost: u64,
    /// Numbers of slow requests that were exported, and that were not.
    pub slow_requests: ExportCounts,
    /// Number of hedges that the budget still allows.
    pub hedges_left: u64,
    /// Number of hazards that have begun, by server, as reported by watchers.
    pub hazards_begun: Vec<u32>,
    /// Whether the proxy drains and accepts no more clients.
    #[serde(rename = "draining")]
    pub drains: bool,
    /// State of each server: the initially active one, and its backups.
    pub by_server: Vec<ServerState>,
    /// Counts of requests and hedges since the start.
    pub counts: Counts,
}

impl Proxy {
    /// Creates one thread of a proxy. The first member of the team gets the listening socket, for all. Sends an entry for
    /// each request to `log`, and slow requests to `exports`. All methods require a single-threaded tokio runtime, in a
    /// `LocalSet`.
    pub fn open(
        member: Member,
        listener: Option<std::net::TcpListener>,
        outputs: (Option<Sender>, Option<ExportSender>),
    ) -> io::Result<Self> {
        listen::raise_open_files();
        let listener = listener.map(TcpListener::from_std).transpose()?;
        let Member { seat, inbox } = member;
        Ok(Self { shared: Shared::new(seat, outputs, warm_up::HELPERS), listener, inbox })
    }

    /// Returns a handle to read the state.
    pub fn view(&self) -> StateView {
        StateView(Rc::clone(&self.shared))
    }

    /// Serves clients until the future `shutdown` of the first thread is ready, and then drains. Returns early if the
    /// proxy cannot continue.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let Self { shared, listener, inbox } = self;
        let (hazards, timers) = (timers::watch_hazards(Rc::clone(&shared)), timers::run_timers(Rc::clone(&shared)));
        tokio::select! {
            result = hazards => result,
            () = timers => Ok(()),
            () = messages::read_messages(Rc::clone(&shared), inbox) => Ok(()),
            result = serve(&shared, listener, shutdown) => result,
        }
    }
}

/// Accepts clients until `shutdown`, or serves those of the first thread until it accepts no more. Then drains.
async fn serve(
    shared: &Rc<Shared>,
    listener: Option<TcpListener>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let Some(listener) = listener else {
        shared.drain_ordered.notified().await;
        drain::drain_clients(shared).await;
        return Ok(());
    };
    let acceptor = Acceptor::new(shared);
    tokio::select! {
        result = acceptor.accept(&listener) => return result,
        () = shutdown => {}
    }
    acceptor.accept_pending(listener);
    // This message comes after all clients that were passed on.
    shared.seat.tell_others(|| Message::Drain);
    drain::drain_clients(shared).await;
    Ok(())
}

impl StateView {
    /// Waits until a server goes out of service, or may come back. A change before the call counts.
    pub async fn wait_for_ejection_change(&self) {
        self.0.changed.notified().await;
    }

    /// Returns the present state.
    pub fn state(&self) -> State {
        let (shared, table) = (&self.0, self.0.table.borrow());
        State {
            active: shared.address(table.active()),
            why: table.active_reason().to_string(),
            in_flight: table.in_flight(),
            clients: shared.seat.clients(),
            tunnels: shared.tunnels.get(),
            turned_away: shared.turned_away.get(),
            handshakes_failed: shared.handshakes_failed.get(),
            local_connect_errors: shared.local_connect_errors.get(),
            log_lines_lost: shared.log_lines_lost(),
            slow_requests: shared.export_counts(),
            hedges_left: table.hedges_left(),
            hazards_begun: shared
                .servers()
                .map(|server| shared.seat.team.board.hazard_word(server).read().began)
                .collect(),
            drains: shared.drain.has_begun(),
            by_server: server_states(shared),
            counts: table.counts().clone(),
        }
    }
}

impl State {
    /// Adds the counts of an earlier proxy at the same address, which accepts no more clients.
    pub fn add_counts(&mut self, other: &Self) {
        self.turned_away += other.turned_away;
        self.handshakes_failed += other.handshakes_failed;
        self.local_connect_errors += other.local_connect_errors;
        self.log_lines_lost += other.log_lines_lost;
        self.slow_requests.exported += other.slow_requests.exported;
        self.slow_requests.not_exported += other.slow_requests.not_exported;
        self.counts.add(&other.counts);
        for theirs in &other.by_server {
            match self.by_server.iter_mut().find(|server| server.address == theirs.address) {
                Some(server) => server.counts.add(&theirs.counts),
                None => self.by_server.push(ServerState { ejected: None, ..theirs.clone() }),
            }
        }
    }

    /// Adds the counts and the unfinished work of another thread of the same proxy.
    pub fn add_thread(&mut self, other: &Self) {
        self.add_counts(other);
        self.add_unfinished_work(other);
        self.hedges_left += other.hedges_left;
    }

    /// Adds the unfinished requests, clients and tunnels of another proxy.
    pub fn add_unfinished_work(&mut self, other: &Self) {
        self.in_flight += other.in_flight;
        self.clients += other.clients;
        self.tunnels += other.tunnels;
    }

    /// Returns the number of swaps since the start for each hazard.
    pub fn swaps(&self) -> impl Iterator<Item = (Hazard, u64)> {
        Hazard::ALL.into_iter().map(|hazard| (hazard, self.counts.swaps[hazard as usize]))
    }
}

/// State of one server.
#[derive(Clone, Debug, Serialize)]
pub struct ServerState {
    /// Address of the server.
    pub address: SocketAddr,
    /// Ejection of the server; `None` while the server is in service.
    pub ejected: Option<Ejected>,
    /// Counts of the requests at this server since the start.
    #[serde(flatten)]
    pub counts: ServerCounts,
}

/// Ejection of a server: a time out of service.
#[derive(Clone, Debug, Serialize)]
pub struct Ejected {
    /// Reason for the ejection.
    pub why: String,
    /// Total time out of service in whole seconds.
    #[serde(rename = "length_s")]
    pub seconds: u64,
    /// Remaining time out of service in whole seconds.
    #[serde(rename = "left_s")]
    pub seconds_left: u64,
}

/// Returns the states of the configured servers.
fn server_states(shared: &Shared) -> Vec<ServerState> {
    let table = shared.table.borrow();
    let at = now_ns();
    let state = |server| {
        let counts = table.server_counts(server);
        let ejected = table.ejection(server).map(|ejection| describe_ejection(at, ejection, counts));
        ServerState { address: shared.address(server), ejected, counts: counts.clone() }
    };
    shared.servers().map(state).collect()
}

fn describe_ejection(now: Nanos, ejection: Ejection, counts: &ServerCounts) -> Ejected {
    let last = counts.last_fault.map_or_else(String::new, |last| format!(" (the last one: {last})"));
    let seconds = |from: Nanos| Duration::from_nanos(ejection.until_ns.saturating_sub(from)).as_secs();
    Ejected {
        why: format!("{}{last}", ejection.fault),
        seconds: seconds(ejection.since_ns),
        seconds_left: seconds(now),
    }
}
