//! What all tasks of a proxy share. They run on one thread.

use std::cell::{Cell, RefCell, RefMut};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sidelane_policy::Nanos;
use sidelane_policy::hedge::{Attempt, Mode, Seen, Server};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::Instant;

use super::drain::Drain;
use super::lack::is_own_lack;
use super::line::{Failed, Line};
use super::link::{JUST_USED, Link, Pool};
use super::mailbox::Owner;
use super::memory::Memory;
use super::samples::Samples;
use crate::access::Sender;
use crate::config::Config;
use crate::desk::{Class, Desk, Effect, Loss, Next, Outcome, ServerError, Ticket, Verdict};
use crate::http::Number;
use crate::page::HazardPage;
use crate::witness::Witness;

/// Who does what the desk asks for of a server; they know [`Shared`], which does not know them.
#[derive(Clone, Copy)]
pub(super) struct Helpers {
    pub(super) warm_up: fn(Rc<Shared>, Server),
    pub(super) probe: fn(Rc<Shared>, Server),
    pub(super) tell: fn(Rc<Shared>, Server, Vec<u8>),
}

pub(super) struct Shared {
    helpers: Helpers,
    pub(super) config: Config,
    pub(super) page: Arc<HazardPage>,
    pub(super) witness: Witness,
    pub(super) desk: RefCell<Desk<Owner>>,
    pools: [RefCell<Pool>; 2],
    lines: [RefCell<Line>; 2],
    /// Of the marks of requests' numbers.
    secret: RandomState,
    pub(super) samples: RefCell<Samples>,
    /// Whoever waits for the first of them.
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
    pub(super) memory: Memory,
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
        (page, witness): (Arc<HazardPage>, Witness),
        log: Option<Sender>,
        helpers: Helpers,
    ) -> Rc<Self> {
        let desk = RefCell::new(Desk::new(config.desk));
        let memory = Memory::new(config.limits.memory_bytes);
        Rc::new(Self {
            helpers,
            memory,
            drain: Drain::default(),
            log: log.map(RefCell::new),
            config,
            page,
            witness,
            desk,
            pools: Default::default(),
            lines: Default::default(),
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

    pub(super) fn admit(&self, class: Class, owner: &Owner) -> (Ticket, Server) {
        let admitted = self.desk.borrow_mut().admit(now(), class, Rc::clone(owner));
        if matches!(self.config.desk.roles.mode, Mode::Timer { .. }) {
            self.look_sooner();
        }
        admitted
    }

    /// Something was seen of a server: the desk decides, and what it asks for is done.
    pub(super) fn seen(self: &Rc<Self>, seen: Seen) {
        self.desk.borrow_mut().seen(now(), seen);
        self.carry_out();
    }

    /// An answer of this server has begun: the desk decides between it and the other copy.
    pub(super) fn answered(self: &Rc<Self>, ticket: Ticket, by: Server, outcome: Outcome) -> Verdict {
        let (verdict, acts) = {
            let (at, mut desk) = (now(), self.desk.borrow_mut());
            let sent_ns = desk.sent_ns(ticket, by);
            let verdict = desk.answered(at, ticket, by, outcome.quality());
            (verdict, desk.tried(at, by, sent_ns, outcome))
        };
        if acts {
            self.carry_out();
        }
        verdict
    }

    /// The copy at this server was lost before it was answered.
    pub(super) fn lost(self: &Rc<Self>, ticket: Ticket, at: Server, loss: Loss) -> Next {
        let sent_ns = self.sent_ns(ticket, at);
        let next = self.desk.borrow_mut().lost(now(), ticket, at, loss);
        if let Some(error) = loss.error() {
            self.tried(at, sent_ns, Outcome::Error(error));
        }
        next
    }

    /// The server has not answered in time.
    pub(super) fn late(self: &Rc<Self>, ticket: Ticket, at: Server) {
        self.tried(at, self.sent_ns(ticket, at), Outcome::Error(ServerError::Timeout));
    }

    /// The server answered a request that was sent to it then, or failed to.
    pub(super) fn tried(self: &Rc<Self>, server: Server, sent_ns: Nanos, outcome: Outcome) {
        let acts = self.desk.borrow_mut().tried(now(), server, sent_ns, outcome);
        if acts {
            self.carry_out();
        }
    }

    pub(super) fn sent_ns(&self, ticket: Ticket, at: Server) -> Nanos {
        self.desk.borrow_mut().sent_ns(ticket, at)
    }

    /// Does what the desk asks for.
    fn carry_out(self: &Rc<Self>) {
        let effects = self.desk.borrow_mut().take_effects();
        for effect in effects {
            match effect {
                Effect::Send { owner, ticket, to } => owner.order(ticket, to),
                Effect::WarmUp(server) => (self.helpers.warm_up)(Rc::clone(self), server),
                Effect::Probe(server) => (self.helpers.probe)(Rc::clone(self), server),
            }
        }
        self.look_sooner();
        self.tell_of_ejections();
    }

    fn tell_of_ejections(&self) {
        let desk = self.desk.borrow();
        let now = Server::BOTH.map(|server| (desk.server_counts(server).ejections, desk.ejection(server).is_some()));
        if self.ejections.replace(now) != now {
            self.changed.notify_one();
        }
    }

    fn look_sooner(&self) {
        if self.desk.borrow().next_wakeup().is_some_and(|at| at < self.rings_at.get()) {
            self.sooner.notify_one();
        }
    }

    /// Sends a request whose answer is dropped, if the server exists and can be asked.
    pub(super) fn tell_too(self: &Rc<Self>, server: Server, request: &[u8]) {
        let is_there = server == Server::First || self.config.backup.is_some();
        if is_there && self.desk.borrow().can_ask(server) {
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

    /// A connection that nobody uses.
    pub(super) fn idle_link(&self, server: Server) -> Option<Link> {
        self.pools[server.index()].borrow_mut().take(Duration::MAX)
    }

    /// A connection for a request that must not be sent twice: one that was just used, so that it is not closed now.
    pub(super) fn just_used_link(&self, server: Server) -> Option<Link> {
        self.pools[server.index()].borrow_mut().take(JUST_USED)
    }

    /// Stands in line for a connection: one that is made, or that becomes idle before.
    pub(super) async fn next_link(self: Rc<Self>, server: Server) -> Option<Link> {
        let link = self.line(server).join();
        self.begin_connects(server);
        link.await.ok().flatten()
    }

    fn line(&self, server: Server) -> RefMut<'_, Line> {
        self.lines[server.index()].borrow_mut()
    }

    fn begin_connects(self: &Rc<Self>, server: Server) {
        while self.line(server).begins_connect() {
            let shared = Rc::clone(self);
            drop(spawn_local(async move {
                shared.connect(server).await;
                shared.line(server).end_connect();
                shared.begin_connects(server);
            }));
        }
    }

    /// Makes a connection for the first in line, or for the pool. The desk is told whether it can be made, unless what is
    /// missing is on our side.
    pub(super) async fn connect(self: &Rc<Self>, server: Server) {
        let (began, sent_ns, within) = (Instant::now(), now(), self.config.limits.connect_time);
        match Link::open(self.address(server), within).await {
            Ok(link) => {
                self.seen(Seen::Reached(server));
                self.offer(server, link);
            }
            Err(error) if is_own_lack(&error) => {
                self.without_link.set(self.without_link.get() + 1);
                self.line(server).turn_first_away();
            }
            Err(error) => {
                let failed = self.line(server).failed(began, &error);
                self.desk.borrow_mut().not_connected(server);
                match failed {
                    Failed::Unreachable => {
                        self.seen(Seen::Unreachable(server));
                        self.line(server).turn_away(Duration::ZERO);
                    }
                    Failed::Silent => {
                        self.seen(Seen::Tried(server, Attempt { sent_ns, has_failed: true }));
                        self.line(server).turn_away(within);
                    }
                    // Those in line have their turn.
                    Failed::Busy => {}
                }
            }
        }
    }

    /// Takes back a connection that owes nothing, unless the server said more than it was asked.
    pub(super) fn keep_link(&self, server: Server, mut link: Link) {
        link.rest();
        if link.input.is_empty() {
            self.offer(server, link);
        }
    }

    /// Gives the connection to the first in line, or keeps it.
    fn offer(&self, server: Server, link: Link) {
        let mut line = self.line(server);
        line.is_alive();
        if let Some(link) = line.give(link) {
            self.pools[server.index()].borrow_mut().put(link);
        }
    }

    pub(super) fn sweep(&self) {
        self.pools.iter().for_each(|pool| pool.borrow_mut().sweep());
    }
}
