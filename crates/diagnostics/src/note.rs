//! Notes: what a result says of itself besides its figures. Each kind is a variant of [`Note`]; a result has them as
//! strings.
//!
//! The table below is all there is of a note: its name, its values, each with an example for the test, its sentence,
//! and what to do. What degrades a result cannot be told without saying what to do.

use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

use crate::audit::AuditState;
use sidelane_host::service::Target;
use sidelane_policy::borrow::Objective;
use sidelane_policy::borrow::slowdown::Verdict;
use sidelane_policy::borrow::worth::Worth;
use sidelane_policy::cpus::Silence;

macro_rules! notes {
    (
        degraded {
            $($degraded:ident $({ $($value:ident: $type:ty = $example:expr),* })?
                => $what:literal, $advice:literal;)*
        }
        told {
            $($told:ident $({ $($told_value:ident: $told_type:ty = $told_example:expr),* })? => $told_what:literal;)*
        }
    ) => {
        /// What was degraded or went wrong, and what a figure cannot be read without.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs)]
        pub enum Note {
            $(#[doc = $what] $degraded $({ $($value: $type),* })?,)*
            $(#[doc = $told_what] $told $({ $($told_value: $told_type),* })?,)*
        }

        impl Note {
            /// The sentence, and what to do.
            fn parts(&self) -> (String, Option<String>) {
                match self {
                    $(Note::$degraded $({ $($value),* })? => (format!($what), Some(format!($advice))),)*
                    $(Note::$told $({ $($told_value),* })? => (format!($told_what), None),)*
                }
            }

            /// One of each kind.
            #[cfg(test)]
            fn examples() -> Vec<Note> {
                vec![
                    $(Note::$degraded $({ $($value: $example),* })?,)*
                    $(Note::$told $({ $($told_value: $told_example),* })?,)*
                ]
            }
        }
    };
}

notes! {
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
            "the guardian is in the control group of this process: if all of that is ended at once, nobody puts the \
             machine right",
            "start sidelane where it may move a process to the uppermost group, or without memory.oom.group";
        NoGroupsForCommand =>
            "no control groups can be used here: after a SIGKILL of sidelane, background processes that have left the \
             batch command's family go on",
            "end sidelane with SIGTERM, or give this process write access to its own group";
        NoGroupsForAdopted =>
            "no control groups can be used here: after a SIGKILL of sidelane, processes that were born less than half \
             a second before, and whose parents have ended, keep the batch lanes' CPUs",
            "end sidelane with SIGTERM, or adopt batch that has a group of its own";

        // Of an experiment with many parts.
        StoreMissing { store: &'static str = "rocksdb", why: String = "a library is missing".to_owned() } =>
            "{store} was left out: it cannot be put up here ({why})",
            "install what is missing";
        NotPlanted { cause: &'static str = "freeze", why: String = "there is no cgroup freezer".to_owned() } =>
            "the planted cause {cause} was left out at least once ({why})",
            "run it where that is possible";
        LuceneMissing { why: String = "there is no Maven".to_owned() } =>
            "the search server over Lucene was left out: it cannot be put up here ({why})",
            "apt-get install openjdk-17-jdk-headless maven";
        WorkMissing { work: &'static str = "spark", why: &'static str = "PySpark is missing" } =>
            "batch had no {work} among its containers",
            "install what is missing ({why})";
        NoStandIn { why: String = "there are no counters".to_owned() } =>
            "the agent told interference from request times, which is slow, and how fast it takes batch away was not \
             measured: it cannot count page faults, which stand in for stalls here ({why})",
            "see what sidelane doctor says of perf events";
        LittleHarm { what: String = "redis, mix a".to_owned(), times: String = "1.2".to_owned() } =>
            "{what}: unmanaged batch made the p99 only {times} times as long as alone, so nothing is checked there",
            "run it where batch disturbs the service more";

        // Of a session.
        MissedAlone { slo: Slo = Slo::example() } =>
            "the service missed {slo} without batch beside any request; batch only borrowed its idle moments",
            "set an objective that the service keeps alone, or give it more request lanes";
        Late { slo: Slo = Slo::example() } =>
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
        OtherSockets { service: String = "comm:caddy".to_owned(), sockets: String = "UDP port 443".to_owned() } =>
            "{service} may take requests at {sockets}, too, which are not seen: what is said of its requests, and an \
             objective, is of TCP alone",
            "let it emit its requests (runtime/c/sidelane.h)";
        RequestsJoined { percent: u64 = 12 } =>
            "{percent} % of the requests came in several pieces before they were answered: parts of one, or several on \
             one connection (pipelining, HTTP/2, gRPC); counts and times are of what looks like one",
            "let the service emit its requests (runtime/c/sidelane.h)";
        HandshakesPossible { connections: u64 = 120, percent: u64 = 12 } =>
            "{connections} connections began: if they speak TLS, HTTP/2 or WebSocket, their handshakes are up to \
             {percent} % of the requests",
            "let the service emit its requests (runtime/c/sidelane.h), or its clients keep their connections";
        CountedAtSockets =>
            "a request is here what came in at once and was answered: several that a client writes in one go (pipelining, \
             HTTP/2, gRPC) are one, and a handshake or `100 Continue` is one, too",
            "where clients do so, let the service emit its requests (runtime/c/sidelane.h)";
        AnswersStream { percent: u64 = 12 } =>
            "{percent} % of the answers went on for over 100 ms after their first part: streams count as one request",
            "let the service emit its requests (runtime/c/sidelane.h)";
        HarmWithoutCounters { cpu: u32 = 0, error: String = "No such file or directory".to_owned() } =>
            "what batch costs a request was worked out from server times: request lane {cpu} has no counters of \
             instructions and cycles ({error})",
            "in a virtual machine, ask its host for a virtual PMU";
        HarmCountedTooRarely =>
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

        // Of a trace.
        TasksUnseen {
            program: String = "server".to_owned(),
            runtime: &'static str = "Go",
            tasks: &'static str = "goroutines"
        } =>
            "{program} is a program of {runtime}: the way of a request through its {tasks} is not seen; what a request waits \
             for there is told as a wait inside the service, and no thread has it",
            "look at the program's own tracer or profiler for such waits";

        // Of interference.
        InterferenceOfGivenEvents { formula: String = "page-faults / task-clock".to_owned() } =>
            "interference is {formula}, as it was given: what that tells is up to who gave it",
            "leave the formula out to have the processor's own";

        // Of the agent.
        NotUrgent { error: String = "Operation not permitted".to_owned() } =>
            "the agent cannot work in SCHED_FIFO ({error}), so that batch may leave late",
            "run the agent as root";
        HarmUnknown { service: String = "redis".to_owned(), why: String = "it listens at no TCP port".to_owned() } =>
            "harm to {service} is not known: {why}",
            "see what sidelane requests shows of it";
        HarmWithoutSiblings { service: String = "redis".to_owned() } =>
            "harm to {service} is not known: none of the CPUs on which it runs has a sibling",
            "name CPUs that disturb each other in policy.siblings, or choose kind = \"perfiso\"";
        HarmWithoutBaseline { service: String = "redis".to_owned() } =>
            "harm to {service} is not known: batch has been beside all of its requests, so none can be compared with those \
             alone",
            "pause batch for some seconds, or run where the processor's counters can be used";
        HarmBetween { service: String = "redis".to_owned() } =>
            "harm to {service} is not known: batch has more than 5 % and less than half of the time of its siblings, so its \
             requests are neither alone nor beside batch",
            "confine it to one CPU of each core, or run where the processor's counters can be used";
        HarmForCounters =>
            "metric: nothing can be counted here, so that interference is told from the services' own request times, \
             and batch has to disturb some requests first",
            "run where the processor's counters can be used";
        ThresholdOfNearestEvents { e: String = "40".to_owned(), processors: &'static str = "Zen 2" } =>
            "e is {e}, the paper's, and {processors} counts only what comes nearest to the paper's events",
            "find e with sidelane calibrate, and write it in [policy]";
        ThresholdOfGivenEvents { e: String = "40".to_owned(), formula: String = "page-faults / task-clock".to_owned() } =>
            "e is {e}, which the paper has for its own events, and interference is {formula}, as the file gives it",
            "find e with sidelane calibrate --events '{formula}', and write it in [policy]";
        CountersShared { cpu: u32 = 3, percent: u64 = 40 } =>
            "other programs had the counters of CPU {cpu} for up to {percent} % of the time, in which no interference \
             was seen",
            "end what counts there, such as perf, or the NMI watchdog (sysctl kernel.nmi_watchdog=0)";
        NoCpuList { container: String = "/batch/a".to_owned() } =>
            "{container} has no list of CPUs (cpuset), so that its threads are moved one by one",
            "give its group the cpuset controller";
        NoPause { container: String = "/batch/a".to_owned() } =>
            "{container} cannot be paused, as it has no freezer that can be written: where it has to leave all its CPUs, it runs \
             on the one where it disturbs services least",
            "put it into a group of cgroup v2, or of the freezer of v1";
        BoundsNarrowed { container: String = "/batch/a".to_owned(), cpus: String = "0-3".to_owned() } =>
            "{container} may have CPUs {cpus} only, as a group above it has no others any more",
            "widen that group (systemd: AllowedCPUs=) if batch is to have more";
        Incomplete { container: String = "/batch/a".to_owned() } =>
            "{container} cannot be looked after yet: the hierarchy of its CPUs is not mounted, or its processes are in \
             different groups",
            "mount the hierarchy again, or move its processes to one group";
        NotBornConfined {
            group: String = "/kubepods/besteffort".to_owned(),
            why: String = "it has no list of CPUs (cpuset)".to_owned()
        } =>
            "new batch in {group} runs on all of its CPUs until it is found: {why}",
            "give the group the cpuset controller, and start pods that are no batch with a CPU request";
        ServicesLeftOut {
            count: usize = 2,
            most: usize = 63,
            services: String = "default/web-1, default/web-2".to_owned()
        } =>
            "{count} service(s) are left alone, since {most} are looked after, which is the most: {services}",
            "name the services that matter first in the file, and exclude others";
        NotesLeftOut =>
            "there are more notes than are kept here",
            "see the audit log, or the log of the agent's own output, for the others";
        NoLaneBeside { service: String = "redis".to_owned(), cpus: String = "0-3".to_owned() } =>
            "no lane is kept beside {service}: it may run on CPUs {cpus}, with no sibling to spare",
            "confine it to one CPU of each core before the agent finds it, or write may_be_placed = true";
        HazardsUnwatched {
            server: String = "10.0.0.7:9001".to_owned(),
            why: String = "it is not on this machine".to_owned()
        } =>
            "hazards of {server} are not watched: {why}",
            "run the proxy where its servers are, in their container if they are in one, or ask for no hazards (hazard \
             none)";
        HazardUnseen {
            server: String = "10.0.0.7:9001".to_owned(),
            hazard: String = "jvm-gc".to_owned(),
            why: String = "the JVM 1234 keeps no counters".to_owned()
        } =>
            "{hazard} of {server} is not seen: {why}",
            "mend that, or name the hazards that count (hazard stopped,restart)";
        NotRecorded { service: String = "redis".to_owned(), why: String = "the kernel is too old".to_owned() } =>
            "the flight recorder of {service} has ended: {why}",
            "see what sidelane trace says of this service, and have the agent read its file again";
        RecordingUnwritten { service: String = "redis".to_owned(), why: String = "No space left on device".to_owned() } =>
            "a recording of {service} could not be written and is lost: {why}",
            "make room for recordings: the recorder goes on, and writes the next one";
        NotMapped { service: String = "redis".to_owned(), why: String = "it listens at no TCP port".to_owned() } =>
            "long requests of {service} do not move to big cores: {why}",
            "see what sidelane hurry says of this service, and have the agent read its file again";
        NotPlaced { service: String = "redis".to_owned(), why: String = "another one moves its threads".to_owned() } =>
            "{service} is not placed: {why}",
            "the agent places it as soon as nobody else moves its threads";
        NoBigCores { why: String = "all cores are equal (cpu_capacity: missing)".to_owned() } =>
            "no request moves to a big core: {why}",
            "name the CPUs of both kinds in [hurry], as in big = \"0-3\" and little = \"4-7\", write siblings = true where \
             cores have several lanes, or leave the table out";
        NoSiblings =>
            "no request moves to a big core: no core of this machine has several lanes",
            "leave siblings out of [hurry], or say in [policy] which CPUs share a core, as in siblings = [\"0,4\", \"1,5\"]";
        LanesLentAsBefore { service: String = "redis".to_owned() } =>
            "the lanes beside {service} are lent as before: with its new objective another policy would lend them",
            "restart the agent, or name a policy in [lanes]";
        CpusBeyond { cpus: String = "512-639".to_owned() } =>
            "CPUs {cpus} are watched by nobody and given to no batch: the agent knows the first 512",
            "leave them to services, by their groups' lists of CPUs";
        RequestsAtTheStart =>
            "a service has an objective now, and requests are not tracked: whether they are is decided at the start",
            "restart the agent to have its attainment";
        ReadAtTheStart { tables: String = "[metric], [audit]".to_owned() } =>
            "the file has changed {tables}, which the agent reads at its start alone: it goes on with what was there",
            "restart the agent to have them take effect";

        // Of threads on big and little cores.
        MovedLate { error: String = "Operation not permitted".to_owned() } =>
            "sidelane cannot work in SCHED_FIFO ({error}), so that long requests may move late",
            "run it as root";
        MappedEnded { target: Target = Target::Pid(4711) } =>
            "{target} has ended, so that there are no threads to map",
            "name the service by its port, its name or its group: then it is found when it is started again";

        // Of a calibration.
        CalibratedWithoutSiblings { cpus: String = "0 and 1".to_owned() } =>
            "CPUs {cpus} are no siblings: what they do to each other, they do through caches and memory that they share",
            "calibrate where the kernel shows siblings, or name two with --lanes";
        NothingCounted { cpu: u32 = 0, error: String = "No such file or directory".to_owned() } =>
            "no event could be counted on CPU {cpu} ({error}), so none can be compared with latency",
            "in a virtual machine, ask its host for a virtual PMU, or name other events with --events";
        ProcessorUnknown =>
            "this processor is not in the table of events",
            "name events with --events, as in --events 'r140014a3 / (r81d0 + r82d0)'";

        // Of a log.
        AuditFails { log: String = "/tmp/log".to_owned(), error: String = "No space left on device".to_owned() } =>
            "the log {log} cannot be written ({error}): its lines are counted and lost, and all else goes on",
            "make room for it, or mend its disk: the log is tried again every 2 s";
        AuditLinesLost { log: String = "/tmp/log".to_owned(), lines: u64 = 12 } =>
            "{lines} lines of the log {log} could not be written and are lost",
            "keep room on its disk, or name a file on another one";
        PausesUnseen { pid: u32 = 1234, error: String = "process 1234 cannot be searched".to_owned() } =>
            "pauses of the runtime are not told: {error}",
            "see sidelane list pid:{pid}";
        PausesMissed { pauses: u64 = 3 } =>
            "{pauses} pauses of the runtime were followed by another one so soon that they were not seen: their time is told \
             as something else",
            "leave sidelane more time on the CPUs";
        ServiceNotFollowed { error: String = "the table of listeners is full".to_owned() } =>
            "the service was not looked after to the end, so requests at ports that it opened later are not seen: {error}",
            "start the trace again";
        BreakNotRecorded { late: Duration = Duration::from_secs(3) } =>
            "the request that broke the objective arrived {late:.1?} before this recording begins, so its way is not in it",
            "record less with --light (light = true in the agent's file), or keep more (keep)";
        RequestLogCut { log: String = "/tmp/log".to_owned(), error: String = "No space left on device".to_owned() } =>
            "the log {log} is not whole: {error}",
            "free some space or log elsewhere";
        LogEndsEarly { log: String = "/tmp/log".to_owned(), error: String = "No space left on device".to_owned() } =>
            "the log {log} ends early: {error}",
            "free some space or log elsewhere";
        LogWriterDied =>
            "the thread that writes the log has died, and the log ends there",
            "observe again, and report the message of the panic";
        LogLeftOut { left_out: u64 = 5, all: u64 = 100 } =>
            "log: {left_out} of {all} samples were left out, since the disk did not keep up",
            "choose a longer --period to log them all";

        // Of this process's own threads.
        OnServiceCpus {
            cpus: String = "0".to_owned(),
            percent: String = "1.5".to_owned(),
            why: &'static str = "its CPU affinity allows it no others",
            advice: &'static str = "start it without taskset"
        } =>
            "sidelane's own threads ran on CPUs of the service ({cpus}) for {percent} % of the time: {why}",
            "{advice}";

        // Of an observation.
        TargetOnObserversLane { cpu: u32 = 1 } =>
            "the target may run on the observer's lane {cpu}, and whenever it does, nobody observes",
            "keep the target off that lane (taskset -cp)";
        LaneInterrupted { lane: u32 = 0 } =>
            "counters of lane {lane} are read by the kernel, which interrupts the lane at each sample",
            "keep --period long";

        // Of a comparison.
        TrafficChanged { from_per_s: u64 = 800, to_per_s: u64 = 1_400 } =>
            "the traffic changed between rounds, from {from_per_s} to {to_per_s} requests a second; each round compares \
             its own runs",
            "compare again while the traffic is steady";
        UnequalLoad { setting: &'static str = "unmanaged", percent: u64 = 40 } =>
            "the service got {percent} % fewer requests {setting} than alone: its clients wait for answers, or for a CPU \
             that batch has, so times are of unequal load",
            "compare with clients on CPUs of their own that send at a fixed rate";
        RequestsUnread { events: u64 = 12 } =>
            "{events} events of requests were lost before they were read; figures are of the others",
            "leave sidelane more time on the CPUs that are no lanes";

        // Of an experiment.
        TermsUnknown { setting: &'static str = "dynamic refresh", load_s: u64 = 30 } =>
            "{setting}: {load_s} s of load were too few to learn its terms; what batch costs a request \
             was unknown",
            "use a quieter machine, and leave --quick out";
        TermsVague { setting: &'static str = "dynamic refresh", load_s: u64 = 30, harm: i64 = 40, error: i64 = 22 } =>
            "{setting}: {load_s} s of load were too few to learn its terms; what batch costs a request \
             was known to be {harm} ± {error} %",
            "use a quieter machine, and leave --quick out";
        ClientOnBatchLane { service: &'static str = "search", percent: u64 = 12 } =>
            "client of {service}: without a third core the client shares the batch lane at a real-time priority above \
             everything and takes up to {percent} % of the lane from batch; a request's wake-up comes from that lane",
            "use a machine on which the client has a CPU of its own";
        ClientOnBatchLaneAsleep =>
            "client: without a third core the client shares the batch lane, where it counts as asleep",
            "use a machine on which the client has a CPU of its own";
        ClientWidensBound =>
            "client: the client shares the batch lane, and what it takes widens the bound of that lane",
            "use a machine on which the client has a CPU of its own";
        ClientLate { service: &'static str = "search", lag_us: u64 = 1_200 } =>
            "client of {service}: in its worst run the client sent 1 % of requests over {lag_us} µs late: the machine \
             was busy, or more requests were under way than connections",
            "use a quieter machine";
        SocketsUnseen =>
            "client: this kernel does not show requests at the service's sockets, so latency is judged as the client \
             sees it; the client is in its own way here",
            "use Linux 6.3 or later";
        StepLateAlone { above: Duration = Duration::from_millis(2_410) } =>
            "step: the service alone was above its objective for {above:.2?} in its worst repetition",
            "use a machine on which the service alone keeps its objective";
        FewPlanted { chosen: usize = 14, all: usize = 30 } =>
            "quick: {chosen} of {all} causes were planted",
            "run without --quick";
        TracedWithoutPeers =>
            "quick: other tracers were left out",
            "run without --quick";
        WithoutRedisAndStep =>
            "quick: Redis and the step of load were left out",
            "run without --quick";
        PairWithoutSlowdown =>
            "lanes: a declared pair of CPUs that share no core and do not slow each other",
            "choose a scenario without a slowdown, or leave --sibling out";
        ParityLeftOut { run: String = "60 %, borrow-idle".to_owned(), busy: u64 = 104, most: u64 = 90 } =>
            "left out: {run}: with batch beside each request the request lane is {busy} % busy, and a queue there has \
             no steady state within a run, measured or simulated",
            "lower the scenario's load: below {most} % it is compared";
        NapMissing { nap: String = "UMWAIT".to_owned(), why: String = "this CPU has no WAITPKG".to_owned() } =>
            "nap {nap}: {why}",
            "see what sidelane doctor says of naps and gates";
        NoHardwareCounters =>
            "no hardware counters here: rates are of counters in memory",
            "in a virtual machine, ask its host for a virtual PMU to have rates of instructions";
        CoarseCycles { step: u64 = 26, period: u64 = 2500 } =>
            "the time stamp counter goes in steps of {step} cycles here: at periods of {period} double-time error \
             correction discards samples whose readings differ by one step",
            "look at the longer periods, where a step is less than 1 %";
        NoLz4 =>
            "the source of lz4 could not be had: the cost to a real program was not measured",
            "add deb-src to the sources of apt, and check that the network is there (apt-get source)";
        NoPerf =>
            "perf record: there is no perf here, and nothing was compared with it",
            "install perf (apt-get install linux-perf)";
        NoJava =>
            "pauses: there is no java here, and none was measured",
            "install java (apt-get install openjdk-17-jdk-headless)";
        NotInstalled { program: &'static str = "redis-server" } =>
            "{program} is not installed: nothing of it was measured",
            "apt-get install {program}";
    }
    told {
        // Of an observation.
        TargetEnded =>
            "the target ended; what was sampled until then is here";
        LaneOffline { cpu: u32 = 3 } =>
            "CPU {cpu} went offline; what was sampled until then is here";
        SignalGone { signal: String = "lane".to_owned(), why: String = "its process has ended".to_owned() } =>
            "signal {signal} could no longer be read: {why}; what was sampled until then is here";
        ClockUncertain =>
            "the time stamp counter may change its pace: neither the processor nor its hypervisor says that it ticks \
             alike in all states";
        UsualLeftOut { signal: &'static str = "request", why: String = "it listens at no port".to_owned() } =>
            "{signal} not observed, unless named with --signal: {why}";
        Replayed { log: String = "/tmp/log".to_owned() } =>
            "read from the log {log}, on a machine that may be another one";
        LogUnreadable { error: String = "Input/output error".to_owned() } =>
            "the log cannot be read further: {error}; what was recorded before that is here";
        LogCutOff =>
            "the log is cut off within a chunk; what was recorded before that is here";
        LogDamaged =>
            "the head of a chunk of the log is damaged; what was recorded before that is here";

        // Of a session.
        ServiceCameBack { target: Target = Target::Port(6379) } =>
            "{target} came back as another process and is looked after again";

        // Of interference.
        EventsFrom { processors: &'static str = "Zen 4", source: &'static str = "AMD's manual" } =>
            "events of {processors} ({source})";

        // Of the agent: errors, and what is lacking, say themselves what to do.
        Lacking { what: String = "batch /batch: there is no such group".to_owned() } =>
            "{what}";
        Failed { what: String = "cannot place the service on CPUs 0-1: Operation not permitted".to_owned() } =>
            "{what}";

        // Of an experiment.
        DeclaredPair =>
            "lanes: a declared pair of CPUs that share no core; the explanation says what is real";
        EmulatedSibling { service_loss: u64 = 40, batch_loss: u64 = 29 } =>
            "sibling: emulated. While both lanes work the service loses {service_loss} % to batch, and batch \
             {batch_loss} % to the service: the lab's programs spin for as long; from others a real-time thread takes \
             it in slices of 0.5 to 2 ms. --sibling none switches it off";
        EmulatedSiblingInside { service_loss: u64 = 40, batch_loss: u64 = 29 } =>
            "sibling: emulated. While both lanes work the service loses {service_loss} % to batch, and batch \
             {batch_loss} % to the service: programs of the lab, and servers with its library, spin for as long and make \
             page faults, which stand in for stalls. --sibling none switches it off";
        EmulatedSiblingByThief { service_loss: u64 = 40, batch_loss: u64 = 29 } =>
            "sibling: emulated. While both lanes work the service loses {service_loss} % to batch, and batch \
             {batch_loss} % to the service: a real-time thread on each lane takes that, in slices of 0.5 to 2 ms. \
             --sibling none switches it off";
        ClientOnLittleCore =>
            "client: without a third core the client shares the little core, at a real-time priority above everything";
        EmulatedLittleCore { cpu: u32 = 1, loss: u64 = 69 } =>
            "CPU {cpu} is an emulated little core: the service's threads lose {loss} % of the time that they are there, by \
             spinning for as long at the end of each request. --slow-cpu none switches it off";
        EmulatedLittleCoreByThief { cpu: u32 = 1, loss: u64 = 69 } =>
            "CPU {cpu} is an emulated little core: a real-time thread takes {loss} % of it while programs want it, in \
             slices of 0.5 to 2 ms. --slow-cpu none switches it off";
        GuardMetric { metric: String = "harm".to_owned() } =>
            "interference was told from {metric}; the paper tells it from counters of the processor (VPI)";
        FewCpus { cpus: u64 = 2 } =>
            "{cpus} CPUs: PerfIso keeps one of them idle, and Holmes reserves one, so that each has a single CPU to give \
             to batch or not; the paper's machine had 64";
        FreezerEmulated =>
            "cgroup freezer: emulated, as borrow idle that evicts at each hold (evict_after 0): the holder takes the \
             lane, freezes batch and leaves";
        NapsUncounted =>
            "naps: without hardware counters of both lanes it stays unseen that a napping lane gives up its resources \
             (the paper counts its µops)";
        NapsBegin =>
            "naps: asleep means that T2's last store before its nap was seen, or that the scheduler had stopped its \
             clock (futex), or that its heartbeat ceased (freezer, SIGSTOP, affinity); awake is its first store after";
        NapsOfHolder =>
            "naps: the lane holder's figures are the kernel's: from the service running to batch off, 0 where batch \
             was off before, and from the service's stop to batch back";
        In { setting: &'static str = "borrow idle", note: Box<Note> = Box::new(Note::Leaks { times: 3 }) } =>
            "{setting}: {note}";

        // Of a simulation.
        Simulated =>
            "simulated: every number here comes from a model of a machine that ran the policies' own code; none was \
             measured";
        SimulatedRows =>
            "rows named `simulated` come from a model; the others were measured";
        FaultsInjected { faults: String = "late wake-ups, lost summons".to_owned() } =>
            "faults were injected: {faults}";
        Overload { refused: u64 = 7 } =>
            "overload: {refused} requests found the queue full and were refused; latencies are of the rest";

        // Of a machine.
        Cpus { layout: String = "4 CPUs, 1 socket, no SMT".to_owned() } =>
            "{layout}";
        Nap { by: String = "PAUSE loop".to_owned() } =>
            "nap: {by}";
    }
}

impl Note {
    /// As it is told among notes of other settings. What is the machine's is the same in all of them.
    pub fn in_setting(self, setting: &'static str) -> Note {
        match self {
            Note::NoFreezer | Note::NoCpuset | Note::NoGroupsForCommand | Note::HarmWithoutCounters { .. } => self,
            Note::TermsUnknown { .. } | Note::TermsVague { .. } | Note::In { .. } => self,
            note => Note::In { setting, note: Box::new(note) },
        }
    }
}

impl Note {
    /// What becomes of batch after what was found of its cost to `service`. Nothing where a step was taken back.
    pub fn of_worth(service: String, worth: Worth, found: Verdict) -> Option<Note> {
        let Verdict::Beyond { percentile, ratio } = found else { return None };
        let [_, percent, _] = ratio.percent_longer();
        let (percentile, percent) = (percentile.round() as u64, percent.max(0.0).round() as u64);
        Some(match worth {
            Worth::Never => Note::KeptOff { service, percent, percentile },
            Worth::AfterIdle(ns) => Note::SlowsDown { service, percent, percentile, idle_us: ns / 1_000 },
        })
    }

    /// Returns the note that explains overlap best: where batch escaped or could not be sent off, the surest first.
    pub fn explaining<'a>(notes: impl IntoIterator<Item = &'a Note>) -> Option<&'a Note> {
        let explaining = notes.into_iter().filter_map(|note| Some((note.overlap_rank()?, note)));
        explaining.min_by_key(|(rank, _)| *rank).map(|(_, note)| note)
    }

    fn overlap_rank(&self) -> Option<usize> {
        Some(match self {
            Note::BatchRaised { .. }
            | Note::KeeperLowered { .. }
            | Note::WatchdogLowered
            | Note::BatchOutranked { .. }
            | Note::BatchNotStopped { .. }
            | Note::BatchStopped { .. }
            | Note::LanesWithheld { .. }
            | Note::BatchInDeadline { .. }
            | Note::BatchStayed { .. }
            | Note::BatchKept { .. } => 0,
            Note::SchedulerPutOut { .. } => 1,
            Note::LeftSchedulerClass => 2,
            Note::EvictionsFailed { .. } => 3,
            Note::RealtimeAllowed => 4,
            Note::Leaks { .. } => 5,
            Note::PromisesBroken { .. } => 6,
            Note::ExcusesNotBelieved { .. } => 7,
            Note::BatchLeftGroup => 8,
            Note::BatchWidened { .. } | Note::BatchStrays { .. } => 9,
            Note::NotUrgent { .. } => 10,
            Note::SwitchesUntold { .. } => 11,
            _ => return None,
        })
    }

    /// Says that an audit log cannot be written now.
    pub fn of_failing_audit(log: &str, state: &AuditState) -> Option<Self> {
        let error = state.error.clone()?;
        Some(Note::AuditFails { log: log.to_owned(), error })
    }

    /// Says what became of an audit log: that it cannot be written, and how many lines are lost.
    pub fn of_audit(log: &str, state: &AuditState) -> impl Iterator<Item = Self> {
        let lost = Note::AuditLinesLost { log: log.to_owned(), lines: state.lost_lines };
        Self::of_failing_audit(log, state).into_iter().chain((state.lost_lines > 0).then_some(lost))
    }

    /// Whether it is about an audit log.
    pub fn is_of_audit(&self) -> bool {
        matches!(self, Note::AuditFails { .. } | Note::AuditLinesLost { .. })
    }

    /// Whether it is about a service of the agent, and over when that has gone.
    pub fn is_of_service(&self, of: &str) -> bool {
        match self {
            Note::SlowsDown { service, .. } | Note::KeptOff { service, .. } | Note::CostUnknown { service, .. } => {
                service == of
            }
            Note::OtherSockets { service, .. } | Note::HarmUnknown { service, .. } => service == of,
            Note::NoLaneBeside { service, .. } | Note::NotPlaced { service, .. } => service == of,
            Note::LanesLentAsBefore { service } => service == of,
            _ => false,
        }
    }

    /// Whether it says that the requests of the service `of` cannot be seen.
    pub fn is_of_unseen_requests(&self, of: &str) -> bool {
        matches!(self, Note::HarmUnknown { service, .. } | Note::CostUnknown { service, .. } if service == of)
    }

    /// Whether it says that the container `of` may have fewer CPUs than before.
    pub fn is_of_bounds(&self, of: &str) -> bool {
        matches!(self, Note::BoundsNarrowed { container, .. } if container == of)
    }

    /// Why harm says nothing of a service.
    pub fn of_silence(silence: Silence, service: String) -> Self {
        match silence {
            Silence::NoSiblings => Note::HarmWithoutSiblings { service },
            Silence::NoBaseline => Note::HarmWithoutBaseline { service },
            Silence::Between => Note::HarmBetween { service },
        }
    }

    /// Whether it says why harm says nothing of a service.
    pub fn is_of_silence(&self) -> bool {
        matches!(self, Note::HarmWithoutSiblings { .. } | Note::HarmWithoutBaseline { .. } | Note::HarmBetween { .. })
    }

    /// Whether it says when batch may have the lanes of the service `of`.
    pub fn is_worth_of(&self, of: &str) -> bool {
        matches!(self, Note::SlowsDown { service, .. } | Note::KeptOff { service, .. } if service == of)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (what, Some(advice)) => write!(f, "{what}; {advice}"),
            (what, None) => f.write_str(&what),
        }
    }
}

/// As a result has them.
pub fn written<'a>(notes: impl IntoIterator<Item = &'a Note>) -> Vec<String> {
    notes.into_iter().map(Note::to_string).collect()
}

/// A service level objective, as it is written on the command line.
#[derive(Clone, Copy, Debug)]
pub struct Slo(pub Objective);

impl Slo {
    #[cfg(test)]
    fn example() -> Self {
        Self(Objective { percentile: 99.9, limit_ns: 1_500_000 })
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}={:?}", self.0.percentile, Duration::from_nanos(self.0.limit_ns))
    }
}

impl Ord for Slo {
    fn cmp(&self, other: &Self) -> Ordering {
        let (one, other) = (self.0, other.0);
        one.percentile.total_cmp(&other.percentile).then(one.limit_ns.cmp(&other.limit_ns))
    }
}

impl PartialOrd for Slo {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Slo {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Slo {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const CHARACTERS_MAX: usize = 300;

    #[test]
    fn each_note_is_a_short_sentence_that_names_its_values() {
        for note in Note::examples() {
            let text = note.to_string();
            assert!(!text.ends_with('.') && !text.contains("  ") && text.trim() == text, "{text}");
            assert!(text.chars().count() <= CHARACTERS_MAX, "{} characters: {text}", text.chars().count());
            assert!(!text.contains(['{', '}', '\n']), "{text}");
        }
    }

    #[test]
    fn what_is_degraded_ends_with_what_to_do() {
        let degraded: Vec<(String, String)> =
            Note::examples().iter().filter_map(|note| Some((note.to_string(), note.parts().1?))).collect();
        assert!(!degraded.is_empty());
        for (text, advice) in degraded {
            assert!(advice.split(' ').count() >= 3 && text.ends_with(&format!("; {advice}")), "{text}");
        }
    }

    #[test]
    fn overlap_is_explained_by_the_surest_note() {
        let notes = [Note::GuardianEnded, Note::Leaks { times: 9 }, Note::RealtimeAllowed];
        assert_eq!(Note::explaining(&notes), Some(&Note::RealtimeAllowed));
        let raised = Note::BatchRaised { thread: "\"spin\" (7)".into() };
        assert_eq!(Note::explaining(notes.iter().chain([&raised])), Some(&raised));
        assert_eq!(Note::explaining(&notes[..1]), None, "the guardian keeps no lane");
    }

    #[test]
    fn notes_of_one_value_are_one() {
        let late = |percentile| Note::Late { slo: Slo(Objective { percentile, limit_ns: 5_000_000 }) };
        let notes = BTreeSet::from([late(99.0), late(99.0), late(99.9), Note::GuardianEnded, Note::GuardianEnded]);
        assert_eq!(notes.len(), 3);
        assert!(written(&notes)[0].starts_with("the service was beyond p99=5ms; "), "{:?}", written(&notes));
    }

    #[test]
    fn of_a_setting_is_told_what_is_not_the_machines() {
        let told = |note: Note| note.in_setting("borrow idle").to_string();
        assert!(told(Note::Leaks { times: 2 }).starts_with("borrow idle: the kernel let batch run 2 times"));
        assert!(told(Note::NoFreezer).starts_with("no cgroup freezer"));
        let learned = Note::TermsUnknown { setting: "deadline", load_s: 3 };
        assert!(told(learned).starts_with("deadline: 3 s"));
    }
}
