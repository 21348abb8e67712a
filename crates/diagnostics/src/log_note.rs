//! Notes on logs.

use crate::audit::AuditState;
use crate::diagnostics;

diagnostics! {
    /// Note of a log.
    pub enum LogNote in Logs;
    degraded {
        AuditFails { log: String = "/tmp/log".to_owned(), error: String = "No space left on device".to_owned() } =>
            "the log {log} cannot be written ({error}): its lines are lost and counted, and all else goes on",
            "free space, or repair its disk; writing is tried again every 2 s";
        AuditLinesLost { log: String = "/tmp/log".to_owned(), lines: u64 = 12 } =>
            "{lines} lines of the log {log} could not be written and are lost",
            "keep space free on its disk, or name a file on another disk";
        RequestLogCut { log: String = "/tmp/log".to_owned(), error: String = "No space left on device".to_owned() } =>
            "the log {log} is not whole: {error}",
            "free some space, or write the log to another disk";
    }
    told {
        Replayed { log: String = "/tmp/log".to_owned() } =>
            "figures are from the log {log}, which may be of another machine";
        LogUnreadable { error: String = "Input/output error".to_owned() } =>
            "the rest of the log cannot be read ({error}); figures are of the part before";
        LogCutOff =>
            "the log is cut off within a chunk; figures are of the part before";
        LogDamaged =>
            "the head of a chunk of the log is damaged; figures are of the part before";
    }
}

impl LogNote {
    /// Returns the note that an audit log cannot be written now; `None` if it can.
    pub fn about_failing_audit_log(log: &str, state: &AuditState) -> Option<Self> {
        let error = state.error.clone()?;
        Some(Self::AuditFails { log: log.to_owned(), error })
    }

    /// Returns the notes on an audit log: that it cannot be written, and how many lines are lost.
    pub fn about_audit_log(log: &str, state: &AuditState) -> impl Iterator<Item = Self> {
        let lost = Self::AuditLinesLost { log: log.to_owned(), lines: state.lost_lines };
        Self::about_failing_audit_log(log, state).into_iter().chain((state.lost_lines > 0).then_some(lost))
    }

    /// Returns whether the note is about an audit log.
    pub fn is_about_audit_log(&self) -> bool {
        matches!(self, Self::AuditFails { .. } | Self::AuditLinesLost { .. })
    }
}
