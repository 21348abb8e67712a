//! Uploads: requests whose bodies are incomplete, or too long to be kept. They are sent once, while they arrive.

use std::future::Future;
use std::io;
use std::rc::Rc;
use std::task::Poll;

use sidelane_host::clock::now_ns;
use sidelane_policy::hedge::Server;
use tokio::time::Instant;

use super::super::connection::ServerConnection;
use super::super::pace::Pace;
use super::answer::ForwardedAnswer;
use super::client::{Client, Departure, wait_for_departure};
use super::exchange::{Exchange, Failure, LATE, LOST, MALFORMED, SLOW};
use crate::http::{Body, RequestHead, ResponseContext, ResponseHead, read_response};
use crate::request_table::{Loss, NextStep, ServerOutcome};

/// Maximum number of body bytes that are read and not sent. At this number, the proxy stops reading from the client.
const AHEAD_MAX: usize = 64 << 10;

/// Event during an upload.
enum Event {
    FromClient,
    FromServer,
    Writable,
    Departed(Departure),
    Late,
}

/// Progress of writing the request to its server.
#[derive(Default)]
struct Progress {
    /// Number of written bytes at the begin of `Client::request` that are kept for a retry.
    kept: usize,
    /// Total number of written bytes.
    written: usize,
    /// Whether nothing more can be written. An answer may still be read.
    is_broken: bool,
}

impl Progress {
    fn unsent<'a>(&self, request: &'a [u8]) -> &'a [u8] {
        &request[self.kept..]
    }

    fn write(&mut self, request: &mut Vec<u8>, connection: &ServerConnection) {
        match connection.stream.try_write(self.unsent(request)) {
            Ok(count) => {
                self.kept += count;
                self.written += count;
                if !self.is_fully_kept() || request.len() > AHEAD_MAX {
                    request.drain(..self.kept);
                    self.kept = 0;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Only remember the failure: a server that refuses an upload closes after its answer, which is read first.
            Err(_) => self.is_broken = true,
        }
    }

    /// Returns whether all written bytes are still kept.
    fn is_fully_kept(&self) -> bool {
        self.kept == self.written
    }
}

/// Time limit of an upload, and whether the proxy waits for the client or for the server.
struct UploadLimit {
    pace: Pace,
    waits_for_client: bool,
    /// Whether the client waits for `100 Continue`.
    is_held: bool,
}

impl UploadLimit {
    /// Sets the time limit for the next event.
    fn set_deadline(&mut self, exchange: &mut Exchange<'_>, body: &Body, progress: &Progress) {
        let waits = should_read_more_body(body, progress.unsent(&exchange.client.request)) && !self.is_held;
        let was_waiting = std::mem::replace(&mut self.waits_for_client, waits);
        self.pace.set_waiting(Instant::now(), waits);
        let deadline = &mut exchange.client.deadline;
        match waits {
            true => deadline.start(self.pace.time_left()),
            false if was_waiting => deadline.start(exchange.shared.config.limits.answer_time),
            false => {}
        }
    }
}

fn should_read_more_body(body: &Body, unsent: &[u8]) -> bool {
    !body.is_complete() && unsent.len() < AHEAD_MAX
}

/// Sends the request, and its body as it arrives. Returns the answer, which may come before the end of the body.
pub(super) async fn send_upload(
    exchange: &mut Exchange<'_>,
    to: Server,
    request: &mut RequestHead,
) -> Result<ForwardedAnswer, Failure> {
    let (mut to, mut connection) = connect(exchange, to).await?;
    let (mut progress, body) = (Progress::default(), &mut request.body);
    let pace = Pace::new(exchange.shared.config.limits.idle_time);
    let mut limit = UploadLimit { pace, waits_for_client: false, is_held: request.expects_continue };
    loop {
        exchange.client.take_body(body).map_err(|_| Failure::Error(400, "the body of the request is malformed"))?;
        limit.set_deadline(exchange, body, &progress);
        match next_event(exchange, &connection, body, &progress).await {
            Event::FromClient => {
                let count = read_client(exchange)?;
                limit.pace.add_transferred(count);
                limit.is_held &= count == 0;
            }
            Event::Writable => progress.write(&mut exchange.client.request, &connection),
            Event::FromServer => match connection.input.fill(&connection.stream) {
                Ok(1..) => {
                    let wanted = exchange.response_context();
                    let wanted = ResponseContext { keeps_alive: wanted.keeps_alive && body.is_complete(), ..wanted };
                    if let Some(head) = read_answer(exchange, &mut connection, to, wanted, &mut limit.is_held).await? {
                        let is_asked = body.is_complete() && progress.unsent(&exchange.client.request).is_empty();
                        return Ok(ForwardedAnswer { by: to, connection, head, is_asked });
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                end @ (Ok(0) | Err(_)) => {
                    let loss = connection.classify_loss(progress.written, end.is_ok());
                    (to, connection) = reconnect(exchange, to, loss, &progress).await?;
                    progress = Progress::default();
                }
            },
            Event::Departed(departure) => exchange.handle_departure(departure)?,
            Event::Late => {
                exchange.shared.table.borrow_mut().count_dropped_answer(now_ns(), exchange.request_id, to);
                if limit.waits_for_client {
                    return Err(SLOW);
                }
                exchange.shared.record_timeout(exchange.request_id, to);
                return Err(LATE);
            }
        }
    }
}

/// Connects to the server, or to another one if that fails. Nothing has been sent yet.
async fn connect(exchange: &mut Exchange<'_>, to: Server) -> Result<(Server, ServerConnection), Failure> {
    match exchange.shared.take_recent_connection(to) {
        Some(connection) => Ok(record_connection(exchange, to, connection)),
        None => connect_or_fail_over(exchange, to).await,
    }
}

/// Returns a new connection after the previous one has ended. Fails if the server may have read a part of the request.
async fn reconnect(
    exchange: &mut Exchange<'_>,
    to: Server,
    loss: Option<Loss>,
    progress: &Progress,
) -> Result<(Server, ServerConnection), Failure> {
    match loss {
        None if progress.is_fully_kept() => connect_or_fail_over(exchange, to).await,
        Some(Loss::Unread) if progress.is_fully_kept() => fail_over(exchange, to, Loss::Unread).await,
        // Fail even if the server has read nothing: a part of the request is no longer kept, so it cannot be sent
        // again.
        _ => {
            exchange.shared.record_loss(exchange.request_id, to, Loss::Sent);
            Err(LOST)
        }
    }
}

async fn connect_or_fail_over(exchange: &mut Exchange<'_>, to: Server) -> Result<(Server, ServerConnection), Failure> {
    match Rc::clone(exchange.shared).next_connection(to).await {
        Some(connection) => Ok(record_connection(exchange, to, connection)),
        None => fail_over(exchange, to, Loss::NotSent).await,
    }
}

/// Lets the request table choose the next server after a loss, and connects to it.
async fn fail_over(
    exchange: &mut Exchange<'_>,
    mut to: Server,
    mut loss: Loss,
) -> Result<(Server, ServerConnection), Failure> {
    loop {
        match exchange.shared.record_loss(exchange.request_id, to, loss) {
            NextStep::Send(other) => to = other,
            NextStep::Wait | NextStep::Forward(_) | NextStep::GiveUp => return Err(LOST),
        }
        match Rc::clone(exchange.shared).next_connection(to).await {
            Some(connection) => return Ok(record_connection(exchange, to, connection)),
            None => loss = Loss::NotSent,
        }
    }
}

fn record_connection(exchange: &Exchange<'_>, to: Server, connection: ServerConnection) -> (Server, ServerConnection) {
    exchange.shared.table.borrow_mut().record_connection(exchange.request_id, to, connection.port);
    (to, connection)
}

async fn next_event(
    exchange: &mut Exchange<'_>,
    connection: &ServerConnection,
    body: &Body,
    progress: &Progress,
) -> Event {
    let Client { stream, request, deadline, is_half_closed, .. } = &mut *exchange.client;
    let unsent = progress.unsent(request);
    let wants_more = should_read_more_body(body, unsent);
    let has_some = !progress.is_broken && !unsent.is_empty();
    // Ignore a half-close before the end of the body: it may follow the bytes that are still unread.
    let mut departs = std::pin::pin!(wait_for_departure(stream.socket(), *is_half_closed || !body.is_complete()));
    std::future::poll_fn(|cx| {
        if connection.stream.poll_read_ready(cx).is_ready() {
            return Poll::Ready(Event::FromServer);
        }
        if has_some && connection.stream.poll_write_ready(cx).is_ready() {
            return Poll::Ready(Event::Writable);
        }
        if wants_more && stream.poll_read_ready(cx).is_ready() {
            return Poll::Ready(Event::FromClient);
        }
        if let Poll::Ready(departure) = departs.as_mut().poll(cx) {
            return Poll::Ready(Event::Departed(departure));
        }
        deadline.poll_expired(cx).map(|()| Event::Late)
    })
    .await
}

/// Reads bytes from the client, and returns their number.
fn read_client(exchange: &mut Exchange<'_>) -> Result<usize, Failure> {
    let client = &mut *exchange.client;
    match client.stream.fill(&mut client.input) {
        // The body at the server stays incomplete, so the server does not take a part of the body for the whole.
        Ok(0) => Err(Failure::Gone),
        Ok(count) => Ok(count),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        Err(_) => Err(Failure::Gone),
    }
}

/// Reads from the server, and returns the answer if its head is complete. Forwards interim answers, after which a
/// waiting client may send its body.
async fn read_answer(
    exchange: &mut Exchange<'_>,
    connection: &mut ServerConnection,
    to: Server,
    context: ResponseContext,
    is_awaiting_continue: &mut bool,
) -> Result<Option<ResponseHead>, Failure> {
    let limits = exchange.shared.config.limits;
    loop {
        exchange.client.out.clear();
        let answer = match read_response(connection.input.data(), limits.head_bytes, context, &mut exchange.client.out)
        {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(None),
            Err(_) => {
                exchange.shared.record_loss(exchange.request_id, to, Loss::Malformed);
                return Err(MALFORMED);
            }
        };
        connection.input.consume(answer.bytes);
        if answer.is_interim() {
            exchange.client.write_out().await?;
            *is_awaiting_continue = false;
            continue;
        }
        exchange.shared.record_answer(exchange.request_id, to, ServerOutcome::Status(answer.status));
        return Ok(Some(answer));
    }
}
