//! Notes of the agent.

use sidelane_diagnostics::diagnostics;
use sidelane_diagnostics::note::Note;
use sidelane_lanes::note::LaneNote;
use sidelane_policy::cpus::Inconclusive;
use sidelane_requests::RequestNote;

diagnostics! {
    /// Note of the agent.
    pub enum AgentNote in Agent;
    degraded {
        // Of the agent.
        HarmUnknown { service: String = "redis".to_owned(), why: String = "it listens at no TCP port".to_owned() } =>
            "interference with {service} is not known: {why}",
            "see what sidelane requests shows of it";
        HarmWithoutSiblings { service: String = "redis".to_owned() } =>
            "interference with {service} is not known: none of the CPUs on which it runs has a sibling",
            "name CPUs that disturb each other in policy.siblings, or choose kind = \"perfiso\"";
        HarmWithoutBaseline { service: String = "redis".to_owned() } =>
            "interference with {service} is not known: batch has been beside all of its requests, so none can be \
             compared with those alone",
            "pause batch for some seconds, or run where the processor's counters can be used";
        HarmBetween { service: String = "redis".to_owned() } =>
            "interference with {service} is not known: batch has more than 5 % and less than half of the time of its \
             siblings, so its requests are neither alone nor beside batch",
            "confine it to one CPU of each core, or run where the processor's counters can be used";
        LatencyForCounters =>
            "metric: nothing can be counted here, so that interference is told from the services' own request times, \
             and batch has to disturb some requests first",
            "run where the processor's counters can be used";
        ThresholdOfNearestEvents { threshold: String = "40".to_owned(), processors: &'static str = "Zen 2" } =>
            "interference_threshold is {threshold}, the paper's, and {processors} counts only what comes nearest to \
             the paper's events",
            "find it with sidelane calibrate, and write it in [policy]";
        ThresholdOfGivenEvents { threshold: String = "40".to_owned(), formula: String = "page-faults / task-clock".to_owned() } =>
            "interference_threshold is {threshold}, which the paper has for its own events, and interference is \
             {formula}, as the file gives it",
            "find it with sidelane calibrate --events '{formula}', and write it in [policy]";
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
            "the agent places it as soon as no other process moves its threads";
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
            "CPUs {cpus} are not watched, and are given to no batch: the agent knows the first 512",
            "leave them to services, by their groups' lists of CPUs";
        RequestsAtTheStart =>
            "a service has an objective now, and requests are not tracked: whether they are is decided at the start",
            "restart the agent to have its attainment";
        ReadAtTheStart { tables: String = "[metric], [audit]".to_owned() } =>
            "the file has changed {tables}, which the agent reads at its start alone: it goes on with what was there",
            "restart the agent to have them take effect";
    }
    told {
        // Of the agent: errors, and what is lacking, say themselves what to do.
        Lacking { what: String = "batch /batch: there is no such group".to_owned() } =>
            "{what}";
        Failed { what: String = "cannot place the service on CPUs 0-1: Operation not permitted".to_owned() } =>
            "{what}";
    }
}

impl AgentNote {
    /// Returns the note on why interference with a service is unknown.
    pub(crate) fn of_silence(silence: Inconclusive, service: String) -> Self {
        match silence {
            Inconclusive::NoSiblings => Self::HarmWithoutSiblings { service },
            Inconclusive::NoBaseline => Self::HarmWithoutBaseline { service },
            Inconclusive::Between => Self::HarmBetween { service },
        }
    }

    /// Returns whether the note says why interference with a service is unknown.
    pub(crate) fn is_of_silence(&self) -> bool {
        matches!(self, Self::HarmWithoutSiblings { .. } | Self::HarmWithoutBaseline { .. } | Self::HarmBetween { .. })
    }
}

/// Returns whether `note` is about the agent's service `of`, and ends with it.
pub(crate) fn is_of_service(note: &Note, of: &str) -> bool {
    let is_own = |note: &AgentNote| match note {
        AgentNote::HarmUnknown { service, .. } | AgentNote::NoLaneBeside { service, .. } => service == of,
        AgentNote::NotPlaced { service, .. } | AgentNote::LanesLentAsBefore { service } => service == of,
        _ => false,
    };
    note.is(is_own)
        || note.is(|note: &LaneNote| note.is_of_idle_threshold(of) || note.is_unknown_cost_of(of))
        || note.is(|note| matches!(note, RequestNote::OtherSockets { service, .. } if service == of))
}

/// Returns whether `note` says that the requests of the service `of` cannot be seen.
pub(crate) fn is_of_unseen_requests(note: &Note, of: &str) -> bool {
    note.is(|note| matches!(note, AgentNote::HarmUnknown { service, .. } if service == of))
        || note.is(|note: &LaneNote| note.is_unknown_cost_of(of))
}
