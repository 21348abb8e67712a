//! Tests of the request table with hand-made event sequences: requests that stay, and hedges that were never sent.

use Server::{First, Second};
use sidelane_policy::hedge::{HedgeBudgetConfig, HedgeEvent, Mode, RolesConfig, Server};
use sidelane_proxy::request_table::{
    Effect, Label, Loss, NextStep, Quality, RequestClass, RequestEnd, RequestId, RequestTable, ServerOutcome,
    TableConfig, Verdict,
};

const BURST: u64 = 3;

fn new_table(mode: Mode, unsafe_stay: bool) -> RequestTable<()> {
    let roles = RolesConfig { mode, ..RolesConfig::default() };
    let budget = HedgeBudgetConfig { per_success_milli: 0, burst: BURST };
    RequestTable::new(TableConfig { roles, budget, unsafe_stay, ..TableConfig::default() })
}

fn request_class(is_repeatable: bool, follows: Option<Server>) -> RequestClass {
    RequestClass { is_repeatable, follows, label: Label::from_text(b"GET /") }
}

/// Adds a request, and lets its timer hedge it to the second server.
fn admit_hedged_request(table: &mut RequestTable<()>) -> RequestId {
    let (request_id, _) = table.admit(0, request_class(true, None), ());
    table.observe(10, HedgeEvent::Nothing);
    assert_eq!(table.take_effects(), [Effect::Send { owner: (), request_id, to: Second }]);
    request_id
}

#[test]
fn request_bound_to_an_unreachable_server_is_given_up() {
    let mut table = new_table(Mode::Hazard, true);
    for class in [request_class(false, None), request_class(false, Some(First))] {
        let (request_id, to) = table.admit(0, class, ());
        assert_eq!((to, table.record_loss(1, request_id, First, Loss::NotSent)), (First, NextStep::GiveUp));
    }
    let (read, _) = table.admit(0, request_class(true, None), ());
    assert_eq!(table.record_loss(1, read, First, Loss::NotSent), NextStep::Send(Second));
}

#[test]
fn unsent_hedge_is_not_counted_and_costs_no_budget() {
    let mut table = new_table(Mode::Timer { after_ns: 10 }, false);
    let given_back = admit_hedged_request(&mut table);
    table.record_not_sent(given_back, Second);
    let refused = admit_hedged_request(&mut table);
    assert_eq!(table.record_loss(11, refused, Second, Loss::NotSent), NextStep::Wait);
    let sent = admit_hedged_request(&mut table);
    for request_id in [given_back, refused, sent] {
        assert_eq!(table.record_answer(12, request_id, First, Quality::Success), Verdict::Forward(First));
        table.finish_request(13, request_id, RequestEnd::Answered);
    }
    assert_eq!((table.counts().hedges, table.counts().wins, table.hedges_left()), (1, 0, BURST - 1));
}

#[test]
fn request_sent_only_to_the_second_server_is_no_hedge() {
    let mut table = new_table(Mode::Hazard, false);
    let (request_id, _) = table.admit(0, request_class(true, None), ());
    // The connect for this request fails. So the servers are swapped, and the request is sent to the second server.
    table.observe(1, HedgeEvent::Unreachable(First));
    assert_eq!(table.take_effects(), [Effect::Send { owner: (), request_id, to: Second }]);
    assert_eq!(table.record_loss(1, request_id, First, Loss::NotSent), NextStep::Wait);
    assert_eq!(table.record_answer(2, request_id, Second, Quality::Success), Verdict::Forward(Second));
    table.finish_request(3, request_id, RequestEnd::Answered);
    let counts = table.counts();
    assert_eq!((counts.hedges, counts.wins, counts.sent_again, table.hedges_left()), (0, 0, 1, BURST));
}

#[test]
fn failure_is_kept_until_the_other_copy_ends() {
    use Quality::{Failure, Success};
    let mut table = new_table(Mode::Timer { after_ns: 10 }, false);
    let better = admit_hedged_request(&mut table);
    assert_eq!(table.record_answer(11, better, Second, Failure), Verdict::Keep);
    assert_eq!(table.record_answer(12, better, First, Success), Verdict::Forward(First));
    table.count_dropped_answer(12, better, Second);
    table.finish_request(13, better, RequestEnd::Answered);
    let both_fail = admit_hedged_request(&mut table);
    assert_eq!(table.record_answer(11, both_fail, First, Failure), Verdict::Keep);
    assert_eq!(table.record_answer(12, both_fail, Second, Failure), Verdict::Forward(First));
    table.finish_request(13, both_fail, RequestEnd::Answered);
    let counts = table.counts();
    assert_eq!((counts.answered, counts.failures, counts.wins, counts.answered_ns), (2, 1, 0, 13));
    assert_eq!((counts.dropped, counts.wasted_ns), (1, 2), "the second server had it from 10 to 12");
}

#[test]
fn failure_is_forwarded_if_the_other_copy_is_lost_or_late() {
    let mut table = new_table(Mode::Timer { after_ns: 10 }, false);
    let [lost, late] = [admit_hedged_request(&mut table), admit_hedged_request(&mut table)];
    for request_id in [lost, late] {
        assert_eq!(table.record_answer(11, request_id, Second, Quality::Failure), Verdict::Keep);
    }
    // The first server is asked again on another connection. The second server is not, because it has answered.
    assert_eq!(table.record_loss(12, lost, First, Loss::Sent), NextStep::Send(First));
    assert_eq!(table.record_loss(13, lost, First, Loss::Sent), NextStep::Forward(Second));
    assert_eq!((table.end_wait_for_copies(14, late), table.end_wait_for_copies(15, late)), (Some(Second), None));
    let alone = table.admit(20, request_class(true, None), ()).0;
    assert_eq!(
        table.record_answer(21, alone, First, Quality::Failure),
        Verdict::Forward(First),
        "no other copy is out"
    );
}

#[test]
fn an_answered_request_gets_no_other_answer_and_no_new_copy() {
    use Quality::{Failure, Success};
    let mut table = new_table(Mode::Timer { after_ns: 10 }, false);
    // Requests end only after their whole answers were forwarded, so events of other copies may come before the end.
    let [second, lost, failed] = [(); 3].map(|()| admit_hedged_request(&mut table));
    assert_eq!(table.record_answer(11, failed, First, Failure), Verdict::Keep);
    for request_id in [second, lost, failed] {
        assert_eq!(table.record_answer(12, request_id, Second, Success), Verdict::Forward(Second));
    }
    assert_eq!(table.record_answer(13, second, First, Success), Verdict::Drop);
    assert_eq!(table.record_loss(13, lost, First, Loss::Sent), NextStep::Wait);
    assert_eq!(table.end_wait_for_copies(13, failed), None, "the kept failure is not forwarded");
}

#[test]
fn failed_requests_add_nothing_to_the_hedge_budget() {
    let budget = HedgeBudgetConfig { per_success_milli: 1000, burst: 1 };
    let roles = RolesConfig { mode: Mode::Timer { after_ns: 10 }, ..RolesConfig::default() };
    let mut table = RequestTable::new(TableConfig { roles, budget, ..TableConfig::default() });
    let mut answer = |quality| {
        let request_id = admit_hedged_request(&mut table);
        table.record_not_sent(request_id, Second);
        let request_id = admit_hedged_request(&mut table);
        table.record_loss(11, request_id, Second, Loss::Sent);
        table.record_loss(11, request_id, Second, Loss::Sent);
        table.record_answer(12, request_id, First, quality);
        table.finish_request(13, request_id, RequestEnd::Answered);
        table.hedges_left()
    };
    assert_eq!((answer(Quality::Success), answer(Quality::Failure)), (1, 0));
}

#[test]
fn failing_server_gets_requests_last() {
    let mut table = new_table(Mode::Timer { after_ns: 10 }, false);
    for _ in 0..5 {
        assert!(table.record_outcome(1, Second, 1, ServerOutcome::Status(500)), "the clock has to look");
    }
    assert!(table.ejection(Second).is_some());
    let (request_id, to) = table.admit(2, request_class(true, None), ());
    table.observe(20, HedgeEvent::Nothing);
    assert_eq!((to, table.take_effects()), (First, vec![]), "it is not hedged");
    assert_eq!(table.record_loss(21, request_id, First, Loss::Sent), NextStep::Send(First));
    assert_eq!(table.record_loss(22, request_id, First, Loss::Sent), NextStep::Send(Second));
}
