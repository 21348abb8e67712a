//! Requests under way.

use std::collections::VecDeque;

use crate::builder::holds::Holds;
use crate::builder::sleep::UnansweredCall;
use crate::wait::Peer;

/// A step of a request from one place on its way to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathStep {
    /// A thread that had it woke another one.
    Handed { at_ns: u64, from: u32, to: u32 },
    /// A thread asked another service, and a thread took the answer.
    Called(DownstreamCall),
}

/// A question to another service, and the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DownstreamCall {
    pub sent_ns: u64,
    pub from: u32,
    /// Time of the question's last retransmission; 0 without one.
    pub again_ns: u64,
    pub ready_ns: u64,
    pub taken_ns: u64,
    pub to: u32,
    pub peer: Option<Peer>,
    /// Whether other requests had a question under way on the same connection.
    pub is_shared: bool,
    /// Whether it asked for a connection.
    pub connects: bool,
    /// Whether the thread that took the answer works on other requests, too.
    pub by_loop: bool,
    /// Whether the answer's arrival is recorded; otherwise the answer is assumed to have woken the thread.
    pub is_seen: bool,
}

impl PathStep {
    /// Returns the thread that has the request after this, and the time from which it has it.
    pub fn brings(&self) -> (u32, u64) {
        match *self {
            PathStep::Handed { at_ns, to, .. } => (to, at_ns),
            PathStep::Called(DownstreamCall { taken_ns, to, .. }) => (to, taken_ns),
        }
    }
}

/// The most links of a request, and of all requests together.
const LINKS_MAX: usize = 64;
const ALL_LINKS_MAX: usize = 262_144;

/// The most questions of a request that are under way at once and known.
const QUESTIONS_MAX: usize = 8;

/// The most retransmitted segments of a response that are known: the last ones.
const SENT_AGAIN_MAX: usize = 16;

/// A response is a stream if data is sent this long after its first data, as for `sidelane requests`.
const STREAM_NS: u64 = 100_000_000;

/// A request since a thread received it. All times are 0 until they are known.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub id: Id,
    /// Its number in request tracking.
    pub number: u64,
    pub socket: u64,
    /// The port from which it came, 0 if unknown.
    pub peer_port: u32,
    /// Time of its first segment, or of the first of its data.
    pub arrived_ns: u64,
    /// Time at which the last of its data was at the socket.
    pub data_ns: u64,
    pub started_ns: u64,
    /// Whether its start was recorded, which may be in hindsight.
    pub is_told: bool,
    /// Thread that received it.
    pub receiver: u32,
    /// Time at which the first of its response was given to the socket.
    pub answered_ns: u64,
    /// Time at which its response, so far, was given to the socket.
    pub finished_ns: u64,
    /// The thread that gave it.
    pub finisher: u32,
    /// Time at which that thread took it up, from request tracking.
    pub taken_up_ns: u64,
    /// End of its response in the sequence of the connection, if it is known.
    pub end_seq: Option<u32>,
    /// Bytes of the response that have not left; the number when it finished is in `held`.
    pub unsent: u32,
    pub held: u32,
    /// The causes that held it back.
    pub holds: Holds,
    /// Time at which the last of its response left.
    pub left_ns: u64,
    /// Times of retransmissions of segments that were lost as far as is known.
    pub sent_again: Vec<u64>,
    /// Questions to other services that were not answered, with the time of each.
    pub questions: Vec<(UnansweredCall, u64)>,
    /// Time of its last event.
    pub touched_ns: u64,
    pub steps: Vec<PathStep>,
    pub has_too_many_links: bool,
    /// Whether one side has ended the connection: it is not known whether the client still waits.
    pub is_cut: bool,
    /// Whether a response was sent on the connection before it.
    pub follows_response: bool,
    /// Pauses between its parts.
    pub pauses: u8,
    /// Whether some of its data may have come unseen, since records were lost.
    pub is_missing: bool,
}

/// Pause after which a client has sent again. With this number of pauses on a connection without any response, it
/// expects none.
const PAUSE_NS: u64 = 10_000_000;
const ONE_WAY_PAUSES: u8 = 3;

impl Request {
    /// Returns whether this thread, which did not receive it, was the last to get it.
    pub fn is_with(&self, tid: u32) -> bool {
        tid != self.receiver && self.steps.last().is_some_and(|step| step.brings().0 == tid)
    }

    /// Returns whether it has no response yet.
    pub fn is_open(&self) -> bool {
        self.finished_ns == 0
    }

    /// Returns whether its response lasted longer than a single response does.
    pub fn streams(&self) -> bool {
        self.finished_ns.saturating_sub(self.answered_ns) > STREAM_NS
    }

    /// Notes that more of it was received.
    pub fn goes_on(&mut self, at_ns: u64) {
        self.pauses = self.pauses.saturating_add((at_ns.saturating_sub(self.touched_ns) >= PAUSE_NS).into());
        self.touched_ns = at_ns;
    }

    /// Returns whether it seems to be a series of messages that ask for no response.
    pub fn is_one_way(&self) -> bool {
        !self.follows_response && self.pauses >= ONE_WAY_PAUSES
    }

    /// Notes a question to another service.
    pub fn asks(&mut self, question: UnansweredCall, at_ns: u64) {
        self.is_answered(question.socket);
        if self.questions.len() < QUESTIONS_MAX {
            self.questions.push((question, at_ns));
        }
    }

    /// Notes that data came on this socket.
    pub fn is_answered(&mut self, socket: u64) {
        self.questions.retain(|(question, _)| question.socket != socket);
    }

    /// Returns the time of the last retransmission; 0 without one.
    pub fn again_ns(&self) -> u64 {
        self.sent_again.last().copied().unwrap_or(0)
    }

    /// Notes a retransmission.
    pub fn is_sent_again(&mut self, at_ns: u64) {
        if self.sent_again.len() == SENT_AGAIN_MAX {
            self.sent_again.remove(0);
        }
        self.sent_again.push(at_ns);
    }

    /// Removes the last retransmission, since the client has got its data twice: it was not lost. Returns whether there
    /// was one.
    pub fn is_got_twice(&mut self) -> bool {
        self.sent_again.pop().is_some()
    }

    /// Returns the end of its time.
    pub fn ended_ns(&self) -> u64 {
        self.finished_ns.max(self.left_ns).max(self.again_ns())
    }
}

/// The name of a request while it is under way; 0 names none.
pub type Id = u64;

/// The most requests under way. When there are more, the oldest are given up.
const REQUESTS_MAX: usize = 65_536;
/// Requests for which the number of a finished request stays known.
const NUMBERS_KEPT: usize = 4_096;

#[derive(Debug, Default)]
struct Slot {
    generation: u64,
    /// The number of the request that was here last.
    number: u64,
    request: Option<Request>,
}

/// All requests under way.
#[derive(Debug, Default)]
pub struct Requests {
    places: Vec<Slot>,
    free: VecDeque<usize>,
    steps: usize,
    /// Requests that were given up: they never ended, or there were too many.
    pub given_up: u64,
}

impl Requests {
    /// Takes a request in.
    pub fn add(&mut self, request: Request) -> Id {
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
        let mut begun: Vec<(u64, usize)> = self.begun().collect();
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

    fn begun(&self) -> impl Iterator<Item = (u64, usize)> {
        let started = |(index, place): (usize, &Slot)| Some((place.request.as_ref()?.touched_ns, index));
        self.places.iter().enumerate().filter_map(started)
    }

    fn index(&self, id: Id) -> Option<usize> {
        let index = (id & 0xffff_ffff) as usize;
        (self.places.get(index)?.generation == id >> 32).then_some(index)
    }

    /// Returns the request with this id, while it is under way.
    pub fn get(&self, id: Id) -> Option<&Request> {
        self.places[self.index(id)?].request.as_ref()
    }

    /// Returns the same, to be changed.
    pub fn get_mut(&mut self, id: Id) -> Option<&mut Request> {
        let index = self.index(id)?;
        self.places[index].request.as_mut()
    }

    /// Returns the request with this id, if it has not been answered yet.
    pub fn open_mut(&mut self, id: Id) -> Option<&mut Request> {
        self.get_mut(id).filter(|request| request.is_open())
    }

    /// Returns the number of a request that is under way, or was until recently; 0 if it is not known.
    pub fn number(&self, id: Id) -> u64 {
        let Some(place) = self.index(id).map(|index| &self.places[index]) else { return 0 };
        place.request.as_ref().map_or(place.number, |request| request.number)
    }

    /// Returns whether a thread may still work on it.
    pub fn is_open(&self, id: Id) -> bool {
        self.get(id).is_some_and(Request::is_open)
    }

    /// Notes a link of a request.
    pub fn step(&mut self, id: Id, step: PathStep) {
        let has_room = self.steps < ALL_LINKS_MAX;
        let Some(request) = self.get_mut(id) else { return };
        if let (Some(last), PathStep::Called(DownstreamCall { sent_ns, is_shared: true, .. })) =
            (request.steps.last_mut(), step)
            && matches!(*last, PathStep::Called(DownstreamCall { is_shared: true, sent_ns: before_ns, .. }) if before_ns == sent_ns)
        {
            // It is not known which of several answers was the request's: until it ends, it may be any of them.
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

    /// Removes a request.
    pub fn remove(&mut self, id: Id) -> Option<Request> {
        let index = self.index(id)?;
        let request = self.places[index].request.take()?;
        self.places[index].number = request.number;
        self.steps -= request.steps.len();
        self.free.push_back(index);
        Some(request)
    }

    /// Gives up requests without an event since `floor_ns`.
    pub fn give_up_before(&mut self, floor_ns: u64) {
        let old: Vec<usize> = self.begun().filter(|(at_ns, _)| *at_ns < floor_ns).map(|(_, index)| index).collect();
        old.into_iter().for_each(|index| self.give_up(index));
    }

    /// Returns the arrivals of requests whose clients wait for a response. One-way messages are not counted, nor
    /// requests whose connection one side has ended.
    pub fn waiting(&self) -> impl Iterator<Item = u64> {
        let waits = |request: &&Request| !request.is_cut && !request.is_one_way();
        self.open().filter(waits).map(|request| request.arrived_ns)
    }

    /// Returns the number of connections with one-way messages that have not ended.
    pub fn one_way(&self) -> u64 {
        self.open().filter(|request| request.is_one_way()).count() as u64
    }

    fn open(&self) -> impl Iterator<Item = &Request> {
        let requests = self.places.iter().filter_map(|place| place.request.as_ref());
        requests.filter(|request| request.is_open() && request.number != 0)
    }

    /// Returns the arrival of the oldest request.
    pub fn oldest_ns(&self) -> Option<u64> {
        self.places.iter().filter_map(|place| Some(place.request.as_ref()?.arrived_ns)).min()
    }

    /// Returns the bytes that they take.
    pub fn bytes(&self) -> usize {
        let steps = self.places.iter().filter_map(|place| place.request.as_ref());
        self.places.capacity() * size_of::<Slot>()
            + self.free.capacity() * size_of::<usize>()
            + steps.map(|request| request.steps.capacity() * size_of::<PathStep>()).sum::<usize>()
    }
}
