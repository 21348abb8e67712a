//! Drains: which servers of another load balancer get fewer requests, or none, because of hazards.
//!
//! Problem. A load balancer that does not know of a hazard sends requests to a server that has stopped.
//!
//! Approach. Each server has a *share*: the part of its usual weight, in percent. A server with a hazard is drained
//! (its share is 0) while a server without one is there. A server that returns after a restart begins with a share of
//! 10 %, which rises until the end of its warm-up. Servers are compared by the ranks of the proxy (`condition.rs`), so a
//! pause that has just begun is not left for a cold server.
//!
//! Requests in flight at a drained server are sent again only when the hazard has lasted for a moment. By then each
//! response that the server had sent has reached the client, so that none is cut in the middle; and a shorter pause is
//! not worth it.
//!
//! Bounds. There is always a server with its full share. For passing hazards at most half of the servers are drained:
//! the rest have to carry the load.

use crate::{ActionList, Nanos};

use super::condition::{Condition, Rank};
use super::hazard::{Hazard, Hazards};

/// Full share, in percent.
pub const FULL: u8 = 100;
/// Number of steps in which the share of a cold server rises.
const STEPS: u64 = 10;

/// Tunables of [`Drains`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainConfig {
    /// Number of servers that are watched, at most [`Drains::SERVERS_MAX`].
    pub servers: usize,
    /// Number of ready servers that are not watched, until the load balancer says more.
    pub others: usize,
    /// Length of the warm-up of a server that returns; 0: no warm-up.
    pub warm_up_ns: Nanos,
    /// Time for which a passing hazard is tolerated rather than using a cold server.
    pub pause_ns: Nanos,
    /// Time after the begin of a drain at which requests in flight are sent again.
    pub resend_ns: Nanos,
}

/// Event about the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainEvent {
    /// The hazards of a server have changed to this set.
    Watched(usize, Hazards),
    /// The load balancer has said which servers it can use.
    Balancer {
        /// Watched servers that it could use with their full share: one bit for each server's number.
        usable: u64,
        /// Number of further servers that it can use.
        others: usize,
    },
    /// No event: time has passed.
    Nothing,
}

/// Action of the drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainAction {
    /// The server gets this share of its usual weight.
    Share {
        /// Number of the server.
        server: usize,
        /// Share in percent; 0 drains the server.
        percent: u8,
    },
    /// Requests in flight at the drained server still wait for a passing hazard: another server would answer them sooner.
    Resend(usize),
}

/// Actions of one event: at most a share and a resend for each server.
pub type DrainActions = ActionList<DrainAction, { 2 * Drains::SERVERS_MAX }>;

/// State of one server.
#[derive(Clone, Debug, Default)]
struct Server {
    condition: Condition,
    hazards: Hazards,
    /// Begin of the present hazards.
    since: Nanos,
    warm_from: Nanos,
    share: u8,
    /// Time at which requests in flight are sent again, if the server is still drained.
    resend_at: Option<Nanos>,
}

/// Shares of all servers.
#[derive(Clone, Debug)]
pub struct Drains {
    config: DrainConfig,
    servers: [Server; Drains::SERVERS_MAX],
    usable: u64,
    others: usize,
}

impl Drains {
    /// Largest number of servers of one load balancer.
    pub const SERVERS_MAX: usize = 64;

    /// Creates a policy in which each server has its full share.
    ///
    /// # Panics
    /// Panics if there are more servers than [`Drains::SERVERS_MAX`].
    pub fn new(config: DrainConfig) -> Self {
        assert!(config.servers <= Self::SERVERS_MAX, "{} servers are too many", config.servers);
        let servers = core::array::from_fn(|_| Server { share: FULL, ..Server::default() });
        Self { config, servers, usable: u64::MAX, others: config.others }
    }

    /// Returns the share of a server in percent.
    pub fn share(&self, server: usize) -> u8 {
        self.servers[server].share
    }

    /// Processes an event, and appends the actions that follow.
    pub fn observe(&mut self, now: Nanos, event: DrainEvent, out: &mut DrainActions) {
        match event {
            DrainEvent::Watched(server, hazards) => self.set_hazards(now, server, hazards),
            DrainEvent::Balancer { usable, others } => (self.usable, self.others) = (usable, others),
            DrainEvent::Nothing => {}
        }
        for Server { condition, .. } in &mut self.servers[..self.config.servers] {
            condition.pause_until = condition.pause_until.filter(|until| now < *until);
            condition.warm_until = condition.warm_until.filter(|until| now < *until);
        }
        self.update_shares(now, out);
    }

    /// Returns when the policy wants to observe again even if nothing changes; `None`: only on a change.
    pub fn next_wakeup(&self, now: Nanos) -> Option<Nanos> {
        let step_ns = self.config.warm_up_ns.div_ceil(STEPS).max(1);
        let times = |server: &Server| {
            let next_step = server.warm_from + ((now.saturating_sub(server.warm_from)) / step_ns + 1) * step_ns;
            let warm_until = server.condition.warm_until.map(|until| until.min(next_step));
            [server.condition.pause_until, warm_until, server.resend_at]
        };
        self.servers[..self.config.servers].iter().flat_map(times).flatten().min()
    }

    fn set_hazards(&mut self, now: Nanos, server: usize, hazards: Hazards) {
        let server = &mut self.servers[server];
        if server.hazards.is_empty() {
            server.since = now;
        }
        server.hazards = hazards;
        let is_back = server.condition.set_watched(hazards, now + self.config.pause_ns);
        if is_back && self.config.warm_up_ns > 0 {
            server.warm_from = now;
            server.condition.warm_until = Some(now + self.config.warm_up_ns);
        }
    }

    fn update_shares(&mut self, now: Nanos, out: &mut DrainActions) {
        let shares = self.wanted_shares(now);
        for (number, (server, percent)) in self.servers[..self.config.servers].iter_mut().zip(shares).enumerate() {
            let waits = percent == 0 && server.hazards.iter().all(Hazard::is_passing);
            if server.share != percent {
                server.share = percent;
                server.resend_at = waits.then_some(now + self.config.resend_ns);
                out.push(DrainAction::Share { server: number, percent });
            }
            server.resend_at = server.resend_at.filter(|_| waits);
            if server.resend_at.take_if(|at| *at <= now).is_some() {
                out.push(DrainAction::Resend(number));
            }
        }
    }

    fn wanted_shares(&self, now: Nanos) -> [u8; Self::SERVERS_MAX] {
        let mut shares = [FULL; Self::SERVERS_MAX];
        let has_well = self.others > 0 || self.usable_ranks().any(|rank| rank == Rank::Well);
        for (number, server) in self.servers[..self.config.servers].iter().enumerate() {
            match server.condition.rank() {
                Rank::Cold if has_well => shares[number] = self.warm_up_share(now, server),
                Rank::Away if self.is_drainable(number) => shares[number] = 0,
                _ => {}
            }
        }
        for _ in 0..self.passing_drains_max() {
            let is_open = |number: &usize| shares[*number] != 0 && self.has_passing_hazard(*number);
            let candidates = (0..self.config.servers).filter(is_open).filter(|number| self.is_drainable(*number));
            // A server that is drained stays so: each change of servers lets requests meet another pause.
            let order = |number: &usize| (self.servers[*number].share != 0, self.servers[*number].since, *number);
            let Some(next) = candidates.min_by_key(order) else { break };
            shares[next] = 0;
        }
        shares
    }

    /// Returns how many servers may be drained for passing hazards.
    fn passing_drains_max(&self) -> usize {
        (self.usable_ranks().filter(|rank| *rank != Rank::Away).count() + self.others) / 2
    }

    fn has_passing_hazard(&self, server: usize) -> bool {
        matches!(self.servers[server].condition.rank(), Rank::Paused | Rank::Slow)
    }

    /// Returns whether another server is better off, and this one is in use or drained.
    fn is_drainable(&self, server: usize) -> bool {
        let rank = self.servers[server].condition.rank();
        let is_concerned = self.is_usable(server) || self.servers[server].share == 0;
        let others = (self.others > 0).then_some(Rank::Well);
        is_concerned && self.usable_ranks().chain(others).any(|other| other.is_better_than(rank))
    }

    fn is_usable(&self, server: usize) -> bool {
        self.usable & (1 << server) != 0
    }

    fn usable_ranks(&self) -> impl Iterator<Item = Rank> + '_ {
        (0..self.config.servers).filter(|number| self.is_usable(*number)).map(|at| self.servers[at].condition.rank())
    }

    fn warm_up_share(&self, now: Nanos, server: &Server) -> u8 {
        let step_ns = self.config.warm_up_ns.div_ceil(STEPS).max(1);
        let steps = (now.saturating_sub(server.warm_from) / step_ns + 1).min(STEPS);
        (steps * u64::from(FULL) / STEPS) as u8
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    const MS: Nanos = 1_000_000;
    const GC: [Hazard; 1] = [Hazard::JvmGc];
    const GONE: [Hazard; 1] = [Hazard::Restart];

    fn drains(servers: usize, others: usize) -> Drains {
        Drains::new(DrainConfig { servers, others, warm_up_ns: 10_000 * MS, pause_ns: 20 * MS, resend_ns: 2 * MS })
    }

    fn observe(drains: &mut Drains, now: Nanos, event: DrainEvent) -> Vec<DrainAction> {
        let mut out = DrainActions::default();
        drains.observe(now, event, &mut out);
        out.iter().collect()
    }

    fn watched(server: usize, hazards: impl IntoIterator<Item = Hazard>) -> DrainEvent {
        DrainEvent::Watched(server, hazards.into_iter().collect())
    }

    fn shares(drains: &Drains) -> Vec<u8> {
        (0..drains.config.servers).map(|server| drains.share(server)).collect()
    }

    #[test]
    fn server_is_drained_while_its_hazard_lasts() {
        let mut drains = drains(2, 0);
        assert_eq!(observe(&mut drains, 0, watched(1, GC)), [DrainAction::Share { server: 1, percent: 0 }]);
        assert_eq!(observe(&mut drains, MS, watched(1, [Hazard::JvmGc, Hazard::Safepoint])), []);
        assert_eq!(observe(&mut drains, 2 * MS, watched(1, [])), [DrainAction::Share { server: 1, percent: FULL }]);
        assert_eq!(drains.next_wakeup(2 * MS), None);
    }

    #[test]
    fn requests_in_flight_are_sent_again_once_if_the_hazard_lasts() {
        let mut drains = drains(2, 0);
        observe(&mut drains, 0, watched(1, GC));
        assert_eq!(drains.next_wakeup(0), Some(2 * MS));
        assert_eq!(observe(&mut drains, 2 * MS - 1, DrainEvent::Nothing), []);
        assert_eq!(observe(&mut drains, 2 * MS, DrainEvent::Nothing), [DrainAction::Resend(1)]);
        assert_eq!(observe(&mut drains, 3 * MS, DrainEvent::Nothing), []);
        observe(&mut drains, 4 * MS, watched(1, []));
        observe(&mut drains, 5 * MS, watched(1, GC));
        observe(&mut drains, 6 * MS, watched(1, GONE));
        assert_eq!(observe(&mut drains, 9 * MS, DrainEvent::Nothing), [], "its connections are lost anyway");
    }

    #[test]
    fn last_ready_server_is_never_drained() {
        let mut alone = drains(1, 0);
        assert_eq!(observe(&mut alone, 0, watched(0, GC)), []);
        let mut one_of_two = drains(1, 1);
        assert_eq!(observe(&mut one_of_two, 0, watched(0, GC)).len(), 1);
        assert_eq!(
            observe(&mut one_of_two, MS, DrainEvent::Balancer { usable: 1, others: 0 }),
            [DrainAction::Share { server: 0, percent: FULL }],
            "the other one has failed its health check"
        );
        let mut both = drains(2, 0);
        observe(&mut both, 0, watched(0, GC));
        let back = [DrainAction::Share { server: 0, percent: FULL }];
        assert_eq!(observe(&mut both, MS, watched(1, GC)), back, "its pause began first, and ends first");
        observe(&mut both, 2 * MS, watched(0, []));
        assert_eq!(shares(&both), [100, 0]);
    }

    #[test]
    fn server_that_is_gone_gives_the_paused_one_its_requests_back() {
        let mut drains = drains(2, 0);
        observe(&mut drains, 0, watched(0, GC));
        observe(&mut drains, MS, watched(1, GONE));
        assert_eq!(shares(&drains), [100, 0]);
    }

    #[test]
    fn half_of_the_servers_are_drained_for_passing_hazards() {
        let mut drains = drains(4, 0);
        (0..4).rev().for_each(|server| _ = observe(&mut drains, 4 - server as u64, watched(server, GC)));
        assert_eq!(shares(&drains), [100; 4], "no server is better off");
        observe(&mut drains, 10, watched(0, []));
        assert_eq!(shares(&drains), [100, 100, 0, 0], "those whose pauses began first");
        observe(&mut drains, 11, watched(2, []));
        assert_eq!(shares(&drains), [100, 0, 100, 0]);
    }

    #[test]
    fn returning_server_gets_rising_shares() {
        let mut drains = drains(2, 0);
        assert_eq!(observe(&mut drains, 0, watched(0, GONE)), [DrainAction::Share { server: 0, percent: 0 }]);
        observe(&mut drains, 0, watched(0, []));
        let mut seen = std::vec![drains.share(0)];
        let mut now = 0;
        while let Some(next) = drains.next_wakeup(now) {
            now = next;
            observe(&mut drains, now, DrainEvent::Nothing);
            seen.push(drains.share(0));
        }
        assert_eq!(seen, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 100][..seen.len()]);
        assert_eq!((now, drains.share(0)), (10_000 * MS, 100));
    }

    #[test]
    fn short_pause_is_not_left_for_a_cold_server() {
        let mut drains = drains(2, 0);
        observe(&mut drains, 0, watched(0, GONE));
        observe(&mut drains, 0, watched(0, []));
        observe(&mut drains, MS, watched(1, GC));
        assert_eq!(shares(&drains), [100, 100], "nothing is better than the two");
        observe(&mut drains, 21 * MS, DrainEvent::Nothing);
        assert_eq!(shares(&drains), [100, 0]);
    }

    #[test]
    fn server_that_the_balancer_does_not_use_is_left_alone() {
        let mut drains = drains(3, 0);
        observe(&mut drains, 0, DrainEvent::Balancer { usable: 0b011, others: 0 });
        assert_eq!(observe(&mut drains, 0, watched(2, GC)), []);
        observe(&mut drains, 0, watched(0, GC));
        assert_eq!(shares(&drains), [0, 100, 100]);
        observe(&mut drains, 0, DrainEvent::Balancer { usable: 0b001, others: 0 });
        assert_eq!(shares(&drains), [100; 3]);
    }
}
