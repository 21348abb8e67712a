//! Audit log: every action with its reason, and with the observation that led to it.
//!
//! Deciders write to a ring of fixed size that was allocated beforehand, and never wait for its reader; entries without
//! room are counted. A thread of its own ([`AuditLog`]) writes the rings into a file.

mod file;
mod writer;

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use serde_json::{Map, Value, json};

pub use file::{AuditFile, WholeLines};
pub use writer::{AuditLog, AuditState};

/// Capacity of a ring in decisions. At a drain every 100 ms, it has room for 80 000 decisions a second.
const RING_ENTRIES: usize = 8192;

/// Entry that becomes a line of the log. The thread that decides creates the entry at little cost, and another thread
/// formats it.
pub trait Line: Send + 'static {
    /// Returns the fields of the line, without the time.
    fn fields(&self) -> Map<String, Value>;
    /// Returns whether the entry is of interest to people, so that a log of events contains it.
    fn is_event(&self) -> bool {
        true
    }
}

/// Returns the log fields of a policy's decision: the object that it is about (its kind and its number), the action,
/// the reason, and the observation.
pub fn decision_fields(
    (object_kind, object_number): (&str, u32),
    action: &str,
    reason: impl Display,
    observed: Map<String, Value>,
) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert(object_kind.to_owned(), json!(object_number));
    fields.insert("action".to_owned(), json!(action));
    fields.insert("why".to_owned(), json!(reason.to_string()));
    fields.insert("seen".to_owned(), Value::Object(observed));
    fields
}

/// Level of detail of an audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AuditLevel {
    /// Starts, ends, notes, and batch that is moved away from its lane and back
    Events,
    /// These, and each hold and release of a lane
    #[default]
    All,
}

type Ring<L> = (SyncSender<(u64, L)>, Arc<AtomicU64>);

/// Sender of the entries of a deciding thread to the audit log. The default sender drops all entries.
#[derive(Clone)]
pub struct Audit<L> {
    ring: Option<Ring<L>>,
}

impl<L> Default for Audit<L> {
    fn default() -> Self {
        Self { ring: None }
    }
}

impl<L: Line> Audit<L> {
    /// Creates a sender, and the receiver that a log reads.
    pub fn channel() -> (Self, AuditReceiver) {
        let (ring, lines) = sync_channel(RING_ENTRIES);
        let lost = Arc::new(AtomicU64::new(0));
        (Self { ring: Some((ring, Arc::clone(&lost))) }, AuditReceiver(Box::new(EntryQueue { lines, lost })))
    }

    /// Sends an entry. It never waits: without room the entry is counted as lost.
    pub fn record(&self, at_ns: u64, line: L) {
        let Some((ring, lost)) = &self.ring else { return };
        if ring.try_send((at_ns, line)).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Receiver of the entries of an [`Audit`] sender and its clones.
pub struct AuditReceiver(Box<dyn Source>);

impl AuditReceiver {
    /// Takes the entries of this level. Returns how many found no room since the last call.
    fn take_entries(&mut self, level: AuditLevel, entries: &mut Vec<(u64, Map<String, Value>)>) -> u64 {
        self.0.take_entries(level, entries)
    }
}

trait Source: Send {
    fn take_entries(&mut self, level: AuditLevel, entries: &mut Vec<(u64, Map<String, Value>)>) -> u64;
}

struct EntryQueue<L> {
    lines: Receiver<(u64, L)>,
    lost: Arc<AtomicU64>,
}

impl<L: Line> Source for EntryQueue<L> {
    fn take_entries(&mut self, level: AuditLevel, entries: &mut Vec<(u64, Map<String, Value>)>) -> u64 {
        // At most as many entries are taken as the ring contains: other threads may add entries during the read.
        let taken = self.lines.try_iter().take(RING_ENTRIES);
        let wanted = taken.filter(|(_, line)| level == AuditLevel::All || line.is_event());
        entries.extend(wanted.map(|(at_ns, line)| (at_ns, line.fields())));
        self.lost.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision of a policy that exists only in this test.
    struct TestDecision {
        tables: u32,
        is_event: bool,
    }

    impl Line for TestDecision {
        fn is_event(&self) -> bool {
            self.is_event
        }

        fn fields(&self) -> Map<String, Value> {
            let seen = Map::from_iter([("tables_count".to_owned(), json!(self.tables))]);
            super::decision_fields(("kitchen", 1), "call", "there are guests", seen)
        }
    }

    fn test_decision(tables: u32) -> TestDecision {
        TestDecision { tables, is_event: true }
    }

    /// Returns the lines of a log after `write` has written to it and the log has ended.
    fn logged_lines(level: AuditLevel, write: impl FnOnce(&AuditLog, &Audit<TestDecision>)) -> Vec<Value> {
        let (pen, ring) = Audit::channel();
        logged_lines_from(ring, level, |log| write(log, &pen))
    }

    fn logged_lines_from(ring: AuditReceiver, level: AuditLevel, write: impl FnOnce(&AuditLog)) -> Vec<Value> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = AuditLog::start(AuditFile::create(path.clone()).unwrap(), level, vec![ring]).unwrap();
        write(&log);
        assert_eq!(log.end().error, None);
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn each_action_has_a_line_with_reason_and_observation() {
        let lines = logged_lines(AuditLevel::All, |_, pen| {
            pen.record(7, test_decision(3));
            pen.record(9, test_decision(4));
        });
        let line = |line: &Value, at_ns, tables| {
            json!({ "at": line["at"], "at_ns": at_ns, "kitchen": 1, "action": "call", "why": "there are guests",
                    "seen": { "tables_count": tables } })
        };
        assert!(lines[0]["at"].as_str().is_some_and(|at| at.ends_with('Z')));
        assert_eq!(lines, [line(&lines[0], 7, 3), line(&lines[1], 9, 4)]);
    }

    #[test]
    fn log_of_events_leaves_out_other_entries() {
        let lines = logged_lines(AuditLevel::Events, |log, pen| {
            pen.record(7, TestDecision { is_event: false, ..test_decision(3) });
            pen.record(9, test_decision(4));
            log.record_action(11, "note", "the kitchen closes");
        });
        let told: Vec<(&str, u64)> =
            lines.iter().map(|line| (line["action"].as_str().unwrap(), line["at_ns"].as_u64().unwrap())).collect();
        assert_eq!(told, [("call", 9), ("note", 11)]);
    }

    #[test]
    fn entries_beyond_the_ring_are_counted_as_lost() {
        // The log is started only after the ring is full.
        let (pen, ring) = Audit::channel();
        (0..RING_ENTRIES as u64 + 3).for_each(|at_ns| pen.record(at_ns, test_decision(0)));
        let lines = logged_lines_from(ring, AuditLevel::All, |_| ());
        let lost: Vec<u64> = lines.iter().filter_map(|line| line["lost_entries_count"].as_u64()).collect();
        assert_eq!((lines.len(), lost), (RING_ENTRIES + 1, vec![3]));
    }

    /// Each write to /dev/full fails as on a full disk. The writer neither waits nor ends because of it.
    #[test]
    fn a_full_disk_loses_lines_and_counts_each() {
        let (pen, lines) = Audit::channel();
        let file = AuditFile::create("/dev/full".into()).unwrap();
        let mut log = AuditLog::start(file, AuditLevel::All, vec![lines]).unwrap();
        for at_ns in 0..5 {
            pen.record(at_ns, test_decision(0));
        }
        log.record_action(7, "note", "the kitchen is full");
        let state = log.end();
        assert_eq!(state.lost_lines, 6);
        assert!(state.error.is_some_and(|error| error.contains("No space left")));
    }

    #[test]
    fn reopened_log_after_a_rename_continues_in_a_new_file() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("log"), dir.path().join("log.1"));
        let mut log = AuditLog::start(AuditFile::append(path.clone()).unwrap(), AuditLevel::All, vec![]).unwrap();
        log.record_action(1, "note", "before");
        while !std::fs::read_to_string(&path).unwrap().ends_with('\n') {
            std::thread::yield_now();
        }
        std::fs::rename(&path, &old).unwrap();
        log.open_again();
        log.record_action(2, "note", "after");
        assert_eq!(log.end(), AuditState::default());
        let text = |path| std::fs::read_to_string(path).unwrap();
        assert!(text(&old).contains("before") && !text(&old).contains("after"));
        assert!(text(&path).contains("after") && !text(&path).contains("before"));
    }

    /// A pipe without a reader blocks after its first 64 KiB.
    #[test]
    fn blocked_log_reader_does_not_block_the_sender() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let _reader = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let (pen, lines) = Audit::channel();
        let mut log = AuditLog::start(AuditFile::append(path).unwrap(), AuditLevel::All, vec![lines]).unwrap();
        for at_ns in 0..4 * RING_ENTRIES as u64 {
            pen.record(at_ns, test_decision(0));
            log.request_write();
        }
        assert!(log.end().error.is_some());
    }

    #[test]
    fn sender_without_a_log_drops_its_entries() {
        Audit::default().record(0, test_decision(0));
    }
}
