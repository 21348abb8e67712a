//! Events of threads from emitted requests (`runtime/c/sidelane.h`).
//!
//! Any thread may report the end of a request, even if another thread began it.

use std::collections::{BTreeMap, BTreeSet};

use sidelane_formats::{EmitKind, EmittedEvent};

use super::event::{LostWork, ThreadEvent};
use sidelane_requests::emitted::Emitters;

/// Maximum number of unfinished requests that are remembered. At this number, the older half is forgotten.
const BEGUN_MAX: usize = 1 << 12;

/// Reader of the requests that a service emits.
pub struct Emissions {
    emitters: Emitters,
    begun: UnfinishedRequests,
    lost: u64,
}

impl Emissions {
    /// Creates a reader for the given emitting processes.
    pub fn new(emitters: Emitters) -> Self {
        Self { emitters, begun: UnfinishedRequests::default(), lost: 0 }
    }

    /// Calls `on_event` for every event since the last call of this function.
    pub fn read(&mut self, on_event: &mut dyn FnMut(ThreadEvent)) {
        for (pid, event) in self.emitters.fetch_events() {
            self.begun.convert_event(pid, event).map(&mut *on_event);
        }
    }

    /// Updates the set of processes that the service consists of.
    pub fn set_processes(&mut self, pids: &BTreeSet<u32>) {
        self.emitters.update_processes(pids);
        self.begun.retain_processes(pids);
    }

    /// Returns the number of lost events since the start.
    pub fn lost(&mut self) -> LostWork {
        self.lost = self.lost.saturating_add(self.emitters.take_lost());
        LostWork { records: self.lost, ..LostWork::default() }
    }
}

/// Unfinished requests, by process and by the id that the process has given them.
#[derive(Default)]
struct UnfinishedRequests {
    requests: BTreeMap<(u32, u64), Request>,
    last_number: u64,
}

struct Request {
    number: u64,
    tid: u32,
    since_ns: u64,
}

impl UnfinishedRequests {
    /// Converts an emitted event into an event of its thread. Returns `None` if the begin of the request is unknown.
    fn convert_event(&mut self, pid: u32, event: EmittedEvent) -> Option<ThreadEvent> {
        let EmittedEvent { id, at_ns, kind, tid } = event;
        match kind {
            EmitKind::Received => None,
            EmitKind::Started => {
                self.drop_oldest_if_full();
                self.last_number += 1;
                let request = Request { number: self.last_number, tid, since_ns: at_ns };
                self.requests.insert((pid, id), request);
                Some(ThreadEvent::Working { tid, request: self.last_number, since_ns: at_ns })
            }
            EmitKind::Finished => {
                let Request { number, tid, since_ns } = self.requests.remove(&(pid, id))?;
                Some(ThreadEvent::Served { tid, request: Some(number), since_ns, at_ns })
            }
        }
    }

    fn retain_processes(&mut self, pids: &BTreeSet<u32>) {
        self.requests.retain(|(pid, _), _| pids.contains(pid));
    }

    fn drop_oldest_if_full(&mut self) {
        if self.requests.len() >= BEGUN_MAX {
            let mut numbers: Vec<u64> = self.requests.values().map(|request| request.number).collect();
            let (_, median, _) = numbers.select_nth_unstable(BEGUN_MAX / 2);
            let oldest = *median;
            self.requests.retain(|_, request| request.number >= oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EmitKind, id: u64, tid: u32, at_ns: u64) -> EmittedEvent {
        EmittedEvent { id, at_ns, kind, tid }
    }

    #[test]
    fn finish_from_any_thread_ends_the_request() {
        let mut begun = UnfinishedRequests::default();
        let began = begun.convert_event(1, event(EmitKind::Started, 5, 70, 10));
        assert_eq!(began, Some(ThreadEvent::Working { tid: 70, request: 1, since_ns: 10 }));
        let ended = begun.convert_event(1, event(EmitKind::Finished, 5, 71, 30));
        assert_eq!(ended, Some(ThreadEvent::Served { tid: 70, request: Some(1), since_ns: 10, at_ns: 30 }));
        assert_eq!(begun.convert_event(1, event(EmitKind::Finished, 5, 71, 40)), None, "it is over");
    }

    #[test]
    fn requests_are_distinguished_by_process_and_id() {
        let mut begun = UnfinishedRequests::default();
        for (pid, id, at_ns) in [(1, 5, 10), (1, 6, 20), (2, 5, 30)] {
            begun.convert_event(pid, event(EmitKind::Started, id, 70, at_ns));
        }
        let mut ended = |pid, id| begun.convert_event(pid, event(EmitKind::Finished, id, 70, 50));
        let since = |work| match work {
            Some(ThreadEvent::Served { since_ns, .. }) => since_ns,
            _ => panic!("{work:?}"),
        };
        assert_eq!([since(ended(1, 5)), since(ended(2, 5)), since(ended(1, 6))], [10, 30, 20]);
    }

    #[test]
    fn oldest_unfinished_requests_are_forgotten() {
        let mut begun = UnfinishedRequests::default();
        let all = (0..=BEGUN_MAX as u64).map(|id| begun.convert_event(1, event(EmitKind::Started, id, 70, id)));
        assert_eq!(all.count(), BEGUN_MAX + 1);
        assert_eq!(begun.requests.len(), BEGUN_MAX / 2 + 1);
        assert!(begun.convert_event(1, event(EmitKind::Finished, BEGUN_MAX as u64, 70, 9999)).is_some());
        begun.retain_processes(&BTreeSet::from([2]));
        assert!(begun.requests.is_empty());
    }
}
