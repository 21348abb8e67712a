//! Threads of one proxy: what they share, and the messages between them.
//!
//! Each thread serves its clients alone, with its own connections to servers and its own request table. The first one
//! accepts clients and watches hazards for all. Only the roles of the servers are common, see
//! [`CommonRoles`].

use std::hash::{BuildHasher, RandomState};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sidelane_policy::hedge::{Hazard, Server};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};

use super::samples::Samples;
use crate::config::{Config, TraceLookup};
use crate::hazard_board::HazardBoard;
use crate::http::RequestNumber;
use crate::request_table::{CommonRoles, RequestTable, TableConfig};

/// Message to one thread.
pub(super) enum Message {
    /// A client to serve.
    Client(TcpStream, ClientSlot),
    /// The requests that wait for this server are hedged, because of a hazard.
    Resend(Server, Hazard),
    /// A request whose number came to another thread. The answer goes to that thread.
    Describe(RequestNumber, oneshot::Sender<Vec<u8>>),
    /// There are no more clients.
    Drain,
}

/// One thread's part in the team, before the thread runs.
pub struct Member {
    pub(super) seat: Seat,
    pub(super) inbox: UnboundedReceiver<Message>,
}

/// Place of a thread in its team.
#[derive(Clone)]
pub(super) struct Seat {
    pub(super) team: Arc<Team>,
    pub(super) index: usize,
}

/// State that the threads of a proxy share.
pub(super) struct Team {
    pub(super) config: Config,
    pub(super) board: Arc<HazardBoard>,
    pub(super) trace_lookup: TraceLookup,
    roles: Arc<CommonRoles>,
    pub(super) samples: Samples,
    /// Secret key of the hash that makes request numbers hard to guess.
    secret: RandomState,
    /// Ways to the threads.
    senders: Vec<UnboundedSender<Message>>,
    /// Number of connected clients of each thread.
    clients: Vec<AtomicUsize>,
    /// Notification that a client has left.
    pub(super) left: Notify,
}

/// Number of clients of all proxies of this process, which share its open files.
static CLIENTS: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of clients of this process.
pub(super) fn clients_of_process() -> usize {
    CLIENTS.load(Ordering::Relaxed)
}

/// Creates the team of a proxy with this number of threads, the accepting thread first.
pub fn open_team(config: Config, board: Arc<HazardBoard>, trace_lookup: TraceLookup, threads: usize) -> Vec<Member> {
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..threads).map(|_| unbounded_channel()).unzip();
    let team = Arc::new(Team {
        roles: Arc::new(CommonRoles::new(config.table.roles)),
        config,
        board,
        trace_lookup,
        samples: Samples::default(),
        secret: RandomState::new(),
        clients: senders.iter().map(|_| AtomicUsize::new(0)).collect(),
        senders,
        left: Notify::new(),
    });
    let member = |(index, inbox)| Member { seat: Seat { team: Arc::clone(&team), index }, inbox };
    inboxes.into_iter().enumerate().map(member).collect()
}

impl Team {
    /// Returns the number of threads.
    pub(super) fn size(&self) -> usize {
        self.senders.len()
    }

    pub(super) fn total_clients(&self) -> usize {
        self.clients.iter().map(|clients| clients.load(Ordering::Relaxed)).sum()
    }

    /// Returns the number with which the client can request details of its request.
    pub(super) fn request_number(&self, id: u64) -> RequestNumber {
        RequestNumber { id, mark: self.secret.hash_one(id) }
    }

    /// Sends a message to a thread. Returns the message if the thread has ended.
    pub(super) fn send(&self, index: usize, message: Message) -> Result<(), Message> {
        self.senders[index].send(message).map_err(|unsent| unsent.0)
    }
}

impl Seat {
    /// Returns the configuration of this thread: limits of the whole proxy are divided.
    pub(super) fn config(&self) -> Config {
        let mut config = self.team.config.clone();
        config.limits.memory_bytes /= self.team.size();
        config.table.budget.burst = config.table.budget.burst.div_ceil(self.team.size() as u64);
        config
    }

    /// Creates the request table of this thread.
    pub(super) fn request_table<O: Clone>(&self, config: TableConfig) -> RequestTable<O> {
        RequestTable::of_thread(config, Arc::clone(&self.team.roles), (self.index, self.team.size()))
    }

    /// Returns whether this thread accepts clients and watches hazards for all.
    pub(super) fn is_first(&self) -> bool {
        self.index == 0
    }

    /// Returns the number of clients of this thread.
    pub(super) fn clients(&self) -> usize {
        self.team.clients[self.index].load(Ordering::Relaxed)
    }

    /// Returns the seat with the fewest clients.
    pub(super) fn least_loaded(&self) -> Self {
        let clients = |index: &usize| self.team.clients[*index].load(Ordering::Relaxed);
        let index = (0..self.team.size()).min_by_key(clients).unwrap_or(self.index);
        Self { team: Arc::clone(&self.team), index }
    }

    /// Returns the index of the thread that gave the request its number; `None` for this thread.
    pub(super) fn other_owner(&self, number: RequestNumber) -> Option<usize> {
        let index = usize::try_from(number.id.wrapping_sub(1)).unwrap_or(0) % self.team.size();
        (index != self.index).then_some(index)
    }

    /// Sends messages to all other threads.
    pub(super) fn tell_others(&self, message: impl Fn() -> Message) {
        for index in (0..self.team.size()).filter(|index| *index != self.index) {
            // Ignore an error: a thread that has ended has no requests.
            let _ = self.team.send(index, message());
        }
    }

    /// Waits until this thread has no client. The first thread waits for the clients of all, because it watches hazards
    /// for them.
    pub(super) async fn wait_until_clients_left(&self) {
        let clients = || if self.is_first() { self.team.total_clients() } else { self.clients() };
        loop {
            let left = self.team.left.notified();
            if clients() == 0 {
                return;
            }
            left.await;
        }
    }
}

/// Registration of a connected client, counted for its thread and for the process.
pub(super) struct ClientSlot(Seat);

impl ClientSlot {
    pub(super) fn register(seat: &Seat) -> Self {
        seat.team.clients[seat.index].fetch_add(1, Ordering::Relaxed);
        CLIENTS.fetch_add(1, Ordering::Relaxed);
        Self(seat.clone())
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        self.0.team.clients[self.0.index].fetch_sub(1, Ordering::Relaxed);
        CLIENTS.fetch_sub(1, Ordering::Relaxed);
        self.0.team.left.notify_waiters();
    }
}
