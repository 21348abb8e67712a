//! Roles of the servers, which the threads of a proxy share.
//!
//! Problem. Each thread has its own request table. If each judged the servers on its own, two threads could send the
//! same client's writes to different servers. A lock around the policy would be taken by each request.
//!
//! Approach. The policy is behind a lock that only events take. What each request needs to know is published in atomics.
//! A success is an event, too, but a thread keeps its successes, and hands them over with its next event. It does so at
//! once while their server is suspected: a request of it has failed lately. So the policy sees all results of one thread in
//! their order, and no failure before the successes of its thread that came earlier.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sidelane_policy::hedge::{
    Attempt, Ejection, HedgeAction, HedgeActions, HedgeEvent, HedgeReason, Ranking, Roles, RolesConfig, SERVERS_MAX,
    Server,
};
use sidelane_policy::{Nanos, Policy};

/// Maximum number of successes that a thread keeps.
const SUCCESSES_MAX: usize = 64;
/// Maximum age of a success when the next one comes.
const SUCCESS_AGE_MAX_NS: Nanos = 1_000_000_000;

/// Place of the active server's index in [`CommonRoles::published`], two bits after the ranking.
const ACTIVE_SHIFT: usize = Ranking::BITS;
/// Bits of the first server in [`CommonRoles::published`]. Those of the others follow, each after [`SERVER_BITS`].
const IS_WARMING_UP: u32 = 1 << (ACTIVE_SHIFT + 2);
const IS_SUSPECT: u32 = IS_WARMING_UP << 1;
const SERVER_BITS: usize = 2;

/// Roles of the servers of one proxy.
#[derive(Debug)]
pub struct CommonRoles {
    roles: Mutex<Roles>,
    /// Present state of the roles, as bits.
    published: AtomicU32,
    /// Time at which the policy must be called next; [`Nanos::MAX`] for none.
    next_wakeup: AtomicU64,
}

impl CommonRoles {
    /// Creates the roles with the first server active.
    pub fn new(config: RolesConfig) -> Self {
        let roles = Roles::new(config);
        let (published, next_wakeup) = (published_bits(&roles).into(), next_wakeup(&roles).into());
        Self { roles: Mutex::new(roles), published, next_wakeup }
    }

    fn lock(&self) -> MutexGuard<'_, Roles> {
        self.roles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn published(&self) -> u32 {
        self.published.load(Ordering::Acquire)
    }

    fn is_set_for(&self, server: Server, bit: u32) -> bool {
        self.published() & bit << (SERVER_BITS * server.index()) != 0
    }
}

fn published_bits(roles: &Roles) -> u32 {
    let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
    let of_server = |server: Server| {
        let bits = bit(roles.is_warming_up(server), IS_WARMING_UP) | bit(roles.is_suspect(server), IS_SUSPECT);
        bits << (SERVER_BITS * server.index())
    };
    let servers = Server::ALL.into_iter().fold(0, |bits, server| bits | of_server(server));
    servers | roles.ranking().to_bits() | (roles.active().index() as u32) << ACTIVE_SHIFT
}

fn next_wakeup(roles: &Roles) -> Nanos {
    roles.next_wakeup().unwrap_or(Nanos::MAX)
}

/// Effects of events on the roles.
#[derive(Debug, Default)]
pub(super) struct Decision {
    pub(super) actions: Vec<HedgeAction>,
    /// Whether the server was ejected, by server.
    pub(super) ejected: [bool; SERVERS_MAX],
}

/// Access of one request table to the common roles.
#[derive(Debug)]
pub(super) struct RolesHandle {
    common: Arc<CommonRoles>,
    /// Successes that were not handed over: the time of the answer, the server, and the time at which it was asked.
    successes: Vec<(Nanos, Server, Nanos)>,
}

impl RolesHandle {
    pub(super) fn new(common: Arc<CommonRoles>) -> Self {
        Self { common, successes: Vec::new() }
    }

    /// Takes in the success of a request. Returns what follows from it, unless it is kept for later.
    pub(super) fn record_success(&mut self, now: Nanos, server: Server, sent_ns: Nanos) -> Option<Decision> {
        self.successes.push((now, server, sent_ns));
        let is_old = now.saturating_sub(self.successes[0].0) >= SUCCESS_AGE_MAX_NS;
        let is_due = is_old || self.successes.len() >= SUCCESSES_MAX || self.common.is_set_for(server, IS_SUSPECT);
        is_due.then(|| self.hand_over(None))
    }

    /// Takes in an event.
    pub(super) fn observe(&mut self, now: Nanos, event: HedgeEvent) -> Decision {
        self.hand_over(Some((now, event)))
    }

    fn hand_over(&mut self, last: Option<(Nanos, HedgeEvent)>) -> Decision {
        let mut decision = Decision::default();
        let mut roles = self.common.lock();
        let is_ejected = |roles: &Roles| Server::ALL.map(|server| roles.ejection(server).is_some());
        let before = is_ejected(&roles);
        let successes = self
            .successes
            .drain(..)
            .map(|(at, server, sent_ns)| (at, HedgeEvent::Tried(server, Attempt { sent_ns, has_failed: false })));
        for (at, event) in successes.chain(last) {
            let mut actions = HedgeActions::default();
            roles.observe(at, &event, &mut actions);
            decision.actions.extend(actions.iter());
        }
        let after = is_ejected(&roles);
        decision.ejected = Server::ALL.map(|server| after[server.index()] && !before[server.index()]);
        self.common.next_wakeup.store(next_wakeup(&roles), Ordering::Release);
        self.common.published.store(published_bits(&roles), Ordering::Release);
        decision
    }

    pub(super) fn active(&self) -> Server {
        Server::ALL[(self.common.published() >> ACTIVE_SHIFT) as usize % SERVERS_MAX]
    }

    pub(super) fn ranking(&self) -> Ranking {
        Ranking::from_bits(self.common.published())
    }

    pub(super) fn is_warming_up(&self, server: Server) -> bool {
        self.common.is_set_for(server, IS_WARMING_UP)
    }

    pub(super) fn next_wakeup(&self) -> Option<Nanos> {
        Some(self.common.next_wakeup.load(Ordering::Acquire)).filter(|at| *at != Nanos::MAX)
    }

    pub(super) fn ejection(&self, server: Server) -> Option<Ejection> {
        self.common.lock().ejection(server)
    }

    pub(super) fn why(&self) -> HedgeReason {
        self.common.lock().why()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: Nanos = 1_000_000_000;

    fn two_handles() -> [RolesHandle; 2] {
        let common = Arc::new(CommonRoles::new(RolesConfig::default()));
        [(); 2].map(|()| RolesHandle::new(Arc::clone(&common)))
    }

    fn fail(handle: &mut RolesHandle, now: Nanos) -> Decision {
        handle.observe(now, HedgeEvent::Tried(Server::FIRST, Attempt { sent_ns: now, has_failed: true }))
    }

    #[test]
    fn successes_take_no_lock_until_their_server_is_suspect() {
        let [mut one, mut two] = two_handles();
        for number in 1..SUCCESSES_MAX as Nanos {
            assert!(one.record_success(number, Server::FIRST, number).is_none());
        }
        assert!(one.record_success(100, Server::FIRST, 100).is_some(), "they are handed over together");
        assert!(one.record_success(200, Server::FIRST, 200).is_none());
        fail(&mut two, 300);
        assert!(one.record_success(350, Server::ALL[1], 350).is_none(), "the other server is not suspect");
        assert!(one.record_success(400, Server::FIRST, 400).is_some(), "from now on each counts at once");
    }

    #[test]
    fn failures_of_two_threads_count_as_of_one() {
        let [mut one, mut two] = two_handles();
        for now in 1..=4 {
            assert_eq!(fail(if now % 2 == 0 { &mut one } else { &mut two }, now).ejected, [false; SERVERS_MAX]);
        }
        assert!(
            one.record_success(5, Server::FIRST, 5).is_some_and(|decision| decision.ejected == [false; SERVERS_MAX])
        );
        for now in 6..=9 {
            assert_eq!(
                fail(&mut two, now).ejected,
                [false; SERVERS_MAX],
                "the success of the other thread came between"
            );
        }
        let decision = fail(&mut one, 10);
        assert_eq!(decision.ejected, [true, false, false, false]);
        assert!(
            decision
                .actions
                .iter()
                .any(|action| matches!(action, HedgeAction::Swap { to, .. } if *to == Server::ALL[1]))
        );
        assert_eq!((one.active(), two.active()), (Server::ALL[1], Server::ALL[1]));
        assert!(!two.ranking().can_hedge_to(Server::FIRST) && two.ranking().can_send_to(Server::FIRST));
        assert_eq!(one.next_wakeup(), two.next_wakeup());
    }

    #[test]
    fn an_old_success_is_handed_over_with_the_next() {
        let [mut one, _] = two_handles();
        assert!(one.record_success(1, Server::FIRST, 1).is_none());
        assert!(one.record_success(1 + SECOND_NS, Server::FIRST, 1).is_some());
    }
}
