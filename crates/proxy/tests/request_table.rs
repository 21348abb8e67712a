//! Tests of the request table with hand-made event sequences: requests that stay, and hedges that were never sent.

use sidelane_policy::hedge::{Hazard, Hazards, HedgeBudgetConfig, HedgeEvent, Mode, RolesConfig, Server};
use sidelane_proxy::request_table::{
    Effect, Label, Loss, NextStep, Quality, RequestClass, RequestEnd, RequestId, RequestTable, ServerOutcome,
    TableConfig, Verdict,
};

const FIRST: Server = Server::FIRST;
const SECOND: Server = Server::ALL[1];
const THIRD: Server = Server::ALL[2];
const BURST: u64 = 3;

fn new_table(mode: Mode, unsafe_stay: bool) -> RequestTable<()> {
    table_of(2, mode, unsafe_stay)
}

fn table_of(servers: usize, mode: Mode, unsafe_stay: bool) -> RequestTable<()> {
    let roles = RolesConfig { mode, servers, ..RolesConfig::default() };
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
    assert_eq!(table.take_effects(), [Effect::Send { owner: (), request_id, to: SECOND }]);
    request_id
}

#[test]
fn request_bound_to_an_unreachable_server_is_given_up() {
    let mut table = new_table(Mode::Hazard, true);
    for class in [request_class(false, None), request_class(false, Some(FIRST))] {
        let (request_id, to) = table.admit(0, class, ());
        assert_eq!((to, table.record_loss(1, request_id, FIRST, Loss::NotSent)), (FIRST, NextStep::GiveUp));
    }
    let (read, _) = table.admit(0, request_class(true, None), ());
    assert_eq!(table.record_loss(1, read, FIRST, Loss::NotSent), NextStep::Send(SECOND));
}

#[test]
fn unsent_hedge_is_not_counted_and_costs_no_budget() {
    let mut table = new_table(Mode::Timer { after_ns: 10 }, false);
    let given_back = admit_hedged_request(&mut table);
    table.record_not_sent(given_back, SECOND);
    let refused = admit_hedged_request(&mut table);
    assert_eq!(table.record_loss(11, refused, SECOND, Loss::NotSent), NextStep::Wait);
    let sent = admit_hedged_request(&mut table);
    for request_id in [given_back, refused, sent] {
        assert_eq!(table.record_answer(12, request_id, FIRST, Quality::Success), Verdict::Forward(FIRST));
        table.finish_request(13, request_id, RequestEnd::Answered);
    }
    assert_eq!((table.counts().hedges, table.counts().wins, table.hedges_left()), (1, 0, BURST - 1));
}

#[test]
fn request_sent_only_to_the_second_server_is_no_hedge() {
    let mut table = new_table(Mode::Hazard, false);
    let (request_id, _) = table.admit(0, request_class(true, None), ());
    // The connect for this request fails. So the servers are swapped, and the request is sent to the second server.
    table.observe(1, HedgeEvent::Unreachable(FIRST));
    assert_eq!(table.take_effects(), [Effect::Send { owner: (), request_id, to: SECOND }]);
    assert_eq!(table.record_loss(1, request_id, FIRST, Loss::NotSent), NextStep::Wait);
    assert_eq!(table.record_answer(2, request_id, SECOND, Quality::Success), Verdict::Forward(SECOND));
    table.finish_request(3, request_id, RequestEnd::Answered);
    let counts = table.counts();
    assert_eq!((counts.hedges, counts.wins, counts.sent_again, table.hedges_left()), (0, 0, 1, BURST));
}

#[test]
fn failure_is_kept_until_the_other_copy_ends() {
    use Quality::{Failure, Success};
    let mut table = new_table(Mode::Timer { after_ns: 10 }, false);
    let better = admit_hedged_request(&mut table);
    assert_eq!(table.record_answer(11, better, SECOND, Failure), Verdict::Keep);
    assert_eq!(table.record_answer(12, better, FIRST, Success), Verdict::Forward(FIRST));
    table.count_dropped_answer(12, better, SECOND);
    table.finish_request(13, better, RequestEnd::Answered);
    let both_fail = admit_hedged_request(&mut table);
    assert_eq!(table.record_answer(11, both_fail, FIRST, Failure), Verdict::Keep);
    assert_eq!(table.record_answer(12, both_fail, SECOND, Failure), Verdict::Forward(FIRST));
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
        assert_eq!(table.record_answer(11, request_id, SECOND, Quality::Failure), Verdict::Keep);
    }
    // The first server is asked again on another connection. The second server is not, because it has answered.
    assert_eq!(table.record_loss(12, lost, FIRST, Loss::Sent), NextStep::Send(FIRST));
    assert_eq!(table.record_loss(13, lost, FIRST, Loss::Sent), NextStep::Forward(SECOND));
    assert_eq!((table.end_wait_for_copies(14, late), table.end_wait_for_copies(15, late)), (Some(SECOND), None));
    let alone = table.admit(20, request_class(true, None), ()).0;
    assert_eq!(
        table.record_answer(21, alone, FIRST, Quality::Failure),
        Verdict::Forward(FIRST),
        "no other copy is out"
    );
}

#[test]
fn an_answered_request_gets_no_other_answer_and_no_new_copy() {
    use Quality::{Failure, Success};
    let mut table = new_table(Mode::Timer { after_ns: 10 }, false);
    // Requests end only after their whole answers were forwarded, so events of other copies may come before the end.
    let [second, lost, failed] = [(); 3].map(|()| admit_hedged_request(&mut table));
    assert_eq!(table.record_answer(11, failed, FIRST, Failure), Verdict::Keep);
    for request_id in [second, lost, failed] {
        assert_eq!(table.record_answer(12, request_id, SECOND, Success), Verdict::Forward(SECOND));
    }
    assert_eq!(table.record_answer(13, second, FIRST, Success), Verdict::Drop);
    assert_eq!(table.record_loss(13, lost, FIRST, Loss::Sent), NextStep::Wait);
    assert_eq!(table.end_wait_for_copies(13, failed), None, "the kept failure is not forwarded");
}

#[test]
fn failed_requests_add_nothing_to_the_hedge_budget() {
    let budget = HedgeBudgetConfig { per_success_milli: 1000, burst: 1 };
    let roles = RolesConfig { mode: Mode::Timer { after_ns: 10 }, ..RolesConfig::default() };
    let mut table = RequestTable::new(TableConfig { roles, budget, ..TableConfig::default() });
    let mut answer = |quality| {
        let request_id = admit_hedged_request(&mut table);
        table.record_not_sent(request_id, SECOND);
        let request_id = admit_hedged_request(&mut table);
        table.record_loss(11, request_id, SECOND, Loss::Sent);
        table.record_loss(11, request_id, SECOND, Loss::Sent);
        table.record_answer(12, request_id, FIRST, quality);
        table.finish_request(13, request_id, RequestEnd::Answered);
        table.hedges_left()
    };
    assert_eq!((answer(Quality::Success), answer(Quality::Failure)), (1, 0));
}

#[test]
fn failing_server_gets_requests_last() {
    let mut table = new_table(Mode::Timer { after_ns: 10 }, false);
    for _ in 0..5 {
        assert!(table.record_outcome(1, SECOND, 1, ServerOutcome::Status(500)), "the clock has to look");
    }
    assert!(table.ejection(SECOND).is_some());
    let (request_id, to) = table.admit(2, request_class(true, None), ());
    table.observe(20, HedgeEvent::Nothing);
    assert_eq!((to, table.take_effects()), (FIRST, vec![]), "it is not hedged");
    assert_eq!(table.record_loss(21, request_id, FIRST, Loss::Sent), NextStep::Send(FIRST));
    assert_eq!(table.record_loss(22, request_id, FIRST, Loss::Sent), NextStep::Send(SECOND));
}

/// Reports that a server has stopped, or goes on.
fn observe_stop(table: &mut RequestTable<()>, now: u64, server: Server, is_stopped: bool) {
    table.observe(now, HedgeEvent::Watched(server, Hazards::NONE.with(Hazard::Stopped, is_stopped)));
}

fn send(request_id: RequestId, to: Server) -> Effect<()> {
    Effect::Send { owner: (), request_id, to }
}

#[test]
fn request_is_at_two_of_three_servers_at_most() {
    let mut table = table_of(3, Mode::Hazard, false);
    let (both, _) = table.admit(0, request_class(true, None), ());
    observe_stop(&mut table, 10, FIRST, true);
    let (second, to) = table.admit(11, request_class(true, None), ());
    assert_eq!((to, table.take_effects()), (SECOND, vec![send(both, SECOND)]));
    observe_stop(&mut table, 20, SECOND, true);
    assert_eq!((table.active(), table.take_effects()), (THIRD, vec![send(second, THIRD)]));
    // The hedge is lost, and the first server still stands: the third server is asked, without the budget.
    assert_eq!(table.record_loss(30, both, SECOND, Loss::Sent), NextStep::Send(THIRD));
    assert_eq!(table.record_loss(31, both, THIRD, Loss::Sent), NextStep::Wait);
    assert_eq!(table.record_answer(40, both, FIRST, Quality::Success), Verdict::Forward(FIRST));
    assert_eq!((table.counts().sent_again, table.hedges_left()), (1, BURST - 2));
}

#[test]
fn hedge_that_was_never_sent_goes_to_the_next_server() {
    let mut table = table_of(3, Mode::Hazard, false);
    let (request_id, _) = table.admit(0, request_class(true, None), ());
    observe_stop(&mut table, 10, FIRST, true);
    assert_eq!(table.take_effects(), [send(request_id, SECOND)]);
    assert_eq!(table.record_loss(11, request_id, SECOND, Loss::NotSent), NextStep::Send(THIRD));
    assert_eq!(table.record_answer(12, request_id, THIRD, Quality::Success), Verdict::Forward(THIRD));
    table.finish_request(13, request_id, RequestEnd::Answered);
    let counts = table.counts();
    assert_eq!((counts.hedges, counts.wins, counts.sent_again, table.hedges_left()), (1, 1, 0, BURST - 1));
}

#[test]
fn lost_request_goes_to_all_servers_the_best_first() {
    let mut table = table_of(4, Mode::Hazard, false);
    observe_stop(&mut table, 10, SECOND, true);
    let (request_id, to) = table.admit(20, request_class(true, None), ());
    let mut order = vec![to];
    while let NextStep::Send(next) = table.record_loss(30, request_id, order[order.len() - 1], Loss::Sent) {
        order.push(next);
    }
    let [first, second, third, fourth] = Server::ALL;
    assert_eq!(order, [first, third, fourth, second, first, third, fourth, second], "each is asked twice at most");
}

#[test]
fn timer_hedges_to_the_best_of_the_other_servers() {
    let mut table = table_of(3, Mode::Timer { after_ns: 10 }, false);
    table.observe(0, HedgeEvent::Unreachable(SECOND));
    let (request_id, _) = table.admit(0, request_class(true, None), ());
    table.observe(10, HedgeEvent::Nothing);
    assert_eq!(table.take_effects(), [send(request_id, THIRD)]);
}
