//! One request and its answer: copies at up to two servers. The first answer that is no failure counts.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use sidelane_policy::hedge::Server;
use tokio::task::spawn_local;

use super::super::link::Link;
use super::super::pace::Pace;
use super::super::shared::{Shared, now};
use super::answer::{Answered, Dropped, Passage, drop_answer, relay};
use super::client::Client;
use super::departure::{Departure, departure};
use super::outcome::{After, Failure, LATE, LOST, MALFORMED};
use super::upload;
use crate::desk::{Class, End, Loss, Next, Outcome, Quality, Ticket, Verdict};
use crate::http::{Forwarded, RequestHead, ResponseHead, Wanted, read_response};

/// Later answers that are waited for, so that their connections can be used again.
const DROPPING_MAX: usize = 32;

/// A copy of the request at one server.
pub(super) enum Copy {
    /// A connection is being made.
    Connecting(Pin<Box<dyn Future<Output = Option<Link>>>>),
    /// So many bytes of the request were sent.
    There(Link, usize),
    /// As `There`; the answer is a failure, whose head is still in the link's input.
    Kept(Link, usize),
}

/// A request on its way.
pub(super) struct Exchange<'a> {
    pub(super) shared: &'a Rc<Shared>,
    pub(super) client: &'a mut Client,
    pub(super) ticket: Ticket,
    wanted: Wanted,
    pub(super) is_repeatable: bool,
    copies: [Option<Copy>; 2],
}

/// What happens while an answer is waited for.
enum Event {
    Order(Ticket, Server),
    Connected(Server, Option<Link>),
    Readable(Server),
    Broken(Server),
    Departed(Departure),
    Late,
}

/// Sends a request on and brings its answer.
pub(super) async fn exchange(shared: &Rc<Shared>, client: &mut Client, head: RequestHead, class: Class) -> After {
    let (ticket, to) = shared.admit(class, &client.mailbox);
    client.journal.begin(ticket);
    let keeps_alive = head.keeps_alive;
    let wanted = Wanted {
        number: shared.number(ticket.id),
        is_head: head.is_head,
        is_old: head.is_old,
        keeps_alive,
        has_via: shared.config.forwarded != Forwarded::Off,
    };
    let is_repeatable = class.is_repeatable;
    let mut exchange = Exchange { shared, client, ticket, wanted, is_repeatable, copies: [None, None] };
    if exchange.client.is_half_closed {
        shared.desk.borrow_mut().stop_hedging(ticket);
    }
    let outcome = exchange.run(head, to).await;
    exchange.drop_copies();
    let (end, after) = match outcome {
        Ok(after) => after,
        Err(Failure::Gone) => (End::ClientLeft, After::Close),
        Err(Failure::Error(status, why)) => {
            client.fail(ticket, status, why).await;
            return After::Close;
        }
    };
    client.journal.finish(ticket, end);
    after
}

impl Exchange<'_> {
    async fn run(&mut self, mut head: RequestHead, to: Server) -> Result<(End, After), Failure> {
        self.client.patience.start(self.shared.config.limits.answer_time);
        self.client.pace = Pace::new(self.shared.config.limits.idle_time);
        if !head.body.is_over() {
            let answered = upload::send(self, to, &mut head).await?;
            return relay(self.passage(head.upgrades, head.body.is_over()), answered).await;
        }
        self.start(to);
        let answered = self.first_answer().await?;
        self.drop_other(answered.by);
        if self.is_repeatable && Outcome::Status(answered.head.status).quality() == Quality::Success {
            self.shared.note_sample(&self.client.request);
        }
        relay(self.passage(head.upgrades, true), answered).await
    }

    fn passage(&mut self, may_switch: bool, is_read: bool) -> Passage<'_> {
        let wanted = self.wanted();
        let Self { shared, client, ticket, .. } = self;
        Passage { shared, client, ticket: *ticket, wanted, may_switch, is_read }
    }

    /// What the client asked for; a proxy that drains keeps no connection.
    pub(super) fn wanted(&self) -> Wanted {
        let keeps_alive = self.wanted.keeps_alive && !self.shared.drain.has_begun();
        Wanted { keeps_alive, ..self.wanted }
    }

    /// Begins a copy that the desk counts as sent.
    fn start(&mut self, to: Server) {
        let idle = if self.is_repeatable { self.shared.idle_link(to) } else { self.shared.just_used_link(to) };
        match idle {
            Some(link) => self.send_on(to, link),
            None => self.connect(to),
        }
    }

    fn connect(&mut self, to: Server) {
        let connecting = Rc::clone(self.shared).next_link(to);
        self.copies[to.index()] = Some(Copy::Connecting(Box::pin(connecting)));
    }

    fn send_on(&mut self, to: Server, link: Link) {
        self.shared.desk.borrow_mut().linked(self.ticket, to, link.port);
        self.copies[to.index()] = Some(Copy::There(link, 0));
    }

    /// Waits for the first answer, and does meanwhile what the desk says.
    async fn first_answer(&mut self) -> Result<Answered, Failure> {
        loop {
            let answer = match self.event().await {
                Event::Order(ticket, to) => {
                    if ticket == self.ticket {
                        self.start(to);
                    }
                    None
                }
                Event::Connected(server, Some(link)) => {
                    self.send_on(server, link);
                    None
                }
                Event::Connected(server, None) => self.lose(server, Loss::NotSent)?,
                Event::Broken(server) => self.lose_link(server, false)?,
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
        self.shared.desk.borrow_mut().stop_hedging(self.ticket);
        for server in Server::BOTH {
            if let Some(Copy::There(_, 1..)) = self.copies[server.index()] {
                self.shared.late(self.ticket, server);
            }
        }
        let kept = self.shared.desk.borrow_mut().late(now(), self.ticket);
        kept.and_then(|server| self.forward_kept(server)).ok_or(LATE)
    }

    /// The failure that this server answered, with its head in `out`.
    fn forward_kept(&mut self, server: Server) -> Option<Answered> {
        let Some(Copy::Kept(mut link, sent)) = self.copies[server.index()].take() else { return None };
        self.client.out.clear();
        let head_bytes = self.shared.config.limits.head_bytes;
        let head = read_response(link.input.data(), head_bytes, self.wanted(), &mut self.client.out).ok()??;
        link.input.consume(head.bytes);
        Some(Answered { by: server, link, head, is_asked: sent == self.client.request.len() })
    }

    async fn event(&mut self) -> Event {
        let Client { stream, mailbox, patience, request, is_half_closed, .. } = &mut *self.client;
        let mut departs = std::pin::pin!(departure(stream, *is_half_closed));
        std::future::poll_fn(|cx| {
            if let Some((ticket, to)) = mailbox.next(cx) {
                return Poll::Ready(Event::Order(ticket, to));
            }
            for (server, copy) in Server::BOTH.into_iter().zip(&mut self.copies) {
                if let Some(Poll::Ready(event)) = copy.as_mut().map(|copy| poll_copy(copy, server, request, cx)) {
                    return Poll::Ready(event);
                }
            }
            if let Poll::Ready(departure) = departs.as_mut().poll(cx) {
                return Poll::Ready(Event::Departed(departure));
            }
            patience.poll_over(cx).map(|()| Event::Late)
        })
        .await
    }

    /// A client that may be gone costs no hedge; one that is gone costs nothing more.
    pub(super) fn departed(&mut self, departure: Departure) -> Result<(), Failure> {
        if self.client.is_left(departure, &self.shared.config.limits) {
            return Err(Failure::Gone);
        }
        self.shared.desk.borrow_mut().stop_hedging(self.ticket);
        Ok(())
    }

    /// Reads what has come from this server: an answer, if its head is whole.
    async fn read(&mut self, server: Server) -> Result<Option<Answered>, Failure> {
        let limits = self.shared.config.limits;
        let Some(Copy::There(link, _)) = &mut self.copies[server.index()] else { return Ok(None) };
        match link.input.fill(&link.stream) {
            Ok(0) => return self.lose_link(server, true),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(_) => return self.lose_link(server, false),
        }
        let wanted = self.wanted();
        loop {
            let Some(Copy::There(link, _)) = &mut self.copies[server.index()] else { return Ok(None) };
            self.client.out.clear();
            let read = read_response(link.input.data(), limits.head_bytes, wanted, &mut self.client.out);
            let head = match read {
                Ok(Some(head)) => head,
                Ok(None) => return Ok(None),
                // The other server may have the request, too, or may be asked.
                Err(_) => return self.lose(server, Loss::Malformed).map_err(|_| MALFORMED),
            };
            if head.is_interim() {
                link.input.consume(head.bytes);
                self.pass_interim().await?;
                continue;
            }
            return Ok(self.judge(server, head));
        }
    }

    /// A final answer, whose head is in `out` and in the link's input: the desk says which one is forwarded.
    fn judge(&mut self, server: Server, head: ResponseHead) -> Option<Answered> {
        match self.shared.answered(self.ticket, server, Outcome::Status(head.status)) {
            Verdict::Forward(by) if by == server => {
                let Some(Copy::There(mut link, sent)) = self.copies[server.index()].take() else { return None };
                link.input.consume(head.bytes);
                Some(Answered { by, link, head, is_asked: sent == self.client.request.len() })
            }
            Verdict::Forward(kept) => self.forward_kept(kept),
            Verdict::Keep => {
                if let Some(Copy::There(link, sent)) = self.copies[server.index()].take() {
                    self.copies[server.index()] = Some(Copy::Kept(link, sent));
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
    fn lose_link(&mut self, server: Server, is_in_order: bool) -> Result<Option<Answered>, Failure> {
        let loss = match &self.copies[server.index()] {
            Some(Copy::There(link, sent)) => link.loss(*sent, is_in_order),
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

    /// The copy at this server is lost; the desk says what is done. The answer, if that is a failure that was kept.
    fn lose(&mut self, server: Server, loss: Loss) -> Result<Option<Answered>, Failure> {
        self.copies[server.index()] = None;
        match self.shared.lost(self.ticket, server, loss) {
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
        // The desk knows of a failure that was kept.
        let is_new = matches!(copy, Some(Copy::There(..)));
        match copy {
            Some(Copy::There(link, sent) | Copy::Kept(link, sent))
                if sent == self.client.request.len() && self.may_wait() =>
            {
                let (shared, ticket, is_head) = (Rc::clone(self.shared), self.ticket, self.wanted.is_head);
                drop(spawn_local(drop_answer(shared, link, Dropped { of: other, ticket, is_head, is_new })));
            }
            copy => self.drop_copy(other, copy),
        }
    }

    /// Nobody waits for what is still out.
    fn drop_copies(&mut self) {
        for server in Server::BOTH {
            let copy = self.copies[server.index()].take();
            self.drop_copy(server, copy);
        }
    }

    fn drop_copy(&self, of: Server, copy: Option<Copy>) {
        let mut desk = self.shared.desk.borrow_mut();
        match copy {
            Some(Copy::There(_, 1..) | Copy::Kept(..)) => desk.dropped(now(), self.ticket, of),
            Some(Copy::There(..) | Copy::Connecting(_)) => desk.not_sent(self.ticket, of),
            None => {}
        }
    }
}

fn poll_copy(copy: &mut Copy, server: Server, request: &[u8], cx: &mut Context<'_>) -> Poll<Event> {
    match copy {
        Copy::Kept(..) => Poll::Pending,
        Copy::Connecting(connecting) => connecting.as_mut().poll(cx).map(|link| Event::Connected(server, link)),
        Copy::There(link, sent) => {
            while *sent < request.len() {
                match link.stream.try_write(&request[*sent..]) {
                    Ok(count) => *sent += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => match link.stream.poll_write_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(_)) => return Poll::Ready(Event::Broken(server)),
                        Poll::Pending => break,
                    },
                    Err(_) => return Poll::Ready(Event::Broken(server)),
                }
            }
            link.stream.poll_read_ready(cx).map(|ready| match ready {
                Ok(()) => Event::Readable(server),
                Err(_) => Event::Broken(server),
            })
        }
    }
}
