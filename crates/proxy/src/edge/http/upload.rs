//! Requests with bodies that have not come whole, or are too long to be kept: sent once, as they come.

use std::io;
use std::rc::Rc;
use std::task::Poll;

use sidelane_policy::hedge::Server;

use super::super::link::Link;
use super::super::shared::now;
use super::answer::Answered;
use super::exchange::Exchange;
use super::outcome::{Failure, LATE, LOST, MALFORMED, quality};
use crate::desk::{Loss, Next};
use crate::http::{Body, ResponseHead, read_response};

/// Bytes of the body that have been read and not sent; no more are read until fewer are.
const AHEAD_MAX: usize = 64 << 10;

/// What happens meanwhile.
enum Event {
    FromClient,
    FromServer,
    Writable,
    Late,
}

/// Sends the request and the body as it comes, and returns the answer, which may come before the body has ended.
pub(super) async fn send(exchange: &mut Exchange<'_>, to: Server, body: &mut Body) -> Result<Answered, Failure> {
    let (to, mut link) = connect(exchange, to).await?;
    loop {
        exchange.client.take_body(body).map_err(|_| Failure::Error(400, "the body of the request is malformed"))?;
        match next_event(exchange, &link, body).await {
            Event::FromClient => read_client(exchange)?,
            Event::Writable => write(exchange, &link, to)?,
            Event::FromServer => {
                if let Some(head) = read_server(exchange, &mut link, to).await? {
                    let is_asked = body.is_over() && exchange.client.request.is_empty();
                    return Ok(Answered { by: to, link, head, is_asked });
                }
            }
            Event::Late => {
                exchange.shared.desk.borrow_mut().dropped(now(), exchange.ticket, to);
                return Err(LATE);
            }
        }
    }
}

/// A connection to the server, or to the other one: nothing has been sent yet.
async fn connect(exchange: &mut Exchange<'_>, mut to: Server) -> Result<(Server, Link), Failure> {
    loop {
        let link = match exchange.shared.idle_link(to) {
            Some(link) => Some(link),
            None => Rc::clone(exchange.shared).new_link(to).await,
        };
        if let Some(link) = link {
            exchange.shared.desk.borrow_mut().linked(exchange.ticket, to, link.port);
            return Ok((to, link));
        }
        let next = exchange.shared.desk.borrow_mut().lost(now(), exchange.ticket, to, Loss::NotSent);
        match next {
            Next::Send(other) => to = other,
            Next::Wait | Next::Forward(_) | Next::GiveUp => return Err(LOST),
        }
    }
}

async fn next_event(exchange: &mut Exchange<'_>, link: &Link, body: &Body) -> Event {
    let client = &mut *exchange.client;
    let wants_more = !body.is_over() && client.request.len() < AHEAD_MAX;
    let has_some = !client.request.is_empty();
    std::future::poll_fn(|cx| {
        if link.stream.poll_read_ready(cx).is_ready() {
            return Poll::Ready(Event::FromServer);
        }
        if has_some && link.stream.poll_write_ready(cx).is_ready() {
            return Poll::Ready(Event::Writable);
        }
        if wants_more && client.stream.poll_read_ready(cx).is_ready() {
            return Poll::Ready(Event::FromClient);
        }
        client.patience.poll_over(cx).map(|()| Event::Late)
    })
    .await
}

fn read_client(exchange: &mut Exchange<'_>) -> Result<(), Failure> {
    let client = &mut *exchange.client;
    match client.input.fill(&client.stream) {
        // The server gets no end of the body, so it does not take a part for the whole.
        Ok(0) => Err(Failure::Gone),
        Ok(_) => {
            client
                .patience
                .start(exchange.shared.config.limits.idle_time.max(exchange.shared.config.limits.answer_time));
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(_) => Err(Failure::Gone),
    }
}

fn write(exchange: &mut Exchange<'_>, link: &Link, to: Server) -> Result<(), Failure> {
    match link.stream.try_write(&exchange.client.request) {
        Ok(count) => {
            exchange.client.request.drain(..count);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(_) => lost(exchange, to),
    }
}

fn lost(exchange: &mut Exchange<'_>, to: Server) -> Result<(), Failure> {
    exchange.shared.desk.borrow_mut().lost(now(), exchange.ticket, to, Loss::Sent);
    Err(LOST)
}

/// Reads what has come from the server: an answer, if its head is whole. Interim ones are passed on.
async fn read_server(
    exchange: &mut Exchange<'_>,
    link: &mut Link,
    to: Server,
) -> Result<Option<ResponseHead>, Failure> {
    let limits = exchange.shared.config.limits;
    match link.input.fill(&link.stream) {
        Ok(0) => return lost(exchange, to).map(|()| None),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(_) => return lost(exchange, to).map(|()| None),
    }
    loop {
        exchange.client.out.clear();
        let read = read_response(link.input.data(), limits.head_bytes, exchange.wanted, &mut exchange.client.out);
        let answer = match read {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(None),
            Err(_) => return lost(exchange, to).map(|()| None).map_err(|_| MALFORMED),
        };
        link.input.consume(answer.bytes);
        if answer.is_interim() {
            exchange.client.write_out(&limits).await?;
            continue;
        }
        exchange.shared.desk.borrow_mut().answered(now(), exchange.ticket, to, quality(answer.status));
        return Ok(Some(answer));
    }
}
