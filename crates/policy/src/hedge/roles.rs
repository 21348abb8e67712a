//! Who is active, and whose requests are sent again: Figure 4.9 of the thesis.
//!
//! Problem. A hazard of the active server delays every request that it has, and those that come while it lasts.
//!
//! Approach. When a hazard of the active server begins and the backup is better off, they swap, and what the former
//! active has in flight is sent to the new one, too. A server that comes back after a restart is warmed up before it
//! counts as well; if it was left for that, it is the backup from then on.
//!
//! What is ours: servers are compared by rank, well before cold before slow before away. So there is no swap to a
//! server that is no better, and when both have hazards they swap as soon as one of them is over. A server to which no
//! connection can be made is away, and looked for again from time to time. A collection is mostly over before a server
//! that is cold has answered, so that one is only asked instead if the hazard lasts.
//!
//! A server that fails its requests is ejected for a while (`outlier.rs`), unless the other one is not well: the last
//! good server is never ejected. When its time is over it is warmed up as after a restart, and a failure of a warm-up
//! request ejects it again before it gets a client's request.
//!
//! When a hazard that passes is over, requests go back. In the thesis nothing happens then, so two servers that collect
//! garbage have equal shares of the requests: their heaps fill in step, and in the end both collect at the same time, and
//! no server can help. A server that is only asked while the other one collects hardly ever does so itself.

use core::fmt;

use crate::{Nanos, Policy};

use super::Server;
use super::condition::{Condition, Rank};
use super::hazard::{Hazard, Hazards};
use super::outlier::{Attempt, Ejection, Fault};

/// When requests are sent to both servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// When a hazard of the server that has them begins.
    Hazard,
    /// When they have not been answered for so long (Dean and Barroso, 2013).
    Timer {
        /// For how long.
        after_ns: Nanos,
    },
    /// Never.
    Never,
}

/// The tunables of [`Roles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolesConfig {
    /// When requests are sent to both servers. Hazards that are watched count only under [`Mode::Hazard`].
    pub mode: Mode,
    /// Whether there is a backup.
    pub has_backup: bool,
    /// Servers that come back are warmed up for so long at most; 0: not at all.
    pub warm_up_ns: Nanos,
    /// A server that cannot be reached is looked for so often.
    pub probe_ns: Nanos,
    /// A hazard that passes is borne for so long, rather than that a server is asked that is cold.
    pub pause_ns: Nanos,
    /// A server that fails its requests is out of service for so long at first; 0: it stays in service.
    pub out_ns: Nanos,
}

impl Default for RolesConfig {
    /// A backup that hazards swap, ten looks a second, ten seconds to get warm, and 30 s out of service. The first
    /// request of a JVM that was just started took 17 ms and more.
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

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The hazards that a server has from now on, as watchers see them.
    Watched(Server, Hazards),
    /// A connection to it could not be made.
    Unreachable(Server),
    /// A connection to it was made.
    Reached(Server),
    /// It has answered as many requests as it takes to get warm, or its time for that is up.
    Warmed(Server),
    /// It failed a warm-up request: its time to get warm starts again.
    StillCold(Server),
    /// It answered a client's request, or failed to.
    Tried(Server, Attempt),
    /// Time went by.
    Nothing,
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// New requests go to this server from now on.
    Swap {
        /// The new active server.
        to: Server,
        /// What befell the former one.
        because: Hazard,
    },
    /// New requests go to this server again, for the hazard for which it was left is over.
    Return {
        /// The server that was active before.
        to: Server,
    },
    /// Requests in flight that are safe to repeat are sent to the other server, too.
    Resend {
        /// The server that has them.
        from: Server,
        /// What befell it.
        because: Hazard,
    },
    /// It gets requests that warm it up; their answers are dropped.
    WarmUp(Server),
    /// A connection to it is tried.
    Probe(Server),
}

/// All that one event can cause: a swap or return, a resend, and both servers looked for and warmed up.
pub type Actions = crate::Actions<Action, 6>;

/// Why the active server is the active one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It was named so.
    Start,
    /// The other one had this hazard.
    Swapped(Hazard),
    /// It was left for this hazard, which is over.
    Returned(Hazard),
    /// It has a hazard, and the other one is no better off.
    NoBetter(Hazard),
}

impl crate::Reason for Reason {}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("it was named as the active server"),
            Self::Swapped(hazard) => write!(f, "hazard of the other server: {hazard}"),
            Self::Returned(hazard) => write!(f, "the hazard for which it was left is over: {hazard}"),
            Self::NoBetter(hazard) => write!(f, "it has a hazard ({hazard}), and the other server is no better off"),
        }
    }
}

/// Who is active.
#[derive(Clone, Debug)]
pub struct Roles {
    config: RolesConfig,
    active: Server,
    conditions: [Condition; 2],
    ranks: [Rank; 2],
    /// The backup was left for this hazard, and requests go back to it when it is well.
    left_for: Option<Hazard>,
    why: Reason,
}

impl Roles {
    /// The first server is active, and nothing is known against either.
    pub fn new(config: RolesConfig) -> Self {
        let conditions = Default::default();
        Self { config, active: Server::First, conditions, ranks: [Rank::Well; 2], left_for: None, why: Reason::Start }
    }

    /// The server that new requests go to.
    pub fn active(&self) -> Server {
        self.active
    }

    /// Whether there is this server, and it can be reached as far as is known.
    pub fn can_ask(&self, server: Server) -> bool {
        self.is_there(server) && self.rank(server) != Rank::Away
    }

    /// Whether there is this server, and it may answer better than another one.
    pub fn may_help(&self, server: Server) -> bool {
        self.is_there(server) && self.rank(server) < Rank::Failing
    }

    fn is_there(&self, server: Server) -> bool {
        server == Server::First || self.config.has_backup
    }

    /// Its time out of service, while it is ejected.
    pub fn ejection(&self, server: Server) -> Option<Ejection> {
        self.conditions[server.index()].outlier.ejection()
    }

    /// Whether requests are sent to it that warm it up.
    pub fn is_warming_up(&self, server: Server) -> bool {
        self.conditions[server.index()].warm_until.is_some()
    }

    fn rank(&self, server: Server) -> Rank {
        self.conditions[server.index()].rank()
    }

    /// What is told changes what is known of a server.
    fn note(&mut self, now: Nanos, seen: &Seen, out: &mut Actions) {
        let counts = self.config.mode == Mode::Hazard;
        match *seen {
            Seen::Watched(server, hazards) if counts => {
                let pause_until = now + self.config.pause_ns;
                let condition = &mut self.conditions[server.index()];
                let is_back = condition.set_watched(hazards, pause_until);
                if is_back {
                    // The process that failed has ended.
                    condition.outlier.renew(now);
                }
                self.warm_up(now, server, is_back, out);
            }
            Seen::Unreachable(server) => {
                // Until it is reached it has failed once, however many connects fail.
                if self.conditions[server.index()].probe_at.is_none() {
                    self.tried(now, server, Attempt { sent_ns: now, has_failed: true });
                }
                self.conditions[server.index()].unreachable(now + self.config.probe_ns);
            }
            Seen::Reached(server) => {
                let is_back = self.conditions[server.index()].reached();
                self.warm_up(now, server, is_back, out);
            }
            Seen::Warmed(server) => self.conditions[server.index()].warm_until = None,
            Seen::StillCold(server) => {
                let until = now + self.config.warm_up_ns;
                let condition = &mut self.conditions[server.index()];
                condition.warm_until = condition.warm_until.filter(|warm_until| now < *warm_until).map(|_| until);
                if condition.outlier.is_on_trial() {
                    self.eject(now, server, Fault::Again);
                }
            }
            Seen::Tried(server, attempt) => self.tried(now, server, attempt),
            Seen::Watched(..) | Seen::Nothing => {}
        }
    }

    fn tried(&mut self, now: Nanos, server: Server, attempt: Attempt) {
        if let Some(fault) = self.conditions[server.index()].outlier.note(now, attempt) {
            self.eject(now, server, fault);
        }
    }

    /// Takes the server out of service, if the other one is well.
    fn eject(&mut self, now: Nanos, server: Server, fault: Fault) {
        let out_ns = self.config.out_ns;
        if out_ns > 0 && self.config.has_backup && self.rank(server.other()) <= Rank::Cold {
            let condition = &mut self.conditions[server.index()];
            condition.outlier.eject(now, fault, out_ns);
            condition.warm_until = None;
        }
    }

    /// A server that has just come back is warmed up, if another one can work meanwhile.
    fn warm_up(&mut self, now: Nanos, server: Server, is_back: bool, out: &mut Actions) {
        let condition = &mut self.conditions[server.index()];
        let is_needed = is_back && condition.warm_until.is_none() && condition.rank() != Rank::Away;
        if is_needed && self.config.has_backup && self.config.warm_up_ns > 0 {
            condition.warm_until = Some(now + self.config.warm_up_ns);
            out.push(Action::WarmUp(server));
        }
    }

    /// What time brings: an end of warming up or of a pause, and looks for servers that are away.
    fn pass(&mut self, now: Nanos, out: &mut Actions) {
        for server in Server::BOTH {
            let condition = &mut self.conditions[server.index()];
            condition.warm_until = condition.warm_until.filter(|until| now < *until);
            condition.pause_until = condition.pause_until.filter(|until| now < *until);
            let is_back = condition.outlier.return_if_due(now);
            if condition.probe_at.is_some_and(|at| now >= at) {
                condition.probe_at = Some(now + self.config.probe_ns);
                out.push(Action::Probe(server));
            }
            self.warm_up(now, server, is_back, out);
        }
    }

    /// Swaps, or goes back, and sends again, if the ranks have changed.
    fn judge(&mut self, out: &mut Actions) {
        let ranks = Server::BOTH.map(|server| self.rank(server));
        if ranks == self.ranks || !self.config.has_backup {
            return;
        }
        self.ranks = ranks;
        let (active, backup) = (self.active, self.active.other());
        let hazard = self.conditions[active.index()].worst();
        if ranks[backup.index()].is_better_than(ranks[active.index()]) {
            // A server that is only cold has no hazard any more; it had one that ended it.
            self.swap(backup, hazard.unwrap_or(Hazard::Restart), out);
        } else if let Some(hazard) = self.left_for.filter(|_| ranks[backup.index()] == Rank::Well) {
            self.left_for = None;
            self.active = backup;
            self.why = Reason::Returned(hazard);
            out.push(Action::Return { to: backup });
        } else if let Some(hazard) = hazard {
            self.why = Reason::NoBetter(hazard);
        }
        self.resend(out);
    }

    /// A server that is left because it is away is the backup from then on, as is one that was asked instead of another.
    fn swap(&mut self, to: Server, because: Hazard, out: &mut Actions) {
        self.left_for = Some(because).filter(|hazard| hazard.passes() && self.left_for.is_none());
        self.active = to;
        self.why = Reason::Swapped(because);
        out.push(Action::Swap { to, because });
    }

    fn resend(&self, out: &mut Actions) {
        let from = self.active.other();
        let is_worse = self.rank(self.active).is_better_than(self.rank(from));
        let hazard = self.conditions[from.index()].worst().filter(|_| is_worse && self.config.mode == Mode::Hazard);
        out.extend(hazard.map(|because| Action::Resend { from, because }));
    }
}

impl Policy for Roles {
    type Observation = Seen;
    type Actions = Actions;
    type Reason = Reason;

    fn observe(&mut self, now: Nanos, seen: &Seen, out: &mut Actions) {
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

    fn why(&self) -> Reason {
        self.why
    }
}
