//! Planted causes, and the name that a trace should give each.

use sidelane_timeline::cause::Cause;
use sidelane_timeline::record::Kinds;

use crate::bench::tail::traced::Batch;
use sidelane_stats::rounds::RoundOptions;

/// How long a planted request is disturbed, in milliseconds; twice as long as what counts as slow.
pub(super) const DELAY_MS: &str = "20";
pub(super) const SLOW_NS: u64 = 10_000_000;

/// Statement of a trace on a slow request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// Most of its time above the normal went to this
    Cause(Cause),
    /// Its client left before there was a response
    Abandoned,
}

impl Claim {
    /// Returns its name for people.
    pub(super) fn text(self) -> &'static str {
        match self {
            Claim::Cause(cause) => cause.words(),
            Claim::Abandoned => "abandoned by the client",
        }
    }

    /// Whether it can be told where only `recorded` can be recorded.
    pub(super) fn can_be_told(self, recorded: Kinds) -> bool {
        match self {
            Claim::Cause(cause) => cause.can_be_told(recorded),
            Claim::Abandoned => true,
        }
    }
}

/// A cause that is planted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Planted {
    /// The lab's name of it.
    pub(super) name: &'static str,
    /// The expected statement of a trace.
    pub(super) claim: Claim,
    /// The program in which it is planted.
    pub(super) place: PlantedProgram,
}

/// The program in which a cause is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlantedProgram {
    /// In the lab's service of that name
    Service,
    /// There, and each takes a second
    Seldom,
    /// There, beside batch of that name
    Beside(Batch),
    /// There, with these options of the client
    Client(&'static [&'static str]),
    /// There, for a client that is far and asks at that address
    Far(&'static str),
    /// In the search server over Lucene, by requests of that path
    Lucene(&'static str),
}

const fn planted(name: &'static str, cause: Cause, place: PlantedProgram) -> Planted {
    Planted { name, claim: Claim::Cause(cause), place }
}

impl Planted {
    /// All planted causes.
    ///
    /// A thief of SCHED_FIFO is not stolen time: the kernel sees which thread it is.
    pub(super) const ALL: &[Planted] = &[
        planted("nagle", Cause::Nagle, PlantedProgram::Service),
        planted("faults", Cause::PageFault, PlantedProgram::Service),
        planted("hog", Cause::RunQueue, PlantedProgram::Service),
        planted("thief", Cause::RunQueue, PlantedProgram::Service),
        planted("sibling", Cause::Sibling, PlantedProgram::Beside(Batch("plant-batch"))),
        planted("throttle", Cause::Throttled, PlantedProgram::Service),
        planted("lock", Cause::Lock, PlantedProgram::Service),
        planted("file-lock", Cause::Lock, PlantedProgram::Service),
        planted("disk", Cause::Disk, PlantedProgram::Service),
        planted("migrate", Cause::Migration, PlantedProgram::Service),
        planted("stop", Cause::Frozen, PlantedProgram::Service),
        planted("freeze", Cause::Frozen, PlantedProgram::Service),
        planted("hand-over", Cause::HandOver, PlantedProgram::Service),
        planted("condition", Cause::HandOver, PlantedProgram::Service),
        planted("sleep", Cause::Timer, PlantedProgram::Service),
        planted("event-loop", Cause::Inside, PlantedProgram::Client(&["--twin"])),
        planted("downstream", Cause::Downstream, PlantedProgram::Service),
        planted("downstream-http", Cause::Downstream, PlantedProgram::Service),
        planted("downstream-grpc", Cause::Downstream, PlantedProgram::Service),
        planted("unix-socket", Cause::Downstream, PlantedProgram::Service),
        planted("late-answer", Cause::Downstream, PlantedProgram::Service),
        planted("no-answer", Cause::NoAnswer, PlantedProgram::Service),
        planted("connect", Cause::Connect, PlantedProgram::Seldom),
        planted("full-pipe", Cause::Full, PlantedProgram::Service),
        // Segments of the first milliseconds are lost and sent again.
        planted("retransmit", Cause::Retransmission, PlantedProgram::Client(&["--lose-ms", "10"])),
        // A buffer smaller than the response.
        planted(
            "slow-reader",
            Cause::SlowReader,
            PlantedProgram::Client(&["--read-after-ms", DELAY_MS, "--receive-buffer", "131072"]),
        ),
        planted(
            "small-window",
            Cause::SlowReader,
            PlantedProgram::Client(&["--read-after-ms", DELAY_MS, "--receive-buffer", "4096"]),
        ),
        planted("congestion-window", Cause::CongestionWindow, PlantedProgram::Far("198.18.77.2")),
        Planted {
            name: "abandoned",
            claim: Claim::Abandoned,
            place: PlantedProgram::Client(&["--leave-after-ms", DELAY_MS]),
        },
        planted("jvm-gc", Cause::Collection, PlantedProgram::Lucene("/gc")),
    ];

    /// Causes of a first look: of the network, of the CPU, of a quota, of the service itself, of other processes and
    /// services, of the client.
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

    /// Those that are planted: in a hurry a few.
    pub(super) fn chosen(patience: RoundOptions) -> Vec<&'static Planted> {
        let is_chosen = |planted: &&Planted| !patience.quick || Self::QUICK.contains(&planted.name);
        Self::ALL.iter().filter(is_chosen).collect()
    }
}
