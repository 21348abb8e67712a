//! One client's connection: requests that come, and answers that go.

use std::io;
use std::rc::Rc;
use std::task::Poll;

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::super::buffer::Buffer;
use super::super::connection::unacknowledged;
use super::super::deadline::{Deadline, TooLate};
use super::super::pace::Pace;
use super::super::shared::{Owner, Shared};
use super::admin;
use super::journal::Journal;
use crate::access::Outcome;
use crate::config::Limits;
use crate::http::{Body, Peer, Refused, RequestHead, read_request, write_error};
use crate::request_table::{Class, End, Label, RequestId};

/// The start of a target that the proxy answers itself.
const OWN: &[u8] = b"/.sidelane/";
/// What is read and thrown away after an error, so that the client gets to read it.
const LINGER_BYTES: usize = 256 << 10;
const LINGER_TIME: std::time::Duration = std::time::Duration::from_secs(2);
/// The longest time for which the rest of an upload is read after its final answer.
const UPLOAD_LINGER_TIME: std::time::Duration = std::time::Duration::from_secs(30);

/// Bytes of each of its buffers that an idle client keeps: there may be thousands of idle clients.
const IDLE_BYTES: usize = 1 << 10;

/// A client's connection.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    peer: Peer,
    pub(super) input: Buffer,
    pub(super) deadline: Deadline,
    /// How fast it reads its answer.
    pub(super) pace: Pace,
    /// What is written next. Its memory is used again, as that of `request`, unless it is long.
    pub(super) out: Vec<u8>,
    /// The request as the server sees it.
    pub(super) request: Vec<u8>,
    pub(super) mailbox: Owner,
    /// It sends nothing any more.
    pub(super) is_half_closed: bool,
    pub(super) journal: Journal,
}

impl Client {
    pub(super) fn new(stream: TcpStream, peer: Peer, journal: Journal, limits: &Limits) -> Self {
        let (out, request) = (Vec::new(), Vec::new());
        let (deadline, pace) = (Deadline::new(limits), Pace::new(limits.idle_time));
        let (input, mailbox) = (Buffer::default(), Owner::default());
        Self { stream, peer, input, deadline, pace, out, request, mailbox, is_half_closed: false, journal }
    }
}

/// The client is gone, or reads too slowly.
#[derive(Debug)]
pub(super) struct Gone;

/// Why no request comes.
pub(super) enum NoRequest {
    /// The client is done, or gone.
    Closed,
    /// The client is told what is wrong.
    Error(u16, String),
}

impl From<Refused> for NoRequest {
    fn from(refused: Refused) -> Self {
        Self::Error(refused.status(), refused.to_string())
    }
}

impl Client {
    /// The next request, whole if it is safe to repeat. One that is for the proxy itself is answered, and ends the
    /// connection. `has_asked`: there was one before.
    pub(super) async fn next_request(
        &mut self,
        shared: &Rc<Shared>,
        has_asked: bool,
    ) -> Result<(RequestHead, Class), NoRequest> {
        let limits = &shared.config.limits;
        let mut head = self.next_head(shared, has_asked).await?;
        self.journal.has_head(&self.input.data()[..head.bytes]);
        let label = self.label(&head);
        let is_listed = shared.config.repeatable.contains(&self.input.data()[head.method.0..head.method.1]);
        if self.input.data()[head.target.0..head.target.1].starts_with(OWN) {
            let target = self.input.data()[head.target.0..head.target.1].to_vec();
            self.answer_here(admin::answer(shared, &target), |journal| journal.finish_apart(Outcome::Own)).await;
            return Err(NoRequest::Closed);
        }
        self.input.consume(head.bytes);
        let is_repeatable = is_listed && !head.upgrades && self.has_whole_body(&mut head, limits).await?;
        Ok((head, Class { is_repeatable, follows: None, label }))
    }

    fn label(&self, head: &RequestHead) -> Label {
        Label::of(&self.input.data()[head.method.0..head.target.1])
    }

    async fn next_head(&mut self, shared: &Shared, has_asked: bool) -> Result<RequestHead, NoRequest> {
        let limits = &shared.config.limits;
        self.deadline.start(if self.input.is_empty() { limits.idle_time } else { limits.head_time });
        let mut looked = 0;
        loop {
            // A client that sends byte by byte is not read anew at each of them.
            let is_worth_it =
                self.input.data()[looked..].contains(&b'\n') || self.input.data().len() >= limits.head_bytes;
            if is_worth_it
                && let Some(head) = read_request(self.input.data(), limits.head_bytes, &self.peer, &mut self.request)?
            {
                return Ok(head);
            }
            looked = self.input.data().len();
            if looked > 0 {
                self.journal.comes();
            }
            let had_none = self.input.is_empty();
            let more = match had_none {
                true => {
                    self.give_memory_back();
                    self.more_unless_drained(shared, has_asked).await?
                }
                false => self.more().await,
            };
            match more {
                Ok(0) if had_none => return Err(NoRequest::Closed),
                Ok(0) => return Err(Refused::Malformed("it ends in the middle").into()),
                Ok(_) if had_none => self.deadline.start(limits.head_time),
                Ok(_) => {}
                Err(Some(TooLate)) if had_none => return Err(NoRequest::Closed),
                Err(Some(TooLate)) => return Err(late(limits)),
                Err(None) => return Err(NoRequest::Closed),
            }
        }
    }

    fn give_memory_back(&mut self) {
        for bytes in [&mut self.out, &mut self.request, self.journal.texts()] {
            bytes.clear();
            bytes.shrink_to(IDLE_BYTES);
        }
    }

    /// Reads the body to the end of `request` if it is short enough to be sent once more. Whether it is.
    async fn has_whole_body(&mut self, head: &mut RequestHead, limits: &Limits) -> Result<bool, NoRequest> {
        let Body::Length(length) = head.body else { return Ok(false) };
        if length as usize > limits.copy_bytes || head.expects_continue {
            return Ok(length == 0);
        }
        self.deadline.start(limits.head_time);
        while !head.body.is_over() {
            self.take_body(&mut head.body).map_err(|_| Refused::Malformed("its body"))?;
            if head.body.is_over() {
                break;
            }
            self.journal.comes();
            match self.more().await {
                Ok(0) => return Err(Refused::Malformed("it ends in the middle").into()),
                Ok(_) => {}
                Err(Some(TooLate)) => return Err(late(limits)),
                Err(None) => return Err(NoRequest::Closed),
            }
        }
        Ok(true)
    }

    /// Moves what has come of the body to the end of `request`.
    pub(super) fn take_body(&mut self, body: &mut Body) -> Result<usize, crate::http::BadBody> {
        let count = body.take(self.input.data())?;
        self.request.extend_from_slice(&self.input.data()[..count]);
        self.input.consume(count);
        self.journal.received(count);
        Ok(count)
    }

    /// Waits for the first bytes of a request. If the proxy drains, those that have come already count.
    async fn more_unless_drained(
        &mut self,
        shared: &Shared,
        has_asked: bool,
    ) -> Result<Result<usize, Option<TooLate>>, NoRequest> {
        tokio::select! {
            biased;
            more = self.more() => Ok(more),
            () = shared.drain.closes_idle(has_asked) => Err(NoRequest::Closed),
        }
    }

    /// Waits for more bytes: 0 at the end of the stream.
    pub(super) async fn more(&mut self) -> Result<usize, Option<TooLate>> {
        loop {
            let ready = self.deadline.wait(self.stream.readable()).await.map_err(Some)?;
            ready.map_err(|_| None)?;
            match self.input.fill(&self.stream) {
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
                    self.journal.sent(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.has_room().await?,
                Err(_) => return Err(Gone),
            }
        }
        self.out.clear();
        Ok(())
    }

    /// Waits until the client has read enough for more to be written, unless it reads too slowly.
    async fn has_room(&mut self) -> Result<(), Gone> {
        let mut unread = unacknowledged(&self.stream).ok_or(Gone)?;
        loop {
            self.pace.wait(Instant::now(), true);
            self.deadline.start(self.pace.left());
            let ready = self.deadline.wait(self.stream.writable()).await;
            self.pace.wait(Instant::now(), false);
            // The kernel has room only after a third of its buffer was read, which may be a megabyte.
            let left = unacknowledged(&self.stream).ok_or(Gone)?;
            self.pace.came(unread.saturating_sub(left));
            unread = left;
            match ready {
                Ok(ready) => return ready.map_err(|_| Gone),
                Err(TooLate) if self.pace.left().is_zero() => return Err(Gone),
                Err(TooLate) => {}
            }
        }
    }

    /// Tells the client of an error in its request, and closes.
    pub(super) async fn refuse(&mut self, status: u16, why: &str) {
        // A head that was read has been consumed and noted.
        if !self.journal.is_noted() {
            self.journal.has_head(self.input.data());
        }
        self.answer_here(error(status, why), |journal| journal.finish_apart(End::Failed(status).into())).await;
    }

    /// Tells the client why its request failed, and closes.
    pub(super) async fn fail(&mut self, request_id: RequestId, status: u16, why: &str) {
        self.answer_here(error(status, why), |journal| journal.finish(request_id, End::Failed(status))).await;
    }

    /// Answers, ends the request by `finish`, and closes. What the client still sends is read, or it might not get to read
    /// the answer.
    async fn answer_here(&mut self, answer: Vec<u8>, finish: impl FnOnce(&mut Journal)) {
        self.journal.is_answered_here(&answer);
        self.out = answer;
        self.pace = Pace::new(LINGER_TIME);
        let written = self.write_out().await;
        finish(&mut self.journal);
        if written.is_ok() {
            linger(&self.stream, &mut self.deadline).await;
        }
    }

    /// Reads and drops the rest of an upload that has its final answer: many clients read that only when all is sent, and
    /// a connection that is closed with unread bytes is reset.
    pub(super) async fn linger_after_upload(&mut self) {
        linger_for(&self.stream, &mut self.deadline, UPLOAD_LINGER_TIME, usize::MAX).await;
    }
}

fn error(status: u16, why: &str) -> Vec<u8> {
    let mut answer = Vec::new();
    write_error(status, why, &mut answer);
    answer
}

fn late(limits: &Limits) -> NoRequest {
    NoRequest::Error(408, format!("the request did not come whole within {} ms", limits.head_time.as_millis()))
}

/// Ends our direction, and reads the client's to its end, within limits of bytes and time.
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
        .wait(std::future::poll_fn(|cx| {
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

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// It sends nothing any more, and may still read.
    HalfClosed,
    /// Its connection is broken: it gets no answer.
    Broken,
}

/// Waits until the client leaves. A client that has half-closed its connection before can only break it.
pub(super) async fn departure(stream: &TcpStream, is_half_closed: bool) -> Departure {
    if !is_half_closed {
        // tokio tells of a half-closed connection to whom asks for priority data, without telling of other data.
        match stream.ready(Interest::ERROR | Interest::PRIORITY).await {
            Ok(ready) if ready.is_error() => return Departure::Broken,
            Ok(ready) if ready.is_read_closed() => return Departure::HalfClosed,
            // Urgent data, which HTTP does not have.
            Ok(_) => {}
            Err(_) => return Departure::Broken,
        }
    }
    // Ready or not able to tell: the connection is of no use.
    let _ = stream.ready(Interest::ERROR).await;
    Departure::Broken
}

impl Client {
    /// Notes a departure. Whether nothing more is done for the client.
    pub(super) fn is_left(&mut self, departure: Departure, limits: &Limits) -> bool {
        self.is_half_closed = true;
        departure == Departure::Broken || limits.abort_on_close
    }
}
