//! Requests that the service emits itself, through `runtime/c/sidelane.h` or any other writer of the format in
//! `abi/emit.h`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Sender;

use sidelane_formats::{EmitKind, EmittedEvent};

use super::emit_file::EmitFile;
use super::emitted_words::{EmittedWords, ProcessEvent};
use super::records::Request;
use super::window::Window;
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_tracker::identities::Number;

/// Maximum number of reads for which a finished request waits for its missing events. Events of one request may lie in
/// different rings, which are not read at the same moment.
const LOOKS_MAX: u32 = 2;

/// Maximum number of unfinished requests that are remembered. Beyond it, the oldest are forgotten.
const HEARD_MAX: usize = 1 << 16;

/// All processes of a service that emit requests, with their mapped files.
pub struct Emitters {
    files: BTreeMap<u32, EmitFile>,
    joining: RequestAssembler,
    /// Statistics of the finished requests since the last [`Emitters::take_window`]; `None` if the caller reads none.
    window: Option<Window>,
    /// Channel to the writer of request words, which follows the processes of the service too.
    listener: Option<Sender<ProcessEvent>>,
}

impl Emitters {
    /// Finds the emit files of the given processes. Returns `None` if no process emits requests.
    pub fn find(pids: &BTreeSet<u32>) -> Option<Self> {
        let (files, joining) = Default::default();
        let mut emitters = Self { files, joining, window: Some(Window::default()), listener: None };
        emitters.update_processes(pids);
        (!emitters.files.is_empty()).then_some(emitters)
    }

    /// Reads the given files of processes without statistics: each finished request is only passed to the caller.
    pub fn from_files(files: Vec<(u32, EmitFile)>) -> Self {
        Self { files: files.into_iter().collect(), joining: RequestAssembler::default(), window: None, listener: None }
    }

    /// Returns the ids of the processes that emit.
    pub fn emitting_pids(&self) -> BTreeSet<u32> {
        self.files.keys().copied().collect()
    }

    /// Sets the current processes of the service, and adds newly found files of some of them.
    pub fn set_processes(&mut self, pids: &BTreeSet<u32>, new_files: Vec<(u32, EmitFile)>) {
        for (pid, file) in new_files {
            if pids.contains(&pid) && !self.files.contains_key(&pid) {
                self.send_file_to_writer(pid, &file);
                self.files.insert(pid, file);
            }
        }
        self.retain_processes(pids);
    }

    /// Updates the set of processes after the service may have restarted. Searches each new process for an emit file.
    pub fn update_processes(&mut self, pids: &BTreeSet<u32>) {
        for pid in pids {
            if !self.files.contains_key(pid) {
                let found = EmitFile::find(*pid).inspect(|file| self.send_file_to_writer(*pid, file));
                self.files.extend(found.map(|file| (*pid, file)));
            }
        }
        self.retain_processes(pids);
    }

    fn retain_processes(&mut self, pids: &BTreeSet<u32>) {
        let gone: Vec<u32> = self.files.keys().filter(|pid| !pids.contains(pid)).copied().collect();
        for pid in gone {
            self.files.remove(&pid);
            self.send_event(ProcessEvent::Went(pid));
        }
    }

    /// Creates a writer that copies emitted requests into the words of the given request lanes.
    pub fn create_word_writer(&mut self, number: Number, lanes: &CpuSet) -> EmittedWords {
        let (words, listener) = EmittedWords::new(number, lanes);
        self.listener = Some(listener);
        self.files.iter().for_each(|(pid, file)| self.send_file_to_writer(*pid, file));
        words
    }

    /// Sends the file of a process to the writer of request words, which gets its own mapping and read positions.
    fn send_file_to_writer(&self, pid: u32, file: &EmitFile) {
        if let Some(file) = self.listener.as_ref().and_then(|_| file.map_again(pid)) {
            self.send_event(ProcessEvent::Came(pid, file));
        }
    }

    fn send_event(&self, event: ProcessEvent) {
        if let Some(listener) = &self.listener {
            // Ignore an error: the receiver is gone once the lanes are given back.
            let _ = listener.send(event);
        }
    }

    /// Returns the number of requests that were received but not started.
    pub fn queue_len(&self) -> u64 {
        self.files.values().fold(0_u64, |sum, file| sum.saturating_add(file.queue_len()))
    }

    /// Reads new events and calls `each` for every finished request. Events are lost if a thread emits more than 2048
    /// of them between two calls.
    pub fn drain(&mut self, mut each: impl FnMut(&Request)) {
        for (pid, event) in self.fetch_events() {
            self.joining.add(pid, event);
        }
        for request in self.joining.take_finished() {
            self.window.iter_mut().for_each(|window| window.add(&request));
            each(&request);
        }
        self.joining.drop_oldest_if_full();
    }

    /// Reads new events and returns each with the id of its process, sorted by time. A caller uses either this function
    /// or [`Emitters::drain`], not both.
    pub fn fetch_events(&mut self) -> Vec<(u32, EmittedEvent)> {
        let mut events = Vec::new();
        for (pid, file) in &mut self.files {
            file.look_up_ring_owners();
            file.fetch(|_, event| events.push((*pid, event)));
        }
        // Clamp event times to the present: a faulty service may write times in the future.
        let now_ns = now_ns();
        events.iter_mut().for_each(|(_, event)| event.at_ns = event.at_ns.min(now_ns));
        // Threads emit concurrently, so only the clock orders their events. The sort is stable: events of one moment
        // keep the order in which each thread wrote them.
        events.sort_by_key(|(_, event)| event.at_ns);
        events
    }

    /// Reads the remaining events at the end, and calls `each` for every finished request, even if some of its events
    /// are missing.
    pub fn finish(&mut self, mut each: impl FnMut(&Request)) {
        (0..=LOOKS_MAX).for_each(|_| self.drain(&mut each));
    }

    /// Returns and resets the number of events that were overwritten before they were read.
    pub fn take_lost(&mut self) -> u64 {
        self.files.values_mut().fold(0_u64, |sum, file| sum.saturating_add(file.take_lost()))
    }

    /// Returns and resets the statistics of the requests that finished since the last call.
    pub fn take_window(&mut self) -> Window {
        let mut window = self.window.as_mut().map(std::mem::take).unwrap_or_default();
        window.counts.finished = window.answered_count();
        window.counts.dropped = self.take_lost();
        window.counts.unanswered = std::mem::take(&mut self.joining.forgotten);
        window.counts.unasked = std::mem::take(&mut self.joining.unasked);
        window
    }
}

/// Request with the events received so far; others may still be missing.
#[derive(Debug, Default)]
struct PartialRequest {
    number: u64,
    received_ns: Option<u64>,
    started_ns: Option<u64>,
    /// Finish time, and the id of the thread that finished the request.
    finished: Option<(u64, u32)>,
    queue_len: u32,
    looks: u32,
}

impl PartialRequest {
    fn is_complete(&self) -> bool {
        self.finished.is_some() && (self.received_ns.is_some() && self.started_ns.is_some() || self.looks >= LOOKS_MAX)
    }

    fn is_queued(&self) -> bool {
        self.received_ns.is_some() && self.started_ns.is_none() && self.finished.is_none()
    }

    /// Returns whether the event belongs to a later request that reuses this request's id.
    fn is_superseded_by(&self, event: &EmittedEvent) -> bool {
        self.finished.is_some_and(|(finished_ns, _)| event.at_ns >= finished_ns)
    }

    /// Converts the events into a request. Returns `None` if only the finish is known, since the latency is then
    /// unknown.
    fn into_request(self) -> Option<Request> {
        let (finished_ns, tid) = self.finished?;
        let started_ns = self.started_ns.or(self.received_ns)?;
        let arrived_ns = self.received_ns.unwrap_or(started_ns);
        let (number, queue_len) = (self.number, self.queue_len);
        let waited = started_ns > arrived_ns && queue_len > 1;
        Some(Request {
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
        })
    }
}

/// Groups emitted events by request.
#[derive(Debug, Default)]
struct RequestAssembler {
    heard: BTreeMap<(u32, u64), PartialRequest>,
    /// Requests whose id was reused before they were returned.
    over: Vec<PartialRequest>,
    last_number: u64,
    queue_len: u32,
    forgotten: u64,
    /// Number of finish events of requests without any other event.
    unasked: u64,
}

impl RequestAssembler {
    /// Forgets the older half of the unfinished requests if there are more than [`HEARD_MAX`].
    fn drop_oldest_if_full(&mut self) {
        if self.heard.len() <= HEARD_MAX {
            return;
        }
        let mut numbers: Vec<u64> = self.heard.values().map(|heard| heard.number).collect();
        let (_, median, _) = numbers.select_nth_unstable(HEARD_MAX / 2);
        let (oldest, before) = (*median, self.heard.len());
        self.heard.retain(|_, heard| heard.number >= oldest);
        self.queue_len = self.heard.values().filter(|heard| heard.is_queued()).count() as u32;
        self.forgotten += (before - self.heard.len()) as u64;
    }

    fn add(&mut self, pid: u32, event: EmittedEvent) {
        let heard = self.heard.entry((pid, event.id)).or_default();
        if heard.is_superseded_by(&event) {
            self.over.push(std::mem::take(heard));
        }
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

    /// Removes and returns the requests with enough events, sorted by finish time.
    fn take_finished(&mut self) -> Vec<Request> {
        self.heard.values_mut().filter(|heard| heard.finished.is_some()).for_each(|heard| heard.looks += 1);
        let whole: Vec<(u32, u64)> =
            self.heard.iter().filter(|(_, heard)| heard.is_complete()).map(|(id, _)| *id).collect();
        let taken = whole.iter().filter_map(|id| self.heard.remove(id)).chain(self.over.drain(..));
        let taken: Vec<Option<Request>> = taken.map(PartialRequest::into_request).collect();
        self.unasked += taken.iter().filter(|request| request.is_none()).count() as u64;
        let mut requests: Vec<Request> = taken.into_iter().flatten().collect();
        requests.sort_unstable_by_key(|request| request.finished_ns);
        requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EmitKind, id: u64, at_ns: u64) -> EmittedEvent {
        EmittedEvent { id, at_ns, kind, tid: 7 }
    }

    #[test]
    fn request_is_assembled_from_events_in_any_order() {
        let mut joining = RequestAssembler::default();
        joining.add(1, event(EmitKind::Finished, 5, 30));
        assert_eq!(joining.take_finished(), []);
        joining.add(1, event(EmitKind::Started, 5, 20));
        joining.add(1, event(EmitKind::Received, 5, 10));
        let request = joining.take_finished().remove(0);
        assert_eq!((request.arrived_ns, request.started_ns, request.finished_ns), (10, 20, 30));
        assert!(joining.heard.is_empty());
    }

    #[test]
    fn request_without_receipt_arrives_at_its_start() {
        let mut joining = RequestAssembler::default();
        joining.add(1, event(EmitKind::Started, 5, 20));
        joining.add(1, event(EmitKind::Finished, 5, 30));
        assert_eq!(joining.take_finished(), []);
        let request = joining.take_finished().remove(0);
        assert_eq!((request.queueing_ns(), request.server_ns()), (0, 10));
    }

    #[test]
    fn id_reused_at_once_is_another_request() {
        let mut joining = RequestAssembler::default();
        for began_ns in [10, 30, 50] {
            joining.add(1, event(EmitKind::Received, 5, began_ns));
            joining.add(1, event(EmitKind::Started, 5, began_ns + 1));
            joining.add(1, event(EmitKind::Finished, 5, began_ns + 7));
        }
        let requests = joining.take_finished();
        assert_eq!(requests.iter().map(|request| request.arrived_ns).collect::<Vec<_>>(), [10, 30, 50]);
        assert!(requests.iter().all(|request| (request.queueing_ns(), request.server_ns()) == (1, 6)), "{requests:?}");
        assert_eq!((joining.queue_len, joining.unasked), (0, 0));
    }

    #[test]
    fn request_without_a_start_has_no_latency() {
        let mut joining = RequestAssembler::default();
        joining.add(1, event(EmitKind::Finished, 5, 30));
        assert_eq!((joining.take_finished(), joining.take_finished(), joining.unasked), (vec![], vec![], 1));
    }

    #[test]
    fn oldest_unfinished_requests_are_forgotten() {
        let mut joining = RequestAssembler::default();
        (0..=HEARD_MAX as u64).for_each(|id| joining.add(1, event(EmitKind::Received, id, id)));
        joining.drop_oldest_if_full();
        assert_eq!(joining.heard.len() + joining.forgotten as usize, HEARD_MAX + 1);
        assert_eq!((joining.queue_len as usize, joining.forgotten), (joining.heard.len(), HEARD_MAX as u64 / 2));
        joining.add(1, event(EmitKind::Finished, HEARD_MAX as u64, HEARD_MAX as u64));
        assert_eq!(joining.queue_len as usize, joining.heard.len() - 1);
    }

    #[test]
    fn id_may_be_reused_later_and_by_other_processes() {
        let mut joining = RequestAssembler::default();
        let whole = |joining: &mut RequestAssembler, pid, at_ns| {
            joining.add(pid, event(EmitKind::Received, 5, at_ns));
            joining.add(pid, event(EmitKind::Started, 5, at_ns + 1));
            joining.add(pid, event(EmitKind::Finished, 5, at_ns + 2));
        };
        whole(&mut joining, 1, 10);
        whole(&mut joining, 2, 20);
        assert_eq!(joining.take_finished().len(), 2);
        whole(&mut joining, 1, 30);
        assert_eq!(joining.take_finished().iter().map(|request| request.number).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn fuzzed_events_are_assembled_and_then_dropped() {
        const EVENT_BYTES: usize = 18;
        sidelane_testing::fuzz("emitted-events", |bytes| {
            let (mut joining, mut window) = (RequestAssembler::default(), Window::default());
            for bytes in bytes.as_chunks::<EVENT_BYTES>().0 {
                let number = |from: usize| u64::from_ne_bytes(bytes[from..from + 8].try_into().expect("eight bytes"));
                let kinds = [EmitKind::Received, EmitKind::Started, EmitKind::Finished];
                let kind = kinds[usize::from(bytes[16]) % kinds.len()];
                joining.add(u32::from(bytes[17]), EmittedEvent { id: number(0), at_ns: number(8), kind, tid: 7 });
                joining.take_finished().iter().for_each(|request| window.add(request));
            }
            (0..=LOOKS_MAX).for_each(|_| joining.take_finished().iter().for_each(|request| window.add(request)));
            assert!(joining.heard.values().all(|heard| heard.finished.is_none()));
        });
    }
}
