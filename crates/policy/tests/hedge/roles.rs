//! Hand-computed cases of the roles of two servers: Figure 4.9 of the thesis, and cases beyond it.

use sidelane_policy::Policy;
use sidelane_policy::hedge::{
    Hazard, Hazards, HedgeAction, HedgeActions, HedgeEvent, HedgeReason, Mode, Roles, RolesConfig, Server,
};

use Server::{First, Second};

/// Passes events to the policy, each with its time, and checks its actions.
fn run_steps<const N: usize>(config: RolesConfig, steps: [(u64, HedgeEvent, &[HedgeAction]); N]) -> Roles {
    let mut roles = Roles::new(config);
    for (now, seen, wanted) in steps {
        let mut out = HedgeActions::default();
        roles.observe(now, &seen, &mut out);
        assert_eq!(out.iter().collect::<Vec<_>>(), wanted, "at {now}: {seen:?}");
    }
    roles
}

fn hazard_event(server: Server, hazard: Hazard) -> HedgeEvent {
    HedgeEvent::Watched(server, [hazard].into_iter().collect())
}

fn no_hazard_event(server: Server) -> HedgeEvent {
    HedgeEvent::Watched(server, Hazards::NONE)
}

fn swap(to: Server, because: Hazard) -> HedgeAction {
    HedgeAction::Swap { to, because }
}

fn resend(from: Server, because: Hazard) -> HedgeAction {
    HedgeAction::Resend { from, because }
}

fn return_action(to: Server) -> HedgeAction {
    HedgeAction::Return { to }
}

fn config() -> RolesConfig {
    RolesConfig { mode: Mode::Hazard, has_backup: true, warm_up_ns: 1000, probe_ns: 100, pause_ns: 30, out_ns: 0 }
}

#[test]
fn gc_swaps_servers_and_requests_return_after_gc() {
    let gc = Hazard::JvmGc;
    let roles = run_steps(
        config(),
        [
            (10, hazard_event(First, gc), &[swap(Second, gc), resend(First, gc)]),
            (11, hazard_event(First, gc), &[]),
            (20, no_hazard_event(First), &[return_action(First)]),
            (30, hazard_event(Second, gc), &[resend(Second, gc)]),
        ],
    );
    assert_eq!((roles.active(), roles.why()), (First, HedgeReason::Returned(gc)));
}

#[test]
fn requests_do_not_return_to_a_backup_with_a_hazard() {
    let (gc, stopped) = (Hazard::JvmGc, Hazard::Stopped);
    run_steps(
        config(),
        [
            (10, hazard_event(First, gc), &[swap(Second, gc), resend(First, gc)]),
            (20, hazard_event(Second, stopped), &[]),
            (30, no_hazard_event(First), &[swap(First, stopped), resend(Second, stopped)]),
            (40, no_hazard_event(Second), &[]),
        ],
    );
}

#[test]
fn requests_return_to_a_server_only_when_it_is_warm() {
    let (gc, restart) = (Hazard::JvmGc, Hazard::Restart);
    run_steps(
        config(),
        [
            (10, hazard_event(First, gc), &[swap(Second, gc), resend(First, gc)]),
            (20, hazard_event(First, restart), &[resend(First, restart)]),
            (30, no_hazard_event(First), &[HedgeAction::WarmUp(First)]),
            (40, HedgeEvent::Warmed(First), &[return_action(First)]),
        ],
    );
}

#[test]
fn restarted_server_counts_as_cold_until_warmed_up() {
    let (gc, restart) = (Hazard::JvmGc, Hazard::Restart);
    run_steps(
        config(),
        [
            (10, hazard_event(First, restart), &[swap(Second, restart), resend(First, restart)]),
            (50, no_hazard_event(First), &[HedgeAction::WarmUp(First)]),
            // A cold server is better than a slow one, but no better than one that pauses, and worse than one that is
            // well.
            (60, hazard_event(Second, gc), &[]),
            (89, HedgeEvent::Nothing, &[]),
            (90, HedgeEvent::Nothing, &[swap(First, gc), resend(Second, gc)]),
            (100, no_hazard_event(Second), &[swap(Second, restart)]),
            (110, HedgeEvent::Warmed(First), &[]),
            (120, hazard_event(Second, gc), &[swap(First, gc), resend(Second, gc)]),
        ],
    );
}

#[test]
fn short_pause_does_not_use_a_cold_server() {
    let (gc, restart) = (Hazard::JvmGc, Hazard::Restart);
    let mut roles = run_steps(
        config(),
        [
            (10, hazard_event(First, restart), &[swap(Second, restart), resend(First, restart)]),
            (50, no_hazard_event(First), &[HedgeAction::WarmUp(First)]),
            (60, hazard_event(Second, gc), &[]),
        ],
    );
    assert_eq!((roles.why(), roles.next_wakeup()), (HedgeReason::NoBetter(gc), Some(90)));
    let mut out = HedgeActions::default();
    roles.observe(80, &no_hazard_event(Second), &mut out);
    assert_eq!((out.iter().count(), roles.active(), roles.next_wakeup()), (0, Second, Some(1050)));
    // The policy does not wait for a server that cannot be reached.
    roles.observe(100, &hazard_event(Second, gc), &mut out);
    roles.observe(101, &hazard_event(Second, restart), &mut out);
    assert!(out.iter().eq([swap(First, restart), resend(Second, restart)]));
}

#[test]
fn server_that_pauses_later_is_not_swapped_in() {
    let gc = Hazard::JvmGc;
    run_steps(
        config(),
        [
            (10, hazard_event(First, gc), &[swap(Second, gc), resend(First, gc)]),
            (35, hazard_event(Second, gc), &[]),
            (40, HedgeEvent::Nothing, &[]),
            (65, HedgeEvent::Nothing, &[]),
            (70, no_hazard_event(Second), &[resend(First, gc)]),
            (80, no_hazard_event(First), &[return_action(First)]),
        ],
    );
}

#[test]
fn swap_waits_until_the_backup_is_better() {
    let (gc, stopped) = (Hazard::JvmGc, Hazard::Stopped);
    let roles = run_steps(
        config(),
        [
            (10, hazard_event(Second, stopped), &[resend(Second, stopped)]),
            (20, hazard_event(First, gc), &[]),
            (30, no_hazard_event(Second), &[swap(Second, gc), resend(First, gc)]),
        ],
    );
    assert_eq!(roles.active(), Second);
}

#[test]
fn unreachable_server_is_probed_until_it_is_reached() {
    let away = Hazard::Unreachable;
    let mut roles = run_steps(
        config(),
        [
            (10, HedgeEvent::Unreachable(First), &[swap(Second, away), resend(First, away)]),
            (15, HedgeEvent::Unreachable(First), &[]),
            (109, HedgeEvent::Nothing, &[]),
            (110, HedgeEvent::Nothing, &[HedgeAction::Probe(First)]),
            (111, HedgeEvent::Unreachable(First), &[]),
            (215, HedgeEvent::Nothing, &[HedgeAction::Probe(First)]),
            (220, HedgeEvent::Reached(First), &[HedgeAction::WarmUp(First)]),
        ],
    );
    assert_eq!(roles.next_wakeup(), Some(1220), "the end of warming up");
    let mut out = HedgeActions::default();
    roles.observe(1220, &HedgeEvent::Nothing, &mut out);
    assert_eq!((out.iter().count(), roles.next_wakeup()), (0, None));
}

#[test]
fn single_server_is_only_observed() {
    let alone = RolesConfig { has_backup: false, ..config() };
    run_steps(
        alone,
        [
            (10, hazard_event(First, Hazard::JvmGc), &[]),
            (20, hazard_event(First, Hazard::Restart), &[]),
            (30, no_hazard_event(First), &[]),
            (40, HedgeEvent::Unreachable(First), &[]),
        ],
    );
}

#[test]
fn only_unreachable_server_loses_its_role_in_timer_mode() {
    let timer = RolesConfig { mode: Mode::Timer { after_ns: 5 }, ..config() };
    let away = Hazard::Unreachable;
    run_steps(
        timer,
        [(10, hazard_event(First, Hazard::JvmGc), &[]), (20, HedgeEvent::Unreachable(First), &[swap(Second, away)])],
    );
}

#[test]
fn only_a_configured_server_gets_requests() {
    for has_backup in [false, true] {
        let roles = Roles::new(RolesConfig { has_backup, ..config() });
        let asked = [First, Second].map(|server| (roles.can_send_to(server), roles.can_hedge_to(server)));
        assert_eq!(asked, [(true, true), (has_backup, has_backup)]);
    }
}

#[test]
fn failed_warm_up_request_restarts_the_warm_up() {
    let restart = Hazard::Restart;
    let roles = run_steps(
        config(),
        [
            (10, hazard_event(First, restart), &[swap(Second, restart), resend(First, restart)]),
            (50, no_hazard_event(First), &[HedgeAction::WarmUp(First)]),
            (1049, HedgeEvent::StillCold(First), &[]),
            (2048, HedgeEvent::Nothing, &[]),
        ],
    );
    assert_eq!((roles.is_warming_up(First), roles.next_wakeup()), (true, Some(2049)));
    let mut roles = roles;
    roles.observe(2049, &HedgeEvent::StillCold(First), &mut HedgeActions::default());
    assert_eq!((roles.is_warming_up(First), roles.next_wakeup()), (false, None), "its time was over");
}
