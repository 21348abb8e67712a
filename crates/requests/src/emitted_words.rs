//! Emitted requests as request words, for the keepers of lanes, for batch that looks for itself and
//! for the kernel program.
//!
//! Where requests are seen at sockets the kernel program writes these words, at the moment at which
//! something changes. Of an emitted request nobody is told: it is a few stores in the service's own
//! memory. So whoever is about to decide has the words written anew first: what is decided is decided
//! on what is true then. A thread for this alone could not be had: where there is no lane but the
//! request lane and the batch lane it would never run while a holder naps, which is when it must.
//!
//! Whoever comes while another writes does not wait: what the other writes is as new. Those who write
//! are never kept from their CPU by those who want to: holders are real-time threads on lanes of their
//! own, and keepers by scheduler have no holders beside them.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

use sidelane_formats::LaneClass;

use super::emit_file::EmitFile;
use super::ledger::{Ledger, OnLane, Shown};
use sidelane_host::clock::now_ns;
use sidelane_host::cpulist::CpuSet;
use sidelane_tracker::identities::Number;
use sidelane_tracker::tracker::{LaneMemory, RequestWriter};

/// A process of the service came or went. The files come from a thread that has time.
pub(super) enum News {
    Came(u32, EmitFile),
    Went(u32),
}

/// Writes the words of the request lanes.
pub struct EmittedWords {
    writer: Mutex<Writer>,
}

struct Writer {
    /// Of the service.
    number: Number,
    news: Receiver<News>,
    /// In the order of the ledger's processes.
    files: Vec<(u32, EmitFile)>,
    ledger: Ledger,
    /// CPU, and what its word says.
    lanes: Vec<(u32, Shown)>,
}

impl EmittedWords {
    /// Of these lanes; the processes are told of through the sender.
    pub(super) fn new(number: Number, lanes: &CpuSet) -> (Self, Sender<News>) {
        let (tell, news) = channel();
        let lanes: Vec<(u32, Shown)> = lanes.iter().map(|cpu| (cpu, Shown::default())).collect();
        let writer = Writer { number, news, files: Vec::new(), ledger: Ledger::new(lanes.len()), lanes };
        (Self { writer: Mutex::new(writer) }, tell)
    }
}

impl RequestWriter for EmittedWords {
    /// Brings the words up to date, unless somebody is at it. Allocates nothing and makes no system
    /// call, but when a process of the service has come or gone.
    fn write(&self, memory: &LaneMemory) {
        if let Ok(mut writer) = self.writer.try_lock() {
            writer.write(memory, now_ns());
        }
    }
}

impl Writer {
    fn write(&mut self, memory: &LaneMemory, now_ns: u64) {
        while let Ok(news) = self.news.try_recv() {
            self.hear(news);
        }
        self.read(now_ns);
        for (number, (cpu, before)) in self.lanes.iter_mut().enumerate() {
            let shown = self.ledger.lane(number, on_lane(memory, *cpu), now_ns);
            if shown != *before {
                memory.request(*cpu).show(&shown.running, shown.finished_ns, shown.finished, now_ns);
                *before = shown;
            }
        }
        let queue_len = self.files.iter().fold(0, |sum: u64, (_, file)| sum.saturating_add(file.queue_len()));
        memory.service(self.number).queue_len.store(u32::try_from(queue_len).unwrap_or(u32::MAX), Ordering::Release);
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Came(pid, file) => {
                self.files.push((pid, file));
                self.ledger.add(pid);
            }
            News::Went(pid) => {
                if let Some(process) = self.files.iter().position(|(known, _)| *known == pid) {
                    self.files.remove(process);
                    self.ledger.remove(process);
                }
            }
        }
    }

    /// Events first: a head that is newer than they are only shows a request too early.
    fn read(&mut self, now_ns: u64) {
        for (process, (_, file)) in self.files.iter_mut().enumerate() {
            file.fetch(|ring, event| self.ledger.event((process, ring), event, now_ns));
            for (ring, head) in file.heads().enumerate() {
                self.ledger.head((process, ring), head, now_ns);
            }
        }
    }
}

fn on_lane(memory: &LaneMemory, cpu: u32) -> OnLane {
    let word = memory.word(cpu);
    let tid = word.snapshot().filter(|seen| seen.class() == Ok(LaneClass::Lc)).map(|seen| seen.pid);
    OnLane { busy: word.busy(), tid }
}
