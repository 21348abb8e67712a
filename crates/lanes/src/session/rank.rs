//! The rank of batch below the holder of its lane: the rights that a command gives up, and the regular check for
//! threads that have another class, other CPUs or another cgroup.

use std::time::{Duration, Instant};

use super::Session;
use super::start::{Ending, RunningBatch, SessionOptions};
use crate::batch::BatchClass;
use crate::gate::LaneKeeper;
use crate::note::LaneNote;
use crate::watchdog::LaneWatch;
use sidelane_host::rights;
use sidelane_host::topology::Lanes;
use sidelane_tracker::accounting::Accounting;

/// Limit of the notes with a thread's name, because batch chooses these names.
const NAMES_MAX: usize = 8;
/// Time after which the session checks once whether the command has used any CPU time.
const UNUSED_LOOK_AFTER: Duration = Duration::from_secs(10);
/// Shortest idle time of a run after which the CPU time of a command shows that it only waits.
const UNUSED_IDLE_MIN_NS: u64 = 1_000_000_000;
/// Divisor of the idle time. A command that used a smaller part of the request lanes' idle time has used none.
const UNUSED_SHARE: u64 = 100;
/// Signals after which the kernel makes a core dump.
const DUMPING: [i32; 10] = [
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGSYS,
];

/// Facts about batch's rank below the holder.
pub(super) struct BatchRank {
    began: Instant,
    /// Class in which batch is kept; `None` if batch may choose its class.
    class: Option<BatchClass>,
    is_command: bool,
    is_allowed: bool,
    /// Whether the kernel would start a program for core dumps, and is kept from it.
    withholds_dumps: bool,
    /// Whether the CPU time of the command was checked while it ran.
    use_seen: bool,
}

impl BatchRank {
    pub(super) fn from_options(options: &SessionOptions, is_command: bool) -> Self {
        let class = options.keeps_batch_class().then_some(options.class);
        let withholds_dumps = is_command && class.is_some() && rights::is_core_dump_piped();
        let is_allowed = options.allow_realtime;
        Self { began: Instant::now(), class, is_command, is_allowed, withholds_dumps, use_seen: false }
    }

    /// Returns the notes for the start of the session.
    pub(super) fn notes(&self) -> Vec<LaneNote> {
        let keeps_rights = self.is_command && self.class.is_some() && !rights::can_drop_priority_rights();
        let notes = [(self.is_allowed, LaneNote::RealtimeAllowed), (keeps_rights, LaneNote::RightsStay)];
        notes.into_iter().filter(|(is_so, _)| *is_so).map(|(_, note)| note).collect()
    }

    /// Returns a note on how the command ended, if its core dump was withheld.
    pub(super) fn core_dump_note(&self, ending: &Ending) -> Option<LaneNote> {
        use std::os::unix::process::ExitStatusExt;
        let Ending::Command(status) = ending else { return None };
        let signal = status.signal().filter(|signal| self.withholds_dumps && DUMPING.contains(signal))?;
        Some(LaneNote::CoreDumpWithheld { signal })
    }
}

/// Returns the CPU time of a command that left idle lanes unused, in milliseconds; `None` if it used them.
fn cpu_ms_if_lanes_unused(accounting: &Accounting, lanes: &Lanes) -> Option<u64> {
    let (batch_ns, busy_ns) = (accounting.batch_ns(lanes), accounting.service_ns(lanes));
    batch_cpu_ms_if_idle_time_unused(
        batch_ns,
        (accounting.at_ns * lanes.request_lanes.len() as u64).saturating_sub(busy_ns),
    )
}

fn batch_cpu_ms_if_idle_time_unused(batch_ns: u64, idle_ns: u64) -> Option<u64> {
    let is_unused = idle_ns >= UNUSED_IDLE_MIN_NS && batch_ns.saturating_mul(UNUSED_SHARE) < idle_ns;
    is_unused.then_some(batch_ns / 1_000_000)
}

impl Session {
    /// Restores threads that have left batch's class, CPUs or cgroup.
    pub(super) fn restore_escaped_threads(&mut self) {
        if self.confinement.return_escaped_processes() > 0 {
            self.add_note(LaneNote::BatchLeftGroup);
        }
        let class = match self.rank.class {
            // After the kernel has ended batch's scheduler, batch is kept in SCHED_IDLE.
            Some(BatchClass::Ext) if self.scheduler.is_none() => Some(BatchClass::Idle),
            class => class,
        };
        for lane in
            self.keepers().filter(|keeper| keeper.restore_thread_class()).map(LaneKeeper::cpu).collect::<Vec<_>>()
        {
            self.add_note(LaneNote::KeeperLowered { lane });
        }
        if self.watch.as_ref().is_some_and(LaneWatch::restore_thread_class) {
            self.add_note(LaneNote::WatchdogLowered);
        }
        let right = self.confinement.restore_settings(class);
        if let Some(thread) = right.class {
            self.add_limited_note(LaneNote::BatchRaised { thread });
        }
        if let Some(what) = right.cpus {
            self.add_limited_note(LaneNote::BatchWidened { what });
        }
        if let Some(thread) = right.kept {
            self.add_limited_note(LaneNote::BatchKept { thread });
        }
        if !self.rank.use_seen && self.rank.began.elapsed() >= UNUSED_LOOK_AFTER {
            self.rank.use_seen = true;
            let accounting = self.accounting();
            self.note_unused_lanes(&accounting);
        }
    }

    /// Adds a note on a command that only waits, perhaps while a daemon works for it, unless it was kept off its lanes.
    pub(super) fn note_unused_lanes(&mut self, accounting: &Accounting) {
        let is_kept_off_or_told = |note: &LaneNote| {
            use LaneNote::{Blocked, CommandUsedNoCpu, KeptOff, SlowsDown};
            matches!(note, Blocked { .. } | KeptOff { .. } | SlowsDown { .. } | CommandUsedNoCpu { .. })
        };
        if !matches!(self.work, RunningBatch::Command(_))
            || self.notes.iter().any(|note| note.matches(is_kept_off_or_told))
        {
            return;
        }
        if let Some(cpu_ms) = cpu_ms_if_lanes_unused(accounting, &self.lanes) {
            let seconds = self.rank.began.elapsed().as_secs();
            self.add_note(LaneNote::CommandUsedNoCpu { seconds, cpu_ms });
        }
    }

    /// Adds a note with a name that batch chose, up to a limit.
    pub(super) fn add_limited_note(&mut self, note: LaneNote) {
        let named = |note: &LaneNote| {
            matches!(
                note,
                LaneNote::BatchRaised { .. }
                    | LaneNote::BatchWidened { .. }
                    | LaneNote::BatchKept { .. }
                    | LaneNote::LeftAdopted { .. }
                    | LaneNote::BatchOutranked { .. }
                    | LaneNote::BatchStayed { .. }
                    | LaneNote::BatchStopped { .. }
                    | LaneNote::BatchNotStopped { .. }
            )
        };
        if self.notes.iter().filter(|note| note.matches(named)).count() < NAMES_MAX {
            self.add_note(note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_below_a_hundredth_of_idle_time_counts_as_unused() {
        const S: u64 = 1_000_000_000;
        assert_eq!(batch_cpu_ms_if_idle_time_unused(0, S), Some(0));
        assert_eq!(batch_cpu_ms_if_idle_time_unused(50_000_000, 60 * S), Some(50));
        // No note is made if batch used a hundredth of the idle time, or if the idle time was less than a second.
        assert_eq!(batch_cpu_ms_if_idle_time_unused(S, 100 * S), None);
        assert_eq!(batch_cpu_ms_if_idle_time_unused(0, S - 1), None);
    }
}
