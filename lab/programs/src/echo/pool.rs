//! A thread pool: one thread receives requests, and several threads work on them and answer.

use std::collections::{HashMap, VecDeque};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use anyhow::Result;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;

use super::buffer::{Buffer, Received};
use super::journal::Journal;
use super::wire::EchoRequest;
use crate::clock::now_ns;

const EVENTS_MAX: usize = 64;
/// Event mask that disarms a connection after a request. The connection is armed again after the reply.
const ONCE: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ONESHOT);

struct Job {
    stream: Arc<TcpStream>,
    asks: Vec<EchoRequest>,
}

struct Pool {
    jobs: Mutex<VecDeque<Job>>,
    more: Condvar,
    epoll: OwnedFd,
    journal: Arc<Journal>,
}

/// Starts the worker threads and dispatches requests to them until the process ends.
pub fn run(listener: &TcpListener, journal: &Arc<Journal>, workers: usize) -> Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let door = listener.as_raw_fd();
    epoll::add(&epoll, listener, epoll::EventData::new_u64(door as u64), epoll::EventFlags::IN)?;
    let (jobs, more, journal) = (Mutex::default(), Condvar::new(), Arc::clone(journal));
    let pool = Arc::new(Pool { jobs, more, epoll, journal });
    for _ in 0..workers {
        let pool = Arc::clone(&pool);
        thread::spawn(move || pool.run_worker());
    }
    pool.dispatch_requests(listener, door)
}

impl Pool {
    fn dispatch_requests(&self, listener: &TcpListener, listener_fd: RawFd) -> Result<()> {
        let mut clients: HashMap<RawFd, (Arc<TcpStream>, Buffer)> = HashMap::new();
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_MAX);
        loop {
            events.clear();
            rustix::io::retry_on_intr(|| epoll::wait(&self.epoll, spare_capacity(&mut events), None))?;
            for fd in events.iter().map(|event| event.data.u64() as RawFd) {
                if fd == listener_fd {
                    let stream = self.accept(listener)?;
                    clients.insert(stream.as_raw_fd(), (stream, Buffer::default()));
                } else if clients
                    .get_mut(&fd)
                    .is_some_and(|(stream, buffer)| self.queue_requests(stream, buffer).is_none())
                {
                    clients.remove(&fd);
                }
            }
        }
    }

    fn accept(&self, listener: &TcpListener) -> Result<Arc<TcpStream>> {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let data = epoll::EventData::new_u64(stream.as_raw_fd() as u64);
        epoll::add(&self.epoll, &stream, data, ONCE)?;
        Ok(Arc::new(stream))
    }

    /// Passes the requests of a connection to the workers; returns `None` if the client has closed the connection.
    fn queue_requests(&self, stream: &Arc<TcpStream>, buffer: &mut Buffer) -> Option<()> {
        match buffer.receive(&**stream) {
            Received::Closed => return None,
            Received::Requests(asks, _) if asks.is_empty() => self.rearm_connection(stream),
            Received::Requests(asks, _) => {
                let job = Job { stream: Arc::clone(stream), asks };
                self.jobs.lock().expect("no thread panics while it holds the lock").push_back(job);
                self.more.notify_one();
            }
        }
        Some(())
    }

    fn run_worker(&self) {
        loop {
            let job = self.next_job();
            let served = self.journal.serve_requests(&job.asks, now_ns(), &*job.stream);
            if served.is_ok() {
                self.rearm_connection(&job.stream);
            }
        }
    }

    fn next_job(&self) -> Job {
        let mut jobs = self.jobs.lock().expect("no thread panics while it holds the lock");
        loop {
            match jobs.pop_front() {
                Some(job) => return job,
                None => jobs = self.more.wait(jobs).expect("no thread panics while it holds the lock"),
            }
        }
    }

    fn rearm_connection(&self, stream: &TcpStream) {
        let data = epoll::EventData::new_u64(stream.as_raw_fd() as u64);
        // Ignores an error, which occurs only if the connection is closed.
        let _ = epoll::modify(&self.epoll, stream, data, ONCE);
    }
}
