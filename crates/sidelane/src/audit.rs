//! The audit log: every actuation with its reason, and with what was seen.
//!
//! Deciders write to a ring of fixed size that was allocated beforehand and never wait for its
//! reader; what does not fit is counted. The supervisor drains the rings into the log.

use std::fmt::Debug;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};
use sidelane_host::clock::now_ns;
use sidelane_host::wall_clock::utc;
use sidelane_policy::Reason;

/// Decisions kept between two drains: at a drain every 100 ms, room for 80 000 a second.
const RING_ENTRIES: usize = 8192;

/// What becomes a line of the log. It is made where it must not cost anything, and written out elsewhere.
pub trait Line: Send + 'static {
    /// Its fields, without the time.
    fn fields(&self) -> Map<String, Value>;
    /// Whether it is of interest to people, and is in a log of events alone.
    fn is_event(&self) -> bool {
        true
    }
}

/// What a policy was told, for the log.
pub trait Seen: Copy + Send + 'static {
    /// The values that were seen; what was not known is left out.
    fn values(&self) -> Map<String, Value>;
}

/// What a policy asks for, for the log.
pub trait Weight {
    /// Whether it is of interest to people.
    fn is_event(&self) -> bool {
        true
    }
}

/// What a policy of any family decided, why, and what it had seen.
#[derive(Clone, Copy, Debug)]
pub struct Decision<O, A, R> {
    /// What was acted on: a word for its kind, and its number.
    pub on: (&'static str, u32),
    /// What was done.
    pub action: A,
    /// Why.
    pub why: R,
    /// What was seen.
    pub seen: O,
}

impl<O, A, R> Line for Decision<O, A, R>
where
    O: Seen,
    A: Copy + Debug + Weight + Send + 'static,
    R: Reason + Send + 'static,
{
    fn is_event(&self) -> bool {
        self.action.is_event()
    }

    fn fields(&self) -> Map<String, Value> {
        let (kind, number) = self.on;
        let mut fields = Map::new();
        fields.insert(kind.to_owned(), json!(number));
        fields.insert("action".to_owned(), json!(format!("{:?}", self.action).to_lowercase()));
        fields.insert("why".to_owned(), json!(self.why.to_string()));
        fields.insert("seen".to_owned(), Value::Object(self.seen.values()));
        fields
    }
}

/// What is written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AuditLevel {
    /// What is of interest to people: starts and ends, notes, batch that leaves for long and comes back
    Events,
    /// Each decision, too
    #[default]
    All,
}

type Ring<L> = (SyncSender<(u64, L)>, Arc<AtomicU64>);

/// A decider's pen. The default one writes nothing.
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
    /// Notes a decision. Never waits.
    pub fn record(&self, at_ns: u64, line: L) {
        let Some((ring, lost)) = &self.ring else { return };
        if ring.try_send((at_ns, line)).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The log: one JSON object a line.
pub struct AuditLog<W, L> {
    lines: Receiver<(u64, L)>,
    lost: Arc<AtomicU64>,
    level: AuditLevel,
    /// What the wall clock was when [`now_ns`] was 0.
    zero: SystemTime,
    out: W,
}

impl<W: Write, L: Line> AuditLog<W, L> {
    /// A log that writes all to `out`, and the pen for it.
    pub fn new(out: W) -> (Self, Audit<L>) {
        Self::at_level(out, AuditLevel::All)
    }

    /// A log that writes to `out` what is of this level, and the pen for it.
    pub fn at_level(out: W, level: AuditLevel) -> (Self, Audit<L>) {
        let (ring, lines) = sync_channel(RING_ENTRIES);
        let lost = Arc::new(AtomicU64::new(0));
        let audit = Audit { ring: Some((ring, Arc::clone(&lost))) };
        let zero = SystemTime::now() - Duration::from_nanos(now_ns());
        (Self { lines, lost, level, zero, out }, audit)
    }

    /// Writes what was noted since the last drain.
    pub fn drain(&mut self) -> io::Result<()> {
        while let Ok((at_ns, line)) = self.lines.try_recv() {
            if self.level == AuditLevel::Events && !line.is_event() {
                continue;
            }
            let mut fields = self.time(at_ns);
            fields.extend(line.fields());
            writeln!(self.out, "{}", Value::Object(fields))?;
        }
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            writeln!(self.out, "{}", json!({ "lost_entries_count": lost }))?;
        }
        self.out.flush()
    }

    /// Notes something that the agent itself did.
    pub fn note(&mut self, at_ns: u64, action: &str, why: &str) -> io::Result<()> {
        self.drain()?;
        let mut fields = self.time(at_ns);
        fields.extend([("action".to_owned(), json!(action)), ("why".to_owned(), json!(why))]);
        writeln!(self.out, "{}", Value::Object(fields))
    }

    /// When something was, by both clocks.
    fn time(&self, at_ns: u64) -> Map<String, Value> {
        let at = utc(self.zero + Duration::from_nanos(at_ns));
        Map::from_iter([("at".to_owned(), json!(at)), ("at_ns".to_owned(), json!(at_ns))])
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    /// A family of policies that nobody has yet: how many cooks a kitchen needs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Guests;

    impl fmt::Display for Guests {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("there are guests")
        }
    }

    impl Reason for Guests {}

    #[derive(Clone, Copy, Debug)]
    enum Cooks {
        Call,
        Glance,
    }

    impl Weight for Cooks {
        fn is_event(&self) -> bool {
            matches!(self, Cooks::Call)
        }
    }

    #[derive(Clone, Copy)]
    struct Tables(u32);

    impl Seen for Tables {
        fn values(&self) -> Map<String, Value> {
            Map::from_iter([("tables_count".to_owned(), json!(self.0))])
        }
    }

    fn decision(tables: u32) -> Decision<Tables, Cooks, Guests> {
        Decision { on: ("kitchen", 1), action: Cooks::Call, why: Guests, seen: Tables(tables) }
    }

    #[test]
    fn each_actuation_is_a_line_with_its_reason_and_what_was_seen() {
        let (mut log, pen) = AuditLog::new(Vec::new());
        pen.record(7, decision(3));
        pen.record(9, decision(4));
        log.zero = SystemTime::UNIX_EPOCH;
        log.drain().unwrap();
        let text = String::from_utf8(log.out).unwrap();
        let line = |at_ns, tables| {
            format!(
                "{{\"at\":\"1970-01-01T00:00:00.000000Z\",\"at_ns\":{at_ns},\"kitchen\":1,\"action\":\"call\",\"why\":\"there are guests\",\
                 \"seen\":{{\"tables_count\":{tables}}}}}\n"
            )
        };
        assert_eq!(text, line(7, 3) + &line(9, 4));
    }

    #[test]
    fn a_log_of_events_leaves_out_what_is_none() {
        let (mut log, pen) = AuditLog::at_level(Vec::new(), AuditLevel::Events);
        pen.record(7, Decision { action: Cooks::Glance, ..decision(3) });
        pen.record(9, decision(4));
        log.note(11, "note", "the kitchen closes").unwrap();
        let text = String::from_utf8(log.out).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let told: Vec<(&str, u64)> =
            lines.iter().map(|line| (line["action"].as_str().unwrap(), line["at_ns"].as_u64().unwrap())).collect();
        assert_eq!(told, [("call", 9), ("note", 11)]);
    }

    #[test]
    fn what_does_not_fit_is_counted_not_waited_for() {
        let (mut log, pen) = AuditLog::new(Vec::new());
        for at_ns in 0..RING_ENTRIES as u64 + 3 {
            pen.record(at_ns, decision(0));
        }
        log.drain().unwrap();
        let text = String::from_utf8(log.out).unwrap();
        assert!(text.ends_with("{\"lost_entries_count\":3}\n"));
    }

    #[test]
    fn a_pen_without_a_log_writes_nothing() {
        Audit::default().record(0, decision(0));
    }
}
