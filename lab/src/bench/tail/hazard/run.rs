//! One run: a proxy before the two servers, and a load.

use anyhow::Result;

use super::timer::Timer;
use crate::bench::tail::lucene::{CONNECTIONS, Load, Lucene, Report};
use crate::bench::tail::proxied::{Done, Proxied, Wanted};
use crate::bench::tail::stage::Stage;

/// Of the proxy: below the client's, above everything else on their CPU.
const PRIORITY: i32 = 70;
/// A server has half of its CPU's time to spare.
const RATE_PER_S: f64 = 400.0;
/// A proxy makes its connections.
const WARM_UP_S: f64 = 0.3;

/// When requests are sent to the backup, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hedging {
    /// Never
    Never,
    /// When a collection begins
    Hazard,
    /// When they have waited for so long
    Timer,
}

impl Hedging {
    pub(super) const ALL: [Self; 3] = [Self::Never, Self::Hazard, Self::Timer];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Never => "none",
            Self::Hazard => "hazard",
            Self::Timer => "timer",
        }
    }
}

/// What was seen in one run.
pub(super) struct Run {
    pub(super) round: u64,
    pub(super) hedging: Hedging,
    pub(super) timer: Option<Timer>,
    pub(super) seen: Report,
    pub(super) done: Done,
}

/// Two warm servers.
pub(super) struct Field<'a> {
    pub(super) stage: &'a Stage<'a>,
    pub(super) lucene: &'a Lucene,
    pub(super) ports: (u32, u32),
    pub(super) seconds: f64,
}

impl Field<'_> {
    /// The runs of a round have the same load.
    pub(super) fn run(&self, hedging: Hedging, timer: Option<Timer>, round: u64) -> Result<Run> {
        let hedge = timer.map_or_else(|| hedging.name().to_owned(), |timer| format!("timer:{}ms", timer.after_ms));
        let hazards = if hedging == Hedging::Hazard { "jvm-gc" } else { "none" };
        let wanted = Wanted { hazards, hedge: &hedge, clients: CONNECTIONS, priority: Some(PRIORITY) };
        let proxy = Proxied::start(self.stage, self.ports, wanted)?;
        let (requests, seed) = (RATE_PER_S * self.seconds, round + 1);
        let load = Load { per_s: RATE_PER_S, warm_up_s: WARM_UP_S, requests, seed };
        let seen = load.send(self.stage, self.lucene, proxy.port())?;
        Ok(Run { round, hedging, timer, seen, done: proxy.end()? })
    }
}

/// Hedges for each request of these runs together.
pub(super) fn share<'a>(runs: impl Iterator<Item = &'a Run>) -> Option<f64> {
    let (hedges, requests) =
        runs.fold((0, 0), |(hedges, requests), run| (hedges + run.done.hedges, requests + run.done.requests));
    (requests > 0).then(|| hedges as f64 / requests as f64)
}
