//! What each request lane works on, as a service that emits its requests lets know.
//!
//! A thread's head says what it took up last; the events say when that was received, and whether
//! another thread has finished it. On which lane a thread runs the kernel program's lane words say.
//! Nothing is taken on trust: whatever the service writes, only its own requests are judged by it,
//! and a lane on which none of its threads runs works on none.
//!
//! A lane holder keeps it: nothing here allocates, except when a process is added.

use sidelane_formats::{EMIT_THREADS, EmitKind, Emitted, RunningRequest};

use super::emit_file::Head;
use super::recent::Recent;

/// A request that has been under way for longer does not make others wait: its thread may have ended.
const UNDER_WAY_MAX_NS: u64 = 10_000_000_000;

/// One thread that emits.
#[derive(Clone, Copy, Debug, Default)]
struct Worker {
    head: Head,
    /// Of the request that it took up last, counted here.
    number: u64,
    /// As the head says, but not in the future.
    started_ns: u64,
    arrived_ns: u64,
    waited: bool,
    /// Whether it waited has been found out.
    judged: bool,
    /// Where the thread was seen last.
    lane: Option<usize>,
}

impl Worker {
    fn take_up(&mut self, head: Head, number: u64, now_ns: u64) {
        let started_ns = head.since_ns.min(now_ns);
        *self = Self { head, number, started_ns, arrived_ns: started_ns, lane: self.lane, ..Self::default() };
    }
}

/// One request lane.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    /// Whose request it shows.
    shows: Option<Place>,
    /// When a request last finished here, and how many have.
    finished_ns: u64,
    finished: u32,
}

/// What a lane word says: the service needs the lane, and this thread of it runs there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OnLane {
    pub(super) busy: bool,
    pub(super) tid: Option<u32>,
}

/// What there is to be shown of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) running: RunningRequest,
    pub(super) finished_ns: u64,
    pub(super) finished: u32,
}

/// A ring: the process's place in the list, and the ring's in its file.
pub(super) type Place = (usize, usize);

#[derive(Debug)]
struct Process {
    pid: u32,
    /// By ring; there is room for all.
    workers: Vec<Worker>,
}

/// The service's threads and lanes.
#[derive(Debug)]
pub(super) struct Ledger {
    processes: Vec<Process>,
    lanes: Vec<Lane>,
    received: Recent,
    finished: Recent,
    last_number: u64,
}

impl Ledger {
    pub(super) fn new(lanes: usize) -> Self {
        let (received, finished) = (Recent::default(), Recent::default());
        Self { processes: Vec::new(), lanes: vec![Lane::default(); lanes], received, finished, last_number: 0 }
    }

    /// A process more, at the end of the list.
    pub(super) fn add(&mut self, pid: u32) {
        self.processes.push(Process { pid, workers: Vec::with_capacity(EMIT_THREADS) });
    }

    /// A process that has ended; the places of those after it change.
    pub(super) fn remove(&mut self, process: usize) {
        self.processes.remove(process);
        self.lanes.iter_mut().for_each(|lane| lane.shows = None);
    }

    /// What was written in a ring.
    pub(super) fn event(&mut self, place: Place, event: Emitted, now_ns: u64) {
        let (pid, at_ns) = (self.processes[place.0].pid, event.at_ns.min(now_ns));
        match event.kind {
            EmitKind::Received => self.received.put(pid, event.id, at_ns),
            EmitKind::Started => {}
            EmitKind::Finished => {
                self.finished.put(pid, event.id, at_ns);
                let worker = self.processes[place.0].workers.get(place.1);
                self.finishes(worker.and_then(|worker| worker.lane), at_ns);
            }
        }
    }

    /// Where its thread was not seen yet, the request may have been on any lane.
    fn finishes(&mut self, seen_on: Option<usize>, at_ns: u64) {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if seen_on.is_none_or(|seen_on| seen_on == number) {
                lane.finished_ns = lane.finished_ns.max(at_ns);
                lane.finished = lane.finished.wrapping_add(1);
            }
        }
    }

    /// What a thread says of itself now; to be called for the rings in their order.
    pub(super) fn head(&mut self, place: Place, head: Head, now_ns: u64) {
        let workers = &mut self.processes[place.0].workers;
        if workers.len() == place.1 {
            workers.push(Worker::default());
        }
        let worker = &mut workers[place.1];
        if worker.head.owner != head.owner {
            *worker = Worker::default();
        }
        if worker.head != head {
            self.last_number += 1;
            worker.take_up(head, self.last_number, now_ns);
        }
    }

    /// What a lane shows: the request of the thread that runs there, or ran there last while the
    /// service needs the lane.
    pub(super) fn lane(&mut self, number: usize, seen: OnLane, now_ns: u64) -> Shown {
        if let Some(tid) = seen.tid {
            self.lanes[number].shows = self.find(number, tid);
        }
        let shown = self.lanes[number].shows.filter(|_| seen.busy);
        let running = shown.and_then(|place| self.running(number, place, now_ns)).unwrap_or_default();
        let Lane { finished_ns, finished, .. } = self.lanes[number];
        Shown { running, finished_ns, finished }
    }

    fn worker(&self, place: Place) -> &Worker {
        &self.processes[place.0].workers[place.1]
    }

    /// Every thread's place.
    fn places(&self) -> impl Iterator<Item = Place> {
        let rings = |(process, one): (usize, &Process)| (0..one.workers.len()).map(move |ring| (process, ring));
        self.processes.iter().enumerate().flat_map(rings)
    }

    /// Where the thread emits; it is on the lane `number` now.
    fn find(&mut self, number: usize, tid: u32) -> Option<Place> {
        let is_its = |place: &Place| self.worker(*place).head.owner == tid;
        let place = self.lanes[number].shows.filter(is_its).or_else(|| self.places().find(is_its))?;
        self.processes[place.0].workers[place.1].lane = Some(number);
        Some(place)
    }

    fn running(&mut self, lane: usize, place: Place, now_ns: u64) -> Option<RunningRequest> {
        if !self.is_under_way(place) {
            return None;
        }
        if !self.worker(place).judged {
            self.judge(lane, place, now_ns);
        }
        let Worker { number, arrived_ns, started_ns, waited, .. } = *self.worker(place);
        Some(RunningRequest { number, arrived_ns, started_ns, waited })
    }

    /// Its request was started, and finished neither by this thread nor by another.
    fn is_under_way(&self, place: Place) -> bool {
        let worker = self.worker(place);
        let finished_ns = self.finished.get(self.processes[place.0].pid, worker.head.id);
        worker.head.since_ns != 0 && finished_ns.is_none_or(|finished_ns| finished_ns < worker.started_ns)
    }

    /// Finds out whether it had to wait: it arrived before another one on its lane had finished.
    fn judge(&mut self, lane: usize, place: Place, now_ns: u64) {
        let worker = *self.worker(place);
        let received_ns = self.received.get(self.processes[place.0].pid, worker.head.id);
        let received_ns = received_ns.filter(|at_ns| *at_ns <= worker.started_ns);
        let behind_one = received_ns.is_some_and(|at_ns| self.lanes[lane].finished_ns > at_ns);
        let waited = behind_one || self.is_beside_another(lane, place, now_ns);
        let arrived_ns = received_ns.unwrap_or(worker.started_ns);
        // That it was received may be known a moment later than that it was taken up.
        let judged = waited || received_ns.is_some();
        self.processes[place.0].workers[place.1] = Worker { arrived_ns, waited, judged, ..worker };
    }

    /// Another thread of the lane has a request under way that it took up before.
    fn is_beside_another(&self, lane: usize, place: Place, now_ns: u64) -> bool {
        let started_ns = self.worker(place).started_ns;
        let earlier = |other: &Worker| {
            let is_fresh = now_ns.saturating_sub(other.started_ns) < UNDER_WAY_MAX_NS;
            other.lane == Some(lane) && other.started_ns < started_ns && is_fresh
        };
        self.places().any(|other| other != place && earlier(self.worker(other)) && self.is_under_way(other))
    }
}

#[cfg(test)]
mod tests;
