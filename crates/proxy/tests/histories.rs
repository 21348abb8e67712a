//! Random histories of requests at simulated servers. They check three rules for any behaviour of servers and hazards.
//! No request that is not safe to repeat is executed twice, no client is answered twice, and no answer is lost.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sidelane_policy::hedge::{Attempt, Hazards, HedgeBudgetConfig, HedgeEvent, Mode, RolesConfig, SERVERS_MAX, Server};
use sidelane_proxy::request_table::{
    Effect, Label, Loss, NextStep, Quality, RequestClass, RequestEnd, RequestId, RequestTable, TableConfig, Verdict,
};

const BURST: u64 = 5;
const PER_SUCCESS_MILLI: u64 = 200;

/// Next event of a history.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A client sends a request.
    Come { is_repeatable: bool },
    /// A server executes a copy, and its answer arrives.
    Answer { which: usize, is_failure: bool },
    /// A server answers a request, or fails to.
    Try { server: Server, has_failed: bool },
    /// A copy is lost: it was never sent, not read, or perhaps executed.
    Lose { which: usize, loss: Loss },
    /// A watcher reports the hazards of a server.
    Watch { server: Server, bits: u32 },
    /// A connect to a server succeeds or fails.
    Connect { server: Server, works: bool },
    /// A client goes away.
    Leave { which: usize },
    /// Time passes.
    Wait { ns: u64 },
}

fn server() -> impl Strategy<Value = Server> {
    (0..SERVERS_MAX).prop_map(|index| Server::ALL[index])
}

fn loss() -> impl Strategy<Value = Loss> {
    prop_oneof![Just(Loss::NotSent), Just(Loss::Unread), Just(Loss::Sent)]
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0_usize..1000;
    prop_oneof![
        4 => any::<bool>().prop_map(|is_repeatable| Step::Come { is_repeatable }),
        4 => (which.clone(), any::<bool>()).prop_map(|(which, is_failure)| Step::Answer { which, is_failure }),
        2 => (which.clone(), loss()).prop_map(|(which, loss)| Step::Lose { which, loss }),
        1 => (server(), prop_oneof![Just(0_u32), 1_u32..32]).prop_map(|(server, bits)| Step::Watch { server, bits }),
        1 => (server(), any::<bool>()).prop_map(|(server, works)| Step::Connect { server, works }),
        4 => (server(), prop_oneof![3 => Just(true), 1 => Just(false)])
            .prop_map(|(server, has_failed)| Step::Try { server, has_failed }),
        1 => which.prop_map(|which| Step::Leave { which }),
        1 => (1_u64..500).prop_map(|ns| Step::Wait { ns }),
    ]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![3 => Just(Mode::Hazard), 1 => Just(Mode::Timer { after_ns: 100 }), 1 => Just(Mode::Never)]
}

/// Facts about a request, as its client and the servers know them.
#[derive(Debug, Default)]
struct RequestFacts {
    is_repeatable: bool,
    /// Number of times that servers may have executed the request.
    carried_out: u32,
    /// Servers that answered with a failure while another copy was unanswered.
    kept: Vec<Server>,
    /// Whether the request must stay at the first server.
    stays: bool,
    forwarded: u32,
    given_up: bool,
    has_left: bool,
}

/// Request table with simulated servers and clients.
struct Simulation {
    table: RequestTable<()>,
    now: u64,
    /// Copies that wait for their answer.
    out: Vec<(RequestId, Server)>,
    truth: BTreeMap<u64, RequestFacts>,
    hedges: u64,
    successes: u64,
    unsafe_stay: bool,
}

impl Simulation {
    fn new(mode: Mode, servers: usize, unsafe_stay: bool) -> Self {
        let roles = RolesConfig { mode, servers, warm_up_ns: 200, probe_ns: 100, pause_ns: 50, out_ns: 300 };
        let budget = HedgeBudgetConfig { per_success_milli: PER_SUCCESS_MILLI, burst: BURST };
        let table = RequestTable::new(TableConfig { roles, budget, last: 8, unsafe_stay });
        Self { table, now: 0, out: Vec::new(), truth: BTreeMap::new(), hedges: 0, successes: 0, unsafe_stay }
    }

    fn apply_step(&mut self, step: Step) {
        self.now += 1;
        match step {
            Step::Come { is_repeatable } => {
                let class = RequestClass { is_repeatable, follows: None, label: Label::from_text(b"GET /") };
                let (request_id, to) = self.table.admit(self.now, class, ());
                let stays = self.unsafe_stay && !is_repeatable;
                assert!(!stays || to == Server::FIRST);
                self.truth.insert(request_id.number, RequestFacts { is_repeatable, stays, ..RequestFacts::default() });
                self.out.push((request_id, to));
            }
            Step::Answer { which, is_failure } => self.answer_copy(which, is_failure),
            Step::Lose { which, loss } => self.lose_copy(which, loss),
            Step::Try { server, has_failed } => {
                self.observe(HedgeEvent::Tried(server, Attempt { sent_ns: self.now, has_failed }));
            }
            Step::Watch { server, bits } => self.observe(HedgeEvent::Watched(server, Hazards::from_bits(bits))),
            Step::Connect { server, works: true } => self.observe(HedgeEvent::Reached(server)),
            Step::Connect { server, works: false } => self.observe(HedgeEvent::Unreachable(server)),
            Step::Leave { which } => self.let_client_leave(which),
            Step::Wait { ns } => {
                self.now += ns;
                self.observe(HedgeEvent::Nothing);
            }
        }
    }

    fn observe(&mut self, event: HedgeEvent) {
        self.table.observe(self.now, event);
        for effect in self.table.take_effects() {
            if let Effect::Send { request_id, to, .. } = effect {
                self.hedges += 1;
                let truth = &self.truth[&request_id.number];
                assert!(truth.is_repeatable && truth.forwarded == 0 && !truth.given_up && !truth.has_left, "{truth:?}");
                self.add_copy(request_id, to);
            }
        }
    }

    /// Sends a copy. A request is at two servers at most.
    fn add_copy(&mut self, request_id: RequestId, to: Server) {
        let at: Vec<Server> =
            self.out.iter().filter(|(out, _)| *out == request_id).map(|(_, server)| *server).collect();
        assert!(at.len() <= 1 && !at.contains(&to), "{at:?} and {to:?}");
        self.out.push((request_id, to));
    }

    fn take_copy(&mut self, index: usize) -> Option<(RequestId, Server)> {
        (!self.out.is_empty()).then(|| self.out.remove(index % self.out.len()))
    }

    fn answer_copy(&mut self, index: usize, is_failure: bool) {
        let Some((request_id, by)) = self.take_copy(index) else { return };
        let truth = self.truth.get_mut(&request_id.number).unwrap();
        truth.carried_out += 1;
        let is_other_out = self.out.iter().any(|(out, _)| *out == request_id);
        let quality = if is_failure { Quality::Failure } else { Quality::Success };
        match self.table.record_answer(self.now, request_id, by, quality) {
            Verdict::Forward(chosen) => {
                assert!(!is_failure || !is_other_out, "a failure won against a success that could come: {truth:?}");
                assert!(chosen == by || (is_failure && truth.kept.contains(&chosen)), "{truth:?}");
                self.successes += u64::from(!is_failure);
                self.finish_with_answer(request_id);
            }
            Verdict::Keep => {
                assert!(is_failure && is_other_out, "{truth:?}");
                truth.kept.push(by);
            }
            Verdict::Drop => self.table.count_dropped_answer(self.now, request_id, by),
        }
    }

    fn finish_with_answer(&mut self, request_id: RequestId) {
        self.truth.get_mut(&request_id.number).unwrap().forwarded += 1;
        self.table.finish_request(self.now, request_id, RequestEnd::Answered);
    }

    fn lose_copy(&mut self, index: usize, loss: Loss) {
        let Some((request_id, at)) = self.take_copy(index) else { return };
        let truth = self.truth.get_mut(&request_id.number).unwrap();
        let was_sent = loss == Loss::Sent;
        truth.carried_out += u32::from(was_sent);
        match self.table.record_loss(self.now, request_id, at, loss) {
            NextStep::Send(to) => {
                assert!(truth.is_repeatable || !was_sent, "it may have been carried out: {truth:?}");
                assert!(!truth.kept.contains(&to), "it was answered there: {truth:?}");
                assert!(!truth.stays || to == Server::FIRST, "it has to stay: {truth:?}");
                self.add_copy(request_id, to);
            }
            NextStep::Wait => {
                let is_out = self.out.iter().any(|(out, _)| *out == request_id);
                assert!(is_out || truth.forwarded + u32::from(truth.has_left) > 0, "no server works on it: {truth:?}");
            }
            NextStep::Forward(kept) => {
                assert!(truth.kept.contains(&kept), "{truth:?}");
                assert!(!self.out.iter().any(|(out, _)| *out == request_id), "another answer may come: {truth:?}");
                self.finish_with_answer(request_id);
            }
            NextStep::GiveUp => {
                assert!(truth.kept.is_empty(), "an answer is there: {truth:?}");
                assert!(truth.forwarded == 0 && !self.out.iter().any(|(out, _)| *out == request_id), "{truth:?}");
                truth.given_up = true;
                self.table.finish_request(self.now, request_id, RequestEnd::Failed(502));
            }
        }
    }

    fn let_client_leave(&mut self, index: usize) {
        let Some((request_id, _)) = (!self.out.is_empty()).then(|| self.out[index % self.out.len()]) else { return };
        let truth = self.truth.get_mut(&request_id.number).unwrap();
        if truth.forwarded == 0 && !truth.has_left {
            truth.has_left = true;
            self.table.finish_request(self.now, request_id, RequestEnd::ClientLeft);
        }
    }

    /// Answers all copies that still wait for their answer.
    fn answer_all(&mut self) {
        while !self.out.is_empty() {
            self.now += 1;
            self.answer_copy(0, false);
        }
    }

    fn check_invariants(&self) {
        for truth in self.truth.values() {
            assert!(truth.is_repeatable || truth.carried_out <= 1, "carried out twice: {truth:?}");
            let ends = truth.forwarded + u32::from(truth.given_up) + u32::from(truth.has_left);
            assert_eq!(ends, 1, "each request ends once: {truth:?}");
            assert!(truth.forwarded == 0 || truth.carried_out > 0, "an answer that no server gave: {truth:?}");
        }
        let counts = self.table.counts();
        // The table does not count hedges that were never sent.
        assert!(counts.wins <= counts.hedges && counts.hedges <= self.hedges);
        assert!(1000 * counts.hedges <= 1000 * BURST + PER_SUCCESS_MILLI * self.successes);
        assert_eq!(counts.requests, counts.answered + counts.failed + counts.left);
        assert_eq!(self.table.in_flight(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn unrepeatable_requests_are_sent_once_and_each_ends_once(
        mode in mode(),
        servers in 1..=SERVERS_MAX,
        unsafe_stay in any::<bool>(),
        steps in proptest::collection::vec(step(), 0..80),
    ) {
        let mut world = Simulation::new(mode, servers, unsafe_stay);
        steps.into_iter().for_each(|step| world.apply_step(step));
        world.answer_all();
        world.check_invariants();
    }
}
