//! Table of all requests: it records the state of each request, and decides which server gets it. It does no I/O: its
//! input is events with their times, and its output is orders.
//!
//! Each request in flight has at most one *copy* at each server. A copy is out from its sending until it is answered or
//! lost. The table guarantees for any behaviour of the servers:
//!
//! - a request that is not safe to repeat is sent once; a second server gets it only if no byte went to the first;
//! - one answer is forwarded, and a later one is dropped and counted;
//! - two servers at most have an unanswered copy at a time;
//! - an answer that is a failure is kept while another copy is out, and forwarded if that copy gets no better one;
//! - a request is given up only when no copy of it is out and none may be sent.
//!
//! # Order of calls
//!
//! [`RequestTable::admit`] comes first, and [`RequestTable::finish_request`] once at the end. In between, the owner of
//! the request reports events of its copies with `record_connection`, `record_answer`, `record_loss` and
//! `record_not_sent`. The results of these calls tell the owner what to do next. `forbid_copies` and `stop_hedging`
//! restrict later orders for a request. `record_outcome`, `count_failed_connect` and `observe` report about a server
//! instead of a request. After `record_outcome` and `observe` the caller carries out the orders of
//! [`RequestTable::take_effects`]. It calls `observe` again at [`RequestTable::next_wakeup`], even if nothing happened.

mod count;
mod record;
mod roles;
mod servers;
mod slots;

use std::sync::Arc;

use sidelane_policy::Nanos;
use sidelane_policy::hedge::{
    Attempt, Ejection, Hazard, HedgeAction, HedgeBudget, HedgeBudgetConfig, HedgeEvent, Mode, Ranking, RolesConfig,
    SERVERS_MAX, Server,
};

pub use count::Counts;
pub use record::{CopyState, Label, Loss, Quality, Record, RequestClass, RequestEnd, SendReason, Verdict};
pub use roles::CommonRoles;
use roles::{Decision, RolesHandle};
pub use servers::{BOUNDS_NS, Durations, ReplyKind, ServerCounts, ServerError, ServerOutcome};
pub use slots::RequestId;
use slots::Slots;

/// Maximum number of copies of a repeatable request that may be sent to one server if earlier ones were lost.
const TRIES_MAX: u8 = 2;

/// Order of the request table that the caller gets from [`RequestTable::take_effects`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<O> {
    /// Order to the owner of a request: send a copy of it to a server.
    Send {
        /// Owner of the request.
        owner: O,
        /// Id of the request.
        request_id: RequestId,
        /// Server that gets the copy.
        to: Server,
    },
    /// Order to send warm-up requests to the server, and to drop their answers.
    WarmUp(Server),
    /// Order to try a connection to the server.
    Probe(Server),
    /// Order to the tables of the proxy's other threads: [`RequestTable::resend`].
    Resend(Server, Hazard),
}

/// Next step of a request's owner after the loss of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Send a copy to this server. The table counts it as sent already.
    Send(Server),
    /// Wait for another copy, or do nothing because the request is over.
    Wait,
    /// Forward the failure answer of this server, which the owner has kept.
    Forward(Server),
    /// Answer the client with an error.
    GiveUp,
}

/// Configuration of the request table.
#[derive(Clone, Copy, Debug)]
pub struct TableConfig {
    /// Configuration of the roles: active server and backups.
    pub roles: RolesConfig,
    /// Configuration of the hedge budget.
    pub budget: HedgeBudgetConfig,
    /// Maximum number of finished requests whose records are stored, so that a client can ask for their traces.
    pub last: usize,
    /// Whether requests that are not safe to repeat stay at the first server, even while another one is active.
    pub unsafe_stay: bool,
}

impl Default for TableConfig {
    fn default() -> Self {
        Self { roles: RolesConfig::default(), budget: HedgeBudgetConfig::default(), last: 4096, unsafe_stay: false }
    }
}

/// Table of all requests. `O` is the owner of a request: the task that sends its copies.
pub struct RequestTable<O> {
    config: TableConfig,
    roles: RolesHandle,
    /// Whether other threads have tables with the same roles.
    has_others: bool,
    budget: HedgeBudget,
    slots: Slots<O>,
    counts: Counts,
    servers: [ServerCounts; SERVERS_MAX],
    effects: Vec<Effect<O>>,
}

impl<O: Clone> RequestTable<O> {
    /// Creates the empty table of a proxy with one thread.
    pub fn new(config: TableConfig) -> Self {
        Self::of_thread(config, Arc::new(CommonRoles::new(config.roles)), (0, 1))
    }

    /// Creates the empty table of one of the threads that share these roles. `thread` is its index, and their number.
    /// The numbers of requests of all threads differ.
    pub fn of_thread(config: TableConfig, roles: Arc<CommonRoles>, thread: (usize, usize)) -> Self {
        Self {
            config,
            roles: RolesHandle::new(roles),
            has_others: thread.1 > 1,
            budget: HedgeBudget::new(config.budget),
            slots: Slots::new(config.last, thread),
            counts: Counts::default(),
            servers: Default::default(),
            effects: Vec::new(),
        }
    }

    /// Adds a new request. Returns its id, and the server to which it counts as sent.
    pub fn admit(&mut self, now: Nanos, class: RequestClass, owner: O) -> (RequestId, Server) {
        let stays = self.config.unsafe_stay && !class.is_repeatable;
        let to = match class.follows {
            Some(server) => server,
            None if stays => Server::FIRST,
            None => self.roles.active(),
        };
        let mut record = Record::new(now, class, to);
        record.stays = stays;
        let request_id = self.slots.insert(record, owner, self.hedge_time_ns(now, class.is_repeatable));
        self.counts.requests += 1;
        (request_id, to)
    }

    /// Returns the time at which the request is hedged if it is still unanswered; `None` without a hedge timer.
    fn hedge_time_ns(&self, now: Nanos, is_repeatable: bool) -> Option<Nanos> {
        match self.config.roles.mode {
            Mode::Timer { after_ns } if is_repeatable && self.config.roles.servers > 1 => Some(now + after_ns),
            _ => None,
        }
    }

    /// Records the connection of a copy to a server, by its local port.
    pub fn record_connection(&mut self, request_id: RequestId, to: Server, port: u16) {
        if let Some(record) = self.slots.get_mut(request_id) {
            record.copies[to.index()].port = Some(port);
        }
    }

    /// Records the begin of a server's answer, and decides what the owner does with it.
    pub fn record_answer(&mut self, now: Nanos, request_id: RequestId, by: Server, quality: Quality) -> Verdict {
        let Some(record) = self.slots.get_mut(request_id) else { return Verdict::Drop };
        let verdict = record.decide_answer(now, by, quality);
        let is_failure = quality == Quality::Failure && verdict != Verdict::Drop;
        self.counts.failed_hedges += u64::from(is_failure && record.is_hedge(by));
        verdict
    }

    /// Ends the wait for further copies. Returns the server whose kept failure answer is forwarded now, if there is
    /// one.
    pub fn end_wait_for_copies(&mut self, now: Nanos, request_id: RequestId) -> Option<Server> {
        self.slots.get_mut(request_id)?.forward_kept_failure(now)
    }

    /// Records the loss of an unanswered copy, and decides what the owner does next.
    pub fn record_loss(&mut self, now: Nanos, request_id: RequestId, lost_server: Server, loss: Loss) -> NextStep {
        let unsent_hedge = self.mark_copy_lost(request_id, lost_server, loss);
        let ranking = self.roles.ranking();
        let Some(record) = self.slots.get_mut(request_id) else { return NextStep::Wait };
        if record.is_answered() {
            return NextStep::Wait;
        }
        let (next, reason) = match record.awaited_servers().next() {
            Some(server) => {
                let second = second_server(record, ranking, |other| ranking.is_better(other, server));
                let Some(second) = second else { return NextStep::Wait };
                // The request is at one server, as before the hedge that was given back.
                if unsent_hedge.is_some() && !self.budget.take() {
                    self.counts.refused += 1;
                    return NextStep::Wait;
                }
                (Some(second), unsent_hedge.unwrap_or(SendReason::Lost))
            }
            None => (server_after_loss(record, ranking, lost_server), SendReason::Lost),
        };
        let Some(server) = next else {
            return record.forward_kept_failure(now).map_or(NextStep::GiveUp, NextStep::Forward);
        };
        record.record_send(now, server, reason);
        self.counts.sent_again += u64::from(reason == SendReason::Lost);
        NextStep::Send(server)
    }

    /// Ends a request after its answer was forwarded, or after the request failed.
    pub fn finish_request(&mut self, now: Nanos, request_id: RequestId, end: RequestEnd) {
        let Some(record) = self.slots.get_mut(request_id) else { return };
        record.finish(now, end);
        self.counts.record_end(record, end);
        if end == RequestEnd::Answered && !record.is_failure {
            self.budget.record_success();
        }
        self.slots.move_to_finished(request_id);
    }

    /// Counts a dropped answer: it came second, or it is no longer awaited.
    pub fn count_dropped_answer(&mut self, now: Nanos, request_id: RequestId, server: Server) {
        self.counts.dropped += 1;
        if let Some(record) = self.slots.find_mut(request_id) {
            self.counts.wasted_ns += record.mark_dropped(now, server);
        }
    }

    /// Records the outcome of a request sent to a server at `sent_ns`. Returns whether there may be new orders.
    pub fn record_outcome(&mut self, now: Nanos, server: Server, sent_ns: Nanos, outcome: ServerOutcome) -> bool {
        let counts = &mut self.servers[server.index()];
        counts.record_outcome(outcome);
        if outcome.quality() == Quality::Success {
            counts.response_time.record(now.saturating_sub(sent_ns));
        }
        if outcome.is_fault() {
            self.apply_policy(now, HedgeEvent::Tried(server, Attempt { sent_ns, has_failed: true }));
            return true;
        }
        let decision = self.roles.record_success(now, server, sent_ns);
        decision.is_some_and(|decision| self.carry_out(now, decision))
    }

    /// Counts a failed connect to a server.
    pub fn count_failed_connect(&mut self, server: Server) {
        self.servers[server.index()].record_outcome(ServerOutcome::Error(ServerError::Connect));
    }

    /// Returns the time at which the last copy was sent to this server; 0 if the request ended so long ago that its
    /// record was removed.
    pub fn last_sent_ns(&mut self, request_id: RequestId, server: Server) -> Nanos {
        self.slots.find_mut(request_id).map_or(0, |record| record.copies[server.index()].at_ns)
    }

    /// Takes in an observation of a server, or the passage of time.
    pub fn observe(&mut self, now: Nanos, event: HedgeEvent) {
        self.apply_policy(now, event);
        self.hedge_overdue(now);
    }

    /// Lets the policy decide on an observation.
    fn apply_policy(&mut self, now: Nanos, event: HedgeEvent) {
        let decision = self.roles.observe(now, event);
        self.carry_out(now, decision);
    }

    /// Carries out a decision of the policy. Returns whether there was an action.
    fn carry_out(&mut self, now: Nanos, decision: Decision) -> bool {
        let Decision { actions, ejected } = decision;
        self.servers.iter_mut().zip(ejected).for_each(|(counts, ejected)| counts.ejections += u64::from(ejected));
        let has_acted = !actions.is_empty();
        for action in actions {
            match action {
                HedgeAction::Swap { because, .. } => self.counts.swaps[because as usize] += 1,
                HedgeAction::Return { .. } => {}
                HedgeAction::Resend { from, because } => {
                    self.resend(now, from, because);
                    self.effects.extend(self.has_others.then_some(Effect::Resend(from, because)));
                }
                HedgeAction::WarmUp(server) => {
                    self.counts.warm_ups += 1;
                    self.effects.push(Effect::WarmUp(server));
                }
                HedgeAction::Probe(server) => self.effects.push(Effect::Probe(server)),
            }
        }
        has_acted
    }

    /// Hedges the requests that wait for this server, because of a hazard. The caller carries out the orders of
    /// [`Self::take_effects`].
    pub fn resend(&mut self, now: Nanos, from: Server, hazard: Hazard) {
        let ranking = self.roles.ranking();
        for request_id in self.slots.requests_waiting_for(from) {
            self.hedge(now, request_id, SendReason::Hazard(hazard), |server| ranking.is_better(server, from));
        }
    }

    /// Hedges requests that have been in flight for longer than the hedge timer.
    fn hedge_overdue(&mut self, now: Nanos) {
        let ranking = self.roles.ranking();
        while let Some(request_id) = self.slots.pop_due(now) {
            self.hedge(now, request_id, SendReason::Timer, |server| ranking.can_hedge_to(server));
        }
    }

    /// Sends a request to the best allowed server, unless two servers have it already.
    fn hedge(&mut self, now: Nanos, request_id: RequestId, reason: SendReason, is_allowed: impl Fn(Server) -> bool) {
        let Some((record, owner)) = self.slots.get_with_owner(request_id) else { return };
        let Some(to) = second_server(record, self.roles.ranking(), is_allowed) else { return };
        if !self.budget.take() {
            self.counts.refused += 1;
            return;
        }
        record.record_send(now, to, reason);
        self.effects.push(Effect::Send { owner, request_id, to });
    }

    /// Forbids further copies of a request, because a later command depends on its order.
    pub fn forbid_copies(&mut self, request_id: RequestId) {
        if let Some(record) = self.slots.get_mut(request_id) {
            record.is_repeatable = false;
        }
    }

    /// Forbids hedges of a request, because its client may be gone.
    pub fn stop_hedging(&mut self, request_id: RequestId) {
        if let Some(record) = self.slots.get_mut(request_id) {
            record.is_worth_hedging = false;
        }
    }

    /// Records that no byte of a copy was sent to this server, and none will be.
    pub fn record_not_sent(&mut self, request_id: RequestId, to: Server) {
        self.mark_copy_lost(request_id, to, Loss::NotSent);
    }

    /// Records the loss of a copy. Gives hedges back to the budget if only one server got the request. Returns the
    /// reason of the copy if it was such a hedge, and no byte of it was sent.
    fn mark_copy_lost(&mut self, request_id: RequestId, server: Server, loss: Loss) -> Option<SendReason> {
        let record = self.slots.get_mut(request_id)?;
        let was_hedge = record.is_hedge(server);
        record.mark_lost(server, loss);
        let cancelled = record.cancel_unsent_hedges();
        (0..cancelled).for_each(|_| self.budget.give_back());
        self.counts.sent_again += u64::from(cancelled > 0 && !was_hedge);
        record.copies[server.index()].why.filter(|_| was_hedge && !record.is_hedge(server))
    }

    /// Counts a connection that became a tunnel to one server.
    pub fn count_tied_connection(&mut self) {
        self.counts.tied += 1;
    }

    /// Counts a request that was answered during a warm-up.
    pub fn count_warm_up_request(&mut self) {
        self.counts.warm_up_requests += 1;
    }

    /// Returns whether a server may be asked: it is configured, and not known as unreachable.
    pub fn can_send_to(&self, server: Server) -> bool {
        self.roles.ranking().can_send_to(server)
    }

    /// Returns whether the server gets warm-up requests now.
    pub fn is_warming_up(&self, server: Server) -> bool {
        self.roles.is_warming_up(server)
    }

    /// Returns the ejection of a server; `None` while it is in service.
    pub fn ejection(&self, server: Server) -> Option<Ejection> {
        self.roles.ejection(server)
    }

    /// Returns the counts of a server.
    pub fn server_counts(&self, server: Server) -> &ServerCounts {
        &self.servers[server.index()]
    }

    /// Returns and removes the pending orders, oldest first.
    pub fn take_effects(&mut self) -> Vec<Effect<O>> {
        std::mem::take(&mut self.effects)
    }

    /// Returns the time at which [`RequestTable::observe`] must be called even if nothing happens.
    pub fn next_wakeup(&self) -> Option<Nanos> {
        [self.roles.next_wakeup(), self.slots.next_due()].into_iter().flatten().min()
    }

    /// Returns the server to which new requests go.
    pub fn active(&self) -> Server {
        self.roles.active()
    }

    /// Returns the reason for which the active server is active.
    pub fn active_reason(&self) -> sidelane_policy::hedge::HedgeReason {
        self.roles.why()
    }

    /// Returns the counts of requests since the start.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the number of hedges that the budget allows now.
    pub fn hedges_left(&self) -> u64 {
        self.budget.hedges_left()
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    /// Returns the record of a request in flight; `None` if the request has ended.
    pub fn find_in_flight(&self, request_id: RequestId) -> Option<&Record> {
        self.slots.get(request_id)
    }

    /// Returns the record of a request in flight, or of a recently finished one.
    pub fn find(&self, id: u64) -> Option<&Record> {
        self.slots.find(id)
    }
}

/// Returns the best allowed server for another copy of a request; `None` if two servers have it, or it has to stay where
/// it is.
fn second_server(record: &Record, ranking: Ranking, is_allowed: impl Fn(Server) -> bool) -> Option<Server> {
    ranking.best(|server| record.is_new_to(server) && is_allowed(server)).filter(|_| record.may_hedge())
}

/// Returns the server that gets a request after the loss of its only copy; `None` if no server may get it. Servers that
/// did not have it come first, then the others, then the one that lost it, and last those that fail their requests.
fn server_after_loss(record: &Record, ranking: Ranking, lost_server: Server) -> Option<Server> {
    let can_ask = |server: Server| ranking.can_send_to(server) && record.may_resend_to(server, TRIES_MAX);
    let is_other = |server: Server| server != lost_server && ranking.can_hedge_to(server) && can_ask(server);
    ranking
        .best(|server| record.is_new_to(server) && is_other(server))
        .or_else(|| ranking.best(is_other))
        .or_else(|| ranking.best(|server| server == lost_server && can_ask(server)))
        .or_else(|| ranking.best(can_ask))
}
