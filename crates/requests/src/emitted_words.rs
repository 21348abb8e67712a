//! Emitted requests as request words, for lane keepers, for batch that checks its lane itself, and for the kernel program.
//!
//! If requests are seen at sockets, the kernel program writes these words at each change. An emitted request wakes no
//! thread: it is a few stores in the service's own memory. So a thread that is about to decide refreshes the words first. A
//! thread of its own for this would not work: on a machine with only a request lane and a batch lane it could not run while
//! a holder naps, which is when the words are needed.
//!
//! A thread that finds another one writing does not wait: the words are fresh then. The writer is never preempted by such a
//! thread: holders are real-time threads on lanes of their own, and keepers by scheduler run without holders.

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
    /// Brings the words up to date, unless another thread does. Allocates nothing and makes no system
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
