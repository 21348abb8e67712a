//! Properties over random histories.

use proptest::prelude::*;
use sidelane_policy::Policy;
use sidelane_policy::hedge::{Action, Actions, Budget, BudgetConfig, Hazards, Mode, Roles, RolesConfig, Seen, Server};

fn server() -> impl Strategy<Value = Server> {
    prop_oneof![Just(Server::First), Just(Server::Second)]
}

fn seen() -> impl Strategy<Value = Seen> {
    prop_oneof![
        (server(), 0_u32..32).prop_map(|(server, bits)| Seen::Watched(server, Hazards::from_bits(bits))),
        (server(), Just(0_u32)).prop_map(|(server, bits)| Seen::Watched(server, Hazards::from_bits(bits))),
        server().prop_map(Seen::Unreachable),
        server().prop_map(Seen::Reached),
        server().prop_map(Seen::Warmed),
        Just(Seen::Nothing),
    ]
}

fn history() -> impl Strategy<Value = Vec<(u64, Seen)>> {
    proptest::collection::vec((1_u64..200, seen()), 0..60)
}

fn config(has_backup: bool) -> RolesConfig {
    RolesConfig { mode: Mode::Hazard, has_backup, warm_up_ns: 300, probe_ns: 100 }
}

/// The last that watchers told of each server, and whether it can be reached.
#[derive(Default)]
struct Known {
    hazards: [Hazards; 2],
    unreachable: [bool; 2],
}

impl Known {
    fn note(&mut self, seen: Seen) {
        match seen {
            Seen::Watched(server, hazards) => self.hazards[server.index()] = hazards,
            Seen::Unreachable(server) => self.unreachable[server.index()] = true,
            Seen::Reached(server) => self.unreachable[server.index()] = false,
            Seen::Warmed(_) | Seen::Nothing => {}
        }
    }

    fn is_well(&self, server: Server) -> bool {
        self.hazards[server.index()].is_empty() && !self.unreachable[server.index()]
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_active_server_has_no_hazard_while_the_other_has_none(history in history()) {
        let (mut roles, mut known, mut now) = (Roles::new(config(true)), Known::default(), 0);
        for (after, seen) in history {
            now += after;
            roles.observe(now, &seen, &mut Actions::default());
            known.note(seen);
            let (active, backup) = (roles.active(), roles.active().other());
            prop_assert!(known.is_well(active) || !known.is_well(backup), "{roles:?}");
        }
    }

    #[test]
    fn swaps_alternate_and_only_those_of_the_backup_are_sent_again(history in history()) {
        let (mut roles, mut active, mut now) = (Roles::new(config(true)), Server::First, 0);
        let mut known = Known::default();
        for (after, seen) in history {
            now += after;
            let mut out = Actions::default();
            roles.observe(now, &seen, &mut out);
            known.note(seen);
            for action in out.iter() {
                match action {
                    Action::Swap { to, .. } => {
                        prop_assert_eq!(to, active.other());
                        active = to;
                    }
                    Action::Return { to } => {
                        prop_assert!(to == active.other() && known.is_well(to));
                        active = to;
                    }
                    Action::Resend { from, .. } => prop_assert_eq!(from, active.other()),
                    Action::WarmUp(_) | Action::Probe(_) => {}
                }
            }
            prop_assert_eq!(active, roles.active());
            prop_assert!(roles.next_wakeup().is_none_or(|wakeup| wakeup > now));
        }
    }

    #[test]
    fn without_a_backup_nothing_is_swapped_sent_again_or_warmed_up(history in history()) {
        let (mut roles, mut now) = (Roles::new(config(false)), 0);
        for (after, seen) in history {
            now += after;
            let mut out = Actions::default();
            roles.observe(now, &seen, &mut out);
            prop_assert!(out.iter().all(|action| matches!(action, Action::Probe(_))));
            prop_assert_eq!(roles.active(), Server::First);
        }
    }

    #[test]
    fn hedges_cost_no_more_than_what_was_saved_up_and_earned(
        per_success_milli in 0_u64..500,
        burst in 0_u64..20,
        history in proptest::collection::vec(any::<bool>(), 0..500),
    ) {
        let mut budget = Budget::new(BudgetConfig { per_success_milli, burst });
        let (mut successes, mut hedges) = (0, 0);
        for is_success in history {
            if is_success {
                budget.success();
                successes += 1;
            } else if budget.take() {
                hedges += 1;
            }
            prop_assert!(1000 * hedges <= 1000 * burst + per_success_milli * successes);
        }
    }
}
