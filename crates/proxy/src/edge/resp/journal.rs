//! Collection of the access log's data about one client's commands: names and numbers, but no arguments.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use sidelane_host::clock::now_ns;
use sidelane_policy::hedge::Server;

use super::super::ended::{ClientFacts, EndedRequest};
use super::super::shared::Shared;
use crate::access::{ClientRequest, RequestOutcome};
use crate::request_table::{Label, RequestEnd, RequestId};
use crate::resp::{Command, count_keys, display_name};

/// Data for the access log about the unanswered commands of a client. Each command gets one entry. A command that is
/// unanswered at the end of the proxy is logged as cut.
pub(super) struct Journal {
    shared: Rc<Shared>,
    client: SocketAddr,
    /// Unanswered commands in the order of arrival, which is also the order of their ends.
    asked: VecDeque<(RequestId, CommandSize)>,
    /// Number of bytes of the next reply that were forwarded before it was complete.
    streamed: usize,
}

/// Number of keys and bytes of a command.
#[derive(Clone, Copy, Default)]
struct CommandSize {
    keys: Option<u32>,
    bytes: usize,
}

impl CommandSize {
    fn from_command(command: &Command) -> Self {
        Self { keys: count_keys(command), bytes: command.bytes().len() }
    }
}

impl Journal {
    pub(super) fn new(shared: Rc<Shared>, client: SocketAddr) -> Self {
        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
        Self { shared, client, asked: VecDeque::new(), streamed: 0 }
    }

    /// Records that the command is in the request table from now on.
    pub(super) fn record_admission(&mut self, request_id: RequestId, command: &Command) {
        if self.shared.has_log() {
            self.asked.push_back((request_id, CommandSize::from_command(command)));
        }
    }

    /// Counts forwarded bytes of an incomplete reply.
    pub(super) fn add_streamed_bytes(&mut self, bytes: usize) {
        self.streamed += bytes;
    }

    /// Ends a command in the request table, and writes its log entry. `bytes` is the size of the last part of its
    /// reply.
    pub(super) fn finish(&mut self, request_id: RequestId, end: RequestEnd, bytes: usize) {
        let sent = std::mem::take(&mut self.streamed) + bytes;
        if let Some(ended) = self.shared.finish(request_id, end) {
            let (_, size) = self.asked.pop_front().unwrap_or((request_id, CommandSize::default()));
            self.log_command(&ended, ended.label(), size, sent);
        }
    }

    /// Logs the command that ties the connection to the server `to`; `None` if no server was reached.
    pub(super) fn log_tied(&self, command: &Command, to: Option<Server>) {
        if self.shared.has_log() {
            let outcome = if to.is_some() { RequestOutcome::Tied } else { RequestOutcome::Failed };
            let name = Label::from_text(display_name(command));
            self.log_command(
                &EndedRequest::without_record(outcome, now_ns(), to),
                name.bytes(),
                CommandSize::from_command(command),
                0,
            );
        }
    }

    /// Logs bytes of the client that are not a valid command, with the error `answer`.
    pub(super) fn log_refused(&self, answer: &[u8]) {
        if self.shared.has_log() {
            self.log_command(
                &EndedRequest::without_record(RequestOutcome::Refused, now_ns(), None),
                b"",
                CommandSize::default(),
                answer.len(),
            );
        }
    }

    fn log_command(&self, ended: &EndedRequest, name: &[u8], size: CommandSize, sent: usize) {
        let facts = ClientFacts {
            client: self.client,
            status: None,
            received_bytes: size.bytes as u64,
            sent_bytes: sent as u64,
            body_bytes: sent as u64,
            number: None,
            asked: ClientRequest::Redis { name, keys: size.keys },
        };
        self.shared.log_request(ended, facts);
    }
}

impl Drop for Journal {
    /// Logs the commands that are unanswered at the end of the proxy.
    fn drop(&mut self) {
        while let Some((request_id, size)) = self.asked.pop_front() {
            if let Some(ended) = self.shared.cut_off_request(request_id) {
                let sent = std::mem::take(&mut self.streamed);
                self.log_command(&ended, ended.label(), size, sent);
            }
        }
    }
}
