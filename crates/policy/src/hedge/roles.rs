//! Roles of the two servers, active and backup, and the requests that are sent again: Figure 4.9 of the thesis.
//!
//! Problem. A hazard of the active server delays every request in flight there, and every request that comes while it
//! lasts.
//!
//! Approach. When a hazard of the active server begins and the backup is better off, the two swap roles. Requests in
//! flight at the former active server are sent to the new one, too. A server that returns after a restart is warmed up
//! before its rank is `Well`. If it lost its role because of the restart, it stays the backup.
//!
//! Differences from the thesis: servers are compared by rank, from well over cold and slow to away. So there is no swap
//! to a server that is no better. When both have hazards they swap as soon as one of them is over. A server to which no
//! connection can be made is away, and probed at intervals. A garbage collection is mostly over before a cold server
//! has answered, so a cold server is only used if the hazard lasts.
//!
//! A server that fails its requests is ejected for a while (`outlier.rs`), unless its peer is not well: the last good
//! server is never ejected. After the ejection it is warmed up as after a restart. A failed warm-up request ejects it
//! again before it gets a client's request.
//!
//! When a passing hazard is over, requests return to the former server. In the thesis they stay. So two servers that
//! collect garbage get equal shares of the requests there. Their heaps fill in step, and in the end both collect at the
//! same time, and no server can help. A server that gets requests only while its peer collects seldom has to collect
//! itself.

use core::fmt;

use crate::{Nanos, Policy};

use super::Server;
use super::condition::{Condition, Rank};
use super::hazard::{Hazard, Hazards};
use super::outlier::{Attempt, Ejection, Fault};

/// Condition under which requests are sent to both servers.
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
    /// Condition under which requests are sent to both servers. Watched hazards count only under [`Mode::Hazard`].
    pub mode: Mode,
    /// Whether there is a backup server.
    pub has_backup: bool,
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
    /// Returns a configuration with a backup, swaps at hazards, ten probes a second, a warm-up of ten seconds, and 30 s
    /// of ejection. The first request of a JVM that was just started took 17 ms and more.
    fn default() -> Self {
        Self {
            mode: Mode::Hazard,
            has_backup: true,
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
    /// Requests in flight at a server that are safe to repeat are sent to its peer, too.
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

/// Actions of one event: at most a swap or return, a resend, and a probe and a warm-up of both servers.
pub type HedgeActions = crate::ActionList<HedgeAction, 6>;

/// Reason why the active server is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeReason {
    /// The active server is the first server of the configuration.
    Start,
    /// The peer of the active server had this hazard.
    Swapped(Hazard),
    /// The active server lost its role because of this hazard, which is over.
    Returned(Hazard),
    /// The active server has this hazard, and its peer is no better off.
    NoBetter(Hazard),
}

impl crate::PolicyReason for HedgeReason {}

impl fmt::Display for HedgeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("it is the server named as active"),
            Self::Swapped(hazard) => write!(f, "hazard of the other server: {hazard}"),
            Self::Returned(hazard) => write!(f, "its own hazard is over: {hazard}"),
            Self::NoBetter(hazard) => write!(f, "it has a hazard ({hazard}), but the other server has one, too"),
        }
    }
}

/// Roles of the two servers.
#[derive(Clone, Debug)]
pub struct Roles {
    config: RolesConfig,
    active: Server,
    conditions: [Condition; 2],
    ranks: [Rank; 2],
    /// Hazard for which the backup lost the active role; requests return to it when it is well.
    left_for: Option<Hazard>,
    why: HedgeReason,
}

impl Roles {
    /// Creates the roles with the first server active, and no known hazards.
    pub fn new(config: RolesConfig) -> Self {
        let conditions = Default::default();
        Self {
            config,
            active: Server::First,
            conditions,
            ranks: [Rank::Well; 2],
            left_for: None,
            why: HedgeReason::Start,
        }
    }

    /// Returns the server that new requests go to.
    pub fn active(&self) -> Server {
        self.active
    }

    /// Returns whether the server exists, and is not known to be unreachable.
    pub fn can_send_to(&self, server: Server) -> bool {
        self.is_configured(server) && self.rank(server) != Rank::Away
    }

    /// Returns whether the server exists, and may answer better than its peer.
    pub fn can_hedge_to(&self, server: Server) -> bool {
        self.is_configured(server) && self.rank(server) < Rank::Failing
    }

    fn is_configured(&self, server: Server) -> bool {
        server == Server::First || self.config.has_backup
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

    /// Ejects the server, if its peer is well or cold.
    fn eject(&mut self, now: Nanos, server: Server, fault: Fault) {
        let out_ns = self.config.out_ns;
        if out_ns > 0 && self.config.has_backup && self.rank(server.other()) <= Rank::Cold {
            let condition = &mut self.conditions[server.index()];
            condition.outlier.eject(now, fault, out_ns);
            condition.warm_until = None;
        }
    }

    /// Warms up a server that has just returned, if its peer can work during that time.
    fn warm_up(&mut self, now: Nanos, server: Server, is_back: bool, out: &mut HedgeActions) {
        let condition = &mut self.conditions[server.index()];
        let is_needed = is_back && condition.warm_until.is_none() && condition.rank() != Rank::Away;
        if is_needed && self.config.has_backup && self.config.warm_up_ns > 0 {
            condition.warm_until = Some(now + self.config.warm_up_ns);
            out.push(HedgeAction::WarmUp(server));
        }
    }

    /// Handles the passing of time: the end of a warm-up or of a pause, and probes of servers that are away.
    fn advance_time(&mut self, now: Nanos, out: &mut HedgeActions) {
        for server in Server::BOTH {
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
        let ranks = Server::BOTH.map(|server| self.rank(server));
        if ranks == self.ranks || !self.config.has_backup {
            return;
        }
        self.ranks = ranks;
        let (active, backup) = (self.active, self.active.other());
        let hazard = self.conditions[active.index()].worst_hazard();
        if ranks[backup.index()].is_better_than(ranks[active.index()]) {
            // A server that is only cold has no hazard now; the hazard that it had was its restart.
            self.swap(backup, hazard.unwrap_or(Hazard::Restart), out);
        } else if let Some(hazard) = self.left_for.filter(|_| ranks[backup.index()] == Rank::Well) {
            self.left_for = None;
            self.active = backup;
            self.why = HedgeReason::Returned(hazard);
            out.push(HedgeAction::Return { to: backup });
        } else if let Some(hazard) = hazard {
            self.why = HedgeReason::NoBetter(hazard);
        }
        self.resend(out);
    }

    /// Makes `to` the active server. Requests do not return later to a server that was away, or to one that replaced
    /// its peer.
    fn swap(&mut self, to: Server, because: Hazard, out: &mut HedgeActions) {
        self.left_for = Some(because).filter(|hazard| hazard.is_passing() && self.left_for.is_none());
        self.active = to;
        self.why = HedgeReason::Swapped(because);
        out.push(HedgeAction::Swap { to, because });
    }

    fn resend(&self, out: &mut HedgeActions) {
        let from = self.active.other();
        let is_worse = self.rank(self.active).is_better_than(self.rank(from));
        let hazard =
            self.conditions[from.index()].worst_hazard().filter(|_| is_worse && self.config.mode == Mode::Hazard);
        out.extend(hazard.map(|because| HedgeAction::Resend { from, because }));
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
