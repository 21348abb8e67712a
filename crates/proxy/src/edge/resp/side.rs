//! One server, as one client's task has it: its connection, and what is still to be written to it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use sidelane_policy::hedge::Server;
use tokio::io::AsyncWriteExt;

use super::super::buffer::Buffer;
use super::super::link::Link;
use super::super::shared::Shared;
use super::quality::swallow;
use crate::desk::Loss;
use crate::resp::{BadFrame, Scanner};

/// The connection.
#[derive(Default)]
enum Way {
    #[default]
    None,
    Connecting(Pin<Box<dyn Future<Output = Option<Link>>>>),
    There(Link),
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
            self.way = match shared.idle_link(server).filter(|_| !self.has_greeting()) {
                Some(link) => Way::There(link),
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
                Poll::Ready(Some(link)) => self.way = Way::There(link),
                Poll::Ready(None) => return Poll::Ready(SideEvent::Lost(Loss::NotSent)),
                Poll::Pending => return Poll::Pending,
            }
        }
        let Way::There(link) = &self.way else { return Poll::Pending };
        let lost = Poll::Ready(SideEvent::Lost(Loss::Sent));
        while !self.unsent.is_empty() {
            match link.stream.try_write(self.unsent.data()) {
                Ok(count) => self.unsent.consume(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match link.stream.poll_write_ready(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => return lost,
                    Poll::Pending => break,
                },
                Err(_) => return lost,
            }
        }
        match link.stream.poll_read_ready(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(SideEvent::Readable),
            Poll::Ready(Err(_)) => lost,
            Poll::Pending => Poll::Pending,
        }
    }

    /// Takes in what has come; an error is the end of the connection.
    pub(super) fn read(&mut self) -> io::Result<()> {
        let Way::There(link) = &mut self.way else { return Ok(()) };
        match link.input.fill(&link.stream) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// What belongs to the next reply, as far as it has come, and whether it is whole.
    pub(super) fn reply(&mut self) -> Result<Option<(&[u8], bool)>, BadFrame> {
        let Way::There(link) = &mut self.way else { return Ok(None) };
        if link.input.is_empty() {
            return Ok(None);
        }
        let (count, is_whole) = self.scanner.next(link.input.data())?;
        Ok(Some((&link.input.data()[..count], is_whole)))
    }

    /// The first bytes that [`Self::reply`] told of are used.
    pub(super) fn take(&mut self, count: usize) {
        self.scanner.take();
        if let Way::There(link) = &mut self.way {
            link.input.consume(count);
        }
    }

    /// Bytes that were not written to the server yet.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent.data().len()
    }

    /// Bytes that have come and are not used.
    pub(super) fn kept_bytes(&self) -> usize {
        match &self.way {
            Way::There(link) => link.input.data().len(),
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
    pub(super) fn link(&self) -> Option<&Link> {
        match &self.way {
            Way::There(link) => Some(link),
            _ => None,
        }
    }

    /// The connection is given up.
    pub(super) fn close(&mut self) {
        *self = Self { greeting: self.greeting.take(), ..Self::default() };
    }

    /// Takes the connection away, or makes one.
    pub(super) async fn take_or_open_link(&mut self, shared: &Rc<Shared>, server: Server) -> Option<Link> {
        match self.take_link() {
            Some(link) => Some(link),
            None => open(Rc::clone(shared), server, self.greeting.clone()).await,
        }
    }

    /// Takes the connection away, if nothing is on its way.
    pub(super) fn take_link(&mut self) -> Option<Link> {
        match std::mem::take(&mut self.way) {
            Way::There(link) if self.unsent.is_empty() => Some(link),
            _ => None,
        }
    }
}

/// Makes a connection, and greets the server there. An error is its answer at the other server, too.
async fn open(shared: Rc<Shared>, server: Server, greeting: Option<Rc<[u8]>>) -> Option<Link> {
    let mut link = Rc::clone(&shared).next_link(server).await?;
    let Some(greeting) = greeting else { return Some(link) };
    link.stream.write_all(&greeting).await.ok()?;
    swallow(link, &shared.config.limits).await?.1
}
