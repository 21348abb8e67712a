//! One server, as one client's task has it: its connection, and what is still to be written to it.

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
use super::quality::swallow;
use crate::request_table::Loss;
use crate::resp::{BadFrame, Scanner};

/// The connection.
#[derive(Default)]
enum Way {
    #[default]
    None,
    Connecting(Pin<Box<dyn Future<Output = Option<ServerConnection>>>>),
    There(ServerConnection),
}

/// One server, as one client's task has it.
#[derive(Default)]
pub(super) struct Side {
    way: Way,
    unsent: Buffer,
    scanner: Scanner,
    /// Its connection is no other client's after this one.
    is_marked: bool,
    /// Each new connection begins with this command, whose reply the client does not get.
    greeting: Option<Rc<[u8]>>,
}

/// What happened.
pub(super) enum SideEvent {
    /// Replies may have come.
    Readable,
    /// The connection is lost; what it owes does not come.
    Lost(Loss),
}

impl Side {
    /// The command is written as soon as it can be.
    pub(super) fn send(&mut self, shared: &Rc<Shared>, server: Server, command: &[u8]) {
        self.unsent.push(command);
        if matches!(self.way, Way::None) {
            self.way = match shared.idle_connection(server).filter(|_| !self.has_greeting()) {
                Some(connection) => Way::There(connection),
                None => Way::Connecting(Box::pin(open(Rc::clone(shared), server, self.greeting.clone()))),
            };
        }
    }

    /// Whether it has no connection, and has had none.
    pub(super) fn is_new(&self) -> bool {
        matches!(self.way, Way::None) && !self.has_greeting()
    }

    /// Whether its connections begin with a command.
    pub(super) fn has_greeting(&self) -> bool {
        self.greeting.is_some()
    }

    /// Each connection that is made from now on begins with this command, and is no other client's.
    pub(super) fn greet(&mut self, greeting: Rc<[u8]>) {
        self.greeting = Some(greeting);
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<SideEvent> {
        if let Way::Connecting(connecting) = &mut self.way {
            match connecting.as_mut().poll(cx) {
                Poll::Ready(Some(connection)) => self.way = Way::There(connection),
                Poll::Ready(None) => return Poll::Ready(SideEvent::Lost(Loss::NotSent)),
                Poll::Pending => return Poll::Pending,
            }
        }
        let Way::There(connection) = &self.way else { return Poll::Pending };
        let lost = Poll::Ready(SideEvent::Lost(Loss::Sent));
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
            Poll::Ready(Ok(())) => Poll::Ready(SideEvent::Readable),
            Poll::Ready(Err(_)) => lost,
            Poll::Pending => Poll::Pending,
        }
    }

    /// Takes in what has come; an error is the end of the connection.
    pub(super) fn read(&mut self) -> io::Result<()> {
        let Way::There(connection) = &mut self.way else { return Ok(()) };
        match connection.input.fill(&connection.stream) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// What belongs to the next reply, as far as it has come, and whether it is whole.
    pub(super) fn reply(&mut self) -> Result<Option<(&[u8], bool)>, BadFrame> {
        let Way::There(connection) = &mut self.way else { return Ok(None) };
        if connection.input.is_empty() {
            return Ok(None);
        }
        let (count, is_whole) = self.scanner.next(connection.input.data())?;
        Ok(Some((&connection.input.data()[..count], is_whole)))
    }

    /// The first bytes that [`Self::reply`] told of are used.
    pub(super) fn take(&mut self, count: usize) {
        self.scanner.take();
        if let Way::There(connection) = &mut self.way {
            connection.input.consume(count);
        }
    }

    /// Bytes that were not written to the server yet.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent.data().len()
    }

    /// Bytes that have come and are not used.
    pub(super) fn kept_bytes(&self) -> usize {
        match &self.way {
            Way::There(connection) => connection.input.data().len(),
            _ => 0,
        }
    }

    /// The connection has something of this client's: no other one gets it.
    pub(super) fn mark(&mut self) {
        self.is_marked = true;
    }

    pub(super) fn is_marked(&self) -> bool {
        self.is_marked || self.has_greeting()
    }

    /// The connection.
    pub(super) fn connection(&self) -> Option<&ServerConnection> {
        match &self.way {
            Way::There(connection) => Some(connection),
            _ => None,
        }
    }

    /// The connection is given up.
    pub(super) fn close(&mut self) {
        *self = Self { greeting: self.greeting.take(), ..Self::default() };
    }

    /// Takes the connection away, or makes one.
    pub(super) async fn take_or_open_connection(
        &mut self,
        shared: &Rc<Shared>,
        server: Server,
    ) -> Option<ServerConnection> {
        match self.take_connection() {
            Some(connection) => Some(connection),
            None => open(Rc::clone(shared), server, self.greeting.clone()).await,
        }
    }

    /// Takes the connection away, if nothing is on its way.
    pub(super) fn take_connection(&mut self) -> Option<ServerConnection> {
        match std::mem::take(&mut self.way) {
            Way::There(connection) if self.unsent.is_empty() => Some(connection),
            _ => None,
        }
    }
}

/// Makes a connection, and greets the server there. An error is its answer at the other server, too.
async fn open(shared: Rc<Shared>, server: Server, greeting: Option<Rc<[u8]>>) -> Option<ServerConnection> {
    let mut connection = Rc::clone(&shared).next_connection(server).await?;
    let Some(greeting) = greeting else { return Some(connection) };
    connection.stream.write_all(&greeting).await.ok()?;
    swallow(connection, &shared.config.limits).await?.1
}
