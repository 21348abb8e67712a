//! Copies emitted requests into the request words of lanes. Lane keepers, batch that checks its lane itself, and the
//! kernel program read these words.
//!
//! If requests are observed at sockets, the kernel program writes these words at each change. An emitted request wakes
//! no thread: it is a few stores in the service's own memory. So a thread that is about to decide refreshes the words
//! first. A dedicated thread would not work on a machine with only a request lane and a batch lane. It could not run
//! while a holder naps, which is when the words are needed.
//!
//! A thread that finds another thread writing does not wait: the words are fresh then. The second thread has never
//! preempted the writer: holders are real-time threads on their own lanes, and keepers by scheduler run without
//! holders.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

use sidelane_formats::LaneClass;

use super::emit_file::EmitFile;
use super::ledger::{LaneContent, LaneOccupancy, Ledger};
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_tracker::identities::Number;
use sidelane_tracker::tracker::{LaneMemory, RequestWriter};

/// Start or end of a process of the service. The files come from a thread that may block.
pub(super) enum ProcessEvent {
    Came(u32, EmitFile),
    Went(u32),
}

/// Writer of the request words of lanes, from emitted requests.
pub struct EmittedWords {
    writer: Mutex<Writer>,
}

struct Writer {
    /// Number of the service.
    number: Number,
    news: Receiver<ProcessEvent>,
    /// Emit files of the processes, in the order of the ledger's processes.
    files: Vec<(u32, EmitFile)>,
    ledger: Ledger,
    /// Each request lane: its CPU, and the content last written to its word.
    lanes: Vec<(u32, LaneContent)>,
}

impl EmittedWords {
    /// Creates a writer for the words of the given lanes. The returned sender announces processes of the service.
    pub(super) fn new(number: Number, lanes: &CpuSet) -> (Self, Sender<ProcessEvent>) {
        let (tell, news) = channel();
        let lanes: Vec<(u32, LaneContent)> = lanes.iter().map(|cpu| (cpu, LaneContent::default())).collect();
        let writer = Writer { number, news, files: Vec::new(), ledger: Ledger::new(lanes.len()), lanes };
        (Self { writer: Mutex::new(writer) }, tell)
    }
}

impl RequestWriter for EmittedWords {
    /// Updates the words, unless another thread is doing so. Allocates nothing and makes no system call, except after a
    /// process of the service has started or ended.
    fn write(&self, memory: &LaneMemory) {
        if let Ok(mut writer) = self.writer.try_lock() {
            writer.write(memory, now_ns());
        }
    }
}

impl Writer {
    fn write(&mut self, memory: &LaneMemory, now_ns: u64) {
        while let Ok(news) = self.news.try_recv() {
            self.apply_process_event(news);
        }
        self.read_events_and_requests(now_ns);
        for (number, (cpu, before)) in self.lanes.iter_mut().enumerate() {
            let shown = self.ledger.lane_content(number, read_lane_occupancy(memory, *cpu), now_ns);
            if shown != *before {
                memory.request(*cpu).publish(&shown.running, shown.finished_ns, shown.finished, now_ns);
                *before = shown;
            }
        }
        let queue_len = self.files.iter().fold(0, |sum: u64, (_, file)| sum.saturating_add(file.queue_len()));
        memory.service(self.number).queue_len.store(u32::try_from(queue_len).unwrap_or(u32::MAX), Ordering::Release);
    }

    fn apply_process_event(&mut self, event: ProcessEvent) {
        match event {
            ProcessEvent::Came(pid, file) => {
                self.files.push((pid, file));
                self.ledger.add_process(pid);
            }
            ProcessEvent::Went(pid) => {
                if let Some(process) = self.files.iter().position(|(known, _)| *known == pid) {
                    self.files.remove(process);
                    self.ledger.remove_process(process);
                }
            }
        }
    }

    /// Reads new events and the current request of each thread. Events come first: if a request starts in between, it
    /// only appears slightly early.
    fn read_events_and_requests(&mut self, now_ns: u64) {
        for (process, (_, file)) in self.files.iter_mut().enumerate() {
            file.fetch(|ring, event| self.ledger.record_event((process, ring), event, now_ns));
            for (ring, head) in file.current_requests().enumerate() {
                self.ledger.record_current_request((process, ring), head, now_ns);
            }
        }
    }
}

fn read_lane_occupancy(memory: &LaneMemory, cpu: u32) -> LaneOccupancy {
    let word = memory.word(cpu);
    let tid = word.snapshot().filter(|seen| seen.class() == Ok(LaneClass::Lc)).map(|seen| seen.pid);
    LaneOccupancy { busy: word.busy(), tid }
}
