//! State of each socket: arrivals of data, the request under way, and the responses that have not left.

use crate::builder::request::RequestId;
use crate::cause::Cause;
use crate::ending::Side;
use crate::wait::Peer;

/// The most arrivals that are stored for one socket until a thread receives them.
const ARRIVALS: usize = 8;
/// Tolerance between clocks: request tracking takes an arrival's time from TCP's clock, which was read a moment before
/// the record was written.
const CLOCKS_DIFFER_NS: u64 = 20_000;
/// The most responses of one socket that are still being sent while the next request is under way.
const RESPONSES: usize = 8;

#[derive(Debug, Clone, Copy, Default)]
struct Arrival {
    first_ns: u64,
    end_seq: u32,
    /// Whether a thread has received this data from the socket.
    taken: bool,
}

/// Data that has arrived at a socket and belongs to no request yet.
#[derive(Debug, Default)]
pub struct Arrivals {
    waiting: [Arrival; ARRIVALS],
    count: usize,
}

impl Arrivals {
    /// Adds data up to sequence number `end_seq`, whose first segment arrived at `first_ns`.
    pub fn add(&mut self, first_ns: u64, end_seq: u32) {
        if self.count < ARRIVALS {
            self.waiting[self.count] = Arrival { first_ns, end_seq, taken: false };
            self.count += 1;
        }
    }

    fn retain(&mut self, mut which: impl FnMut(&mut Arrival) -> bool) {
        let mut kept = 0;
        for index in 0..self.count {
            let mut arrival = self.waiting[index];
            if which(&mut arrival) {
                self.waiting[kept] = arrival;
                kept += 1;
            }
        }
        self.count = kept;
    }

    /// Records that a thread received the data up to `end_seq`. Removes the data that earlier calls received: it
    /// belongs to a request by now, or to none.
    pub fn mark_received(&mut self, end_seq: u32) {
        self.retain(|arrival| {
            let was_taken = arrival.taken;
            arrival.taken = arrival.end_seq.wrapping_sub(end_seq) as i32 <= 0;
            !was_taken
        });
    }

    /// Returns the arrival time of the oldest data that no thread has received.
    pub fn oldest_unreceived_ns(&self) -> Option<u64> {
        let untaken = self.waiting[..self.count].iter().filter(|arrival| !arrival.taken);
        untaken.map(|arrival| arrival.first_ns).min()
    }

    /// Begins a request whose data reached the socket at `data_ns`. Returns the arrival time of the request's first
    /// data.
    pub fn take_first_arrival_ns(&mut self, data_ns: u64) -> u64 {
        let mut first_ns = data_ns;
        self.retain(|arrival| {
            let is_its = arrival.first_ns <= data_ns.saturating_add(CLOCKS_DIFFER_NS);
            if is_its {
                first_ns = first_ns.min(arrival.first_ns);
            }
            !is_its
        });
        first_ns
    }
}

/// The most questions of different requests that are stored for one socket.
const CALLS: usize = 8;

/// A question to another service that was sent on a socket.
#[derive(Debug, Clone, Copy)]
pub struct PendingCall {
    pub request: RequestId,
    pub from: u32,
    pub sent_ns: u64,
    /// Times of the question's last two retransmissions, the last one first; 0 for none.
    pub again_ns: [u64; 2],
    /// Whether the question is a request for the connection itself.
    pub connects: bool,
    /// Whether a thread has read some of the answer.
    pub is_answered: bool,
    /// Whether another request had a question under way on this socket at the same time.
    pub is_shared: bool,
}

/// Longest time from an answer's arrival to the wakeup of a thread that sleeps until it arrives.
const WAKES_WITHIN_NS: u64 = 20_000;

impl PendingCall {
    /// Returns the arrival time of the answer that a thread reads now; `None` if the request did not wait for it.
    /// `came_ns` is the recorded arrival; if it is 0, the thread's wakeup counts. For an event loop a recorded arrival
    /// counts, since other requests may have woken the loop.
    pub fn answer_ready_ns(&self, arrived_ns: u64, woken_ns: u64, is_event_loop: bool) -> Option<u64> {
        let wakes = arrived_ns..arrived_ns.saturating_add(WAKES_WITHIN_NS);
        let ready_ns = match arrived_ns {
            0 => woken_ns,
            _ if wakes.contains(&woken_ns) => woken_ns,
            _ if is_event_loop => arrived_ns,
            _ => arrived_ns.min(woken_ns),
        };
        (ready_ns > self.sent_ns).then_some(ready_ns)
    }

    /// Records a retransmission of the question.
    pub fn record_retransmission(&mut self, at_ns: u64) {
        self.again_ns = [at_ns, self.again_ns[0]];
    }

    /// Removes the question's last retransmission, because the peer received the data twice: the first copy was not
    /// lost.
    pub fn remove_last_retransmission(&mut self) {
        self.again_ns = [self.again_ns[1], 0];
    }
}

/// State of one socket of the service.
#[derive(Debug, Default)]
pub struct Socket {
    pub arrivals: Arrivals,
    /// Whether clients send requests on this socket.
    pub is_asked: bool,
    /// The other service to which this socket is connected; `None` if unknown.
    pub peer: Option<Peer>,
    /// The request that a thread last received from this socket.
    pub request: RequestId,
    /// Whether the service sent a response on this socket.
    pub has_answered: bool,
    /// The cause that holds response data back in this socket, and the time from which it is known.
    pub held: Option<(Cause, u64)>,
    /// The side that ended the connection first, and when it did; `None` while the connection is open.
    pub ended: Option<(Side, u64)>,
    pub calls: Vec<PendingCall>,
    /// Whether a thread without a known request has sent on this socket since data was last received. An example is a
    /// client library's thread that sends the questions of all request threads.
    pub has_unknown: bool,
    /// The number of record losses in the trace when this socket's state was last known.
    pub epoch: u32,
    /// Arrival time before which some data of a request on this socket may have come unseen.
    pub clean_ns: u64,
    pub touched_ns: u64,
    /// Requests before `request` that were answered, but whose responses have not left.
    leaving: [RequestId; RESPONSES],
    leaving_count: usize,
    /// Sequence number up to which data has left for the device, and the time.
    left: Option<(u32, u64)>,
}

impl Socket {
    /// Marks this socket as uncertain, since records were lost: data of this socket may have come and left unseen.
    pub fn mark_uncertain(&mut self, epoch: u32) {
        self.epoch = epoch;
        self.clean_ns = u64::MAX;
        self.arrivals = Arrivals::default();
        self.calls.clear();
        self.has_unknown = false;
        (self.left, self.held) = (None, None);
    }

    /// Adds a question to another service. Earlier questions that were answered are over: requests use the connection
    /// in turn. Questions without an answer share the connection with the new one.
    pub fn add_call(&mut self, mut call: PendingCall) {
        self.calls.retain(|other| other.request != call.request && !other.is_answered);
        if self.calls.len() == CALLS {
            self.calls.remove(0);
        }
        call.is_shared = !self.calls.is_empty() || self.has_unknown;
        if call.is_shared {
            self.calls.iter_mut().for_each(|other| other.is_shared = true);
        }
        self.calls.push(call);
    }

    /// Records a question of an unknown request. Questions without an answer share the connection with this question.
    pub fn add_unknown_call(&mut self) {
        self.has_unknown = true;
        self.calls.retain(|other| !other.is_answered);
        self.calls.iter_mut().for_each(|other| other.is_shared = true);
    }

    /// Returns whether some data of a request may have come unseen. The request arrived at `arrived_ns`, and a thread
    /// receives it at `at_ns`.
    pub fn may_have_missed_data(&mut self, arrived_ns: u64, at_ns: u64) -> bool {
        let is_missed = arrived_ns < self.clean_ns;
        if self.clean_ns == u64::MAX {
            self.clean_ns = at_ns;
        }
        is_missed
    }

    /// Returns how long response data has waited at `at_ns`: since other data left, or since the cause that holds it
    /// back is known.
    pub fn held_ns(&self, at_ns: u64) -> u64 {
        let since_ns = self.held.map_or(0, |(_, since_ns)| since_ns).max(self.left.map_or(0, |(_, left_ns)| left_ns));
        if since_ns == 0 { 0 } else { at_ns.saturating_sub(since_ns) }
    }

    /// Records that data up to `end_seq` has left for the device. Returns whether that is more than before.
    pub fn record_transmitted(&mut self, end_seq: u32, at_ns: u64) -> bool {
        let is_more = self.left.is_none_or(|(before, _)| end_seq.wrapping_sub(before) as i32 > 0);
        if is_more {
            self.left = Some((end_seq, at_ns));
        }
        is_more
    }

    /// Returns the number of bytes up to `end_seq` that have not left. A thread has just written the last `length` of
    /// them to the socket.
    pub fn unsent_bytes(&self, end_seq: u32, length: u32) -> u32 {
        self.left.map_or(length, |(left, _)| (end_seq.wrapping_sub(left) as i32).max(0) as u32)
    }

    /// Adds a response that is still being sent while the next request is under way. If there are too many, returns the
    /// request whose response is no longer followed.
    pub fn add_leaving_response(&mut self, request: RequestId) -> Option<RequestId> {
        let oldest = (self.leaving_count == RESPONSES).then(|| self.leaving[0]);
        if oldest.is_some() {
            self.leaving.copy_within(1.., 0);
            self.leaving_count -= 1;
        }
        self.leaving[self.leaving_count] = request;
        self.leaving_count += 1;
        oldest
    }

    /// Returns the oldest answered request whose response has not left.
    pub fn oldest_leaving_response(&self) -> Option<RequestId> {
        self.leaving[..self.leaving_count].first().copied()
    }

    /// Removes the oldest response that has not left.
    pub fn remove_oldest_leaving_response(&mut self) {
        self.leaving.copy_within(1.., 0);
        self.leaving_count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_begins_with_the_first_byte_that_had_arrived() {
        let mut arrivals = Arrivals::default();
        arrivals.add(1_000_000, 10);
        arrivals.add(1_500_000, 20);
        arrivals.add(9_000_000, 30);
        assert_eq!(arrivals.take_first_arrival_ns(1_500_000), 1_000_000);
        assert_eq!(arrivals.take_first_arrival_ns(9_000_000), 9_000_000);
        assert_eq!(arrivals.take_first_arrival_ns(9_500_000), 9_500_000);
    }

    #[test]
    fn unclaimed_data_is_removed_at_the_next_receive() {
        let mut arrivals = Arrivals::default();
        arrivals.add(1_000_000, 10);
        arrivals.mark_received(10);
        arrivals.add(5_000_000, 20);
        arrivals.mark_received(20);
        assert_eq!(arrivals.take_first_arrival_ns(5_000_000), 5_000_000);
    }

    #[test]
    fn unsent_bytes_are_known_after_the_first_segment() {
        let mut socket = Socket::default();
        assert_eq!(socket.unsent_bytes(100, 7), 7);
        assert!(socket.record_transmitted(u32::MAX - 9, 1) && !socket.record_transmitted(u32::MAX - 19, 2));
        assert_eq!(socket.unsent_bytes(90, 7), 100);
        assert!(socket.record_transmitted(90, 3) && !socket.record_transmitted(90, 4), "the same data again");
        assert_eq!(socket.held_ns(10), 7);
        assert_eq!(socket.unsent_bytes(90, 7), 0);
    }

    #[test]
    fn oldest_of_too_many_unsent_responses_is_given_up() {
        let mut socket = Socket::default();
        assert!((1..=RESPONSES as u64).all(|id| socket.add_leaving_response(id).is_none()));
        assert_eq!(socket.add_leaving_response(99), Some(1));
        assert_eq!(socket.oldest_leaving_response(), Some(2));
    }
}
