//! Requests under way.

use std::collections::VecDeque;

use crate::builder::holds::Holds;
use crate::builder::sleep::Question;
use crate::wait::Peer;

/// How a request came from one place on its way to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// A thread that had it woke another one.
    Handed { at_ns: u64, from: u32, to: u32 },
    /// A thread asked another service, and one took the answer.
    Called(Called),
}

/// A question to another service, and the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Called {
    pub sent_ns: u64,
    pub from: u32,
    /// When the question was sent again for the last time; 0 if it was not.
    pub again_ns: u64,
    pub ready_ns: u64,
    pub taken_ns: u64,
    pub to: u32,
    pub peer: Option<Peer>,
    /// Other requests had a question under way on the same connection.
    pub is_shared: bool,
    /// It asked for a connection.
    pub connects: bool,
    /// The thread that took the answer works on other requests, too.
    pub by_loop: bool,
    /// It is recorded when the answer came; else it is taken to have woken the thread.
    pub is_seen: bool,
}

impl Link {
    /// The thread that has the request after this, and since when.
    pub fn brings(&self) -> (u32, u64) {
        match *self {
            Link::Handed { at_ns, to, .. } => (to, at_ns),
            Link::Called(Called { taken_ns, to, .. }) => (to, taken_ns),
        }
    }
}

/// The most links that a request keeps, and that all of them keep together.
const LINKS_MAX: usize = 64;
const ALL_LINKS_MAX: usize = 262_144;

/// The most questions of a request that are under way at once, and known.
const QUESTIONS_MAX: usize = 8;

/// Segments of a response that were sent again and are known; of more, the last ones.
const SENT_AGAIN_MAX: usize = 16;

/// A response is a stream if data is sent this long after its first data, as for `sidelane requests`.
const STREAM_NS: u64 = 100_000_000;

/// A request from when a thread received it. All times are 0 until they are known.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub id: Id,
    /// As request tracking counts.
    pub number: u64,
    pub socket: u64,
    /// From which it came, 0 if unknown.
    pub peer_port: u32,
    /// Its first segment, or the first of its data.
    pub arrived_ns: u64,
    /// The last of its data was at the socket.
    pub data_ns: u64,
    pub started_ns: u64,
    /// Its start was told, which may be in hindsight.
    pub is_told: bool,
    /// Thread that received it.
    pub receiver: u32,
    /// The first of its response was given to the socket.
    pub answered_ns: u64,
    /// Its response, so far, was given to the socket.
    pub finished_ns: u64,
    /// Thread that did so.
    pub finisher: u32,
    /// When that thread took it up, as request tracking sees it.
    pub taken_up_ns: u64,
    /// End of its response in the numbers of the connection, where it is known.
    pub end_seq: Option<u32>,
    /// Bytes of the response that have not left; what they were when it finished is in `held`.
    pub unsent: u32,
    pub held: u32,
    /// What held it back.
    pub holds: Holds,
    /// The last of its response left.
    pub left_ns: u64,
    /// Segments were sent again then, that were lost as far as is known.
    pub sent_again: Vec<u64>,
    /// Questions to other services that were not answered, and when each was sent.
    pub questions: Vec<(Question, u64)>,
    /// Anything last happened to it.
    pub touched_ns: u64,
    pub links: Vec<Link>,
    pub has_too_many_links: bool,
    /// One side has ended the connection: it is not known whether the client still waits.
    pub is_cut: bool,
    /// A response was sent on the connection before it.
    pub follows_response: bool,
    /// Pauses between its parts.
    pub pauses: u8,
    /// Some of its data may have come unseen, since records were lost.
    pub is_missing: bool,
}

/// A client that sends on after such a pause, this often, on a connection that never had a response, expects none.
const PAUSE_NS: u64 = 10_000_000;
const ONE_WAY_PAUSES: u8 = 3;

impl Request {
    /// Whether this thread, which did not receive it, was the last to get it.
    pub fn is_with(&self, tid: u32) -> bool {
        tid != self.receiver && self.links.last().is_some_and(|link| link.brings().0 == tid)
    }

    /// Whether no response to it has been given yet.
    pub fn is_open(&self) -> bool {
        self.finished_ns == 0
    }

    /// Whether its response went on for longer than one response does.
    pub fn streams(&self) -> bool {
        self.finished_ns.saturating_sub(self.answered_ns) > STREAM_NS
    }

    /// More of it was received.
    pub fn goes_on(&mut self, at_ns: u64) {
        self.pauses = self.pauses.saturating_add((at_ns.saturating_sub(self.touched_ns) >= PAUSE_NS).into());
        self.touched_ns = at_ns;
    }

    /// Whether it seems to be a series of messages that ask for no response.
    pub fn is_one_way(&self) -> bool {
        !self.follows_response && self.pauses >= ONE_WAY_PAUSES
    }

    /// It asks another service.
    pub fn asks(&mut self, question: Question, at_ns: u64) {
        self.is_answered(question.socket);
        if self.questions.len() < QUESTIONS_MAX {
            self.questions.push((question, at_ns));
        }
    }

    /// Something came on this socket.
    pub fn is_answered(&mut self, socket: u64) {
        self.questions.retain(|(question, _)| question.socket != socket);
    }

    /// When a segment was last sent again; 0 if none was.
    pub fn again_ns(&self) -> u64 {
        self.sent_again.last().copied().unwrap_or(0)
    }

    /// A segment is sent again.
    pub fn is_sent_again(&mut self, at_ns: u64) {
        if self.sent_again.len() == SENT_AGAIN_MAX {
            self.sent_again.remove(0);
        }
        self.sent_again.push(at_ns);
    }

    /// The client has got something twice: what was last sent again was not lost. Whether anything was sent again.
    pub fn is_got_twice(&mut self) -> bool {
        self.sent_again.pop().is_some()
    }

    /// When its time ends.
    pub fn ended_ns(&self) -> u64 {
        self.finished_ns.max(self.left_ns).max(self.again_ns())
    }
}

/// Names a request while it is under way; 0 names none.
pub type Id = u64;

/// The most requests under way. Of more, the oldest are given up.
const REQUESTS_MAX: usize = 65_536;
/// Requests for which the number of a finished request stays known.
const NUMBERS_KEPT: usize = 4_096;

#[derive(Debug, Default)]
struct Place {
    generation: u64,
    /// Of the request that was here last.
    number: u64,
    request: Option<Request>,
}

/// All requests under way.
#[derive(Debug, Default)]
pub struct Requests {
    places: Vec<Place>,
    free: VecDeque<usize>,
    links: usize,
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
            self.places.push(Place::default());
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
            self.links -= request.links.len();
            self.free.push_back(index);
            self.given_up += 1;
        }
    }

    fn begun(&self) -> impl Iterator<Item = (u64, usize)> {
        let started = |(index, place): (usize, &Place)| Some((place.request.as_ref()?.touched_ns, index));
        self.places.iter().enumerate().filter_map(started)
    }

    fn index(&self, id: Id) -> Option<usize> {
        let index = (id & 0xffff_ffff) as usize;
        (self.places.get(index)?.generation == id >> 32).then_some(index)
    }

    /// The request with this name, while it is under way.
    pub fn get(&self, id: Id) -> Option<&Request> {
        self.places[self.index(id)?].request.as_ref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: Id) -> Option<&mut Request> {
        let index = self.index(id)?;
        self.places[index].request.as_mut()
    }

    /// Returns the request with this id, if it has not been answered yet.
    pub fn open_mut(&mut self, id: Id) -> Option<&mut Request> {
        self.get_mut(id).filter(|request| request.is_open())
    }

    /// The number of a request that is under way, or was until lately; 0 if it is not known.
    pub fn number(&self, id: Id) -> u64 {
        let Some(place) = self.index(id).map(|index| &self.places[index]) else { return 0 };
        place.request.as_ref().map_or(place.number, |request| request.number)
    }

    /// Whether a thread may still work on it.
    pub fn is_open(&self, id: Id) -> bool {
        self.get(id).is_some_and(Request::is_open)
    }

    /// Notes a link of a request.
    pub fn link(&mut self, id: Id, link: Link) {
        let has_room = self.links < ALL_LINKS_MAX;
        let Some(request) = self.get_mut(id) else { return };
        if let (Some(last), Link::Called(Called { sent_ns, is_shared: true, .. })) = (request.links.last_mut(), link)
            && matches!(*last, Link::Called(Called { is_shared: true, sent_ns: before_ns, .. }) if before_ns == sent_ns)
        {
            // Which of several answers was the request's is not known: until it ends, it may be each of them.
            *last = link;
            return;
        }
        if has_room && request.links.len() < LINKS_MAX {
            request.links.push(link);
            self.links += 1;
        } else {
            request.has_too_many_links = true;
        }
    }

    /// Takes a request out.
    pub fn remove(&mut self, id: Id) -> Option<Request> {
        let index = self.index(id)?;
        let request = self.places[index].request.take()?;
        self.places[index].number = request.number;
        self.links -= request.links.len();
        self.free.push_back(index);
        Some(request)
    }

    /// Gives up requests that nothing happened to since `floor_ns`.
    pub fn give_up_before(&mut self, floor_ns: u64) {
        let old: Vec<usize> = self.begun().filter(|(at_ns, _)| *at_ns < floor_ns).map(|(_, index)| index).collect();
        old.into_iter().for_each(|index| self.give_up(index));
    }

    /// Arrivals of the requests whose clients wait for a response. Not counted are one-way messages, and requests whose
    /// connection one side has ended.
    pub fn waiting(&self) -> impl Iterator<Item = u64> {
        let waits = |request: &&Request| !request.is_cut && !request.is_one_way();
        self.open().filter(waits).map(|request| request.arrived_ns)
    }

    /// One-way messages on connections that have not ended, one for each connection.
    pub fn one_way(&self) -> u64 {
        self.open().filter(|request| request.is_one_way()).count() as u64
    }

    fn open(&self) -> impl Iterator<Item = &Request> {
        let requests = self.places.iter().filter_map(|place| place.request.as_ref());
        requests.filter(|request| request.is_open() && request.number != 0)
    }

    /// When the oldest of them arrived.
    pub fn oldest_ns(&self) -> Option<u64> {
        self.places.iter().filter_map(|place| Some(place.request.as_ref()?.arrived_ns)).min()
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        let links = self.places.iter().filter_map(|place| place.request.as_ref());
        self.places.capacity() * size_of::<Place>()
            + self.free.capacity() * size_of::<usize>()
            + links.map(|request| request.links.capacity() * size_of::<Link>()).sum::<usize>()
    }
}
