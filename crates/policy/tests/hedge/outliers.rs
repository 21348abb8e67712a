//! Tests of the ejection of servers that fail their requests: hand-computed cases, and properties over random
//! histories.

use proptest::prelude::*;
use sidelane_policy::Policy;
use sidelane_policy::hedge::{
    Attempt, Fault, Hazard, Hazards, HedgeAction, HedgeActions, HedgeEvent, HedgeReason, IN_A_ROW, Mode, Roles,
    RolesConfig, Server,
};

const FIRST: Server = Server::FIRST;
const SECOND: Server = Server::ALL[1];
const THIRD: Server = Server::ALL[2];

const SECOND_NS: u64 = 1_000_000_000;
const FAILING: Hazard = Hazard::Failing;

fn config_of(servers: usize) -> RolesConfig {
    RolesConfig { servers, ..RolesConfig::default() }
}

fn tried_event(server: Server, sent_ns: u64, has_failed: bool) -> HedgeEvent {
    HedgeEvent::Tried(server, Attempt { sent_ns, has_failed })
}

/// Passes an event to the policy, and returns its actions.
fn observe_event(roles: &mut Roles, now: u64, seen: HedgeEvent) -> Vec<HedgeAction> {
    let mut out = HedgeActions::default();
    roles.observe(now, &seen, &mut out);
    out.iter().collect()
}

/// Makes the server fail as many requests as an ejection takes. Returns the actions after the last failure; earlier
/// failures cause none.
fn fail_until_ejected(roles: &mut Roles, now: u64, server: Server) -> Vec<HedgeAction> {
    for _ in 1..IN_A_ROW {
        assert_eq!(observe_event(roles, now, tried_event(server, now, true)), []);
    }
    observe_event(roles, now, tried_event(server, now, true))
}

fn swap(to: Server) -> HedgeAction {
    HedgeAction::Swap { to, because: FAILING }
}

fn resend(from: Server) -> HedgeAction {
    HedgeAction::Resend { from, because: FAILING }
}

#[test]
fn failing_server_is_ejected_warmed_up_and_returned() {
    let mut roles = Roles::new(RolesConfig::default());
    assert_eq!(fail_until_ejected(&mut roles, SECOND_NS, FIRST), [swap(SECOND), resend(FIRST)]);
    let ejection = roles.ejection(FIRST).unwrap();
    assert_eq!((ejection.until_ns, ejection.fault), (31 * SECOND_NS, Fault::InARow(5)));
    assert_eq!(
        (roles.next_wakeup(), roles.ranking().can_hedge_to(FIRST), roles.ranking().can_send_to(FIRST)),
        (Some(31 * SECOND_NS), false, true)
    );
    assert_eq!(observe_event(&mut roles, 2 * SECOND_NS, tried_event(FIRST, SECOND_NS, true)), [], "it is out already");
    assert_eq!(observe_event(&mut roles, 31 * SECOND_NS, HedgeEvent::Nothing), [HedgeAction::WarmUp(FIRST)]);
    assert_eq!(
        observe_event(&mut roles, 32 * SECOND_NS, HedgeEvent::Warmed(FIRST)),
        [HedgeAction::Return { to: FIRST }]
    );
    assert_eq!((roles.active(), roles.why()), (FIRST, HedgeReason::Returned(FAILING)));
    // During the trial one failure ejects the server, but not the failure of a request sent before.
    assert_eq!(observe_event(&mut roles, 33 * SECOND_NS, tried_event(FIRST, SECOND_NS, true)), []);
    assert_eq!(
        observe_event(&mut roles, 33 * SECOND_NS, tried_event(FIRST, 32 * SECOND_NS, true)),
        [swap(SECOND), resend(FIRST)]
    );
    let ejection = roles.ejection(FIRST).unwrap();
    assert_eq!((ejection.until_ns - ejection.since_ns, ejection.fault), (60 * SECOND_NS, Fault::FailedAfterReturn));
}

#[test]
fn failed_warm_up_request_ejects_the_server_again() {
    let mut roles = Roles::new(RolesConfig::default());
    fail_until_ejected(&mut roles, 0, FIRST);
    assert_eq!(observe_event(&mut roles, 30 * SECOND_NS, HedgeEvent::Nothing), [HedgeAction::WarmUp(FIRST)]);
    assert!(roles.is_warming_up(FIRST));
    assert_eq!(observe_event(&mut roles, 30 * SECOND_NS + 1, HedgeEvent::StillCold(FIRST)), [resend(FIRST)]);
    assert!(!roles.is_warming_up(FIRST));
    assert_eq!(roles.ejection(FIRST).unwrap().until_ns, 90 * SECOND_NS + 1);
}

#[test]
fn last_good_server_is_not_ejected() {
    let mut roles = Roles::new(RolesConfig::default());
    fail_until_ejected(&mut roles, 0, FIRST);
    assert_eq!(fail_until_ejected(&mut roles, 1, SECOND), []);
    assert_eq!((roles.ejection(SECOND), roles.active()), (None, SECOND));
    // A server that cannot be reached is no good server either; a failing one may still answer.
    assert_eq!(
        observe_event(&mut roles, 2, HedgeEvent::Unreachable(SECOND)),
        [
            HedgeAction::Swap { to: FIRST, because: Hazard::Unreachable },
            HedgeAction::Resend { from: SECOND, because: Hazard::Unreachable }
        ]
    );
    let mut alone = Roles::new(config_of(1));
    assert_eq!((fail_until_ejected(&mut alone, 0, FIRST), alone.ejection(FIRST)), (vec![], None));
    let mut off = Roles::new(RolesConfig { out_ns: 0, ..RolesConfig::default() });
    assert_eq!((fail_until_ejected(&mut off, 0, FIRST), off.ejection(FIRST)), (vec![], None));
}

#[test]
fn two_of_three_servers_are_ejected_and_the_last_is_not() {
    let mut roles = Roles::new(config_of(3));
    assert_eq!(fail_until_ejected(&mut roles, 0, FIRST), [swap(SECOND), resend(FIRST)]);
    assert_eq!(fail_until_ejected(&mut roles, 1, SECOND), [swap(THIRD), resend(SECOND)]);
    assert_eq!(fail_until_ejected(&mut roles, 2, THIRD), []);
    assert_eq!((roles.ejection(THIRD), roles.active()), (None, THIRD));
}

#[test]
fn restart_ends_an_ejection() {
    let mut roles = Roles::new(RolesConfig::default());
    fail_until_ejected(&mut roles, 0, FIRST);
    observe_event(&mut roles, SECOND_NS, HedgeEvent::Watched(FIRST, [Hazard::Restart].into_iter().collect()));
    assert!(roles.ejection(FIRST).is_some(), "not before it is there again");
    assert_eq!(
        observe_event(&mut roles, 2 * SECOND_NS, HedgeEvent::Watched(FIRST, Hazards::NONE)),
        [HedgeAction::WarmUp(FIRST)]
    );
    assert_eq!(roles.ejection(FIRST), None);
    assert_eq!(observe_event(&mut roles, 3 * SECOND_NS, HedgeEvent::StillCold(FIRST)), [], "it loads what it needs");
}

#[test]
fn each_loss_of_a_server_counts_as_one_failure() {
    let mut roles = Roles::new(RolesConfig::default());
    for turn in 0..u64::from(IN_A_ROW) {
        assert_eq!(roles.ejection(FIRST), None);
        (0..10).for_each(|_| drop(observe_event(&mut roles, turn, HedgeEvent::Unreachable(FIRST))));
        observe_event(&mut roles, turn, HedgeEvent::Reached(FIRST));
    }
    assert!(roles.ejection(FIRST).is_some());
}

#[test]
fn failing_server_loses_its_role_in_timer_mode_too() {
    let mut roles = Roles::new(RolesConfig { mode: Mode::Timer { after_ns: 5 }, ..RolesConfig::default() });
    assert_eq!(fail_until_ejected(&mut roles, 0, FIRST), [swap(SECOND)]);
}

fn server(servers: usize) -> impl Strategy<Value = Server> {
    (0..servers).prop_map(|index| Server::ALL[index])
}

/// Generates events of this number of servers, each with the time since its request was sent.
fn event_strategy(servers: usize) -> impl Strategy<Value = (HedgeEvent, u64)> {
    let server = || server(servers);
    let ago = prop_oneof![Just(0_u64), 0..60 * SECOND_NS];
    prop_oneof![
        8 => (server(), any::<bool>(), ago.clone()).prop_map(|(server, failed, ago)| (tried_event(server, 0, failed), ago)),
        8 => (server(), ago).prop_map(|(server, ago)| (tried_event(server, 0, true), ago)),
        1 => (server(), prop_oneof![Just(0_u32), 0_u32..128])
            .prop_map(|(server, bits)| (HedgeEvent::Watched(server, Hazards::from_bits(bits)), 0)),
        1 => server().prop_map(|server| (HedgeEvent::Unreachable(server), 0)),
        1 => server().prop_map(|server| (HedgeEvent::Reached(server), 0)),
        1 => server().prop_map(|server| (HedgeEvent::Warmed(server), 0)),
        1 => server().prop_map(|server| (HedgeEvent::StillCold(server), 0)),
        1 => Just((HedgeEvent::Nothing, 0)),
    ]
}

fn with_send_time(now: u64, seen: HedgeEvent, ago_ns: u64) -> HedgeEvent {
    match seen {
        HedgeEvent::Tried(server, attempt) => tried_event(server, now.saturating_sub(ago_ns), attempt.has_failed),
        seen => seen,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn all_servers_but_one_may_be_ejected_for_30_to_300_s(
        (servers, history) in (1_usize..=4).prop_flat_map(|servers| {
            (Just(servers), proptest::collection::vec((0..5 * SECOND_NS, event_strategy(servers)), 0..200))
        }),
    ) {
        let (mut roles, mut now) = (Roles::new(config_of(servers)), 0);
        for (after, (seen, ago)) in history {
            now += after;
            observe_event(&mut roles, now, with_send_time(now, seen, ago));
            let out: Vec<_> = Server::first(servers).filter_map(|server| roles.ejection(server)).collect();
            prop_assert!(out.len() < servers, "{roles:?}");
            for ejection in out {
                let seconds = (ejection.until_ns - ejection.since_ns) / SECOND_NS;
                prop_assert!((30..=300).contains(&seconds) && now < ejection.until_ns, "{ejection:?}");
            }
            prop_assert!(roles.next_wakeup().is_none_or(|wakeup| wakeup > now));
        }
    }

    #[test]
    fn server_that_answers_most_requests_is_not_ejected(
        runs in proptest::collection::vec((0_u32..IN_A_ROW, 0_u32..4, 0..SECOND_NS), 0..100),
    ) {
        let (mut roles, mut now) = (Roles::new(RolesConfig::default()), 0);
        for (failures, more, after) in runs {
            now += after;
            // Successes come first, so that no part of the history has more failures than successes.
            (0..=failures + more).for_each(|_| drop(observe_event(&mut roles, now, tried_event(FIRST, now, false))));
            for _ in 0..failures {
                prop_assert_eq!(observe_event(&mut roles, now, tried_event(FIRST, now, true)), vec![]);
            }
        }
        prop_assert_eq!((roles.active(), roles.ejection(FIRST)), (FIRST, None));
    }

    #[test]
    fn requests_go_to_the_server_that_is_not_ejected(
        (servers, history) in (2_usize..=4).prop_flat_map(|servers| {
            (Just(servers), proptest::collection::vec((0..5 * SECOND_NS, server(servers), 0_u32..10), 0..200))
        }),
    ) {
        let (mut roles, mut now) = (Roles::new(config_of(servers)), 0);
        for (after, server, is_well) in history {
            now += after;
            observe_event(&mut roles, now, tried_event(server, now, is_well > 0));
            prop_assert!(roles.ejection(roles.active()).is_none(), "{roles:?}");
        }
    }
}
