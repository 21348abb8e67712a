//! Transfer of an answer after its head: forwarded to the client, or read and dropped.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use sidelane_host::clock::now_ns;
use sidelane_policy::hedge::Server;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::super::connection::{KEPT, ServerConnection};
use super::super::shared::Shared;
use super::super::tunnel;
use super::client::{Client, wait_for_departure};
use super::exchange::{ConnectionAction, Failure, MALFORMED};
use crate::config::Limits;
use crate::http::{Body, RequestNumber, ResponseContext, ResponseHead, keeps_client_connection, read_response};
use crate::request_table::{RequestEnd, RequestId, ServerOutcome};

/// Maximum size of a dropped answer that is read for the reuse of its connection. A longer one closes the connection.
const DROPPED_MAX: u64 = 64 << 10;
/// Safety margin: the proxy closes an idle connection this much earlier than its server would.
const MARGIN: Duration = Duration::from_secs(1);

/// Answer that is forwarded to the client, after its head was read.
pub(super) struct ForwardedAnswer {
    pub(super) by: Server,
    pub(super) connection: ServerConnection,
    pub(super) head: ResponseHead,
    /// Whether the whole request was written to the server. If not, the connection cannot be reused: the server would
    /// take later bytes for the rest of this request.
    pub(super) is_asked: bool,
}

/// Client, request and options for the forwarding of an answer.
pub(super) struct Forwarding<'a> {
    pub(super) shared: &'a Shared,
    pub(super) client: &'a mut Client,
    pub(super) request_id: RequestId,
    pub(super) wanted: ResponseContext,
    /// Whether the client asked to switch the connection to another protocol.
    pub(super) may_switch: bool,
    /// Whether the whole request was read from the client.
    pub(super) is_read: bool,
}

/// Forwards an answer whose head is in `out`.
pub(super) async fn forward_answer(
    forwarding: Forwarding<'_>,
    answered: ForwardedAnswer,
) -> Result<(RequestEnd, ConnectionAction), Failure> {
    let ForwardedAnswer { by, mut connection, head, is_asked } = answered;
    forwarding.client.journal.record_answer(head.status, forwarding.client.out.len());
    if head.is_protocol_switch() {
        return if forwarding.may_switch { switch_protocol(forwarding, connection).await } else { Err(MALFORMED) };
    }
    let Forwarding { shared, client, wanted, is_read, .. } = forwarding;
    let has_no_length = head.body == Body::UntilClose;
    if has_no_length {
        // The body ends with the connection. Until it is complete, any close must look like a reset to the client.
        let _ = set_socket_linger(client.stream.socket(), Some(Duration::ZERO));
    }
    if !forward_body(client, &mut connection, head.body, &shared.config.limits).await? {
        return Ok((RequestEnd::Cut, ConnectionAction::Abort));
    }
    if has_no_length {
        let _ = set_socket_linger(client.stream.socket(), None);
    }
    if head.keeps_alive && is_asked {
        connection.kept = idle_limit(&head);
        shared.keep_connection(by, connection);
    }
    let after = match is_read {
        true if keeps_client_connection(&head, wanted) => ConnectionAction::KeepAlive,
        true if shared.drain.has_begun() => ConnectionAction::CloseAfterClient,
        true => ConnectionAction::Close,
        false => ConnectionAction::Linger,
    };
    Ok((RequestEnd::Answered, after))
}

/// Returns the maximum idle time of a connection. It ends before the server's own limit, so that the server does not
/// close the connection while a request is on its way.
fn idle_limit(head: &ResponseHead) -> Duration {
    head.keep_alive_s.map_or(KEPT, |seconds| Duration::from_secs(seconds.into()).saturating_sub(MARGIN))
}

/// Forwards a body as it arrives. Returns whether it arrived completely.
async fn forward_body(
    client: &mut Client,
    connection: &mut ServerConnection,
    mut body: Body,
    limits: &Limits,
) -> Result<bool, Failure> {
    loop {
        let Ok(count) = body.consume(connection.input.data()) else { return Ok(false) };
        client.out.extend_from_slice(&connection.input.data()[..count]);
        connection.input.consume(count);
        client.write_out().await?;
        if body.is_complete() {
            return Ok(true);
        }
        client.deadline.start(limits.idle_time);
        let Client { stream, deadline, is_half_closed, .. } = &mut *client;
        let ready = tokio::select! {
            biased;
            ready = deadline.wait_for(connection.stream.readable()) => ready,
            departure = wait_for_departure(stream.socket(), *is_half_closed) => match client.record_departure(departure, limits) {
                true => return Err(Failure::Gone),
                false => continue,
            },
        };
        let Ok(ready) = ready else { return Ok(false) };
        match ready.and_then(|()| connection.input.fill(&connection.stream)) {
            Ok(0) => return Ok(body == Body::UntilClose),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Ok(false),
        }
    }
}

/// Switches to another protocol: ends the request, and passes bytes in both directions until both sides have ended.
async fn switch_protocol(
    forwarding: Forwarding<'_>,
    mut connection: ServerConnection,
) -> Result<(RequestEnd, ConnectionAction), Failure> {
    let Forwarding { shared, client, request_id, .. } = forwarding;
    client.out.extend_from_slice(connection.input.data());
    client.write_out().await?;
    client.journal.finish(request_id, RequestEnd::Answered);
    shared.table.borrow_mut().count_tied_connection();
    let early = client.input.data().to_vec();
    client.input.consume(early.len());
    if connection.stream.write_all(&early).await.is_ok() {
        tunnel::run_tunnel(&shared.tunnels, &mut client.stream, &mut connection.stream).await;
    }
    Ok((RequestEnd::Answered, ConnectionAction::Close))
}

/// Answer that is not forwarded to the client.
pub(super) struct DroppedAnswer {
    pub(super) of: Server,
    pub(super) request_id: RequestId,
    pub(super) is_head: bool,
    /// Whether the answer is new to the request table, which has not recorded its begin yet.
    pub(super) is_new: bool,
}

/// Waits for the answer of the slower server, and drops it.
pub(super) async fn drop_answer(shared: Rc<Shared>, connection: ServerConnection, dropped: DroppedAnswer) {
    let DroppedAnswer { of, request_id, is_head, is_new } = dropped;
    let (limits, sent_ns) = (shared.config.limits, shared.sent_ns(request_id, of));
    shared.dropping.set(shared.dropping.get() + 1);
    let answer =
        timeout(limits.answer_time, read_and_discard_answer(connection, is_head, &limits)).await.ok().flatten();
    shared.dropping.set(shared.dropping.get() - 1);
    shared.table.borrow_mut().count_dropped_answer(now_ns(), request_id, of);
    if let Some((outcome, _)) = answer.as_ref().filter(|_| is_new) {
        shared.record_outcome(of, sent_ns, *outcome);
    }
    if let Some((_, Some(connection))) = answer {
        shared.keep_connection(of, connection);
    }
}

/// Reads an answer and drops it, up to [`DROPPED_MAX`] bytes of a body. Returns its status, and the connection if it
/// can be reused. Returns `None` if the answer breaks off early.
pub(crate) async fn read_and_discard_answer(
    mut connection: ServerConnection,
    is_head_request: bool,
    limits: &Limits,
) -> Option<(ServerOutcome, Option<ServerConnection>)> {
    let wanted = ResponseContext {
        number: RequestNumber::default(),
        is_head: is_head_request,
        is_old: false,
        keeps_alive: true,
        has_via: false,
    };
    let mut unused = Vec::new();
    let answer = loop {
        let answer = read_response(connection.input.data(), limits.head_bytes, wanted, &mut unused).ok()?;
        unused.clear();
        match answer {
            Some(answer) if answer.is_interim() => connection.input.consume(answer.bytes),
            Some(answer) => break answer,
            None => read_more(&mut connection).await?,
        }
    };
    connection.input.consume(answer.bytes);
    let mut body = answer.body;
    let mut dropped = 0;
    connection.kept = idle_limit(&answer);
    let outcome = ServerOutcome::Status(answer.status);
    loop {
        let count = body.consume(connection.input.data()).ok()?;
        connection.input.consume(count);
        dropped += count as u64;
        if dropped > DROPPED_MAX || matches!(body, Body::Length(left) if left > DROPPED_MAX) {
            return Some((outcome, None));
        }
        if body.is_complete() {
            return Some((outcome, answer.keeps_alive.then_some(connection)));
        }
        if read_more(&mut connection).await.is_none() {
            return (body == Body::UntilClose).then_some((outcome, None));
        }
    }
}

/// Waits for more bytes from a server. Returns `None` at the end of the stream.
pub(crate) async fn read_more(connection: &mut ServerConnection) -> Option<()> {
    loop {
        connection.stream.readable().await.ok()?;
        match connection.input.fill(&connection.stream) {
            Ok(0) => return None,
            Ok(_) => return Some(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
}
