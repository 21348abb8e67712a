//! The pauses of one JVM: each stop for a collection, from the counters that HotSpot keeps of its collectors.

use super::ticks::Ticks;
use crate::channel::Word;
use crate::channel::hsperf::{Jvm, JvmError};
use sidelane_tale::record::{Kind, Record, Task, pause};

/// HotSpot's collectors: of the young generation, of all, and what else stops for a concurrent one.
const COLLECTORS: [(usize, u32); 3] =
    [(0, pause::YOUNG_COLLECTION), (1, pause::FULL_COLLECTION), (2, pause::YOUNG_COLLECTION)];
/// What a JVM counts in, unless it says otherwise.
const TICKS_PER_S: u64 = 1_000_000_000;

/// When a collector stopped the JVM last, in ticks.
struct Collector {
    entry: Word,
    exit: Word,
    detail: u32,
    /// The end of the last stop that was told.
    told: u64,
}

/// A JVM under watch.
pub struct JvmPauses {
    pid: u32,
    ticks: Ticks,
    collectors: Vec<Collector>,
    looked_ns: u64,
    /// It is stopped, since before this moment.
    stopped_ns: Option<u64>,
}

impl JvmPauses {
    /// Opens the counters of a process.
    ///
    /// # Errors
    /// If it is no JVM, or its counters cannot be read.
    pub fn open(pid: u32, now_ns: u64) -> Result<Self, JvmError> {
        let jvm = Jvm::open(pid)?;
        let frequency = jvm.number("sun.os.hrt.frequency").map_or(TICKS_PER_S, |word| word.read());
        let collector = |(number, detail): (usize, u32)| {
            let word = |what: &str| jvm.number(&format!("sun.gc.collector.{number}.{what}"));
            let (entry, exit) = (word("lastEntryTime")?, word("lastExitTime")?);
            let told = exit.read();
            Some(Collector { entry, exit, detail, told })
        };
        let collectors = COLLECTORS.into_iter().filter_map(collector).collect();
        Ok(Self { pid, ticks: Ticks::new(frequency), collectors, looked_ns: now_ns, stopped_ns: None })
    }

    /// Looks at the counters, and adds what happened since the last look. Returns the moment up to which all is told:
    /// a pause that goes on is told at its end.
    pub fn look(&mut self, now_ns: u64, records: &mut Vec<Record>) -> u64 {
        let (before_ns, mut is_stopped) = (self.looked_ns, false);
        self.looked_ns = now_ns;
        for collector in &mut self.collectors {
            let (entry, exit) = (collector.entry.read(), collector.exit.read());
            is_stopped |= entry > exit;
            if exit == collector.told || entry > exit {
                continue;
            }
            collector.told = exit;
            self.ticks.seen(exit, (before_ns, now_ns));
            if let Some(times_ns) = self.ticks.at_ns(entry).zip(self.ticks.at_ns(exit)) {
                add(self.pid, collector.detail, times_ns, records);
            }
        }
        self.stopped_ns = is_stopped.then(|| self.stopped_ns.unwrap_or(before_ns));
        self.stopped_ns.unwrap_or(before_ns)
    }
}

/// The two records of a pause. They are of no CPU, and so have no number among a CPU's.
fn add(pid: u32, detail: u32, (from_ns, to_ns): (u64, u64), records: &mut Vec<Record>) {
    let nobody = Task::default();
    let began = Record {
        at_ns: from_ns,
        kind: Kind::PauseBegan,
        seq: 0,
        task: Task { tid: pid, pid },
        cpu: 0,
        detail,
        other: nobody,
        socket: 0,
        request: 0,
        value: 0,
    };
    records.extend([began, Record { at_ns: to_ns, kind: Kind::PauseEnded, ..began }]);
}
