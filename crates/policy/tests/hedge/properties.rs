//! Properties of the hedging policy over random histories.

use proptest::prelude::*;
use sidelane_policy::Policy;
use sidelane_policy::hedge::{
    Hazard, Hazards, HedgeAction, HedgeActions, HedgeBudget, HedgeBudgetConfig, HedgeEvent, Mode, Roles, RolesConfig,
    Server,
};

fn server() -> impl Strategy<Value = Server> {
    prop_oneof![Just(Server::First), Just(Server::Second)]
}

fn event_strategy() -> impl Strategy<Value = HedgeEvent> {
    prop_oneof![
        (server(), 0_u32..32).prop_map(|(server, bits)| HedgeEvent::Watched(server, Hazards::from_bits(bits))),
        (server(), Just(0_u32)).prop_map(|(server, bits)| HedgeEvent::Watched(server, Hazards::from_bits(bits))),
        server().prop_map(HedgeEvent::Unreachable),
        server().prop_map(HedgeEvent::Reached),
        server().prop_map(HedgeEvent::Warmed),
        server().prop_map(HedgeEvent::StillCold),
        Just(HedgeEvent::Nothing),
    ]
}

fn history() -> impl Strategy<Value = Vec<(u64, HedgeEvent)>> {
    proptest::collection::vec((1_u64..200, event_strategy()), 0..60)
}

/// Time for which a pause of a server is tolerated.
const PAUSE_NS: u64 = 150;
const WARM_UP_NS: u64 = 300;

fn config(has_backup: bool) -> RolesConfig {
    RolesConfig { mode: Mode::Hazard, has_backup, warm_up_ns: WARM_UP_NS, probe_ns: 100, pause_ns: PAUSE_NS, out_ns: 0 }
}

/// Knowledge about both servers: the last report of the watchers, and whether each can be reached.
#[derive(Default)]
struct KnownState {
    hazards: [Hazards; 2],
    unreachable: [bool; 2],
    /// Start of each server's present passing hazard; `None` without one.
    passing_since: [Option<u64>; 2],
    warm_at: [u64; 2],
}

impl KnownState {
    fn update(&mut self, now: u64, seen: HedgeEvent, out: &HedgeActions) {
        match seen {
            HedgeEvent::Watched(server, hazards) => {
                self.hazards[server.index()] = hazards;
                let since = &mut self.passing_since[server.index()];
                *since = hazards.iter().any(Hazard::is_passing).then(|| since.unwrap_or(now));
            }
            HedgeEvent::Unreachable(server) => self.unreachable[server.index()] = true,
            HedgeEvent::Reached(server) => self.unreachable[server.index()] = false,
            HedgeEvent::Warmed(server) => self.warm_at[server.index()] = now,
            HedgeEvent::StillCold(server) if now < self.warm_at[server.index()] => {
                self.warm_at[server.index()] = now + WARM_UP_NS;
            }
            HedgeEvent::StillCold(_) | HedgeEvent::Tried(..) | HedgeEvent::Nothing => {}
        }
        for action in out.iter() {
            if let HedgeAction::WarmUp(server) = action {
                self.warm_at[server.index()] = now + WARM_UP_NS;
            }
        }
    }

    /// Returns whether the hazard of the active server is tolerated. A cold backup gets no requests while the active
    /// server only pauses.
    fn is_hazard_tolerated(&self, now: u64, active: Server) -> bool {
        let is_young = self.passing_since[active.index()].is_some_and(|since| now < since + PAUSE_NS);
        let is_here = !self.unreachable[active.index()] && self.hazards[active.index()].iter().all(Hazard::is_passing);
        is_young && is_here && now < self.warm_at[active.other().index()]
    }

    fn is_healthy(&self, server: Server) -> bool {
        self.hazards[server.index()].is_empty() && !self.unreachable[server.index()]
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn active_server_has_no_lasting_hazard_if_backup_has_none(history in history()) {
        let (mut roles, mut known, mut now) = (Roles::new(config(true)), KnownState::default(), 0);
        for (after, seen) in history {
            now += after;
            let mut out = HedgeActions::default();
            roles.observe(now, &seen, &mut out);
            known.update(now, seen, &out);
            let (active, backup) = (roles.active(), roles.active().other());
            let is_right = known.is_healthy(active) || !known.is_healthy(backup) || known.is_hazard_tolerated(now, active);
            prop_assert!(is_right, "{roles:?}");
        }
    }

    #[test]
    fn swaps_alternate_and_only_backup_requests_are_resent(history in history()) {
        let (mut roles, mut active, mut now) = (Roles::new(config(true)), Server::First, 0);
        let mut known = KnownState::default();
        for (after, seen) in history {
            now += after;
            let mut out = HedgeActions::default();
            roles.observe(now, &seen, &mut out);
            known.update(now, seen, &out);
            for action in out.iter() {
                match action {
                    HedgeAction::Swap { to, .. } => {
                        prop_assert_eq!(to, active.other());
                        active = to;
                    }
                    HedgeAction::Return { to } => {
                        prop_assert!(to == active.other() && known.is_healthy(to));
                        active = to;
                    }
                    HedgeAction::Resend { from, .. } => prop_assert_eq!(from, active.other()),
                    HedgeAction::WarmUp(_) | HedgeAction::Probe(_) => {}
                }
            }
            prop_assert_eq!(active, roles.active());
            prop_assert!(roles.next_wakeup().is_none_or(|wakeup| wakeup > now));
        }
    }

    #[test]
    fn without_a_backup_the_policy_takes_no_action(history in history()) {
        let (mut roles, mut now) = (Roles::new(config(false)), 0);
        for (after, seen) in history {
            now += after;
            let mut out = HedgeActions::default();
            roles.observe(now, &seen, &mut out);
            prop_assert!(out.iter().all(|action| matches!(action, HedgeAction::Probe(_))));
            prop_assert_eq!(roles.active(), Server::First);
        }
    }

    #[test]
    fn hedges_never_exceed_initial_and_added_budget(
        per_success_milli in 0_u64..500,
        burst in 0_u64..20,
        history in proptest::collection::vec(any::<bool>(), 0..500),
    ) {
        let mut budget = HedgeBudget::new(HedgeBudgetConfig { per_success_milli, burst });
        let (mut successes, mut hedges) = (0, 0);
        for is_success in history {
            if is_success {
                budget.record_success();
                successes += 1;
            } else if budget.take() {
                hedges += 1;
            }
            prop_assert!(1000 * hedges <= 1000 * burst + per_success_milli * successes);
        }
    }
}
