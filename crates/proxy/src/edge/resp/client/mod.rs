//! Connection of one Redis client: its commands in order, and their replies.

mod replies;

use std::future::Future;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use sidelane_host::clock::now_ns;
use sidelane_policy::hedge::Server;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::super::buffer::Buffer;
use super::super::deadline::Deadline;
use super::super::http::linger;
use super::super::shared::{Owner, Shared};
use super::super::tunnel::notice_its_end;
use super::journal::Journal;
use super::side::{Side, SideEvent};
use super::tunnel;
use crate::request_table::{Class, End, Label, RequestId};
use crate::resp::{
    Command, CommandReader, Kind, ReplyQueue, asks_for_resp2, asks_for_resp3, asks_of_writes, blocks, kind_of,
    loads_script, marks_connection, may_write, name_of,
};
use replies::Fate;

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
    stream: Rc<TcpStream>,
    input: Buffer,
    reader: CommandReader,
    out: Buffer,
    sides: [Side; 2],
    /// Handling of each server's present reply, by server; `None` before it was decided.
    replies: [Option<Fate>; 2],
    reply_queue: ReplyQueue,
    mailbox: Owner,
    deadline: Deadline,
    /// Action after all present commands are answered.
    next: After,
    writes: Writes,
    /// Whether a reply to a command that must not be repeated is still unread by the client.
    out_has_once: bool,
    /// Number of bytes reported to [`Memory`](super::super::client_memory::ClientMemory).
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
enum After {
    /// The session continues with more commands.
    Commands,
    /// The connection belongs to one server, beginning with this command.
    Tie(Command),
    /// The client gets an error, and the connection ends.
    Refuse,
}

/// Server that got those commands of a client that may have written data.
#[derive(Clone, Copy)]
enum Writes {
    None,
    /// All further commands go to this server too: the other server may not have the written data.
    At(Server),
    /// The connection is lost, and no server is known to have the written data.
    Lost,
}

enum Event {
    FromClient,
    ToClient,
    Order(RequestId, Server),
    Side(Server, SideEvent),
    Late,
    /// The client's connection is broken.
    Gone,
    /// The proxy drains, and the client is idle.
    Dismissed,
}

/// End of a client's session, with the outcome of its unanswered commands.
struct Over(End);

impl Writes {
    /// Returns the server that has the data written by this client; `None` if there is none.
    fn server(self) -> Option<Server> {
        match self {
            Self::At(server) => Some(server),
            Self::None | Self::Lost => None,
        }
    }

    fn lose(&mut self, server: Server) {
        if self.server() == Some(server) {
            *self = Self::Lost;
        }
    }
}

/// Serves a client until the client or the proxy closes the connection.
pub(crate) async fn serve(shared: Rc<Shared>, stream: TcpStream) {
    let limits = shared.config.limits;
    // A client without an address is gone already.
    let Ok(address) = stream.peer_addr() else { return };
    let mut session = Session {
        journal: Journal::new(Rc::clone(&shared), address),
        stream: Rc::new(stream),
        input: Buffer::default(),
        reader: CommandReader::new(limits.frame_bytes),
        out: Buffer::default(),
        sides: Default::default(),
        replies: [None; 2],
        reply_queue: ReplyQueue::default(),
        mailbox: Owner::default(),
        deadline: Deadline::new(&limits),
        next: After::Commands,
        writes: Writes::None,
        out_has_once: false,
        counted: 0,
        has_ended: false,
        is_half_closed: false,
        has_asked: false,
        is_dismissed: false,
        shared,
    };
    loop {
        if let Err(Over(end)) = session.step().await {
            session.end(end);
            if session.is_dismissed {
                linger(&session.stream, &mut session.deadline).await;
            }
            return;
        }
    }
}

impl Session {
    async fn step(&mut self) -> Result<(), Over> {
        if self.has_asked && !self.has_ended && self.shared.drain.has_begun() {
            self.dismiss()?;
        }
        self.take_commands();
        self.collect_replies()?;
        self.count_memory();
        if self.reply_queue.waiting() == 0 && self.out.is_empty() {
            match &self.next {
                After::Commands if self.has_ended => return Err(Over(End::ClientLeft)),
                After::Commands => {}
                After::Tie(_) => {
                    self.pass().await;
                    return Err(Over(End::ClientLeft));
                }
                After::Refuse => {
                    self.say_last(NO_RESP);
                    self.journal.is_refused(NO_RESP);
                    return Err(Over(End::Failed(400)));
                }
            }
        }
        match self.event().await {
            Event::FromClient => self.read_client(),
            Event::ToClient => self.write_client(),
            Event::Order(request_id, to) => {
                self.copy(request_id, to);
                Ok(())
            }
            Event::Side(server, event) => self.on_side(server, event),
            Event::Late => self.late(),
            Event::Gone => Err(Over(End::ClientLeft)),
            Event::Dismissed => {
                self.has_asked = true;
                Ok(())
            }
        }
    }

    /// Stops reading from the client for a drain. Commands that have arrived are still answered.
    fn dismiss(&mut self) -> Result<(), Over> {
        self.read_client()?;
        self.is_dismissed = !self.input.is_empty() || self.reply_queue.waiting() > 0 || !self.out.is_empty();
        self.has_ended = true;
        Ok(())
    }

    async fn event(&mut self) -> Event {
        if self.is_idle() && self.out.is_empty() && !self.has_ended {
            let shared = Rc::clone(&self.shared);
            let mut dismissed = std::pin::pin!(shared.drain.closes_idle(self.has_asked));
            return std::future::poll_fn(|cx| match self.poll_event(cx) {
                Poll::Pending => dismissed.as_mut().poll(cx).map(|()| Event::Dismissed),
                ready => ready,
            })
            .await;
        }
        if self.wants_more() {
            // No extra check is needed: a read also reports a broken connection.
            return std::future::poll_fn(|cx| self.poll_event(cx)).await;
        }
        let stream = Rc::clone(&self.stream);
        let mut broken = std::pin::pin!(stream.ready(Interest::ERROR));
        std::future::poll_fn(|cx| match self.poll_event(cx) {
            Poll::Pending => broken.as_mut().poll(cx).map(|_| Event::Gone),
            ready => ready,
        })
        .await
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if let Some((request_id, to)) = self.mailbox.next(cx) {
            return Poll::Ready(Event::Order(request_id, to));
        }
        if !self.out.is_empty() && self.stream.poll_write_ready(cx).is_ready() {
            return Poll::Ready(Event::ToClient);
        }
        for server in Server::BOTH {
            if self.has_room_for_replies(server)
                && let Poll::Ready(event) = self.sides[server.index()].poll(cx)
            {
                return Poll::Ready(Event::Side(server, event));
            }
        }
        if self.wants_more() && self.stream.poll_read_ready(cx).is_ready() {
            return Poll::Ready(Event::FromClient);
        }
        if !self.shared.memory.has_room() {
            self.shared.memory.wait(cx);
        }
        self.deadline.poll_over(cx).map(|()| Event::Late)
    }

    /// Returns whether more replies of this server may be read. Replies that wait for one of the other server must not
    /// keep that one from being read.
    fn has_room_for_replies(&self, server: Server) -> bool {
        let kept = self.reply_queue.kept_bytes() + self.sides[server.index()].kept_bytes();
        self.out.data().len() < UNREAD_MAX && (kept < UNREAD_MAX || self.reply_queue.owes_next(server))
    }

    fn wants_more(&self) -> bool {
        self.has_room() && self.out.data().len() < UNREAD_MAX && !self.has_ended
    }

    /// Sends all commands that have arrived completely to servers.
    fn take_commands(&mut self) {
        while !self.input.is_empty() && self.has_room() {
            match self.reader.read(self.input.data()) {
                Ok((used, command)) => {
                    self.input.consume(used);
                    match command {
                        Some(command) => self.take_command(command),
                        None => break,
                    }
                }
                Err(_) => self.next = After::Refuse,
            }
        }
    }

    /// Returns whether another command may be read. A client without commands may always send one, however long.
    fn has_room(&self) -> bool {
        let limits = &self.shared.config.limits;
        let is_first = self.reply_queue.waiting() == 0;
        let is_room =
            is_first || (self.reply_queue.waiting() < limits.pipeline && self.command_bytes() < limits.pipeline_bytes);
        let is_memory = self.shared.memory.has_room() || (is_first && self.reader.held_bytes() == 0);
        matches!(self.next, After::Commands) && is_room && is_memory
    }

    /// Returns the number of bytes of unanswered commands.
    fn command_bytes(&self) -> usize {
        self.reply_queue.command_bytes() + self.sides.iter().map(Side::unsent_bytes).sum::<usize>()
    }

    fn count_memory(&mut self) {
        let replies = self.reply_queue.kept_bytes() + self.out.data().len();
        let sides: usize = self.sides.iter().map(Side::kept_bytes).sum();
        let bytes = self.command_bytes() + self.reader.held_bytes() + self.input.data().len() + replies + sides;
        self.shared.memory.change(self.counted, bytes);
        self.counted = bytes;
    }

    fn take_command(&mut self, command: Command) {
        let limits = &self.shared.config.limits;
        let kind = match kind_of(&command, &self.shared.config.repeatable) {
            // A long command is kept until it is answered in any case, but is not sent to a second server.
            Kind::Repeatable if command.bytes().len() > limits.copy_bytes => Kind::Once,
            Kind::Tied if asks_for_resp3(&command) && self.may_greet() => Kind::Once,
            Kind::Once if asks_for_resp2(&command) && self.sides.iter().any(Side::has_greeting) => Kind::Tied,
            kind => kind,
        };
        if kind == Kind::Tied {
            self.next = After::Tie(command);
            return;
        }
        // A command after one that changes data goes to the same server, in order, and so do later ones.
        let follows = self.reply_queue.tied_to().or(self.writes.server());
        let (is_repeatable, label) = (kind == Kind::Repeatable && follows.is_none(), Label::of(name_of(&command)));
        if kind == Kind::Once {
            let mut table = self.shared.table.borrow_mut();
            self.reply_queue.pin().into_iter().for_each(|request_id| table.pin(request_id));
        }
        if self.reply_queue.waiting() == 0 {
            self.deadline.start(limits.answer_time);
        }
        let (request_id, to) = self.shared.admit(Class { is_repeatable, follows, label }, &self.mailbox);
        if self.is_half_closed {
            self.shared.table.borrow_mut().stop_hedging(request_id);
        }
        self.journal.begin(request_id, &command);
        if kind == Kind::Once && may_write(&command) {
            self.writes = Writes::At(to);
        }
        let side = &mut self.sides[to.index()];
        side.send(&self.shared, to, command.bytes());
        if marks_connection(&command) {
            side.mark();
        }
        if is_repeatable {
            self.shared.note_sample(command.bytes());
        }
        if asks_for_resp3(&command) {
            let greeting: Rc<[u8]> = command.bytes().into();
            self.sides.iter_mut().for_each(|side| side.greet(Rc::clone(&greeting)));
        }
        if loads_script(&command) {
            self.shared.tell_too(to.other(), command.bytes());
        }
        self.reply_queue.ask(request_id, to, command.into_bytes(), is_repeatable);
    }

    /// Returns whether the client has sent no command yet, so that all its connections can begin with a greeting.
    fn may_greet(&self) -> bool {
        self.reply_queue.waiting() == 0 && self.sides.iter().all(Side::is_new)
    }

    /// Sends a copy of a command to another server, as the request table orders.
    fn copy(&mut self, request_id: RequestId, to: Server) {
        match self.reply_queue.copy(request_id, to) {
            Some(command) => self.sides[to.index()].send(&self.shared, to, command),
            None => self.shared.table.borrow_mut().not_sent(request_id, to),
        }
    }

    fn is_idle(&self) -> bool {
        self.reply_queue.waiting() == 0 && self.input.is_empty() && self.reader.is_between_commands()
    }

    fn read_client(&mut self) -> Result<(), Over> {
        match self.input.fill(&self.stream) {
            Ok(0) => {
                self.has_ended = true;
                self.is_half_closed = true;
                let mut table = self.shared.table.borrow_mut();
                self.reply_queue.request_ids().for_each(|request_id| table.stop_hedging(request_id));
            }
            Ok(_) => self.has_asked = true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Over(End::ClientLeft)),
        }
        Ok(())
    }

    fn write_client(&mut self) -> Result<(), Over> {
        match self.stream.try_write(self.out.data()) {
            Ok(count) => self.has_read(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Over(End::ClientLeft)),
        }
        Ok(())
    }

    fn has_read(&mut self, count: usize) {
        self.out.consume(count);
        match self.out.is_empty() {
            true => self.out_has_once = false,
            // Extend the deadline: a slow reader is not gone.
            false => self.deadline.start(self.shared.config.limits.answer_time),
        }
    }

    /// Handles a passed deadline: no server answered, or the client is idle.
    fn late(&mut self) -> Result<(), Over> {
        let is_unread = !self.out.is_empty();
        let has_failure = self.answer_failures();
        // Do not cut off a command that is sent once: a server may have executed it already, for example a pop.
        if self.reply_queue.has_once() || (is_unread && self.out_has_once) {
            self.deadline.start(self.shared.config.limits.answer_time);
            for stream in self
                .sides
                .iter()
                .filter_map(Side::connection)
                .map(|connection| &connection.stream)
                .chain([&*self.stream])
            {
                // Ignore an error: without keep-alive probes, a vanished peer is only noticed later.
                let _ = notice_its_end(stream);
            }
            return Ok(());
        }
        // A client that does not read its replies is itself too late.
        if self.reply_queue.waiting() == 0 || is_unread {
            return Err(Over(End::ClientLeft));
        }
        if self.replies.contains(&Some(Fate::PassedOn)) {
            return Err(Over(End::Cut));
        }
        if has_failure {
            self.deadline.start(self.shared.config.limits.answer_time);
            return Ok(());
        }
        self.say_last(LATE);
        Err(Over(End::Failed(504)))
    }

    /// Sends a last error. Does not wait if the socket is full: a message after a partial reply would be read as part
    /// of it.
    fn say_last(&mut self, what: &[u8]) {
        let left = self.out.data();
        if left.is_empty() || matches!(self.stream.try_write(left), Ok(count) if count == left.len()) {
            let _ = self.stream.try_write(what);
        }
    }

    /// Gives the connection to one server until it ends. The server that has the client's written data is preferred.
    async fn pass(&mut self) {
        let After::Tie(command) = std::mem::replace(&mut self.next, After::Refuse) else { return };
        self.shared.table.borrow_mut().tied();
        let active = self.shared.table.borrow().active();
        let to = match self.writes {
            Writes::At(server) => server,
            Writes::Lost if asks_of_writes(&command) => {
                self.journal.is_tied(&command, None);
                return self.say_last(SCATTERED);
            }
            _ if self.shared.config.table.unsafe_stay => Server::First,
            _ => active,
        };
        let connection = self.sides[to.index()].take_or_open_connection(&self.shared, to).await;
        self.journal.is_tied(&command, connection.is_some().then_some(to));
        let mut came = command.bytes().to_vec();
        came.extend_from_slice(self.input.data());
        let first = tunnel::First { bytes: &came, blocks: blocks(&command) };
        if let Some(client) = Rc::get_mut(&mut self.stream) {
            tunnel::pass(&self.shared, client, connection, first).await;
        }
    }

    /// Ends all unanswered commands. Keeps connections without pending replies and without state of this client for
    /// reuse.
    fn end(&mut self, end: End) {
        self.shared.memory.change(self.counted, 0);
        self.reply_queue.request_ids().for_each(|request_id| self.journal.finish(request_id, end, 0));
        let at = now_ns();
        for server in Server::BOTH {
            let owed: Vec<RequestId> = self.reply_queue.owed_by(server).collect();
            if let Some(first) = owed.first().filter(|_| end == End::Failed(504)) {
                self.shared.late(*first, server);
            }
            let mut table = self.shared.table.borrow_mut();
            owed.iter().for_each(|request_id| table.dropped(at, *request_id, server));
            drop(table);
            let is_clean = owed.is_empty() && !self.sides[server.index()].is_marked();
            if let Some(connection) = self.sides[server.index()].take_connection().filter(|_| is_clean) {
                self.shared.keep_connection(server, connection);
            }
        }
    }
}
