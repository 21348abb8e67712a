//! Requests that the service emits itself, through `runtime/c/sidelane.h` or anything else that
//! writes what `abi/emit.h` says.

use std::collections::{BTreeMap, BTreeSet};

use sidelane_signal::{EmitKind, Emitted};

use super::emit_file::EmitFile;
use super::records::Request;
use super::window::Window;

/// Looks, after which a request that finished is handed on although something of it is missing:
/// its events lie in different rings, which are not read at the same moment.
const LOOKS_MAX: u32 = 2;

/// The processes of a service that emit.
pub struct Emitters {
    files: BTreeMap<u32, EmitFile>,
    joining: Joining,
    window: Window,
}

impl Emitters {
    /// `None` if none of these processes emits.
    pub fn find(pids: &BTreeSet<u32>) -> Option<Self> {
        let mut emitters = Self { files: BTreeMap::new(), joining: Joining::default(), window: Window::default() };
        emitters.look_again(pids);
        (!emitters.files.is_empty()).then_some(emitters)
    }

    /// The service may have been started again.
    pub fn look_again(&mut self, pids: &BTreeSet<u32>) {
        for pid in pids {
            if !self.files.contains_key(pid) {
                self.files.extend(EmitFile::find(*pid).map(|file| (*pid, file)));
            }
        }
    }

    /// Requests that were received and not taken up.
    pub fn queue_len(&self) -> u64 {
        self.files.values().map(EmitFile::queue_len).sum()
    }

    /// Fetches what was emitted and hands on what is finished. To be called often enough for
    /// 2048 events a thread.
    pub fn drain(&mut self, mut each: impl FnMut(&Request)) {
        let mut events = Vec::new();
        for (pid, file) in &mut self.files {
            file.fetch(|event| events.push((*pid, event)));
        }
        // Threads emit side by side: only the clock tells what came first.
        events.sort_unstable_by_key(|(_, event)| event.at_ns);
        for (pid, event) in events {
            self.joining.add(pid, event);
        }
        for request in self.joining.finished() {
            self.window.add(&request);
            each(&request);
        }
    }

    /// As [`Emitters::drain`], but what finished is handed on whatever is missing of it.
    pub fn finish(&mut self, mut each: impl FnMut(&Request)) {
        (0..=LOOKS_MAX).for_each(|_| self.drain(&mut each));
    }

    /// What was handed on since the last call.
    pub fn take_window(&mut self) -> Window {
        let mut window = std::mem::take(&mut self.window);
        window.counts.finished = window.count();
        window.counts.dropped = self.files.values_mut().map(EmitFile::take_lost).sum();
        window
    }
}

/// A request of which not all has been heard.
#[derive(Debug, Default)]
struct Heard {
    number: u64,
    received_ns: Option<u64>,
    started_ns: Option<u64>,
    finished: Option<(u64, u32)>,
    queue_len: u32,
    looks: u32,
}

impl Heard {
    fn is_whole(&self) -> bool {
        self.finished.is_some() && (self.received_ns.is_some() && self.started_ns.is_some() || self.looks >= LOOKS_MAX)
    }

    fn is_queued(&self) -> bool {
        self.received_ns.is_some() && self.started_ns.is_none() && self.finished.is_none()
    }

    fn into_request(self) -> Request {
        let (finished_ns, tid) = self.finished.unwrap_or_default();
        let started_ns = self.started_ns.or(self.received_ns).unwrap_or(finished_ns);
        let arrived_ns = self.received_ns.unwrap_or(started_ns);
        let (number, queue_len) = (self.number, self.queue_len);
        let waited = started_ns > arrived_ns && queue_len > 1;
        Request {
            number,
            connection: number,
            arrived_ns,
            started_ns,
            finished_ns,
            tid,
            queue_len,
            sends: 1,
            waited,
            ..Request::default()
        }
    }
}

/// Puts the events of each request together.
#[derive(Debug, Default)]
struct Joining {
    heard: BTreeMap<(u32, u64), Heard>,
    last_number: u64,
    queue_len: u32,
}

impl Joining {
    fn add(&mut self, pid: u32, event: Emitted) {
        let heard = self.heard.entry((pid, event.id)).or_default();
        if heard.number == 0 {
            self.last_number += 1;
            heard.number = self.last_number;
        }
        let was_queued = heard.is_queued();
        match event.kind {
            EmitKind::Received => heard.received_ns = Some(event.at_ns),
            EmitKind::Started => heard.started_ns = Some(event.at_ns),
            EmitKind::Finished => heard.finished = Some((event.at_ns, event.tid)),
        }
        match (was_queued, heard.is_queued()) {
            (false, true) => self.queue_len += 1,
            (true, false) => self.queue_len -= 1,
            _ => {}
        }
        if event.kind == EmitKind::Received {
            heard.queue_len = self.queue_len;
        }
    }

    /// Takes the requests of which enough has been heard, in the order of their finishes.
    fn finished(&mut self) -> Vec<Request> {
        self.heard.values_mut().filter(|heard| heard.finished.is_some()).for_each(|heard| heard.looks += 1);
        let whole: Vec<(u32, u64)> =
            self.heard.iter().filter(|(_, heard)| heard.is_whole()).map(|(id, _)| *id).collect();
        let taken = whole.iter().filter_map(|id| self.heard.remove(id));
        let mut requests: Vec<Request> = taken.map(Heard::into_request).collect();
        requests.sort_unstable_by_key(|request| request.finished_ns);
        requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EmitKind, id: u64, at_ns: u64) -> Emitted {
        Emitted { id, at_ns, kind, tid: 7 }
    }

    #[test]
    fn events_of_a_request_are_put_together_in_any_order() {
        let mut joining = Joining::default();
        joining.add(1, event(EmitKind::Finished, 5, 30));
        assert_eq!(joining.finished(), []);
        joining.add(1, event(EmitKind::Started, 5, 20));
        joining.add(1, event(EmitKind::Received, 5, 10));
        let request = joining.finished().remove(0);
        assert_eq!((request.arrived_ns, request.started_ns, request.finished_ns), (10, 20, 30));
        assert!(joining.heard.is_empty());
    }

    #[test]
    fn a_request_that_was_only_started_arrived_then() {
        let mut joining = Joining::default();
        joining.add(1, event(EmitKind::Started, 5, 20));
        joining.add(1, event(EmitKind::Finished, 5, 30));
        assert_eq!(joining.finished(), []);
        let request = joining.finished().remove(0);
        assert_eq!((request.queueing_ns(), request.server_ns()), (0, 10));
    }

    #[test]
    fn an_id_may_be_used_again_and_in_another_process() {
        let mut joining = Joining::default();
        let whole = |joining: &mut Joining, pid, at_ns| {
            joining.add(pid, event(EmitKind::Received, 5, at_ns));
            joining.add(pid, event(EmitKind::Started, 5, at_ns + 1));
            joining.add(pid, event(EmitKind::Finished, 5, at_ns + 2));
        };
        whole(&mut joining, 1, 10);
        whole(&mut joining, 2, 20);
        assert_eq!(joining.finished().len(), 2);
        whole(&mut joining, 1, 30);
        assert_eq!(joining.finished().iter().map(|request| request.number).collect::<Vec<_>>(), [3]);
    }
}
