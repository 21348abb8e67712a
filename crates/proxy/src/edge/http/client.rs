//! Connection of one HTTP client: it reads requests and writes answers.

use std::io;
use std::rc::Rc;
use std::task::Poll;

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::super::buffer::Buffer;
use super::super::client_stream::ClientStream;
use super::super::connection::unacknowledged_bytes;
use super::super::deadline::{Deadline, TooLate};
use super::super::pace::Pace;
use super::super::shared::{Owner, Shared};
use super::admin;
use super::journal::Journal;
use crate::access::RequestOutcome;
use crate::config::Limits;
use crate::http::{Body, Peer, Refused, RequestHead, read_request, write_error};
use crate::request_table::{Label, RequestClass, RequestEnd, RequestId};

/// Prefix of targets that the proxy answers itself.
const OWN: &[u8] = b"/.sidelane/";
/// Maximum number of bytes read and dropped after an error. Closing with unread bytes could lose the answer.
const LINGER_BYTES: usize = 256 << 10;
const LINGER_TIME: std::time::Duration = std::time::Duration::from_secs(2);
/// Maximum time for which the rest of an upload is read after its final answer.
const UPLOAD_LINGER_TIME: std::time::Duration = std::time::Duration::from_secs(30);

/// Maximum size of each buffer of an idle client. There may be thousands of idle clients.
const IDLE_BYTES: usize = 1 << 10;

/// Connection of one HTTP client.
pub(super) struct Client {
    pub(super) stream: ClientStream,
    peer: Peer,
    pub(super) input: Buffer,
    pub(super) deadline: Deadline,
    /// Pace at which the client reads its answer.
    pub(super) pace: Pace,
    /// Bytes to write next. The memory of `out` and `request` is reused unless it is large.
    pub(super) out: Vec<u8>,
    /// Request in the form that is sent to the server.
    pub(super) request: Vec<u8>,
    pub(super) mailbox: Owner,
    /// Whether the client has closed its sending direction.
    pub(super) is_half_closed: bool,
    pub(super) journal: Journal,
}

impl Client {
    pub(super) fn new((stream, input): (ClientStream, Buffer), peer: Peer, journal: Journal, limits: &Limits) -> Self {
        let (out, request) = (Vec::new(), Vec::new());
        let (deadline, pace) = (Deadline::new(limits), Pace::new(limits.idle_time));
        let mailbox = Owner::default();
        Self { stream, peer, input, deadline, pace, out, request, mailbox, is_half_closed: false, journal }
    }
}

/// Error: the client is gone, or reads too slowly.
#[derive(Debug)]
pub(super) struct Gone;

/// Reason why there is no next request.
pub(super) enum NoRequest {
    /// The client has closed the connection.
    Closed,
    /// The request is refused, with a status and a text for the client.
    Error(u16, String),
}

impl From<Refused> for NoRequest {
    fn from(refused: Refused) -> Self {
        Self::Error(refused.status(), refused.to_string())
    }
}

impl Client {
    /// Returns the next request, with its whole body if it is safe to repeat. `has_sent_request` is true after the
    /// client's first request. A request for the proxy itself is answered here, and ends the connection.
    pub(super) async fn next_request(
        &mut self,
        shared: &Rc<Shared>,
        has_sent_request: bool,
    ) -> Result<(RequestHead, RequestClass), NoRequest> {
        let limits = &shared.config.limits;
        let mut head = self.next_head(shared, has_sent_request).await?;
        self.journal.record_head(&self.input.data()[..head.bytes]);
        self.journal.record_parent(head.parent);
        let label = self.label(&head);
        let is_listed = shared.config.repeatable.contains(&self.input.data()[head.method.0..head.method.1]);
        if self.input.data()[head.target.0..head.target.1].starts_with(OWN) {
            let target = self.input.data()[head.target.0..head.target.1].to_vec();
            let answer = admin::answer_trace_request(shared, &target).await;
            self.answer_and_close(answer, |journal| journal.finish_untracked(RequestOutcome::Own)).await;
            return Err(NoRequest::Closed);
        }
        self.input.consume(head.bytes);
        let is_repeatable = is_listed && !head.upgrades && self.buffer_short_body(&mut head, limits).await?;
        Ok((head, RequestClass { is_repeatable, follows: None, label }))
    }

    fn label(&self, head: &RequestHead) -> Label {
        Label::from_text(&self.input.data()[head.method.0..head.target.1])
    }

    async fn next_head(&mut self, shared: &Shared, has_sent_request: bool) -> Result<RequestHead, NoRequest> {
        let limits = &shared.config.limits;
        self.deadline.start(if self.input.is_empty() { limits.idle_time } else { limits.head_time });
        let mut looked = 0;
        loop {
            // Parse only after a line end, so that a head sent byte by byte is not parsed again at each byte.
            let is_worth_it =
                self.input.data()[looked..].contains(&b'\n') || self.input.data().len() >= limits.head_bytes;
            if is_worth_it
                && let Some(head) = read_request(self.input.data(), limits.head_bytes, &self.peer, &mut self.request)?
            {
                return Ok(head);
            }
            looked = self.input.data().len();
            if looked > 0 {
                self.journal.record_arrival();
            }
            let had_none = self.input.is_empty();
            let more = match had_none {
                true => {
                    self.release_idle_memory();
                    self.read_more_unless_draining(shared, has_sent_request).await?
                }
                false => self.read_more().await,
            };
            match more {
                Ok(0) if had_none => return Err(NoRequest::Closed),
                Ok(0) => return Err(Refused::Malformed("it ends within the head").into()),
                Ok(_) if had_none => self.deadline.start(limits.head_time),
                Ok(_) => {}
                Err(Some(TooLate)) if had_none => return Err(NoRequest::Closed),
                Err(Some(TooLate)) => return Err(timeout_error(limits)),
                Err(None) => return Err(NoRequest::Closed),
            }
        }
    }

    fn release_idle_memory(&mut self) {
        for bytes in [&mut self.out, &mut self.request, self.journal.texts_mut()] {
            bytes.clear();
            bytes.shrink_to(IDLE_BYTES);
        }
    }

    /// Appends the body to `request` if the body is short enough for a second copy. Returns whether the body was
    /// appended.
    async fn buffer_short_body(&mut self, head: &mut RequestHead, limits: &Limits) -> Result<bool, NoRequest> {
        let Body::Length(length) = head.body else { return Ok(false) };
        if length as usize > limits.copy_bytes || head.expects_continue {
            return Ok(length == 0);
        }
        self.deadline.start(limits.head_time);
        while !head.body.is_complete() {
            self.take_body(&mut head.body).map_err(|_| Refused::Malformed("its body does not match its head"))?;
            if head.body.is_complete() {
                break;
            }
            self.journal.record_arrival();
            match self.read_more().await {
                Ok(0) => return Err(Refused::Malformed("it ends within the body").into()),
                Ok(_) => {}
                Err(Some(TooLate)) => return Err(timeout_error(limits)),
                Err(None) => return Err(NoRequest::Closed),
            }
        }
        Ok(true)
    }

    /// Moves the received bytes of the body to the end of `request`, and returns their number.
    pub(super) fn take_body(&mut self, body: &mut Body) -> Result<usize, crate::http::BadBody> {
        let count = body.consume(self.input.data())?;
        self.request.extend_from_slice(&self.input.data()[..count]);
        self.input.consume(count);
        self.journal.add_received_bytes(count);
        Ok(count)
    }

    /// Waits for the first bytes of a request, or for the drain. Bytes that have arrived already take precedence.
    async fn read_more_unless_draining(
        &mut self,
        shared: &Shared,
        has_sent_request: bool,
    ) -> Result<Result<usize, Option<TooLate>>, NoRequest> {
        tokio::select! {
            biased;
            more = self.read_more() => Ok(more),
            () = shared.drain.wait_to_close_idle(has_sent_request) => Err(NoRequest::Closed),
        }
    }

    /// Waits for more bytes, and returns their number, or 0 at the end of the stream.
    pub(super) async fn read_more(&mut self) -> Result<usize, Option<TooLate>> {
        loop {
            let ready = self.deadline.wait_for(self.stream.readable()).await.map_err(Some)?;
            ready.map_err(|_| None)?;
            match self.stream.fill(&mut self.input) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(None),
            }
        }
    }

    /// Writes `out` to the client, and empties it.
    pub(super) async fn write_out(&mut self) -> Result<(), Gone> {
        let mut written = 0;
        while written < self.out.len() {
            match self.stream.try_write(&self.out[written..]) {
                Ok(count) => {
                    written += count;
                    self.journal.add_sent_bytes(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_for_write_room().await?,
                Err(_) => return Err(Gone),
            }
        }
        self.out.clear();
        Ok(())
    }

    /// Waits until the client has read enough for more to be written. Fails if it reads too slowly.
    async fn wait_for_write_room(&mut self) -> Result<(), Gone> {
        let mut unread = unacknowledged_bytes(self.stream.socket()).ok_or(Gone)?;
        loop {
            self.pace.set_waiting(Instant::now(), true);
            self.deadline.start(self.pace.time_left());
            let ready = self.deadline.wait_for(self.stream.socket().writable()).await;
            self.pace.set_waiting(Instant::now(), false);
            // Measure progress by unacknowledged bytes. The socket becomes writable only after a third of the kernel's
            // buffer was read, which may be a megabyte.
            let left = unacknowledged_bytes(self.stream.socket()).ok_or(Gone)?;
            self.pace.add_transferred(unread.saturating_sub(left));
            unread = left;
            match ready {
                Ok(ready) => return ready.map_err(|_| Gone),
                Err(TooLate) if self.pace.time_left().is_zero() => return Err(Gone),
                Err(TooLate) => {}
            }
        }
    }

    /// Answers with an error about the request, and closes the connection.
    pub(super) async fn refuse_request(&mut self, status: u16, why: &str) {
        // Record the head if it has not been recorded yet, because it could not be parsed.
        if !self.journal.has_recorded_head() {
            self.journal.record_head(self.input.data());
        }
        self.answer_and_close(error_answer(status, why), |journal| {
            journal.finish_untracked(RequestEnd::Failed(status).into())
        })
        .await;
    }

    /// Answers with the reason why the request failed, and closes the connection.
    pub(super) async fn fail_request(&mut self, request_id: RequestId, status: u16, why: &str) {
        self.answer_and_close(error_answer(status, why), |journal| {
            journal.finish(request_id, RequestEnd::Failed(status))
        })
        .await;
    }

    /// Answers, ends the request with `finish`, and closes the connection. It first reads what the client still sends,
    /// because the client might otherwise lose the answer.
    async fn answer_and_close(&mut self, answer: Vec<u8>, finish: impl FnOnce(&mut Journal)) {
        self.journal.record_own_answer(&answer);
        self.out = answer;
        self.pace = Pace::new(LINGER_TIME);
        let written = self.write_out().await;
        finish(&mut self.journal);
        if written.is_ok() {
            self.stream.finish();
            linger(self.stream.socket(), &mut self.deadline).await;
        }
    }

    /// Reads and drops the rest of an upload after its final answer. Many clients read the answer only after they have
    /// sent everything, and closing a connection with unread bytes resets it.
    pub(super) async fn linger_after_upload(&mut self) {
        self.stream.finish();
        linger_for(self.stream.socket(), &mut self.deadline, UPLOAD_LINGER_TIME, usize::MAX).await;
    }
}

fn error_answer(status: u16, why: &str) -> Vec<u8> {
    let mut answer = Vec::new();
    write_error(status, why, &mut answer);
    answer
}

fn timeout_error(limits: &Limits) -> NoRequest {
    NoRequest::Error(408, format!("the request did not arrive completely within {} ms", limits.head_time.as_millis()))
}

/// Closes the proxy's sending direction, and reads the client's data to its end, within limits of bytes and time.
pub(crate) async fn linger(stream: &TcpStream, deadline: &mut Deadline) {
    linger_for(stream, deadline, LINGER_TIME, LINGER_BYTES).await;
}

async fn linger_for(stream: &TcpStream, deadline: &mut Deadline, time: std::time::Duration, bytes_max: usize) {
    if rustix::net::shutdown(stream, rustix::net::Shutdown::Write).is_err() {
        return;
    }
    deadline.start(time);
    let (mut thrown, mut bytes) = (0, [0; 4096]);
    let _ = deadline
        .wait_for(std::future::poll_fn(|cx| {
            while thrown < bytes_max {
                match stream.try_read(&mut bytes) {
                    Ok(0) => return Poll::Ready(()),
                    Ok(count) => thrown += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => match stream.poll_read_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(_)) => return Poll::Ready(()),
                        Poll::Pending => return Poll::Pending,
                    },
                    Err(_) => return Poll::Ready(()),
                }
            }
            Poll::Ready(())
        }))
        .await;
}

/// Way in which a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// The client sends nothing more, but may still read.
    HalfClosed,
    /// The connection is broken, and the client gets no answer.
    Broken,
}

/// Waits until the client leaves. After a half-close, only a broken connection counts.
pub(super) async fn wait_for_departure(stream: &TcpStream, is_half_closed: bool) -> Departure {
    if !is_half_closed {
        // Interest in priority data makes tokio report a half-close without reporting ordinary data.
        match stream.ready(Interest::ERROR | Interest::PRIORITY).await {
            Ok(ready) if ready.is_error() => return Departure::Broken,
            Ok(ready) if ready.is_read_closed() => return Departure::HalfClosed,
            // Ignore urgent data, which HTTP does not use.
            Ok(_) => {}
            Err(_) => return Departure::Broken,
        }
    }
    // Ignore the result: any event means that the connection is of no use.
    let _ = stream.ready(Interest::ERROR).await;
    Departure::Broken
}

impl Client {
    /// Records a departure. Returns whether the client gets no further answer.
    pub(super) fn record_departure(&mut self, departure: Departure, limits: &Limits) -> bool {
        self.is_half_closed = true;
        departure == Departure::Broken || limits.abort_on_close
    }
}
