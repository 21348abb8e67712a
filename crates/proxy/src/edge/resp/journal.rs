//! What the access log is told of one client's commands: names and numbers, no argument.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use sidelane_policy::hedge::Server;

use super::super::ended::{Ended, Facts};
use super::super::shared::{Shared, now};
use crate::access::{Asked, Outcome};
use crate::request_table::{End, Label, RequestId};
use crate::resp::{Command, count_keys, name_of};

/// The commands of a client that are not answered, as the access log is told of them at their end. Each has one entry: one
/// that is not answered when the proxy ends is cut.
pub(super) struct Journal {
    shared: Rc<Shared>,
    client: SocketAddr,
    /// In the order in which they came, which is that of their ends.
    asked: VecDeque<(RequestId, Size)>,
    /// Bytes of the next reply that were passed on before it was whole.
    streamed: usize,
}

/// What is told of a command besides its name.
#[derive(Clone, Copy, Default)]
struct Size {
    keys: Option<u32>,
    bytes: usize,
}

impl Size {
    fn of(command: &Command) -> Self {
        Self { keys: count_keys(command), bytes: command.bytes().len() }
    }
}

impl Journal {
    pub(super) fn new(shared: Rc<Shared>, client: SocketAddr) -> Self {
        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
        Self { shared, client, asked: VecDeque::new(), streamed: 0 }
    }

    /// The request table knows this command from now on.
    pub(super) fn begin(&mut self, request_id: RequestId, command: &Command) {
        if self.shared.has_log() {
            self.asked.push_back((request_id, Size::of(command)));
        }
    }

    /// A part of the next reply was passed on.
    pub(super) fn streams(&mut self, bytes: usize) {
        self.streamed += bytes;
    }

    /// The command is over, with the last bytes of its reply: the request table is told, and an entry written.
    pub(super) fn finish(&mut self, request_id: RequestId, end: End, bytes: usize) {
        let sent = std::mem::take(&mut self.streamed) + bytes;
        if let Some(ended) = self.shared.finish(request_id, end) {
            let (_, size) = self.asked.pop_front().unwrap_or((request_id, Size::default()));
            self.log(&ended, ended.label(), size, sent);
        }
    }

    /// From this command on the connection is this server's.
    pub(super) fn is_tied(&self, command: &Command, to: Option<Server>) {
        if self.shared.has_log() {
            let outcome = if to.is_some() { Outcome::Tied } else { Outcome::Failed };
            let name = Label::of(name_of(command));
            self.log(&Ended::apart(outcome, now(), to), name.bytes(), Size::of(command), 0);
        }
    }

    /// What the client sent is no command.
    pub(super) fn is_refused(&self, answer: &[u8]) {
        if self.shared.has_log() {
            self.log(&Ended::apart(Outcome::Refused, now(), None), b"", Size::default(), answer.len());
        }
    }

    fn log(&self, ended: &Ended, name: &[u8], size: Size, sent: usize) {
        let facts = Facts {
            client: self.client,
            status: None,
            received_bytes: size.bytes as u64,
            sent_bytes: sent as u64,
            body_bytes: sent as u64,
            number: None,
            asked: Asked::Redis { name, keys: size.keys },
        };
        self.shared.log(ended, facts);
    }
}

impl Drop for Journal {
    /// The proxy ends in the middle of these commands.
    fn drop(&mut self) {
        while let Some((request_id, size)) = self.asked.pop_front() {
            if let Some(ended) = self.shared.cut_off(request_id) {
                let sent = std::mem::take(&mut self.streamed);
                self.log(&ended, ended.label(), size, sent);
            }
        }
    }
}
