//! Exchange of one request and its answer, with copies at up to two servers at a time. The client gets the first answer
//! that is not a failure.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use sidelane_host::clock::now_ns;
use sidelane_policy::hedge::{SERVERS_MAX, Server};
use tokio::task::spawn_local;

use super::super::connection::ServerConnection;
use super::super::pace::Pace;
use super::super::shared::Shared;
use super::answer::{DroppedAnswer, ForwardedAnswer, Forwarding, drop_answer, forward_answer};
use super::client::{Client, Departure, Gone, wait_for_departure};
use super::upload;
use crate::http::{Forwarded, RequestHead, ResponseContext, ResponseHead, read_response};
use crate::request_table::{Loss, NextStep, Quality, RequestClass, RequestEnd, RequestId, ServerOutcome, Verdict};

/// Maximum number of dropped answers that are read at a time, so that their connections can be reused.
const DROPPING_MAX: usize = 32;

/// Copy of the request at one server.
pub(super) enum Copy {
    /// Connection that is being established.
    Connecting(Pin<Box<dyn Future<Output = Option<ServerConnection>>>>),
    /// Established connection, with the number of request bytes that were sent.
    Connected(ServerConnection, usize),
    /// Established connection whose answer is a failure, with the number of request bytes that were sent. The head of
    /// the answer is still in the connection's input.
    KeptFailure(ServerConnection, usize),
}

pub(super) struct Exchange<'a> {
    pub(super) shared: &'a Rc<Shared>,
    pub(super) client: &'a mut Client,
    pub(super) request_id: RequestId,
    wanted: ResponseContext,
    pub(super) is_repeatable: bool,
    copies: [Option<Copy>; SERVERS_MAX],
}

/// Event that ends the wait for an answer.
enum Event {
    Order(RequestId, Server),
    Connected(Server, Option<ServerConnection>),
    Readable(Server),
    Broken(Server),
    Departed(Departure),
    Late,
}

/// Sends a request to a server, and forwards its answer.
pub(super) async fn handle_request(
    shared: &Rc<Shared>,
    client: &mut Client,
    head: RequestHead,
    class: RequestClass,
) -> ConnectionAction {
    let (request_id, to) = shared.admit(class, &client.mailbox);
    client.journal.record_admission(request_id);
    let keeps_alive = head.keeps_alive;
    let wanted = ResponseContext {
        number: shared.request_number(request_id.number),
        is_head: head.is_head,
        is_old: head.is_old,
        keeps_alive,
        has_via: shared.config.forwarded != Forwarded::Off,
    };
    let is_repeatable = class.is_repeatable;
    let mut exchange = Exchange { shared, client, request_id, wanted, is_repeatable, copies: Default::default() };
    if exchange.client.is_half_closed {
        shared.table.borrow_mut().stop_hedging(request_id);
    }
    let outcome = exchange.run(head, to).await;
    exchange.drop_copies();
    let (end, after) = match outcome {
        Ok(after) => after,
        Err(Failure::Gone) => (RequestEnd::ClientLeft, ConnectionAction::Abort),
        Err(Failure::Error(status, why)) => {
            client.fail_request(request_id, status, why).await;
            return ConnectionAction::Close;
        }
    };
    client.journal.finish(request_id, end);
    after
}

impl Exchange<'_> {
    async fn run(&mut self, mut head: RequestHead, to: Server) -> Result<(RequestEnd, ConnectionAction), Failure> {
        self.client.deadline.start(self.shared.config.limits.answer_time);
        self.client.pace = Pace::new(self.shared.config.limits.idle_time);
        if !head.body.is_complete() {
            let answered = upload::send_upload(self, to, &mut head).await?;
            return forward_answer(self.forwarding(head.upgrades, head.body.is_complete()), answered).await;
        }
        self.start_copy(to);
        let answered = self.wait_for_first_answer().await?;
        self.drop_other_copies(answered.by);
        if self.is_repeatable && ServerOutcome::Status(answered.head.status).quality() == Quality::Success {
            self.shared.note_sample(&self.client.request);
        }
        forward_answer(self.forwarding(head.upgrades, true), answered).await
    }

    fn forwarding(&mut self, may_switch: bool, is_request_read: bool) -> Forwarding<'_> {
        let wanted = self.response_context();
        let Self { shared, client, request_id, .. } = self;
        Forwarding { shared, client, request_id: *request_id, wanted, may_switch, is_read: is_request_read }
    }

    /// Returns the properties of the request that determine the form of its answer. During a drain, no connection is
    /// kept.
    pub(super) fn response_context(&self) -> ResponseContext {
        let keeps_alive = self.wanted.keeps_alive && !self.shared.drain.has_begun();
        ResponseContext { keeps_alive, ..self.wanted }
    }

    /// Starts a copy that the request table counts as sent.
    fn start_copy(&mut self, to: Server) {
        let idle = if self.is_repeatable {
            self.shared.take_idle_connection(to)
        } else {
            self.shared.take_recent_connection(to)
        };
        match idle {
            Some(connection) => self.start_sending(to, connection),
            None => self.connect(to),
        }
    }

    fn connect(&mut self, to: Server) {
        let connecting = Rc::clone(self.shared).next_connection(to);
        self.copies[to.index()] = Some(Copy::Connecting(Box::pin(connecting)));
    }

    fn start_sending(&mut self, to: Server, connection: ServerConnection) {
        self.shared.table.borrow_mut().record_connection(self.request_id, to, connection.port);
        self.copies[to.index()] = Some(Copy::Connected(connection, 0));
    }

    /// Waits for the first answer, and carries out the orders of the request table until then.
    async fn wait_for_first_answer(&mut self) -> Result<ForwardedAnswer, Failure> {
        loop {
            let answer = match self.next_event().await {
                Event::Order(request_id, to) => {
                    if request_id == self.request_id {
                        self.start_copy(to);
                    }
                    None
                }
                Event::Connected(server, Some(connection)) => {
                    self.start_sending(server, connection);
                    None
                }
                Event::Connected(server, None) => self.handle_copy_loss(server, Loss::NotSent)?,
                Event::Broken(server) => self.handle_connection_end(server, false)?,
                Event::Readable(server) => self.read_answer(server).await?,
                Event::Departed(departure) => {
                    self.handle_departure(departure)?;
                    None
                }
                Event::Late => Some(self.handle_timeout()?),
            };
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
    }

    /// Ends the wait for an answer after the time limit. Returns a failure answer that was kept, if there is one.
    fn handle_timeout(&mut self) -> Result<ForwardedAnswer, Failure> {
        // First stop hedges of this request: `record_timeout` may eject a server, and an ejection hedges the server's
        // requests.
        self.shared.table.borrow_mut().stop_hedging(self.request_id);
        for server in Server::ALL {
            if let Some(Copy::Connected(_, 1..)) = self.copies[server.index()] {
                self.shared.record_timeout(self.request_id, server);
            }
        }
        let kept = self.shared.table.borrow_mut().end_wait_for_copies(now_ns(), self.request_id);
        kept.and_then(|server| self.take_kept_failure_answer(server)).ok_or(LATE)
    }

    /// Takes the failure answer that was kept from this server, and writes its head to `out`.
    fn take_kept_failure_answer(&mut self, server: Server) -> Option<ForwardedAnswer> {
        let Some(Copy::KeptFailure(mut connection, sent)) = self.copies[server.index()].take() else { return None };
        self.client.out.clear();
        let head_bytes = self.shared.config.limits.head_bytes;
        let head = read_response(connection.input.data(), head_bytes, self.response_context(), &mut self.client.out)
            .ok()??;
        connection.input.consume(head.bytes);
        Some(ForwardedAnswer { by: server, connection, head, is_asked: sent == self.client.request.len() })
    }

    async fn next_event(&mut self) -> Event {
        let Client { stream, mailbox, deadline, request, is_half_closed, .. } = &mut *self.client;
        let mut departs = std::pin::pin!(wait_for_departure(stream.socket(), *is_half_closed));
        std::future::poll_fn(|cx| {
            if let Some((request_id, to)) = mailbox.poll_order(cx) {
                return Poll::Ready(Event::Order(request_id, to));
            }
            for (server, copy) in Server::ALL.into_iter().zip(&mut self.copies) {
                if let Some(Poll::Ready(event)) = copy.as_mut().map(|copy| poll_copy(copy, server, request, cx)) {
                    return Poll::Ready(event);
                }
            }
            if let Poll::Ready(departure) = departs.as_mut().poll(cx) {
                return Poll::Ready(Event::Departed(departure));
            }
            deadline.poll_expired(cx).map(|()| Event::Late)
        })
        .await
    }

    /// Handles the departure of the client: a half-closed client gets no hedge, and a gone client ends the exchange.
    pub(super) fn handle_departure(&mut self, departure: Departure) -> Result<(), Failure> {
        if self.client.record_departure(departure, &self.shared.config.limits) {
            return Err(Failure::Gone);
        }
        self.shared.table.borrow_mut().stop_hedging(self.request_id);
        Ok(())
    }

    /// Reads from a server. Returns the answer if its head is complete.
    async fn read_answer(&mut self, server: Server) -> Result<Option<ForwardedAnswer>, Failure> {
        let limits = self.shared.config.limits;
        let Some(Copy::Connected(connection, _)) = &mut self.copies[server.index()] else { return Ok(None) };
        match connection.input.fill(&connection.stream) {
            Ok(0) => return self.handle_connection_end(server, true),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(_) => return self.handle_connection_end(server, false),
        }
        let wanted = self.response_context();
        loop {
            let Some(Copy::Connected(connection, _)) = &mut self.copies[server.index()] else { return Ok(None) };
            self.client.out.clear();
            let read = read_response(connection.input.data(), limits.head_bytes, wanted, &mut self.client.out);
            let head = match read {
                Ok(Some(head)) => head,
                Ok(None) => return Ok(None),
                // Give up only this copy: another server may have the request too, or may still get it.
                Err(_) => return self.handle_copy_loss(server, Loss::Malformed).map_err(|_| MALFORMED),
            };
            if head.is_interim() {
                connection.input.consume(head.bytes);
                self.forward_interim_answer().await?;
                continue;
            }
            return Ok(self.decide_on_answer(server, head));
        }
    }

    /// Asks the request table whether the answer of `server` is forwarded, kept or dropped. Its head `head` is in
    /// `out`, and still in the input of its connection. Returns the answer to forward, if there is one.
    fn decide_on_answer(&mut self, server: Server, head: ResponseHead) -> Option<ForwardedAnswer> {
        match self.shared.record_answer(self.request_id, server, ServerOutcome::Status(head.status)) {
            Verdict::Forward(by) if by == server => {
                let Some(Copy::Connected(mut connection, sent)) = self.copies[server.index()].take() else {
                    return None;
                };
                connection.input.consume(head.bytes);
                Some(ForwardedAnswer { by, connection, head, is_asked: sent == self.client.request.len() })
            }
            Verdict::Forward(kept) => self.take_kept_failure_answer(kept),
            Verdict::Keep => {
                if let Some(Copy::Connected(connection, sent)) = self.copies[server.index()].take() {
                    self.copies[server.index()] = Some(Copy::KeptFailure(connection, sent));
                }
                None
            }
            Verdict::Drop => None,
        }
    }

    /// Forwards the interim answer in `out`. Drops it if the request may have copies at two servers.
    async fn forward_interim_answer(&mut self) -> Result<(), Failure> {
        if self.is_repeatable || self.wanted.is_old {
            self.client.out.clear();
        }
        Ok(self.client.write_out().await?)
    }

    /// Handles the end of a server connection, by an orderly close or by a reset.
    fn handle_connection_end(
        &mut self,
        server: Server,
        is_orderly_close: bool,
    ) -> Result<Option<ForwardedAnswer>, Failure> {
        let loss = match &self.copies[server.index()] {
            Some(Copy::Connected(connection, sent)) => connection.classify_loss(*sent, is_orderly_close),
            _ => Some(Loss::NotSent),
        };
        match loss {
            Some(loss) => self.handle_copy_loss(server, loss),
            None => {
                self.connect(server);
                Ok(None)
            }
        }
    }

    /// Handles a lost copy as the request table says. Returns a failure answer that was kept earlier, if it is to be
    /// forwarded.
    fn handle_copy_loss(&mut self, server: Server, loss: Loss) -> Result<Option<ForwardedAnswer>, Failure> {
        self.copies[server.index()] = None;
        match self.shared.record_loss(self.request_id, server, loss) {
            NextStep::Send(to) => self.start_copy(to),
            NextStep::Wait => {}
            NextStep::Forward(kept) => return self.take_kept_failure_answer(kept).map(Some).ok_or(LOST),
            NextStep::GiveUp => return Err(LOST),
        }
        Ok(None)
    }

    /// Returns whether one more dropped answer may be read. Reading a dropped answer keeps a file open.
    fn can_read_dropped_answer(&self) -> bool {
        self.shared.dropping.get() < DROPPING_MAX
    }

    /// Handles the copies at other servers: reads and drops their answers, or closes their connections.
    fn drop_other_copies(&mut self, answered_by: Server) {
        for other in Server::ALL.into_iter().filter(|server| *server != answered_by) {
            if let Some(copy) = self.copies[other.index()].take() {
                self.drop_other_copy(other, copy);
            }
        }
    }

    fn drop_other_copy(&self, other: Server, copy: Copy) {
        // The request table has already recorded the head of a kept failure answer.
        let is_new = matches!(copy, Copy::Connected(..));
        match copy {
            Copy::Connected(connection, sent) | Copy::KeptFailure(connection, sent)
                if sent == self.client.request.len() && self.can_read_dropped_answer() =>
            {
                let (shared, request_id, is_head) = (Rc::clone(self.shared), self.request_id, self.wanted.is_head);
                drop(spawn_local(drop_answer(
                    shared,
                    connection,
                    DroppedAnswer { of: other, request_id, is_head, is_new },
                )));
            }
            copy => self.drop_copy(other, &copy),
        }
    }

    /// Gives up the copies that are still unanswered.
    fn drop_copies(&mut self) {
        for server in Server::ALL {
            if let Some(copy) = self.copies[server.index()].take() {
                self.drop_copy(server, &copy);
            }
        }
    }

    fn drop_copy(&self, server: Server, copy: &Copy) {
        let mut table = self.shared.table.borrow_mut();
        match copy {
            Copy::Connected(_, 1..) | Copy::KeptFailure(..) => {
                table.count_dropped_answer(now_ns(), self.request_id, server)
            }
            Copy::Connected(..) | Copy::Connecting(_) => table.record_not_sent(self.request_id, server),
        }
    }
}

fn poll_copy(copy: &mut Copy, server: Server, request: &[u8], cx: &mut Context<'_>) -> Poll<Event> {
    match copy {
        Copy::KeptFailure(..) => Poll::Pending,
        Copy::Connecting(connecting) => {
            connecting.as_mut().poll(cx).map(|connection| Event::Connected(server, connection))
        }
        Copy::Connected(connection, sent) => {
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

/// Handling of the client's connection after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionAction {
    KeepAlive,
    Close,
    /// The answer broke off, or the client is gone: the connection ends without the sign of a complete answer.
    Abort,
    /// The proxy drains. It closes the connection after the client has closed its side, since more data may be in
    /// flight.
    CloseAfterClient,
    /// The connection is closed after the client has sent the rest of its request, which is dropped.
    Linger,
}

/// Reason why there is no answer to forward.
#[derive(Debug)]
pub(super) enum Failure {
    /// The client gets an error with this status and text.
    Error(u16, &'static str),
    /// The client is gone.
    Gone,
}

impl From<Gone> for Failure {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

pub(super) const LOST: Failure = Failure::Error(
    502,
    "no server can be reached, or the server was lost before it \
                                                      answered",
);
pub(super) const MALFORMED: Failure = Failure::Error(502, "the answer of the server is not HTTP");
pub(super) const SLOW: Failure = Failure::Error(
    408,
    "the body of the request came too slowly: less than 500 bytes per second on average, or no byte within the idle \
     time",
);
pub(super) const LATE: Failure = Failure::Error(504, "no server answered in time");
