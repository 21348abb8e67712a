//! The request table: those in flight, and the last that finished (Figure 4.5 b of the thesis). Its memory is bounded
//! by how many are in flight at once.

use std::collections::VecDeque;

use sidelane_policy::Nanos;
use sidelane_policy::hedge::Server;

use super::record::Record;

/// A request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Its number: requests are numbered as they come.
    pub id: u64,
    slot: u32,
}

struct Entry<O> {
    id: u64,
    record: Record,
    owner: O,
}

pub(super) struct Table<O> {
    slots: Vec<Option<Entry<O>>>,
    free: Vec<u32>,
    next_id: u64,
    /// The last that finished, in the order in which they did.
    finished: VecDeque<(u64, Record)>,
    last: usize,
    /// When requests are to be hedged, in order, since all of them wait equally long.
    timers: VecDeque<(Nanos, Ticket)>,
}

/// Timers of requests that are over are kept until there are more of them than requests in flight, and so many more.
const TIMERS_SPARE: usize = 64;

impl<O: Clone> Table<O> {
    pub(super) fn new(last: usize) -> Self {
        let finished = VecDeque::with_capacity(last);
        Self { slots: Vec::new(), free: Vec::new(), next_id: 1, finished, last, timers: VecDeque::new() }
    }

    pub(super) fn insert(&mut self, record: Record, owner: O, timer: Option<Nanos>) -> Ticket {
        let id = self.next_id;
        self.next_id += 1;
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
        let ticket = Ticket { id, slot };
        self.set_timer(timer, ticket);
        ticket
    }

    fn set_timer(&mut self, timer: Option<Nanos>, ticket: Ticket) {
        let Some(at) = timer else { return };
        if self.timers.len() >= 2 * self.in_flight() + TIMERS_SPARE {
            let slots = &self.slots;
            let is_in_flight =
                |ticket: &Ticket| slots[ticket.slot as usize].as_ref().is_some_and(|entry| entry.id == ticket.id);
            self.timers.retain(|(_, ticket)| is_in_flight(ticket));
        }
        self.timers.push_back((at, ticket));
    }

    fn entry(&mut self, ticket: Ticket) -> Option<&mut Entry<O>> {
        self.slots.get_mut(ticket.slot as usize)?.as_mut().filter(|entry| entry.id == ticket.id)
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&Record> {
        let entry = self.slots.get(ticket.slot as usize)?.as_ref().filter(|entry| entry.id == ticket.id);
        entry.map(|entry| &entry.record)
    }

    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Record> {
        self.entry(ticket).map(|entry| &mut entry.record)
    }

    pub(super) fn get_with_owner(&mut self, ticket: Ticket) -> Option<(&mut Record, O)> {
        self.entry(ticket).map(|entry| (&mut entry.record, entry.owner.clone()))
    }

    /// The request is over: it is remembered until so many others are.
    pub(super) fn retire(&mut self, ticket: Ticket) {
        if self.entry(ticket).is_none() {
            return;
        }
        let entry = self.slots[ticket.slot as usize].take().expect("just seen");
        self.free.push(ticket.slot);
        if self.finished.len() >= self.last {
            self.finished.pop_front();
        }
        if self.last > 0 {
            self.finished.push_back((entry.id, entry.record));
        }
    }

    /// Requests in flight that wait for this server, oldest first.
    pub(super) fn tickets_at(&self, server: Server) -> Vec<Ticket> {
        let entries = self.slots.iter().enumerate().filter_map(|(slot, entry)| Some((slot as u32, entry.as_ref()?)));
        let waiting = entries.filter(|(_, entry)| entry.record.is_out(server) && !entry.record.is_answered());
        let mut tickets: Vec<Ticket> = waiting.map(|(slot, entry)| Ticket { id: entry.id, slot }).collect();
        tickets.sort_unstable_by_key(|ticket| ticket.id);
        tickets
    }

    /// The next request whose time is up, which may be over.
    pub(super) fn due(&mut self, now: Nanos) -> Option<Ticket> {
        let is_due = self.timers.front().is_some_and(|(at, _)| *at <= now);
        is_due.then(|| self.timers.pop_front().expect("just seen").1)
    }

    /// When [`Table::due`] has something.
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

    /// As [`Table::get_mut`], of a request that may be over.
    pub(super) fn find_mut(&mut self, ticket: Ticket) -> Option<&mut Record> {
        if self.entry(ticket).is_some() {
            return self.get_mut(ticket);
        }
        self.finished.iter_mut().rev().find(|(finished, _)| *finished == ticket.id).map(|(_, record)| record)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Class, End, Label};
    use super::*;

    fn record() -> Record {
        Record::new(0, Class { is_repeatable: true, follows: None, label: Label::of(b"GET /") }, Server::First)
    }

    #[test]
    fn those_in_flight_and_the_last_that_finished_are_found_and_no_others() {
        let mut table = Table::<()>::new(2);
        let tickets: Vec<Ticket> = (0..4).map(|_| table.insert(record(), (), None)).collect();
        for ticket in &tickets[..3] {
            table.get_mut(*ticket).unwrap().finish(1, End::Answered);
            table.retire(*ticket);
        }
        assert!(table.find(1).is_none());
        assert!([2, 3, 4].iter().all(|id| table.find(*id).is_some()));
        assert_eq!((table.in_flight(), table.tickets_at(Server::First)), (1, vec![tickets[3]]));
    }

    #[test]
    fn a_place_that_is_used_again_is_not_the_former_request() {
        let mut table = Table::<()>::new(1);
        let former = table.insert(record(), (), None);
        table.retire(former);
        let now = table.insert(record(), (), None);
        assert!(table.get_mut(former).is_none() && table.get_mut(now).is_some());
        table.retire(former);
        assert!(table.get_mut(now).is_some());
    }

    #[test]
    fn memory_does_not_grow_with_the_requests_that_are_over() {
        let mut table = Table::<()>::new(10);
        for _ in 0..10_000 {
            let ticket = table.insert(record(), (), None);
            table.retire(ticket);
        }
        assert_eq!((table.slots.len(), table.finished.len(), table.in_flight()), (1, 10, 0));
    }

    #[test]
    fn memory_does_not_grow_with_the_times_of_requests_that_are_over() {
        let mut table = Table::<()>::new(10);
        let slow = table.insert(record(), (), Some(1_000));
        for _ in 0..10_000 {
            let ticket = table.insert(record(), (), Some(1_000));
            table.retire(ticket);
        }
        assert!(table.timers.len() < 1000, "{}", table.timers.len());
        assert_eq!((table.next_due(), table.due(1_000)), (Some(1_000), Some(slow)));
    }
}
