//! Replies of the servers: which replies are forwarded, and how the commands of a lost server end.

use std::io;

use sidelane_host::clock::now_ns;
use sidelane_policy::hedge::Server;

use super::super::quality::classify_reply;
use super::super::side::ServerSideEvent;
use super::{Session, SessionEnd};
use crate::request_table::{Loss, NextStep, Quality, RequestEnd, RequestId, ServerOutcome, Verdict};

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
pub(super) enum ReplyFate {
    /// The client gets this reply.
    PassedOn,
    /// The reply is dropped, since the client gets another server's reply.
    Dropped,
    /// The reply is a failure. The client gets it if no other server gives a better reply.
    Kept,
}

impl Session {
    pub(super) fn handle_server_event(&mut self, server: Server, event: ServerSideEvent) -> Result<(), SessionEnd> {
        let lost = match event {
            ServerSideEvent::Readable => self.read_server(server).is_err().then_some(Loss::Sent),
            ServerSideEvent::Lost(loss) => Some(loss),
        };
        let Some(loss) = lost else { return Ok(()) };
        if self.replies[server.index()] == Some(ReplyFate::PassedOn) {
            // End the session: after a partial reply, the client could not parse anything that follows.
            return Err(SessionEnd(RequestEnd::Cut));
        }
        self.handle_connection_loss(server, loss);
        Ok(())
    }

    fn read_server(&mut self, server: Server) -> io::Result<()> {
        // Process data that arrived before the end of the connection.
        let read = self.sides[server.index()].read_available();
        while self.process_reply(server)? {}
        read
    }

    /// Processes the received part of this server's next reply. Returns whether another reply may follow.
    fn process_reply(&mut self, server: Server) -> io::Result<bool> {
        let at = server.index();
        let limits = &self.shared.config.limits;
        let (came, is_whole) = match self.sides[at].next_reply_part() {
            Ok(Some((bytes, is_whole))) => (bytes, is_whole),
            Ok(None) => return Ok(false),
            Err(_) => return Err(io::ErrorKind::InvalidData.into()),
        };
        let count = came.len();
        if self.replies[at].is_none() && came.starts_with(PUSH) {
            // Drop notifications to an untied client: they are about the server's address, which only concerns the
            // proxy.
            if is_whole {
                self.sides[at].consume_reply(count);
            }
            return Ok(is_whole);
        }
        // Data without a waiting command is not a reply.
        let request_id = self.reply_queue.next_command_of(server).ok_or(io::ErrorKind::InvalidData)?;
        let is_next = self.reply_queue.is_reply_next(request_id);
        let fate = match self.replies[at] {
            Some(fate) => fate,
            None if !is_whole && count > limits.reply_bytes && !is_next => return self.reject_long_reply(server),
            None if !is_whole && (!is_next || count <= WHOLE_MAX) => return Ok(false),
            None => match self.shared.record_answer(request_id, server, classify_reply(came)) {
                Verdict::Forward(by) if by == server => ReplyFate::PassedOn,
                Verdict::Forward(_) => {
                    self.reply_queue.answer_with_failure(request_id);
                    ReplyFate::Dropped
                }
                Verdict::Keep => {
                    self.reply_queue.keep_failure(request_id, came.to_vec());
                    ReplyFate::Kept
                }
                Verdict::Drop => ReplyFate::Dropped,
            },
        };
        self.replies[at] = Some(fate);
        if fate == ReplyFate::PassedOn {
            self.deadline.start(limits.answer_time);
            match is_next {
                true => {
                    self.out_has_once |= !self.reply_queue.is_next_repeatable();
                    self.out.push(came);
                    self.journal.add_streamed_bytes(count);
                }
                false => self.reply_queue.set_reply(request_id, came.to_vec(), true),
            }
        }
        self.sides[at].consume_reply(count);
        if is_whole {
            self.reply_queue.take_replied_command(server);
            self.replies[at] = None;
            self.finish_reply(server, request_id, fate);
        }
        Ok(is_whole)
    }

    fn finish_reply(&mut self, server: Server, request_id: RequestId, fate: ReplyFate) {
        match fate {
            ReplyFate::Dropped => self.shared.table.borrow_mut().count_dropped_answer(now_ns(), request_id, server),
            ReplyFate::PassedOn
                if self.reply_queue.is_reply_next(request_id) && !self.reply_queue.is_first_with_reply(request_id) =>
            {
                self.reply_queue.remove_forwarded(request_id);
                self.journal.finish(request_id, RequestEnd::Answered, 0);
            }
            ReplyFate::PassedOn | ReplyFate::Kept => {}
        }
    }

    /// Answers with an error if a reply must wait for an earlier one and exceeds the limit. Waiting for
    /// another server would not help, because its reply would be as long.
    fn reject_long_reply(&mut self, server: Server) -> io::Result<bool> {
        if let Some(request_id) = self.reply_queue.take_replied_command(server)
            && self.shared.table.borrow_mut().record_answer(now_ns(), request_id, server, Quality::Success)
                == Verdict::Forward(server)
        {
            self.reply_queue.set_reply(request_id, TOO_LONG.to_vec(), false);
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    /// Handles a lost server connection. The request table decides for each command on it.
    fn handle_connection_loss(&mut self, server: Server, loss: Loss) {
        self.sides[server.index()].close();
        self.replies[server.index()] = None;
        self.writes.record_lost_server(server);
        let lost = self.reply_queue.take_lost_commands(server);
        // Count a single failure for the connection, not one for each command.
        let failed = lost.first().map(|request_id| self.shared.sent_ns(*request_id, server)).zip(loss.server_error());
        for request_id in lost {
            let next = self.shared.table.borrow_mut().record_loss(now_ns(), request_id, server, loss);
            match next {
                NextStep::Send(to) => self.send_copy(request_id, to),
                NextStep::Wait => {}
                NextStep::Forward(_) => self.reply_queue.answer_with_failure(request_id),
                NextStep::GiveUp => self.reply_queue.set_reply(request_id, LOST.to_vec(), false),
            }
        }
        if let Some((sent_ns, error)) = failed {
            self.shared.record_outcome(server, sent_ns, ServerOutcome::Error(error));
        }
    }

    /// Forwards all replies whose turn has come.
    pub(super) fn forward_ready_replies(&mut self) -> Result<(), SessionEnd> {
        loop {
            while let Some(reply) = self.reply_queue.next_reply() {
                let end = if reply.is_from_server { RequestEnd::Answered } else { RequestEnd::Failed(502) };
                self.journal.finish(reply.request_id, end, reply.bytes.len());
                self.out_has_once |= !reply.is_repeatable;
                self.out.push(&reply.bytes);
            }
            // Bytes of a long reply may have arrived while the client still waited for an earlier reply.
            let waits = |server: &Server| {
                let side = &self.sides[server.index()];
                self.replies[server.index()].is_none()
                    && side.kept_bytes() > WHOLE_MAX
                    && self.reply_queue.has_first_command(*server)
            };
            let Some(server) = self.shared.servers().find(waits) else { break };
            let before = self.sides[server.index()].kept_bytes();
            while match self.process_reply(server) {
                Ok(goes_on) => goes_on,
                Err(_) => {
                    self.handle_server_event(server, ServerSideEvent::Lost(Loss::Sent))?;
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

    /// Answers each command for which a failure reply was kept with this reply. Returns whether there was one.
    pub(super) fn answer_with_kept_failures(&mut self) -> bool {
        let mut table = self.shared.table.borrow_mut();
        let is_kept = |request_id: &RequestId| table.end_wait_for_copies(now_ns(), *request_id).is_some();
        let kept: Vec<RequestId> = self.reply_queue.request_ids().filter(is_kept).collect();
        kept.iter().for_each(|request_id| self.reply_queue.answer_with_failure(*request_id));
        !kept.is_empty()
    }
}
