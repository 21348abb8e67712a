//! The service as an event loop of one thread: several planted requests can wait for their timers at the same time.

use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;

use super::{PlantArgs, next_request_is_planted, send_response};
use crate::clock::{Nanos, now_ns, timespec};
use crate::plant::cause::spin;

/// Epoll data of the listening socket; clients have the numbers from 0 on.
const DOOR: u64 = u64::MAX;

/// Runs the event loop until the process is killed.
pub fn serve_clients(listener: &TcpListener, args: &PlantArgs) -> Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot make an epoll instance")?;
    epoll::add(&epoll, listener, epoll::EventData::new_u64(DOOR), epoll::EventFlags::IN)?;
    let mut clients: Vec<Option<TcpStream>> = Vec::new();
    // Queue of waiting requests in order of arrival: when each is due, and its client. All wait equally long, so the
    // first is due first.
    let mut timers: VecDeque<(Nanos, usize)> = VecDeque::new();
    let mut events = Vec::with_capacity(8);
    loop {
        let timeout = timers.front().map(|(due_ns, _)| timespec(due_ns.saturating_sub(now_ns())));
        match epoll::wait(&epoll, spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for events"),
        }
        for event in events.drain(..) {
            let number = event.data.u64();
            if number == DOOR {
                let (client, _) = listener.accept().context("cannot accept a connection")?;
                client.set_nodelay(true)?;
                let data = epoll::EventData::new_u64(clients.len() as u64);
                epoll::add(&epoll, &client, data, epoll::EventFlags::IN)?;
                clients.push(Some(client));
            } else if let Some(due_ns) = handle_readable_client(&mut clients[number as usize], args) {
                timers.push_back((due_ns, number as usize));
            }
        }
        while let Some((_, number)) = timers.front().copied().filter(|(due_ns, _)| *due_ns <= now_ns()) {
            timers.pop_front();
            let _ = clients[number].as_mut().map(|client| send_response(client, false, 0));
        }
    }
}

/// Answers a client's plain request, or returns when to answer a planted one. Drops a client that has closed its
/// connection.
fn handle_readable_client(client: &mut Option<TcpStream>, args: &PlantArgs) -> Option<Nanos> {
    let stream = client.as_mut()?;
    let Some(is_planted) = next_request_is_planted(stream) else {
        *client = None;
        return None;
    };
    spin(args.work_us * 1000);
    if is_planted {
        return Some(now_ns() + args.delay_ns());
    }
    let _ = send_response(stream, false, 0);
    None
}
