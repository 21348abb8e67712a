//! Record of one request: its copies, its answer and its end.

use std::fmt;

use serde::Serialize;
use sidelane_policy::Nanos;
use sidelane_policy::hedge::{Hazard, SERVERS_MAX, Server};

use super::servers::ServerError;

/// Beginning of the first line of a request, shown to people.
#[derive(Clone, Copy)]
pub struct Label {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl Label {
    /// Maximum length of a label in bytes.
    pub const MAX: usize = 63;

    /// Creates a label from the beginning of a text.
    pub fn from_text(text: &[u8]) -> Self {
        let len = text.len().min(Self::MAX);
        let mut bytes = [0; Self::MAX];
        bytes[..len].copy_from_slice(&text[..len]);
        Self { bytes, len: len as u8 }
    }

    /// Returns the label as bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Returns the label as text. Bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text(), f)
    }
}

/// Properties of a new request that determine where it may be sent.
#[derive(Clone, Copy, Debug)]
pub struct RequestClass {
    /// Whether the request may be sent twice.
    pub is_repeatable: bool,
    /// Server that must get the request, because an earlier request of the same client went there and the order
    /// matters; `None` for any server.
    pub follows: Option<Server>,
    /// Name of the request in an answer of `/.sidelane/trace`.
    pub label: Label,
}

/// Quality of an answer: whether another server might give a better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quality {
    /// The server executed the request, or the request itself is at fault.
    Success,
    /// The server could not execute the request: it is overloaded, starting, or has an internal error.
    Failure,
}

/// Decision of the request table about an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client gets the answer of this server. A later answer of another server is dropped.
    Forward(Server),
    /// The answer is a failure while another copy is unanswered. The owner keeps the answer until the table decides.
    Keep,
    /// The answer is dropped, because the client has another one.
    Drop,
}

/// Kind of loss of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// No byte of the copy was sent.
    NotSent,
    /// The server closed the connection before it got a byte of the copy.
    Unread,
    /// The connection was lost after the server may have executed the request.
    Sent,
    /// The server's answer cannot be parsed. The server may have executed the request.
    Malformed,
}

impl Loss {
    /// Returns the error that counts against the server; `None` if the server never got the request.
    pub(crate) fn server_error(self) -> Option<ServerError> {
        match self {
            Self::NotSent => None,
            Self::Unread | Self::Sent => Some(ServerError::Reset),
            Self::Malformed => Some(ServerError::Malformed),
        }
    }
}

/// Reason for which a copy was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendReason {
    /// The request arrived.
    Arrived,
    /// A server that had a copy got a hazard.
    Hazard(Hazard),
    /// The request was in flight for longer than the hedge timer.
    Timer,
    /// An earlier copy was lost.
    Lost,
}

impl fmt::Display for SendReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrived => f.write_str("the request arrived"),
            Self::Hazard(hazard) => write!(f, "hazard of the server that had it: {hazard}"),
            Self::Timer => f.write_str("no answer in time"),
            Self::Lost => f.write_str("an earlier copy was lost"),
        }
    }
}

/// State of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyState {
    /// No copy was sent to this server.
    #[default]
    None,
    /// The copy waits for its answer.
    Out,
    /// The copy was answered with a failure, which is kept while another copy is unanswered.
    Kept,
    /// The answer to the copy was forwarded.
    Answered,
    /// The answer to the copy came second, and was dropped.
    Dropped,
    /// The connection of the copy was lost.
    Lost,
    /// The copy could not be sent.
    NotSent,
    /// The server closed the connection before it got a byte of the copy.
    Unread,
}

/// Kind of end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// An answer was forwarded completely.
    Answered,
    /// The client got an error of the proxy with this status.
    Failed(u16),
    /// The answer broke off.
    Cut,
    /// The client disconnected.
    ClientLeft,
}

/// State of the copy of a request at one server.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyRecord {
    /// Present state of the copy.
    pub state: CopyState,
    /// Time at which the copy was last sent.
    pub at_ns: Nanos,
    /// Reason for which the copy was sent; `None` if no copy was sent.
    pub why: Option<SendReason>,
    /// Local port of the connection on which the copy was sent; `None` before the connection exists.
    pub port: Option<u16>,
    /// Whether the copy is a hedge.
    pub(super) is_hedge: bool,
    tries: u8,
}

/// Record of one request.
#[derive(Clone, Debug)]
pub struct Record {
    /// Time at which the head of the request was complete.
    pub arrived_ns: Nanos,
    /// Beginning of the first line of the request.
    pub label: Label,
    /// Whether the request may be sent twice.
    pub is_repeatable: bool,
    /// Copies of the request, by server.
    pub copies: [CopyRecord; SERVERS_MAX],
    /// Server that answered first, and the time at which its answer began; `None` before the first answer.
    pub answered: Option<(Server, Nanos)>,
    /// Whether the forwarded answer is a failure.
    pub is_failure: bool,
    /// Kind and time of the end; `None` while the request is in flight.
    pub ended: Option<(RequestEnd, Nanos)>,
    /// Whether hedges are allowed, because the client is assumed to wait for the answer.
    pub(super) is_worth_hedging: bool,
    /// Whether the request must stay at the server that got it first.
    pub(super) stays: bool,
    first: Server,
}

impl Record {
    pub(super) fn new(now: Nanos, class: RequestClass, to: Server) -> Self {
        let RequestClass { is_repeatable, label, .. } = class;
        let copies = Default::default();
        let mut record = Self {
            arrived_ns: now,
            label,
            is_repeatable,
            copies,
            answered: None,
            is_failure: false,
            ended: None,
            is_worth_hedging: true,
            stays: false,
            first: to,
        };
        record.record_send(now, to, SendReason::Arrived);
        record
    }

    /// Returns the server that got the first copy.
    pub fn first_server(&self) -> Server {
        self.first
    }

    /// Returns the reason of a hedge; `None` if there was no hedge.
    pub fn hedge_reason(&self) -> Option<SendReason> {
        self.copies.iter().find(|copy| copy.is_hedge)?.why
    }

    /// Returns whether this server got a hedge.
    pub fn is_hedge(&self, server: Server) -> bool {
        self.copies[server.index()].is_hedge
    }

    /// Returns the time from the arrival to the end; `None` while the request is in flight.
    pub fn duration_ns(&self) -> Option<Nanos> {
        Some(self.ended?.1.saturating_sub(self.arrived_ns))
    }

    pub(super) fn is_answered(&self) -> bool {
        self.answered.is_some()
    }

    pub(super) fn is_awaiting_answer(&self, server: Server) -> bool {
        self.copies[server.index()].state == CopyState::Out
    }

    /// Returns the servers with an unanswered copy, two at most.
    pub(super) fn awaited_servers(&self) -> impl Iterator<Item = Server> {
        Server::ALL.into_iter().filter(|server| self.is_awaiting_answer(*server))
    }

    /// Returns whether another copy may be sent to this server after a loss. The caller ensures that no copy is in
    /// flight.
    pub(super) fn may_resend_to(&self, server: Server, tries_max: u8) -> bool {
        let was_sent = self.copies.iter().any(|copy| matches!(copy.state, CopyState::Lost | CopyState::Kept));
        let copy = &self.copies[server.index()];
        // Do not repeat a failed connect to the same server, since the client would wait in vain.
        let is_worth_it = !matches!(copy.state, CopyState::NotSent | CopyState::Kept) && copy.tries < tries_max;
        let is_allowed = !self.stays || server == self.first;
        is_worth_it && is_allowed && (self.is_repeatable || !was_sent)
    }

    /// Returns whether a hedge may be sent to a server that has no copy: one other server has the request.
    pub(super) fn may_hedge(&self) -> bool {
        let is_open = !self.is_answered() && self.ended.is_none();
        self.is_repeatable && self.is_worth_hedging && is_open && self.awaited_servers().count() == 1
    }

    /// Returns whether no copy was ever sent to this server.
    pub(super) fn is_new_to(&self, server: Server) -> bool {
        self.copies[server.index()].state == CopyState::None
    }

    pub(super) fn record_send(&mut self, now: Nanos, to: Server, reason: SendReason) {
        let CopyRecord { is_hedge, tries, .. } = self.copies[to.index()];
        let is_hedge = is_hedge || matches!(reason, SendReason::Hazard(_) | SendReason::Timer);
        self.copies[to.index()] =
            CopyRecord { state: CopyState::Out, at_ns: now, why: Some(reason), port: None, is_hedge, tries: tries + 1 };
    }

    /// Decides whether an answer is forwarded, kept or dropped. A failure never wins against a success that may still
    /// come: it is kept while another copy is unanswered. If all fail, a kept failure is forwarded. Guarded by
    /// `tests/histories.rs`.
    pub(super) fn decide_answer(&mut self, now: Nanos, by: Server, quality: Quality) -> Verdict {
        if self.is_answered() || !self.is_awaiting_answer(by) {
            return Verdict::Drop;
        }
        let is_failure = quality == Quality::Failure;
        if is_failure && self.awaited_servers().any(|server| server != by) {
            self.copies[by.index()].state = CopyState::Kept;
            return Verdict::Keep;
        }
        if is_failure && let Some(kept) = self.forward_kept_failure(now) {
            return Verdict::Forward(kept);
        }
        self.mark_forwarded(now, by, is_failure);
        Verdict::Forward(by)
    }

    fn mark_forwarded(&mut self, now: Nanos, by: Server, is_failure: bool) {
        self.answered = Some((by, now));
        self.is_failure = is_failure;
        self.copies[by.index()].state = CopyState::Answered;
    }

    /// Chooses a failure that was kept while another copy was unanswered. Returns its server; `None` if no failure was
    /// kept.
    pub(super) fn forward_kept_failure(&mut self, now: Nanos) -> Option<Server> {
        let kept = Server::ALL.into_iter().find(|server| self.copies[server.index()].state == CopyState::Kept);
        let kept = kept.filter(|_| !self.is_answered())?;
        self.mark_forwarded(now, kept, true);
        Some(kept)
    }

    pub(super) fn mark_lost(&mut self, server: Server, loss: Loss) {
        let copy = &mut self.copies[server.index()];
        if copy.state == CopyState::Out {
            copy.state = match loss {
                Loss::NotSent => CopyState::NotSent,
                Loss::Unread => CopyState::Unread,
                Loss::Sent | Loss::Malformed => CopyState::Lost,
            };
        }
    }

    /// Ends a hedge of which no byte was sent, or all if only one server got any byte of the request. Returns the number
    /// of ended hedges.
    pub(super) fn cancel_unsent_hedges(&mut self) -> u64 {
        let was_sent = |copy: &CopyRecord| match copy.state {
            CopyState::None => false,
            CopyState::NotSent | CopyState::Unread => copy.tries > 1,
            _ => true,
        };
        let is_alone = self.copies.iter().filter(|copy| was_sent(copy)).count() <= 1;
        let cancelled = self.copies.iter_mut().filter(|copy| copy.is_hedge && (is_alone || !was_sent(copy)));
        cancelled.map(|copy| copy.is_hedge = false).count() as u64
    }

    /// Returns whether the forwarded answer came from a hedge and is not a failure.
    pub(super) fn is_hedge_win(&self) -> bool {
        !self.is_failure && self.answered.is_some_and(|(by, _)| self.is_hedge(by))
    }

    pub(super) fn finish(&mut self, now: Nanos, end: RequestEnd) {
        self.ended = Some((end, now));
    }

    /// Marks a copy as dropped, and returns the time for which the server had it.
    pub(super) fn mark_dropped(&mut self, now: Nanos, server: Server) -> Nanos {
        let copy = &mut self.copies[server.index()];
        if matches!(copy.state, CopyState::Out | CopyState::Kept) {
            copy.state = CopyState::Dropped;
        }
        now.saturating_sub(copy.at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_of_a_request_stays_small() {
        // A table stores thousands of them.
        assert!(size_of::<Record>() <= 176, "{}", size_of::<Record>());
    }
}
