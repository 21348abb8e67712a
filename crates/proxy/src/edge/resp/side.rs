//! Connection of one client's task to one server, with the bytes that are still to be written.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use sidelane_policy::hedge::Server;
use tokio::io::AsyncWriteExt;

use super::super::buffer::Buffer;
use super::super::connection::ServerConnection;
use super::super::shared::Shared;
use super::quality::read_and_discard_reply;
use crate::request_table::Loss;
use crate::resp::{BadFrame, ReplyScanner};

/// State of the connection.
#[derive(Default)]
enum ConnectionState {
    #[default]
    None,
    Connecting(Pin<Box<dyn Future<Output = Option<ServerConnection>>>>),
    There(ServerConnection),
}

/// One server from the view of one client's task: its connection, and its unsent commands.
#[derive(Default)]
pub(super) struct ServerSide {
    way: ConnectionState,
    unsent: Buffer,
    scanner: ReplyScanner,
    /// Whether the connection has state of this client, so that no other client may use it.
    is_marked: bool,
    /// Command that each new connection begins with. The client does not get its reply.
    greeting: Option<Rc<[u8]>>,
}

/// Event of the connection to a server.
pub(super) enum ServerSideEvent {
    /// Replies may be readable.
    Readable,
    /// The connection is lost, and its pending replies will not come.
    Lost(Loss),
}

impl ServerSide {
    /// Queues a command to be written as soon as possible. Opens a connection if there is none.
    pub(super) fn send(&mut self, shared: &Rc<Shared>, server: Server, command: &[u8]) {
        self.unsent.push(command);
        if matches!(self.way, ConnectionState::None) {
            self.way = match shared.take_idle_connection(server).filter(|_| !self.has_greeting()) {
                Some(connection) => ConnectionState::There(connection),
                None => ConnectionState::Connecting(Box::pin(open_connection(
                    Rc::clone(shared),
                    server,
                    self.greeting.clone(),
                ))),
            };
        }
    }

    /// Returns whether there is no connection and no greeting yet.
    pub(super) fn is_unused(&self) -> bool {
        matches!(self.way, ConnectionState::None) && !self.has_greeting()
    }

    /// Returns whether new connections begin with a greeting.
    pub(super) fn has_greeting(&self) -> bool {
        self.greeting.is_some()
    }

    /// Sets the greeting: each new connection begins with this command, and is not used by other clients.
    pub(super) fn set_greeting(&mut self, greeting: Rc<[u8]>) {
        self.greeting = Some(greeting);
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ServerSideEvent> {
        if let ConnectionState::Connecting(connecting) = &mut self.way {
            match connecting.as_mut().poll(cx) {
                Poll::Ready(Some(connection)) => self.way = ConnectionState::There(connection),
                Poll::Ready(None) => return Poll::Ready(ServerSideEvent::Lost(Loss::NotSent)),
                Poll::Pending => return Poll::Pending,
            }
        }
        let ConnectionState::There(connection) = &self.way else { return Poll::Pending };
        let lost = Poll::Ready(ServerSideEvent::Lost(Loss::Sent));
        while !self.unsent.is_empty() {
            match connection.stream.try_write(self.unsent.data()) {
                Ok(count) => self.unsent.consume(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match connection.stream.poll_write_ready(cx)
                {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => return lost,
                    Poll::Pending => break,
                },
                Err(_) => return lost,
            }
        }
        match connection.stream.poll_read_ready(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(ServerSideEvent::Readable),
            Poll::Ready(Err(_)) => lost,
            Poll::Pending => Poll::Pending,
        }
    }

    /// Reads available bytes. An error means the end of the connection.
    pub(super) fn read_available(&mut self) -> io::Result<()> {
        let ConnectionState::There(connection) = &mut self.way else { return Ok(()) };
        match connection.input.fill(&connection.stream) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the received bytes of the next reply, and whether the reply is complete; `None` if no byte has arrived.
    pub(super) fn next_reply_part(&mut self) -> Result<Option<(&[u8], bool)>, BadFrame> {
        let ConnectionState::There(connection) = &mut self.way else { return Ok(None) };
        if connection.input.is_empty() {
            return Ok(None);
        }
        let (count, is_whole) = self.scanner.scan(connection.input.data())?;
        Ok(Some((&connection.input.data()[..count], is_whole)))
    }

    /// Removes the first bytes that [`Self::next_reply_part`] returned.
    pub(super) fn consume_reply(&mut self, count: usize) {
        self.scanner.consume_scanned();
        if let ConnectionState::There(connection) = &mut self.way {
            connection.input.consume(count);
        }
    }

    /// Returns the number of bytes not yet written to the server.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent.data().len()
    }

    /// Returns the number of received bytes not yet used.
    pub(super) fn kept_bytes(&self) -> usize {
        match &self.way {
            ConnectionState::There(connection) => connection.input.data().len(),
            _ => 0,
        }
    }

    /// Records that the connection has state of this client, so that no other client may use it.
    pub(super) fn mark_stateful(&mut self) {
        self.is_marked = true;
    }

    pub(super) fn is_stateful(&self) -> bool {
        self.is_marked || self.has_greeting()
    }

    pub(super) fn connection(&self) -> Option<&ServerConnection> {
        match &self.way {
            ConnectionState::There(connection) => Some(connection),
            _ => None,
        }
    }

    /// Closes the connection, and forgets unsent commands.
    pub(super) fn close(&mut self) {
        *self = Self { greeting: self.greeting.take(), ..Self::default() };
    }

    /// Takes the present connection, or opens one.
    pub(super) async fn take_or_open_connection(
        &mut self,
        shared: &Rc<Shared>,
        server: Server,
    ) -> Option<ServerConnection> {
        match self.take_connection() {
            Some(connection) => Some(connection),
            None => open_connection(Rc::clone(shared), server, self.greeting.clone()).await,
        }
    }

    /// Takes the present connection; `None` if there is none, or if commands are unsent.
    pub(super) fn take_connection(&mut self) -> Option<ServerConnection> {
        match std::mem::take(&mut self.way) {
            ConnectionState::There(connection) if self.unsent.is_empty() => Some(connection),
            _ => None,
        }
    }
}

/// Opens a connection, and sends the greeting. Drops the reply to the greeting, also if it is an error.
async fn open_connection(shared: Rc<Shared>, server: Server, greeting: Option<Rc<[u8]>>) -> Option<ServerConnection> {
    let mut connection = Rc::clone(&shared).next_connection(server).await?;
    let Some(greeting) = greeting else { return Some(connection) };
    connection.stream.write_all(&greeting).await.ok()?;
    read_and_discard_reply(connection, &shared.config.limits).await?.1
}
