//! The table of requests: what is known of each request, and which server gets it. Pure: events with a time go in, answers
//! come out.
//!
//! Each request in flight has at most one *copy* at each server. A copy is out from when it is sent until it is
//! answered or lost. The table guarantees, whatever the servers do:
//!
//! - a request that is not safe to repeat is sent once; to a second server only if no byte of it went to the first;
//! - one answer is forwarded, and a later one is dropped and counted;
//! - an answer that is a failure is kept while the other copy is out, and forwarded only if that brings nothing better;
//! - a request is given up only when no copy of it is out and none may be sent.
//!
//! # Order of calls
//!
//! [`RequestTable::admit`] comes first, and [`RequestTable::finished`] once at the end. Between them the owner of the
//! request reports what happens to its copies: `connected`, then `answered`, `lost` or `not_sent`; their results say what
//! the owner does next. `pin` and `stop_hedging` restrict what may still be done for a request. `tried`, `not_connected`
//! and `observe` report about a server instead of a request. After `tried` and `observe` the caller carries out
//! [`RequestTable::take_effects`]. It calls `observe` again at [`RequestTable::next_wakeup`], also if nothing has happened.

mod count;
mod record;
mod servers;
mod slots;

use sidelane_policy::hedge::{
    Action, Actions, Attempt, Budget, BudgetConfig, Ejection, Hazard, Mode, Roles, RolesConfig, Seen, Server,
};
use sidelane_policy::{Nanos, Policy};

pub use count::Counts;
pub use record::{Class, CopyState, End, Label, Loss, Quality, Record, Verdict, Why};
pub use servers::{BOUNDS_NS, Durations, Outcome, Reply, ServerCounts, ServerError};
pub use slots::RequestId;
use slots::Slots;

/// How many copies of a request that is safe to repeat may be sent to one server, if the earlier ones were lost.
const TRIES_MAX: u8 = 2;

/// An order of the table that answers no call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<O> {
    /// The owner of the request sends a copy of it to this server.
    Send {
        /// Whose request it is.
        owner: O,
        /// Which one.
        request_id: RequestId,
        /// Where to.
        to: Server,
    },
    /// The server gets requests that warm it up; their answers are dropped.
    WarmUp(Server),
    /// A connection to this server is tried.
    Probe(Server),
}

/// What is to be done when a copy was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A copy is sent to this server; it counts as sent already.
    Send(Server),
    /// Another copy is out, or the request is over.
    Wait,
    /// The failure that this server answered, which the owner kept, is forwarded.
    Forward(Server),
    /// The client gets an error.
    GiveUp,
}

/// The tunables.
#[derive(Clone, Copy, Debug)]
pub struct TableConfig {
    /// Of the roles.
    pub roles: RolesConfig,
    /// Of hedges.
    pub budget: BudgetConfig,
    /// How many finished requests are remembered.
    pub last: usize,
    /// Requests that are not safe to repeat stay at the first server, also while the second one is active.
    pub unsafe_stay: bool,
}

impl Default for TableConfig {
    fn default() -> Self {
        Self { roles: RolesConfig::default(), budget: BudgetConfig::default(), last: 4096, unsafe_stay: false }
    }
}

/// All requests. `O` is the task that sends a request's copies.
pub struct RequestTable<O> {
    config: TableConfig,
    roles: Roles,
    budget: Budget,
    slots: Slots<O>,
    counts: Counts,
    servers: [ServerCounts; 2],
    effects: Vec<Effect<O>>,
}

impl<O: Clone> RequestTable<O> {
    /// No request yet.
    pub fn new(config: TableConfig) -> Self {
        Self {
            config,
            roles: Roles::new(config.roles),
            budget: Budget::new(config.budget),
            slots: Slots::new(config.last),
            counts: Counts::default(),
            servers: Default::default(),
            effects: Vec::new(),
        }
    }

    /// A request came: it counts as sent to the server that is told.
    pub fn admit(&mut self, now: Nanos, class: Class, owner: O) -> (RequestId, Server) {
        let stays = self.config.unsafe_stay && !class.is_repeatable;
        let to = match class.follows {
            Some(server) => server,
            None if stays => Server::First,
            None => self.roles.active(),
        };
        let mut record = Record::new(now, class, to);
        record.stays = stays;
        let request_id = self.slots.insert(record, owner, self.timer(now, class.is_repeatable));
        self.counts.requests += 1;
        (request_id, to)
    }

    /// When the request is hedged if it has not been answered.
    fn timer(&self, now: Nanos, is_repeatable: bool) -> Option<Nanos> {
        match self.config.roles.mode {
            Mode::Timer { after_ns } if is_repeatable && self.config.roles.has_backup => Some(now + after_ns),
            _ => None,
        }
    }

    /// The copy at this server has a connection, of which this is our port.
    pub fn connected(&mut self, request_id: RequestId, to: Server, port: u16) {
        if let Some(record) = self.slots.get_mut(request_id) {
            record.copies[to.index()].port = Some(port);
        }
    }

    /// An answer of this server has begun.
    pub fn answered(&mut self, now: Nanos, request_id: RequestId, by: Server, quality: Quality) -> Verdict {
        let Some(record) = self.slots.get_mut(request_id) else { return Verdict::Drop };
        let verdict = record.answer(now, by, quality);
        let is_failure = quality == Quality::Failure && verdict != Verdict::Drop;
        self.counts.failed_hedges += u64::from(is_failure && record.hedged_to() == Some(by));
        verdict
    }

    /// No copy is waited for any longer. The server whose failure was kept, which is forwarded now.
    pub fn late(&mut self, now: Nanos, request_id: RequestId) -> Option<Server> {
        self.slots.get_mut(request_id)?.forward_kept(now)
    }

    /// The copy at this server was lost before it was answered.
    pub fn lost(&mut self, now: Nanos, request_id: RequestId, at: Server, loss: Loss) -> Next {
        self.lose(request_id, at, loss);
        let Some(record) = self.slots.get_mut(request_id) else { return Next::Wait };
        if record.is_answered() || record.is_out(at.other()) {
            return Next::Wait;
        }
        let can_ask = |server| self.roles.can_ask(server);
        // A failing server is asked last.
        let is_other_failing = can_ask(at.other()) && !self.roles.may_help(at.other());
        let candidates = if is_other_failing { [at, at.other()] } else { [at.other(), at] };
        let next = candidates.into_iter().find(|server| can_ask(*server) && record.may_be_sent(*server, TRIES_MAX));
        match next {
            Some(server) => {
                record.send(now, server, Why::Lost);
                self.counts.sent_again += 1;
                Next::Send(server)
            }
            None => record.forward_kept(now).map_or(Next::GiveUp, Next::Forward),
        }
    }

    /// The request is over: the answer has been forwarded, or could not be.
    pub fn finished(&mut self, now: Nanos, request_id: RequestId, end: End) {
        let Some(record) = self.slots.get_mut(request_id) else { return };
        record.finish(now, end);
        self.counts.finish(record, end);
        if end == End::Answered && !record.is_failure {
            self.budget.success();
        }
        self.slots.retire(request_id);
    }

    /// A later answer was dropped, or is no longer waited for.
    pub fn dropped(&mut self, now: Nanos, request_id: RequestId, of: Server) {
        self.counts.dropped += 1;
        if let Some(record) = self.slots.find_mut(request_id) {
            self.counts.wasted_ns += record.drop_copy(now, of);
        }
    }

    /// A server answered a request that was sent to it then, or failed to. Whether something follows from that.
    pub fn tried(&mut self, now: Nanos, server: Server, sent_ns: Nanos, outcome: Outcome) -> bool {
        let counts = &mut self.servers[server.index()];
        counts.note(outcome);
        if outcome.quality() == Quality::Success {
            counts.response_time.record(now.saturating_sub(sent_ns));
        }
        let attempt = Attempt { sent_ns, has_failed: outcome.is_fault() };
        let has_acted = self.decide(now, Seen::Tried(server, attempt));
        has_acted || attempt.has_failed
    }

    /// A connect failed.
    pub fn not_connected(&mut self, server: Server) {
        self.servers[server.index()].note(Outcome::Error(ServerError::Connect));
    }

    /// When the copy at this server was sent last; the request may be over.
    pub fn sent_ns(&mut self, request_id: RequestId, server: Server) -> Nanos {
        self.slots.find_mut(request_id).map_or(0, |record| record.copies[server.index()].at_ns)
    }

    /// Something was seen of a server, or time went by.
    pub fn observe(&mut self, now: Nanos, seen: Seen) {
        self.decide(now, seen);
        self.timers(now);
    }

    /// Has the policy decide. Whether there was something to do.
    fn decide(&mut self, now: Nanos, seen: Seen) -> bool {
        let before = Server::BOTH.map(|server| self.roles.ejection(server).is_some());
        let mut actions = Actions::default();
        self.roles.observe(now, &seen, &mut actions);
        for server in Server::BOTH.into_iter().filter(|server| !before[server.index()]) {
            self.servers[server.index()].ejections += u64::from(self.roles.ejection(server).is_some());
        }
        let has_acted = actions.iter().next().is_some();
        for action in actions.iter() {
            match action {
                Action::Swap { because, .. } => self.counts.swaps[because as usize] += 1,
                Action::Return { .. } => {}
                Action::Resend { from, because } => self.resend(now, from, because),
                Action::WarmUp(server) => {
                    self.counts.warm_ups += 1;
                    self.effects.push(Effect::WarmUp(server));
                }
                Action::Probe(server) => self.effects.push(Effect::Probe(server)),
            }
        }
        has_acted
    }

    fn resend(&mut self, now: Nanos, from: Server, because: Hazard) {
        for request_id in self.slots.requests_at(from) {
            self.hedge(now, request_id, from.other(), Why::Hazard(because));
        }
    }

    /// Hedges requests that have been in flight for too long.
    fn timers(&mut self, now: Nanos) {
        while let Some(request_id) = self.slots.due(now) {
            let Some(record) = self.slots.get_mut(request_id) else { continue };
            let to = record.first().other();
            if self.roles.may_help(to) {
                self.hedge(now, request_id, to, Why::Timer);
            }
        }
    }

    fn hedge(&mut self, now: Nanos, request_id: RequestId, to: Server, why: Why) {
        let Some((record, owner)) = self.slots.get_with_owner(request_id) else { return };
        if !record.may_be_hedged(to) {
            return;
        }
        if !self.budget.take() {
            self.counts.refused += 1;
            return;
        }
        record.send(now, to, why);
        self.effects.push(Effect::Send { owner, request_id, to });
    }

    /// The request must not be sent twice any more: something that depends on its order follows it.
    pub fn pin(&mut self, request_id: RequestId) {
        if let Some(record) = self.slots.get_mut(request_id) {
            record.is_repeatable = false;
        }
    }

    /// The client of the request may be gone: no server is asked for its sake alone.
    pub fn stop_hedging(&mut self, request_id: RequestId) {
        if let Some(record) = self.slots.get_mut(request_id) {
            record.is_worth_hedging = false;
        }
    }

    /// The owner has sent nothing of the copy to this server, and will not.
    pub fn not_sent(&mut self, request_id: RequestId, to: Server) {
        self.lose(request_id, to, Loss::NotSent);
    }

    /// A hedge is given back if it turns out that only one server got the request.
    fn lose(&mut self, request_id: RequestId, at: Server, loss: Loss) {
        let Some(record) = self.slots.get_mut(request_id) else { return };
        record.lose(at, loss);
        if record.take_unsent_hedge() {
            self.budget.give_back();
            self.counts.sent_again += u64::from(at == record.first());
        }
    }

    /// A connection is one server's from now on.
    pub fn tied(&mut self) {
        self.counts.tied += 1;
    }

    /// A server that is warmed up answered a request.
    pub fn warmed_with_one(&mut self) {
        self.counts.warm_up_requests += 1;
    }

    /// Whether a server may be asked: it is there, and can be reached as far as is known.
    pub fn can_ask(&self, server: Server) -> bool {
        self.roles.can_ask(server)
    }

    /// Whether requests are sent to a server that warm it up.
    pub fn is_warming_up(&self, server: Server) -> bool {
        self.roles.is_warming_up(server)
    }

    /// Its time out of service, while the server is ejected.
    pub fn ejection(&self, server: Server) -> Option<Ejection> {
        self.roles.ejection(server)
    }

    /// What was counted of a server.
    pub fn server_counts(&self, server: Server) -> &ServerCounts {
        &self.servers[server.index()]
    }

    /// What has to be done now, in order.
    pub fn take_effects(&mut self) -> Vec<Effect<O>> {
        std::mem::take(&mut self.effects)
    }

    /// When [`RequestTable::observe`] wants to be called even if nothing has happened.
    pub fn next_wakeup(&self) -> Option<Nanos> {
        [self.roles.next_wakeup(), self.slots.next_due()].into_iter().flatten().min()
    }

    /// The server that new requests go to.
    pub fn active(&self) -> Server {
        self.roles.active()
    }

    /// Why it does.
    pub fn why(&self) -> sidelane_policy::hedge::Reason {
        self.roles.why()
    }

    /// What was counted so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Hedges that the budget allows now.
    pub fn hedges_left(&self) -> u64 {
        self.budget.left()
    }

    /// How many requests are in flight.
    pub fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    /// What is known of a request in flight.
    pub fn record(&self, request_id: RequestId) -> Option<&Record> {
        self.slots.get(request_id)
    }

    /// What is known of a request: one in flight, or of the last that finished.
    pub fn find(&self, id: u64) -> Option<&Record> {
        self.slots.find(id)
    }
}
