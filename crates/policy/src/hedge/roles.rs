//! Roles of a proxy's servers, active and backup, and the requests that are sent again: Figure 4.9 of the thesis.
//!
//! Problem. A hazard of the active server delays every request in flight there, and every request that comes while it
//! lasts.
//!
//! Approach. When a hazard of the active server begins and a backup is better off, the best backup takes its role.
//! Requests in flight at the former active server are sent to another one, too. A server that returns after a restart
//! is warmed up before its rank is `Well`. If it lost its role because of the restart, it stays a backup.
//!
//! Differences from the thesis: there are up to [`SERVERS_MAX`] servers instead of two. They are compared by rank, from
//! well over cold and slow to away; of equal servers, the first one of the configuration is the best. So there is no
//! swap to a server that is no better. When all have hazards they swap as soon as one of them is over. A server to which
//! no connection can be made is away, and probed at intervals. A garbage collection is mostly over before a cold server
//! has answered, so a cold server is only used if the hazard lasts.
//!
//! A server that fails its requests is ejected for a while (`outlier.rs`), unless no other is well: the last good
//! server is never ejected. After the ejection it is warmed up as after a restart. A failed warm-up request ejects it
//! again before it gets a client's request.
//!
//! When a passing hazard is over, requests return to the server that had it, also if its replacement was replaced in
//! between. In the thesis they stay. So servers that collect garbage get equal shares of the requests there. Their heaps
//! fill in step, and in the end all collect at the same time, and no server can help. A server that gets requests only
//! while another one collects seldom has to collect itself.

use core::fmt;

use crate::{Nanos, Policy};

use super::condition::{Condition, Rank};
use super::hazard::{Hazard, Hazards};
use super::outlier::{Attempt, Ejection, Fault};
use super::ranking::Ranking;
use super::server::{SERVERS_MAX, Server};

/// Condition under which requests are sent to a second server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// When a hazard of the server that has the requests begins.
    Hazard,
    /// When requests have not been answered for a given time (Dean and Barroso, 2013).
    Timer {
        /// Time without an answer, in nanoseconds.
        after_ns: Nanos,
    },
    /// Never.
    Never,
}

/// Tunables of [`Roles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolesConfig {
    /// Condition under which requests are sent to a second server. Watched hazards count only under [`Mode::Hazard`].
    pub mode: Mode,
    /// Number of servers: the active one and its backups, at most [`SERVERS_MAX`].
    pub servers: usize,
    /// Longest warm-up of a server that returns; 0: no warm-up.
    pub warm_up_ns: Nanos,
    /// Interval between two probes of a server that cannot be reached.
    pub probe_ns: Nanos,
    /// Time for which a passing hazard is tolerated rather than using a cold server.
    pub pause_ns: Nanos,
    /// Length of the first ejection of a server that fails its requests; 0: it is never ejected.
    pub out_ns: Nanos,
}

impl Default for RolesConfig {
    /// Returns a configuration with one backup, swaps at hazards, ten probes a second, a warm-up of ten seconds, and 30 s
    /// of ejection. The first request of a JVM that was just started took 17 ms and more.
    fn default() -> Self {
        Self {
            mode: Mode::Hazard,
            servers: 2,
            warm_up_ns: 10_000_000_000,
            probe_ns: 100_000_000,
            pause_ns: 20_000_000,
            out_ns: 30_000_000_000,
        }
    }
}

/// Event about a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeEvent {
    /// The hazards of a server have changed to this set, as watchers report them.
    Watched(Server, Hazards),
    /// A connection to the server could not be made.
    Unreachable(Server),
    /// A connection to the server was made.
    Reached(Server),
    /// The server has answered all requests of its warm-up, or the time of the warm-up is over.
    Warmed(Server),
    /// The server failed a warm-up request: its warm-up starts again.
    StillCold(Server),
    /// The server answered a client's request, or failed to.
    Tried(Server, Attempt),
    /// No event: time has passed.
    Nothing,
}

/// Action of the hedging policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeAction {
    /// New requests go to this server, because of a hazard.
    Swap {
        /// New active server.
        to: Server,
        /// Hazard of the former active server.
        because: Hazard,
    },
    /// New requests go to this server again, since the hazard that made it lose its role is over.
    Return {
        /// Server that was active before, and is active again.
        to: Server,
    },
    /// Requests in flight at a server that are safe to repeat are sent to a better one of [`Roles::ranking`], too.
    Resend {
        /// Server that has the requests.
        from: Server,
        /// Hazard of that server.
        because: Hazard,
    },
    /// The server gets requests that warm it up; their answers are dropped.
    WarmUp(Server),
    /// A connection to the server is tried.
    Probe(Server),
}

/// Actions of one event: at most a swap or return, and a resend, a probe and a warm-up for each server.
pub type HedgeActions = crate::ActionList<HedgeAction, { 1 + 3 * SERVERS_MAX }>;

/// Reason why the active server is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeReason {
    /// The active server is the first server of the configuration.
    Start,
    /// The former active server had this hazard.
    Swapped(Hazard),
    /// The active server lost its role because of this hazard, which is over.
    Returned(Hazard),
    /// The active server has this hazard, and no other is better off.
    NoBetter(Hazard),
}

impl crate::PolicyReason for HedgeReason {}

impl fmt::Display for HedgeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("it is the server named as active"),
            Self::Swapped(hazard) => write!(f, "hazard of the former active server: {hazard}"),
            Self::Returned(hazard) => write!(f, "its own hazard is over: {hazard}"),
            Self::NoBetter(hazard) => write!(f, "it has a hazard ({hazard}), but no other server is better off"),
        }
    }
}

/// Roles of all servers.
#[derive(Clone, Debug)]
pub struct Roles {
    config: RolesConfig,
    active: Server,
    conditions: [Condition; SERVERS_MAX],
    ranking: Ranking,
    /// Backup that lost the active role for a passing hazard; requests return to it when it is well.
    left: Option<(Server, Hazard)>,
    why: HedgeReason,
}

impl Roles {
    /// Creates the roles with the first server active, and no known hazards.
    ///
    /// # Panics
    /// Panics if the number of servers is 0 or larger than [`SERVERS_MAX`].
    pub fn new(config: RolesConfig) -> Self {
        assert!((1..=SERVERS_MAX).contains(&config.servers), "a proxy cannot have {} servers", config.servers);
        Self {
            config,
            active: Server::FIRST,
            conditions: Default::default(),
            ranking: Ranking::new(config.servers, |_| Rank::Well),
            left: None,
            why: HedgeReason::Start,
        }
    }

    /// Returns the server that new requests go to.
    pub fn active(&self) -> Server {
        self.active
    }

    /// Returns the ranks of the servers.
    pub fn ranking(&self) -> Ranking {
        self.ranking
    }

    fn servers(&self) -> impl Iterator<Item = Server> + use<> {
        Server::first(self.config.servers)
    }

    /// Returns the ejection of a server; `None` if it is in service.
    pub fn ejection(&self, server: Server) -> Option<Ejection> {
        self.conditions[server.index()].outlier.ejection()
    }

    /// Returns whether a server in service has failed requests lately, or is on trial. If not, its successes may be
    /// reported late: they change nothing before its next failure.
    pub fn is_suspect(&self, server: Server) -> bool {
        self.conditions[server.index()].outlier.is_suspect()
    }

    /// Returns whether the server gets requests that warm it up.
    pub fn is_warming_up(&self, server: Server) -> bool {
        self.conditions[server.index()].warm_until.is_some()
    }

    fn rank(&self, server: Server) -> Rank {
        self.conditions[server.index()].rank()
    }

    /// Updates the state of a server by an event.
    fn update_server_states(&mut self, now: Nanos, seen: &HedgeEvent, out: &mut HedgeActions) {
        let counts = self.config.mode == Mode::Hazard;
        match *seen {
            HedgeEvent::Watched(server, hazards) if counts => {
                let pause_until = now + self.config.pause_ns;
                let condition = &mut self.conditions[server.index()];
                let is_back = condition.set_watched(hazards, pause_until);
                if is_back {
                    // The process that failed has ended, so its results no longer count.
                    condition.outlier.clear_results(now);
                }
                self.warm_up(now, server, is_back, out);
            }
            HedgeEvent::Unreachable(server) => {
                // A server that cannot be reached counts as one failure until it is reached, however many connects
                // fail.
                if self.conditions[server.index()].probe_at.is_none() {
                    self.record_attempt(now, server, Attempt { sent_ns: now, has_failed: true });
                }
                self.conditions[server.index()].mark_unreachable(now + self.config.probe_ns);
            }
            HedgeEvent::Reached(server) => {
                let is_back = self.conditions[server.index()].mark_reached();
                self.warm_up(now, server, is_back, out);
            }
            HedgeEvent::Warmed(server) => self.conditions[server.index()].warm_until = None,
            HedgeEvent::StillCold(server) => {
                let until = now + self.config.warm_up_ns;
                let condition = &mut self.conditions[server.index()];
                condition.warm_until = condition.warm_until.filter(|warm_until| now < *warm_until).map(|_| until);
                if condition.outlier.is_on_trial() {
                    self.eject(now, server, Fault::FailedAfterReturn);
                }
            }
            HedgeEvent::Tried(server, attempt) => self.record_attempt(now, server, attempt),
            HedgeEvent::Watched(..) | HedgeEvent::Nothing => {}
        }
    }

    fn record_attempt(&mut self, now: Nanos, server: Server, attempt: Attempt) {
        if let Some(fault) = self.conditions[server.index()].outlier.record_attempt(now, attempt) {
            self.eject(now, server, fault);
        }
    }

    /// Ejects the server, if another one is well or cold.
    fn eject(&mut self, now: Nanos, server: Server, fault: Fault) {
        let out_ns = self.config.out_ns;
        let has_good = self.servers().any(|other| other != server && self.rank(other) <= Rank::Cold);
        if out_ns > 0 && has_good {
            let condition = &mut self.conditions[server.index()];
            condition.outlier.eject(now, fault, out_ns);
            condition.warm_until = None;
        }
    }

    /// Warms up a server that has just returned, if another one can work during that time.
    fn warm_up(&mut self, now: Nanos, server: Server, is_back: bool, out: &mut HedgeActions) {
        let condition = &mut self.conditions[server.index()];
        let is_needed = is_back && condition.warm_until.is_none() && condition.rank() != Rank::Away;
        if is_needed && self.config.servers > 1 && self.config.warm_up_ns > 0 {
            condition.warm_until = Some(now + self.config.warm_up_ns);
            out.push(HedgeAction::WarmUp(server));
        }
    }

    /// Handles the passing of time: the end of a warm-up or of a pause, and probes of servers that are away.
    fn advance_time(&mut self, now: Nanos, out: &mut HedgeActions) {
        for server in self.servers() {
            let condition = &mut self.conditions[server.index()];
            condition.warm_until = condition.warm_until.filter(|until| now < *until);
            condition.pause_until = condition.pause_until.filter(|until| now < *until);
            let is_back = condition.outlier.return_if_due(now);
            if condition.probe_at.is_some_and(|at| now >= at) {
                condition.probe_at = Some(now + self.config.probe_ns);
                out.push(HedgeAction::Probe(server));
            }
            self.warm_up(now, server, is_back, out);
        }
    }

    /// Swaps the roles, or returns to the former server, and resends requests, if the ranks have changed.
    fn swap_if_better(&mut self, out: &mut HedgeActions) {
        let before = self.ranking;
        self.ranking = Ranking::new(self.config.servers, |server| self.rank(server));
        if self.ranking == before || self.config.servers == 1 {
            return;
        }
        let hazard = self.conditions[self.active.index()].worst_hazard();
        let returning = self.left.filter(|(server, _)| self.ranking.rank(*server) == Rank::Well);
        if let Some(to) = self.ranking.better_than(self.active) {
            // A server that is only cold has no hazard now; the hazard that it had was its restart.
            self.swap(to, hazard.unwrap_or(Hazard::Restart), out);
        } else if let Some((to, hazard)) = returning {
            self.left = None;
            self.active = to;
            self.why = HedgeReason::Returned(hazard);
            out.push(HedgeAction::Return { to });
        } else if let Some(hazard) = hazard {
            self.why = HedgeReason::NoBetter(hazard);
        }
        self.resend(before, out);
    }

    /// Makes `to` the active server. Requests do not return later to a server that was away, or to one that replaced
    /// another.
    fn swap(&mut self, to: Server, because: Hazard, out: &mut HedgeActions) {
        self.left = match self.left {
            Some((server, _)) if server == to => None,
            Some(left) if self.ranking.can_send_to(left.0) => Some(left),
            _ if because.is_passing() => Some((self.active, because)),
            left => left,
        };
        self.active = to;
        self.why = HedgeReason::Swapped(because);
        out.push(HedgeAction::Swap { to, because });
    }

    /// Resends the requests of each server that has a hazard and is worse than another, if the rank of either of the two
    /// has changed.
    fn resend(&self, before: Ranking, out: &mut HedgeActions) {
        if self.config.mode != Mode::Hazard {
            return;
        }
        let ranks = |ranking: Ranking, from| Some((ranking.rank(ranking.better_than(from)?), ranking.rank(from)));
        for from in self.servers() {
            let is_worse = ranks(self.ranking, from).is_some_and(|worse| Some(worse) != ranks(before, from));
            let hazard = self.conditions[from.index()].worst_hazard().filter(|_| is_worse);
            out.extend(hazard.map(|because| HedgeAction::Resend { from, because }));
        }
    }
}

impl Policy for Roles {
    type Observation = HedgeEvent;
    type Actions = HedgeActions;
    type Reason = HedgeReason;

    fn observe(&mut self, now: Nanos, seen: &HedgeEvent, out: &mut HedgeActions) {
        self.update_server_states(now, seen, out);
        self.advance_time(now, out);
        self.swap_if_better(out);
    }

    fn next_wakeup(&self) -> Option<Nanos> {
        let times = |condition: &Condition| {
            let back_at = condition.outlier.ejection().map(|ejection| ejection.until_ns);
            [condition.probe_at, condition.warm_until, condition.pause_until, back_at]
        };
        self.conditions.iter().flat_map(times).flatten().min()
    }

    fn why(&self) -> HedgeReason {
        self.why
    }
}
