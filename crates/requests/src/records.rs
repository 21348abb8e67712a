//! Finished requests, read from records of the kernel program.
//!
//! The service may send a response in several parts. The kernel program writes a record at the first send, and another
//! with the same number at each later send. The last of these records counts. So a request is *settled*, and passed on,
//! when its connection has answered a later request, or when no record has followed for [`SETTLE_NS`].

use std::collections::HashMap;

use sidelane_policy::borrow::contention_cost::RequestCounters;

use sidelane_timeline::ending::{Ending, Side};
use sidelane_tracker::counters::request_counters;
use sidelane_tracker::kernel_types::{Plain, RequestRecord};
use sidelane_tracker::requests::number_within_service;

/// Maximum pause between two parts of one response, unless the response is a stream.
pub const SETTLE_NS: u64 = 100_000_000;

/// Request that was answered, or that ended without a response. Times are in CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Number of the request, in the order of starts; never reused.
    pub number: u64,
    /// Number of the first request of the same connection.
    pub connection: u64,
    /// Time at which the last data of the request reached the service's socket.
    pub arrived_ns: u64,
    /// Time at which a thread started to work on the request.
    pub started_ns: u64,
    /// Time at which the service handed the last part of the response to the socket.
    pub finished_ns: u64,
    /// Time at which the service handed the first part of the response to the socket; 0 if unknown.
    pub answered_ns: u64,
    /// Time that batch ran on the partner lanes between start and finish, in nanoseconds.
    pub co_run_ns: u64,
    /// Id of the thread that answered the request.
    pub tid: u32,
    /// CPU on which the request finished.
    pub lane: u32,
    /// Length of the queue at the arrival: requests that had arrived and not started, including this one.
    pub queue_len: u32,
    /// Number of sends of the response.
    pub sends: u32,
    /// Whether the request arrived before an earlier request on its lane had finished.
    pub waited: bool,
    /// Hardware counters of the lane from start to finish, if the request had the lane to itself.
    pub counters: Option<RequestCounters>,
    /// Kind of end at `finished_ns` if the request got no response that its client waited for.
    pub ending: Option<Ending>,
}

impl Request {
    /// Parses a record of the kernel program. Returns `None` if its length is wrong.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let record = RequestRecord::from_bytes(bytes)?;
        Some(Self {
            number: number_within_service(record.number),
            connection: number_within_service(record.connection),
            arrived_ns: record.arrived_ns,
            started_ns: record.started_ns,
            finished_ns: record.finished_ns,
            answered_ns: record.finished_ns,
            co_run_ns: record.co_run_ns,
            tid: record.tid,
            lane: record.lane,
            queue_len: record.queue_len,
            sends: record.sends,
            waited: record.waited != 0,
            counters: request_counters(record.instructions, record.cycles),
            ending: Side::from_number(record.ended_by)
                .map(|side| Ending::from_connection_end(side, record.arrived_ns, record.finished_ns)),
        })
    }

    /// Returns whether the response is a stream: it took longer than [`SETTLE_NS`] after its first part.
    pub fn is_streamed(&self) -> bool {
        self.sends > 1 && self.finished_ns.saturating_sub(self.answered_ns) > SETTLE_NS
    }

    /// Returns the time from start to finish in nanoseconds.
    pub fn server_ns(&self) -> u64 {
        self.finished_ns.saturating_sub(self.started_ns)
    }

    /// Returns the time from arrival to start in nanoseconds.
    pub fn queueing_ns(&self) -> u64 {
        self.started_ns.saturating_sub(self.arrived_ns)
    }

    /// Returns the time from arrival to finish in nanoseconds.
    pub fn latency_ns(&self) -> u64 {
        self.finished_ns.saturating_sub(self.arrived_ns)
    }
}

/// Answered requests whose response may still continue, by connection.
#[derive(Debug, Default)]
pub(super) struct UnsettledRequests {
    latest: HashMap<u64, Request>,
    late_sends: u64,
}

impl UnsettledRequests {
    /// Adds a record. Returns the earlier request of the connection that the record settles, if any.
    pub(super) fn add(&mut self, mut request: Request) -> Option<Request> {
        if request.ending.is_some() {
            // Discard the parts that were already sent: the client got no complete response.
            self.latest.extract_if(|_, before| before.number == request.number).for_each(drop);
            return Some(request);
        }
        let before = self.latest.get(&request.connection).filter(|before| before.number == request.number);
        let goes_on = before.is_some();
        request.answered_ns = before.map_or(request.answered_ns, |before| before.answered_ns);
        if !goes_on && request.sends > 1 {
            // The request was passed on before this send: the response is a stream.
            self.late_sends += 1;
            return None;
        }
        self.latest.insert(request.connection, request).filter(|_| !goes_on)
    }

    /// Removes and returns the requests without a record for [`SETTLE_NS`], oldest first.
    pub(super) fn take_settled(&mut self, now_ns: u64) -> Vec<Request> {
        self.take_matching(|request| request.finished_ns.saturating_add(SETTLE_NS) <= now_ns)
    }

    /// Removes and returns all remaining requests, for the end of the observation.
    pub(super) fn take_remaining(&mut self) -> Vec<Request> {
        self.take_matching(|_| true)
    }

    /// Returns and resets the number of sends that followed after their request had been passed on.
    pub(super) fn take_late_sends(&mut self) -> u64 {
        std::mem::take(&mut self.late_sends)
    }

    fn take_matching(&mut self, is_chosen: impl Fn(&Request) -> bool) -> Vec<Request> {
        let mut taken: Vec<Request> = self.latest.extract_if(|_, request| is_chosen(request)).map(|(_, r)| r).collect();
        taken.sort_unstable_by_key(|request| request.number);
        taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request_with_sends(connection: u64, number: u64, finished_ns: u64, sends: u32) -> Request {
        Request { connection, number, finished_ns, sends, ..Request::default() }
    }

    #[test]
    fn a_response_in_parts_finishes_with_its_last_part() {
        let mut settling = UnsettledRequests::default();
        assert_eq!(settling.add(request_with_sends(1, 1, 10, 1)), None);
        assert_eq!(settling.add(request_with_sends(1, 1, 20, 2)), None);
        assert_eq!(settling.add(request_with_sends(1, 5, 30, 1)), Some(request_with_sends(1, 1, 20, 2)));
        assert_eq!(settling.take_settled(30 + SETTLE_NS - 1), []);
        assert_eq!(settling.take_settled(30 + SETTLE_NS), [request_with_sends(1, 5, 30, 1)]);
    }

    #[test]
    fn late_part_of_a_response_is_only_counted() {
        let mut settling = UnsettledRequests::default();
        settling.add(request_with_sends(1, 1, 10, 1));
        assert_eq!(settling.take_settled(10 + SETTLE_NS).len(), 1);
        assert_eq!(settling.add(request_with_sends(1, 1, 11 + SETTLE_NS, 2)), None);
        assert_eq!((settling.take_late_sends(), settling.take_remaining()), (1, vec![]));
    }

    #[test]
    fn response_on_a_closed_connection_is_no_answer() {
        let mut settling = UnsettledRequests::default();
        settling.add(request_with_sends(1, 1, 10, 1));
        settling.add(request_with_sends(1, 5, 30, 1));
        let cut = Request { ending: Some(Ending::Abandoned), ..request_with_sends(1, 5, 20, 0) };
        assert_eq!(settling.add(cut), Some(cut));
        assert_eq!(settling.take_remaining(), []);
    }

    #[test]
    fn record_bytes_are_parsed_field_by_field() {
        let mut bytes = Vec::new();
        (1..=6_u64).for_each(|field| bytes.extend(field.to_ne_bytes()));
        (7..=11_u32).chain([1]).for_each(|field| bytes.extend(field.to_ne_bytes()));
        (13..=14_u64).for_each(|field| bytes.extend(field.to_ne_bytes()));
        let read = Request::from_bytes(&bytes).unwrap();
        assert_eq!((read.number, read.connection, read.arrived_ns, read.started_ns), (1, 2, 3, 4));
        assert_eq!((read.finished_ns, read.co_run_ns, read.tid, read.lane), (5, 6, 7, 8));
        assert_eq!((read.queue_len, read.sends, read.waited), (9, 10, true));
        assert_eq!(read.counters, Some(RequestCounters { instructions: 13, cycles: 14 }));
        assert_eq!(read.ending, Some(Ending::NoAnswerWanted), "its client ended the connection at once");
        assert_eq!(Request::from_bytes(&bytes[1..]), None);
    }

    proptest! {
        /// Checks that each request is returned once, with its last part, for any mix of connections, parts and pauses.
        #[test]
        fn each_request_is_settled_once(script in prop::collection::vec((0..4_u64, 1..4_u32, 0..SETTLE_NS), 1..60)) {
            let mut settling = UnsettledRequests::default();
            let (mut out, mut wanted, mut now_ns) = (Vec::new(), Vec::new(), 0);
            for (number, (connection, sends, pause_ns)) in script.into_iter().enumerate() {
                for send in 1..=sends {
                    now_ns += 1;
                    out.extend(settling.add(request_with_sends(connection, number as u64, now_ns, send)));
                }
                wanted.push(request_with_sends(connection, number as u64, now_ns, sends));
                now_ns += pause_ns;
                out.extend(settling.take_settled(now_ns));
            }
            out.extend(settling.take_remaining());
            out.sort_by_key(|request| request.number);
            prop_assert_eq!(out, wanted);
        }
    }
}
