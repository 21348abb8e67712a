//! The audit log: every actuation with its reason.
//!
//! Holders write to a ring of fixed size that was allocated beforehand and never wait for its
//! reader; what does not fit is counted. The supervisor drains the rings into the log.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use serde_json::json;
use sidelane_policy::borrow::{Action, Reason};

/// Decisions kept between two drains: at a drain every 100 ms, room for 80 000 a second.
const RING_ENTRIES: usize = 8192;

/// One actuation.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at_ns: u64,
    cpu: u32,
    action: Action,
    why: Reason,
}

/// A holder's pen. The default one writes nothing.
#[derive(Clone, Default)]
pub struct Audit {
    ring: Option<(SyncSender<Entry>, Arc<AtomicU64>)>,
}

impl Audit {
    /// Notes that `action` was decided for `cpu`. Never waits.
    pub fn record(&self, at_ns: u64, cpu: u32, action: Action, why: Reason) {
        let Some((ring, lost)) = &self.ring else { return };
        if ring.try_send(Entry { at_ns, cpu, action, why }).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The log: one JSON object a line.
pub struct AuditLog<W> {
    entries: Receiver<Entry>,
    lost: Arc<AtomicU64>,
    out: W,
}

impl<W: Write> AuditLog<W> {
    /// A log that writes to `out`, and the pen for it.
    pub fn new(out: W) -> (Self, Audit) {
        let (ring, entries) = sync_channel(RING_ENTRIES);
        let lost = Arc::new(AtomicU64::new(0));
        let audit = Audit { ring: Some((ring, Arc::clone(&lost))) };
        (Self { entries, lost, out }, audit)
    }

    /// Writes what the holders noted since the last drain.
    pub fn drain(&mut self) -> io::Result<()> {
        while let Ok(entry) = self.entries.try_recv() {
            let line = json!({
                "at_ns": entry.at_ns,
                "lane": entry.cpu,
                "action": format!("{:?}", entry.action).to_lowercase(),
                "why": entry.why.to_string(),
            });
            writeln!(self.out, "{line}")?;
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
        writeln!(self.out, "{}", json!({ "at_ns": at_ns, "action": action, "why": why }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_actuation_is_a_line_with_its_reason() {
        let (mut log, pen) = AuditLog::new(Vec::new());
        pen.record(7, 1, Action::Hold, Reason::RequestBusy);
        pen.record(9, 1, Action::Release, Reason::RequestIdle);
        log.drain().unwrap();
        let text = String::from_utf8(log.out).unwrap();
        assert_eq!(
            text,
            "{\"at_ns\":7,\"lane\":1,\"action\":\"hold\",\"why\":\"the service runs\"}\n\
             {\"at_ns\":9,\"lane\":1,\"action\":\"release\",\"why\":\"the service is idle\"}\n"
        );
    }

    #[test]
    fn what_does_not_fit_is_counted_not_waited_for() {
        let (mut log, pen) = AuditLog::new(Vec::new());
        for at_ns in 0..RING_ENTRIES as u64 + 3 {
            pen.record(at_ns, 0, Action::Hold, Reason::RequestBusy);
        }
        log.drain().unwrap();
        let text = String::from_utf8(log.out).unwrap();
        assert!(text.ends_with("{\"lost_entries_count\":3}\n"));
    }
}
