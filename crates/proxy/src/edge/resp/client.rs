//! One client: its commands, in order.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use sidelane_policy::hedge::Server;
use tokio::net::TcpStream;

use super::super::buffer::Buffer;
use super::super::mailbox::Owner;
use super::super::patience::Patience;
use super::super::shared::{Shared, now};
use super::side::{Side, SideEvent};
use super::tunnel;
use crate::desk::{Class, End, Label, Loss, Next, Quality, Ticket, Verdict};
use crate::resp::{BadFrame, Kind, Lineup, Reply, Scanner, asks_of_writes, kind_of, name_of};

/// Bytes of replies that the client has not read; nothing is read from it, nor from servers for it, until there are
/// fewer.
const UNREAD_MAX: usize = 256 << 10;
const LOST: &[u8] = b"-ERR sidelane: the server was lost before it answered; the command may have been carried out\r\n";
const LATE: &[u8] = b"-ERR sidelane: no server answered in time\r\n";
const NO_RESP: &[u8] =
    b"-ERR sidelane: that is no RESP, or too long, or an inline command with quotes or a blank before it\r\n";
const TOO_LONG: &[u8] =
    b"-ERR sidelane: the reply is longer than the proxy keeps: ask for parts, or the server itself\r\n";
const SCATTERED: &[u8] =
    b"-ERR sidelane: what was written went over several connections, or one that is lost: no server can tell\r\n";

/// One client's task.
struct Session {
    shared: Rc<Shared>,
    stream: TcpStream,
    input: Buffer,
    scanner: Scanner,
    out: Vec<u8>,
    sides: [Side; 2],
    lineup: Lineup,
    mailbox: Owner,
    patience: Patience,
    /// The next command gives the connection a state; it is sent when all before it are answered.
    state_comes: bool,
    writes: Writes,
    /// The client sends nothing any more.
    has_ended: bool,
}

/// Over which connection commands went that were sent once, and may have written.
#[derive(Clone, Copy)]
enum Writes {
    None,
    At(Server),
    /// Over several, or one that is lost: no server can tell who has what was written.
    Scattered,
}

enum Event {
    FromClient,
    ToClient,
    Order(Ticket, Server),
    Side(Server, SideEvent),
    Late,
}

/// Nothing is done for the client any more; what it has not been answered ends so.
struct Over(End);

impl Writes {
    fn note(&mut self, to: Server) {
        *self = match *self {
            Self::None => Self::At(to),
            Self::At(server) if server == to => *self,
            Self::At(_) | Self::Scattered => Self::Scattered,
        };
    }

    fn lose(&mut self, server: Server) {
        if matches!(*self, Self::At(at) if at == server) {
            *self = Self::Scattered;
        }
    }
}

/// Serves a client until one of both is done.
pub(crate) async fn serve(shared: Rc<Shared>, stream: TcpStream) {
    let limits = shared.config.limits;
    let side = || Side::new(limits.reply_bytes);
    let mut session = Session {
        stream,
        input: Buffer::default(),
        scanner: Scanner::of_commands(limits.frame_bytes),
        out: Vec::new(),
        sides: [side(), side()],
        lineup: Lineup::default(),
        mailbox: Owner::default(),
        patience: Patience::new(&limits),
        state_comes: false,
        writes: Writes::None,
        has_ended: false,
        shared,
    };
    loop {
        if let Err(Over(end)) = session.step().await {
            return session.end(end);
        }
    }
}

impl Session {
    async fn step(&mut self) -> Result<(), Over> {
        self.take_commands()?;
        self.collect_replies();
        let is_idle = self.lineup.waiting() == 0 && self.out.is_empty();
        if self.state_comes && is_idle {
            self.pass().await;
            return Err(Over(End::ClientLeft));
        }
        if self.has_ended && is_idle {
            return Err(Over(End::ClientLeft));
        }
        match std::future::poll_fn(|cx| self.poll_event(cx)).await {
            Event::FromClient => self.read_client(),
            Event::ToClient => self.write_client(),
            Event::Order(ticket, to) => {
                self.copy(ticket, to);
                Ok(())
            }
            Event::Side(server, event) => {
                self.on_side(server, event);
                Ok(())
            }
            Event::Late => self.late(),
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if let Some((ticket, to)) = self.mailbox.next(cx) {
            return Poll::Ready(Event::Order(ticket, to));
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
        self.patience.poll_over(cx).map(|()| Event::Late)
    }

    /// Whether more replies of this server are taken in. Those that wait for one of the other server must not keep it from
    /// coming.
    fn has_room_for_replies(&self, server: Server) -> bool {
        let is_room = self.lineup.kept_bytes() < UNREAD_MAX || self.lineup.owes_next(server);
        self.out.len() < UNREAD_MAX && is_room
    }

    fn wants_more(&self) -> bool {
        self.has_room() && self.out.len() < UNREAD_MAX && !self.has_ended
    }

    /// Sends on all commands that have come whole.
    fn take_commands(&mut self) -> Result<(), Over> {
        while !self.input.is_empty() && self.has_room() {
            match self.scanner.next(self.input.data()) {
                Ok(Some(length)) => self.take_command(length),
                Ok(None) => break,
                Err(_) => return self.refuse(),
            }
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.lineup.waiting() < self.shared.config.limits.pipeline && !self.state_comes
    }

    fn take_command(&mut self, length: usize) {
        let command = &self.input.data()[..length];
        let name = name_of(command);
        if name.is_empty() {
            self.input.consume(length);
            return;
        }
        let limits = &self.shared.config.limits;
        // What a client says of itself writes nothing.
        let may_write = !name.eq_ignore_ascii_case(b"CLIENT");
        let kind = match kind_of(command, &self.shared.config.repeatable) {
            // It is kept until it is answered, whatever it is; but no second server gets so much.
            Kind::Repeatable if length > limits.copy_bytes => Kind::Once,
            kind => kind,
        };
        if kind == Kind::Stateful {
            self.state_comes = true;
            return;
        }
        let follows = self.lineup.tied_to();
        // A command that follows one that changes something waits its turn at the same server.
        let class =
            Class { is_repeatable: kind == Kind::Repeatable && follows.is_none(), follows, label: Label::of(name) };
        if kind == Kind::Once {
            let mut desk = self.shared.desk.borrow_mut();
            self.lineup.pin().into_iter().for_each(|ticket| desk.pin(ticket));
        }
        if self.lineup.waiting() == 0 {
            self.patience.start(limits.answer_time);
        }
        let (ticket, to) = self.shared.admit(class, &self.mailbox);
        if kind == Kind::Once && may_write {
            self.writes.note(to);
        }
        self.lineup.ask(ticket, to, command, class.is_repeatable);
        self.sides[to.index()].send(&self.shared, to, command);
        if class.is_repeatable {
            self.shared.note_sample(command);
        }
        self.input.consume(length);
    }

    /// The desk wants a copy there.
    fn copy(&mut self, ticket: Ticket, to: Server) {
        match self.lineup.copy(ticket, to) {
            Some(command) => self.sides[to.index()].send(&self.shared, to, command),
            None => self.shared.desk.borrow_mut().not_sent(ticket, to),
        }
    }

    fn on_side(&mut self, server: Server, event: SideEvent) {
        let lost = match event {
            SideEvent::Readable => self.read_side(server).is_err().then_some(Loss::Sent),
            SideEvent::Lost(loss) => Some(loss),
        };
        if let Some(loss) = lost {
            self.lose(server, loss);
        }
    }

    fn read_side(&mut self, server: Server) -> io::Result<()> {
        // What came before an end counts.
        let read = self.sides[server.index()].read();
        loop {
            match self.sides[server.index()].next_reply() {
                Ok(Some(bytes)) => self.take_reply(server, bytes, true)?,
                Ok(None) => return read,
                Err(BadFrame::Malformed) => return Err(io::ErrorKind::InvalidData.into()),
                // The other server would say as much.
                Err(BadFrame::TooLong) => {
                    self.take_reply(server, TOO_LONG.to_vec(), false)?;
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
        }
    }

    /// Whether the server was asked for a reply at all.
    fn take_reply(&mut self, server: Server, bytes: Vec<u8>, is_servers: bool) -> io::Result<()> {
        let ticket = self.lineup.replied(server).ok_or(io::ErrorKind::InvalidData)?;
        let mut desk = self.shared.desk.borrow_mut();
        if desk.answered(now(), ticket, server, Quality::Success) == Verdict::Forward(server) {
            self.lineup.answer(Reply { ticket, bytes, is_servers });
            self.patience.start(self.shared.config.limits.answer_time);
        } else {
            desk.dropped(now(), ticket, server);
        }
        Ok(())
    }

    /// The connection to a server is lost: the desk says what becomes of each command.
    fn lose(&mut self, server: Server, loss: Loss) {
        self.sides[server.index()].close();
        self.writes.lose(server);
        for ticket in self.lineup.lose(server) {
            let next = self.shared.desk.borrow_mut().lost(now(), ticket, server, loss);
            match next {
                Next::Send(to) => self.copy(ticket, to),
                Next::Wait | Next::Forward(_) => {}
                Next::GiveUp => self.lineup.answer(Reply { ticket, bytes: LOST.to_vec(), is_servers: false }),
            }
        }
    }

    fn collect_replies(&mut self) {
        while let Some(reply) = self.lineup.next_reply() {
            let end = if reply.is_servers { End::Answered } else { End::Failed(502) };
            self.shared.desk.borrow_mut().finished(now(), reply.ticket, end);
            self.out.extend_from_slice(&reply.bytes);
        }
        if self.lineup.waiting() == 0 && self.input.is_empty() {
            self.patience.start(self.shared.config.limits.idle_time);
        }
    }

    fn read_client(&mut self) -> Result<(), Over> {
        match self.input.fill(&self.stream) {
            Ok(0) => self.has_ended = true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Over(End::ClientLeft)),
        }
        Ok(())
    }

    fn write_client(&mut self) -> Result<(), Over> {
        match self.stream.try_write(&self.out) {
            Ok(count) => self.has_read(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Over(End::ClientLeft)),
        }
        Ok(())
    }

    fn has_read(&mut self, count: usize) {
        self.out.drain(..count);
        // A slow reader is none that is gone.
        if !self.out.is_empty() {
            self.patience.start(self.shared.config.limits.answer_time);
        }
    }

    /// The client sends something else.
    fn refuse(&mut self) -> Result<(), Over> {
        self.say_last(NO_RESP);
        Err(Over(End::Failed(400)))
    }

    /// No server answers, or the client is idle.
    fn late(&mut self) -> Result<(), Over> {
        // Who does not read what has come is the one who is late.
        let is_client_late = self.lineup.waiting() == 0 || !self.out.is_empty();
        if is_client_late {
            return Err(Over(End::ClientLeft));
        }
        self.say_last(LATE);
        Err(Over(End::Failed(504)))
    }

    /// The connection ends; what does not fit is not waited for, and then nothing is said: it would be taken for a part of
    /// a reply.
    fn say_last(&mut self, what: &[u8]) {
        if matches!(self.stream.try_write(&self.out), Ok(count) if count == self.out.len()) {
            let _ = self.stream.try_write(what);
        }
    }

    /// From here on the connection is one server's.
    async fn pass(&mut self) {
        self.shared.desk.borrow_mut().tied();
        let came = self.input.data().to_vec();
        let active = self.shared.desk.borrow().active();
        let to = match self.writes {
            Writes::At(server) if asks_of_writes(&came) => server,
            Writes::Scattered if asks_of_writes(&came) => return self.say_last(SCATTERED),
            _ if self.shared.config.desk.unsafe_stay => Server::First,
            _ => active,
        };
        let link = self.sides[to.index()].take_link();
        tunnel::pass(&self.shared, &mut self.stream, to, &came, link).await;
    }

    /// What is not answered is over; connections that owe nothing are kept.
    fn end(&mut self, end: End) {
        let mut desk = self.shared.desk.borrow_mut();
        let at = now();
        for ticket in self.lineup.tickets() {
            desk.finished(at, ticket, end);
        }
        for server in Server::BOTH {
            let owed: Vec<Ticket> = self.lineup.owed_by(server).collect();
            owed.iter().for_each(|ticket| desk.dropped(at, *ticket, server));
            if let Some(link) = self.sides[server.index()].take_link().filter(|_| owed.is_empty()) {
                self.shared.keep_link(server, link);
            }
        }
    }
}
