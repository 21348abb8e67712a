//! Connection of one Redis client: its commands in order, and their replies.

mod replies;

use std::future::Future;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use sidelane_host::clock::now_ns;
use sidelane_policy::hedge::{SERVERS_MAX, Server};
use tokio::io::Interest;

use super::super::buffer::Buffer;
use super::super::client_stream::ClientStream;
use super::super::deadline::Deadline;
use super::super::http::linger;
use super::super::shared::{Owner, Shared};
use super::super::tunnel::enable_keep_alive_probes;
use super::journal::Journal;
use super::side::{ServerSide, ServerSideEvent};
use super::tunnel;
use crate::request_table::{Label, RequestClass, RequestEnd, RequestId};
use crate::resp::{
    Command, CommandReader, ReplyQueue, SendMode, asks_for_resp2, asks_for_resp3, depends_on_writes, display_name,
    leaves_connection_state, loads_script, may_block, may_write, send_mode,
};
use replies::ReplyFate;

/// Maximum number of reply bytes that the client has not read. Above it, the proxy reads neither from the client nor
/// from servers for it.
const UNREAD_MAX: usize = 256 << 10;
const LATE: &[u8] = b"-ERR sidelane: no server answered in time\r\n";
const NO_RESP: &[u8] =
    b"-ERR sidelane: protocol error: the command is neither an array of bulk strings nor a line, or it is longer than \
      1 MB\r\n";
const SCATTERED: &[u8] =
    b"-ERR sidelane: the connection over which this client wrote is lost, so WAIT has no server to ask\r\n";

/// State of one client's task.
struct Session {
    shared: Rc<Shared>,
    stream: Rc<ClientStream>,
    input: Buffer,
    reader: CommandReader,
    out: Buffer,
    sides: [ServerSide; SERVERS_MAX],
    /// Handling of each server's present reply, by server; `None` before it was decided.
    replies: [Option<ReplyFate>; SERVERS_MAX],
    reply_queue: ReplyQueue,
    mailbox: Owner,
    deadline: Deadline,
    /// Action after all present commands are answered.
    next: PendingAction,
    writes: Writes,
    /// Whether a reply to a command that must not be repeated is still unread by the client.
    out_has_once: bool,
    /// Number of bytes reported to [`ClientMemory`](super::super::client_memory::ClientMemory).
    counted: usize,
    journal: Journal,
    /// Whether the proxy reads nothing more from the client.
    has_ended: bool,
    /// Whether the client has closed its sending direction. It may be gone, so no request is hedged for it.
    is_half_closed: bool,
    /// Whether the client has sent anything.
    has_asked: bool,
    /// Whether the proxy drains and closes the connection after all replies are written and read.
    is_dismissed: bool,
}

/// Action after all present commands are answered.
enum PendingAction {
    /// The session continues with more commands.
    Commands,
    /// The connection belongs to one server, beginning with this command.
    Tie(Command),
    /// The client gets an error, and the connection ends.
    Refuse,
}

/// Server that got this client's writing commands.
#[derive(Clone, Copy)]
enum Writes {
    None,
    /// All further commands go to this server too: another server may not have the written data.
    At(Server),
    /// The connection is lost, and no server is known to have the written data.
    Lost,
}

enum Event {
    FromClient,
    ToClient,
    Order(RequestId, Server),
    Side(Server, ServerSideEvent),
    Late,
    /// The client's connection is broken.
    Gone,
    /// The proxy drains, and the client is idle.
    Dismissed,
}

/// End of a client's session, with the outcome of its unanswered commands.
struct SessionEnd(RequestEnd);

impl Writes {
    /// Returns the server that has the data written by this client; `None` if there is none.
    fn written_server(self) -> Option<Server> {
        match self {
            Self::At(server) => Some(server),
            Self::None | Self::Lost => None,
        }
    }

    fn record_lost_server(&mut self, server: Server) {
        if self.written_server() == Some(server) {
            *self = Self::Lost;
        }
    }
}

/// Serves a client until the client or the proxy closes the connection. `input` has its first bytes.
pub(crate) async fn serve(shared: Rc<Shared>, stream: ClientStream, input: Buffer) {
    let limits = shared.config.limits;
    // A client without an address is gone already.
    let Ok(address) = stream.socket().peer_addr() else { return };
    let has_asked = !input.is_empty();
    let mut session = Session {
        journal: Journal::new(Rc::clone(&shared), address),
        stream: Rc::new(stream),
        input,
        reader: CommandReader::new(limits.frame_bytes),
        out: Buffer::default(),
        sides: Default::default(),
        replies: [None; SERVERS_MAX],
        reply_queue: ReplyQueue::default(),
        mailbox: Owner::default(),
        deadline: Deadline::new(&limits),
        next: PendingAction::Commands,
        writes: Writes::None,
        out_has_once: false,
        counted: 0,
        has_ended: false,
        is_half_closed: false,
        has_asked,
        is_dismissed: false,
        shared,
    };
    loop {
        if let Err(SessionEnd(end)) = session.handle_next_event().await {
            session.end_commands(end);
            if end != RequestEnd::Cut {
                session.stream.finish();
            }
            if session.is_dismissed {
                linger(session.stream.socket(), &mut session.deadline).await;
            }
            return;
        }
    }
}

impl Session {
    async fn handle_next_event(&mut self) -> Result<(), SessionEnd> {
        if self.has_asked && !self.has_ended && self.shared.drain.has_begun() {
            self.stop_reading_for_drain()?;
        }
        self.dispatch_received_commands();
        self.forward_ready_replies()?;
        self.update_memory_count();
        if self.reply_queue.command_count() == 0 && self.out.is_empty() {
            match &self.next {
                PendingAction::Commands if self.has_ended => return Err(SessionEnd(RequestEnd::ClientLeft)),
                PendingAction::Commands => {}
                PendingAction::Tie(_) => {
                    self.tunnel_to_server().await;
                    return Err(SessionEnd(RequestEnd::ClientLeft));
                }
                PendingAction::Refuse => {
                    self.send_final_error(NO_RESP);
                    self.journal.log_refused(NO_RESP);
                    return Err(SessionEnd(RequestEnd::Failed(400)));
                }
            }
        }
        match self.next_event().await {
            Event::FromClient => self.read_client(),
            Event::ToClient => self.write_client(),
            Event::Order(request_id, to) => {
                self.send_copy(request_id, to);
                Ok(())
            }
            Event::Side(server, event) => self.handle_server_event(server, event),
            Event::Late => self.handle_timeout(),
            Event::Gone => Err(SessionEnd(RequestEnd::ClientLeft)),
            Event::Dismissed => {
                self.has_asked = true;
                Ok(())
            }
        }
    }

    /// Stops reading from the client for a drain. Commands that have arrived are still answered.
    fn stop_reading_for_drain(&mut self) -> Result<(), SessionEnd> {
        self.read_client()?;
        self.is_dismissed = !self.input.is_empty() || self.reply_queue.command_count() > 0 || !self.out.is_empty();
        self.has_ended = true;
        Ok(())
    }

    async fn next_event(&mut self) -> Event {
        if self.is_idle() && self.out.is_empty() && !self.has_ended {
            let shared = Rc::clone(&self.shared);
            let mut dismissed = std::pin::pin!(shared.drain.wait_to_close_idle(self.has_asked));
            return std::future::poll_fn(|cx| match self.poll_event(cx) {
                Poll::Pending => dismissed.as_mut().poll(cx).map(|()| Event::Dismissed),
                ready => ready,
            })
            .await;
        }
        if self.should_read_client() {
            // No extra check is needed: a read also reports a broken connection.
            return std::future::poll_fn(|cx| self.poll_event(cx)).await;
        }
        let stream = Rc::clone(&self.stream);
        let mut broken = std::pin::pin!(stream.socket().ready(Interest::ERROR));
        std::future::poll_fn(|cx| match self.poll_event(cx) {
            Poll::Pending => broken.as_mut().poll(cx).map(|_| Event::Gone),
            ready => ready,
        })
        .await
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if let Some((request_id, to)) = self.mailbox.poll_order(cx) {
            return Poll::Ready(Event::Order(request_id, to));
        }
        if !self.out.is_empty() && self.stream.socket().poll_write_ready(cx).is_ready() {
            return Poll::Ready(Event::ToClient);
        }
        for server in self.shared.servers() {
            if self.has_room_for_replies(server)
                && let Poll::Ready(event) = self.sides[server.index()].poll(cx)
            {
                return Poll::Ready(Event::Side(server, event));
            }
        }
        if self.should_read_client() && self.stream.poll_read_ready(cx).is_ready() {
            return Poll::Ready(Event::FromClient);
        }
        if !self.shared.memory.has_room() {
            self.shared.memory.register_waiter(cx);
        }
        self.deadline.poll_expired(cx).map(|()| Event::Late)
    }

    /// Returns whether more replies of this server may be read. A full buffer does not stop the server that has the
    /// first command, because all buffered replies wait for that command's reply.
    fn has_room_for_replies(&self, server: Server) -> bool {
        let kept = self.reply_queue.kept_bytes() + self.sides[server.index()].kept_bytes();
        self.out.data().len() < UNREAD_MAX && (kept < UNREAD_MAX || self.reply_queue.has_first_command(server))
    }

    fn should_read_client(&self) -> bool {
        self.has_room_for_command() && self.out.data().len() < UNREAD_MAX && !self.has_ended
    }

    /// Sends all commands that have arrived completely to servers.
    fn dispatch_received_commands(&mut self) {
        while !self.input.is_empty() && self.has_room_for_command() {
            match self.reader.read(self.input.data()) {
                Ok((used, command)) => {
                    self.input.consume(used);
                    match command {
                        Some(command) => self.dispatch_command(command),
                        None => break,
                    }
                }
                Err(_) => self.next = PendingAction::Refuse,
            }
        }
    }

    /// Returns whether another command may be read. A client without commands may always send one, however long.
    fn has_room_for_command(&self) -> bool {
        let limits = &self.shared.config.limits;
        let is_first = self.reply_queue.command_count() == 0;
        let is_room = is_first
            || (self.reply_queue.command_count() < limits.pipeline && self.command_bytes() < limits.pipeline_bytes);
        let is_memory = self.shared.memory.has_room() || (is_first && self.reader.held_bytes() == 0);
        matches!(self.next, PendingAction::Commands) && is_room && is_memory
    }

    /// Returns the number of bytes of unanswered commands.
    fn command_bytes(&self) -> usize {
        self.reply_queue.command_bytes() + self.sides.iter().map(ServerSide::unsent_bytes).sum::<usize>()
    }

    fn update_memory_count(&mut self) {
        let replies = self.reply_queue.kept_bytes() + self.out.data().len();
        let sides: usize = self.sides.iter().map(ServerSide::kept_bytes).sum();
        let bytes = self.command_bytes() + self.reader.held_bytes() + self.input.data().len() + replies + sides;
        self.shared.memory.update_client_bytes(self.counted, bytes);
        self.counted = bytes;
    }

    fn dispatch_command(&mut self, command: Command) {
        let limits = &self.shared.config.limits;
        let kind = match send_mode(&command, &self.shared.config.repeatable) {
            // A long command is kept until its reply, but is never sent to a second server.
            SendMode::Repeatable if command.bytes().len() > limits.copy_bytes => SendMode::Once,
            SendMode::Tied if asks_for_resp3(&command) && self.can_set_greeting() => SendMode::Once,
            SendMode::Once if asks_for_resp2(&command) && self.sides.iter().any(ServerSide::has_greeting) => {
                SendMode::Tied
            }
            kind => kind,
        };
        if kind == SendMode::Tied {
            self.next = PendingAction::Tie(command);
            return;
        }
        // After a command that changes data, all later commands go to the same server, in order.
        let follows = self.reply_queue.tied_server().or(self.writes.written_server());
        let (is_repeatable, label) =
            (kind == SendMode::Repeatable && follows.is_none(), Label::from_text(display_name(&command)));
        if kind == SendMode::Once {
            let mut table = self.shared.table.borrow_mut();
            self.reply_queue
                .pin_repeatable_commands()
                .into_iter()
                .for_each(|request_id| table.forbid_copies(request_id));
        }
        if self.reply_queue.command_count() == 0 {
            self.deadline.start(limits.answer_time);
        }
        let (request_id, to) = self.shared.admit(RequestClass { is_repeatable, follows, label }, &self.mailbox);
        if self.is_half_closed {
            self.shared.table.borrow_mut().stop_hedging(request_id);
        }
        self.journal.record_admission(request_id, &command);
        if kind == SendMode::Once && may_write(&command) {
            self.writes = Writes::At(to);
        }
        let side = &mut self.sides[to.index()];
        side.send(&self.shared, to, command.bytes());
        if leaves_connection_state(&command) {
            side.mark_stateful();
        }
        if is_repeatable {
            self.shared.note_sample(command.bytes());
        }
        if asks_for_resp3(&command) {
            let greeting: Rc<[u8]> = command.bytes().into();
            self.sides.iter_mut().for_each(|side| side.set_greeting(Rc::clone(&greeting)));
        }
        if loads_script(&command) {
            self.shared.send_ignoring_answers(to, command.bytes());
        }
        self.reply_queue.push_command(request_id, to, command.into_bytes(), is_repeatable);
    }

    /// Returns whether no command of the client was sent to a server yet. Only then can all its server connections
    /// begin with a greeting such as HELLO 3.
    fn can_set_greeting(&self) -> bool {
        self.reply_queue.command_count() == 0 && self.sides.iter().all(ServerSide::is_unused)
    }

    /// Sends a copy of a command to another server, as the request table orders.
    fn send_copy(&mut self, request_id: RequestId, to: Server) {
        match self.reply_queue.record_copy(request_id, to) {
            Some(command) => self.sides[to.index()].send(&self.shared, to, command),
            None => self.shared.table.borrow_mut().record_not_sent(request_id, to),
        }
    }

    fn is_idle(&self) -> bool {
        self.reply_queue.command_count() == 0 && self.input.is_empty() && self.reader.is_between_commands()
    }

    fn read_client(&mut self) -> Result<(), SessionEnd> {
        match self.stream.fill(&mut self.input) {
            Ok(0) => {
                self.has_ended = true;
                self.is_half_closed = true;
                let mut table = self.shared.table.borrow_mut();
                self.reply_queue.request_ids().for_each(|request_id| table.stop_hedging(request_id));
            }
            Ok(_) => self.has_asked = true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(SessionEnd(RequestEnd::ClientLeft)),
        }
        Ok(())
    }

    fn write_client(&mut self) -> Result<(), SessionEnd> {
        match self.stream.try_write(self.out.data()) {
            Ok(count) => self.record_client_read(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(SessionEnd(RequestEnd::ClientLeft)),
        }
        Ok(())
    }

    fn record_client_read(&mut self, count: usize) {
        self.out.consume(count);
        match self.out.is_empty() {
            true => self.out_has_once = false,
            // Extend the deadline: a slow reader is not gone.
            false => self.deadline.start(self.shared.config.limits.answer_time),
        }
    }

    /// Handles a passed deadline: no server answered, or the client is idle.
    fn handle_timeout(&mut self) -> Result<(), SessionEnd> {
        let is_unread = !self.out.is_empty();
        let has_failure = self.answer_with_kept_failures();
        // Do not cut off a command that is sent once: a server may have executed it already, for example a pop.
        if self.reply_queue.has_unrepeatable() || (is_unread && self.out_has_once) {
            self.deadline.start(self.shared.config.limits.answer_time);
            for stream in self
                .sides
                .iter()
                .filter_map(ServerSide::connection)
                .map(|connection| &connection.stream)
                .chain([self.stream.socket()])
            {
                // Ignore an error: without keep-alive probes, a vanished peer is only noticed later.
                let _ = enable_keep_alive_probes(stream);
            }
            return Ok(());
        }
        // An idle client, or one that does not read its replies, is itself the cause of the timeout. So the session
        // ends as if the client had left.
        if self.reply_queue.command_count() == 0 || is_unread {
            return Err(SessionEnd(RequestEnd::ClientLeft));
        }
        if self.replies.contains(&Some(ReplyFate::PassedOn)) {
            return Err(SessionEnd(RequestEnd::Cut));
        }
        if has_failure {
            self.deadline.start(self.shared.config.limits.answer_time);
            return Ok(());
        }
        self.send_final_error(LATE);
        Err(SessionEnd(RequestEnd::Failed(504)))
    }

    /// Sends a last error. Does not wait if the socket is full: a message after a partial reply would be read as part
    /// of it.
    fn send_final_error(&mut self, error: &[u8]) {
        let left = self.out.data();
        if left.is_empty() || matches!(self.stream.try_write(left), Ok(count) if count == left.len()) {
            let _ = self.stream.try_write(error);
        }
    }

    /// Gives the connection to one server until it ends. The server that has the client's written data is preferred.
    async fn tunnel_to_server(&mut self) {
        let PendingAction::Tie(command) = std::mem::replace(&mut self.next, PendingAction::Refuse) else { return };
        self.shared.table.borrow_mut().count_tied_connection();
        let active = self.shared.table.borrow().active();
        let to = match self.writes {
            Writes::At(server) => server,
            Writes::Lost if depends_on_writes(&command) => {
                self.journal.log_tied(&command, None);
                return self.send_final_error(SCATTERED);
            }
            _ if self.shared.config.table.unsafe_stay => Server::FIRST,
            _ => active,
        };
        let connection = self.sides[to.index()].take_or_open_connection(&self.shared, to).await;
        self.journal.log_tied(&command, connection.is_some().then_some(to));
        let mut came = command.bytes().to_vec();
        came.extend_from_slice(self.input.data());
        let first = tunnel::InitialBytes { bytes: &came, blocks: may_block(&command) };
        if let Some(client) = Rc::get_mut(&mut self.stream) {
            tunnel::run_redis_tunnel(&self.shared, client, connection, first).await;
        }
    }

    /// Ends all unanswered commands. Keeps connections without pending replies and without state of this client for
    /// reuse.
    fn end_commands(&mut self, end: RequestEnd) {
        self.shared.memory.update_client_bytes(self.counted, 0);
        self.reply_queue.request_ids().for_each(|request_id| self.journal.finish(request_id, end, 0));
        let at = now_ns();
        for server in self.shared.servers() {
            let owed: Vec<RequestId> = self.reply_queue.unanswered_commands(server).collect();
            if let Some(first) = owed.first().filter(|_| end == RequestEnd::Failed(504)) {
                self.shared.record_timeout(*first, server);
            }
            let mut table = self.shared.table.borrow_mut();
            owed.iter().for_each(|request_id| table.count_dropped_answer(at, *request_id, server));
            drop(table);
            let is_clean = owed.is_empty() && !self.sides[server.index()].is_stateful();
            if let Some(connection) = self.sides[server.index()].take_connection().filter(|_| is_clean) {
                self.shared.keep_connection(server, connection);
            }
        }
    }
}
