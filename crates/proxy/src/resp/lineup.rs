//! Whose reply is whose: a server answers in the order in which it was asked, and the client is answered in the order
//! in which it asked.

use std::collections::VecDeque;

use sidelane_policy::hedge::Server;

use crate::desk::Ticket;

/// A command of one client.
#[derive(Debug)]
struct Asked {
    ticket: Ticket,
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
    pub ticket: Ticket,
    /// As bytes.
    pub bytes: Vec<u8>,
    /// Whether it is the server's, and no error of our own.
    pub is_servers: bool,
    /// The command's.
    pub is_repeatable: bool,
}

/// The commands of one client that are not answered yet, in order.
#[derive(Debug, Default)]
pub struct Lineup {
    asked: VecDeque<Asked>,
    /// By server: what it was sent and has not answered, in order.
    sent: [VecDeque<Ticket>; 2],
    /// How many of `asked` have been looked through for those to be pinned.
    pinned: usize,
    /// Bytes of the replies that have come before their turn, and of failures that are kept.
    kept_bytes: usize,
    /// Bytes of the commands.
    command_bytes: usize,
}

impl Lineup {
    /// The client asked. The command counts as sent to this server.
    pub fn ask(&mut self, ticket: Ticket, to: Server, command: Vec<u8>, is_repeatable: bool) {
        self.command_bytes += command.len();
        self.asked.push_back(Asked { ticket, is_repeatable, command, reply: None, failure: Vec::new() });
        self.sent[to.index()].push_back(ticket);
    }

    /// A copy goes to this server, too: its bytes, if the command is not answered.
    pub fn copy(&mut self, ticket: Ticket, to: Server) -> Option<&[u8]> {
        let asked = self.asked.iter().find(|asked| asked.ticket == ticket && asked.reply.is_none())?;
        self.sent[to.index()].push_back(ticket);
        Some(&asked.command)
    }

    /// The command that this server answers next.
    pub fn next_of(&self, server: Server) -> Option<Ticket> {
        self.sent[server.index()].front().copied()
    }

    /// A reply came from this server: whose it is. Nobody's, if it owes none.
    pub fn replied(&mut self, by: Server) -> Option<Ticket> {
        self.sent[by.index()].pop_front()
    }

    /// The command is answered with these bytes. Nothing changes if it has been.
    pub fn answer(&mut self, ticket: Ticket, bytes: Vec<u8>, is_servers: bool) {
        let waiting = self.asked.iter_mut().find(|asked| asked.ticket == ticket);
        if let Some(asked) = waiting.filter(|asked| asked.reply.is_none()) {
            self.kept_bytes += bytes.len();
            asked.reply = Some(Reply { ticket, bytes, is_servers, is_repeatable: asked.is_repeatable });
        }
    }

    /// A server failed with these bytes, which the client gets if the other server does no better.
    pub fn keep_failure(&mut self, ticket: Ticket, bytes: Vec<u8>) {
        if let Some(asked) = self.asked.iter_mut().find(|asked| asked.ticket == ticket) {
            self.kept_bytes += bytes.len();
            self.kept_bytes -= std::mem::replace(&mut asked.failure, bytes).len();
        }
    }

    /// The command is answered with the failure that was kept.
    pub fn answer_failure(&mut self, ticket: Ticket) {
        let Some(asked) = self.asked.iter_mut().find(|asked| asked.ticket == ticket) else { return };
        let failure = std::mem::take(&mut asked.failure);
        self.kept_bytes -= failure.len();
        self.answer(ticket, failure, true);
    }

    /// The next reply that the client may get.
    pub fn next_reply(&mut self) -> Option<Reply> {
        let reply = self.asked.front_mut()?.reply.take()?;
        self.kept_bytes -= reply.bytes.len();
        self.pop();
        Some(reply)
    }

    /// Whether the client waits for the reply to this command before all others.
    pub fn is_next(&self, ticket: Ticket) -> bool {
        self.asked.front().is_some_and(|asked| asked.ticket == ticket)
    }

    /// Whether the command whose reply comes next may be sent twice.
    pub fn is_next_repeatable(&self) -> bool {
        self.asked.front().is_some_and(|asked| asked.is_repeatable)
    }

    /// Whether the reply to this command, the client's next one, is kept.
    pub fn is_kept(&self, ticket: Ticket) -> bool {
        self.asked.front().is_some_and(|asked| asked.ticket == ticket && asked.reply.is_some())
    }

    /// The client has been given the reply to this command, which was its next one.
    pub fn passed_on(&mut self, ticket: Ticket) {
        if self.is_next(ticket) {
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
    pub fn lose(&mut self, server: Server) -> Vec<Ticket> {
        std::mem::take(&mut self.sent[server.index()]).into()
    }

    /// What is still to come for this client.
    pub fn tickets(&self) -> impl Iterator<Item = Ticket> {
        self.asked.iter().map(|asked| asked.ticket)
    }

    /// The server that has the latest command that is sent once and is not answered: what follows goes there, too, and
    /// waits its turn there.
    pub fn tied_to(&self) -> Option<Server> {
        let once = self.asked.iter().rev().find(|asked| !asked.is_repeatable && asked.reply.is_none())?;
        Server::BOTH.into_iter().find(|server| self.sent[server.index()].contains(&once.ticket))
    }

    /// Commands that might be sent twice, to be kept from it, since one that changes something follows them.
    pub fn pin(&mut self) -> Vec<Ticket> {
        let from = std::mem::replace(&mut self.pinned, self.asked.len());
        self.asked.range(from..).filter(|asked| asked.is_repeatable).map(|asked| asked.ticket).collect()
    }

    /// Bytes of the replies that wait for the reply to an earlier command, or of the other server.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Whether this server has the command whose reply comes next.
    pub fn owes_next(&self, server: Server) -> bool {
        self.asked.front().is_some_and(|asked| self.sent[server.index()].contains(&asked.ticket))
    }

    /// How many commands have not been answered to the client.
    pub fn waiting(&self) -> usize {
        self.asked.len()
    }

    /// What this server owes, in order.
    pub fn owed_by(&self, server: Server) -> impl Iterator<Item = Ticket> {
        self.sent[server.index()].iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use sidelane_policy::hedge::{Mode, RolesConfig};

    use super::*;
    use crate::desk::{Class, Desk, DeskConfig, Label};

    #[test]
    fn memory_does_not_grow_with_the_commands_that_are_answered() {
        let roles = RolesConfig { mode: Mode::Never, ..RolesConfig::default() };
        let mut desk = Desk::new(DeskConfig { roles, ..DeskConfig::default() });
        let mut lineup = Lineup::default();
        let mut ask = |lineup: &mut Lineup| {
            let class = Class { is_repeatable: true, follows: None, label: Label::of(b"GET") };
            let (ticket, to) = desk.admit(0, class, ());
            lineup.ask(ticket, to, b"GET a".to_vec(), true);
        };
        ask(&mut lineup);
        for _ in 0..1000 {
            // There is always one that waits.
            ask(&mut lineup);
            let ticket = lineup.replied(Server::First).unwrap();
            lineup.answer(ticket, Vec::new(), true);
            assert!(lineup.next_reply().is_some());
        }
        assert_eq!((lineup.waiting(), lineup.command_bytes(), lineup.pin().len()), (1, 5, 1));
        assert_eq!(lineup.pin().len(), 0, "each is looked at once");
    }

    #[test]
    fn only_the_reply_that_comes_next_is_kept_for_the_client() {
        let mut desk = Desk::new(DeskConfig::default());
        let mut lineup = Lineup::default();
        let mut ask = |lineup: &mut Lineup, is_repeatable| {
            let class = Class { is_repeatable, follows: None, label: Label::of(b"GET") };
            let (ticket, to) = desk.admit(0, class, ());
            lineup.ask(ticket, to, b"GET a".to_vec(), is_repeatable);
            ticket
        };
        let (first, second) = (ask(&mut lineup, true), ask(&mut lineup, false));
        assert_eq!([first, second].map(|ticket| lineup.is_next(ticket)), [true, false]);
        assert_eq!([first, second].map(|ticket| lineup.is_kept(ticket)), [false; 2], "nothing has come");
        lineup.answer(second, b"+2".to_vec(), true);
        assert_eq!([first, second].map(|ticket| lineup.is_kept(ticket)), [false; 2], "it is not the next one's");
        lineup.answer(first, b"+1".to_vec(), true);
        lineup.answer(first, b"+another".to_vec(), true);
        assert_eq!([first, second].map(|ticket| lineup.is_kept(ticket)), [true, false]);
        assert_eq!((lineup.kept_bytes(), lineup.is_next_repeatable()), (4, true));
        assert!(lineup.next_reply().is_some_and(|reply| reply.bytes == b"+1"));
        assert_eq!((lineup.is_kept(second), lineup.is_next_repeatable(), lineup.kept_bytes()), (true, false, 2));
    }
}
