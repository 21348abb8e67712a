//! Tests of the ejection of servers that fail their requests: hand-computed cases, and properties over random
//! histories.

use proptest::prelude::*;
use sidelane_policy::Policy;
use sidelane_policy::hedge::{
    Attempt, Fault, Hazard, Hazards, HedgeAction, HedgeActions, HedgeEvent, HedgeReason, IN_A_ROW, Mode, Roles,
    RolesConfig, Server,
};

use Server::{First, Second};

const SECOND: u64 = 1_000_000_000;
const FAILING: Hazard = Hazard::Failing;

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
    assert_eq!(fail_until_ejected(&mut roles, SECOND, First), [swap(Second), resend(First)]);
    let ejection = roles.ejection(First).unwrap();
    assert_eq!((ejection.until_ns, ejection.fault), (31 * SECOND, Fault::InARow(5)));
    assert_eq!(
        (roles.next_wakeup(), roles.can_hedge_to(First), roles.can_send_to(First)),
        (Some(31 * SECOND), false, true)
    );
    assert_eq!(observe_event(&mut roles, 2 * SECOND, tried_event(First, SECOND, true)), [], "it is out already");
    assert_eq!(observe_event(&mut roles, 31 * SECOND, HedgeEvent::Nothing), [HedgeAction::WarmUp(First)]);
    assert_eq!(observe_event(&mut roles, 32 * SECOND, HedgeEvent::Warmed(First)), [HedgeAction::Return { to: First }]);
    assert_eq!((roles.active(), roles.why()), (First, HedgeReason::Returned(FAILING)));
    // During the trial one failure ejects the server, but not the failure of a request sent before.
    assert_eq!(observe_event(&mut roles, 33 * SECOND, tried_event(First, SECOND, true)), []);
    assert_eq!(
        observe_event(&mut roles, 33 * SECOND, tried_event(First, 32 * SECOND, true)),
        [swap(Second), resend(First)]
    );
    let ejection = roles.ejection(First).unwrap();
    assert_eq!((ejection.until_ns - ejection.since_ns, ejection.fault), (60 * SECOND, Fault::FailedAfterReturn));
}

#[test]
fn failed_warm_up_request_ejects_the_server_again() {
    let mut roles = Roles::new(RolesConfig::default());
    fail_until_ejected(&mut roles, 0, First);
    assert_eq!(observe_event(&mut roles, 30 * SECOND, HedgeEvent::Nothing), [HedgeAction::WarmUp(First)]);
    assert!(roles.is_warming_up(First));
    assert_eq!(observe_event(&mut roles, 30 * SECOND + 1, HedgeEvent::StillCold(First)), [resend(First)]);
    assert!(!roles.is_warming_up(First));
    assert_eq!(roles.ejection(First).unwrap().until_ns, 90 * SECOND + 1);
}

#[test]
fn last_good_server_is_not_ejected() {
    let mut roles = Roles::new(RolesConfig::default());
    fail_until_ejected(&mut roles, 0, First);
    assert_eq!(fail_until_ejected(&mut roles, 1, Second), []);
    assert_eq!((roles.ejection(Second), roles.active()), (None, Second));
    // A server that cannot be reached is no good server either; a failing one may still answer.
    assert_eq!(
        observe_event(&mut roles, 2, HedgeEvent::Unreachable(Second)),
        [
            HedgeAction::Swap { to: First, because: Hazard::Unreachable },
            HedgeAction::Resend { from: Second, because: Hazard::Unreachable }
        ]
    );
    let mut alone = Roles::new(RolesConfig { has_backup: false, ..RolesConfig::default() });
    assert_eq!((fail_until_ejected(&mut alone, 0, First), alone.ejection(First)), (vec![], None));
    let mut off = Roles::new(RolesConfig { out_ns: 0, ..RolesConfig::default() });
    assert_eq!((fail_until_ejected(&mut off, 0, First), off.ejection(First)), (vec![], None));
}

#[test]
fn restart_ends_an_ejection() {
    let mut roles = Roles::new(RolesConfig::default());
    fail_until_ejected(&mut roles, 0, First);
    observe_event(&mut roles, SECOND, HedgeEvent::Watched(First, [Hazard::Restart].into_iter().collect()));
    assert!(roles.ejection(First).is_some(), "not before it is there again");
    assert_eq!(
        observe_event(&mut roles, 2 * SECOND, HedgeEvent::Watched(First, Hazards::NONE)),
        [HedgeAction::WarmUp(First)]
    );
    assert_eq!(roles.ejection(First), None);
    assert_eq!(observe_event(&mut roles, 3 * SECOND, HedgeEvent::StillCold(First)), [], "it loads what it needs");
}

#[test]
fn each_loss_of_a_server_counts_as_one_failure() {
    let mut roles = Roles::new(RolesConfig::default());
    for turn in 0..u64::from(IN_A_ROW) {
        assert_eq!(roles.ejection(First), None);
        (0..10).for_each(|_| drop(observe_event(&mut roles, turn, HedgeEvent::Unreachable(First))));
        observe_event(&mut roles, turn, HedgeEvent::Reached(First));
    }
    assert!(roles.ejection(First).is_some());
}

#[test]
fn failing_server_loses_its_role_in_timer_mode_too() {
    let mut roles = Roles::new(RolesConfig { mode: Mode::Timer { after_ns: 5 }, ..RolesConfig::default() });
    assert_eq!(fail_until_ejected(&mut roles, 0, First), [swap(Second)]);
}

fn server() -> impl Strategy<Value = Server> {
    prop_oneof![Just(First), Just(Second)]
}

/// Generates events, each with the time since its request was sent.
fn event_strategy() -> impl Strategy<Value = (HedgeEvent, u64)> {
    let ago = prop_oneof![Just(0_u64), 0..60 * SECOND];
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
    fn at_most_one_server_is_ejected_for_30_to_300_s(
        history in proptest::collection::vec((0..5 * SECOND, event_strategy()), 0..200),
    ) {
        let (mut roles, mut now) = (Roles::new(RolesConfig::default()), 0);
        for (after, (seen, ago)) in history {
            now += after;
            observe_event(&mut roles, now, with_send_time(now, seen, ago));
            let out: Vec<_> = Server::BOTH.into_iter().filter_map(|server| roles.ejection(server)).collect();
            prop_assert!(out.len() <= 1, "{roles:?}");
            for ejection in out {
                let seconds = (ejection.until_ns - ejection.since_ns) / SECOND;
                prop_assert!((30..=300).contains(&seconds) && now < ejection.until_ns, "{ejection:?}");
            }
            prop_assert!(roles.next_wakeup().is_none_or(|wakeup| wakeup > now));
        }
    }

    #[test]
    fn server_that_answers_most_requests_is_not_ejected(
        runs in proptest::collection::vec((0_u32..IN_A_ROW, 0_u32..4, 0..SECOND), 0..100),
    ) {
        let (mut roles, mut now) = (Roles::new(RolesConfig::default()), 0);
        for (failures, more, after) in runs {
            now += after;
            // Successes come first, so that no part of the history has more failures than successes.
            (0..=failures + more).for_each(|_| drop(observe_event(&mut roles, now, tried_event(First, now, false))));
            for _ in 0..failures {
                prop_assert_eq!(observe_event(&mut roles, now, tried_event(First, now, true)), vec![]);
            }
        }
        prop_assert_eq!((roles.active(), roles.ejection(First)), (First, None));
    }

    #[test]
    fn requests_go_to_the_server_that_is_not_ejected(
        history in proptest::collection::vec((0..5 * SECOND, server(), 0_u32..10), 0..200),
    ) {
        let (mut roles, mut now) = (Roles::new(RolesConfig::default()), 0);
        for (after, server, is_well) in history {
            now += after;
            observe_event(&mut roles, now, tried_event(server, now, is_well > 0));
            prop_assert!(roles.ejection(roles.active()).is_none(), "{roles:?}");
        }
    }
}
