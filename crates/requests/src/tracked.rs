//! Requests of an unmodified TCP service, observed by the kernel program at its sockets.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use libbpf_rs::{RingBuffer, RingBufferBuilder};
use thiserror::Error;

use super::records::{Request, UnsettledRequests};
use super::window::Window;
use crate::note::RequestNote;
use sidelane_host::clock::now_ns;
use sidelane_host::ports::{Listener, listeners, udp_and_unix_sockets};
use sidelane_timeline::ending::Ending;
use sidelane_tracker::requests::{Counts, RequestMemory, RingCapacity};
use sidelane_tracker::tracepoints::Tracepoints;
use sidelane_tracker::tracker::TrackerError;
use sidelane_tracker::tracking::ServiceTracking;

/// Tracepoints that the observation of requests needs. Linux has them since 6.3.
const NEEDED: [&str; 3] = ["sk_data_ready", "sock_send_length", "sock_recv_length"];

/// Error: the requests of a service cannot be tracked.
#[derive(Debug, Error)]
pub enum RequestError {
    /// The service has no TCP port: it uses datagrams, Unix sockets, or no sockets.
    #[error(
        "cannot see requests of {service}: it listens on no TCP port, and has emitted none; let it emit requests \
         (runtime/c/sidelane.h), or use `run --policy borrow-idle`, which needs none"
    )]
    NoPort {
        /// Name of the service, as given by the user.
        service: String,
    },
    /// A tracepoint is missing, because the kernel is older than Linux 6.3.
    #[error(
        "cannot see requests: this kernel has no tracepoint {name}; boot Linux 6.3 or later, or let the service emit \
         its requests (runtime/c/sidelane.h)"
    )]
    NoTracepoint {
        /// Name of the first missing tracepoint.
        name: &'static str,
    },
    /// Failure of the memory that is shared with the kernel program.
    #[error(transparent)]
    Tracker(#[from] TrackerError),
    /// Failure of the ring buffer from which request records are read.
    #[error("cannot read request records of the kernel program; start sidelane again as root")]
    Ring(#[source] libbpf_rs::Error),
}

/// Checks that this kernel has all tracepoints that request tracking needs. The error names the first missing one.
pub fn can_track() -> Result<(), RequestError> {
    static MISSING: OnceLock<Option<&str>> = OnceLock::new();
    let missing = MISSING.get_or_init(|| {
        let kernel = Tracepoints::of_kernel();
        NEEDED.into_iter().find(|name| !kernel.has(name))
    });
    missing.map_or(Ok(()), |name| Err(RequestError::NoTracepoint { name }))
}

/// Returns the TCP sockets at which the processes listen, optionally only those of `port`. Returns an error if there is
/// no such socket.
pub(super) fn find_listeners(
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

/// Tracker of the requests of one service.
pub struct Requests {
    memory: Arc<RequestMemory>,
    ring: RingBuffer<'static>,
    /// Buffer into which the ring's callback puts the requests that it reads.
    fetched: Rc<RefCell<Vec<Request>>>,
    settling: UnsettledRequests,
    /// Statistics of the requests since the last [`Requests::take_window`]; `None` if the caller reads none.
    window: Option<Window>,
    counted: Counts,
    listeners: BTreeSet<Listener>,
    /// TCP port to which tracking is limited, if the user named the service by its port.
    port: Option<u16>,
}

impl Requests {
    /// Tracks requests at the TCP ports on which the given processes listen. The tracker must be loaded for requests.
    /// It observes nothing until it is attached.
    pub fn track(tracking: &ServiceTracking, service: &str, pids: &BTreeSet<u32>) -> Result<Self, RequestError> {
        Self::track_with_capacity(RingCapacity::Usual, tracking, service, pids)
    }

    /// Tracks requests as [`Requests::track`] does, with a given capacity for records.
    pub fn track_with_capacity(
        capacity: RingCapacity,
        tracking: &ServiceTracking,
        service: &str,
        pids: &BTreeSet<u32>,
    ) -> Result<Self, RequestError> {
        let requests = Self::track_listeners(find_listeners(service, pids, tracking.port())?, capacity, tracking)?;
        Ok(Self { window: Some(Window::default()), ..requests })
    }

    /// Tracks requests at the given sockets without statistics: each request is only passed to the caller.
    pub fn track_listeners(
        listeners: BTreeSet<Listener>,
        capacity: RingCapacity,
        tracking: &ServiceTracking,
    ) -> Result<Self, RequestError> {
        let memory = RequestMemory::map(tracking, capacity)?;
        listeners.iter().try_for_each(|listener| memory.sockets().add_listener(*listener))?;
        memory.service().tracked.store(1, Ordering::Release);
        let fetched = Rc::new(RefCell::new(Vec::new()));
        Ok(Self {
            ring: open_ring(&memory, Rc::clone(&fetched)).map_err(RequestError::Ring)?,
            counted: memory.counts(),
            memory: Arc::new(memory),
            fetched,
            settling: UnsettledRequests::default(),
            window: None,
            listeners,
            port: tracking.port(),
        })
    }

    /// Returns the memory shared with the kernel program: the request words of all lanes and of the service.
    pub fn memory(&self) -> Arc<RequestMemory> {
        Arc::clone(&self.memory)
    }

    /// Returns the TCP ports at which requests are observed.
    pub fn ports(&self) -> BTreeSet<u16> {
        self.listeners.iter().map(|listener| listener.port).collect()
    }

    /// Adds the ports of new processes: a restarted service may listen elsewhere.
    pub fn update_processes(&mut self, pids: &BTreeSet<u32>) -> Result<(), RequestError> {
        self.add_listeners(listeners(pids, self.port))
    }

    /// Adds listening sockets at which requests may arrive.
    pub fn add_listeners(&mut self, listeners: BTreeSet<Listener>) -> Result<(), RequestError> {
        for listener in listeners {
            if self.listeners.insert(listener) {
                self.memory.sockets().add_listener(listener)?;
            }
        }
        Ok(())
    }

    /// Pauses the observation, so that it costs the service almost no CPU time; see [`Requests::resume`].
    pub fn pause(&self) {
        self.memory.sockets().pause();
    }

    /// Resumes a paused observation. Requests that arrived during the pause may get an arrival time that is too early.
    pub fn resume(&self) {
        self.memory.sockets().resume();
    }

    /// Reads new records and calls `each` for every settled request. The caller does this several times per second: the
    /// kernel keeps 40 000 records.
    pub fn drain(&mut self, each: impl FnMut(&Request)) -> Result<(), RequestError> {
        let mut settled = self.fetch_settled()?;
        settled.extend(self.settling.take_settled(now_ns()));
        self.pass_on_requests(settled, each);
        Ok(())
    }

    /// Reads the remaining records at the end, and calls `each` for every request, settled or not.
    pub fn finish(&mut self, each: impl FnMut(&Request)) -> Result<(), RequestError> {
        let mut settled = self.fetch_settled()?;
        settled.extend(self.settling.take_remaining());
        self.pass_on_requests(settled, each);
        Ok(())
    }

    /// Reads new records and calls `each` for every request at the first part of its response, or at its end without
    /// one. For callers that cannot wait for the last part. A caller uses either this function or [`Requests::drain`],
    /// not both.
    pub fn fetch_answered(&mut self, each: impl FnMut(&Request)) -> Result<(), RequestError> {
        self.ring.consume().map_err(RequestError::Ring)?;
        let mut fetched = self.fetched.borrow_mut();
        fetched.iter().filter(|request| request.sends <= 1).for_each(each);
        fetched.clear();
        Ok(())
    }

    /// Returns the file that becomes readable when the kernel program wakes the reader of records.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring has this descriptor open as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }

    /// Returns the kernel program's counts since the last call of [`Requests::take_window`].
    pub fn counts_in_window(&self) -> Counts {
        self.memory.counts().since(&self.counted)
    }

    /// Returns and resets the statistics of the requests that were passed on since the last call.
    pub fn take_window(&mut self) -> Window {
        let counts = self.memory.counts();
        let mut window = self.window.as_mut().map(std::mem::take).unwrap_or_default();
        window.counts = counts.since(&self.counted);
        window.late_sends = self.settling.take_late_sends();
        self.counted = counts;
        window
    }

    /// Returns and resets the number of requests whose records were lost.
    pub fn take_lost(&mut self) -> u64 {
        let counts = self.memory.counts();
        let lost = counts.since(&self.counted).dropped;
        self.counted = counts;
        lost
    }

    fn fetch_settled(&mut self) -> Result<Vec<Request>, RequestError> {
        self.ring.consume().map_err(RequestError::Ring)?;
        let fetched = std::mem::take(&mut *self.fetched.borrow_mut());
        Ok(fetched.into_iter().filter_map(|request| self.settling.add(request)).collect())
    }

    fn pass_on_requests(&mut self, settled: Vec<Request>, mut each: impl FnMut(&Request)) {
        for request in &settled {
            self.window.iter_mut().for_each(|window| window.add(request));
            // Pass on abandoned requests as well: their latency is the time for which the client waited.
            if request.ending.is_none_or(|ending| ending == Ending::Abandoned) {
                each(request);
            }
        }
    }
}

/// Returns a warning if the service may take requests at other sockets than the observed TCP sockets.
pub fn unobserved_socket_note(service: &str, pids: &BTreeSet<u32>, port: Option<u16>) -> Option<RequestNote> {
    /// Maximum number of sockets that the warning names.
    const NAMED: usize = 3;
    let sockets: Vec<String> = udp_and_unix_sockets(pids, port).iter().map(ToString::to_string).collect();
    let more = if sockets.len() > NAMED { " and others" } else { "" };
    let named = sockets[..sockets.len().min(NAMED)].join(", ") + more;
    (!sockets.is_empty()).then(|| RequestNote::OtherSockets { service: service.to_owned(), sockets: named })
}

fn open_ring(memory: &RequestMemory, fetched: Rc<RefCell<Vec<Request>>>) -> libbpf_rs::Result<RingBuffer<'static>> {
    let mut builder = RingBufferBuilder::new();
    builder.add(memory.record_ring(), move |bytes| {
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
