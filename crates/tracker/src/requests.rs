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
use crate::tracker::error::{TrackerError, bpf};
use crate::tracker::{LaneMemory, array, new_ring};
use crate::tracking::ServiceTracking;
use sidelane_host::shared_mapping::SharedMapping;

/// 64 ports in a word.
const PORT_WORDS: usize = 1024;

/// Records that the kernel keeps of a service until they are fetched. A process that keeps them has twice their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// 40 000: 0.4 seconds of 100 000 requests a second.
    Usual,
    /// Half of them, for a watcher of many services.
    Half,
}

impl Room {
    fn bytes(self) -> u32 {
        match self {
            Self::Usual => 4 << 20,
            Self::Half => 2 << 20,
        }
    }
}

/// Bits of a request's number below that of its service, which makes numbers unique on a lane.
const NUMBER_BITS: u32 = 48;

/// Returns the number of a request or connection among those of its service.
pub fn own_number(number: u64) -> u64 {
    number & ((1 << NUMBER_BITS) - 1)
}

/// Counts of the kernel program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests answered.
    pub finished: u64,
    /// Those whose record found the ring full.
    pub dropped: u64,
    /// Sends on a connection without a request.
    pub unasked: u64,
    /// Requests whose connection ended before an answer.
    pub unanswered: u64,
    /// Requests with several messages: parts of one request, or several requests.
    pub joined: u64,
    /// Requests that were open without making another one wait.
    pub parked: u64,
    /// Connections that began and had a second request.
    pub began: u64,
}

impl Counts {
    /// Returns the difference to `earlier`.
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

/// The sockets of one service, which are watched as long as this lives.
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
            accounting: array(tracker.maps(), "request_account", NUMBERS)?,
            ports: array(tracker.maps(), "service_ports", PORT_WORDS)?,
            listeners: handle(service, "listeners")?,
            listens: Mutex::default(),
        };
        new.own().service.store(number.get(), Ordering::Relaxed);
        // Connections may still have state of an earlier service with this number.
        new.own().epoch.fetch_add(1, Ordering::Release);
        new.own().next_number.fetch_max(u64::from(number.get()) << NUMBER_BITS, Ordering::Relaxed);
        Ok(new)
    }

    fn own(&self) -> &RequestAccount {
        &self.accounting[self.number.get() as usize]
    }

    /// Returns the counts since the program was loaded.
    pub fn counts(&self) -> Counts {
        let accounting = self.own();
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

    /// Assigns connections to `listener` to the service from now on.
    pub fn listen(&self, listener: Listener) -> Result<(), TrackerError> {
        let value = self.number.get().to_ne_bytes();
        let told = self.listeners.update(listener_key(listener).bytes(), &value, MapFlags::ANY);
        told.map_err(bpf("say where the service listens"))?;
        let mut listens = self.listens.lock().expect("no thread panics with the list");
        listens.at.insert(listener);
        if !listens.paused {
            self.show_port(listener);
        }
        Ok(())
    }

    /// Stops watching for now: this costs the service hardly anything, and its requests are unknown. Requests of other
    /// services at the same ports, in other network namespaces, are not seen either.
    pub fn pause(&self) {
        let mut listens = self.listens.lock().expect("no thread panics with the list");
        if std::mem::replace(&mut listens.paused, true) {
            return;
        }
        for Listener { port, .. } in &listens.at {
            self.ports[usize::from(port / 64)].fetch_and(!(1 << (port % 64)), Ordering::Release);
        }
    }

    /// Watches again after a pause. Requests under way on connections are not known.
    pub fn resume(&self) {
        let mut listens = self.listens.lock().expect("no thread panics with the list");
        if !std::mem::replace(&mut listens.paused, false) {
            return;
        }
        self.own().epoch.fetch_add(1, Ordering::Release);
        listens.at.iter().for_each(|listener| self.show_port(*listener));
    }

    fn show_port(&self, Listener { port, .. }: Listener) {
        self.ports[usize::from(port / 64)].fetch_or(1 << (port % 64), Ordering::Release);
    }
}

impl Drop for WatchedSockets {
    /// The bit of a port stays: another service may listen there in another network namespace.
    fn drop(&mut self) {
        for listener in &self.listens.lock().expect("no thread panics with the list").at {
            // An error means that it is gone already.
            let _ = self.listeners.delete(listener_key(*listener).bytes());
        }
    }
}

fn handle(service: &ServiceTracking, name: &str) -> Result<MapHandle, TrackerError> {
    MapHandle::try_from(service.tracker().map(name)).map_err(bpf("keep the maps of the program"))
}

/// Memory shared with the kernel program for the requests of one service.
pub struct RequestMemory {
    lanes: Arc<LaneMemory>,
    sockets: WatchedSockets,
    records: MapHandle,
    rings: MapHandle,
}

impl RequestMemory {
    /// Maps the arrays of a tracker that was loaded for requests, and makes the service a ring.
    pub fn map(service: &ServiceTracking, room: Room) -> Result<Self, TrackerError> {
        let records = new_ring(room.bytes()).map_err(bpf("make a ring of requests"))?;
        let new = Self {
            lanes: service.tracker().memory(),
            sockets: WatchedSockets::map(service)?,
            records,
            rings: handle(service, "record_rings")?,
        };
        let ring = new.records.as_fd().as_raw_fd().to_ne_bytes();
        let installed = new.rings.update(&new.number().get().to_ne_bytes(), &ring, MapFlags::ANY);
        installed.map_err(bpf("install a ring of requests"))?;
        Ok(new)
    }

    fn number(&self) -> Number {
        self.sockets.number
    }

    /// Returns the ring of records.
    pub fn records(&self) -> &MapHandle {
        &self.records
    }

    /// Returns the request of the lane `cpu`.
    pub fn word(&self, cpu: u32) -> &RequestWord {
        self.lanes.request(cpu)
    }

    /// Returns the word of the service as a whole.
    pub fn service(&self) -> &ServiceWord {
        self.lanes.service(self.number())
    }

    /// Returns the counts since the program was loaded.
    pub fn counts(&self) -> Counts {
        self.sockets.counts()
    }

    /// Returns the sockets of these requests.
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
