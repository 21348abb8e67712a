//! Current request of each request lane, for a service that emits its requests.
//!
//! The head of a thread's ring names the request that it started last. Its events tell when that request was received,
//! and whether another thread has finished it. The kernel program's lane words tell on which lane a thread runs. The
//! ledger trusts no value. A faulty service can falsify only its own requests, and a lane without a thread of the
//! service shows no request.
//!
//! A lane holder updates the ledger: nothing here allocates, except when a process is added.

use sidelane_formats::{EMIT_THREADS, EmitKind, EmittedEvent, RunningRequest};

use super::emit_file::CurrentRequest;
use super::recent::RecentEvents;

/// Age up to which an unfinished request delays later requests of its lane. The thread of an older request may have
/// ended.
const UNDER_WAY_MAX_NS: u64 = 10_000_000_000;

/// State of a thread that emits requests, with its current request.
#[derive(Clone, Copy, Debug, Default)]
struct Worker {
    head: CurrentRequest,
    /// Number of the request that the thread started last, assigned by the ledger.
    number: u64,
    /// Start time of the request, as the thread has written it into its ring's head, but never in the future.
    started_ns: u64,
    arrived_ns: u64,
    waited: bool,
    /// Whether `waited` is final: it does not change until the thread starts another request.
    judged: bool,
    /// Lane on which the thread was last observed.
    lane: Option<usize>,
}

impl Worker {
    fn start_request(&mut self, head: CurrentRequest, number: u64, now_ns: u64) {
        let started_ns = head.since_ns.min(now_ns);
        *self = Self { head, number, started_ns, arrived_ns: started_ns, lane: self.lane, ..Self::default() };
    }
}

/// State of a request lane.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    /// Ring of the thread whose request the lane shows.
    shows: Option<RingIndex>,
    /// Time at which the last request on this lane finished; the next field is the number of finished requests.
    finished_ns: u64,
    finished: u32,
}

/// Content of a lane word: whether the service needs the lane, and the thread of the service that runs there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LaneOccupancy {
    pub(super) busy: bool,
    pub(super) tid: Option<u32>,
}

/// Content to be written into the request word of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LaneContent {
    pub(super) running: RunningRequest,
    pub(super) finished_ns: u64,
    pub(super) finished: u32,
}

/// Address of a ring: index of the process, and index of the ring in its file.
pub(super) type RingIndex = (usize, usize);

#[derive(Debug)]
struct Process {
    pid: u32,
    /// Threads of the process, indexed by ring. The capacity is allocated for all rings in advance.
    workers: Vec<Worker>,
}

/// Ledger of the requests of all threads and lanes of a service.
#[derive(Debug)]
pub(super) struct Ledger {
    processes: Vec<Process>,
    lanes: Vec<Lane>,
    received: RecentEvents,
    finished: RecentEvents,
    last_number: u64,
}

impl Ledger {
    pub(super) fn new(lane_count: usize) -> Self {
        let (received, finished) = (RecentEvents::default(), RecentEvents::default());
        Self { processes: Vec::new(), lanes: vec![Lane::default(); lane_count], received, finished, last_number: 0 }
    }

    /// Appends a process to the list.
    pub(super) fn add_process(&mut self, pid: u32) {
        self.processes.push(Process { pid, workers: Vec::with_capacity(EMIT_THREADS) });
    }

    /// Removes a process that has ended. The indices of later processes decrease by one.
    pub(super) fn remove_process(&mut self, process_index: usize) {
        self.processes.remove(process_index);
        self.lanes.iter_mut().for_each(|lane| lane.shows = None);
    }

    /// Takes in an event from a ring.
    pub(super) fn record_event(&mut self, ring: RingIndex, event: EmittedEvent, now_ns: u64) {
        let (pid, at_ns) = (self.processes[ring.0].pid, event.at_ns.min(now_ns));
        match event.kind {
            EmitKind::Received => self.received.record(pid, event.id, at_ns),
            EmitKind::Started => {}
            EmitKind::Finished => {
                self.finished.record(pid, event.id, at_ns);
                let worker = self.processes[ring.0].workers.get(ring.1);
                self.count_finished(worker.and_then(|worker| worker.lane), at_ns);
            }
        }
    }

    /// Counts a finished request on the lane of its thread, or on all lanes if its thread was not observed yet.
    fn count_finished(&mut self, thread_lane: Option<usize>, at_ns: u64) {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if thread_lane.is_none_or(|seen_on| seen_on == number) {
                lane.finished_ns = lane.finished_ns.max(at_ns);
                lane.finished = lane.finished.wrapping_add(1);
            }
        }
    }

    /// Takes in the current request of a thread. The caller passes the rings in ascending order.
    pub(super) fn record_current_request(&mut self, ring: RingIndex, head: CurrentRequest, now_ns: u64) {
        let workers = &mut self.processes[ring.0].workers;
        if workers.len() == ring.1 {
            workers.push(Worker::default());
        }
        let worker = &mut workers[ring.1];
        if worker.head.owner != head.owner {
            *worker = Worker::default();
        }
        if worker.head != head {
            self.last_number += 1;
            worker.start_request(head, self.last_number, now_ns);
        }
    }

    /// Returns the content of a lane's request word: the request of the thread that runs on the lane. If the service
    /// was preempted, the lane keeps the request of the thread that ran there last.
    pub(super) fn lane_content(&mut self, lane_index: usize, occupancy: LaneOccupancy, now_ns: u64) -> LaneContent {
        if let Some(tid) = occupancy.tid {
            self.lanes[lane_index].shows = self.find_ring(lane_index, tid);
        }
        let shown = self.lanes[lane_index].shows.filter(|_| occupancy.busy);
        let running = shown.and_then(|place| self.running_request(lane_index, place, now_ns)).unwrap_or_default();
        let Lane { finished_ns, finished, .. } = self.lanes[lane_index];
        LaneContent { running, finished_ns, finished }
    }

    fn worker(&self, ring: RingIndex) -> &Worker {
        &self.processes[ring.0].workers[ring.1]
    }

    /// Returns the addresses of all rings.
    fn ring_indices(&self) -> impl Iterator<Item = RingIndex> {
        let rings = |(process, one): (usize, &Process)| (0..one.workers.len()).map(move |ring| (process, ring));
        self.processes.iter().enumerate().flat_map(rings)
    }

    /// Finds the ring of a thread that runs on the lane `lane_index`, and records that lane for the thread.
    fn find_ring(&mut self, lane_index: usize, tid: u32) -> Option<RingIndex> {
        let is_its = |place: &RingIndex| self.worker(*place).head.owner == tid;
        let place = self.lanes[lane_index].shows.filter(is_its).or_else(|| self.ring_indices().find(is_its))?;
        self.processes[place.0].workers[place.1].lane = Some(lane_index);
        Some(place)
    }

    fn running_request(&mut self, lane: usize, ring: RingIndex, now_ns: u64) -> Option<RunningRequest> {
        if !self.is_unfinished(ring) {
            return None;
        }
        if !self.worker(ring).judged {
            self.determine_waited(lane, ring, now_ns);
        }
        let Worker { number, arrived_ns, started_ns, waited, .. } = *self.worker(ring);
        Some(RunningRequest { number, arrived_ns, started_ns, waited })
    }

    /// Returns whether the current request of a ring is unfinished. Another thread may have finished it.
    fn is_unfinished(&self, ring: RingIndex) -> bool {
        let worker = self.worker(ring);
        let finished_ns = self.finished.event_time_ns(self.processes[ring.0].pid, worker.head.id);
        worker.head.since_ns != 0 && finished_ns.is_none_or(|finished_ns| finished_ns < worker.started_ns)
    }

    /// Determines whether a request had to wait: it did if it arrived before an earlier request on its lane finished.
    fn determine_waited(&mut self, lane: usize, ring: RingIndex, now_ns: u64) {
        let worker = *self.worker(ring);
        let received_ns = self.received.event_time_ns(self.processes[ring.0].pid, worker.head.id);
        let received_ns = received_ns.filter(|at_ns| *at_ns <= worker.started_ns);
        let behind_one = received_ns.is_some_and(|at_ns| self.lanes[lane].finished_ns > at_ns);
        let waited = behind_one || self.has_earlier_request_on_lane(lane, ring, now_ns);
        let arrived_ns = received_ns.unwrap_or(worker.started_ns);
        // The event of the request's receipt may be read slightly later than its start, so determine `waited` again
        // until the receipt is known.
        let judged = waited || received_ns.is_some();
        self.processes[ring.0].workers[ring.1] = Worker { arrived_ns, waited, judged, ..worker };
    }

    /// Returns whether another thread of the lane has an unfinished request that it started earlier.
    fn has_earlier_request_on_lane(&self, lane: usize, ring: RingIndex, now_ns: u64) -> bool {
        let started_ns = self.worker(ring).started_ns;
        let earlier = |other: &Worker| {
            let is_fresh = now_ns.saturating_sub(other.started_ns) < UNDER_WAY_MAX_NS;
            other.lane == Some(lane) && other.started_ns < started_ns && is_fresh
        };
        self.ring_indices().any(|other| other != ring && earlier(self.worker(other)) && self.is_unfinished(other))
    }
}

#[cfg(test)]
mod tests;
