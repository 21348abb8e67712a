//! Vectors for the desk, worked by hand: requests that stay, and hedges that were never sent.

use sidelane_policy::hedge::{BudgetConfig, Mode, RolesConfig, Seen, Server};
use sidelane_proxy::desk::{Class, Desk, DeskConfig, Effect, End, Label, Loss, Next, Ticket};

use Server::{First, Second};

const BURST: u64 = 3;

fn desk(mode: Mode, unsafe_stay: bool) -> Desk<()> {
    let roles = RolesConfig { mode, ..RolesConfig::default() };
    let budget = BudgetConfig { per_success_milli: 0, burst: BURST };
    Desk::new(DeskConfig { roles, budget, unsafe_stay, ..DeskConfig::default() })
}

fn request(is_repeatable: bool, follows: Option<Server>) -> Class {
    Class { is_repeatable, follows, label: Label::of(b"GET /") }
}

/// A request that its timer has hedged to the second server.
fn hedged(desk: &mut Desk<()>) -> Ticket {
    let (ticket, _) = desk.admit(0, request(true, None), ());
    desk.seen(10, Seen::Nothing);
    assert_eq!(desk.take_effects(), [Effect::Send { owner: (), ticket, to: Second }]);
    ticket
}

#[test]
fn what_has_to_stay_is_given_up_when_its_server_cannot_be_reached() {
    let mut desk = desk(Mode::Hazard, true);
    for class in [request(false, None), request(false, Some(First))] {
        let (ticket, to) = desk.admit(0, class, ());
        assert_eq!((to, desk.lost(1, ticket, First, Loss::NotSent)), (First, Next::GiveUp));
    }
    let (read, _) = desk.admit(0, request(true, None), ());
    assert_eq!(desk.lost(1, read, First, Loss::NotSent), Next::Send(Second));
}

#[test]
fn a_hedge_that_was_never_sent_is_neither_counted_nor_paid() {
    let mut desk = desk(Mode::Timer { after_ns: 10 }, false);
    let given_back = hedged(&mut desk);
    desk.not_sent(given_back, Second);
    let refused = hedged(&mut desk);
    assert_eq!(desk.lost(11, refused, Second, Loss::NotSent), Next::Wait);
    let sent = hedged(&mut desk);
    for ticket in [given_back, refused, sent] {
        assert!(desk.answered(12, ticket, First));
        desk.finished(13, ticket, End::Answered);
    }
    assert_eq!((desk.counts().hedges, desk.counts().wins, desk.hedges_left()), (1, 0, BURST - 1));
}

#[test]
fn a_request_that_reached_the_second_server_alone_is_no_hedge() {
    let mut desk = desk(Mode::Hazard, false);
    let (ticket, _) = desk.admit(0, request(true, None), ());
    // Its own connection is the one that fails: that swaps, and sends again what the first server has.
    desk.seen(1, Seen::Unreachable(First));
    assert_eq!(desk.take_effects(), [Effect::Send { owner: (), ticket, to: Second }]);
    assert_eq!(desk.lost(1, ticket, First, Loss::NotSent), Next::Wait);
    assert!(desk.answered(2, ticket, Second));
    desk.finished(3, ticket, End::Answered);
    let counts = desk.counts();
    assert_eq!((counts.hedges, counts.wins, counts.sent_again, desk.hedges_left()), (0, 0, 1, BURST));
}
