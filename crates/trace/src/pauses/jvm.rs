//! Pauses of one JVM for garbage collection, read from the counters that HotSpot keeps of its collectors.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::ticks::Ticks;
use sidelane_channels::Word;
use sidelane_channels::hsperf::{Jvm, JvmError};
use sidelane_timeline::record::{Kind, Record, Task, pause};

/// HotSpot's collectors by number, each with its kind of pause: young generation, full collection, and stops of a
/// concurrent collector.
const COLLECTORS: [(usize, u32); 3] =
    [(0, pause::YOUNG_COLLECTION), (1, pause::FULL_COLLECTION), (2, pause::YOUNG_COLLECTION)];
/// Default frequency of a JVM's clock, in ticks per second.
const TICKS_PER_S: u64 = 1_000_000_000;

/// Counters of one collector of a JVM, and its last reported stop. Times are in ticks of the JVM's clock.
struct Collector {
    /// Counter of begun stops.
    begun: Word,
    entry: Word,
    exit: Word,
    detail: u32,
    /// End of the last stop that was reported, in ticks.
    told: u64,
    /// Value of the counter of begun stops when the last stop was reported.
    told_begun: u64,
}

/// A JVM whose pauses are observed.
pub struct JvmPauses {
    pid: u32,
    /// File descriptor that becomes readable when the process has ended (pidfd).
    end: OwnedFd,
    ticks: Ticks,
    collectors: Vec<Collector>,
    looked_ns: u64,
    /// Earliest time at which the present stop may have begun; `None` if the JVM runs.
    stopped_ns: Option<u64>,
    /// Number of stops that were followed by another stop within one interval of observation, and so were not reported.
    missed: u64,
}

impl JvmPauses {
    /// Opens the counters of the process `pid`.
    ///
    /// # Errors
    /// If the process is no JVM, or its counters cannot be read.
    pub fn open(pid: u32, now_ns: u64) -> Result<Self, JvmError> {
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(JvmError::NoProcess { pid })?;
        let end = pidfd_open(process, PidfdFlags::empty()).map_err(|_| JvmError::NoProcess { pid })?;
        Ok(Self::from_jvm(pid, end, &Jvm::open(pid)?, now_ns))
    }

    fn from_jvm(pid: u32, end: OwnedFd, jvm: &Jvm, now_ns: u64) -> Self {
        let frequency = jvm.numeric_counter("sun.os.hrt.frequency").map_or(TICKS_PER_S, |word| word.read());
        let collector = |(number, detail): (usize, u32)| {
            let word = |what: &str| jvm.numeric_counter(&format!("sun.gc.collector.{number}.{what}"));
            let (begun, entry, exit) = (word("invocations")?, word("lastEntryTime")?, word("lastExitTime")?);
            let (told_begun, told) = (begun.read(), exit.read());
            Some(Collector { begun, entry, exit, detail, told, told_begun })
        };
        let collectors = COLLECTORS.into_iter().filter_map(collector).collect();
        let ticks = Ticks::new(frequency);
        Self { pid, end, ticks, collectors, looked_ns: now_ns, stopped_ns: None, missed: 0 }
    }

    /// Reads the counters, and adds the pauses since the last call to `records`. A pause is reported at its end.
    /// Returns the time before which all pauses are reported.
    pub fn read_pauses(&mut self, now_ns: u64, records: &mut Vec<Record>) -> u64 {
        let (before_ns, mut is_stopped) = (self.looked_ns, false);
        self.looked_ns = now_ns;
        for collector in &mut self.collectors {
            // `begun` is read first. A stop that begins between these reads is seen as not ended (`entry` > `exit`) or
            // not seen at all.
            let begun = collector.begun.read();
            let (entry, exit) = (collector.entry.read(), collector.exit.read());
            is_stopped |= entry > exit;
            if exit == collector.told || entry > exit {
                continue;
            }
            self.missed += begun.saturating_sub(collector.told_begun).saturating_sub(1);
            (collector.told, collector.told_begun) = (exit, collector.told_begun.max(begun));
            self.ticks.add_bounds(exit, (before_ns, now_ns));
            if let Some(times_ns) = self.ticks.monotonic_ns(entry).zip(self.ticks.monotonic_ns(exit)) {
                add_pause_records(self.pid, collector.detail, times_ns, records);
            }
        }
        self.stopped_ns = is_stopped.then(|| self.stopped_ns.unwrap_or(before_ns));
        self.stopped_ns.unwrap_or(before_ns)
    }

    /// Returns the number of stops since the last call that were not reported.
    pub fn take_missed_stops(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    /// Returns whether the process has ended. A stop that still lasted is reported: it ended with the process.
    pub fn has_ended(&self, now_ns: u64, records: &mut Vec<Record>) -> bool {
        let mut ends = [PollFd::new(&self.end, PollFlags::IN)];
        let has_ended = poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ended| ended > 0);
        let goes_on = |collector: &&Collector| collector.entry.read() > collector.exit.read();
        if let (true, Some(since_ns), Some(last)) = (has_ended, self.stopped_ns, self.collectors.iter().find(goes_on)) {
            add_pause_records(self.pid, last.detail, (since_ns, now_ns), records);
        }
        has_ended
    }
}

/// Adds the two records of a pause, begin and end. They belong to no CPU, and so have no sequence number.
fn add_pause_records(pid: u32, detail: u32, (from_ns, to_ns): (u64, u64), records: &mut Vec<Record>) {
    let no_task = Task::default();
    let began = Record {
        at_ns: from_ns,
        kind: Kind::PauseBegan,
        seq: 0,
        task: Task { tid: pid, pid },
        cpu: 0,
        detail,
        other: no_task,
        socket: 0,
        request: 0,
        value: 0,
    };
    records.extend([began, Record { at_ns: to_ns, kind: Kind::PauseEnded, ..began }]);
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::process::{Child, Command};

    use super::*;
    use sidelane_channels::hsperf::format::test_file;

    const MS: u64 = 1_000_000;

    /// File with counters of one garbage collector, in the format of a JVM, and a process that is no JVM.
    struct FakeJvm {
        file: File,
        pauses: JvmPauses,
        process: Child,
    }

    impl FakeJvm {
        fn start() -> Self {
            let names = ["invocations", "lastEntryTime", "lastExitTime"];
            let numbers = names.map(|name| (format!("sun.gc.collector.0.{name}"), 0));
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&test_file::counter_file_of_numbers(&numbers), 0).unwrap();
            let process = Command::new("sleep").arg("1000").spawn().unwrap();
            let end = pidfd_open(Pid::from_child(&process), PidfdFlags::empty()).unwrap();
            let jvm = Jvm::from_file(process.id(), &file).unwrap();
            Self { pauses: JvmPauses::from_jvm(process.id(), end, &jvm, MS), file, process }
        }

        fn set_counters(&self, begun: u64, entry: u64, exit: u64) {
            for (name, value) in [("invocations", begun), ("lastEntryTime", entry), ("lastExitTime", exit)] {
                let mut bytes = vec![0; self.file.metadata().unwrap().len() as usize];
                self.file.read_exact_at(&mut bytes, 0).unwrap();
                let offset = test_file::counter_value_offset(&bytes, &format!("sun.gc.collector.0.{name}"));
                self.file.write_all_at(&value.to_ne_bytes(), offset as u64).unwrap();
            }
        }
    }

    impl Drop for FakeJvm {
        fn drop(&mut self) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }

    #[test]
    fn jvm_stop_is_reported_at_its_end_or_counted_as_missed() {
        let (mut fake, mut records) = (FakeJvm::start(), Vec::new());
        fake.set_counters(1, 2 * MS, 0);
        assert_eq!(fake.pauses.read_pauses(3 * MS, &mut records), MS, "nothing from after its begin is told");
        fake.set_counters(1, 2 * MS, 4 * MS);
        fake.pauses.read_pauses(5 * MS, &mut records);
        assert_eq!((records.len(), fake.pauses.take_missed_stops()), (2, 0));
        fake.set_counters(3, 7 * MS, 8 * MS);
        fake.pauses.read_pauses(9 * MS, &mut records);
        assert_eq!((records.len(), fake.pauses.take_missed_stops()), (4, 1));
    }

    #[test]
    fn stop_of_a_killed_process_ends_with_the_process() {
        let (mut fake, mut records) = (FakeJvm::start(), Vec::new());
        fake.set_counters(1, 2 * MS, 0);
        fake.pauses.read_pauses(3 * MS, &mut records);
        assert!(!fake.pauses.has_ended(4 * MS, &mut records) && records.is_empty());
        fake.process.kill().unwrap();
        fake.process.wait().unwrap();
        assert!(fake.pauses.has_ended(5 * MS, &mut records));
        let times: Vec<_> = records.iter().map(|record| (record.kind, record.at_ns)).collect();
        assert_eq!(times, [(Kind::PauseBegan, MS), (Kind::PauseEnded, 5 * MS)]);
    }
}
