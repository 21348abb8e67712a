//! Properties of the hedging policy over random histories.

use proptest::prelude::*;
use sidelane_policy::Policy;
use sidelane_policy::hedge::{
    Hazard, Hazards, HedgeAction, HedgeActions, HedgeBudget, HedgeBudgetConfig, HedgeEvent, Mode, Roles, RolesConfig,
    SERVERS_MAX, Server,
};

fn event_strategy(servers: usize) -> impl Strategy<Value = HedgeEvent> {
    let server = || (0..servers).prop_map(|index| Server::ALL[index]);
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

/// Generates a number of servers, and their events, each with the time since the previous one.
fn history() -> impl Strategy<Value = (usize, Vec<(u64, HedgeEvent)>)> {
    (1..=SERVERS_MAX).prop_flat_map(history_of)
}

fn history_of(servers: usize) -> impl Strategy<Value = (usize, Vec<(u64, HedgeEvent)>)> {
    (Just(servers), proptest::collection::vec((1_u64..200, event_strategy(servers)), 0..60))
}

/// Time for which a pause of a server is tolerated.
const PAUSE_NS: u64 = 150;
const WARM_UP_NS: u64 = 300;

fn config(servers: usize) -> RolesConfig {
    RolesConfig { mode: Mode::Hazard, servers, warm_up_ns: WARM_UP_NS, probe_ns: 100, pause_ns: PAUSE_NS, out_ns: 0 }
}

/// Knowledge about all servers: the last report of the watchers, and whether each can be reached.
#[derive(Default)]
struct KnownState {
    hazards: [Hazards; SERVERS_MAX],
    unreachable: [bool; SERVERS_MAX],
    /// Start of each server's present passing hazard; `None` without one.
    passing_since: [Option<u64>; SERVERS_MAX],
    warm_at: [u64; SERVERS_MAX],
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

    /// Returns whether the active server only pauses. A cold backup gets no requests then.
    fn is_pausing(&self, now: u64, active: Server) -> bool {
        let is_young = self.passing_since[active.index()].is_some_and(|since| now < since + PAUSE_NS);
        is_young && !self.unreachable[active.index()] && self.hazards[active.index()].iter().all(Hazard::is_passing)
    }

    fn is_healthy(&self, server: Server) -> bool {
        self.hazards[server.index()].is_empty() && !self.unreachable[server.index()]
    }

    fn is_warm(&self, now: u64, server: Server) -> bool {
        self.is_healthy(server) && now >= self.warm_at[server.index()]
    }
}

/// Lets the policy observe a history. Calls `check` after each event.
fn run_history(
    (servers, history): (usize, Vec<(u64, HedgeEvent)>),
    mut check: impl FnMut(u64, &Roles, &KnownState, &HedgeActions) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let (mut roles, mut known, mut now) = (Roles::new(config(servers)), KnownState::default(), 0);
    for (after, seen) in history {
        now += after;
        let mut out = HedgeActions::default();
        roles.observe(now, &seen, &mut out);
        known.update(now, seen, &out);
        check(now, &roles, &known, &out)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn active_server_has_no_lasting_hazard_if_a_backup_has_none((servers, history) in history()) {
        run_history((servers, history), |now, roles, known, _| {
            let active = roles.active();
            let is_right = known.is_healthy(active) || match known.is_pausing(now, active) {
                true => !Server::first(servers).any(|server| known.is_warm(now, server)),
                false => !Server::first(servers).any(|server| known.is_healthy(server)),
            };
            prop_assert!(is_right, "{roles:?}");
            Ok(())
        })?;
    }

    #[test]
    fn swaps_go_to_the_best_and_only_backup_requests_are_resent((servers, history) in history()) {
        let mut active = Server::FIRST;
        run_history((servers, history), |now, roles, known, out| {
            let before = active;
            for action in out.iter() {
                match action {
                    HedgeAction::Swap { to, .. } => {
                        let has_warm = Server::first(servers).any(|server| known.is_warm(now, server));
                        prop_assert!(to != active && (known.is_warm(now, to) || !has_warm), "{roles:?}");
                        active = to;
                    }
                    HedgeAction::Return { to } => {
                        prop_assert!(to != active && known.is_warm(now, to), "{roles:?}");
                        active = to;
                    }
                    HedgeAction::Resend { from, .. } => {
                        prop_assert!(from != active && !known.is_healthy(from), "{roles:?}");
                        let ranking = roles.ranking();
                        prop_assert!(Server::ALL.iter().any(|server| ranking.is_better(*server, from)), "{roles:?}");
                    }
                    HedgeAction::WarmUp(_) | HedgeAction::Probe(_) => {}
                }
            }
            prop_assert_eq!(active, roles.active());
            // A server that is well keeps its role, unless requests return to another one.
            let returns = out.iter().any(|action| matches!(action, HedgeAction::Return { .. }));
            prop_assert!(active == before || returns || !known.is_warm(now, before), "{roles:?}");
            prop_assert!(roles.next_wakeup().is_none_or(|wakeup| wakeup > now));
            Ok(())
        })?;
    }

    #[test]
    fn best_server_but_any_one_is_warm_if_there_is_a_warm_one((servers, history) in history()) {
        run_history((servers, history), |now, roles, known, _| {
            for from in Server::first(servers) {
                let best = roles.ranking().best(|server| server != from);
                let has_warm = Server::first(servers).any(|server| server != from && known.is_warm(now, server));
                prop_assert!(!has_warm || best.is_some_and(|best| known.is_warm(now, best)), "{roles:?}");
            }
            Ok(())
        })?;
    }

    #[test]
    fn without_a_backup_the_policy_takes_no_action(history in history_of(1)) {
        run_history(history, |_, roles, _, out| {
            prop_assert!(out.iter().all(|action| matches!(action, HedgeAction::Probe(_))));
            prop_assert_eq!(roles.active(), Server::FIRST);
            Ok(())
        })?;
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
