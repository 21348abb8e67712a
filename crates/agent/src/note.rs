//! Notes of the agent on what is degraded or failed.

use sidelane_diagnostics::diagnostics;
use sidelane_diagnostics::note::Note;
use sidelane_lanes::note::LaneNote;
use sidelane_policy::cpus::Inconclusive;
use sidelane_requests::RequestNote;

diagnostics! {
    /// Note of the agent.
    pub enum AgentNote in Agent;
    degraded {
        // Notes of the agent on degraded measurements.
        InterferenceUnknown { service: String = "redis".to_owned(), why: String = "it listens at no TCP port".to_owned() } =>
            "interference with service {service} is not known: {why}",
            "run `sidelane requests` for this service";
        InterferenceWithoutSiblings { service: String = "redis".to_owned() } =>
            "interference with service {service} is not known: its CPUs have no siblings",
            "name CPUs that disturb each other as siblings in [policy], or write kind = \"perfiso\"";
        InterferenceWithoutBaseline { service: String = "redis".to_owned() } =>
            "interference with service {service} is not known: batch ran beside all of its requests, so there are none \
             without batch to compare with",
            "pause batch for some seconds, or use a machine with hardware counters";
        InterferenceBetween { service: String = "redis".to_owned() } =>
            "interference with service {service} is not known: batch runs for 5 % to 50 % of the time on the siblings \
             of its CPUs, so its requests count neither as alone nor as beside batch",
            "confine the service to one CPU of each core, or use a machine with hardware counters";
        LatencyForCounters =>
            "this machine has no hardware counters, so interference is taken from request times: batch delays some \
             requests before it is noticed",
            "use a machine with hardware counters";
        ThresholdOfNearestEvents { threshold: String = "40".to_owned(), processors: &'static str = "Zen 2" } =>
            "interference_threshold is {threshold}, a value for other events: {processors} has only similar ones",
            "find the threshold with `sidelane calibrate`, and write it in [policy]";
        ThresholdOfGivenEvents { threshold: String = "40".to_owned(), formula: String = "page-faults / task-clock".to_owned() } =>
            "interference_threshold is {threshold}, a value for other events: the file gives the formula {formula}",
            "find the threshold with `sidelane calibrate --events '{formula}'`, and write it in [policy]";
        CountersShared { cpu: u32 = 3, percent: u64 = 40 } =>
            "other programs used the counters of CPU {cpu} for up to {percent} % of the time; interference in that \
             time was not seen",
            "end these programs, such as perf or the NMI watchdog (sysctl kernel.nmi_watchdog=0)";
        NoCpuList { container: String = "/batch/a".to_owned() } =>
            "container {container} has no list of CPUs (cpuset) in its cgroup, so the agent sets the CPU affinity of \
             each of its threads",
            "enable the cpuset controller for its cgroup (+cpuset in cgroup.subtree_control of the cgroup above)";
        NoPause { container: String = "/batch/a".to_owned() } =>
            "container {container} cannot be paused, because it has no freezer: in place of a pause it runs on the CPU \
             where it disturbs services least",
            "put it into a group of cgroup v2, or of the freezer of v1";
        BoundsNarrowed { container: String = "/batch/a".to_owned(), cpus: String = "0-3".to_owned() } =>
            "container {container} can have CPUs {cpus} only, because a group above it has no others now",
            "give that group more CPUs (systemd: AllowedCPUs=) if batch needs them";
        Incomplete { container: String = "/batch/a".to_owned() } =>
            "container {container} cannot be managed yet: its cpuset hierarchy is not mounted, or its processes are in \
             different groups",
            "mount the hierarchy again, or move its processes to one group";
        NotBornConfined {
            group: String = "/kubepods/besteffort".to_owned(),
            why: String = "it has no list of CPUs (cpuset)".to_owned()
        } =>
            "new batch in {group} runs on all CPUs of that group until the agent finds it: {why}",
            "give the group the cpuset controller, and give pods that are not batch a CPU request";
        ServicesLeftOut {
            count: usize = 2,
            most: usize = 63,
            services: String = "default/web-1, default/web-2".to_owned()
        } =>
            "{count} service(s) are not managed, because the limit of {most} is reached: {services}",
            "name the most important services first in the file, and exclude others";
        NotesLeftOut =>
            "older notes were dropped: more came than are kept",
            "read them in the audit log, or in the agent's standard error";
        NoLaneBeside { service: String = "redis".to_owned(), cpus: String = "0-3".to_owned() } =>
            "no lane is lent beside service {service}: it may run on CPUs {cpus}, which leave no sibling free",
            "confine it to one CPU of each core before the agent finds it, or write may_be_placed = true";
        NotRecorded { service: String = "redis".to_owned(), why: String = "the kernel is too old".to_owned() } =>
            "the flight recorder of {service} has ended: {why}",
            "run `sidelane trace` for this service, then send the agent SIGHUP";
        RecordingUnwritten { service: String = "redis".to_owned(), why: String = "No space left on device".to_owned() } =>
            "a recording of {service} could not be written and is lost: {why}",
            "free space in that directory; the recorder goes on";
        RequestsUnexported {
            service: String = "redis".to_owned(),
            why: String = "cannot send 3 of 3 traces to http://127.0.0.1:4318/v1/traces: Connection refused".to_owned()
        } =>
            "slow requests of {service} were not exported (their recording is written): {why}",
            "export them with `sidelane report` of the recording's log, and --otlp";
        NotMapped { service: String = "redis".to_owned(), why: String = "it listens at no TCP port".to_owned() } =>
            "long requests of service {service} do not move to big cores: {why}",
            "run `sidelane hurry` for this service, then send the agent SIGHUP";
        NotPlaced { service: String = "redis".to_owned(), why: String = "its threads are moved".to_owned() } =>
            "service {service} is not placed: {why}",
            "the agent places the service by itself when that process has ended";
        NoBigCores { why: String = "all cores are equal (cpu_capacity: missing)".to_owned() } =>
            "no request moves to a big core: {why}",
            "in [hurry] write big and little, as in big = \"0-3\", little = \"4-7\", or siblings = true if cores have \
             several lanes; or leave [hurry] out";
        NoSiblings =>
            "no request moves to a big core: no core of this machine has several lanes",
            "leave siblings out of [hurry], or name CPUs of one core in [policy], as in siblings = [\"0,4\", \"1,5\"]";
        LanesLentAsBefore { service: String = "redis".to_owned() } =>
            "lanes beside service {service} are lent by the old policy: its new objective needs another policy, which \
             the agent chooses only at its start",
            "restart the agent";
        CpusBeyond { cpus: String = "512-639".to_owned() } =>
            "CPUs {cpus} are not watched, and batch does not get them: the agent knows CPUs 0 to 511 only",
            "give them to services, with the cpuset of their groups";
        RequestsAtTheStart =>
            "a service has an objective now, but requests are not tracked: the agent decides that only at its start",
            "restart the agent to measure the objective";
        ReadAtTheStart { tables: String = "[metric], [audit]".to_owned() } =>
            "the file has changed {tables}, which the agent reads only at its start: the old values stay in effect",
            "restart the agent to use the new ones";
    }
    told {
        // Notes whose whole text, with the advice, comes from an error or from a missing thing.
        Lacking { what: String = "batch /batch: there is no such group".to_owned() } =>
            "{what}";
        Failed { what: String = "cannot place the service on CPUs 0-1: Operation not permitted".to_owned() } =>
            "{what}";
    }
}

impl AgentNote {
    /// Returns the note on why interference with a service is unknown.
    pub(crate) fn unknown_interference(reason: Inconclusive, service: String) -> Self {
        match reason {
            Inconclusive::NoSiblings => Self::InterferenceWithoutSiblings { service },
            Inconclusive::NoBaseline => Self::InterferenceWithoutBaseline { service },
            Inconclusive::Between => Self::InterferenceBetween { service },
        }
    }

    /// Returns whether the note gives the reason why interference with a service is unknown.
    pub(crate) fn is_unknown_interference(&self) -> bool {
        matches!(
            self,
            Self::InterferenceWithoutSiblings { .. }
                | Self::InterferenceWithoutBaseline { .. }
                | Self::InterferenceBetween { .. }
        )
    }
}

/// Returns whether `note` is about the agent's service `name`. Such a note is removed with the service.
pub(crate) fn is_about_service(note: &Note, name: &str) -> bool {
    let is_own = |note: &AgentNote| match note {
        AgentNote::InterferenceUnknown { service, .. } | AgentNote::NoLaneBeside { service, .. } => service == name,
        AgentNote::NotPlaced { service, .. } | AgentNote::LanesLentAsBefore { service } => service == name,
        _ => false,
    };
    note.matches(is_own)
        || note.matches(|note: &LaneNote| note.is_about_idle_threshold(name) || note.is_about_unknown_cost(name))
        || note.matches(|note| matches!(note, RequestNote::OtherSockets { service, .. } if service == name))
}

/// Returns whether `note` reports that the requests of the service `name` cannot be seen.
pub(crate) fn is_about_unseen_requests(note: &Note, name: &str) -> bool {
    note.matches(|note| matches!(note, AgentNote::InterferenceUnknown { service, .. } if service == name))
        || note.matches(|note: &LaneNote| note.is_about_unknown_cost(name))
}
