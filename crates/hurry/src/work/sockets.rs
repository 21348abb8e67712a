//! Events of threads, observed at the service's sockets.
//!
//! The word of a thread tells since when the thread works on a request, and each answered request leaves a record. The
//! words are read before the records. So if a word still shows a request and a record reports its end, the request has
//! ended.
//!
//! A thread that receives data which other threads answer counts as working on it until the kernel program has learned
//! more. So a thread that has answered nothing yet is reported only while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;

use anyhow::Result;
use sidelane_host::procfs::{allowed_cpus, is_alive, state};
use sidelane_host::service::{Service, Target};
use sidelane_host::topology::Lanes;
use sidelane_tracker::threads::{ThreadWords, WorkingThread};
use sidelane_tracker::tracker::Purpose;
use sidelane_tracker::tracking::{LaneUse, ServiceTracking};

use super::event::{LostWork, ThreadEvent, WakeupCpus};
use sidelane_requests::{Request, RequestError, Requests, can_track};

/// End of a request.
#[derive(Clone, Copy)]
struct RequestEnd {
    at_ns: u64,
    since_ns: u64,
    tid: u32,
    /// Whether the request got no response.
    is_cut: bool,
}

impl RequestEnd {
    /// Converts a finished request. If the client closed the connection before a thread started the request, the end is
    /// moved to after the start.
    fn from_request(request: &Request) -> Self {
        let (since_ns, is_cut) = (request.started_ns, request.ending.is_some());
        let at_ns = if is_cut { request.finished_ns.max(since_ns + 1) } else { request.finished_ns };
        Self { at_ns, since_ns, tid: request.tid, is_cut }
    }
}

/// Observer of a service's threads at its sockets.
pub struct Sockets {
    words: ThreadWords,
    requests: Requests,
    tracking: ServiceTracking,
    /// Buffer for the content of all thread words.
    working: Vec<WorkingThread>,
    /// Ends of requests from the records, sorted by time.
    served: Vec<RequestEnd>,
    /// Time of the last answer of each thread, or of the last end of one of its connections.
    answered: BTreeMap<u32, u64>,
    /// Number of threads in `answered` without a word, as of the last check.
    wordless: u64,
}

impl Sockets {
    /// Loads the kernel program for the service, and attaches it.
    pub fn attach_to_service(target: &Target, service: &Service) -> Result<Self> {
        can_track()?;
        let lanes = Lanes::without_batch_lanes(allowed_cpus(&service.pids));
        let tracking = ServiceTracking::with_own_tracker(service, &lanes, LaneUse::default(), Purpose::Threads)?;
        let requests = Requests::track(&tracking, &target.to_string(), &service.pids)?;
        let words = ThreadWords::map(&tracking)?;
        tracking.tracker().attach()?;
        tracking.add_processes(&service.pids);
        let (working, served, answered) = Default::default();
        Ok(Self { words, requests, tracking, working, served, answered, wordless: 0 })
    }

    /// Arms the wakeup: the next request that begins or ends on the given CPUs makes the eventfd readable.
    pub fn arm(&self, cpus: &WakeupCpus) {
        self.words.arm_wakeup(cpus.begins.iter(), cpus.ends.iter());
    }

    /// Returns the file descriptor that becomes readable at a wakeup.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.requests.event_fd()
    }

    /// Calls `on_event` for every request that was answered since the last call, and for every request in progress.
    pub fn read(&mut self, on_event: &mut dyn FnMut(ThreadEvent)) -> Result<(), RequestError> {
        self.tracking.tracker().attach_switch_program()?;
        self.working.clear();
        self.working.extend(self.words.iter());
        self.served.clear();
        let served = &mut self.served;
        self.requests.fetch_answered(|request| served.push(RequestEnd::from_request(request)))?;
        self.served.sort_unstable_by_key(|served| served.at_ns);
        for RequestEnd { at_ns, since_ns, tid, is_cut } in self.served.iter().copied().filter(|served| served.tid != 0)
        {
            self.answered.insert(tid, at_ns);
            on_event(match is_cut {
                true => ThreadEvent::Aborted { tid, since_ns, at_ns },
                false => ThreadEvent::Served { tid, request: None, since_ns, at_ns },
            });
        }
        let working = self.working.iter().filter_map(|thread| Some((thread.tid, thread.request?)));
        working.filter(|(tid, request)| self.is_working(*tid, request.since_ns)).for_each(|(tid, request)| {
            on_event(ThreadEvent::Working { tid, request: request.number, since_ns: request.since_ns });
        });
        Ok(())
    }

    /// Returns whether a thread really works on the request that its word shows.
    fn is_working(&self, tid: u32, since_ns: u64) -> bool {
        match self.answered.get(&tid) {
            Some(answered_ns) => *answered_ns <= since_ns,
            None => state(&format!("/proc/{tid}/stat")) == Some('R'),
        }
    }

    /// Returns the processes of the service and all their descendants, even if the parents have ended.
    pub fn processes(&self) -> BTreeSet<u32> {
        self.tracking.processes().into_iter().collect()
    }

    /// Updates the set of processes that the service consists of.
    pub fn set_processes(&mut self, pids: &BTreeSet<u32>) -> Result<(), RequestError> {
        let with_words: BTreeSet<u32> = self.words.iter().map(|thread| thread.tid).collect();
        let all = std::mem::take(&mut self.answered).into_iter();
        let (with, without): (BTreeMap<_, _>, BTreeMap<_, _>) = all.partition(|(tid, _)| with_words.contains(tid));
        self.answered = with;
        self.wordless = without.keys().filter(|tid| is_alive(**tid)).count() as u64;
        self.tracking.add_processes(pids);
        self.requests.update_processes(pids)
    }

    /// Returns the counts of lost events since the start.
    pub fn lost(&self) -> LostWork {
        LostWork { records: self.requests.counts_in_window().dropped, wordless: self.wordless, ..LostWork::default() }
    }
}

#[cfg(test)]
mod tests {
    use sidelane_timeline::ending::Ending;

    use super::*;

    #[test]
    fn request_of_a_closed_connection_ends_after_its_start() {
        let cut =
            Request { started_ns: 90, finished_ns: 50, tid: 7, ending: Some(Ending::Abandoned), ..Request::default() };
        let served = RequestEnd::from_request(&cut);
        assert!(served.is_cut && served.at_ns > served.since_ns, "its client closed before a thread took it up");
        let answered = RequestEnd::from_request(&Request { ending: None, finished_ns: 120, ..cut });
        assert_eq!((answered.is_cut, answered.at_ns, answered.since_ns), (false, 120, 90));
    }
}
