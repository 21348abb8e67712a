//! What is planted, and what it should be called.

use sidelane_tale::cause::Cause;

use crate::bench::rounds::Patience;
use crate::bench::tail::traced::Batch;

/// Of a planted request; twice as long as what counts as slow.
pub(super) const DELAY_MS: u64 = 20;
pub(super) const SLOW_NS: u64 = DELAY_MS * 1_000_000 / 2;

/// A cause that is planted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Planted {
    /// The lab's name of it.
    pub(super) name: &'static str,
    /// What a diagnosis should say.
    pub(super) cause: Cause,
    /// Where it is planted.
    pub(super) place: Place,
}

/// Where a cause is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the lab's service of that name
    Service,
    /// There, beside batch of that name
    Beside(Batch),
    /// There, and the client loses the first response
    Loss,
    /// There, and the client reads the response late
    LateReader,
    /// In the search server over Lucene, by requests of that path
    Lucene(&'static str),
}

const fn planted(name: &'static str, cause: Cause) -> Planted {
    Planted { name, cause, place: Place::Service }
}

impl Planted {
    /// All of them.
    ///
    /// A thief of SCHED_FIFO is not called stolen time: the kernel sees who it is.
    pub(super) const ALL: &[Planted] = &[
        planted("nagle", Cause::Nagle),
        planted("faults", Cause::PageFault),
        planted("hog", Cause::RunQueue),
        planted("thief", Cause::RunQueue),
        Planted { name: "sibling", cause: Cause::Sibling, place: Place::Beside(Batch("plant-batch")) },
        planted("throttle", Cause::Throttled),
        planted("lock", Cause::Lock),
        planted("disk", Cause::Disk),
        planted("migrate", Cause::Migration),
        planted("stop", Cause::Frozen),
        planted("freeze", Cause::Frozen),
        planted("hand-over", Cause::HandOver),
        planted("downstream", Cause::Downstream),
        planted("downstream-http", Cause::Downstream),
        planted("downstream-grpc", Cause::Downstream),
        Planted { name: "retransmit", cause: Cause::Retransmission, place: Place::Loss },
        Planted { name: "slow-reader", cause: Cause::SlowReader, place: Place::LateReader },
        Planted { name: "jvm-gc", cause: Cause::Collection, place: Place::Lucene("/gc") },
    ];

    /// Causes of a first look: of the network, of the CPU, of a quota, of the service itself.
    const QUICK: [&str; 4] = ["nagle", "hog", "throttle", "lock"];

    /// Those that are planted: in a hurry a few.
    pub(super) fn chosen(patience: Patience) -> Vec<&'static Planted> {
        let is_chosen = |planted: &&Planted| !patience.quick || Self::QUICK.contains(&planted.name);
        Self::ALL.iter().filter(is_chosen).collect()
    }
}
