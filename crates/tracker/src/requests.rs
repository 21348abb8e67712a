//! The requests of one service as the kernel program sees them at its sockets: counters, and the ring of records.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sidelane_formats::{RequestWord, ServiceWord};
use sidelane_host::ports::Listener;

use crate::identities::{NUMBERS, Number};
use crate::kernel_types::{ListenerKey, Plain, RequestAccount};
use crate::tracker::error::{TrackerError, bpf_error_in_step};
use crate::tracker::{LaneMemory, map_array, new_ring};
use crate::tracking::ServiceTracking;
use sidelane_host::shared_mapping::SharedMapping;

/// Number of words of the port table: 64 ports in a word.
const PORT_WORDS: usize = 1024;

/// Capacity of the ring for a service's records that were not read yet. A process maps the ring's data twice in a row,
/// so its virtual memory grows by twice the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingCapacity {
    /// Room for 40 000 records: 0.4 seconds of 100 000 requests a second.
    Usual,
    /// Half of the usual room, for an observer of many services.
    Half,
}

impl RingCapacity {
    fn bytes(self) -> u32 {
        match self {
            Self::Usual => 4 << 20,
            Self::Half => 2 << 20,
        }
    }
}

/// Number of bits of a request's number. The service's number is above them, so that request numbers are unique on a
/// lane.
const NUMBER_BITS: u32 = 48;

/// Returns the number of a request or connection without the number of its service.
pub fn number_within_service(number: u64) -> u64 {
    number & ((1 << NUMBER_BITS) - 1)
}

/// Counts of requests by the kernel program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of requests that were answered.
    pub finished: u64,
    /// Number of requests whose record was lost because the ring was full.
    pub dropped: u64,
    /// Number of sends on a connection without a request.
    pub unasked: u64,
    /// Number of requests whose connection ended before an answer.
    pub unanswered: u64,
    /// Number of requests with several messages. Their messages are parts of one request, or several requests.
    pub joined: u64,
    /// Number of times that an open request stopped delaying other requests: its thread slept, or started another
    /// request.
    pub parked: u64,
    /// Number of new connections that had a second request.
    pub began: u64,
}

impl Counts {
    /// Returns the counts of the time since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            finished: self.finished - earlier.finished,
            dropped: self.dropped - earlier.dropped,
            unasked: self.unasked - earlier.unasked,
            unanswered: self.unanswered - earlier.unanswered,
            joined: self.joined - earlier.joined,
            parked: self.parked - earlier.parked,
            began: self.began - earlier.began,
        }
    }
}

/// Sockets of one service, which are watched while this value lives.
pub struct WatchedSockets {
    number: Number,
    accounting: SharedMapping<RequestAccount>,
    ports: SharedMapping<AtomicU64>,
    listeners: MapHandle,
    listens: Mutex<Listens>,
}

#[derive(Default)]
struct Listens {
    at: BTreeSet<Listener>,
    paused: bool,
}

impl WatchedSockets {
    /// Maps the arrays of a tracker that was loaded for requests.
    pub fn map(service: &ServiceTracking) -> Result<Self, TrackerError> {
        let (tracker, number) = (service.tracker(), service.number());
        let new = Self {
            number,
            accounting: map_array(tracker.maps(), "request_account", NUMBERS)?,
            ports: map_array(tracker.maps(), "service_ports", PORT_WORDS)?,
            listeners: map_handle(service, "listeners")?,
            listens: Mutex::default(),
        };
        new.own_account().service.store(number.get(), Ordering::Relaxed);
        // Begin a new epoch: connections may still have state of an earlier service with this number, which becomes
        // invalid.
        new.own_account().epoch.fetch_add(1, Ordering::Release);
        new.own_account().next_number.fetch_max(u64::from(number.get()) << NUMBER_BITS, Ordering::Relaxed);
        Ok(new)
    }

    fn own_account(&self) -> &RequestAccount {
        &self.accounting[self.number.get() as usize]
    }

    /// Returns the counts since the kernel program was loaded.
    pub fn counts(&self) -> Counts {
        let accounting = self.own_account();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            finished: get(&accounting.finished),
            dropped: get(&accounting.dropped),
            unasked: get(&accounting.unasked),
            unanswered: get(&accounting.unanswered),
            joined: get(&accounting.joined),
            parked: get(&accounting.parked),
            began: get(&accounting.began),
        }
    }

    /// Assigns new connections to `listener` to the service.
    pub fn add_listener(&self, listener: Listener) -> Result<(), TrackerError> {
        let value = self.number.get().to_ne_bytes();
        let told = self.listeners.update(listener_key(listener).bytes(), &value, MapFlags::ANY);
        told.map_err(bpf_error_in_step("tell the kernel program where the service listens"))?;
        let mut listens = self.listens.lock().expect("no thread panics with the list");
        listens.at.insert(listener);
        if !listens.paused {
            self.publish_port(listener);
        }
        Ok(())
    }

    /// Pauses the observation of the sockets. It then costs the service almost nothing, and the service's requests are
    /// unknown. Requests of other services at the same ports, in other network namespaces, are not seen either.
    pub fn pause(&self) {
        let mut listens = self.listens.lock().expect("no thread panics with the list");
        if std::mem::replace(&mut listens.paused, true) {
            return;
        }
        for Listener { port, .. } in &listens.at {
            self.ports[usize::from(port / 64)].fetch_and(!(1 << (port % 64)), Ordering::Release);
        }
    }

    /// Resumes the observation after a pause. Requests that are under way on connections are unknown.
    pub fn resume(&self) {
        let mut listens = self.listens.lock().expect("no thread panics with the list");
        if !std::mem::replace(&mut listens.paused, false) {
            return;
        }
        self.own_account().epoch.fetch_add(1, Ordering::Release);
        listens.at.iter().for_each(|listener| self.publish_port(*listener));
    }

    fn publish_port(&self, Listener { port, .. }: Listener) {
        self.ports[usize::from(port / 64)].fetch_or(1 << (port % 64), Ordering::Release);
    }
}

impl Drop for WatchedSockets {
    /// Removes the listeners. The bit of a port stays: another service may listen there in another network namespace.
    fn drop(&mut self) {
        for listener in &self.listens.lock().expect("no thread panics with the list").at {
            // An error means that the listener is already removed.
            let _ = self.listeners.delete(listener_key(*listener).bytes());
        }
    }
}

fn map_handle(service: &ServiceTracking, name: &str) -> Result<MapHandle, TrackerError> {
    MapHandle::try_from(service.tracker().map_handle(name))
        .map_err(bpf_error_in_step("open the maps of the kernel program"))
}

/// Memory shared with the kernel program for the requests of one service.
pub struct RequestMemory {
    lanes: Arc<LaneMemory>,
    sockets: WatchedSockets,
    records: MapHandle,
    rings: MapHandle,
}

impl RequestMemory {
    /// Maps the arrays of a tracker that was loaded for requests, and makes a ring for the service.
    pub fn map(service: &ServiceTracking, room: RingCapacity) -> Result<Self, TrackerError> {
        let records = new_ring(room.bytes()).map_err(bpf_error_in_step("make a ring of requests"))?;
        let new = Self {
            lanes: service.tracker().memory(),
            sockets: WatchedSockets::map(service)?,
            records,
            rings: map_handle(service, "record_rings")?,
        };
        let ring = new.records.as_fd().as_raw_fd().to_ne_bytes();
        let installed = new.rings.update(&new.number().get().to_ne_bytes(), &ring, MapFlags::ANY);
        installed.map_err(bpf_error_in_step("install a ring of requests"))?;
        Ok(new)
    }

    fn number(&self) -> Number {
        self.sockets.number
    }

    /// Returns the ring of the service's records.
    pub fn record_ring(&self) -> &MapHandle {
        &self.records
    }

    /// Returns the word of the request on the lane `cpu`.
    pub fn word(&self, cpu: u32) -> &RequestWord {
        self.lanes.request(cpu)
    }

    /// Returns the word of the whole service.
    pub fn service(&self) -> &ServiceWord {
        self.lanes.service(self.number())
    }

    /// Returns the counts since the kernel program was loaded.
    pub fn counts(&self) -> Counts {
        self.sockets.counts()
    }

    /// Returns the sockets of the service.
    pub fn sockets(&self) -> &WatchedSockets {
        &self.sockets
    }
}

impl Drop for RequestMemory {
    fn drop(&mut self) {
        self.service().tracked.store(0, Ordering::Release);
        let _ = self.rings.delete(&self.number().get().to_ne_bytes());
    }
}

fn listener_key(listener: Listener) -> ListenerKey {
    ListenerKey { network: listener.network, port: listener.port.into() }
}
