//! Source of a running trace: the kernel's recorder, which follows the traced service.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use sidelane_host::clock::now_ns;
use sidelane_host::ports::listeners;
use sidelane_host::procfs::command_name;
use sidelane_host::service::Target;
use sidelane_timeline::record::{Kinds, Record};
use sidelane_tracker::trace::{self, Recorder};

use super::objects::ObjectFinder;
use super::pauses::Pauses;
use super::runtimes::Runtimes;
use super::text::Names;
use crate::note::TraceNote;
use sidelane_diagnostics::note::Note;
use sidelane_host::shutdown::Shutdown;
use sidelane_requests::RequestNote;
use sidelane_requests::{request_notes, unobserved_socket_note};
use sidelane_rollback::own_threads;
use sidelane_rollback::own_threads::PatientThread;

/// Interval at which the service's processes and ports are searched again: it may have restarted.
const SERVICE_LOOK_EVERY: Duration = Duration::from_millis(500);
/// Longest delay of a record. The recorder holds each record back for less, except on a CPU that the hypervisor took
/// away.
const SETTLED_NS: u64 = 100_000_000;
/// Shortest and longest interval between two fetches of records, in milliseconds.
const FETCH_EVERY_MS: (u32, u32) = (1, 50);

/// A running trace of a service, with the kernel's recorder.
pub struct Source {
    _reader: PatientThread,
    target: Target,
    recorder: Recorder,
    pauses: Pauses,
    sightings: ObjectFinder,
    runtimes: Runtimes,
    until: Shutdown,
    looked_at: Instant,
    /// Reason why the service is no longer followed; `None` while it is.
    why_not_followed: Option<String>,
    /// Note on sockets of the service that are not traced.
    unseen: Option<RequestNote>,
}

impl Source {
    /// Returns whether the service listens at a port. A service that has just been started does not yet.
    pub fn is_listening(target: &Target) -> bool {
        target.find().is_ok_and(|service| !listeners(&service.pids, service.port).is_empty())
    }

    /// Starts to record the service, until `until` ends it. `light`: without softirqs and incoming segments.
    ///
    /// # Errors
    /// If the service is not there, or if this kernel or this process's rights do not suffice.
    pub fn start(target: &Target, light: bool, shutdown: Shutdown) -> Result<Self> {
        let service = target.find()?;
        own_threads::keep_off_service_cpus(&target.to_string(), &service.pids);
        ensure!(
            !listeners(&service.pids, service.port).is_empty(),
            "cannot trace {target}: it listens on no TCP port; name the process that takes requests, as in port:8080"
        );
        let reader = PatientThread::for_reader();
        let how = trace::TraceOptions { light, ..trace::TraceOptions::default() };
        let pauses = Pauses::watch(&service.pids);
        let unseen = unobserved_socket_note(&target.to_string(), &service.pids, service.port);
        let recorder = Recorder::start(&how, &[service])?;
        let (target, looked_at) = (target.clone(), Instant::now());
        let mut source = Self {
            _reader: reader,
            target,
            recorder,
            pauses,
            sightings: ObjectFinder::default(),
            runtimes: Runtimes::default(),
            until: shutdown,
            looked_at,
            why_not_followed: None,
            unseen,
        };
        // Finds processes of the service that have started since.
        source.refresh_service();
        Ok(source)
    }

    /// Returns the kinds of records that this machine can make.
    pub fn recorded(&self) -> Kinds {
        self.pauses.with_pause_kinds(self.recorder.recorded_kinds())
    }

    /// Returns notes on what the trace cannot see on this machine, and on observed requests that are perhaps not
    /// application requests.
    pub fn notes(&self) -> Vec<Note> {
        let lost_sight =
            self.why_not_followed.iter().map(|error| TraceNote::ServiceNotFollowed { error: error.clone() });
        let counts = self.recorder.counts(0);
        let requests = request_notes(&counts, counts.finished, 0);
        let unseen = self.unseen.clone().map(Note::from);
        let own = self.pauses.notes().chain(lost_sight).map(Note::from);
        own.chain(requests.map(Note::from)).chain(self.runtimes.notes().map(Note::from)).chain(unseen).collect()
    }

    /// Waits until records should be fetched. Returns false if the trace is to end.
    pub fn wait_for_records(&self) -> Result<bool> {
        let period_ms = u32::try_from(self.recorder.read_interval_max().as_millis() / 2).unwrap_or(u32::MAX);
        self.until.wait(Duration::from_millis(period_ms.clamp(FETCH_EVERY_MS.0, FETCH_EVERY_MS.1).into()))
    }

    /// Fetches the records since the last call. Returns the time before which all records have been fetched.
    pub fn fetch_records(&mut self, records: &mut Vec<Record>) -> Result<u64> {
        let settled_ns = now_ns().saturating_sub(SETTLED_NS);
        let before = records.len();
        self.recorder.read(records);
        records[before..].iter().for_each(|record| self.sightings.note_objects(record));
        self.pauses.merge(records);
        self.runtimes.insert_records(records);
        if self.looked_at.elapsed() >= SERVICE_LOOK_EVERY {
            self.looked_at = Instant::now();
            self.refresh_service();
        }
        Ok(settled_ns.min(self.pauses.held_since_ns()))
    }

    /// Follows the service, which may have restarted, or listen at other ports, or have other JVMs.
    fn refresh_service(&mut self) {
        self.sightings.search_objects();
        // A service that is not there now may be there at the next search.
        let Ok(service) = self.target.find() else { return };
        if let Err(error) = self.recorder.update_processes(0, &service) {
            self.why_not_followed = Some(error.to_string());
        }
        self.pauses.set_processes(&service.pids);
        self.runtimes.examine_processes(&service.pids);
        own_threads::keep_off_service_cpus(&self.target.to_string(), &service.pids);
    }

    /// Ends the recording, and fetches the remaining records.
    pub fn finish(&mut self, records: &mut Vec<Record>) {
        self.recorder.finish(records);
        records.iter().for_each(|record| self.sightings.note_objects(record));
        self.sightings.search_objects();
        self.pauses.finish(records);
    }

    /// Returns the number of records that were lost so far.
    pub fn lost_records(&self) -> u64 {
        self.recorder.lost_records()
    }

    /// Returns for how many events so far the kernel did not run its program, because the program already ran on that
    /// CPU. `None` if the kernel does not count that.
    pub fn missed_program_runs(&self) -> Option<u64> {
        self.recorder.missed_program_runs().ok()
    }

    /// Returns the names of the threads that appear in records.
    pub fn names(&self) -> Names {
        let mut names = Names::default();
        for pid in self.sightings.found().pids() {
            command_name(pid).into_iter().for_each(|name| names.set_name(pid, name));
        }
        self.recorder.names().for_each(|(tid, name)| names.set_name(tid, name));
        names.set_objects(self.sightings.found().clone());
        names
    }
}
