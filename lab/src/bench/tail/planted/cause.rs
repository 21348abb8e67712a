//! The planted causes, and the statement that a trace should make on requests with each cause.

use sidelane_timeline::cause::Cause;
use sidelane_timeline::record::Kinds;

use crate::bench::tail::traced::Batch;
use sidelane_stats::rounds::RoundOptions;

/// Delay of a planted request in milliseconds, twice as long as the threshold for slow requests.
pub(super) const DELAY_MS: &str = "20";
pub(super) const SLOW_NS: u64 = 10_000_000;

/// Statement of a trace on a slow request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attribution {
    /// This cause explains most of the time by which the request is slower than normal.
    Cause(Cause),
    /// The client left before there was a response.
    Abandoned,
}

impl Attribution {
    /// Returns the text of the statement for people.
    pub(super) fn text(self) -> &'static str {
        match self {
            Attribution::Cause(cause) => cause.name(),
            Attribution::Abandoned => "abandoned by the client",
        }
    }

    /// Returns whether a trace can make the statement if only `recorded` can be recorded.
    pub(super) fn is_detectable(self, recorded: Kinds) -> bool {
        match self {
            Attribution::Cause(cause) => cause.is_detectable(recorded),
            Attribution::Abandoned => true,
        }
    }
}

/// Cause of slowness that the bench injects (plants), with the statement that a trace should make about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlantedCause {
    /// Name of the cause in the lab.
    pub(super) name: &'static str,
    /// Statement that a trace should make on planted requests.
    pub(super) claim: Attribution,
    /// Program in which the cause is planted.
    pub(super) place: PlantedProgram,
}

/// Program into which a cause of slowness is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlantedProgram {
    /// The cause is planted in the lab's service `plant`.
    Service,
    /// The cause is planted in the lab's service, in fewer requests than other causes, since each planted request takes
    /// a second.
    Seldom,
    /// The cause is planted in the lab's service, beside batch of this process name.
    Beside(Batch),
    /// The cause is planted in the lab's service, with these options of the client.
    Client(&'static [&'static str]),
    /// The cause is planted in the lab's service, for a distant client that sends to this address.
    Far(&'static str),
    /// The cause is planted in the search server over Lucene, by requests of this path.
    Lucene(&'static str),
}

const fn planted_cause(name: &'static str, cause: Cause, place: PlantedProgram) -> PlantedCause {
    PlantedCause { name, claim: Attribution::Cause(cause), place }
}

impl PlantedCause {
    /// All planted causes.
    ///
    /// The list has no stolen time: a SCHED_FIFO thread cannot stand in for the host, since the kernel sees which
    /// thread has the CPU.
    pub(super) const ALL: &[PlantedCause] = &[
        planted_cause("nagle", Cause::Nagle, PlantedProgram::Service),
        planted_cause("faults", Cause::PageFault, PlantedProgram::Service),
        planted_cause("hog", Cause::RunQueue, PlantedProgram::Service),
        planted_cause("real-time", Cause::RunQueue, PlantedProgram::Service),
        planted_cause("sibling", Cause::Sibling, PlantedProgram::Beside(Batch("plant-batch"))),
        planted_cause("throttle", Cause::Throttled, PlantedProgram::Service),
        planted_cause("lock", Cause::Lock, PlantedProgram::Service),
        planted_cause("file-lock", Cause::Lock, PlantedProgram::Service),
        planted_cause("disk", Cause::Disk, PlantedProgram::Service),
        planted_cause("migrate", Cause::Migration, PlantedProgram::Service),
        planted_cause("stop", Cause::Frozen, PlantedProgram::Service),
        planted_cause("freeze", Cause::Frozen, PlantedProgram::Service),
        planted_cause("hand-over", Cause::HandOver, PlantedProgram::Service),
        planted_cause("condition", Cause::HandOver, PlantedProgram::Service),
        planted_cause("sleep", Cause::Timer, PlantedProgram::Service),
        planted_cause("event-loop", Cause::Inside, PlantedProgram::Client(&["--twin"])),
        planted_cause("downstream", Cause::Downstream, PlantedProgram::Service),
        planted_cause("downstream-http", Cause::Downstream, PlantedProgram::Service),
        planted_cause("downstream-grpc", Cause::Downstream, PlantedProgram::Service),
        planted_cause("unix-socket", Cause::Downstream, PlantedProgram::Service),
        planted_cause("late-answer", Cause::Downstream, PlantedProgram::Service),
        planted_cause("no-answer", Cause::NoAnswer, PlantedProgram::Service),
        planted_cause("connect", Cause::Connect, PlantedProgram::Seldom),
        planted_cause("full-pipe", Cause::Full, PlantedProgram::Service),
        // The client drops the segments of the first 10 ms, which the service's kernel sends again.
        planted_cause("retransmit", Cause::Retransmission, PlantedProgram::Client(&["--lose-ms", "10"])),
        // The client's receive buffer is smaller than the response.
        planted_cause(
            "slow-reader",
            Cause::SlowReader,
            PlantedProgram::Client(&["--read-after-ms", DELAY_MS, "--receive-buffer", "131072"]),
        ),
        planted_cause(
            "small-window",
            Cause::SlowReader,
            PlantedProgram::Client(&["--read-after-ms", DELAY_MS, "--receive-buffer", "4096"]),
        ),
        planted_cause("congestion-window", Cause::CongestionWindow, PlantedProgram::Far("198.18.77.2")),
        PlantedCause {
            name: "abandoned",
            claim: Attribution::Abandoned,
            place: PlantedProgram::Client(&["--leave-after-ms", DELAY_MS]),
        },
        planted_cause("jvm-gc", Cause::Collection, PlantedProgram::Lucene("/gc")),
    ];

    /// Causes planted with `--quick`: of the network, of the CPU, of a quota, of the service itself, of other processes
    /// and services, of the client.
    const QUICK: [&str; 14] = [
        "nagle",
        "hog",
        "throttle",
        "lock",
        "file-lock",
        "condition",
        "event-loop",
        "unix-socket",
        "no-answer",
        "connect",
        "full-pipe",
        "slow-reader",
        "small-window",
        "abandoned",
    ];

    /// Returns the causes to plant; with `--quick` a few of them.
    pub(super) fn chosen(round_options: RoundOptions) -> Vec<&'static PlantedCause> {
        let is_chosen = |planted: &&PlantedCause| !round_options.quick || Self::QUICK.contains(&planted.name);
        Self::ALL.iter().filter(is_chosen).collect()
    }
}
