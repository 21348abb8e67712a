//! Whose reply is whose: a server answers in the order in which it was asked, and the client is answered in the order
//! in which it asked.

use std::collections::VecDeque;

use sidelane_policy::hedge::Server;

use crate::request_table::RequestId;

/// A command of one client.
#[derive(Debug)]
struct Asked {
    request_id: RequestId,
    is_repeatable: bool,
    /// The whole command, kept as long as it may have to be sent once more.
    command: Vec<u8>,
    reply: Option<Reply>,
    /// What one server failed with while the other may still answer.
    failure: Vec<u8>,
}

/// What the client gets.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    /// The command's.
    pub request_id: RequestId,
    /// As bytes.
    pub bytes: Vec<u8>,
    /// Whether it is the server's, and no error of our own.
    pub is_servers: bool,
    /// The command's.
    pub is_repeatable: bool,
}

/// The commands of one client that are not answered yet, in order.
#[derive(Debug, Default)]
pub struct ReplyQueue {
    asked: VecDeque<Asked>,
    /// By server: what it was sent and has not answered, in order.
    sent: [VecDeque<RequestId>; 2],
    /// How many of `asked` have been looked through for those to be pinned.
    pinned: usize,
    /// Bytes of the replies that have come before their turn, and of failures that are kept.
    kept_bytes: usize,
    /// Bytes of the commands.
    command_bytes: usize,
}

impl ReplyQueue {
    /// The client asked. The command counts as sent to this server.
    pub fn ask(&mut self, request_id: RequestId, to: Server, command: Vec<u8>, is_repeatable: bool) {
        self.command_bytes += command.len();
        self.asked.push_back(Asked { request_id, is_repeatable, command, reply: None, failure: Vec::new() });
        self.sent[to.index()].push_back(request_id);
    }

    /// A copy goes to this server, too: its bytes, if the command is not answered.
    pub fn copy(&mut self, request_id: RequestId, to: Server) -> Option<&[u8]> {
        let asked = self.asked.iter().find(|asked| asked.request_id == request_id && asked.reply.is_none())?;
        self.sent[to.index()].push_back(request_id);
        Some(&asked.command)
    }

    /// The command that this server answers next.
    pub fn next_of(&self, server: Server) -> Option<RequestId> {
        self.sent[server.index()].front().copied()
    }

    /// Assigns a reply of this server to a command; `None` if the server owes none.
    pub fn replied(&mut self, by: Server) -> Option<RequestId> {
        self.sent[by.index()].pop_front()
    }

    /// The command is answered with these bytes. Nothing changes if it has been.
    pub fn answer(&mut self, request_id: RequestId, bytes: Vec<u8>, is_servers: bool) {
        let waiting = self.asked.iter_mut().find(|asked| asked.request_id == request_id);
        if let Some(asked) = waiting.filter(|asked| asked.reply.is_none()) {
            self.kept_bytes += bytes.len();
            asked.reply = Some(Reply { request_id, bytes, is_servers, is_repeatable: asked.is_repeatable });
        }
    }

    /// A server failed with these bytes, which the client gets if the other server does no better.
    pub fn keep_failure(&mut self, request_id: RequestId, bytes: Vec<u8>) {
        if let Some(asked) = self.asked.iter_mut().find(|asked| asked.request_id == request_id) {
            self.kept_bytes += bytes.len();
            self.kept_bytes -= std::mem::replace(&mut asked.failure, bytes).len();
        }
    }

    /// The command is answered with the failure that was kept.
    pub fn answer_failure(&mut self, request_id: RequestId) {
        let Some(asked) = self.asked.iter_mut().find(|asked| asked.request_id == request_id) else { return };
        let failure = std::mem::take(&mut asked.failure);
        self.kept_bytes -= failure.len();
        self.answer(request_id, failure, true);
    }

    /// The next reply that the client may get.
    pub fn next_reply(&mut self) -> Option<Reply> {
        let reply = self.asked.front_mut()?.reply.take()?;
        self.kept_bytes -= reply.bytes.len();
        self.pop();
        Some(reply)
    }

    /// Whether the client waits for the reply to this command before all others.
    pub fn is_next(&self, request_id: RequestId) -> bool {
        self.asked.front().is_some_and(|asked| asked.request_id == request_id)
    }

    /// Whether the command whose reply comes next may be sent twice.
    pub fn is_next_repeatable(&self) -> bool {
        self.asked.front().is_some_and(|asked| asked.is_repeatable)
    }

    /// Whether the reply to this command, the client's next one, is kept.
    pub fn is_kept(&self, request_id: RequestId) -> bool {
        self.asked.front().is_some_and(|asked| asked.request_id == request_id && asked.reply.is_some())
    }

    /// The client has been given the reply to this command, which was its next one.
    pub fn passed_on(&mut self, request_id: RequestId) {
        if self.is_next(request_id) {
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

    /// Whether a command that is sent once waits for its reply.
    pub fn has_once(&self) -> bool {
        self.asked.iter().any(|asked| !asked.is_repeatable && asked.reply.is_none())
    }

    /// Bytes of the commands that are not answered to the client.
    pub fn command_bytes(&self) -> usize {
        self.command_bytes
    }

    /// The connection to this server was lost: whose replies will not come.
    pub fn lose(&mut self, server: Server) -> Vec<RequestId> {
        std::mem::take(&mut self.sent[server.index()]).into()
    }

    /// What is still to come for this client.
    pub fn request_ids(&self) -> impl Iterator<Item = RequestId> {
        self.asked.iter().map(|asked| asked.request_id)
    }

    /// The server that has the latest command that is sent once and is not answered: what follows goes there, too, and
    /// waits its turn there.
    pub fn tied_to(&self) -> Option<Server> {
        let once = self.asked.iter().rev().find(|asked| !asked.is_repeatable && asked.reply.is_none())?;
        Server::BOTH.into_iter().find(|server| self.sent[server.index()].contains(&once.request_id))
    }

    /// Commands that might be sent twice, to be kept from it, since one that changes something follows them.
    pub fn pin(&mut self) -> Vec<RequestId> {
        let from = std::mem::replace(&mut self.pinned, self.asked.len());
        self.asked.range(from..).filter(|asked| asked.is_repeatable).map(|asked| asked.request_id).collect()
    }

    /// Bytes of the replies that wait for the reply to an earlier command, or of the other server.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Whether this server has the command whose reply comes next.
    pub fn owes_next(&self, server: Server) -> bool {
        self.asked.front().is_some_and(|asked| self.sent[server.index()].contains(&asked.request_id))
    }

    /// How many commands have not been answered to the client.
    pub fn waiting(&self) -> usize {
        self.asked.len()
    }

    /// What this server owes, in order.
    pub fn owed_by(&self, server: Server) -> impl Iterator<Item = RequestId> {
        self.sent[server.index()].iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use sidelane_policy::hedge::{Mode, RolesConfig};

    use super::*;
    use crate::request_table::{Class, Label, RequestTable, TableConfig};

    #[test]
    fn memory_does_not_grow_with_the_commands_that_are_answered() {
        let roles = RolesConfig { mode: Mode::Never, ..RolesConfig::default() };
        let mut table = RequestTable::new(TableConfig { roles, ..TableConfig::default() });
        let mut reply_queue = ReplyQueue::default();
        let mut ask = |reply_queue: &mut ReplyQueue| {
            let class = Class { is_repeatable: true, follows: None, label: Label::of(b"GET") };
            let (request_id, to) = table.admit(0, class, ());
            reply_queue.ask(request_id, to, b"GET a".to_vec(), true);
        };
        ask(&mut reply_queue);
        for _ in 0..1000 {
            // There is always one that waits.
            ask(&mut reply_queue);
            let request_id = reply_queue.replied(Server::First).unwrap();
            reply_queue.answer(request_id, Vec::new(), true);
            assert!(reply_queue.next_reply().is_some());
        }
        assert_eq!((reply_queue.waiting(), reply_queue.command_bytes(), reply_queue.pin().len()), (1, 5, 1));
        assert_eq!(reply_queue.pin().len(), 0, "each is looked at once");
    }

    #[test]
    fn only_the_reply_that_comes_next_is_kept_for_the_client() {
        let mut table = RequestTable::new(TableConfig::default());
        let mut reply_queue = ReplyQueue::default();
        let mut ask = |reply_queue: &mut ReplyQueue, is_repeatable| {
            let class = Class { is_repeatable, follows: None, label: Label::of(b"GET") };
            let (request_id, to) = table.admit(0, class, ());
            reply_queue.ask(request_id, to, b"GET a".to_vec(), is_repeatable);
            request_id
        };
        let (first, second) = (ask(&mut reply_queue, true), ask(&mut reply_queue, false));
        assert_eq!([first, second].map(|request_id| reply_queue.is_next(request_id)), [true, false]);
        assert_eq!([first, second].map(|request_id| reply_queue.is_kept(request_id)), [false; 2], "nothing has come");
        reply_queue.answer(second, b"+2".to_vec(), true);
        assert_eq!(
            [first, second].map(|request_id| reply_queue.is_kept(request_id)),
            [false; 2],
            "it is not the next one's"
        );
        reply_queue.answer(first, b"+1".to_vec(), true);
        reply_queue.answer(first, b"+another".to_vec(), true);
        assert_eq!([first, second].map(|request_id| reply_queue.is_kept(request_id)), [true, false]);
        assert_eq!((reply_queue.kept_bytes(), reply_queue.is_next_repeatable()), (4, true));
        assert!(reply_queue.next_reply().is_some_and(|reply| reply.bytes == b"+1"));
        assert_eq!(
            (reply_queue.is_kept(second), reply_queue.is_next_repeatable(), reply_queue.kept_bytes()),
            (true, false, 2)
        );
    }
}
