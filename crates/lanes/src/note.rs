//! Notes on batch on lanes: what is degraded or failed.

use sidelane_diagnostics::diagnostics;
use sidelane_diagnostics::note::Note;
use sidelane_host::service::Target;
use sidelane_policy::borrow::idle_threshold::IdleThreshold;
use sidelane_policy::borrow::slowdown::Verdict;

diagnostics! {
    /// Note of batch on lanes.
    pub enum LaneNote in Lanes;
    degraded {
        // Notes on what the machine lacks for batch.
        NoFreezer =>
            "this process can make no cgroup with a freezer (v2 or v1): on a lane that is held for more than 1 s, \
             batch runs for up to 5 % of the time",
            "mount cgroup v2, or give this process write access to its own group";
        NoCpuset =>
            "this process can make no cgroup with a cpuset (v2 or v1): batch is confined by CPU affinity, which it can \
             change itself; it is put back each time",
            "delegate the cpuset controller to the group of this process";
        NoCpusetOfBatch =>
            "the adopted batch has no cpuset that sidelane can change alone: it is confined by CPU affinity, which it \
             can change itself; it is put back each time",
            "adopt it by a cgroup with a cpuset of its own (--adopt cgroup:/PATH); in v1 that group has no groups \
             below it";
        GuardianInGroup =>
            "the guardian is in the cgroup of this process: if the whole group is killed at once, changes to this \
             machine are not undone",
            "start sidelane where it may move a process to the uppermost cgroup, or without memory.oom.group";
        NoGroupsForCommand =>
            "this process can make no cgroups: after a SIGKILL of sidelane, background processes of the batch command \
             that lost their parent go on",
            "end sidelane with SIGTERM, or give this process write access to its own group";
        NoGroupsForAdopted =>
            "this process can make no cgroups: after a SIGKILL of sidelane, processes younger than half a second whose \
             parents have ended stay on the batch lanes",
            "end sidelane with SIGTERM, or adopt batch that has a group of its own";

        // Notes on degraded parts of a session.
        MissedAlone { slo: String = "p99.9=1.5ms".to_owned() } =>
            "the service missed {slo} without batch beside any request: batch used idle moments only",
            "set an objective that the service keeps without batch, or give it more request lanes";
        Late { slo: String = "p99.9=1.5ms".to_owned() } =>
            "the service was beyond {slo}, so batch used idle moments only",
            "set a longer objective if batch is to get more";
        SlowsDown { service: String = "port:6379".to_owned(), percent: u64 = 55, percentile: u64 = 50, idle_us: u64 = 128 } =>
            "batch made the p{percentile} of {service} {percent} % longer, so batch now waits until the service is \
             idle for {idle_us} µs",
            "allow more slowdown with --max-slowdown, or max_slowdown in [lanes], if batch is worth it";
        KeptOff { service: String = "port:6379".to_owned(), percent: u64 = 55, percentile: u64 = 50 } =>
            "batch is kept off its lanes: beside batch the p{percentile} of {service} was {percent} % longer, even \
             when batch waited for long idle moments",
            "allow more slowdown with --max-slowdown, or max_slowdown in [lanes], or give batch other lanes";
        CostUnknown { service: String = "port:53".to_owned(), why: String = "it listens at no TCP port".to_owned() } =>
            "cannot measure the slowdown of {service} by batch: {why}",
            "run `sidelane requests` for this service";
        SchedulerPutOut { why: String = "sysrq".to_owned() } =>
            "the kernel ended batch's scheduler ({why}); batch went on in SCHED_IDLE, with holders",
            "start the run again, or use --gate holder";
        HoldersTookOver {
            gate: String = "instrumented".to_owned(),
            after_s: u64 = 4,
            overlap: String = "2.3 % of its time (7.3 ms of 318 ms; bound 1.0 %)".to_owned()
        } =>
            "holders took over from the gate {gate} after {after_s} s: batch ran beside the service for {overlap}",
            "give --gate holder from the start; --gate {gate} keeps that gate, and breaks the promise";
        LeftSchedulerClass =>
            "batch threads left SCHED_EXT, and were put back",
            "let no program change the scheduling class of batch";
        GuardianEnded =>
            "the guardian process was ended, stopped or frozen; a new one took over",
            "leave the guardian running: it undoes all changes after a SIGKILL of sidelane";
        ServiceEnded { target: Target = Target::Port(6379) } =>
            "{target} has ended; batch went on",
            "start the service again; sidelane finds it";
        ServiceVisited { target: Target = Target::Port(6379), requests: String = "0".to_owned() } =>
            "{target} ran on a batch lane; batch leaves that lane until the service has left it",
            "confine the service to its request lanes (taskset -a -c -p {requests} PID), or add --pin-service";
        Blocked { seconds: u64 = 10, why: String = "the service runs".to_owned() } =>
            "batch has been kept off its lanes for {seconds} s: {why}",
            "give the service more lanes or batch other ones, or let batch run beside requests (--slo)";
        LeftoversEnded { processes: usize = 2 } =>
            "{processes} background process(es) of the batch command were killed when the command ended",
            "let the command wait for its background processes if their work is wanted";
        RequestEventsLost { events: u64 = 12 } =>
            "{events} events of requests were lost before they were read; the budget is computed from the rest",
            "leave more idle time on CPUs outside the lanes, so that sidelane reads the events in time";
        ContentionCostWithoutCounters { cpu: u32 = 0, error: String = "No such file or directory".to_owned() } =>
            "the contention cost is estimated from server times: request lane {cpu} has no counters of instructions and cycles \
             ({error})",
            "in a virtual machine, ask its host for a virtual PMU";
        ContentionCostCountedTooRarely =>
            "the contention cost is estimated from server times: too few requests had their lane for themselves from start to finish",
            "let it run longer, or at a lower load";
        Leaks { times: u64 = 3 } =>
            "batch ran {times} times on a lane that was held",
            "run `sidelane doctor`, and see its lines on RT throttling, locked memory and the freezer";
        BatchOutranked { thread: String = "ffmpeg".to_owned(), class: String = "SCHED_FIFO 99".to_owned() } =>
            "the batch thread `{thread}` was in {class}, which the holder of its lane cannot preempt; it was put into \
             SCHED_IDLE",
            "start batch without the right to real-time classes (CAP_SYS_NICE, or a limit of RLIMIT_RTPRIO)";
        BatchStayed { thread: String = "dd".to_owned(), lane: u32 = 1 } =>
            "the batch thread `{thread}` stayed on lane {lane} beside the service, or came back to it; the lane was \
             held again, and batch was put back",
            "split long system calls of batch (dd bs=1M), and keep its CPU affinity and its groups as they are";
        BatchStopped { thread: String = "ffmpeg".to_owned(), class: String = "SCHED_FIFO 99".to_owned() } =>
            "all batch was stopped: its thread `{thread}` ({class}) stayed on its lane beside the service, and weaker \
             steps failed",
            "read the order of events in the audit log (--audit FILE), and start batch without real-time classes";
        LanesWithheld { thread: String = "ffmpeg".to_owned() } =>
            "no lane was lent for a time: the batch thread `{thread}` stayed on its lane beside the service, and \
             weaker steps failed",
            "read the order of events in the audit log ([audit] file), and start batch without real-time classes";
        BatchInDeadline { thread: String = "ffmpeg".to_owned() } =>
            "the batch thread {thread} is in SCHED_DEADLINE, which a holder cannot preempt; no lane is lent while it \
             lives",
            "start it in another scheduling class (`chrt -b 0 COMMAND`)";
        BatchNotStopped { thread: String = "ffmpeg".to_owned(), error: String = "unsupported".to_owned() } =>
            "cannot take the batch thread `{thread}` off its lane beside the service: {error}",
            "end that program, or adopt batch by a cgroup with a freezer";
        BatchStrays { times: u64 = 3 } =>
            "batch ran {times} times outside its lanes, and was put back",
            "let no program change batch's affinity, or delegate the cpuset controller to the cgroup of this process";
        BatchLeftGroup =>
            "batch left the cgroup by which it is paused and ended, and was put back",
            "let it start no containers or scopes of its own, or name those with --adopt";
        BatchRaised { thread: String = "\"rt-worker\" (4711)".to_owned() } =>
            "the batch thread {thread} was in another scheduling class than batch, and could preempt the holder of its \
             lane; it was put back",
            "let no program change the scheduling class of batch (chrt, rtkit, a service manager)";
        KeeperLowered { lane: u32 = 1 } =>
            "another process changed the scheduling class of the holder of batch lane {lane}, so that batch could \
             preempt it; it was put back",
            "let no program change the scheduling class of sidelane's threads (chrt); adopted batch can do so with \
             CAP_SYS_NICE";
        WatchdogLowered =>
            "another process changed the scheduling class of the thread that watches the batch lanes; it was put back",
            "let no program change the scheduling class of sidelane's threads (chrt); adopted batch can do so with \
             CAP_SYS_NICE";
        BatchWidened { what: String = "the batch thread \"iou-sqp-7\" (4712)".to_owned() } =>
            "{what} was given other CPUs than the batch lanes; it was put back",
            "let no program change the CPU affinity and the cpuset of batch";
        BatchKept { thread: String = "\"iou-wrk-7\" (4712)".to_owned() } =>
            "the kernel keeps the batch thread {thread} outside the batch lanes and refuses to move it, so it may run \
             beside the service",
            "boot Linux 6.3 or later, which can move io_uring workers, or let batch use no io_uring";
        LeftAdopted { process: String = "\"worker\" (4713)".to_owned() } =>
            "process {process} left the adopted cgroup, so it was given back and is not batch any more",
            "keep it in its cgroup, or adopt it with a run of its own (--adopt pid:NUMBER)";
        RealtimeAllowed =>
            "the batch command may enter real-time classes (--allow-realtime): a thread in SCHED_FIFO or SCHED_RR with \
             priority 10 or more runs beside the service for some milliseconds, until it is demoted",
            "leave --allow-realtime out if the command does not need it";
        RightsStay =>
            "setuid programs of the batch command may enter real-time classes: this process lacks CAP_SETPCAP and \
             cannot forbid that",
            "run sidelane as root";
        CoreDumpWithheld { signal: i32 = 11 } =>
            "signal {signal} ended the batch command without a core dump: the program in kernel.core_pattern would \
             have run on the service's CPUs",
            "begin the command with `ulimit -c unlimited` to get the dump";
        CommandUsedNoCpu { seconds: u64 = 12, cpu_ms: u64 = 3 } =>
            "the batch command used only {cpu_ms} ms of CPU in {seconds} s: work that a daemon does for it (docker \
             run, systemd-run, at) is not confined, and runs beside the service",
            "adopt that work with --adopt cgroup:/PATH, or name the program that does it, not one that asks a daemon";
        ServiceStrays { times: u64 = 3 } =>
            "the service ran {times} times on CPUs that are not request lanes, which are not watched",
            "name those CPUs in --lanes, or confine the service with --pin-service";
        SwitchesUntold { times: u64 = 3, of: u64 = 900 } =>
            "the kernel hid {times} of {of} context switches from tracers; the time after them is counted for the \
             previous thread",
            "ask the operator of this machine for a kernel that traces all threads";
        EvictionsFailed { times: u64 = 3 } =>
            "batch could not be moved away from a lane, or back to it, {times} times; the lane was held",
            "run `sidelane doctor`, and see its lines on the freezer and cpusets";
        PromisesBroken { times: u64 = 3 } =>
            "{times} times the batch program did not check its lane for 1 ms, and a holder took the lane from it",
            "build the program with more checks, as in its loops, or use --gate holder";
        ExcusesNotBelieved { ms: u64 = 12 } =>
            "the batch program reports {ms} ms more of naps than its CPU time allows; its naps count as overlap",
            "use --gate holder for programs that you do not trust";

        // Notes on degraded parts of the agent.
        NotUrgent { error: String = "Operation not permitted".to_owned() } =>
            "the agent cannot use SCHED_FIFO ({error}), so batch may leave late",
            "run the agent as root";
    }
    told {
        // Notes on events of a session.
        ServiceCameBack { target: Target = Target::Port(6379) } =>
            "{target} was restarted; sidelane found its new process and goes on";
    }
}

impl LaneNote {
    /// Returns the note on batch's cost for `service` and the consequence for batch; `None` if a step to a longer idle
    /// time was taken back.
    pub fn from_idle_threshold(service: String, threshold: IdleThreshold, verdict: Verdict) -> Option<Self> {
        let Verdict::Beyond { percentile, ratio } = verdict else { return None };
        let [_, percent, _] = ratio.percent_longer();
        let (percentile, percent) = (percentile.round() as u64, percent.max(0.0).round() as u64);
        Some(match threshold {
            IdleThreshold::Never => Self::KeptOff { service, percent, percentile },
            IdleThreshold::AfterIdle(ns) => Self::SlowsDown { service, percent, percentile, idle_us: ns / 1_000 },
        })
    }

    /// Returns whether the note is about the idle threshold of the service `service_name`.
    pub fn is_about_idle_threshold(&self, service_name: &str) -> bool {
        matches!(self, Self::SlowsDown { service, .. } | Self::KeptOff { service, .. } if service == service_name)
    }

    /// Returns whether the note reports that batch's cost for requests of the service `service_name` is unknown.
    pub fn is_about_unknown_cost(&self, service_name: &str) -> bool {
        matches!(self, Self::CostUnknown { service, .. } if service == service_name)
    }

    /// Returns the note that explains overlap best: batch escaped or could not be evicted. The most certain explanation
    /// comes first.
    pub fn best_overlap_explanation<'a>(notes: impl IntoIterator<Item = &'a Note>) -> Option<&'a Note> {
        let explaining =
            notes.into_iter().filter_map(|note| Some((note.downcast::<Self>()?.overlap_explanation_rank()?, note)));
        explaining.min_by_key(|(rank, _)| *rank).map(|(_, note)| note)
    }

    fn overlap_explanation_rank(&self) -> Option<usize> {
        Some(match self {
            Self::BatchRaised { .. }
            | Self::KeeperLowered { .. }
            | Self::WatchdogLowered
            | Self::BatchOutranked { .. }
            | Self::BatchNotStopped { .. }
            | Self::BatchStopped { .. }
            | Self::LanesWithheld { .. }
            | Self::BatchInDeadline { .. }
            | Self::BatchStayed { .. }
            | Self::BatchKept { .. } => 0,
            Self::SchedulerPutOut { .. } => 1,
            Self::LeftSchedulerClass => 2,
            Self::EvictionsFailed { .. } => 3,
            Self::RealtimeAllowed => 4,
            Self::Leaks { .. } => 5,
            Self::PromisesBroken { .. } => 6,
            Self::ExcusesNotBelieved { .. } => 7,
            Self::HoldersTookOver { .. } | Self::BatchLeftGroup => 8,
            Self::BatchWidened { .. } | Self::BatchStrays { .. } => 9,
            Self::NotUrgent { .. } => 10,
            Self::SwitchesUntold { .. } => 11,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_explained_by_the_most_certain_note() {
        let notes = [LaneNote::GuardianEnded, LaneNote::Leaks { times: 9 }, LaneNote::RealtimeAllowed].map(Note::from);
        assert_eq!(LaneNote::best_overlap_explanation(&notes), Some(&notes[2]));
        let raised = Note::from(LaneNote::BatchRaised { thread: "\"spin\" (7)".into() });
        assert_eq!(LaneNote::best_overlap_explanation(notes.iter().chain([&raised])), Some(&raised));
        assert_eq!(LaneNote::best_overlap_explanation(&notes[..1]), None, "the guardian keeps no lane");
    }
}
