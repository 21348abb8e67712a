//! One thread for all connections, as in Redis. In each turn it receives from every ready connection, and then sends
//! all replies.

use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

use anyhow::Result;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;

use super::buffer::{Buffer, Received};
use super::journal::Journal;
use super::wire::EchoRequest;
use crate::clock::Nanos;

const EVENTS_MAX: usize = 64;

struct EventLoop<'a> {
    journal: &'a Journal,
    epoll: OwnedFd,
    clients: HashMap<RawFd, (TcpStream, Buffer)>,
}

/// Runs the event loop until the process ends.
pub fn run(listener: &TcpListener, journal: &Journal) -> Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let door = listener.as_raw_fd();
    epoll::add(&epoll, listener, epoll::EventData::new_u64(door as u64), epoll::EventFlags::IN)?;
    let mut turns = EventLoop { journal, epoll, clients: HashMap::new() };
    let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_MAX);
    loop {
        events.clear();
        rustix::io::retry_on_intr(|| epoll::wait(&turns.epoll, spare_capacity(&mut events), None))?;
        let ready: Vec<RawFd> = events.iter().map(|event| event.data.u64() as RawFd).collect();
        if ready.contains(&door) {
            turns.accept(listener)?;
        }
        turns.serve_ready_clients(ready.into_iter().filter(|fd| *fd != door));
    }
}

impl EventLoop<'_> {
    fn accept(&mut self, listener: &TcpListener) -> Result<()> {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let fd = stream.as_raw_fd();
        epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(fd as u64), epoll::EventFlags::IN)?;
        self.clients.insert(fd, (stream, Buffer::default()));
        Ok(())
    }

    fn serve_ready_clients(&mut self, ready_fds: impl Iterator<Item = RawFd>) {
        let mut answers: Vec<(RawFd, EchoRequest, Nanos)> = vec![];
        for fd in ready_fds {
            let Some((stream, buffer)) = self.clients.get_mut(&fd) else { continue };
            match buffer.receive(&*stream) {
                Received::Requests(asks, read_ns) => match asks[..] {
                    [ask] => {
                        self.journal.spin_for_random_work();
                        answers.push((fd, ask, read_ns));
                    }
                    // Serves requests that arrived together one after another.
                    _ => drop(self.journal.serve_requests(&asks, read_ns, &*stream)),
                },
                Received::Closed => drop(self.clients.remove(&fd)),
            }
        }
        for (fd, ask, read_ns) in answers {
            // Ignores a failed send: the next receive notices a closed connection.
            let _ = self.journal.send_reply(ask, read_ns, &self.clients[&fd].0);
        }
    }
}
