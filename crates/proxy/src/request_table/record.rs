//! What is known of one request.

use std::fmt;

use serde::Serialize;
use sidelane_policy::Nanos;
use sidelane_policy::hedge::{Hazard, Server};

use super::servers::ServerError;

/// The first line of a request, for people, cut off at a maximum length.
#[derive(Clone, Copy)]
pub struct Label {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl Label {
    /// The most bytes of it.
    pub const MAX: usize = 63;

    /// The start of a text.
    pub fn of(text: &[u8]) -> Self {
        let len = text.len().min(Self::MAX);
        let mut bytes = [0; Self::MAX];
        bytes[..len].copy_from_slice(&text[..len]);
        Self { bytes, len: len as u8 }
    }

    /// As bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// As text; what is not text is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text(), f)
    }
}

/// What a request is.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// Whether it may be sent twice.
    pub is_repeatable: bool,
    /// It goes to this server, because an earlier request of the same client that it has to follow is there.
    pub follows: Option<Server>,
    /// Its name in an answer of `/.sidelane/trace`.
    pub label: Label,
}

/// Whether an answer is one that the other server might better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quality {
    /// The server carried the request out, or the fault is the request's own.
    Success,
    /// The server could not carry it out: overload, start-up, an error of its own.
    Failure,
}

/// What is done with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client gets the answer of this server; an answer of the other server is dropped.
    Forward(Server),
    /// It is a failure and the other copy is still out: the owner keeps it until the request table decides.
    Keep,
    /// The client has another answer.
    Drop,
}

/// How a copy was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// No byte of it was sent.
    NotSent,
    /// The server ended the connection before it got a byte of it.
    Unread,
    /// It may have been carried out.
    Sent,
    /// As `Sent`; what came is no answer.
    Malformed,
}

impl Loss {
    /// What the server did, if it got the request.
    pub(crate) fn error(self) -> Option<ServerError> {
        match self {
            Self::NotSent => None,
            Self::Unread | Self::Sent => Some(ServerError::Reset),
            Self::Malformed => Some(ServerError::Malformed),
        }
    }
}

/// Why a copy was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The request came.
    Came,
    /// The server that had it got a hazard.
    Hazard(Hazard),
    /// It had been in flight for too long.
    Timer,
    /// The other copy was lost.
    Lost,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Came => f.write_str("the request came"),
            Self::Hazard(hazard) => write!(f, "hazard of the other server: {hazard}"),
            Self::Timer => f.write_str("not answered in time"),
            Self::Lost => f.write_str("the other copy was lost"),
        }
    }
}

/// What became of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyState {
    /// There was none.
    #[default]
    None,
    /// It waits for its answer.
    Out,
    /// Its answer is a failure, kept while the other copy is out.
    Kept,
    /// Its answer was forwarded.
    Answered,
    /// Its answer came second, and was dropped.
    Dropped,
    /// Its connection was lost.
    Lost,
    /// It could not be sent.
    NotSent,
    /// Its server ended the connection before it got a byte of it.
    Unread,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// An answer was forwarded whole.
    Answered,
    /// The client got this error of the proxy's own.
    Failed(u16),
    /// The answer broke off in the middle.
    Cut,
    /// The client went away.
    ClientLeft,
}

/// One copy of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// What became of it.
    pub state: CopyState,
    /// When it was sent last.
    pub at_ns: Nanos,
    /// Why.
    pub why: Option<Why>,
    /// Our port of the connection on which it was sent, once there is one.
    pub port: Option<u16>,
    tries: u8,
}

/// What is known of one request.
#[derive(Clone, Debug)]
pub struct Record {
    /// When its head had come.
    pub arrived_ns: Nanos,
    /// Its first line.
    pub label: Label,
    /// Whether it may be sent twice.
    pub is_repeatable: bool,
    /// Its copies, by server.
    pub copies: [Sent; 2],
    /// Who answered first, and when that began.
    pub answered: Option<(Server, Nanos)>,
    /// Quality of the answer that was forwarded.
    pub is_failure: bool,
    /// How it ended, and when.
    pub ended: Option<(End, Nanos)>,
    /// The client is there to get the answer, as far as is known.
    pub(super) is_worth_hedging: bool,
    /// It must not leave the server that it was sent to at first.
    pub(super) stays: bool,
    first: Server,
    hedge: Option<Server>,
}

impl Record {
    pub(super) fn new(now: Nanos, class: Class, to: Server) -> Self {
        let Class { is_repeatable, label, .. } = class;
        let copies = [Sent::default(); 2];
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
            hedge: None,
        };
        record.send(now, to, Why::Came);
        record
    }

    /// The server that it was sent to at first.
    pub fn first(&self) -> Server {
        self.first
    }

    /// The server that it was hedged to.
    pub fn hedged_to(&self) -> Option<Server> {
        self.hedge
    }

    /// From its arrival to its end.
    pub fn duration_ns(&self) -> Option<Nanos> {
        Some(self.ended?.1.saturating_sub(self.arrived_ns))
    }

    pub(super) fn is_answered(&self) -> bool {
        self.answered.is_some()
    }

    pub(super) fn is_out(&self, server: Server) -> bool {
        self.copies[server.index()].state == CopyState::Out
    }

    /// Whether a copy may be sent there, none being out.
    pub(super) fn may_be_sent(&self, server: Server, tries_max: u8) -> bool {
        let was_sent = self.copies.iter().any(|copy| matches!(copy.state, CopyState::Lost | CopyState::Kept));
        let copy = &self.copies[server.index()];
        // After a failed connection the same server is not tried again, or a client would wait for nothing.
        let is_worth_it = !matches!(copy.state, CopyState::NotSent | CopyState::Kept) && copy.tries < tries_max;
        let is_allowed = !self.stays || server == self.first;
        is_worth_it && is_allowed && (self.is_repeatable || !was_sent)
    }

    /// Whether a hedge may be sent there.
    pub(super) fn may_be_hedged(&self, to: Server) -> bool {
        let is_waiting = self.is_out(to.other()) && !self.is_answered() && self.ended.is_none();
        self.is_repeatable && self.is_worth_hedging && is_waiting && self.copies[to.index()].state == CopyState::None
    }

    pub(super) fn send(&mut self, now: Nanos, to: Server, why: Why) {
        let copy = &mut self.copies[to.index()];
        *copy = Sent { state: CopyState::Out, at_ns: now, why: Some(why), port: None, tries: copy.tries + 1 };
        if matches!(why, Why::Hazard(_) | Why::Timer) {
            self.hedge = Some(to);
        }
    }

    /// Decides between an answer and the other copy. A failure never wins against a success that may still come: it is
    /// kept while the other copy is out. Of two failures the first counts. Guarded by `tests/histories.rs`.
    pub(super) fn answer(&mut self, now: Nanos, by: Server, quality: Quality) -> Verdict {
        if self.is_answered() || !self.is_out(by) {
            return Verdict::Drop;
        }
        let is_failure = quality == Quality::Failure;
        if is_failure && self.is_out(by.other()) {
            self.copies[by.index()].state = CopyState::Kept;
            return Verdict::Keep;
        }
        if is_failure && let Some(kept) = self.forward_kept(now) {
            return Verdict::Forward(kept);
        }
        self.forward(now, by, is_failure);
        Verdict::Forward(by)
    }

    fn forward(&mut self, now: Nanos, by: Server, is_failure: bool) {
        self.answered = Some((by, now));
        self.is_failure = is_failure;
        self.copies[by.index()].state = CopyState::Answered;
    }

    /// Chooses the failure that was kept, if there is one.
    pub(super) fn forward_kept(&mut self, now: Nanos) -> Option<Server> {
        let kept = Server::BOTH.into_iter().find(|server| self.copies[server.index()].state == CopyState::Kept);
        let kept = kept.filter(|_| !self.is_answered())?;
        self.forward(now, kept, true);
        Some(kept)
    }

    pub(super) fn lose(&mut self, at: Server, loss: Loss) {
        let copy = &mut self.copies[at.index()];
        if copy.state == CopyState::Out {
            copy.state = match loss {
                Loss::NotSent => CopyState::NotSent,
                Loss::Unread => CopyState::Unread,
                Loss::Sent | Loss::Malformed => CopyState::Lost,
            };
        }
    }

    /// Whether it counted as a hedge until now, though only one server got anything of it.
    pub(super) fn take_unsent_hedge(&mut self) -> bool {
        let was_never_sent =
            |copy: &Sent| matches!(copy.state, CopyState::NotSent | CopyState::Unread) && copy.tries == 1;
        let is_none = self.hedge.is_some() && self.copies.iter().any(was_never_sent);
        if is_none {
            self.hedge = None;
        }
        is_none
    }

    /// Whether the hedge gave the answer, and not a failure.
    pub(super) fn is_win(&self) -> bool {
        !self.is_failure && self.answered.is_some_and(|(by, _)| self.hedge == Some(by))
    }

    pub(super) fn finish(&mut self, now: Nanos, end: End) {
        self.ended = Some((end, now));
    }

    /// How long the server had the copy.
    pub(super) fn drop_copy(&mut self, now: Nanos, of: Server) -> Nanos {
        let copy = &mut self.copies[of.index()];
        if matches!(copy.state, CopyState::Out | CopyState::Kept) {
            copy.state = CopyState::Dropped;
        }
        now.saturating_sub(copy.at_ns)
    }
}
