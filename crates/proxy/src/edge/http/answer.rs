//! The rest of an answer: forwarded to the client, or read and dropped.

use std::io;
use std::rc::Rc;

use sidelane_policy::hedge::Server;
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::time::timeout;

use super::super::link::Link;
use super::super::shared::{Shared, now};
use super::client::Client;
use super::outcome::{After, Failure, MALFORMED};
use crate::config::Limits;
use crate::desk::{End, Ticket};
use crate::http::{Body, ResponseHead, Wanted, client_goes_on, read_response};

/// Between whom an answer is passed on, and what they agreed on.
pub(super) struct Passage<'a> {
    pub(super) shared: &'a Shared,
    pub(super) client: &'a mut Client,
    pub(super) wanted: Wanted,
    /// The client asked for another protocol.
    pub(super) may_switch: bool,
    /// The whole request has been sent.
    pub(super) is_asked: bool,
}

/// Forwards the answer, whose head is in `out`.
pub(super) async fn relay(
    passage: Passage<'_>,
    mut link: Link,
    by: Server,
    answer: ResponseHead,
) -> Result<(End, After), Failure> {
    let Passage { shared, client, wanted, may_switch, is_asked } = passage;
    let limits = shared.config.limits;
    if answer.is_switch() {
        return if may_switch { tunnel(client, link, &limits).await } else { Err(MALFORMED) };
    }
    let is_whole = forward_body(client, &mut link, answer.body, &limits).await?;
    if is_whole && answer.keeps_alive && is_asked {
        shared.keep_link(by, link);
    }
    let goes_on = is_whole && is_asked && client_goes_on(&answer, wanted);
    Ok((if is_whole { End::Answered } else { End::Cut }, if goes_on { After::Goes } else { After::Close }))
}

/// Forwards a body as it comes. Whether it came whole.
async fn forward_body(client: &mut Client, link: &mut Link, mut body: Body, limits: &Limits) -> Result<bool, Failure> {
    loop {
        let Ok(count) = body.take(link.input.data()) else { return Ok(false) };
        client.out.extend_from_slice(&link.input.data()[..count]);
        link.input.consume(count);
        client.write_out(limits).await?;
        if body.is_over() {
            return Ok(true);
        }
        client.patience.start(limits.idle_time);
        let Ok(ready) = client.patience.wait(link.stream.readable()).await else { return Ok(false) };
        match ready.and_then(|()| link.input.fill(&link.stream)) {
            Ok(0) => return Ok(body == Body::UntilClose),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Ok(false),
        }
    }
}

/// Both sides speak another protocol from now on: bytes are passed on until both have ended.
async fn tunnel(client: &mut Client, mut link: Link, limits: &Limits) -> Result<(End, After), Failure> {
    client.out.extend_from_slice(link.input.data());
    client.write_out(limits).await?;
    let early = client.input.data().to_vec();
    client.input.consume(early.len());
    if link.stream.write_all(&early).await.is_ok() {
        // However it ends, both connections do.
        let _ = copy_bidirectional(&mut client.stream, &mut link.stream).await;
    }
    Ok((End::Answered, After::Close))
}

/// Waits for an answer that came second, and drops it.
pub(super) async fn drop_answer(shared: Rc<Shared>, link: Link, of: Server, ticket: Ticket, is_head: bool) {
    let limits = shared.config.limits;
    shared.dropping.set(shared.dropping.get() + 1);
    let link = timeout(limits.answer_time, swallow(link, is_head, &limits)).await.ok().flatten();
    shared.dropping.set(shared.dropping.get() - 1);
    shared.desk.borrow_mut().dropped(now(), ticket, of);
    if let Some(link) = link {
        shared.keep_link(of, link);
    }
}

/// Reads a whole answer and drops it. The connection, if it can be used again.
pub(in super::super) async fn swallow(mut link: Link, is_head: bool, limits: &Limits) -> Option<Link> {
    let wanted = Wanted { id: 0, is_head, is_old: false, keeps_alive: true };
    let mut unused = Vec::new();
    let answer = loop {
        let answer = read_response(link.input.data(), limits.head_bytes, wanted, &mut unused).ok()?;
        unused.clear();
        match answer {
            Some(answer) if answer.is_interim() => link.input.consume(answer.bytes),
            Some(answer) => break answer,
            None => more(&mut link).await?,
        }
    };
    link.input.consume(answer.bytes);
    let mut body = answer.body;
    loop {
        let count = body.take(link.input.data()).ok()?;
        link.input.consume(count);
        if body.is_over() {
            return answer.keeps_alive.then_some(link);
        }
        more(&mut link).await?;
    }
}

/// Waits for more bytes of a server; nothing at the end.
pub(in super::super) async fn more(link: &mut Link) -> Option<()> {
    loop {
        link.stream.readable().await.ok()?;
        match link.input.fill(&link.stream) {
            Ok(0) => return None,
            Ok(_) => return Some(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
}
