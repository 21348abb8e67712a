//! Vectors for the desk, worked by hand: requests that stay, and hedges that were never sent.

use sidelane_policy::hedge::{BudgetConfig, Mode, RolesConfig, Seen, Server};
use sidelane_proxy::desk::{
    Class, Desk, DeskConfig, Effect, End, Label, Loss, Next, Outcome, Quality, Ticket, Verdict,
};

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
        assert_eq!(desk.answered(12, ticket, First, Quality::Success), Verdict::Forward(First));
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
    assert_eq!(desk.answered(2, ticket, Second, Quality::Success), Verdict::Forward(Second));
    desk.finished(3, ticket, End::Answered);
    let counts = desk.counts();
    assert_eq!((counts.hedges, counts.wins, counts.sent_again, desk.hedges_left()), (0, 0, 1, BURST));
}

#[test]
fn a_failure_waits_for_the_other_copy() {
    use Quality::{Failure, Success};
    let mut desk = desk(Mode::Timer { after_ns: 10 }, false);
    let better = hedged(&mut desk);
    assert_eq!(desk.answered(11, better, Second, Failure), Verdict::Keep);
    assert_eq!(desk.answered(12, better, First, Success), Verdict::Forward(First));
    desk.dropped(12, better, Second);
    desk.finished(13, better, End::Answered);
    let both_fail = hedged(&mut desk);
    assert_eq!(desk.answered(11, both_fail, First, Failure), Verdict::Keep);
    assert_eq!(desk.answered(12, both_fail, Second, Failure), Verdict::Forward(First));
    desk.finished(13, both_fail, End::Answered);
    let counts = desk.counts();
    assert_eq!((counts.answered, counts.failures, counts.wins, counts.answered_ns), (2, 1, 0, 13));
    assert_eq!((counts.dropped, counts.wasted_ns), (1, 2), "the second server had it from 10 to 12");
}

#[test]
fn a_failure_is_forwarded_when_the_other_copy_is_lost_or_late() {
    let mut desk = desk(Mode::Timer { after_ns: 10 }, false);
    let [lost, late] = [hedged(&mut desk), hedged(&mut desk)];
    for ticket in [lost, late] {
        assert_eq!(desk.answered(11, ticket, Second, Quality::Failure), Verdict::Keep);
    }
    // The first server is asked once more on another connection, and never the one that has answered.
    assert_eq!(desk.lost(12, lost, First, Loss::Sent), Next::Send(First));
    assert_eq!(desk.lost(13, lost, First, Loss::Sent), Next::Forward(Second));
    assert_eq!((desk.late(14, late), desk.late(15, late)), (Some(Second), None));
    let alone = desk.admit(20, request(true, None), ()).0;
    assert_eq!(desk.answered(21, alone, First, Quality::Failure), Verdict::Forward(First), "no other copy is out");
}

#[test]
fn failures_do_not_pay_for_hedges() {
    let budget = BudgetConfig { per_success_milli: 1000, burst: 1 };
    let roles = RolesConfig { mode: Mode::Timer { after_ns: 10 }, ..RolesConfig::default() };
    let mut desk = Desk::new(DeskConfig { roles, budget, ..DeskConfig::default() });
    let mut answer = |quality| {
        let ticket = hedged(&mut desk);
        desk.not_sent(ticket, Second);
        let ticket = hedged(&mut desk);
        desk.lost(11, ticket, Second, Loss::Sent);
        desk.lost(11, ticket, Second, Loss::Sent);
        desk.answered(12, ticket, First, quality);
        desk.finished(13, ticket, End::Answered);
        desk.hedges_left()
    };
    assert_eq!((answer(Quality::Success), answer(Quality::Failure)), (1, 0));
}

#[test]
fn a_failing_server_is_asked_last() {
    let mut desk = desk(Mode::Timer { after_ns: 10 }, false);
    for _ in 0..5 {
        assert!(desk.tried(1, Second, 1, Outcome::Status(500)), "the clock has to look");
    }
    assert!(desk.ejection(Second).is_some());
    let (ticket, to) = desk.admit(2, request(true, None), ());
    desk.seen(20, Seen::Nothing);
    assert_eq!((to, desk.take_effects()), (First, vec![]), "it is not hedged");
    assert_eq!(desk.lost(21, ticket, First, Loss::Sent), Next::Send(First));
    assert_eq!(desk.lost(22, ticket, First, Loss::Sent), Next::Send(Second));
}
