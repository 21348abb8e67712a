//! State of the builder during a trace: threads, sockets, requests under way, CPUs and processes.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::builder::futexes::Futexes;
use crate::builder::machine::Machine;
use crate::builder::request::{Request, RequestId, Requests};
use crate::builder::socket::Socket;
use crate::builder::thread::Thread;
use crate::ending::{Ending, Side, UnansweredRequest};
use crate::record::{Kind, Kinds, Record, Task, Tasks};
use crate::wait::Peer;

/// Settings of a builder: time limits, and the kinds of its records.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Kinds of records that the kernel makes.
    pub kinds: Kinds,
    /// Longest time by which records are out of order, in nanoseconds.
    pub horizon_ns: u64,
    /// Time without further data or retransmissions after which a response is complete, in nanoseconds. The next
    /// request on its connection completes it, too.
    pub settle_ns: u64,
    /// Longest time for which a finished request is held back while records of a CPU may be missing, in nanoseconds.
    pub hold_ns: u64,
    /// Time without an event after which a request is given up, in nanoseconds.
    pub give_up_ns: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            kinds: Kinds::all(),
            horizon_ns: 2_000_000,
            settle_ns: 250_000_000,
            hold_ns: 1_000_000_000,
            give_up_ns: 60_000_000_000,
        }
    }
}

/// Numbers of records and requests that a builder has processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Number of records that the builder received.
    pub records: u64,
    /// Number of records that came too late to be sorted. Their sequence numbers are missing, so they also count as
    /// lost.
    pub late: u64,
    /// Number of records of CPUs, processes or emitted requests beyond the limits. Requests that arrived before such a
    /// record get no timeline.
    pub strange: u64,
    /// Number of records that are missing.
    pub lost: u64,
    /// Number of requests with a complete timeline.
    pub whole: u64,
    /// Number of requests without a timeline, because records of them are missing.
    pub incomplete: u64,
    /// Number of requests, complete or incomplete, whose response is a stream: it lasted long after its first part.
    pub streamed: u64,
    /// Number of requests without a response for an unknown reason.
    /// [`Builder::take_unanswered`](super::Builder::take_unanswered) returns requests without a response for a known
    /// reason.
    pub unanswered: u64,
    /// Number of responses to requests whose start was not recorded.
    pub unknown: u64,
    /// Number of requests that were given up: they never ended, or there were too many.
    pub given_up: u64,
}

/// The most threads, and the most sockets, that are stored. A full table removes the half of its entries whose last
/// records are oldest. The limit is 7/8 of a power of two: one entry more would double the table's memory.
const THREADS_MAX: usize = 14_336;
const SOCKETS_MAX: usize = 57_344;
/// The most processes that are remembered because they receive requests or run tasks. When there are more, all are
/// forgotten.
const SERVICES_MAX: usize = 4_096;
/// The most requests that have ended and whose timelines are not yet made.
const CLOSED_MAX: usize = 65_536;
/// The most requests without a response that are kept until the caller takes them.
const UNANSWERED_MAX: usize = 65_536;

/// State of a builder: all that is known of the traced machine and service.
#[derive(Debug)]
pub struct World {
    pub settings: Settings,
    pub counts: Counts,
    /// Process id of the tracer; 0 if unknown.
    pub tracer_pid: u32,
    /// Time of the last record, or a later time.
    pub now_ns: u64,
    /// Time from which all records are known.
    pub known_from_ns: u64,
    /// Number of times that records were lost, and the time of the last one.
    pub epoch: (u32, u64),
    pub threads: FxHashMap<u32, Thread>,
    pub sockets: FxHashMap<u64, Socket>,
    pub requests: Requests,
    pub machine: Machine,
    pub futexes: Futexes,
    /// Other services that have answered a question.
    pub answering: FxHashSet<Peer>,
    /// Processes that run tasks of their own, such as goroutines. The value is true if the tasks move between threads.
    pub runtimes: FxHashMap<u32, bool>,
    /// Processes whose threads receive requests.
    pub services: FxHashSet<u32>,
    /// Requests that programs report themselves, by number.
    pub emitted: FxHashMap<u64, RequestId>,
    /// Requests that were answered, each with the time at which to check whether the response is complete.
    pub answered: VecDeque<(u64, RequestId)>,
    /// Requests that have ended, each with the time at which that became known.
    pub closed: VecDeque<(u64, Request)>,
    /// Requests that ended without a response because their connection ended, since the caller last took them.
    pub unanswered: Vec<UnansweredRequest>,
}

impl World {
    pub fn new(settings: Settings) -> World {
        World {
            settings,
            counts: Counts::default(),
            tracer_pid: 0,
            now_ns: 0,
            known_from_ns: 0,
            epoch: (0, 0),
            threads: FxHashMap::default(),
            sockets: FxHashMap::default(),
            requests: Requests::default(),
            machine: Machine::default(),
            futexes: Futexes::default(),
            answering: FxHashSet::default(),
            runtimes: FxHashMap::default(),
            services: FxHashSet::default(),
            emitted: FxHashMap::default(),
            answered: VecDeque::new(),
            closed: VecDeque::new(),
            unanswered: Vec::new(),
        }
    }

    /// Processes a record, the next in the order of time.
    pub fn handle(&mut self, record: &Record) {
        if self.now_ns == 0 {
            self.known_from_ns = self.known_from_ns.max(record.at_ns);
        }
        self.now_ns = self.now_ns.max(record.at_ns);
        match record.kind {
            Kind::Segment | Kind::Interrupt | Kind::Softirq | Kind::IdleLeft | Kind::Stolen => {
                self.machine.cpu_mut(record.cpu).add_record(record);
            }
            Kind::Frozen | Kind::Throttled if record.task.tid != 0 => self.record_freeze_or_throttle(record),
            Kind::Frozen | Kind::Throttled | Kind::PauseBegan | Kind::PauseEnded => {
                if !self.machine.add_process_record(record) {
                    self.count_excess_record(record);
                }
            }
            Kind::DataReady
            | Kind::Received
            | Kind::Sent
            | Kind::Connects
            | Kind::Transmitted
            | Kind::Acknowledged
            | Kind::Retransmitted
            | Kind::SocketState => self.handle_network_record(record),
            Kind::RequestStarted => self.handle_request_started(record),
            Kind::RequestFinished => self.handle_request_finished(record),
            Kind::Tasks => self.record_runtime_tasks(record),
            Kind::DiskIssued => (),
            _ => self.handle_scheduling_record(record),
        }
    }

    /// Counts a loss of records, the last of them at `at_ns`.
    pub fn record_loss(&mut self, at_ns: u64) {
        self.epoch = (self.epoch.0.wrapping_add(1).max(1), self.now_ns.max(at_ns));
    }

    /// Counts a record that exceeds a limit of the builder.
    pub fn count_excess_record(&mut self, record: &Record) {
        self.counts.strange += 1;
        self.known_from_ns = self.known_from_ns.max(record.at_ns);
    }

    /// Returns the state of the thread `task`, and creates it if necessary.
    pub fn thread(&mut self, task: Task) -> &mut Thread {
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&task.tid) {
            self.forget_idle_threads();
        }
        let (now_ns, (epoch, lost_ns)) = (self.now_ns, self.epoch);
        let thread = self.threads.entry(task.tid).or_insert_with(|| Thread::new(task.pid, now_ns, epoch));
        if thread.epoch != epoch {
            thread.mark_unknown(lost_ns, epoch);
        }
        if task.pid != 0 {
            thread.pid = task.pid;
        }
        thread
    }

    /// Records that a thread of process `pid` receives requests.
    pub fn note_service(&mut self, pid: u32) {
        if self.services.len() >= SERVICES_MAX && !self.services.contains(&pid) {
            self.services.clear();
        }
        self.services.insert(pid);
    }

    /// Returns whether the language runtime of process `pid` moves its tasks between threads.
    pub fn has_own_scheduler(&self, pid: u32) -> bool {
        self.runtimes.get(&pid) == Some(&true)
    }

    /// Records that a process runs tasks of its own, such as goroutines.
    fn record_runtime_tasks(&mut self, record: &Record) {
        if self.runtimes.len() >= SERVICES_MAX && !self.runtimes.contains_key(&record.task.pid) {
            self.runtimes.clear();
        }
        self.runtimes.insert(record.task.pid, record.detail == Tasks::Move as u32);
    }

    fn forget_idle_threads(&mut self) {
        let mut touched: Vec<u64> = self.threads.values().map(|thread| thread.touched_ns).collect();
        let middle = touched.len() / 2;
        let floor_ns = *touched.select_nth_unstable(middle).1;
        self.threads.retain(|_, thread| thread.touched_ns > floor_ns);
        self.known_from_ns = self.known_from_ns.max(floor_ns + 1);
    }

    /// Returns the state of the socket with this cookie, and creates it if necessary.
    pub fn socket(&mut self, cookie: u64) -> &mut Socket {
        if self.sockets.len() >= SOCKETS_MAX && !self.sockets.contains_key(&cookie) {
            self.forget_idle_sockets();
        }
        let (now_ns, (epoch, _)) = (self.now_ns, self.epoch);
        let socket = self.sockets.entry(cookie).or_default();
        socket.touched_ns = now_ns;
        if socket.epoch != epoch {
            socket.mark_uncertain(epoch);
        }
        socket
    }

    fn forget_idle_sockets(&mut self) {
        let mut touched: Vec<u64> = self.sockets.values().map(|socket| socket.touched_ns).collect();
        let middle = touched.len() / 2;
        let floor_ns = *touched.select_nth_unstable(middle).1;
        let old = |(cookie, socket): (&u64, &Socket)| (socket.touched_ns <= floor_ns).then_some(*cookie);
        let forgotten: Vec<u64> = self.sockets.iter().filter_map(old).collect();
        forgotten.into_iter().for_each(|cookie| self.close_socket(cookie, false));
    }

    /// Removes the request from its socket, because a thread receives the next request there.
    pub fn detach_request(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(id) else { return };
        let (cookie, is_open) = (request.socket, request.is_open());
        let waits_for_sent = request.end_seq.is_none() && self.settings.kinds.has(Kind::Sent);
        if is_open {
            self.counts.unanswered += 1;
            self.requests.remove(id);
        } else if request.unsent == 0 && !waits_for_sent {
            self.close(id);
        } else if let Some(oldest) = self.socket(cookie).add_leaving_response(id) {
            self.close(oldest);
        }
    }

    /// Ends a connection. `in_vain`: the client did not wait for the last response.
    pub fn close_socket(&mut self, cookie: u64, client_did_not_wait: bool) {
        self.close_leaving_requests(cookie);
        let Some(socket) = self.sockets.remove(&cookie) else { return };
        self.record_unanswered(&socket, client_did_not_wait);
        if self.requests.is_open(socket.request) {
            self.requests.remove(socket.request);
        }
        self.close(socket.request);
    }

    /// Records the request on `socket` that ended without a response because its connection ended, if there was one.
    fn record_unanswered(&mut self, socket: &Socket, client_did_not_wait: bool) {
        let last = self.requests.get(socket.request).filter(|last| last.is_open() || client_did_not_wait);
        let (side, ended_ns) = socket.ended.unwrap_or((Side::Other, self.now_ns));
        let (request, arrived_ns, ending) = match (last, socket.arrivals.oldest_unreceived_ns()) {
            (Some(last), _) if last.is_one_way() => (last.number, last.arrived_ns, Ending::NoAnswerWanted),
            (Some(last), _) => {
                (last.number, last.arrived_ns, Ending::from_connection_end(side, last.data_ns, ended_ns))
            }
            // The service closed the connection with data of the client unread: it did not want that data.
            (None, Some(came_ns)) if side == Side::Client => {
                (0, came_ns, Ending::from_connection_end(side, came_ns, ended_ns))
            }
            (None, _) => return,
        };
        if ending == Ending::Unknown || self.unanswered.len() == UNANSWERED_MAX {
            self.counts.unanswered += 1;
        } else {
            self.unanswered.push(UnansweredRequest { request, arrived_ns, ended_ns, ending });
        }
    }

    /// Closes all requests of this socket whose responses were being sent: no more data leaves from it.
    pub fn close_leaving_requests(&mut self, cookie: u64) {
        while let Some(id) = self.sockets.get(&cookie).and_then(Socket::oldest_leaving_response) {
            self.sockets.entry(cookie).and_modify(Socket::remove_oldest_leaving_response);
            self.close(id);
        }
    }

    /// Closes a request: it has no more events.
    pub fn close(&mut self, id: RequestId) {
        let Some(request) = self.requests.remove(id) else { return };
        if self.closed.len() == CLOSED_MAX {
            self.closed.pop_front();
            self.counts.given_up += 1;
        }
        self.closed.push_back((self.now_ns, request));
    }

    /// Returns the memory of the builder's state, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.threads.capacity() * size_of::<(u32, Thread)>()
            + self.threads.values().map(Thread::heap_bytes).sum::<usize>()
            + self.sockets.capacity() * size_of::<(u64, Socket)>()
            + self.requests.memory_bytes()
            + self.machine.heap_bytes()
            + self.futexes.memory_bytes()
            + self.answering.capacity() * size_of::<Peer>()
            + self.services.capacity() * size_of::<u32>()
            + self.runtimes.capacity() * size_of::<(u32, bool)>()
            + self.emitted.capacity() * size_of::<(u64, RequestId)>()
            + self.answered.capacity() * size_of::<(u64, RequestId)>()
            + self.closed.capacity() * size_of::<(u64, Request)>()
            + self.unanswered.capacity() * size_of::<UnansweredRequest>()
    }

    /// Returns the number of facts in the builder's history.
    pub fn fact_count(&self) -> usize {
        self.threads.values().map(Thread::fact_count).sum::<usize>() + self.machine.fact_count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::fact::Fact;
    use crate::cause::Cause;

    fn record(at_ns: u64, kind: Kind, pid: u32) -> Record {
        let (task, other) = (Task { tid: pid, pid }, Task::default());
        Record { at_ns, kind, seq: 0, task, cpu: 0, detail: 1, other, socket: 0, request: 0, value: 10 }
    }

    fn task(tid: u32) -> Task {
        Task { tid, pid: 1 }
    }

    /// Each table alone, filled with 100 entries, takes at least their size.
    #[test]
    fn each_table_of_the_builder_takes_memory() {
        type Fill = fn(&mut World, u64);
        let tables: [(usize, Fill); 12] = [
            (size_of::<(u32, Thread)>(), |world, at| {
                world.thread(task(at as u32 + 1));
            }),
            (size_of::<(u64, Socket)>(), |world, at| world.socket(at + 1).is_asked = true),
            (size_of::<Request>(), |world, _| {
                world.requests.add(Request::default());
            }),
            (size_of::<Fact>(), |world, at| world.handle(&record(20 * at + 100, Kind::Stolen, 0))),
            (size_of::<[u32; 16]>(), |world, at| world.futexes.record_wakeup(1, 0, 8 * at, 2, 3)),
            (size_of::<Peer>(), |world, at| {
                world.answering.insert(Peer::Unix(at as u32));
            }),
            (size_of::<u32>(), |world, at| world.note_service(at as u32)),
            (size_of::<(u32, bool)>(), |world, at| world.handle(&record(1, Kind::Tasks, at as u32))),
            (size_of::<(u64, RequestId)>(), |world, at| {
                world.emitted.insert(at, 1);
            }),
            (size_of::<(u64, RequestId)>(), |world, at| world.answered.push_back((at, 1))),
            (size_of::<(u64, Request)>(), |world, at| world.closed.push_back((at, Request::default()))),
            (size_of::<UnansweredRequest>(), |world, at| {
                let (arrived_ns, ended_ns, ending) = (at, at, Ending::Abandoned);
                world.unanswered.push(UnansweredRequest { request: at, arrived_ns, ended_ns, ending });
            }),
        ];
        assert_eq!(World::new(Settings::default()).memory_bytes(), 0);
        for (index, (size, fill)) in tables.into_iter().enumerate() {
            let mut world = World::new(Settings::default());
            (0..100).for_each(|at| fill(&mut world, at));
            assert!(world.memory_bytes() >= 100 * size, "table {index}: {} < {}", world.memory_bytes(), 100 * size);
        }
    }

    #[test]
    fn facts_of_threads_and_cpus_count_together() {
        let mut world = World::new(Settings::default());
        world.handle(&record(100, Kind::Stolen, 0));
        assert_eq!(world.fact_count(), 1);
        let states = &mut world.thread(task(5)).states;
        states.push(Fact::new(Cause::OnCpu, 10, 20, 0));
        states.push(Fact::new(Cause::Lock, 20, 30, 0));
        assert_eq!(world.fact_count(), 3);
    }

    #[test]
    fn half_of_too_many_threads_is_forgotten_the_oldest_first() {
        let mut world = World::new(Settings::default());
        for tid in 1..=THREADS_MAX as u32 {
            world.now_ns = u64::from(tid) * 10;
            world.thread(task(tid));
        }
        assert_eq!((world.threads.len(), world.known_from_ns), (THREADS_MAX, 0));
        world.thread(task(1));
        assert_eq!(world.threads.len(), THREADS_MAX, "a thread that is known needs no room");
        world.thread(task(THREADS_MAX as u32 + 1));
        let oldest_ns = world.threads.values().map(|thread| thread.touched_ns).min();
        assert_eq!(world.threads.len(), THREADS_MAX / 2);
        assert_eq!(oldest_ns, Some((THREADS_MAX as u64 / 2 + 2) * 10));
        assert_eq!(world.known_from_ns, (THREADS_MAX as u64 / 2 + 1) * 10 + 1);
    }

    #[test]
    fn half_of_too_many_sockets_is_closed_the_oldest_first() {
        let mut world = World::new(Settings::default());
        for cookie in 1..=SOCKETS_MAX as u64 {
            world.now_ns = cookie;
            world.socket(cookie);
        }
        world.socket(SOCKETS_MAX as u64);
        assert_eq!(world.sockets.len(), SOCKETS_MAX);
        world.socket(SOCKETS_MAX as u64 + 1);
        let oldest_ns = world.sockets.values().map(|socket| socket.touched_ns).min();
        assert_eq!((world.sockets.len(), oldest_ns), (SOCKETS_MAX / 2, Some(SOCKETS_MAX as u64 / 2 + 2)));
    }

    #[test]
    fn all_of_too_many_services_and_runtimes_are_forgotten() {
        let mut world = World::new(Settings::default());
        let add = |world: &mut World, pid: u32| {
            world.note_service(pid);
            world.handle(&record(1, Kind::Tasks, pid));
        };
        (1..=SERVICES_MAX as u32).for_each(|pid| add(&mut world, pid));
        add(&mut world, 1);
        assert_eq!((world.services.len(), world.runtimes.len()), (SERVICES_MAX, SERVICES_MAX));
        add(&mut world, SERVICES_MAX as u32 + 1);
        assert_eq!((world.services.len(), world.runtimes.len()), (1, 1));
        assert!(world.has_own_scheduler(SERVICES_MAX as u32 + 1) && !world.has_own_scheduler(1));
    }

    #[test]
    fn the_oldest_of_too_many_closed_requests_is_given_up() {
        let mut world = World::new(Settings::default());
        for number in 1..=CLOSED_MAX as u64 + 2 {
            let id = world.requests.add(Request { number, ..Request::default() });
            world.close(id);
        }
        assert_eq!((world.closed.len(), world.counts.given_up), (CLOSED_MAX, 2));
        assert_eq!(world.closed.front().map(|(_, request)| request.number), Some(3));
    }
}
