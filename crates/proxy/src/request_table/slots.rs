//! Slots of the requests in flight, and a list of the last finished ones (Figure 4.5 b of the thesis). The memory is
//! bounded by the maximum number of requests in flight at once.

use std::collections::VecDeque;

use sidelane_policy::Nanos;
use sidelane_policy::hedge::Server;

use super::record::Record;

/// Id of a request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// Sequence number of the request, in the order of arrival.
    pub number: u64,
    slot: u32,
}

struct Entry<O> {
    id: u64,
    record: Record,
    owner: O,
}

pub(super) struct Slots<O> {
    slots: Vec<Option<Entry<O>>>,
    free: Vec<u32>,
    next_id: u64,
    /// Distance between the numbers of two requests.
    id_step: u64,
    /// Last finished requests with their ids, in the order of their ends.
    finished: VecDeque<(u64, Record)>,
    last: usize,
    /// Hedge times of requests, in ascending order because all requests wait for the same time.
    timers: VecDeque<(Nanos, RequestId)>,
}

/// Slack of the timer queue. Timers of finished requests are removed when the queue is longer than twice the number of
/// requests in flight plus this slack.
const TIMERS_SPARE: usize = 64;

impl<O: Clone> Slots<O> {
    /// Creates the slots of one of several threads, by its index and their number.
    pub(super) fn new(finished_max: usize, (index, threads): (usize, usize)) -> Self {
        let finished = VecDeque::with_capacity(finished_max);
        let (slots, free, timers) = Default::default();
        let (next_id, id_step) = (index as u64 + 1, threads as u64);
        Self { slots, free, next_id, id_step, finished, last: finished_max, timers }
    }

    pub(super) fn insert(&mut self, record: Record, owner: O, hedge_at_ns: Option<Nanos>) -> RequestId {
        let id = self.next_id;
        self.next_id += self.id_step;
        let entry = Some(Entry { id, record, owner });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = entry;
                slot
            }
            None => {
                self.slots.push(entry);
                (self.slots.len() - 1) as u32
            }
        };
        let request_id = RequestId { number: id, slot };
        self.set_timer(hedge_at_ns, request_id);
        request_id
    }

    fn set_timer(&mut self, hedge_at_ns: Option<Nanos>, request_id: RequestId) {
        let Some(at) = hedge_at_ns else { return };
        if self.timers.len() >= 2 * self.in_flight() + TIMERS_SPARE {
            let slots = &self.slots;
            let is_in_flight = |request_id: &RequestId| {
                slots[request_id.slot as usize].as_ref().is_some_and(|entry| entry.id == request_id.number)
            };
            self.timers.retain(|(_, request_id)| is_in_flight(request_id));
        }
        self.timers.push_back((at, request_id));
    }

    fn entry(&mut self, request_id: RequestId) -> Option<&mut Entry<O>> {
        self.slots.get_mut(request_id.slot as usize)?.as_mut().filter(|entry| entry.id == request_id.number)
    }

    pub(super) fn get(&self, request_id: RequestId) -> Option<&Record> {
        let entry = self.slots.get(request_id.slot as usize)?.as_ref().filter(|entry| entry.id == request_id.number);
        entry.map(|entry| &entry.record)
    }

    pub(super) fn get_mut(&mut self, request_id: RequestId) -> Option<&mut Record> {
        self.entry(request_id).map(|entry| &mut entry.record)
    }

    pub(super) fn get_with_owner(&mut self, request_id: RequestId) -> Option<(&mut Record, O)> {
        self.entry(request_id).map(|entry| (&mut entry.record, entry.owner.clone()))
    }

    /// Moves a request from its slot to the list of finished requests.
    pub(super) fn move_to_finished(&mut self, request_id: RequestId) {
        if self.entry(request_id).is_none() {
            return;
        }
        let entry = self.slots[request_id.slot as usize].take().expect("just seen");
        self.free.push(request_id.slot);
        if self.finished.len() >= self.last {
            self.finished.pop_front();
        }
        if self.last > 0 {
            self.finished.push_back((entry.id, entry.record));
        }
    }

    /// Returns the requests in flight that wait for this server, oldest first.
    pub(super) fn requests_waiting_for(&self, server: Server) -> Vec<RequestId> {
        let entries = self.slots.iter().enumerate().filter_map(|(slot, entry)| Some((slot as u32, entry.as_ref()?)));
        let waiting =
            entries.filter(|(_, entry)| entry.record.is_awaiting_answer(server) && !entry.record.is_answered());
        let mut request_ids: Vec<RequestId> =
            waiting.map(|(slot, entry)| RequestId { number: entry.id, slot }).collect();
        request_ids.sort_unstable_by_key(|request_id| request_id.number);
        request_ids
    }

    /// Removes and returns the next request whose hedge time has come. The request may have finished already.
    pub(super) fn pop_due(&mut self, now: Nanos) -> Option<RequestId> {
        let is_due = self.timers.front().is_some_and(|(at, _)| *at <= now);
        is_due.then(|| self.timers.pop_front().expect("just seen").1)
    }

    /// Returns the next time at which [`Slots::pop_due`] returns a request.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.timers.front().map(|(at, _)| *at)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn find(&self, id: u64) -> Option<&Record> {
        let in_flight = self.slots.iter().flatten().find(|entry| entry.id == id).map(|entry| &entry.record);
        in_flight.or_else(|| self.finished.iter().rev().find(|(finished, _)| *finished == id).map(|(_, record)| record))
    }

    /// Returns the record of a request in flight or of a recently finished one.
    pub(super) fn find_mut(&mut self, request_id: RequestId) -> Option<&mut Record> {
        if self.entry(request_id).is_some() {
            return self.get_mut(request_id);
        }
        self.finished.iter_mut().rev().find(|(finished, _)| *finished == request_id.number).map(|(_, record)| record)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Label, RequestClass, RequestEnd};
    use super::*;

    /// Index and number of threads.
    const ALONE: (usize, usize) = (0, 1);

    #[test]
    fn numbers_of_two_threads_differ() {
        let mut threads = [0, 1].map(|index| Slots::<()>::new(1, (index, 2)));
        let numbers: Vec<u64> = (0..6).map(|turn| threads[turn % 2].insert(record(), (), None).number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    }

    fn record() -> Record {
        Record::new(
            0,
            RequestClass { is_repeatable: true, follows: None, label: Label::from_text(b"GET /") },
            Server::FIRST,
        )
    }

    #[test]
    fn only_requests_in_flight_and_last_finished_are_found() {
        let mut slots = Slots::<()>::new(2, ALONE);
        let request_ids: Vec<RequestId> = (0..4).map(|_| slots.insert(record(), (), None)).collect();
        for request_id in &request_ids[..3] {
            slots.get_mut(*request_id).unwrap().finish(1, RequestEnd::Answered);
            slots.move_to_finished(*request_id);
        }
        assert!(slots.find(1).is_none());
        assert!([2, 3, 4].iter().all(|id| slots.find(*id).is_some()));
        assert_eq!((slots.in_flight(), slots.requests_waiting_for(Server::FIRST)), (1, vec![request_ids[3]]));
    }

    #[test]
    fn id_of_an_ended_request_does_not_match_a_reused_slot() {
        let mut slots = Slots::<()>::new(1, ALONE);
        let former = slots.insert(record(), (), None);
        slots.move_to_finished(former);
        let now = slots.insert(record(), (), None);
        assert!(slots.get_mut(former).is_none() && slots.get_mut(now).is_some());
        slots.move_to_finished(former);
        assert!(slots.get_mut(now).is_some());
    }

    #[test]
    fn memory_does_not_grow_with_ended_requests() {
        let mut slots = Slots::<()>::new(10, ALONE);
        for _ in 0..10_000 {
            let request_id = slots.insert(record(), (), None);
            slots.move_to_finished(request_id);
        }
        assert_eq!((slots.slots.len(), slots.finished.len(), slots.in_flight()), (1, 10, 0));
    }

    #[test]
    fn memory_does_not_grow_with_timers_of_ended_requests() {
        let mut slots = Slots::<()>::new(10, ALONE);
        let slow = slots.insert(record(), (), Some(1_000));
        for _ in 0..10_000 {
            let request_id = slots.insert(record(), (), Some(1_000));
            slots.move_to_finished(request_id);
        }
        assert!(slots.timers.len() < 1000, "{}", slots.timers.len());
        assert_eq!((slots.next_due(), slots.pop_due(1_000)), (Some(1_000), Some(slow)));
    }

    #[test]
    fn timers_are_searched_only_when_most_requests_have_ended() {
        const IN_FLIGHT: usize = 1_000;
        let mut slots = Slots::<()>::new(10, ALONE);
        for _ in 0..IN_FLIGHT {
            slots.insert(record(), (), Some(1_000));
        }
        let mut lengths = Vec::new();
        for _ in 0..2 * IN_FLIGHT {
            let request_id = slots.insert(record(), (), Some(1_000));
            slots.move_to_finished(request_id);
            lengths.push(slots.timers.len());
        }
        // A search visits each timer, so its cost must be shared by as many requests.
        let searches = lengths.windows(2).filter(|lengths| lengths[1] <= lengths[0]).count();
        assert_eq!((searches, lengths.iter().max()), (1, Some(&(2 * (IN_FLIGHT + 1) + TIMERS_SPARE))));
    }
}
