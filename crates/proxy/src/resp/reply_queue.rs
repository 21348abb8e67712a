//! Assignment of replies to commands. Each server answers in the order in which it got commands, and the client gets
//! replies in the order in which it sent commands.

use std::collections::VecDeque;

use sidelane_policy::hedge::{SERVERS_MAX, Server};

use crate::request_table::RequestId;

/// Command of a client that has no reply yet.
#[derive(Debug)]
struct PendingCommand {
    request_id: RequestId,
    is_repeatable: bool,
    /// Bytes of the whole command, kept for another copy.
    command: Vec<u8>,
    reply: Option<ClientReply>,
    /// Failure reply of one server, kept while another server may still answer.
    failure: Vec<u8>,
}

/// Reply for the client.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientReply {
    /// Id of the command that the reply belongs to.
    pub request_id: RequestId,
    /// Bytes of the reply.
    pub bytes: Vec<u8>,
    /// Whether the reply comes from a server. Otherwise it is an error of the proxy.
    pub is_from_server: bool,
    /// Whether the command may be sent twice.
    pub is_repeatable: bool,
}

/// Queue of one client's commands that are not answered yet, in order.
#[derive(Debug, Default)]
pub struct ReplyQueue {
    asked: VecDeque<PendingCommand>,
    /// Commands that each server got and has not answered, in order, by server.
    sent: [VecDeque<RequestId>; SERVERS_MAX],
    /// Number of commands at the front of `asked` that [`ReplyQueue::pin_repeatable_commands`] has returned already.
    pinned: usize,
    /// Number of bytes of early replies that wait for their turn, and of kept failures.
    kept_bytes: usize,
    /// Number of bytes of the commands in the queue.
    command_bytes: usize,
}

impl ReplyQueue {
    /// Adds a command of the client. It counts as sent to the server `to`.
    pub fn push_command(&mut self, request_id: RequestId, to: Server, command: Vec<u8>, is_repeatable: bool) {
        self.command_bytes += command.len();
        self.asked.push_back(PendingCommand { request_id, is_repeatable, command, reply: None, failure: Vec::new() });
        self.sent[to.index()].push_back(request_id);
    }

    /// Records another copy of a command at a server. Returns the bytes to send; `None` if the command is answered.
    pub fn record_copy(&mut self, request_id: RequestId, to: Server) -> Option<&[u8]> {
        let asked = self.asked.iter().find(|asked| asked.request_id == request_id && asked.reply.is_none())?;
        self.sent[to.index()].push_back(request_id);
        Some(&asked.command)
    }

    /// Returns the command that this server answers next.
    pub fn next_command_of(&self, server: Server) -> Option<RequestId> {
        self.sent[server.index()].front().copied()
    }

    /// Removes and returns the command that this server's reply belongs to; `None` if the server has no open command.
    pub fn take_replied_command(&mut self, by: Server) -> Option<RequestId> {
        self.sent[by.index()].pop_front()
    }

    /// Sets the reply to a command. Does nothing if the command has a reply.
    pub fn set_reply(&mut self, request_id: RequestId, bytes: Vec<u8>, is_from_server: bool) {
        let waiting = self.asked.iter_mut().find(|asked| asked.request_id == request_id);
        if let Some(asked) = waiting.filter(|asked| asked.reply.is_none()) {
            self.kept_bytes += bytes.len();
            asked.reply = Some(ClientReply { request_id, bytes, is_from_server, is_repeatable: asked.is_repeatable });
        }
    }

    /// Keeps a failure reply. The client gets it if no other server gives a better reply.
    pub fn keep_failure(&mut self, request_id: RequestId, bytes: Vec<u8>) {
        if let Some(asked) = self.asked.iter_mut().find(|asked| asked.request_id == request_id) {
            self.kept_bytes += bytes.len();
            self.kept_bytes -= std::mem::replace(&mut asked.failure, bytes).len();
        }
    }

    /// Answers a command with the failure that was kept.
    pub fn answer_with_failure(&mut self, request_id: RequestId) {
        let Some(asked) = self.asked.iter_mut().find(|asked| asked.request_id == request_id) else { return };
        let failure = std::mem::take(&mut asked.failure);
        self.kept_bytes -= failure.len();
        self.set_reply(request_id, failure, true);
    }

    /// Removes and returns the client's next reply; `None` if it has not come.
    pub fn next_reply(&mut self) -> Option<ClientReply> {
        let reply = self.asked.front_mut()?.reply.take()?;
        self.kept_bytes -= reply.bytes.len();
        self.pop();
        Some(reply)
    }

    /// Returns whether the client gets the reply to this command next.
    pub fn is_reply_next(&self, request_id: RequestId) -> bool {
        self.asked.front().is_some_and(|asked| asked.request_id == request_id)
    }

    /// Returns whether the first command in the queue may be sent twice.
    pub fn is_next_repeatable(&self) -> bool {
        self.asked.front().is_some_and(|asked| asked.is_repeatable)
    }

    /// Returns whether this command is the first one in the queue, and its reply is complete but not forwarded yet.
    pub fn is_first_with_reply(&self, request_id: RequestId) -> bool {
        self.asked.front().is_some_and(|asked| asked.request_id == request_id && asked.reply.is_some())
    }

    /// Removes the first command of the queue, after its reply was forwarded to the client in parts.
    pub fn remove_forwarded(&mut self, request_id: RequestId) {
        if self.is_reply_next(request_id) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some(asked) = self.asked.pop_front() {
            self.command_bytes -= asked.command.len();
            self.kept_bytes -= asked.failure.len();
            self.pinned = self.pinned.saturating_sub(1);
        }
    }

    /// Returns whether a command without a reply must not be sent twice.
    pub fn has_unrepeatable(&self) -> bool {
        self.asked.iter().any(|asked| !asked.is_repeatable && asked.reply.is_none())
    }

    /// Returns the number of bytes of the commands in the queue.
    pub fn command_bytes(&self) -> usize {
        self.command_bytes
    }

    /// Handles the loss of a server's connection. Returns the commands whose replies will not come.
    pub fn take_lost_commands(&mut self, server: Server) -> Vec<RequestId> {
        std::mem::take(&mut self.sent[server.index()]).into()
    }

    /// Returns the ids of all commands in the queue.
    pub fn request_ids(&self) -> impl Iterator<Item = RequestId> {
        self.asked.iter().map(|asked| asked.request_id)
    }

    /// Returns the server of the latest unanswered command that must not be sent twice. Later commands go to this
    /// server too, and wait there for their turn.
    pub fn tied_server(&self) -> Option<Server> {
        let once = self.asked.iter().rev().find(|asked| !asked.is_repeatable && asked.reply.is_none())?;
        Server::ALL.into_iter().find(|server| self.sent[server.index()].contains(&once.request_id))
    }

    /// Returns the repeatable commands that must not be sent again, because a later command changes data.
    pub fn pin_repeatable_commands(&mut self) -> Vec<RequestId> {
        let from = std::mem::replace(&mut self.pinned, self.asked.len());
        self.asked.range(from..).filter(|asked| asked.is_repeatable).map(|asked| asked.request_id).collect()
    }

    /// Returns the number of bytes of replies that wait for an earlier command or for another server.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Returns whether this server has the first command of the queue.
    pub fn has_first_command(&self, server: Server) -> bool {
        self.asked.front().is_some_and(|asked| self.sent[server.index()].contains(&asked.request_id))
    }

    /// Returns the number of commands in the queue.
    pub fn command_count(&self) -> usize {
        self.asked.len()
    }

    /// Returns the commands that this server has not answered, in order.
    pub fn unanswered_commands(&self, server: Server) -> impl Iterator<Item = RequestId> {
        self.sent[server.index()].iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use sidelane_policy::hedge::{Mode, RolesConfig};

    use super::*;
    use crate::request_table::{Label, RequestClass, RequestTable, TableConfig};

    #[test]
    fn memory_does_not_grow_with_the_commands_that_are_answered() {
        let roles = RolesConfig { mode: Mode::Never, ..RolesConfig::default() };
        let mut table = RequestTable::new(TableConfig { roles, ..TableConfig::default() });
        let mut reply_queue = ReplyQueue::default();
        let mut ask = |reply_queue: &mut ReplyQueue| {
            let class = RequestClass { is_repeatable: true, follows: None, label: Label::from_text(b"GET") };
            let (request_id, to) = table.admit(0, class, ());
            reply_queue.push_command(request_id, to, b"GET a".to_vec(), true);
        };
        ask(&mut reply_queue);
        for _ in 0..1000 {
            // Keep one command waiting in the queue at all times.
            ask(&mut reply_queue);
            let request_id = reply_queue.take_replied_command(Server::FIRST).unwrap();
            reply_queue.set_reply(request_id, Vec::new(), true);
            assert!(reply_queue.next_reply().is_some());
        }
        assert_eq!(
            (reply_queue.command_count(), reply_queue.command_bytes(), reply_queue.pin_repeatable_commands().len()),
            (1, 5, 1)
        );
        assert_eq!(reply_queue.pin_repeatable_commands().len(), 0, "each is looked at once");
    }

    #[test]
    fn reply_waits_until_its_command_is_first_in_the_queue() {
        let mut table = RequestTable::new(TableConfig::default());
        let mut reply_queue = ReplyQueue::default();
        let mut ask = |reply_queue: &mut ReplyQueue, is_repeatable| {
            let class = RequestClass { is_repeatable, follows: None, label: Label::from_text(b"GET") };
            let (request_id, to) = table.admit(0, class, ());
            reply_queue.push_command(request_id, to, b"GET a".to_vec(), is_repeatable);
            request_id
        };
        let (first, second) = (ask(&mut reply_queue, true), ask(&mut reply_queue, false));
        assert_eq!([first, second].map(|request_id| reply_queue.is_reply_next(request_id)), [true, false]);
        assert_eq!(
            [first, second].map(|request_id| reply_queue.is_first_with_reply(request_id)),
            [false; 2],
            "nothing has come"
        );
        reply_queue.set_reply(second, b"+2".to_vec(), true);
        assert_eq!(
            [first, second].map(|request_id| reply_queue.is_first_with_reply(request_id)),
            [false; 2],
            "it is not the next one's"
        );
        reply_queue.set_reply(first, b"+1".to_vec(), true);
        reply_queue.set_reply(first, b"+another".to_vec(), true);
        assert_eq!([first, second].map(|request_id| reply_queue.is_first_with_reply(request_id)), [true, false]);
        assert_eq!((reply_queue.kept_bytes(), reply_queue.is_next_repeatable()), (4, true));
        assert!(reply_queue.next_reply().is_some_and(|reply| reply.bytes == b"+1"));
        assert_eq!(
            (reply_queue.is_first_with_reply(second), reply_queue.is_next_repeatable(), reply_queue.kept_bytes()),
            (true, false, 2)
        );
    }
}
