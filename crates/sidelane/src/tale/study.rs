//! Records become a told trace: timelines, their diagnosis, and some requests in full.

use sidelane_tale::builder::{Builder, Settings};
use sidelane_tale::diagnoser::{Diagnoser, DiagnoserSettings, Objective};
use sidelane_tale::record::{Kinds, Record, Task};
use sidelane_tale::timeline::Timeline;

use super::bound::Bound;
use super::clip::clip;
use super::kept::Kept;
use super::log::LogEnd;
use super::recent::Recent;
use super::told::{Counts, Told};
use super::words::Names;
use crate::note::Note;
use crate::request::Times;

/// For so long records are at hand for the clip of a request: a timeline comes when it is known that nothing of it is
/// missing, which takes a second at most.
const RECENT_NS: u64 = 5_000_000_000;
/// And no more than so many: 32 MB.
const RECENT_MAX: usize = 1 << 19;

/// A trace that goes on. Its memory is bounded, however long it takes.
pub struct Study {
    builder: Builder,
    seen: Seen,
    begin_ns: u64,
    bound: Bound,
}

/// What is kept of requests.
struct Seen {
    diagnoser: Diagnoser,
    recent: Recent,
    kept: Kept,
    latency: Times,
    /// Requests count that arrive from here on
    from_ns: u64,
    /// and before this moment.
    until_ns: u64,
}

/// How a trace ended.
pub struct Ended {
    /// The service, as the user named it.
    pub service: String,
    /// Times and losses.
    pub end: LogEnd,
    /// Names of threads.
    pub names: Names,
    /// What was degraded or went wrong.
    pub notes: Vec<Note>,
}

impl Study {
    /// A trace in which all these kinds of records are made from `begin_ns` on. Of requests that arrived before, some
    /// records are missing: they do not count.
    pub fn new(recorded: Kinds, bound: Bound, begin_ns: u64) -> Self {
        let settings = Settings { kinds: recorded, ..Settings::default() };
        let seen = Seen {
            diagnoser: Diagnoser::new(DiagnoserSettings {
                objective: objective(bound),
                kinds: recorded,
                ..DiagnoserSettings::default()
            }),
            recent: Recent::new(RECENT_NS, RECENT_MAX),
            kept: Kept::default(),
            latency: Times::default(),
            from_ns: begin_ns,
            until_ns: u64::MAX,
        };
        Self { builder: Builder::new(settings), seen, begin_ns, bound }
    }

    /// Only requests that arrive from `from_ns` on and before `until_ns` count.
    pub fn only(mut self, from_ns: u64, until_ns: u64) -> Self {
        (self.seen.from_ns, self.seen.until_ns) = (from_ns, until_ns);
        self
    }

    /// Takes in a record; `each` gets the requests that are whole with it.
    pub fn add(&mut self, record: &Record, each: &mut dyn FnMut(&Timeline)) {
        let Self { builder, seen, .. } = self;
        seen.recent.push(record);
        builder.push(*record, &mut |timeline| {
            each(&timeline);
            seen.take(&timeline);
        });
    }

    /// No record from before `until_ns` comes any more: so a request is told though nothing follows it.
    pub fn advance(&mut self, until_ns: u64, each: &mut dyn FnMut(&Timeline)) {
        let Self { builder, seen, .. } = self;
        builder.advance(until_ns, &mut |timeline| {
            each(&timeline);
            seen.take(&timeline);
        });
    }

    /// What the trace came to.
    pub fn end(mut self, ended: Ended) -> Told {
        let Self { builder, seen, .. } = &mut self;
        builder.finish(&mut |timeline| seen.take(&timeline));
        let counts = self.builder.counts();
        let Ended { service, end, names, notes } = ended;
        Told {
            service,
            bound: self.bound,
            wall_s: end.wall_s,
            begin_ns: self.begin_ns,
            diagnosis: self.seen.diagnoser.diagnose(&|task: Task| names.of_task(task)),
            bars: self.seen.diagnoser.bars(),
            latency: self.seen.latency,
            clips: self.seen.kept.into_slowest_first(),
            names,
            counts: Counts { records: counts.records, lost: end.lost },
            cpu_percent: end.cpu_percent,
            notes,
        }
    }
}

fn objective(bound: Bound) -> Objective {
    bound.limit_ns().map_or(Objective::Percentile(0.99), Objective::Latency)
}

impl Seen {
    fn take(&mut self, timeline: &Timeline) {
        if !(self.from_ns..self.until_ns).contains(&timeline.arrived_ns) {
            return;
        }
        self.diagnoser.add(timeline);
        if timeline.incomplete.is_some() {
            return;
        }
        self.latency.add(timeline.latency_ns());
        self.kept.offer(timeline, || clip(timeline, &self.recent));
    }
}
