//! Replies of the servers: which are forwarded, and how commands of a lost server end.

use std::io;

use sidelane_host::clock::now_ns;
use sidelane_policy::hedge::Server;

use super::super::quality::outcome_of;
use super::super::side::SideEvent;
use super::{Over, Session};
use crate::request_table::{End, Loss, Next, Quality, RequestId, ServerOutcome, Verdict};

/// Size above which the next reply of the client is forwarded in parts. A shorter reply is forwarded when it is
/// complete.
const WHOLE_MAX: usize = 64 << 10;
const LOST: &[u8] = b"-ERR sidelane: the server was lost before it answered; the command may have been executed\r\n";
/// First byte of a push message, which a server sends without a command.
const PUSH: &[u8] = b">";
const TOO_LONG: &[u8] =
    b"-ERR sidelane: the reply is longer than the proxy keeps; ask for parts, or ask the server directly\r\n";

/// Handling of a reply that is arriving.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The client gets this reply.
    PassedOn,
    /// The reply is dropped, since the client gets the other server's reply.
    Dropped,
    /// The reply is a failure. The client gets it if the other server does no better.
    Kept,
}

impl Session {
    pub(super) fn on_side(&mut self, server: Server, event: SideEvent) -> Result<(), Over> {
        let lost = match event {
            SideEvent::Readable => self.read_side(server).is_err().then_some(Loss::Sent),
            SideEvent::Lost(loss) => Some(loss),
        };
        let Some(loss) = lost else { return Ok(()) };
        if self.replies[server.index()] == Some(Fate::PassedOn) {
            // After a partial reply, the client could not parse anything that follows.
            return Err(Over(End::Cut));
        }
        self.lose(server, loss);
        Ok(())
    }

    fn read_side(&mut self, server: Server) -> io::Result<()> {
        // Process data that arrived before the end of the connection.
        let read = self.sides[server.index()].read();
        while self.take_reply(server)? {}
        read
    }

    /// Processes the received part of this server's next reply. Returns whether another reply may follow.
    fn take_reply(&mut self, server: Server) -> io::Result<bool> {
        let at = server.index();
        let limits = &self.shared.config.limits;
        let (came, is_whole) = match self.sides[at].reply() {
            Ok(Some((bytes, is_whole))) => (bytes, is_whole),
            Ok(None) => return Ok(false),
            Err(_) => return Err(io::ErrorKind::InvalidData.into()),
        };
        let count = came.len();
        if self.replies[at].is_none() && came.starts_with(PUSH) {
            // Drop notifications to an untied client: they are about the server's address, which only concerns the
            // proxy.
            if is_whole {
                self.sides[at].take(count);
            }
            return Ok(is_whole);
        }
        // Data without a waiting command is not a reply.
        let request_id = self.reply_queue.next_of(server).ok_or(io::ErrorKind::InvalidData)?;
        let is_next = self.reply_queue.is_next(request_id);
        let fate = match self.replies[at] {
            Some(fate) => fate,
            None if !is_whole && count > limits.reply_bytes && !is_next => return self.too_long(server),
            None if !is_whole && (!is_next || count <= WHOLE_MAX) => return Ok(false),
            None => match self.shared.answered(request_id, server, outcome_of(came)) {
                Verdict::Forward(by) if by == server => Fate::PassedOn,
                Verdict::Forward(_) => {
                    self.reply_queue.answer_failure(request_id);
                    Fate::Dropped
                }
                Verdict::Keep => {
                    self.reply_queue.keep_failure(request_id, came.to_vec());
                    Fate::Kept
                }
                Verdict::Drop => Fate::Dropped,
            },
        };
        self.replies[at] = Some(fate);
        if fate == Fate::PassedOn {
            self.deadline.start(limits.answer_time);
            match is_next {
                true => {
                    self.out_has_once |= !self.reply_queue.is_next_repeatable();
                    self.out.push(came);
                    self.journal.streams(count);
                }
                false => self.reply_queue.answer(request_id, came.to_vec(), true),
            }
        }
        self.sides[at].take(count);
        if is_whole {
            self.reply_queue.replied(server);
            self.replies[at] = None;
            self.end_reply(server, request_id, fate);
        }
        Ok(is_whole)
    }

    fn end_reply(&mut self, server: Server, request_id: RequestId, fate: Fate) {
        match fate {
            Fate::Dropped => self.shared.table.borrow_mut().dropped(now_ns(), request_id, server),
            Fate::PassedOn if self.reply_queue.is_next(request_id) && !self.reply_queue.is_kept(request_id) => {
                self.reply_queue.passed_on(request_id);
                self.journal.finish(request_id, End::Answered, 0);
            }
            Fate::PassedOn | Fate::Kept => {}
        }
    }

    /// Answers with an error if a reply must wait for an earlier one, and exceeds the limit. The other server's reply
    /// would be as long.
    fn too_long(&mut self, server: Server) -> io::Result<bool> {
        if let Some(request_id) = self.reply_queue.replied(server)
            && self.shared.table.borrow_mut().answered(now_ns(), request_id, server, Quality::Success)
                == Verdict::Forward(server)
        {
            self.reply_queue.answer(request_id, TOO_LONG.to_vec(), false);
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    /// Handles a lost server connection. The request table decides for each command on it.
    fn lose(&mut self, server: Server, loss: Loss) {
        self.sides[server.index()].close();
        self.replies[server.index()] = None;
        self.writes.lose(server);
        let lost = self.reply_queue.lose(server);
        // Count a single failure for the connection, not one for each command.
        let failed = lost.first().map(|request_id| self.shared.sent_ns(*request_id, server)).zip(loss.error());
        for request_id in lost {
            let next = self.shared.table.borrow_mut().lost(now_ns(), request_id, server, loss);
            match next {
                Next::Send(to) => self.copy(request_id, to),
                Next::Wait => {}
                Next::Forward(_) => self.reply_queue.answer_failure(request_id),
                Next::GiveUp => self.reply_queue.answer(request_id, LOST.to_vec(), false),
            }
        }
        if let Some((sent_ns, error)) = failed {
            self.shared.tried(server, sent_ns, ServerOutcome::Error(error));
        }
    }

    /// Forwards all replies whose turn has come.
    pub(super) fn collect_replies(&mut self) -> Result<(), Over> {
        loop {
            while let Some(reply) = self.reply_queue.next_reply() {
                let end = if reply.is_servers { End::Answered } else { End::Failed(502) };
                self.journal.finish(reply.request_id, end, reply.bytes.len());
                self.out_has_once |= !reply.is_repeatable;
                self.out.push(&reply.bytes);
            }
            // Bytes of a long reply may have arrived while the client was still owed an earlier reply.
            let waits = |server: &Server| {
                let side = &self.sides[server.index()];
                self.replies[server.index()].is_none()
                    && side.kept_bytes() > WHOLE_MAX
                    && self.reply_queue.owes_next(*server)
            };
            let Some(server) = Server::BOTH.into_iter().find(waits) else { break };
            let before = self.sides[server.index()].kept_bytes();
            while match self.take_reply(server) {
                Ok(goes_on) => goes_on,
                Err(_) => {
                    self.on_side(server, SideEvent::Lost(Loss::Sent))?;
                    false
                }
            } {}
            if self.sides[server.index()].kept_bytes() == before {
                break;
            }
        }
        if self.is_idle() {
            self.deadline.start(self.shared.config.limits.idle_time);
        }
        Ok(())
    }

    /// Answers commands with kept failure replies. Returns whether there were any.
    pub(super) fn answer_failures(&mut self) -> bool {
        let mut table = self.shared.table.borrow_mut();
        let is_kept = |request_id: &RequestId| table.late(now_ns(), *request_id).is_some();
        let kept: Vec<RequestId> = self.reply_queue.request_ids().filter(is_kept).collect();
        kept.iter().for_each(|request_id| self.reply_queue.answer_failure(*request_id));
        !kept.is_empty()
    }
}
