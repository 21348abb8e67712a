//! What all tasks of a proxy share. They run on one thread.

use std::cell::{Cell, RefCell, RefMut};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use sidelane_policy::Nanos;
use sidelane_policy::hedge::{Attempt, Mode, Seen, Server};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::Instant;

use super::client_memory::ClientMemory;
use super::connect_queue::{ConnectQueue, Failed};
use super::connection::{JUST_USED, Pool, ServerConnection, is_local_error};
use super::drain::Drain;
use super::samples::Samples;
use crate::access::Sender;
use crate::config::{Config, TraceLookup};
use crate::hazard_board::HazardBoard;
use crate::http::Number;
use crate::request_table::{Class, Effect, Loss, Next, Outcome, RequestId, RequestTable, ServerError, Verdict};

/// Who does what the request table asks for of a server; they know [`Shared`], which does not know them.
#[derive(Clone, Copy)]
pub(super) struct Helpers {
    pub(super) warm_up: fn(Rc<Shared>, Server),
    pub(super) probe: fn(Rc<Shared>, Server),
    pub(super) tell: fn(Rc<Shared>, Server, Vec<u8>),
}

pub(super) struct Shared {
    helpers: Helpers,
    pub(super) config: Config,
    pub(super) board: Arc<HazardBoard>,
    pub(super) trace_lookup: TraceLookup,
    pub(super) table: RefCell<RequestTable<Owner>>,
    pools: [RefCell<Pool>; 2],
    connect_queues: [RefCell<ConnectQueue>; 2],
    /// Of the marks of requests' numbers.
    secret: RandomState,
    pub(super) samples: RefCell<Samples>,
    /// Wakes warm-ups that wait for the first sample.
    pub(super) sampled: Notify,
    /// Clients that are connected.
    pub(super) clients: Cell<usize>,
    /// Connections that are one server's.
    pub(super) tunnels: Cell<usize>,
    /// Later answers that are waited for.
    pub(super) dropping: Cell<usize>,
    /// Clients that were turned away, since there were too many.
    pub(super) turned_away: Cell<u64>,
    /// Connections that were not made, since this machine had no open files or ports left.
    pub(super) without_link: Cell<u64>,
    /// The clock has to look when it is to ring next.
    pub(super) sooner: Notify,
    /// By server: ejections so far, and whether it is out of service.
    ejections: Cell<[(u64, bool); 2]>,
    /// Rings when they change.
    pub(super) changed: Notify,
    /// When the clock rings next.
    pub(super) rings_at: Cell<Nanos>,
    /// What clients keep.
    pub(super) memory: ClientMemory,
    pub(super) drain: Drain,
    pub(super) log: Option<RefCell<Sender>>,
}

/// The monotonic clock, which is that of hazards, too.
pub(super) fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Shared {
    pub(super) fn new(
        config: Config,
        (board, trace_lookup): (Arc<HazardBoard>, TraceLookup),
        log: Option<Sender>,
        helpers: Helpers,
    ) -> Rc<Self> {
        let table = RefCell::new(RequestTable::new(config.table));
        let memory = ClientMemory::new(config.limits.memory_bytes);
        Rc::new(Self {
            helpers,
            memory,
            drain: Drain::default(),
            log: log.map(RefCell::new),
            config,
            board,
            trace_lookup,
            table,
            pools: Default::default(),
            connect_queues: Default::default(),
            secret: RandomState::new(),
            samples: RefCell::default(),
            sampled: Notify::new(),
            clients: Cell::new(0),
            tunnels: Cell::new(0),
            dropping: Cell::new(0),
            turned_away: Cell::new(0),
            without_link: Cell::new(0),
            sooner: Notify::new(),
            ejections: Cell::default(),
            changed: Notify::new(),
            rings_at: Cell::new(Nanos::MAX),
        })
    }

    /// Where a server is; only those that there are, are asked for.
    pub(super) fn address(&self, server: Server) -> SocketAddr {
        match server {
            Server::First => self.config.active,
            Server::Second => self.config.backup.unwrap_or(self.config.active),
        }
    }

    pub(super) fn admit(&self, class: Class, owner: &Owner) -> (RequestId, Server) {
        let admitted = self.table.borrow_mut().admit(now(), class, Rc::clone(owner));
        if matches!(self.config.table.roles.mode, Mode::Timer { .. }) {
            self.look_sooner();
        }
        admitted
    }

    /// Something was seen of a server: the request table decides, and what it asks for is done.
    pub(super) fn observe(self: &Rc<Self>, seen: Seen) {
        self.table.borrow_mut().observe(now(), seen);
        self.carry_out();
    }

    /// An answer of this server has begun: the request table decides between it and the other copy.
    pub(super) fn answered(self: &Rc<Self>, request_id: RequestId, by: Server, outcome: Outcome) -> Verdict {
        let (verdict, acts) = {
            let (at, mut table) = (now(), self.table.borrow_mut());
            let sent_ns = table.sent_ns(request_id, by);
            let verdict = table.answered(at, request_id, by, outcome.quality());
            (verdict, table.tried(at, by, sent_ns, outcome))
        };
        if acts {
            self.carry_out();
        }
        verdict
    }

    /// The copy at this server was lost before it was answered.
    pub(super) fn lost(self: &Rc<Self>, request_id: RequestId, at: Server, loss: Loss) -> Next {
        let sent_ns = self.sent_ns(request_id, at);
        let next = self.table.borrow_mut().lost(now(), request_id, at, loss);
        if let Some(error) = loss.error() {
            self.tried(at, sent_ns, Outcome::Error(error));
        }
        next
    }

    /// The server has not answered in time.
    pub(super) fn late(self: &Rc<Self>, request_id: RequestId, at: Server) {
        self.tried(at, self.sent_ns(request_id, at), Outcome::Error(ServerError::Timeout));
    }

    /// The server answered a request that was sent to it then, or failed to.
    pub(super) fn tried(self: &Rc<Self>, server: Server, sent_ns: Nanos, outcome: Outcome) {
        let acts = self.table.borrow_mut().tried(now(), server, sent_ns, outcome);
        if acts {
            self.carry_out();
        }
    }

    pub(super) fn sent_ns(&self, request_id: RequestId, at: Server) -> Nanos {
        self.table.borrow_mut().sent_ns(request_id, at)
    }

    /// Does what the request table asks for.
    fn carry_out(self: &Rc<Self>) {
        let effects = self.table.borrow_mut().take_effects();
        for effect in effects {
            match effect {
                Effect::Send { owner, request_id, to } => owner.order(request_id, to),
                Effect::WarmUp(server) => (self.helpers.warm_up)(Rc::clone(self), server),
                Effect::Probe(server) => (self.helpers.probe)(Rc::clone(self), server),
            }
        }
        self.look_sooner();
        self.tell_of_ejections();
    }

    fn tell_of_ejections(&self) {
        let table = self.table.borrow();
        let now = Server::BOTH.map(|server| (table.server_counts(server).ejections, table.ejection(server).is_some()));
        if self.ejections.replace(now) != now {
            self.changed.notify_one();
        }
    }

    fn look_sooner(&self) {
        if self.table.borrow().next_wakeup().is_some_and(|at| at < self.rings_at.get()) {
            self.sooner.notify_one();
        }
    }

    /// Sends a request whose answer is dropped, if the server exists and can be asked.
    pub(super) fn tell_too(self: &Rc<Self>, server: Server, request: &[u8]) {
        let is_there = server == Server::First || self.config.backup.is_some();
        if is_there && self.table.borrow().can_ask(server) {
            (self.helpers.tell)(Rc::clone(self), server, request.to_vec());
        }
    }

    /// By which the client of a request asks what became of it.
    pub(super) fn number(&self, id: u64) -> Number {
        Number { id, mark: self.secret.hash_one(id) }
    }

    /// A request that is safe to repeat was answered.
    pub(super) fn note_sample(&self, request: &[u8]) {
        if self.samples.borrow_mut().note(request) {
            self.sampled.notify_waiters();
        }
    }

    /// Takes an idle connection.
    pub(super) fn idle_connection(&self, server: Server) -> Option<ServerConnection> {
        self.pools[server.index()].borrow_mut().take(Duration::MAX)
    }

    /// A connection for a request that must not be sent twice: one that was just used, so that it is not closed now.
    pub(super) fn just_used_connection(&self, server: Server) -> Option<ServerConnection> {
        self.pools[server.index()].borrow_mut().take(JUST_USED)
    }

    /// Stands in line for a connection: one that is made, or that becomes idle before.
    pub(super) async fn next_connection(self: Rc<Self>, server: Server) -> Option<ServerConnection> {
        let connection = self.connect_queue(server).join();
        self.begin_connects(server);
        connection.await.ok().flatten()
    }

    fn connect_queue(&self, server: Server) -> RefMut<'_, ConnectQueue> {
        self.connect_queues[server.index()].borrow_mut()
    }

    fn begin_connects(self: &Rc<Self>, server: Server) {
        while self.connect_queue(server).begins_connect() {
            let shared = Rc::clone(self);
            drop(spawn_local(async move {
                shared.connect(server).await;
                shared.connect_queue(server).end_connect();
                shared.begin_connects(server);
            }));
        }
    }

    /// Makes a connection for the first in line, or for the pool. The request table is told whether it can be made, unless what is
    /// missing is on our side.
    pub(super) async fn connect(self: &Rc<Self>, server: Server) {
        let (began, sent_ns, within) = (Instant::now(), now(), self.config.limits.connect_time);
        match ServerConnection::open(self.address(server), within).await {
            Ok(connection) => {
                self.observe(Seen::Reached(server));
                self.offer(server, connection);
            }
            Err(error) if is_local_error(&error) => {
                self.without_link.set(self.without_link.get() + 1);
                self.connect_queue(server).turn_first_away();
            }
            Err(error) => {
                let failed = self.connect_queue(server).failed(began, &error);
                self.table.borrow_mut().not_connected(server);
                match failed {
                    Failed::Unreachable => {
                        self.observe(Seen::Unreachable(server));
                        self.connect_queue(server).turn_away(Duration::ZERO);
                    }
                    Failed::Silent => {
                        self.observe(Seen::Tried(server, Attempt { sent_ns, has_failed: true }));
                        self.connect_queue(server).turn_away(within);
                    }
                    // Those in line have their turn.
                    Failed::Busy => {}
                }
            }
        }
    }

    /// Takes back a connection that owes nothing, unless the server said more than it was asked.
    pub(super) fn keep_connection(&self, server: Server, mut connection: ServerConnection) {
        connection.rest();
        if connection.input.is_empty() {
            self.offer(server, connection);
        }
    }

    /// Gives the connection to the first in line, or keeps it.
    fn offer(&self, server: Server, connection: ServerConnection) {
        let mut queue = self.connect_queue(server);
        queue.is_alive();
        if let Some(connection) = queue.give(connection) {
            self.pools[server.index()].borrow_mut().put(connection);
        }
    }

    pub(super) fn sweep(&self) {
        self.pools.iter().for_each(|pool| pool.borrow_mut().sweep());
    }
}

/// Orders for one client's task.
#[derive(Default)]
pub(super) struct Mailbox {
    has_orders: Cell<bool>,
    orders: RefCell<Vec<(RequestId, Server)>>,
    reader: RefCell<Option<Waker>>,
}

/// The owner of a request, as the request table knows it.
pub(super) type Owner = Rc<Mailbox>;

impl Mailbox {
    /// A copy is to be sent.
    pub(super) fn order(&self, request_id: RequestId, to: Server) {
        self.orders.borrow_mut().push((request_id, to));
        self.has_orders.set(true);
        if let Some(reader) = self.reader.borrow_mut().take() {
            reader.wake();
        }
    }

    /// The next order, if there is one; else the task is woken when one comes.
    pub(super) fn next(&self, cx: &mut Context<'_>) -> Option<(RequestId, Server)> {
        if self.has_orders.get() {
            let mut orders = self.orders.borrow_mut();
            let order = orders.remove(0);
            self.has_orders.set(!orders.is_empty());
            return Some(order);
        }
        let mut reader = self.reader.borrow_mut();
        if reader.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            *reader = Some(cx.waker().clone());
        }
        None
    }
}
