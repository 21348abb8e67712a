//! Requests that have not ended, and their state.

use std::collections::VecDeque;

use crate::builder::holds::Holds;
use crate::builder::sleep::UnansweredCall;
use crate::wait::Peer;

/// A step of a request from one thread or service to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathStep {
    /// The thread `from`, which had the request, woke the thread `to`.
    Handed { at_ns: u64, from: u32, to: u32 },
    /// A thread asked another service for this request, and a thread read the answer.
    Called(DownstreamCall),
}

/// A question of a request to another service, and the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DownstreamCall {
    pub sent_ns: u64,
    pub from: u32,
    /// Time of the question's last retransmission; 0 if there was none.
    pub again_ns: u64,
    pub ready_ns: u64,
    pub taken_ns: u64,
    pub to: u32,
    pub peer: Option<Peer>,
    /// Whether other requests had a question under way on the same connection at the same time.
    pub is_shared: bool,
    /// Whether the question was a request for a connection.
    pub connects: bool,
    /// Whether the thread that read the answer works on other requests, too (an event loop).
    pub by_loop: bool,
    /// Whether the answer's arrival is recorded. Otherwise the builder assumes that the answer woke the thread.
    pub is_seen: bool,
}

impl PathStep {
    /// Returns the thread that has the request after this step, and the time from which it has the request.
    pub fn receiving_thread(&self) -> (u32, u64) {
        match *self {
            PathStep::Handed { at_ns, to, .. } => (to, at_ns),
            PathStep::Called(DownstreamCall { taken_ns, to, .. }) => (to, taken_ns),
        }
    }
}

/// The most steps (links) that are stored for one request; `ALL_LINKS_MAX` is the limit for all requests together.
const LINKS_MAX: usize = 64;
const ALL_LINKS_MAX: usize = 262_144;

/// The most simultaneous questions to other services that are stored for one request.
const QUESTIONS_MAX: usize = 8;

/// The most retransmitted segments that are stored for one response: the last ones.
const SENT_AGAIN_MAX: usize = 16;

/// Longest time from a response's first data to its last. A longer response is a stream, as in `sidelane requests`.
const STREAM_NS: u64 = 100_000_000;

/// State of a request from its reception to its end. All times are 0 until they are known.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub id: RequestId,
    /// The number of the request in request tracking.
    pub number: u64,
    pub socket: u64,
    /// TCP port of the client that sent the request; 0 if unknown.
    pub peer_port: u32,
    /// Arrival time of the request's first TCP segment, or of its first data at the socket.
    pub arrived_ns: u64,
    /// Time at which the last of the request's data reached the socket.
    pub data_ns: u64,
    pub started_ns: u64,
    /// Whether the record of the request's start has come; it may come late.
    pub is_told: bool,
    /// The thread that received the request from the socket.
    pub receiver: u32,
    /// Time at which a thread wrote the first data of the response to the socket.
    pub answered_ns: u64,
    /// Time at which a thread wrote the last data of the response, so far, to the socket.
    pub finished_ns: u64,
    /// The thread that wrote the response to the socket.
    pub finisher: u32,
    /// Time at which the thread that sent the response received the request, as request tracking reports it.
    pub taken_up_ns: u64,
    /// End of the response in the TCP sequence of the connection; `None` if unknown.
    pub end_seq: Option<u32>,
    /// Number of bytes of the response that have not left for the device; `held` is this number at the time when the
    /// response was written.
    pub unsent: u32,
    pub held: u32,
    /// The causes that held the response back in the socket.
    pub holds: Holds,
    /// Time at which the last data of the response left for the device.
    pub left_ns: u64,
    /// Times at which TCP retransmitted segments of the response, unless the retransmission was known to be needless.
    pub sent_again: Vec<u64>,
    /// Questions of this request to other services that were not answered, with the time of each.
    pub questions: Vec<(UnansweredCall, u64)>,
    /// Time of the request's last event.
    pub touched_ns: u64,
    pub steps: Vec<PathStep>,
    pub has_too_many_links: bool,
    /// Whether one side has ended the connection. Then it is unknown whether the client still waits.
    pub is_cut: bool,
    /// Whether the service sent a response on the connection before this request.
    pub follows_response: bool,
    /// Number of pauses between the parts of the request's data.
    pub pauses: u8,
    /// Whether some data of the request may have come unseen, because records were lost.
    pub is_missing: bool,
}

/// Shortest gap between two receives of a request that counts as a pause of the client. After `ONE_WAY_PAUSES` pauses
/// on a connection without any response, the client expects none.
const PAUSE_NS: u64 = 10_000_000;
const ONE_WAY_PAUSES: u8 = 3;

impl Request {
    /// Returns whether the thread `tid` was the last to get the request from another thread.
    pub fn is_handed_to(&self, tid: u32) -> bool {
        tid != self.receiver && self.steps.last().is_some_and(|step| step.receiving_thread().0 == tid)
    }

    /// Returns whether the request has no response yet.
    pub fn is_open(&self) -> bool {
        self.finished_ns == 0
    }

    /// Returns whether the response lasted longer than `STREAM_NS`, so that it is a stream.
    pub fn is_stream(&self) -> bool {
        self.finished_ns.saturating_sub(self.answered_ns) > STREAM_NS
    }

    /// Records that more data of the request was received at `at_ns`.
    pub fn record_more_data(&mut self, at_ns: u64) {
        self.pauses = self.pauses.saturating_add((at_ns.saturating_sub(self.touched_ns) >= PAUSE_NS).into());
        self.touched_ns = at_ns;
    }

    /// Returns whether the request seems to be a series of messages that ask for no response.
    pub fn is_one_way(&self) -> bool {
        !self.follows_response && self.pauses >= ONE_WAY_PAUSES
    }

    /// Records a question of this request to another service.
    pub fn add_unanswered_call(&mut self, question: UnansweredCall, at_ns: u64) {
        self.remove_answered_calls(question.socket);
        if self.questions.len() < QUESTIONS_MAX {
            self.questions.push((question, at_ns));
        }
    }

    /// Records that an answer came on `socket` to a question of this request.
    pub fn remove_answered_calls(&mut self, socket: u64) {
        self.questions.retain(|(question, _)| question.socket != socket);
    }

    /// Returns the time of the response's last retransmission; 0 if there was none.
    pub fn last_retransmission_ns(&self) -> u64 {
        self.sent_again.last().copied().unwrap_or(0)
    }

    /// Records a retransmission of the response at `at_ns`.
    pub fn record_retransmission(&mut self, at_ns: u64) {
        if self.sent_again.len() == SENT_AGAIN_MAX {
            self.sent_again.remove(0);
        }
        self.sent_again.push(at_ns);
    }

    /// Removes the response's last retransmission, because the client received its data twice: the first copy was not
    /// lost. Returns whether there was a retransmission.
    pub fn remove_last_retransmission(&mut self) -> bool {
        self.sent_again.pop().is_some()
    }

    /// Returns the end time of the request.
    pub fn ended_ns(&self) -> u64 {
        self.finished_ns.max(self.left_ns).max(self.last_retransmission_ns())
    }
}

/// Key of a request that has not ended; 0 is no request.
pub type RequestId = u64;

/// The most requests that are stored until they end. When there are more, the oldest are given up.
const REQUESTS_MAX: usize = 65_536;
/// Number of further requests after which the slot of a finished request may be used again. Until then the finished
/// request's number can be looked up.
const NUMBERS_KEPT: usize = 4_096;

#[derive(Debug, Default)]
struct Slot {
    generation: u64,
    /// The number of the request that was last in this slot.
    number: u64,
    request: Option<Request>,
}

/// Table of all requests that have not ended.
#[derive(Debug, Default)]
pub struct Requests {
    places: Vec<Slot>,
    free: VecDeque<usize>,
    steps: usize,
    /// Number of requests that were given up: they never ended, or there were too many.
    pub given_up: u64,
}

impl Requests {
    /// Adds a request to the table, and returns its key.
    pub fn add(&mut self, request: Request) -> RequestId {
        if self.free.len() < NUMBERS_KEPT {
            self.make_room();
        }
        let index = self.free.pop_front().expect("there is room");
        let place = &mut self.places[index];
        place.generation += 1;
        let id = place.generation << 32 | index as u64;
        place.request = Some(Request { id, ..request });
        id
    }

    fn make_room(&mut self) {
        if self.places.len() < REQUESTS_MAX {
            self.free.push_front(self.places.len());
            self.places.push(Slot::default());
        }
        if !self.free.is_empty() {
            return;
        }
        let mut begun: Vec<(u64, usize)> = self.last_event_times().collect();
        let oldest = begun.len() / 8;
        begun.select_nth_unstable(oldest);
        for &(_, index) in &begun[..oldest] {
            self.give_up(index);
        }
    }

    fn give_up(&mut self, index: usize) {
        if let Some(request) = self.places[index].request.take() {
            self.steps -= request.steps.len();
            self.free.push_back(index);
            self.given_up += 1;
        }
    }

    fn last_event_times(&self) -> impl Iterator<Item = (u64, usize)> {
        let started = |(index, place): (usize, &Slot)| Some((place.request.as_ref()?.touched_ns, index));
        self.places.iter().enumerate().filter_map(started)
    }

    fn index(&self, id: RequestId) -> Option<usize> {
        let index = (id & 0xffff_ffff) as usize;
        (self.places.get(index)?.generation == id >> 32).then_some(index)
    }

    /// Returns the request with this key; `None` if the request has ended.
    pub fn get(&self, id: RequestId) -> Option<&Request> {
        self.places[self.index(id)?].request.as_ref()
    }

    /// Returns a mutable reference to the request with this key; `None` if the request has ended.
    pub fn get_mut(&mut self, id: RequestId) -> Option<&mut Request> {
        let index = self.index(id)?;
        self.places[index].request.as_mut()
    }

    /// Returns the request with this key, if it has no response yet.
    pub fn open_mut(&mut self, id: RequestId) -> Option<&mut Request> {
        self.get_mut(id).filter(|request| request.is_open())
    }

    /// Returns the number of a request that is in the table or was until recently; 0 if unknown.
    pub fn number(&self, id: RequestId) -> u64 {
        let Some(place) = self.index(id).map(|index| &self.places[index]) else { return 0 };
        place.request.as_ref().map_or(place.number, |request| request.number)
    }

    /// Returns whether a thread may still work on the request with this key.
    pub fn is_open(&self, id: RequestId) -> bool {
        self.get(id).is_some_and(Request::is_open)
    }

    /// Adds a step to the path of a request.
    pub fn add_step(&mut self, id: RequestId, step: PathStep) {
        let has_room = self.steps < ALL_LINKS_MAX;
        let Some(request) = self.get_mut(id) else { return };
        if let (Some(last), PathStep::Called(DownstreamCall { sent_ns, is_shared: true, .. })) =
            (request.steps.last_mut(), step)
            && matches!(*last, PathStep::Called(DownstreamCall { is_shared: true, sent_ns: before_ns, .. }) if before_ns == sent_ns)
        {
            // It is unknown which of several answers is for this request. So the latest answer replaces the one before.
            *last = step;
            return;
        }
        if has_room && request.steps.len() < LINKS_MAX {
            request.steps.push(step);
            self.steps += 1;
        } else {
            request.has_too_many_links = true;
        }
    }

    /// Removes a request from the table.
    pub fn remove(&mut self, id: RequestId) -> Option<Request> {
        let index = self.index(id)?;
        let request = self.places[index].request.take()?;
        self.places[index].number = request.number;
        self.steps -= request.steps.len();
        self.free.push_back(index);
        Some(request)
    }

    /// Gives up the requests whose last event was before `floor_ns`.
    pub fn give_up_before(&mut self, floor_ns: u64) {
        let old: Vec<usize> =
            self.last_event_times().filter(|(at_ns, _)| *at_ns < floor_ns).map(|(_, index)| index).collect();
        old.into_iter().for_each(|index| self.give_up(index));
    }

    /// Returns the arrival times of requests whose clients wait for a response. One-way messages do not count, nor do
    /// requests whose connection one side has ended.
    pub fn waiting_arrivals_ns(&self) -> impl Iterator<Item = u64> {
        let waits = |request: &&Request| !request.is_cut && !request.is_one_way();
        self.open_requests().filter(waits).map(|request| request.arrived_ns)
    }

    /// Returns the number of open connections on which the client sends messages that ask for no response.
    pub fn one_way_connections(&self) -> u64 {
        self.open_requests().filter(|request| request.is_one_way()).count() as u64
    }

    fn open_requests(&self) -> impl Iterator<Item = &Request> {
        let requests = self.places.iter().filter_map(|place| place.request.as_ref());
        requests.filter(|request| request.is_open() && request.number != 0)
    }

    /// Returns the arrival time of the oldest request in the table; `None` if the table is empty.
    pub fn oldest_arrival_ns(&self) -> Option<u64> {
        self.places.iter().filter_map(|place| Some(place.request.as_ref()?.arrived_ns)).min()
    }

    /// Returns the memory of the table, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let steps = self.places.iter().filter_map(|place| place.request.as_ref());
        self.places.capacity() * size_of::<Slot>()
            + self.free.capacity() * size_of::<usize>()
            + steps.map(|request| request.steps.capacity() * size_of::<PathStep>()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(touched_ns: u64) -> Request {
        Request { number: touched_ns, arrived_ns: touched_ns, touched_ns, ..Request::default() }
    }

    fn hand_over(at_ns: u64) -> PathStep {
        PathStep::Handed { at_ns, from: 1, to: 2 }
    }

    #[test]
    fn requests_without_an_event_are_given_up() {
        let mut requests = Requests::default();
        let ids = [100, 200, 300].map(|at_ns| requests.add(request(at_ns)));
        requests.add_step(ids[0], hand_over(100));
        assert_eq!((requests.oldest_arrival_ns(), requests.steps), (Some(100), 1));
        requests.give_up_before(200);
        assert_eq!(ids.map(|id| requests.get(id).is_some()), [false, true, true]);
        assert_eq!((requests.given_up, requests.oldest_arrival_ns(), requests.steps), (1, Some(200), 0));
        requests.give_up_before(1_000);
        assert_eq!((requests.given_up, requests.oldest_arrival_ns()), (3, None));
    }

    #[test]
    fn oldest_eighth_of_too_many_requests_is_given_up() {
        let mut requests = Requests::default();
        let ids: Vec<RequestId> = (1..=REQUESTS_MAX as u64 + 1).map(|at_ns| requests.add(request(at_ns))).collect();
        let (gone, kept) = ids.split_at(REQUESTS_MAX / 8);
        assert!(gone.iter().all(|id| requests.get(*id).is_none()) && kept.iter().all(|id| requests.get(*id).is_some()));
        assert_eq!((requests.given_up, requests.places.len()), (REQUESTS_MAX as u64 / 8, REQUESTS_MAX));
    }

    #[test]
    fn number_of_a_finished_request_stays_known_for_a_while() {
        let mut requests = Requests::default();
        let first = requests.add(request(7));
        requests.remove(first);
        for at_ns in 1..NUMBERS_KEPT as u64 {
            let id = requests.add(request(at_ns));
            requests.remove(id);
        }
        assert_eq!(requests.number(first), 7);
        assert!(requests.places.len() <= NUMBERS_KEPT);
    }

    #[test]
    fn steps_of_a_request_and_of_all_requests_are_bounded() {
        let mut requests = Requests::default();
        let ids: Vec<RequestId> = (0..ALL_LINKS_MAX / LINKS_MAX + 1).map(|_| requests.add(request(1))).collect();
        (0..LINKS_MAX as u64).for_each(|at_ns| requests.add_step(ids[0], hand_over(at_ns)));
        assert!(requests.get(ids[0]).is_some_and(|request| !request.has_too_many_links));
        requests.add_step(ids[0], hand_over(99));
        assert!(requests.get(ids[0]).is_some_and(|request| request.has_too_many_links));
        for id in &ids[1..] {
            (0..LINKS_MAX as u64).for_each(|at_ns| requests.add_step(*id, hand_over(at_ns)));
        }
        let has_too_many = |requests: &Requests, id| requests.get(id).is_some_and(|request| request.has_too_many_links);
        assert_eq!([ids[1], ids[ids.len() - 1]].map(|id| has_too_many(&requests, id)), [false, true]);
        // The steps of a request that ends make room for others.
        requests.remove(ids[1]);
        let next = requests.add(request(2));
        requests.add_step(next, hand_over(1));
        assert!(!has_too_many(&requests, next));
    }

    #[test]
    fn requests_their_steps_and_free_slots_take_memory() {
        let mut requests = Requests::default();
        assert_eq!(requests.memory_bytes(), 0);
        let ids: Vec<RequestId> = (0..100).map(|_| requests.add(request(1))).collect();
        assert!(requests.memory_bytes() >= 100 * size_of::<Slot>());
        let without_steps = requests.memory_bytes();
        (0..10).for_each(|at_ns| requests.add_step(ids[0], hand_over(at_ns)));
        assert!(requests.memory_bytes() >= without_steps + 10 * size_of::<PathStep>());
        ids.into_iter().for_each(|id| drop(requests.remove(id)));
        let slots = requests.places.capacity() * size_of::<Slot>();
        assert_eq!(requests.memory_bytes(), slots + requests.free.capacity() * size_of::<usize>());
    }
}
