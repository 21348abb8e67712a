//! Roles of the two servers, and the requests that are sent again: Figure 4.9 of the thesis.
//!
//! Problem. A hazard of the active server delays every request that it has, and those that come while it lasts.
//!
//! Approach. When a hazard of the active server begins and the backup is better off, they swap, and requests in flight
//! at the former active server are sent to the new one, too. A server that comes back after a restart is warmed up
//! before it counts as well; if it was left for that, it stays the backup.
//!
//! Differences from the thesis: servers are compared by rank, well before cold before slow before away. So there is no
//! swap to a server that is no better, and when both have hazards they swap as soon as one of them is over. A server to
//! which no connection can be made is away, and probed at intervals. A collection is mostly over before a cold server
//! has answered, so a cold server is only used if the hazard lasts.
//!
//! A server that fails its requests is ejected for a while (`outlier.rs`), unless its peer is not well: the last good
//! server is never ejected. After that time it is warmed up as after a restart, and a failure of a warm-up request
//! ejects it again before it gets a client's request.
//!
//! When a passing hazard is over, requests go back. In the thesis they stay. So two servers that collect garbage get
//! equal shares of the requests there: their heaps fill in step, and in the end both collect at the same time, and no
//! server can help. A server that gets requests only while its peer collects seldom has to collect itself.

use core::fmt;

use crate::{Nanos, Policy};

use super::Server;
use super::condition::{Condition, Rank};
use super::hazard::{Hazard, Hazards};
use super::outlier::{Attempt, Ejection, Fault};

/// Condition under which requests are sent to both servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// When a hazard of the server that has them begins.
    Hazard,
    /// When they have not been answered for a given time (Dean and Barroso, 2013).
    Timer {
        /// The time.
        after_ns: Nanos,
    },
    /// Never.
    Never,
}

/// The tunables of [`Roles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolesConfig {
    /// Condition under which requests are sent to both servers. Watched hazards count only under [`Mode::Hazard`].
    pub mode: Mode,
    /// Whether there is a backup.
    pub has_backup: bool,
    /// Longest warm-up of a server that comes back; 0: none.
    pub warm_up_ns: Nanos,
    /// Interval between two probes of a server that cannot be reached.
    pub probe_ns: Nanos,
    /// Time for which a passing hazard is tolerated rather than using a cold server.
    pub pause_ns: Nanos,
    /// First time out of service of a server that fails its requests; 0: it stays in service.
    pub out_ns: Nanos,
}

impl Default for RolesConfig {
    /// Returns a backup that hazards swap, ten probes a second, a warm-up of ten seconds, and 30 s out of service. The
    /// first request of a JVM that was just started took 17 ms and more.
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

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeEvent {
    /// The hazards that a server has from now on, as watchers report them.
    Watched(Server, Hazards),
    /// A connection to it could not be made.
    Unreachable(Server),
    /// A connection to it was made.
    Reached(Server),
    /// It has answered all requests of its warm-up, or its time for that is up.
    Warmed(Server),
    /// It failed a warm-up request: its warm-up starts again.
    StillCold(Server),
    /// It answered a client's request, or failed to.
    Tried(Server, Attempt),
    /// Time has passed.
    Nothing,
}

/// An action of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeAction {
    /// New requests go to this server from now on.
    Swap {
        /// The new active server.
        to: Server,
        /// The hazard of the former one.
        because: Hazard,
    },
    /// New requests go to this server again, since the hazard for which it was left is over.
    Return {
        /// The server that was active before.
        to: Server,
    },
    /// Requests in flight that are safe to repeat are sent to the other server, too.
    Resend {
        /// The server that has them.
        from: Server,
        /// Its hazard.
        because: Hazard,
    },
    /// It gets requests that warm it up; their answers are dropped.
    WarmUp(Server),
    /// A connection to it is tried.
    Probe(Server),
}

/// The actions of one event, at most a swap or return, a resend, and a probe and a warm-up of both servers.
pub type HedgeActions = crate::ActionList<HedgeAction, 6>;

/// The reason why the active server is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeReason {
    /// It is the first server.
    Start,
    /// Its peer had this hazard.
    Swapped(Hazard),
    /// It was left for this hazard, which is over.
    Returned(Hazard),
    /// It has a hazard, and its peer is no better off.
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

/// The roles of the two servers.
#[derive(Clone, Debug)]
pub struct Roles {
    config: RolesConfig,
    active: Server,
    conditions: [Condition; 2],
    ranks: [Rank; 2],
    /// The hazard for which the backup was left; requests go back to it when it is well.
    left_for: Option<Hazard>,
    why: HedgeReason,
}

impl Roles {
    /// Creates it with the first server active, and no known hazards.
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

    /// Returns whether this server exists, and can be reached as far as is known.
    pub fn can_ask(&self, server: Server) -> bool {
        self.is_there(server) && self.rank(server) != Rank::Away
    }

    /// Returns whether this server exists, and may answer better than another one.
    pub fn may_help(&self, server: Server) -> bool {
        self.is_there(server) && self.rank(server) < Rank::Failing
    }

    fn is_there(&self, server: Server) -> bool {
        server == Server::First || self.config.has_backup
    }

    /// Returns its time out of service, while it is ejected.
    pub fn ejection(&self, server: Server) -> Option<Ejection> {
        self.conditions[server.index()].outlier.ejection()
    }

    /// Returns whether it gets requests that warm it up.
    pub fn is_warming_up(&self, server: Server) -> bool {
        self.conditions[server.index()].warm_until.is_some()
    }

    fn rank(&self, server: Server) -> Rank {
        self.conditions[server.index()].rank()
    }

    /// Updates the state of a server by an event.
    fn note(&mut self, now: Nanos, seen: &HedgeEvent, out: &mut HedgeActions) {
        let counts = self.config.mode == Mode::Hazard;
        match *seen {
            HedgeEvent::Watched(server, hazards) if counts => {
                let pause_until = now + self.config.pause_ns;
                let condition = &mut self.conditions[server.index()];
                let is_back = condition.set_watched(hazards, pause_until);
                if is_back {
                    // The process that failed has ended.
                    condition.outlier.renew(now);
                }
                self.warm_up(now, server, is_back, out);
            }
            HedgeEvent::Unreachable(server) => {
                // Until it is reached it has failed once, however many connects fail.
                if self.conditions[server.index()].probe_at.is_none() {
                    self.tried(now, server, Attempt { sent_ns: now, has_failed: true });
                }
                self.conditions[server.index()].unreachable(now + self.config.probe_ns);
            }
            HedgeEvent::Reached(server) => {
                let is_back = self.conditions[server.index()].reached();
                self.warm_up(now, server, is_back, out);
            }
            HedgeEvent::Warmed(server) => self.conditions[server.index()].warm_until = None,
            HedgeEvent::StillCold(server) => {
                let until = now + self.config.warm_up_ns;
                let condition = &mut self.conditions[server.index()];
                condition.warm_until = condition.warm_until.filter(|warm_until| now < *warm_until).map(|_| until);
                if condition.outlier.is_on_trial() {
                    self.eject(now, server, Fault::Again);
                }
            }
            HedgeEvent::Tried(server, attempt) => self.tried(now, server, attempt),
            HedgeEvent::Watched(..) | HedgeEvent::Nothing => {}
        }
    }

    fn tried(&mut self, now: Nanos, server: Server, attempt: Attempt) {
        if let Some(fault) = self.conditions[server.index()].outlier.note(now, attempt) {
            self.eject(now, server, fault);
        }
    }

    /// Takes the server out of service, if its peer is well.
    fn eject(&mut self, now: Nanos, server: Server, fault: Fault) {
        let out_ns = self.config.out_ns;
        if out_ns > 0 && self.config.has_backup && self.rank(server.other()) <= Rank::Cold {
            let condition = &mut self.conditions[server.index()];
            condition.outlier.eject(now, fault, out_ns);
            condition.warm_until = None;
        }
    }

    /// Warms up a server that has just come back, if its peer can work during that time.
    fn warm_up(&mut self, now: Nanos, server: Server, is_back: bool, out: &mut HedgeActions) {
        let condition = &mut self.conditions[server.index()];
        let is_needed = is_back && condition.warm_until.is_none() && condition.rank() != Rank::Away;
        if is_needed && self.config.has_backup && self.config.warm_up_ns > 0 {
            condition.warm_until = Some(now + self.config.warm_up_ns);
            out.push(HedgeAction::WarmUp(server));
        }
    }

    /// Handles the passing of time: the end of a warm-up or of a pause, and probes of servers that are away.
    fn pass(&mut self, now: Nanos, out: &mut HedgeActions) {
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

    /// Swaps, or goes back, and sends again, if the ranks have changed.
    fn judge(&mut self, out: &mut HedgeActions) {
        let ranks = Server::BOTH.map(|server| self.rank(server));
        if ranks == self.ranks || !self.config.has_backup {
            return;
        }
        self.ranks = ranks;
        let (active, backup) = (self.active, self.active.other());
        let hazard = self.conditions[active.index()].worst();
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

    /// A server that is left because it is away stays the backup, as does one that was used in place of its peer.
    fn swap(&mut self, to: Server, because: Hazard, out: &mut HedgeActions) {
        self.left_for = Some(because).filter(|hazard| hazard.passes() && self.left_for.is_none());
        self.active = to;
        self.why = HedgeReason::Swapped(because);
        out.push(HedgeAction::Swap { to, because });
    }

    fn resend(&self, out: &mut HedgeActions) {
        let from = self.active.other();
        let is_worse = self.rank(self.active).is_better_than(self.rank(from));
        let hazard = self.conditions[from.index()].worst().filter(|_| is_worse && self.config.mode == Mode::Hazard);
        out.extend(hazard.map(|because| HedgeAction::Resend { from, because }));
    }
}

impl Policy for Roles {
    type Observation = HedgeEvent;
    type Actions = HedgeActions;
    type Reason = HedgeReason;

    fn observe(&mut self, now: Nanos, seen: &HedgeEvent, out: &mut HedgeActions) {
        self.note(now, seen, out);
        self.pass(now, out);
        self.judge(out);
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
