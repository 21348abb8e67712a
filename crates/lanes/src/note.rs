//! Notes of batch on lanes.

use sidelane_diagnostics::diagnostics;
use sidelane_diagnostics::note::Note;
use sidelane_host::service::Target;
use sidelane_policy::borrow::idle_threshold::IdleThreshold;
use sidelane_policy::borrow::slowdown::Verdict;

diagnostics! {
    /// Note of batch on lanes.
    pub enum LaneNote in Lanes;
    degraded {
        // Of the machine, for batch.
        NoFreezer =>
            "no cgroup freezer (v2 or v1) can be used here: a hold that lasts over a second lets batch leak up to 5 %",
            "mount cgroup v2, or give this process write access to its own group";
        NoCpuset =>
            "no cpuset can be used here: batch is confined by affinity, which it can change itself, and is put back \
             each time it strays",
            "delegate the cpuset controller to the group of this process";
        GuardianInGroup =>
            "the guardian is in the control group of this process: if all of that is ended at once, no process undoes \
             the changes to this machine",
            "start sidelane where it may move a process to the uppermost group, or without memory.oom.group";
        NoGroupsForCommand =>
            "no control groups can be used here: after a SIGKILL of sidelane, background processes that have left the \
             batch command's family go on",
            "end sidelane with SIGTERM, or give this process write access to its own group";
        NoGroupsForAdopted =>
            "no control groups can be used here: after a SIGKILL of sidelane, processes that were born less than half \
             a second before, and whose parents have ended, keep the batch lanes' CPUs",
            "end sidelane with SIGTERM, or adopt batch that has a group of its own";

        // Of a session.
        MissedAlone { slo: String = "p99.9=1.5ms".to_owned() } =>
            "the service missed {slo} without batch beside any request; batch only borrowed its idle moments",
            "set an objective that the service keeps alone, or give it more request lanes";
        Late { slo: String = "p99.9=1.5ms".to_owned() } =>
            "the service was beyond {slo}; batch left its requests alone",
            "set a longer objective to lend batch more";
        SlowsDown { service: String = "port:6379".to_owned(), percent: u64 = 55, percentile: u64 = 50, idle_us: u64 = 128 } =>
            "batch made the p{percentile} of {service} {percent} % longer, so batch now waits until the service has been \
             idle for {idle_us} µs",
            "allow more with --max-slowdown, or max_slowdown in [lanes], if batch is worth it";
        KeptOff { service: String = "port:6379".to_owned(), percent: u64 = 55, percentile: u64 = 50 } =>
            "batch is kept off: beside batch, however long batch waited, the p{percentile} of {service} was {percent} % \
             longer",
            "allow more with --max-slowdown, or max_slowdown in [lanes], or give batch other lanes";
        CostUnknown { service: String = "port:53".to_owned(), why: String = "it listens at no TCP port".to_owned() } =>
            "what batch costs the requests of {service} is not known: {why}",
            "see what sidelane requests shows of it";
        SchedulerPutOut { why: String = "sysrq".to_owned() } =>
            "the kernel has put batch's scheduler out ({why}); batch went on in SCHED_IDLE, and holders took over",
            "start the run again to load the scheduler again, or choose --gate holder";
        LeftSchedulerClass =>
            "batch left the class of its scheduler and was put back",
            "keep the scheduling class of batch as it is";
        GuardianEnded =>
            "the guardian process was ended, stopped or frozen; a new one took over",
            "leave the guardian alone: after a SIGKILL of sidelane the guardian puts the machine right";
        ServiceEnded { target: Target = Target::Port(6379) } =>
            "{target} has ended; its lanes are idle, batch went on",
            "start the service again to have it looked after again";
        ServiceVisited { target: Target = Target::Port(6379), requests: String = "0".to_owned() } =>
            "{target} came to a batch lane; batch leaves that lane until the service is gone",
            "confine the service to its request lanes (taskset -a -c -p {requests} PID), or add --pin-service";
        Blocked { seconds: u64 = 10, why: String = "the service runs".to_owned() } =>
            "batch has been kept off its lanes for {seconds} s: {why}",
            "give the service more lanes or batch other ones, or let batch run beside requests (--slo)";
        LeftoversEnded { processes: usize = 2 } =>
            "{processes} background process(es) of the batch command were ended with it",
            "have the command wait for its background processes if their work is wanted";
        RequestEventsLost { events: u64 = 12 } =>
            "{events} events of requests were lost before they were read; the budget is from the others",
            "leave sidelane more time on the CPUs that are no lanes";
        ContentionCostWithoutCounters { cpu: u32 = 0, error: String = "No such file or directory".to_owned() } =>
            "what batch costs a request was worked out from server times: request lane {cpu} has no counters of \
             instructions and cycles ({error})",
            "in a virtual machine, ask its host for a virtual PMU";
        ContentionCostCountedTooRarely =>
            "what batch costs a request was worked out from server times: too few requests had their lane to \
             themselves from start to finish to be counted",
            "run longer, or at a lower load";
        Leaks { times: u64 = 3 } =>
            "the kernel let batch run {times} times in a lane that was held",
            "see what sidelane doctor says of RT throttling, locked memory and the freezer";
        BatchOutranked { thread: String = "ffmpeg".to_owned(), class: String = "SCHED_FIFO 99".to_owned() } =>
            "the batch thread `{thread}` was in {class}, which keeps its lane from the holder; it was put into \
             SCHED_IDLE",
            "start batch without the right to real-time classes (CAP_SYS_NICE, or a limit of RLIMIT_RTPRIO)";
        BatchStayed { thread: String = "dd".to_owned(), lane: u32 = 1 } =>
            "the batch thread `{thread}` stayed on lane {lane}, or came back to it, although it had to leave beside the \
             service; the lane was held again and batch put back",
            "split long system calls of batch (dd bs=1M), and keep its CPU affinity and its groups as they are";
        BatchStopped { thread: String = "ffmpeg".to_owned(), class: String = "SCHED_FIFO 99".to_owned() } =>
            "all batch was stopped for a while: its thread `{thread}` ({class}) did not leave its lane beside the service \
             by weaker means",
            "see the audit log (--audit FILE) for the order of events, and start batch without real-time classes";
        LanesWithheld { thread: String = "ffmpeg".to_owned() } =>
            "the batch thread `{thread}` did not leave its lane beside the service by weaker means; no lane was lent for \
             a while",
            "see the audit log (audit = FILE) for the order of events, and start batch without real-time classes";
        BatchInDeadline { thread: String = "ffmpeg".to_owned() } =>
            "the batch thread {thread} is in SCHED_DEADLINE, which runs before the holder of a lane; no lane is lent \
             while it is there",
            "start it in another scheduling class (`chrt -b 0 COMMAND`)";
        BatchNotStopped { thread: String = "ffmpeg".to_owned(), error: String = "unsupported".to_owned() } =>
            "the batch thread `{thread}` could not be taken off its lane beside the service: {error}",
            "end that program, or adopt batch that has a group with a freezer";
        BatchStrays { times: u64 = 3 } =>
            "batch ran {times} times outside its lanes before it was put back",
            "have batch keep its affinity, or delegate the cpuset controller to the group of this process";
        BatchLeftGroup =>
            "batch left the group by which it is paused and ended, and was put back there",
            "have it start no containers or scopes of its own, or name those with --adopt";
        BatchRaised { thread: String = "\"rt-worker\" (4711)".to_owned() } =>
            "the batch thread {thread} was in another scheduling class than batch, in which it could run before the \
             holder of its lane; it was put back",
            "have nothing change batch's scheduling class (chrt, rtkit, a service manager)";
        KeeperLowered { lane: u32 = 1 } =>
            "another process took the holder of batch lane {lane} out of its scheduling class, in which it runs before \
             batch; it was put back",
            "have nothing change the scheduling class of sidelane's threads (chrt); adopted batch can with CAP_SYS_NICE";
        WatchdogLowered =>
            "another process changed the scheduling class of the thread that watches the batch lanes; it was put back",
            "have nothing change the scheduling class of sidelane's threads (chrt); adopted batch can with CAP_SYS_NICE";
        BatchWidened { what: String = "the batch thread \"iou-sqp-7\" (4712)".to_owned() } =>
            "{what} was allowed other CPUs than the batch lanes; it was put back",
            "have batch keep its CPU affinity and its cpuset";
        BatchKept { thread: String = "\"iou-wrk-7\" (4712)".to_owned() } =>
            "the kernel keeps the batch thread {thread} on other CPUs than the batch lanes, and refuses to move it: it may \
             run beside the service",
            "boot Linux 6.3 or later, where workers of io_uring can be moved, or have batch use no io_uring";
        LeftAdopted { process: String = "\"worker\" (4713)".to_owned() } =>
            "process {process} left the group that was adopted, and was given back: it is not batch any more",
            "keep it in its group, or adopt it with a run of its own (--adopt pid:NUMBER)";
        RealtimeAllowed =>
            "the batch command may enter real-time classes (--allow-realtime): a thread of SCHED_FIFO or SCHED_RR with a \
             priority of 10 or more runs on while the service works, until the watchdog demotes it some milliseconds later",
            "leave --allow-realtime out if the command does not need it";
        RightsStay =>
            "the batch command keeps the right to real-time classes in its setuid programs: this process lacks \
             CAP_SETPCAP, and cannot take the right away",
            "run sidelane as root";
        CoreDumpWithheld { signal: i32 = 11 } =>
            "signal {signal} ended the batch command, and no core dump was made: kernel.core_pattern names a program, \
             which would have run on the service's CPUs",
            "begin the command with `ulimit -c unlimited` to have the dump";
        CommandUsedNoCpu { seconds: u64 = 12, cpu_ms: u64 = 3 } =>
            "the batch command has run for {seconds} s and used {cpu_ms} ms of CPU: work that a daemon does for it \
             (docker run, systemd-run, at) is not batch, and runs beside the service",
            "name that work with --adopt cgroup:/PATH, or run the program itself";
        ServiceStrays { times: u64 = 3 } =>
            "the service ran {times} times on CPUs that are not request lanes, unwatched",
            "name those CPUs in --lanes, or confine the service with --pin-service";
        SwitchesUntold { times: u64 = 3, of: u64 = 900 } =>
            "the kernel hid {times} of {of} switches from tracers; who came with one is counted as who was there before",
            "ask who runs this machine for a kernel that traces all threads";
        EvictionsFailed { times: u64 = 3 } =>
            "batch could not be sent away from a lane or brought back {times} times; batch was held on",
            "see what sidelane doctor says of the freezer and of affinity";
        PromisesBroken { times: u64 = 3 } =>
            "{times} times the batch program did not look for itself for 1 ms, and was held instead",
            "build the program with more checks, as in its loops, or choose --gate holder";
        ExcusesNotBelieved { ms: u64 = 12 } =>
            "the batch program says that it napped {ms} ms longer than it ran; nothing that it says was taken off the \
             overlap",
            "choose --gate holder for programs that are not trusted: the page on security says with what";

        // Of the agent.
        NotUrgent { error: String = "Operation not permitted".to_owned() } =>
            "the agent cannot work in SCHED_FIFO ({error}), so that batch may leave late",
            "run the agent as root";
    }
    told {
        // Of a session.
        ServiceCameBack { target: Target = Target::Port(6379) } =>
            "{target} came back as another process and is looked after again";
    }
}

impl LaneNote {
    /// Returns the note on batch's cost for `service` and the consequence for batch; `None` if a step was taken back.
    pub fn of_idle_threshold(service: String, threshold: IdleThreshold, found: Verdict) -> Option<Self> {
        let Verdict::Beyond { percentile, ratio } = found else { return None };
        let [_, percent, _] = ratio.percent_longer();
        let (percentile, percent) = (percentile.round() as u64, percent.max(0.0).round() as u64);
        Some(match threshold {
            IdleThreshold::Never => Self::KeptOff { service, percent, percentile },
            IdleThreshold::AfterIdle(ns) => Self::SlowsDown { service, percent, percentile, idle_us: ns / 1_000 },
        })
    }

    /// Returns whether the note is on the idle threshold of the service `of`.
    pub fn is_of_idle_threshold(&self, of: &str) -> bool {
        matches!(self, Self::SlowsDown { service, .. } | Self::KeptOff { service, .. } if service == of)
    }

    /// Returns whether the note says that batch's cost for requests of the service `of` is unknown.
    pub fn is_unknown_cost_of(&self, of: &str) -> bool {
        matches!(self, Self::CostUnknown { service, .. } if service == of)
    }

    /// Returns the note that explains overlap best: where batch escaped or could not be evicted, the surest first.
    pub fn explaining<'a>(notes: impl IntoIterator<Item = &'a Note>) -> Option<&'a Note> {
        let explaining = notes.into_iter().filter_map(|note| Some((note.get::<Self>()?.overlap_rank()?, note)));
        explaining.min_by_key(|(rank, _)| *rank).map(|(_, note)| note)
    }

    fn overlap_rank(&self) -> Option<usize> {
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
            Self::BatchLeftGroup => 8,
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
    fn overlap_is_explained_by_the_surest_note() {
        let notes = [LaneNote::GuardianEnded, LaneNote::Leaks { times: 9 }, LaneNote::RealtimeAllowed].map(Note::from);
        assert_eq!(LaneNote::explaining(&notes), Some(&notes[2]));
        let raised = Note::from(LaneNote::BatchRaised { thread: "\"spin\" (7)".into() });
        assert_eq!(LaneNote::explaining(notes.iter().chain([&raised])), Some(&raised));
        assert_eq!(LaneNote::explaining(&notes[..1]), None, "the guardian keeps no lane");
    }
}
