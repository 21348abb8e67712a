//! Hand-computed cases of the roles of servers: Figure 4.9 of the thesis, and cases beyond it.

use sidelane_policy::Policy;
use sidelane_policy::hedge::{
    Hazard, Hazards, HedgeAction, HedgeActions, HedgeEvent, HedgeReason, Mode, Roles, RolesConfig, Server,
};

const FIRST: Server = Server::FIRST;
const SECOND: Server = Server::ALL[1];
const THIRD: Server = Server::ALL[2];
const FOURTH: Server = Server::ALL[3];

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
    RolesConfig { mode: Mode::Hazard, servers: 2, warm_up_ns: 1000, probe_ns: 100, pause_ns: 30, out_ns: 0 }
}

#[test]
fn gc_swaps_servers_and_requests_return_after_gc() {
    let gc = Hazard::JvmGc;
    let roles = run_steps(
        config(),
        [
            (10, hazard_event(FIRST, gc), &[swap(SECOND, gc), resend(FIRST, gc)]),
            (11, hazard_event(FIRST, gc), &[]),
            (20, no_hazard_event(FIRST), &[return_action(FIRST)]),
            (30, hazard_event(SECOND, gc), &[resend(SECOND, gc)]),
        ],
    );
    assert_eq!((roles.active(), roles.why()), (FIRST, HedgeReason::Returned(gc)));
}

#[test]
fn requests_do_not_return_to_a_backup_with_a_hazard() {
    let (gc, stopped) = (Hazard::JvmGc, Hazard::Stopped);
    run_steps(
        config(),
        [
            (10, hazard_event(FIRST, gc), &[swap(SECOND, gc), resend(FIRST, gc)]),
            (20, hazard_event(SECOND, stopped), &[]),
            (30, no_hazard_event(FIRST), &[swap(FIRST, stopped), resend(SECOND, stopped)]),
            (40, no_hazard_event(SECOND), &[]),
        ],
    );
}

#[test]
fn requests_return_to_a_server_only_when_it_is_warm() {
    let (gc, restart) = (Hazard::JvmGc, Hazard::Restart);
    run_steps(
        config(),
        [
            (10, hazard_event(FIRST, gc), &[swap(SECOND, gc), resend(FIRST, gc)]),
            (20, hazard_event(FIRST, restart), &[resend(FIRST, restart)]),
            (30, no_hazard_event(FIRST), &[HedgeAction::WarmUp(FIRST)]),
            (40, HedgeEvent::Warmed(FIRST), &[return_action(FIRST)]),
        ],
    );
}

#[test]
fn restarted_server_counts_as_cold_until_warmed_up() {
    let (gc, restart) = (Hazard::JvmGc, Hazard::Restart);
    run_steps(
        config(),
        [
            (10, hazard_event(FIRST, restart), &[swap(SECOND, restart), resend(FIRST, restart)]),
            (50, no_hazard_event(FIRST), &[HedgeAction::WarmUp(FIRST)]),
            // A cold server is better than a slow one, but no better than one that pauses, and worse than one that is
            // well.
            (60, hazard_event(SECOND, gc), &[]),
            (89, HedgeEvent::Nothing, &[]),
            (90, HedgeEvent::Nothing, &[swap(FIRST, gc), resend(SECOND, gc)]),
            (100, no_hazard_event(SECOND), &[swap(SECOND, restart)]),
            (110, HedgeEvent::Warmed(FIRST), &[]),
            (120, hazard_event(SECOND, gc), &[swap(FIRST, gc), resend(SECOND, gc)]),
        ],
    );
}

#[test]
fn short_pause_does_not_use_a_cold_server() {
    let (gc, restart) = (Hazard::JvmGc, Hazard::Restart);
    let mut roles = run_steps(
        config(),
        [
            (10, hazard_event(FIRST, restart), &[swap(SECOND, restart), resend(FIRST, restart)]),
            (50, no_hazard_event(FIRST), &[HedgeAction::WarmUp(FIRST)]),
            (60, hazard_event(SECOND, gc), &[]),
        ],
    );
    assert_eq!((roles.why(), roles.next_wakeup()), (HedgeReason::NoBetter(gc), Some(90)));
    let mut out = HedgeActions::default();
    roles.observe(80, &no_hazard_event(SECOND), &mut out);
    assert_eq!((out.iter().count(), roles.active(), roles.next_wakeup()), (0, SECOND, Some(1050)));
    // The policy does not wait for a server that cannot be reached.
    roles.observe(100, &hazard_event(SECOND, gc), &mut out);
    roles.observe(101, &hazard_event(SECOND, restart), &mut out);
    assert!(out.iter().eq([swap(FIRST, restart), resend(SECOND, restart)]));
}

#[test]
fn server_that_pauses_later_is_not_swapped_in() {
    let gc = Hazard::JvmGc;
    run_steps(
        config(),
        [
            (10, hazard_event(FIRST, gc), &[swap(SECOND, gc), resend(FIRST, gc)]),
            (35, hazard_event(SECOND, gc), &[]),
            (40, HedgeEvent::Nothing, &[]),
            (65, HedgeEvent::Nothing, &[]),
            (70, no_hazard_event(SECOND), &[resend(FIRST, gc)]),
            (80, no_hazard_event(FIRST), &[return_action(FIRST)]),
        ],
    );
}

#[test]
fn swap_waits_until_the_backup_is_better() {
    let (gc, stopped) = (Hazard::JvmGc, Hazard::Stopped);
    let roles = run_steps(
        config(),
        [
            (10, hazard_event(SECOND, stopped), &[resend(SECOND, stopped)]),
            (20, hazard_event(FIRST, gc), &[]),
            (30, no_hazard_event(SECOND), &[swap(SECOND, gc), resend(FIRST, gc)]),
        ],
    );
    assert_eq!(roles.active(), SECOND);
}

#[test]
fn unreachable_server_is_probed_until_it_is_reached() {
    let away = Hazard::Unreachable;
    let mut roles = run_steps(
        config(),
        [
            (10, HedgeEvent::Unreachable(FIRST), &[swap(SECOND, away), resend(FIRST, away)]),
            (15, HedgeEvent::Unreachable(FIRST), &[]),
            (109, HedgeEvent::Nothing, &[]),
            (110, HedgeEvent::Nothing, &[HedgeAction::Probe(FIRST)]),
            (111, HedgeEvent::Unreachable(FIRST), &[]),
            (215, HedgeEvent::Nothing, &[HedgeAction::Probe(FIRST)]),
            (220, HedgeEvent::Reached(FIRST), &[HedgeAction::WarmUp(FIRST)]),
        ],
    );
    assert_eq!(roles.next_wakeup(), Some(1220), "the end of warming up");
    let mut out = HedgeActions::default();
    roles.observe(1220, &HedgeEvent::Nothing, &mut out);
    assert_eq!((out.iter().count(), roles.next_wakeup()), (0, None));
}

#[test]
fn single_server_is_only_observed() {
    let alone = RolesConfig { servers: 1, ..config() };
    run_steps(
        alone,
        [
            (10, hazard_event(FIRST, Hazard::JvmGc), &[]),
            (20, hazard_event(FIRST, Hazard::Restart), &[]),
            (30, no_hazard_event(FIRST), &[]),
            (40, HedgeEvent::Unreachable(FIRST), &[]),
        ],
    );
}

#[test]
fn only_unreachable_server_loses_its_role_in_timer_mode() {
    let timer = RolesConfig { mode: Mode::Timer { after_ns: 5 }, ..config() };
    let away = Hazard::Unreachable;
    run_steps(
        timer,
        [(10, hazard_event(FIRST, Hazard::JvmGc), &[]), (20, HedgeEvent::Unreachable(FIRST), &[swap(SECOND, away)])],
    );
}

#[test]
fn only_a_configured_server_gets_requests() {
    for servers in 1..=4 {
        let ranking = Roles::new(RolesConfig { servers, ..config() }).ranking();
        let asked = Server::ALL.map(|server| (ranking.can_send_to(server), ranking.can_hedge_to(server)));
        assert_eq!(asked, Server::ALL.map(|server| (server.index() < servers, server.index() < servers)));
    }
}

#[test]
fn failed_warm_up_request_restarts_the_warm_up() {
    let restart = Hazard::Restart;
    let roles = run_steps(
        config(),
        [
            (10, hazard_event(FIRST, restart), &[swap(SECOND, restart), resend(FIRST, restart)]),
            (50, no_hazard_event(FIRST), &[HedgeAction::WarmUp(FIRST)]),
            (1049, HedgeEvent::StillCold(FIRST), &[]),
            (2048, HedgeEvent::Nothing, &[]),
        ],
    );
    assert_eq!((roles.is_warming_up(FIRST), roles.next_wakeup()), (true, Some(2049)));
    let mut roles = roles;
    roles.observe(2049, &HedgeEvent::StillCold(FIRST), &mut HedgeActions::default());
    assert_eq!((roles.is_warming_up(FIRST), roles.next_wakeup()), (false, None), "its time was over");
}

fn config_of(servers: usize) -> RolesConfig {
    RolesConfig { servers, ..config() }
}

#[test]
fn second_backup_replaces_a_backup_with_a_hazard() {
    let (gc, stopped) = (Hazard::JvmGc, Hazard::Stopped);
    let roles = run_steps(
        config_of(3),
        [
            (10, hazard_event(FIRST, gc), &[swap(SECOND, gc), resend(FIRST, gc)]),
            (20, hazard_event(SECOND, stopped), &[swap(THIRD, stopped), resend(SECOND, stopped)]),
            // A replacement does not get its role back, but the first server does.
            (30, no_hazard_event(SECOND), &[]),
            (40, no_hazard_event(FIRST), &[return_action(FIRST)]),
            (50, hazard_event(THIRD, gc), &[resend(THIRD, gc)]),
        ],
    );
    assert_eq!((roles.active(), roles.why()), (FIRST, HedgeReason::Returned(gc)));
}

#[test]
fn first_server_that_is_well_replaces_one_with_a_hazard() {
    let (gc, stopped) = (Hazard::JvmGc, Hazard::Stopped);
    run_steps(
        config_of(3),
        [
            (10, hazard_event(SECOND, stopped), &[resend(SECOND, stopped)]),
            (20, hazard_event(FIRST, gc), &[swap(THIRD, gc), resend(FIRST, gc)]),
            (30, hazard_event(THIRD, gc), &[]),
            (40, no_hazard_event(FIRST), &[swap(FIRST, gc), resend(SECOND, stopped), resend(THIRD, gc)]),
            (50, no_hazard_event(THIRD), &[]),
        ],
    );
}

#[test]
fn best_backup_takes_the_role_and_of_equals_the_first() {
    let (gc, stopped, restart) = (Hazard::JvmGc, Hazard::Stopped, Hazard::Restart);
    run_steps(
        config_of(4),
        [
            (10, hazard_event(SECOND, restart), &[resend(SECOND, restart)]),
            (20, no_hazard_event(SECOND), &[HedgeAction::WarmUp(SECOND)]),
            // The second server is cold.
            (30, hazard_event(FIRST, restart), &[swap(THIRD, restart), resend(FIRST, restart)]),
            (40, hazard_event(THIRD, stopped), &[swap(FOURTH, stopped), resend(THIRD, stopped)]),
            (50, hazard_event(FOURTH, gc), &[resend(FIRST, restart)]),
            // The hazards of the third and the fourth server last, so a cold server is better.
            (70, HedgeEvent::Nothing, &[resend(THIRD, stopped)]),
            (80, HedgeEvent::Nothing, &[swap(SECOND, gc), resend(FOURTH, gc)]),
            (90, no_hazard_event(FOURTH), &[swap(FOURTH, restart), resend(FIRST, restart), resend(THIRD, stopped)]),
        ],
    );
}

#[test]
fn replacement_of_a_lost_server_gets_its_role_back() {
    let (gc, restart) = (Hazard::JvmGc, Hazard::Restart);
    run_steps(
        config_of(3),
        [
            (10, hazard_event(FIRST, gc), &[swap(SECOND, gc), resend(FIRST, gc)]),
            (20, hazard_event(FIRST, restart), &[resend(FIRST, restart)]),
            (30, hazard_event(SECOND, gc), &[swap(THIRD, gc), resend(SECOND, gc)]),
            (40, no_hazard_event(SECOND), &[return_action(SECOND)]),
            (50, no_hazard_event(FIRST), &[HedgeAction::WarmUp(FIRST)]),
            (60, HedgeEvent::Warmed(FIRST), &[]),
        ],
    );
}

#[test]
fn hazard_of_a_backup_resends_only_its_own_requests() {
    let (gc, stopped) = (Hazard::JvmGc, Hazard::Stopped);
    run_steps(
        config_of(3),
        [
            (10, hazard_event(FIRST, stopped), &[swap(SECOND, stopped), resend(FIRST, stopped)]),
            (20, hazard_event(THIRD, gc), &[resend(THIRD, gc)]),
            (30, no_hazard_event(THIRD), &[]),
        ],
    );
}
