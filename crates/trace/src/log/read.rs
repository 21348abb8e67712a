//! Reading of a trace's log. From a damaged file, all records before the damage are returned.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use serde::de::DeserializeOwned;
use sidelane_timeline::record::{RECORD_SIZE, Record};

use super::super::text::Names;
use super::{END, LogEnd, LogHead, MAGIC, NAMES, RECORDS};
use sidelane_diagnostics::log_file::{LogError, Magic, open, read_chunk_body, read_chunk_head, read_head};
use sidelane_diagnostics::log_note::LogNote;

/// Size of the largest chunk that is read, in bytes.
const CHUNK_BYTES_MAX: u32 = 64 << 20;

/// Returns whether the file at `path` begins like the log of a trace; false if it cannot be read.
pub fn is_trace_log(path: &Path) -> bool {
    let mut first = Magic::default();
    File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok() && first == MAGIC
}

/// A log that is being read.
pub struct LogReader<R> {
    input: R,
    head: LogHead,
    names: Names,
    end: Option<LogEnd>,
    problem: Option<LogNote>,
}

impl LogReader<BufReader<File>> {
    /// Opens the log at `path`, and reads its head.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        open(path, "trace", Self::new)
    }
}

impl<R: Read> LogReader<R> {
    /// Reads the head of a log from `input`. The error says why the head is invalid.
    pub fn new(mut input: R) -> Result<Self, String> {
        let head: LogHead = read_head(&mut input, &MAGIC)?;
        Ok(Self { input, head, names: Names::default(), end: None, problem: None })
    }

    /// Returns the head of the log.
    pub fn head(&self) -> &LogHead {
        &self.head
    }

    /// Calls `each` with every record of the log.
    pub fn read_all(&mut self, mut on_record: impl FnMut(&Record)) {
        while let Some((kind, bytes)) = self.next_chunk() {
            match kind {
                RECORDS => self.read_records(&bytes, &mut on_record),
                NAMES => self.read_names(&bytes),
                END => self.read_end(&bytes),
                _ => self.problem = Some(LogNote::LogDamaged),
            }
        }
    }

    /// Returns the names of threads. They are complete after `read_all`.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the end of the log; `None` if it has none, or before `read_all`.
    pub fn end(&self) -> Option<&LogEnd> {
        self.end.as_ref()
    }

    /// Returns why reading stopped before the log's proper end; `None` if it did not.
    pub fn problem(&self) -> Option<&LogNote> {
        self.problem.as_ref()
    }

    /// Reads the records of a chunk. Kinds that this version does not know are skipped.
    fn read_records(&mut self, bytes: &[u8], on_record: &mut impl FnMut(&Record)) {
        let records = bytes.as_chunks::<RECORD_SIZE>();
        if !records.1.is_empty() {
            self.problem = Some(LogNote::LogDamaged);
        }
        records.0.iter().filter_map(Record::from_bytes).for_each(|record| on_record(&record));
    }

    fn read_end(&mut self, bytes: &[u8]) {
        self.end = self.parse_json(bytes);
        let objects = self.end.as_ref().map(|end: &LogEnd| end.objects.clone());
        objects.into_iter().for_each(|objects| self.names.set_objects(objects));
    }

    fn read_names(&mut self, bytes: &[u8]) {
        let names: BTreeMap<u32, String> = self.parse_json(bytes).unwrap_or_default();
        names.into_iter().for_each(|(tid, name)| self.names.set_name(tid, name));
    }

    fn parse_json<T: DeserializeOwned>(&mut self, bytes: &[u8]) -> Option<T> {
        let read = serde_json::from_slice(bytes).ok();
        if read.is_none() {
            self.problem = Some(LogNote::LogDamaged);
        }
        read
    }

    /// Returns the next chunk; `None` if the log ends or is damaged here.
    fn next_chunk(&mut self) -> Option<([u8; 4], Vec<u8>)> {
        if self.problem.is_some() {
            return None;
        }
        let mut head = [0; 8];
        match read_chunk_head(&mut self.input, &mut head) {
            Ok(true) => (),
            Ok(false) => return self.report_missing_end(),
            Err(problem) => return self.stop_with_problem(problem),
        }
        let [a, b, c, d, length @ ..] = head;
        let length = u32::from_le_bytes(length);
        if length > CHUNK_BYTES_MAX {
            return self.stop_with_problem(LogNote::LogDamaged);
        }
        let (mut bytes, is_whole) = read_chunk_body(&mut self.input, u64::from(length));
        if !is_whole {
            bytes.truncate(bytes.len() / RECORD_SIZE * RECORD_SIZE);
            self.problem = Some(LogNote::LogCutOff);
        }
        Some(([a, b, c, d], bytes))
    }

    /// Notes that the log has no end: its tracer was killed.
    fn report_missing_end<T>(&mut self) -> Option<T> {
        if self.end.is_none() {
            self.problem = Some(LogNote::LogCutOff);
        }
        None
    }

    fn stop_with_problem<T>(&mut self, problem: LogNote) -> Option<T> {
        self.problem.get_or_insert(problem);
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::sample;
    use super::super::LogWriter;
    use super::*;

    fn head() -> LogHead {
        LogHead {
            version: "test".into(),
            service: "port:8080".into(),
            slo: Some("10ms".into()),
            kinds: LogHead::kind_numbers(sample::kinds()),
            begin_ns: 5,
            written: vec![0, 7],
            tracer_pid: 9,
            epoch_ns: Some(3),
        }
    }

    fn end() -> LogEnd {
        LogEnd { wall_s: 1.5, lost: 3, left_out: Some(2), ..LogEnd::default() }
    }

    fn log_bytes(records: &[Record]) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = LogWriter::create(&path, &head()).unwrap();
        records.iter().for_each(|record| log.record(record));
        assert_eq!(log.end(&sample::build_sample().names, &end()), None);
        assert!(is_trace_log(&path));
        std::fs::read(&path).unwrap()
    }

    fn read_log(bytes: &[u8]) -> (LogReader<&[u8]>, Vec<Record>) {
        let mut reader = LogReader::new(bytes).unwrap();
        let mut records = Vec::new();
        reader.read_all(|record| records.push(*record));
        (reader, records)
    }

    #[test]
    fn log_is_read_across_several_chunks() {
        let records: Vec<Record> = sample::records().into_iter().cycle().take(10_000).collect();
        let bytes = log_bytes(&records);
        let (reader, read) = read_log(&bytes);
        assert!(read == records, "{} records of {}", read.len(), records.len());
        assert_eq!((reader.head(), reader.names()), (&head(), &sample::build_sample().names));
        assert_eq!((reader.end(), reader.problem()), (Some(&end()), None));
        assert_eq!(reader.head().recorded_kinds(), sample::kinds());
    }

    #[test]
    fn truncated_log_is_read_up_to_the_cut() {
        let records = sample::records();
        let bytes = log_bytes(&records[..100]);
        let begin = bytes.windows(4).position(|letters| letters == RECORDS).unwrap() + 8;
        let (reader, read) = read_log(&bytes[..begin + 10 * RECORD_SIZE + 7]);
        assert_eq!((read.as_slice(), reader.problem()), (&records[..10], Some(&LogNote::LogCutOff)));
    }

    #[test]
    fn other_files_are_not_read_as_logs() {
        let message = |bytes: &[u8]| LogReader::new(bytes).err().unwrap();
        assert!(message(b"{}").contains("too short"));
        assert!(message(b"SLNOBS1\n").contains("like a log"));
        assert!(message(b"SLNTRC1\n\xff\xff\xff\xff").contains("impossible length"));
        let error = LogReader::open(Path::new("/dev/null")).err().unwrap();
        assert_eq!(error.to_string(), "cannot read /dev/null: it is not a log of `sidelane trace` (it is too short)");
    }

    proptest! {
        #[test]
        fn reader_accepts_any_bytes_without_a_panic(garbage in prop::collection::vec(any::<u8>(), 0..300), kept in 0..2_000_usize) {
            let mut bytes = log_bytes(&sample::records()[..20]);
            let head = bytes.windows(4).position(|letters| letters == RECORDS).unwrap();
            bytes.truncate(head + kept % (bytes.len() - head));
            bytes.extend(&garbage);
            let (reader, records) = read_log(&bytes);
            prop_assert!(records.len() <= 25);
            prop_assert!(reader.problem().is_some() || reader.end().is_some());
            let _ = LogReader::new(garbage.as_slice());
        }
    }

    #[test]
    fn fuzzed_logs_are_read_up_to_their_damage() {
        sidelane_testing::fuzz("trace-log", |bytes| {
            let Ok(mut reader) = LogReader::new(bytes) else { return };
            let mut records = 0;
            reader.read_all(|_| records += 1);
            assert!(records * RECORD_SIZE <= bytes.len(), "{records} records");
            let _ = reader.head().recorded_kinds();
        });
    }
}
