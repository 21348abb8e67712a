//! The requests of an unmodified TCP service.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use libbpf_rs::{RingBuffer, RingBufferBuilder};
use thiserror::Error;

use super::records::{Request, Settling};
use super::window::Window;
use crate::note::RequestNote;
use sidelane_host::clock::now_ns;
use sidelane_host::ports::{Listener, listeners, other_sockets};
use sidelane_timeline::ending::Ending;
use sidelane_tracker::requests::{Counts, RequestMemory, Room};
use sidelane_tracker::tracepoints::Tracepoints;
use sidelane_tracker::tracker::TrackerError;
use sidelane_tracker::tracking::ServiceTracking;

/// Tracepoints of Linux 6.3.
const NEEDED: [&str; 3] = ["sk_data_ready", "sock_send_length", "sock_recv_length"];

/// Why requests cannot be tracked.
#[derive(Debug, Error)]
pub enum RequestError {
    /// A service of datagrams, of Unix sockets, or none at all.
    #[error(
        "service {service} listens on no TCP port, where its requests would be seen, and has emitted none: let it \
         emit them (runtime/c/sidelane.h; what it emits is found from its first request on), or let `run` do \
         without them (--policy borrow-idle)"
    )]
    NoPort {
        /// As the user named it.
        service: String,
    },
    /// The kernel is too old.
    #[error(
        "this kernel has no tracepoint {name}, which the service's requests are seen through: boot Linux 6.3 or \
         newer, or let the service emit its requests through runtime/c/sidelane.h"
    )]
    NoTracepoint {
        /// The first that is missing.
        name: &'static str,
    },
    /// Memory shared with the kernel program.
    #[error(transparent)]
    Tracker(#[from] TrackerError),
    /// The ring of records.
    #[error("cannot read the request tracker's records")]
    Ring(#[source] libbpf_rs::Error),
}

/// Whether this kernel has what requests are seen through.
pub fn can_track() -> Result<(), RequestError> {
    static MISSING: OnceLock<Option<&str>> = OnceLock::new();
    let missing = MISSING.get_or_init(|| {
        let kernel = Tracepoints::of_kernel();
        NEEDED.into_iter().find(|name| !kernel.has(name))
    });
    missing.map_or(Ok(()), |name| Err(RequestError::NoTracepoint { name }))
}

/// Where these processes hear of requests: of all their TCP ports or of this one, one at least.
pub(super) fn heard_at(
    service: &str,
    pids: &BTreeSet<u32>,
    port: Option<u16>,
) -> Result<BTreeSet<Listener>, RequestError> {
    let listeners = listeners(pids, port);
    match listeners.is_empty() {
        true => Err(RequestError::NoPort { service: service.to_owned() }),
        false => Ok(listeners),
    }
}

/// A service whose requests are tracked.
pub struct Requests {
    memory: Arc<RequestMemory>,
    ring: RingBuffer<'static>,
    /// Where the ring puts what it is emptied of.
    fetched: Rc<RefCell<Vec<Request>>>,
    settling: Settling,
    /// What was handed on since it was last taken, if anybody takes it.
    window: Option<Window>,
    counted: Counts,
    listeners: BTreeSet<Listener>,
    /// Only at this one, if the service was named by it.
    port: Option<u16>,
}

impl Requests {
    /// Tracks what comes in at the TCP ports on which these processes listen. The tracker was
    /// loaded for requests; nothing is seen before it is attached.
    pub fn track(tracking: &ServiceTracking, service: &str, pids: &BTreeSet<u32>) -> Result<Self, RequestError> {
        Self::track_in(Room::Usual, tracking, service, pids)
    }

    /// The same, with room for this number of records.
    pub fn track_in(
        room: Room,
        tracking: &ServiceTracking,
        service: &str,
        pids: &BTreeSet<u32>,
    ) -> Result<Self, RequestError> {
        let requests = Self::track_at(heard_at(service, pids, tracking.port())?, room, tracking)?;
        Ok(Self { window: Some(Window::default()), ..requests })
    }

    /// Tracks what comes in at these sockets, without windows: each request is only handed on.
    pub fn track_at(
        listeners: BTreeSet<Listener>,
        room: Room,
        tracking: &ServiceTracking,
    ) -> Result<Self, RequestError> {
        let memory = RequestMemory::map(tracking, room)?;
        listeners.iter().try_for_each(|listener| memory.sockets().listen(*listener))?;
        memory.service().tracked.store(1, Ordering::Release);
        let fetched = Rc::new(RefCell::new(Vec::new()));
        Ok(Self {
            ring: open_ring(&memory, Rc::clone(&fetched)).map_err(RequestError::Ring)?,
            counted: memory.counts(),
            memory: Arc::new(memory),
            fetched,
            settling: Settling::default(),
            window: None,
            listeners,
            port: tracking.port(),
        })
    }

    /// The words of all lanes and of the service.
    pub fn memory(&self) -> Arc<RequestMemory> {
        Arc::clone(&self.memory)
    }

    /// The ports at which requests are looked for.
    pub fn ports(&self) -> BTreeSet<u16> {
        self.listeners.iter().map(|listener| listener.port).collect()
    }

    /// A service that was started again may listen elsewhere.
    pub fn look_again(&mut self, pids: &BTreeSet<u32>) -> Result<(), RequestError> {
        self.listen(listeners(pids, self.port))
    }

    /// Requests may come in at these sockets, too.
    pub fn listen(&mut self, listeners: BTreeSet<Listener>) -> Result<(), RequestError> {
        for listener in listeners {
            if self.listeners.insert(listener) {
                self.memory.sockets().listen(listener)?;
            }
        }
        Ok(())
    }

    /// Looks away for now, so that the service pays hardly anything; see [`Requests::resume`].
    pub fn pause(&self) {
        self.memory.sockets().pause();
    }

    /// Looks again, where it looked away. Requests that arrived while it looked away may get an arrival time that is too early.
    pub fn resume(&self) {
        self.memory.sockets().resume();
    }

    /// Fetches what has finished and hands on what is settled. To be called some times a
    /// second: the kernel keeps 40 000 records.
    pub fn drain(&mut self, each: impl FnMut(&Request)) -> Result<(), RequestError> {
        let mut settled = self.fetch()?;
        settled.extend(self.settling.settled(now_ns()));
        self.hand_on(settled, each);
        Ok(())
    }

    /// As [`Requests::drain`], but what is not settled is handed on too.
    pub fn finish(&mut self, each: impl FnMut(&Request)) -> Result<(), RequestError> {
        let mut settled = self.fetch()?;
        settled.extend(self.settling.rest());
        self.hand_on(settled, each);
        Ok(())
    }

    /// Fetches what has finished and hands on each request whose first response has gone out, or that ended without one:
    /// for callers that cannot wait for the last of a response. Not to be mixed with [`Requests::drain`].
    pub fn fetch_answered(&mut self, each: impl FnMut(&Request)) -> Result<(), RequestError> {
        self.ring.consume().map_err(RequestError::Ring)?;
        let mut fetched = self.fetched.borrow_mut();
        fetched.iter().filter(|request| request.sends <= 1).for_each(each);
        fetched.clear();
        Ok(())
    }

    /// Returns the file that becomes readable when the kernel program wakes the reader of records.
    pub fn bell(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring has this descriptor open as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }

    /// What was counted since the last call of [`Requests::take_window`].
    pub fn counted(&self) -> Counts {
        self.memory.counts().since(&self.counted)
    }

    /// What was handed on since the last call.
    pub fn take_window(&mut self) -> Window {
        let counts = self.memory.counts();
        let mut window = self.window.as_mut().map(std::mem::take).unwrap_or_default();
        window.counts = counts.since(&self.counted);
        window.late_sends = self.settling.take_late_sends();
        self.counted = counts;
        window
    }

    /// Requests whose records were lost since the last call.
    pub fn take_lost(&mut self) -> u64 {
        let counts = self.memory.counts();
        let lost = counts.since(&self.counted).dropped;
        self.counted = counts;
        lost
    }

    fn fetch(&mut self) -> Result<Vec<Request>, RequestError> {
        self.ring.consume().map_err(RequestError::Ring)?;
        let fetched = std::mem::take(&mut *self.fetched.borrow_mut());
        Ok(fetched.into_iter().filter_map(|request| self.settling.add(request)).collect())
    }

    fn hand_on(&mut self, settled: Vec<Request>, mut each: impl FnMut(&Request)) {
        for request in &settled {
            self.window.iter_mut().for_each(|window| window.add(request));
            // To its client an abandoned request took as long as the client waited.
            if request.ending.is_none_or(|ending| ending == Ending::Abandoned) {
                each(request);
            }
        }
    }
}

/// What is not seen of a service whose TCP sockets are looked at, if it may take requests elsewhere.
pub fn unseen(service: &str, pids: &BTreeSet<u32>, port: Option<u16>) -> Option<RequestNote> {
    /// More of them make no clearer what to do.
    const NAMED: usize = 3;
    let sockets: Vec<String> = other_sockets(pids, port).iter().map(ToString::to_string).collect();
    let more = if sockets.len() > NAMED { " and others" } else { "" };
    let named = sockets[..sockets.len().min(NAMED)].join(", ") + more;
    (!sockets.is_empty()).then(|| RequestNote::OtherSockets { service: service.to_owned(), sockets: named })
}

fn open_ring(memory: &RequestMemory, fetched: Rc<RefCell<Vec<Request>>>) -> libbpf_rs::Result<RingBuffer<'static>> {
    let mut builder = RingBufferBuilder::new();
    builder.add(memory.records(), move |bytes| {
        fetched.borrow_mut().extend(Request::from_bytes(bytes));
        0
    })?;
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_without_a_port_is_refused_with_advice() {
        let said = RequestError::NoPort { service: "comm:dns".into() }.to_string();
        assert!(said.contains("comm:dns") && said.contains("runtime/c/sidelane.h") && said.contains("borrow-idle"));
    }
}
