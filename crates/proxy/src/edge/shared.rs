//! State that all tasks of one thread of a proxy share.

use std::cell::{Cell, RefCell, RefMut};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use sidelane_host::clock::now_ns;
use sidelane_policy::Nanos;
use sidelane_policy::hedge::{Attempt, Hazard, HedgeEvent, Mode, SERVERS_MAX, Server};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::Instant;

use super::client_memory::ClientMemory;
use super::connect_queue::{ConnectFailure, ConnectQueue};
use super::connection::{JUST_USED, Pool, ServerConnection, is_local_error};
use super::drain::Drain;
use super::team::{Message, Seat};
use crate::access::Sender;
use crate::config::Config;
use crate::export::ExportSender;
use crate::http::RequestNumber;
use crate::request_table::{
    Effect, Loss, NextStep, RequestClass, RequestId, RequestTable, ServerError, ServerOutcome, Verdict,
};

/// Functions that carry out orders of the request table. They need [`Shared`], so they are passed in to avoid a cyclic
/// dependency.
#[derive(Clone, Copy)]
pub(super) struct Helpers {
    pub(super) warm_up: fn(Rc<Shared>, Server),
    pub(super) probe: fn(Rc<Shared>, Server),
    pub(super) send_ignoring_outcome: fn(Rc<Shared>, Server, Vec<u8>),
}

pub(super) struct Shared {
    helpers: Helpers,
    /// Place among the threads of the proxy.
    pub(super) seat: Seat,
    pub(super) config: Config,
    pub(super) table: RefCell<RequestTable<Owner>>,
    pools: [RefCell<Pool>; SERVERS_MAX],
    connect_queues: [RefCell<ConnectQueue>; SERVERS_MAX],
    /// Number of answered requests that could be sampled.
    sampled: Cell<usize>,
    /// Number of connections that belong to one server.
    pub(super) tunnels: Cell<usize>,
    /// Number of answers that are being read only to be dropped.
    pub(super) dropping: Cell<usize>,
    /// Number of clients that were turned away because there were too many.
    pub(super) turned_away: Cell<u64>,
    /// Number of clients whose TLS handshake failed.
    pub(super) handshakes_failed: Cell<u64>,
    /// Number of failed connects for lack of open files or ports on this machine.
    pub(super) local_connect_errors: Cell<u64>,
    /// Notification for the timer task: the request table wants to be called earlier.
    pub(super) sooner: Notify,
    /// Number of ejections of each server, and whether it is out of service.
    ejections: Cell<[(u64, bool); SERVERS_MAX]>,
    /// Notification when `ejections` changes.
    pub(super) changed: Notify,
    /// Time at which the timer task calls the request table next.
    pub(super) rings_at: Cell<Nanos>,
    /// Counter of the bytes that the proxy keeps for its clients.
    pub(super) memory: ClientMemory,
    pub(super) drain: Drain,
    /// Notification that the first thread accepts no more clients.
    pub(super) drain_ordered: Notify,
    pub(super) log: Option<RefCell<Sender>>,
    pub(super) exports: Option<ExportSender>,
}

impl Shared {
    pub(super) fn new(
        seat: Seat,
        (log, exports): (Option<Sender>, Option<ExportSender>),
        helpers: Helpers,
    ) -> Rc<Self> {
        let config = seat.config();
        let table = RefCell::new(seat.request_table(config.table));
        let connect_queues = Server::ALL.map(|_| RefCell::new(ConnectQueue::of_thread(seat.team.size())));
        let memory = ClientMemory::new(config.limits.memory_bytes);
        Rc::new(Self {
            helpers,
            memory,
            drain: Drain::default(),
            drain_ordered: Notify::new(),
            log: log.map(RefCell::new),
            exports,
            config,
            seat,
            table,
            pools: Default::default(),
            connect_queues,
            sampled: Cell::new(0),
            tunnels: Cell::new(0),
            dropping: Cell::new(0),
            turned_away: Cell::new(0),
            handshakes_failed: Cell::new(0),
            local_connect_errors: Cell::new(0),
            sooner: Notify::new(),
            ejections: Cell::default(),
            changed: Notify::new(),
            rings_at: Cell::new(Nanos::MAX),
        })
    }

    /// Returns the configured servers.
    pub(super) fn servers(&self) -> impl Iterator<Item = Server> + use<> {
        Server::first(self.config.servers.len())
    }

    /// Returns the address of a configured server.
    pub(super) fn address(&self, server: Server) -> SocketAddr {
        self.config.servers[server.index()]
    }

    pub(super) fn admit(&self, class: RequestClass, owner: &Owner) -> (RequestId, Server) {
        let admitted = self.table.borrow_mut().admit(now_ns(), class, Rc::clone(owner));
        if matches!(self.config.table.roles.mode, Mode::Timer { .. }) {
            self.wake_timers_earlier();
        }
        admitted
    }

    /// Passes an observation of a server to the request table, and carries out its orders.
    pub(super) fn observe(self: &Rc<Self>, event: HedgeEvent) {
        self.table.borrow_mut().observe(now_ns(), event);
        self.carry_out_orders();
    }

    /// Hedges the requests that wait for a server. Another thread has seen its hazard.
    pub(super) fn resend(self: &Rc<Self>, from: Server, because: Hazard) {
        self.table.borrow_mut().resend(now_ns(), from, because);
        self.carry_out_orders();
    }

    /// Passes the begin of a server's answer to the request table, which decides between the copies.
    pub(super) fn record_answer(self: &Rc<Self>, request_id: RequestId, by: Server, outcome: ServerOutcome) -> Verdict {
        let (verdict, acts) = {
            let (at, mut table) = (now_ns(), self.table.borrow_mut());
            let sent_ns = table.last_sent_ns(request_id, by);
            let verdict = table.record_answer(at, request_id, by, outcome.quality());
            (verdict, table.record_outcome(at, by, sent_ns, outcome))
        };
        if acts {
            self.carry_out_orders();
        }
        verdict
    }

    /// Passes the loss of an unanswered copy to the request table, and returns what the client's task does next.
    pub(super) fn record_loss(self: &Rc<Self>, request_id: RequestId, server: Server, loss: Loss) -> NextStep {
        let sent_ns = self.sent_ns(request_id, server);
        let next = self.table.borrow_mut().record_loss(now_ns(), request_id, server, loss);
        if let Some(error) = loss.server_error() {
            self.record_outcome(server, sent_ns, ServerOutcome::Error(error));
        }
        next
    }

    /// Records that a server has not answered in time.
    pub(super) fn record_timeout(self: &Rc<Self>, request_id: RequestId, server: Server) {
        self.record_outcome(server, self.sent_ns(request_id, server), ServerOutcome::Error(ServerError::Timeout));
    }

    /// Passes the outcome of a request that was sent to a server at `sent_ns` to the request table.
    pub(super) fn record_outcome(self: &Rc<Self>, server: Server, sent_ns: Nanos, outcome: ServerOutcome) {
        let acts = self.table.borrow_mut().record_outcome(now_ns(), server, sent_ns, outcome);
        if acts {
            self.carry_out_orders();
        }
    }

    pub(super) fn sent_ns(&self, request_id: RequestId, server: Server) -> Nanos {
        self.table.borrow_mut().last_sent_ns(request_id, server)
    }

    /// Carries out the orders of the request table.
    fn carry_out_orders(self: &Rc<Self>) {
        let effects = self.table.borrow_mut().take_effects();
        for effect in effects {
            match effect {
                Effect::Send { owner, request_id, to } => owner.order_copy(request_id, to),
                Effect::WarmUp(server) => (self.helpers.warm_up)(Rc::clone(self), server),
                Effect::Probe(server) => (self.helpers.probe)(Rc::clone(self), server),
                Effect::Resend(from, because) => self.seat.tell_others(|| Message::Resend(from, because)),
            }
        }
        self.wake_timers_earlier();
        self.notify_ejection_changes();
    }

    fn notify_ejection_changes(&self) {
        let table = self.table.borrow();
        let mut now = self.ejections.get();
        for server in self.servers() {
            now[server.index()] = (table.server_counts(server).ejections, table.ejection(server).is_some());
        }
        if self.ejections.replace(now) != now {
            self.changed.notify_one();
        }
    }

    fn wake_timers_earlier(&self) {
        if self.table.borrow().next_wakeup().is_some_and(|at| at < self.rings_at.get()) {
            self.sooner.notify_one();
        }
    }

    /// Sends a request to all servers except one, and drops their answers. Leaves out servers that are unreachable.
    pub(super) fn send_ignoring_answers(self: &Rc<Self>, except: Server, request: &[u8]) {
        for server in self.servers().filter(|server| *server != except) {
            if self.table.borrow().can_send_to(server) {
                (self.helpers.send_ignoring_outcome)(Rc::clone(self), server, request.to_vec());
            }
        }
    }

    /// Returns the number with which the client can request details of its request.
    pub(super) fn request_number(&self, id: u64) -> RequestNumber {
        self.seat.team.request_number(id)
    }

    /// Samples an answered request that is safe to repeat.
    pub(super) fn note_sample(&self, request: &[u8]) {
        let number = self.sampled.get();
        self.sampled.set(number + 1);
        self.seat.team.samples.sample_request(number, request);
    }

    /// Takes an idle connection from the pool; `None` if there is none.
    pub(super) fn take_idle_connection(&self, server: Server) -> Option<ServerConnection> {
        self.pools[server.index()].borrow_mut().take(Duration::MAX)
    }

    /// Takes a connection for a request that must not be sent twice. The connection was used so recently that its
    /// server is not about to close it.
    pub(super) fn take_recent_connection(&self, server: Server) -> Option<ServerConnection> {
        self.pools[server.index()].borrow_mut().take(JUST_USED)
    }

    /// Waits for a connection: a new one, or one that becomes idle earlier. Returns `None` if the server accepts no
    /// connection.
    pub(super) async fn next_connection(self: Rc<Self>, server: Server) -> Option<ServerConnection> {
        let connection = self.connect_queue(server).enqueue();
        self.begin_connects(server);
        connection.await.ok().flatten()
    }

    fn connect_queue(&self, server: Server) -> RefMut<'_, ConnectQueue> {
        self.connect_queues[server.index()].borrow_mut()
    }

    fn begin_connects(self: &Rc<Self>, server: Server) {
        while self.connect_queue(server).try_begin_connect() {
            let shared = Rc::clone(self);
            drop(spawn_local(async move {
                shared.connect(server).await;
                shared.connect_queue(server).end_connect();
                shared.begin_connects(server);
            }));
        }
    }

    /// Opens a connection for the first waiting request, or for the pool. Tells the request table the result, unless
    /// this machine is the cause of a failure.
    pub(super) async fn connect(self: &Rc<Self>, server: Server) {
        let (began, sent_ns, within) = (Instant::now(), now_ns(), self.config.limits.connect_time);
        match ServerConnection::open(self.address(server), within).await {
            Ok(connection) => {
                self.observe(HedgeEvent::Reached(server));
                self.offer(server, connection);
            }
            Err(error) if is_local_error(&error) => {
                self.local_connect_errors.set(self.local_connect_errors.get() + 1);
                self.connect_queue(server).reject_first_waiter();
            }
            Err(error) => {
                let failed = self.connect_queue(server).record_failure(began, &error);
                self.table.borrow_mut().count_failed_connect(server);
                match failed {
                    ConnectFailure::Unreachable => {
                        self.observe(HedgeEvent::Unreachable(server));
                        self.connect_queue(server).reject_waiters(Duration::ZERO);
                    }
                    ConnectFailure::Silent => {
                        self.observe(HedgeEvent::Tried(server, Attempt { sent_ns, has_failed: true }));
                        self.connect_queue(server).reject_waiters(within);
                    }
                    // Keep the waiting requests in the queue: the server is alive.
                    ConnectFailure::Busy => {}
                }
            }
        }
    }

    /// Takes back a connection without pending replies. Closes it if the server has sent unexpected data.
    pub(super) fn keep_connection(&self, server: Server, mut connection: ServerConnection) {
        connection.mark_idle();
        if connection.input.is_empty() {
            self.offer(server, connection);
        }
    }

    /// Gives a connection to the first waiting request, or to the pool.
    fn offer(&self, server: Server, connection: ServerConnection) {
        let mut queue = self.connect_queue(server);
        queue.record_alive();
        if let Some(connection) = queue.give_to_first_waiter(connection) {
            self.pools[server.index()].borrow_mut().put(connection);
        }
    }

    pub(super) fn close_stale_connections(&self) {
        self.pools.iter().for_each(|pool| pool.borrow_mut().close_stale());
    }
}

/// Queue of orders for one client's task.
#[derive(Default)]
pub(super) struct Mailbox {
    has_orders: Cell<bool>,
    orders: RefCell<Vec<(RequestId, Server)>>,
    reader: RefCell<Option<Waker>>,
}

/// Owner of a request in the request table: the queue of orders for its client's task.
pub(super) type Owner = Rc<Mailbox>;

impl Mailbox {
    /// Orders the client's task to send a copy of a request to a server.
    pub(super) fn order_copy(&self, request_id: RequestId, to: Server) {
        self.orders.borrow_mut().push((request_id, to));
        self.has_orders.set(true);
        if let Some(reader) = self.reader.borrow_mut().take() {
            reader.wake();
        }
    }

    /// Returns the next order. If there is none, registers the task to be woken by the next order.
    pub(super) fn poll_order(&self, cx: &mut Context<'_>) -> Option<(RequestId, Server)> {
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

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;

    use sidelane_policy::hedge::RolesConfig;

    use super::super::team::open_team;
    use super::*;
    use crate::config::{Limits, METHODS, Protocol};
    use crate::hazard_board::HazardBoard;
    use crate::http::Forwarded;
    use crate::request_table::{Label, TableConfig};
    use crate::resp::Repeatable;

    /// Creates the state of a proxy that hedges requests after a time.
    fn shared_with_hedge_timer() -> Rc<Shared> {
        let address = "127.0.0.1:1".parse().unwrap();
        let roles = RolesConfig { mode: Mode::Timer { after_ns: 1_000_000_000 }, ..RolesConfig::default() };
        let config = Config {
            servers: vec![address; 2],
            protocol: Protocol::Http,
            repeatable: Repeatable::from_names(METHODS),
            table: TableConfig { roles, ..TableConfig::default() },
            limits: Limits::default(),
            warm_up_requests: 0,
            forwarded: Forwarded::Off,
            tls: None,
        };
        let helpers = Helpers { warm_up: |_, _| {}, probe: |_, _| {}, send_ignoring_outcome: |_, _, _| {} };
        let board = Arc::new(HazardBoard::new().unwrap());
        let member = open_team(config, board, Arc::new(|_| serde_json::Value::Null), 1).remove(0);
        Shared::new(member.seat, (None, None), helpers)
    }

    fn admit(shared: &Shared) {
        let label = Label::from_text(b"GET /");
        shared.admit(RequestClass { is_repeatable: true, follows: None, label }, &Owner::default());
    }

    /// Returns whether the timer task was woken since the last call.
    fn is_timer_task_woken(shared: &Shared) -> bool {
        pin!(shared.sooner.notified()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_request_wakes_the_timer_task_only_for_an_earlier_time() {
        let shared = shared_with_hedge_timer();
        admit(&shared);
        assert!(is_timer_task_woken(&shared), "no time was set before");
        let hedge_time = shared.table.borrow().next_wakeup().unwrap();
        for (rings_at, is_woken) in [(hedge_time, false), (hedge_time - 1, false), (hedge_time + 1, true)] {
            shared.rings_at.set(rings_at);
            admit(&shared);
            assert_eq!(is_timer_task_woken(&shared), is_woken, "{rings_at} and {hedge_time}");
        }
    }
}
