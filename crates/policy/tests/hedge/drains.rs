//! Properties of the shares of servers over random histories.

use proptest::prelude::*;
use sidelane_policy::hedge::{DrainAction, DrainActions, DrainConfig, DrainEvent, Drains, FULL, Hazard, Hazards};

const WARM_UP_NS: u64 = 300;
const PAUSE_NS: u64 = 50;
const RESEND_NS: u64 = 20;

fn event(servers: usize) -> impl Strategy<Value = DrainEvent> {
    let watched = move || (0..servers, 0_u32..32);
    prop_oneof![
        watched().prop_map(|(server, bits)| DrainEvent::Watched(server, Hazards::from_bits(bits))),
        watched().prop_map(|(server, _)| DrainEvent::Watched(server, Hazards::NONE)),
        (any::<u64>(), 0_usize..3).prop_map(|(usable, others)| DrainEvent::Balancer { usable, others }),
        Just(DrainEvent::Nothing),
    ]
}

fn history() -> impl Strategy<Value = (usize, Vec<(u64, DrainEvent)>)> {
    (1_usize..6)
        .prop_flat_map(|servers| (Just(servers), proptest::collection::vec((1_u64..200, event(servers)), 0..60)))
}

/// What is known of the servers: the same as the policy was told.
struct Known {
    hazards: Vec<Hazards>,
    /// Time at which each server's last restart ended.
    back_at: Vec<Option<u64>>,
    usable: u64,
    others: usize,
}

impl Known {
    fn new(servers: usize) -> Self {
        Self { hazards: vec![Hazards::NONE; servers], back_at: vec![None; servers], usable: u64::MAX, others: 0 }
    }

    fn update(&mut self, now: u64, event: DrainEvent) {
        match event {
            DrainEvent::Watched(server, hazards) => {
                let was_away = self.hazards[server].contains(Hazard::Restart);
                if was_away && !hazards.contains(Hazard::Restart) {
                    self.back_at[server] = Some(now);
                }
                self.hazards[server] = hazards;
            }
            DrainEvent::Balancer { usable, others } => (self.usable, self.others) = (usable, others),
            DrainEvent::Nothing => {}
        }
    }

    fn usable_servers(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.hazards.len()).filter(|server| self.usable & (1 << server) != 0)
    }

    fn is_away(&self, server: usize) -> bool {
        self.hazards[server].contains(Hazard::Restart)
    }

    fn is_warming(&self, now: u64, server: usize) -> bool {
        self.back_at[server].is_some_and(|back| now < back + WARM_UP_NS)
    }
}

fn policy(servers: usize) -> Drains {
    Drains::new(DrainConfig { servers, others: 0, warm_up_ns: WARM_UP_NS, pause_ns: PAUSE_NS, resend_ns: RESEND_NS })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_usable_server_always_has_its_full_share((servers, history) in history()) {
        let (mut drains, mut known, mut now) = (policy(servers), Known::new(servers), 0);
        for (after, event) in history {
            now += after;
            drains.observe(now, event, &mut DrainActions::default());
            known.update(now, event);
            let has_any = known.others > 0 || known.usable_servers().next().is_some();
            let has_full = known.others > 0 || known.usable_servers().any(|server| drains.share(server) == FULL);
            prop_assert!(!has_any || has_full, "{drains:?}");
        }
    }

    #[test]
    fn shares_are_reduced_only_for_hazards_and_warm_ups((servers, history) in history()) {
        let (mut drains, mut known, mut now) = (policy(servers), Known::new(servers), 0);
        for (after, event) in history {
            now += after;
            drains.observe(now, event, &mut DrainActions::default());
            known.update(now, event);
            for server in 0..servers {
                let (share, hazards) = (drains.share(server), known.hazards[server]);
                prop_assert!(share > 0 || !hazards.is_empty(), "{drains:?}");
                prop_assert!(share == FULL || !hazards.is_empty() || known.is_warming(now, server), "{drains:?}");
            }
        }
    }

    #[test]
    fn at_most_half_of_the_servers_are_drained_for_pauses((servers, history) in history()) {
        let (mut drains, mut known, mut now) = (policy(servers), Known::new(servers), 0);
        for (after, event) in history {
            now += after;
            drains.observe(now, event, &mut DrainActions::default());
            known.update(now, event);
            let drained = (0..servers).filter(|server| drains.share(*server) == 0 && !known.is_away(*server)).count();
            let here = known.usable_servers().filter(|server| !known.is_away(*server)).count() + known.others;
            prop_assert!(drained <= here / 2, "{drained} of {here}: {drains:?}");
        }
    }

    #[test]
    fn actions_lead_to_the_shares_and_only_drained_servers_resend((servers, history) in history()) {
        let (mut drains, mut shares, mut now) = (policy(servers), vec![FULL; servers], 0);
        let mut known = Known::new(servers);
        for (after, event) in history {
            now += after;
            let mut out = DrainActions::default();
            drains.observe(now, event, &mut out);
            known.update(now, event);
            for action in out.iter() {
                match action {
                    DrainAction::Share { server, percent } => {
                        prop_assert_ne!(shares[server], percent);
                        shares[server] = percent;
                    }
                    DrainAction::Resend(server) => {
                        prop_assert!(shares[server] == 0 && !known.is_away(server), "{drains:?}");
                    }
                }
            }
            prop_assert!((0..servers).all(|server| drains.share(server) == shares[server]));
        }
    }

    #[test]
    fn all_shares_are_full_when_all_hazards_are_over((servers, history) in history()) {
        let (mut drains, mut now) = (policy(servers), 0);
        for (after, event) in history {
            now += after;
            drains.observe(now, event, &mut DrainActions::default());
        }
        for server in 0..servers {
            drains.observe(now, DrainEvent::Watched(server, Hazards::NONE), &mut DrainActions::default());
        }
        while let Some(next) = drains.next_wakeup(now) {
            prop_assert!(next > now, "{drains:?}");
            now = next;
            drains.observe(now, DrainEvent::Nothing, &mut DrainActions::default());
        }
        prop_assert!((0..servers).all(|server| drains.share(server) == FULL), "{drains:?}");
    }
}
