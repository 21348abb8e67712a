//! One request and its answer: copies at up to two servers. The first answer that is no failure counts.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use sidelane_policy::hedge::Server;
use tokio::task::spawn_local;

use super::super::connection::ServerConnection;
use super::super::pace::Pace;
use super::super::shared::{Shared, now};
use super::answer::{Answered, Dropped, Forwarding, drop_answer, relay};
use super::client::{Client, Departure, Gone, departure};
use super::upload;
use crate::http::{Forwarded, RequestHead, ResponseHead, Wanted, read_response};
use crate::request_table::{Class, End, Loss, Next, Outcome, Quality, RequestId, Verdict};

/// Later answers that are waited for, so that their connections can be used again.
const DROPPING_MAX: usize = 32;

/// A copy of the request at one server.
pub(super) enum Copy {
    /// A connection is being made.
    Connecting(Pin<Box<dyn Future<Output = Option<ServerConnection>>>>),
    /// The connection, and how many bytes of the request were sent.
    There(ServerConnection, usize),
    /// As `There`; the answer is a failure, whose head is still in the connection's input.
    Kept(ServerConnection, usize),
}

/// A request on its way.
pub(super) struct Exchange<'a> {
    pub(super) shared: &'a Rc<Shared>,
    pub(super) client: &'a mut Client,
    pub(super) request_id: RequestId,
    wanted: Wanted,
    pub(super) is_repeatable: bool,
    copies: [Option<Copy>; 2],
}

/// What happens while an answer is waited for.
enum Event {
    Order(RequestId, Server),
    Connected(Server, Option<ServerConnection>),
    Readable(Server),
    Broken(Server),
    Departed(Departure),
    Late,
}

/// Sends a request on and brings its answer.
pub(super) async fn exchange(shared: &Rc<Shared>, client: &mut Client, head: RequestHead, class: Class) -> After {
    let (request_id, to) = shared.admit(class, &client.mailbox);
    client.journal.begin(request_id);
    let keeps_alive = head.keeps_alive;
    let wanted = Wanted {
        number: shared.number(request_id.number),
        is_head: head.is_head,
        is_old: head.is_old,
        keeps_alive,
        has_via: shared.config.forwarded != Forwarded::Off,
    };
    let is_repeatable = class.is_repeatable;
    let mut exchange = Exchange { shared, client, request_id, wanted, is_repeatable, copies: [None, None] };
    if exchange.client.is_half_closed {
        shared.table.borrow_mut().stop_hedging(request_id);
    }
    let outcome = exchange.run(head, to).await;
    exchange.drop_copies();
    let (end, after) = match outcome {
        Ok(after) => after,
        Err(Failure::Gone) => (End::ClientLeft, After::Close),
        Err(Failure::Error(status, why)) => {
            client.fail(request_id, status, why).await;
            return After::Close;
        }
    };
    client.journal.finish(request_id, end);
    after
}

impl Exchange<'_> {
    async fn run(&mut self, mut head: RequestHead, to: Server) -> Result<(End, After), Failure> {
        self.client.deadline.start(self.shared.config.limits.answer_time);
        self.client.pace = Pace::new(self.shared.config.limits.idle_time);
        if !head.body.is_over() {
            let answered = upload::send(self, to, &mut head).await?;
            return relay(self.forwarding(head.upgrades, head.body.is_over()), answered).await;
        }
        self.start(to);
        let answered = self.first_answer().await?;
        self.drop_other(answered.by);
        if self.is_repeatable && Outcome::Status(answered.head.status).quality() == Quality::Success {
            self.shared.note_sample(&self.client.request);
        }
        relay(self.forwarding(head.upgrades, true), answered).await
    }

    fn forwarding(&mut self, may_switch: bool, is_read: bool) -> Forwarding<'_> {
        let wanted = self.wanted();
        let Self { shared, client, request_id, .. } = self;
        Forwarding { shared, client, request_id: *request_id, wanted, may_switch, is_read }
    }

    /// What the client asked for; a proxy that drains keeps no connection.
    pub(super) fn wanted(&self) -> Wanted {
        let keeps_alive = self.wanted.keeps_alive && !self.shared.drain.has_begun();
        Wanted { keeps_alive, ..self.wanted }
    }

    /// Begins a copy that the request table counts as sent.
    fn start(&mut self, to: Server) {
        let idle =
            if self.is_repeatable { self.shared.idle_connection(to) } else { self.shared.just_used_connection(to) };
        match idle {
            Some(connection) => self.send_on(to, connection),
            None => self.connect(to),
        }
    }

    fn connect(&mut self, to: Server) {
        let connecting = Rc::clone(self.shared).next_connection(to);
        self.copies[to.index()] = Some(Copy::Connecting(Box::pin(connecting)));
    }

    fn send_on(&mut self, to: Server, connection: ServerConnection) {
        self.shared.table.borrow_mut().connected(self.request_id, to, connection.port);
        self.copies[to.index()] = Some(Copy::There(connection, 0));
    }

    /// Waits for the first answer, and carries out the orders of the request table until then.
    async fn first_answer(&mut self) -> Result<Answered, Failure> {
        loop {
            let answer = match self.event().await {
                Event::Order(request_id, to) => {
                    if request_id == self.request_id {
                        self.start(to);
                    }
                    None
                }
                Event::Connected(server, Some(connection)) => {
                    self.send_on(server, connection);
                    None
                }
                Event::Connected(server, None) => self.lose(server, Loss::NotSent)?,
                Event::Broken(server) => self.lose_connection(server, false)?,
                Event::Readable(server) => self.read(server).await?,
                Event::Departed(departure) => {
                    self.departed(departure)?;
                    None
                }
                Event::Late => Some(self.late()?),
            };
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
    }

    /// The time for an answer is up.
    fn late(&mut self) -> Result<Answered, Failure> {
        // It may end the service of a server, which hedges the requests there.
        self.shared.table.borrow_mut().stop_hedging(self.request_id);
        for server in Server::BOTH {
            if let Some(Copy::There(_, 1..)) = self.copies[server.index()] {
                self.shared.late(self.request_id, server);
            }
        }
        let kept = self.shared.table.borrow_mut().late(now(), self.request_id);
        kept.and_then(|server| self.forward_kept(server)).ok_or(LATE)
    }

    /// The failure that this server answered, with its head in `out`.
    fn forward_kept(&mut self, server: Server) -> Option<Answered> {
        let Some(Copy::Kept(mut connection, sent)) = self.copies[server.index()].take() else { return None };
        self.client.out.clear();
        let head_bytes = self.shared.config.limits.head_bytes;
        let head = read_response(connection.input.data(), head_bytes, self.wanted(), &mut self.client.out).ok()??;
        connection.input.consume(head.bytes);
        Some(Answered { by: server, connection, head, is_asked: sent == self.client.request.len() })
    }

    async fn event(&mut self) -> Event {
        let Client { stream, mailbox, deadline, request, is_half_closed, .. } = &mut *self.client;
        let mut departs = std::pin::pin!(departure(stream, *is_half_closed));
        std::future::poll_fn(|cx| {
            if let Some((request_id, to)) = mailbox.next(cx) {
                return Poll::Ready(Event::Order(request_id, to));
            }
            for (server, copy) in Server::BOTH.into_iter().zip(&mut self.copies) {
                if let Some(Poll::Ready(event)) = copy.as_mut().map(|copy| poll_copy(copy, server, request, cx)) {
                    return Poll::Ready(event);
                }
            }
            if let Poll::Ready(departure) = departs.as_mut().poll(cx) {
                return Poll::Ready(Event::Departed(departure));
            }
            deadline.poll_over(cx).map(|()| Event::Late)
        })
        .await
    }

    /// A client that may be gone costs no hedge; one that is gone costs nothing more.
    pub(super) fn departed(&mut self, departure: Departure) -> Result<(), Failure> {
        if self.client.is_left(departure, &self.shared.config.limits) {
            return Err(Failure::Gone);
        }
        self.shared.table.borrow_mut().stop_hedging(self.request_id);
        Ok(())
    }

    /// Reads what has come from this server: an answer, if its head is whole.
    async fn read(&mut self, server: Server) -> Result<Option<Answered>, Failure> {
        let limits = self.shared.config.limits;
        let Some(Copy::There(connection, _)) = &mut self.copies[server.index()] else { return Ok(None) };
        match connection.input.fill(&connection.stream) {
            Ok(0) => return self.lose_connection(server, true),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(_) => return self.lose_connection(server, false),
        }
        let wanted = self.wanted();
        loop {
            let Some(Copy::There(connection, _)) = &mut self.copies[server.index()] else { return Ok(None) };
            self.client.out.clear();
            let read = read_response(connection.input.data(), limits.head_bytes, wanted, &mut self.client.out);
            let head = match read {
                Ok(Some(head)) => head,
                Ok(None) => return Ok(None),
                // The other server may have the request, too, or may be asked.
                Err(_) => return self.lose(server, Loss::Malformed).map_err(|_| MALFORMED),
            };
            if head.is_interim() {
                connection.input.consume(head.bytes);
                self.pass_interim().await?;
                continue;
            }
            return Ok(self.judge(server, head));
        }
    }

    /// A final answer, whose head is in `out` and in the connection's input: the request table says which one is forwarded.
    fn judge(&mut self, server: Server, head: ResponseHead) -> Option<Answered> {
        match self.shared.answered(self.request_id, server, Outcome::Status(head.status)) {
            Verdict::Forward(by) if by == server => {
                let Some(Copy::There(mut connection, sent)) = self.copies[server.index()].take() else { return None };
                connection.input.consume(head.bytes);
                Some(Answered { by, connection, head, is_asked: sent == self.client.request.len() })
            }
            Verdict::Forward(kept) => self.forward_kept(kept),
            Verdict::Keep => {
                if let Some(Copy::There(connection, sent)) = self.copies[server.index()].take() {
                    self.copies[server.index()] = Some(Copy::Kept(connection, sent));
                }
                None
            }
            Verdict::Drop => None,
        }
    }

    /// An interim answer, in `out`, is passed on where only one server can send one.
    async fn pass_interim(&mut self) -> Result<(), Failure> {
        if self.is_repeatable || self.wanted.is_old {
            self.client.out.clear();
        }
        Ok(self.client.write_out().await?)
    }

    /// The connection to the server has ended, in order or by a reset.
    fn lose_connection(&mut self, server: Server, is_in_order: bool) -> Result<Option<Answered>, Failure> {
        let loss = match &self.copies[server.index()] {
            Some(Copy::There(connection, sent)) => connection.loss(*sent, is_in_order),
            _ => Some(Loss::NotSent),
        };
        match loss {
            Some(loss) => self.lose(server, loss),
            None => {
                self.connect(server);
                Ok(None)
            }
        }
    }

    /// The copy at this server is lost; the request table says what is done. The answer, if that is a failure that was kept.
    fn lose(&mut self, server: Server, loss: Loss) -> Result<Option<Answered>, Failure> {
        self.copies[server.index()] = None;
        match self.shared.lost(self.request_id, server, loss) {
            Next::Send(to) => self.start(to),
            Next::Wait => {}
            Next::Forward(kept) => return self.forward_kept(kept).map(Some).ok_or(LOST),
            Next::GiveUp => return Err(LOST),
        }
        Ok(None)
    }

    /// Whether few later answers are waited for: each has an open file.
    fn may_wait(&self) -> bool {
        self.shared.dropping.get() < DROPPING_MAX
    }

    /// The answer of the other server, if it was asked, is dropped when it comes, or its connection is closed.
    fn drop_other(&mut self, by: Server) {
        let other = by.other();
        let copy = self.copies[other.index()].take();
        // The request table knows of a failure that was kept.
        let is_new = matches!(copy, Some(Copy::There(..)));
        match copy {
            Some(Copy::There(connection, sent) | Copy::Kept(connection, sent))
                if sent == self.client.request.len() && self.may_wait() =>
            {
                let (shared, request_id, is_head) = (Rc::clone(self.shared), self.request_id, self.wanted.is_head);
                drop(spawn_local(drop_answer(shared, connection, Dropped { of: other, request_id, is_head, is_new })));
            }
            copy => self.drop_copy(other, copy),
        }
    }

    /// Gives up the copies that are still out.
    fn drop_copies(&mut self) {
        for server in Server::BOTH {
            let copy = self.copies[server.index()].take();
            self.drop_copy(server, copy);
        }
    }

    fn drop_copy(&self, of: Server, copy: Option<Copy>) {
        let mut table = self.shared.table.borrow_mut();
        match copy {
            Some(Copy::There(_, 1..) | Copy::Kept(..)) => table.dropped(now(), self.request_id, of),
            Some(Copy::There(..) | Copy::Connecting(_)) => table.not_sent(self.request_id, of),
            None => {}
        }
    }
}

fn poll_copy(copy: &mut Copy, server: Server, request: &[u8], cx: &mut Context<'_>) -> Poll<Event> {
    match copy {
        Copy::Kept(..) => Poll::Pending,
        Copy::Connecting(connecting) => {
            connecting.as_mut().poll(cx).map(|connection| Event::Connected(server, connection))
        }
        Copy::There(connection, sent) => {
            while *sent < request.len() {
                match connection.stream.try_write(&request[*sent..]) {
                    Ok(count) => *sent += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        match connection.stream.poll_write_ready(cx) {
                            Poll::Ready(Ok(())) => {}
                            Poll::Ready(Err(_)) => return Poll::Ready(Event::Broken(server)),
                            Poll::Pending => break,
                        }
                    }
                    Err(_) => return Poll::Ready(Event::Broken(server)),
                }
            }
            connection.stream.poll_read_ready(cx).map(|ready| match ready {
                Ok(()) => Event::Readable(server),
                Err(_) => Event::Broken(server),
            })
        }
    }
}

/// What becomes of the client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    KeepAlive,
    Close,
    /// The proxy drains: the connection is closed once the client has closed its side, which may have sent more.
    CloseAfterClient,
    /// It is closed once the client has sent the rest of its request, which is dropped.
    Linger,
}

/// No answer came.
#[derive(Debug)]
pub(super) enum Failure {
    /// The client is told so.
    Error(u16, &'static str),
    /// The client is gone.
    Gone,
}

impl From<Gone> for Failure {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

pub(super) const LOST: Failure = Failure::Error(502, "no server could be reached, or the one that was asked was lost");
pub(super) const MALFORMED: Failure = Failure::Error(502, "what the server answered is no HTTP");
pub(super) const SLOW: Failure = Failure::Error(
    408,
    "the body of the request came too slowly: less than 500 bytes a second on average, or nothing within the idle time",
);
pub(super) const LATE: Failure = Failure::Error(504, "no server answered in time");
