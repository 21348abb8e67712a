//! Records become a told trace: timelines, their diagnosis, and some requests in full.

use sidelane_timeline::builder::{Builder, Settings};
use sidelane_timeline::diagnoser::{Diagnoser, DiagnoserSettings, Objective};
use sidelane_timeline::ending::Unanswered;
use sidelane_timeline::record::{Kinds, Record};
use sidelane_timeline::timeline::Timeline;
use sidelane_tracker::requests as kernel;

use super::bound::Bound;
use super::clip::clip;
use super::kept::Kept;
use super::log::LogEnd;
use super::recent::Recent;
use super::told::{Counts, Cut, Told};
use super::words::Names;
use sidelane_diagnostics::note::Note;
use sidelane_requests::RequestNote;
use sidelane_requests::{Times, notes_of};

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
    cut: Cut,
    /// The objective, if one was given.
    limit_ns: Option<u64>,
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
            cut: Cut::default(),
            limit_ns: bound.limit_ns(),
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

    /// Of each CPU, by its number, so many records were written before the first of these.
    pub fn begins(mut self, written: &[u32]) -> Self {
        (0..).zip(written).for_each(|(cpu, seq)| self.builder.begins(cpu, *seq));
        self
    }

    /// This process traces: waits for its threads are told apart.
    pub fn traced_by(mut self, pid: u32) -> Self {
        self.builder.traced_by(pid);
        self
    }

    /// Records that are missing among those that were taken in.
    pub fn lost(&self) -> u64 {
        self.builder.counts().lost
    }

    /// Takes in a record; `each` gets the requests that are whole with it, and count.
    pub fn add(&mut self, record: &Record, each: &mut dyn FnMut(&Timeline)) {
        let Self { builder, seen, .. } = self;
        seen.recent.push(record);
        builder.push(*record, &mut |timeline| seen.take(&timeline, each));
        builder.take_unanswered().for_each(|unanswered| seen.take_unanswered(&unanswered));
    }

    /// No record from before `until_ns` comes any more: so a request is told though nothing follows it.
    pub fn advance(&mut self, until_ns: u64, each: &mut dyn FnMut(&Timeline)) {
        let Self { builder, seen, .. } = self;
        builder.advance(until_ns, &mut |timeline| seen.take(&timeline, each));
    }

    /// What the trace came to.
    pub fn end(mut self, ended: Ended) -> Told {
        let Self { builder, seen, .. } = &mut self;
        builder.finish(&mut |timeline| seen.take(&timeline, &mut |_| ()));
        builder.take_unanswered().for_each(|unanswered| seen.take_unanswered(&unanswered));
        seen.cut.one_way += builder.one_way();
        let counts = self.counts(&ended.end);
        let streams = self.streams();
        let Ended { service, end, names, mut notes } = ended;
        notes.extend(streams.map(Note::from));
        Told {
            service,
            bound: self.bound,
            wall_s: end.wall_s,
            begin_ns: self.begin_ns,
            diagnosis: self.seen.diagnoser.diagnose(&names),
            bars: self.seen.diagnoser.bars(),
            latency: self.seen.latency,
            cut: self.seen.cut,
            clips: self.seen.kept.into_slowest_first(),
            names,
            counts,
            cpu_percent: end.cpu_percent,
            notes,
        }
    }

    /// What is said of responses that are streams.
    fn streams(&self) -> impl Iterator<Item = RequestNote> + use<> {
        let known = self.builder.counts();
        notes_of(&kernel::Counts::default(), known.whole + known.incomplete, known.streamed)
    }

    fn counts(&self, end: &LogEnd) -> Counts {
        let known = self.builder.counts();
        let (from_ns, until_ns) = (self.seen.from_ns, self.seen.until_ns);
        let end_ns = from_ns.saturating_add((end.wall_s * 1e9) as u64);
        let waiting = || self.builder.waiting().filter(|arrived_ns| (from_ns..until_ns).contains(arrived_ns));
        let counts = Counts {
            records: known.records,
            lost: end.lost.max(known.lost),
            left_out: end.left_out.unwrap_or(0),
            open: waiting().count() as u64,
            oldest_open_ns: waiting().min().map_or(0, |arrived_ns| end_ns.saturating_sub(arrived_ns)),
            ..Counts::default()
        };
        if (from_ns, until_ns) != (self.begin_ns, u64::MAX) {
            // When those requests arrived is not known.
            return counts;
        }
        Counts { unanswered: known.unanswered, given_up: known.given_up, unknown: known.unknown, ..counts }
    }
}

fn objective(bound: Bound) -> Objective {
    bound.limit_ns().map_or(Objective::Percentile(0.99), Objective::Latency)
}

impl Seen {
    fn take_unanswered(&mut self, unanswered: &Unanswered) {
        if (self.from_ns..self.until_ns).contains(&unanswered.arrived_ns) {
            self.cut.add(unanswered, self.limit_ns);
        }
    }

    fn take(&mut self, timeline: &Timeline, each: &mut dyn FnMut(&Timeline)) {
        if !(self.from_ns..self.until_ns).contains(&timeline.arrived_ns) {
            return;
        }
        self.diagnoser.add(timeline);
        if timeline.incomplete.is_some() {
            return;
        }
        each(timeline);
        self.latency.add(timeline.latency_ns());
        self.kept.offer(timeline, || clip(timeline, &self.recent));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sidelane_timeline::record::Kind;

    use super::super::{sample, terminal};
    use super::*;

    fn told(records: &[Record], wall_s: f64) -> Told {
        let begin_ns = sample::trace().begin_ns;
        let bound = Bound::Limit(Duration::from_millis(2));
        let mut study = Study::new(sample::kinds(), bound, begin_ns);
        records.iter().for_each(|record| study.add(record, &mut |_| ()));
        let end = LogEnd { wall_s, ..LogEnd::default() };
        study.end(Ended { service: "port:8080".into(), end, names: Names::default(), notes: vec![] })
    }

    #[test]
    fn requests_that_have_no_response_are_counted_and_said() {
        let all = sample::records();
        let number = all.iter().find(|record| record.kind == Kind::RequestFinished).unwrap().request;
        // From then on the service answers nobody.
        let is_answer = |record: &&Record| matches!(record.kind, Kind::Sent | Kind::RequestFinished);
        let stuck_ns = all.iter().find(|record| record.request > number + 290 && is_answer(record)).unwrap().at_ns;
        let mut records: Vec<Record> =
            all.iter().filter(|record| record.at_ns < stuck_ns || !is_answer(record)).copied().collect();
        sample::number(&mut records);
        let told = told(&records, 20.0);
        assert!(told.counts.open > 0 && told.counts.oldest_open_ns > 4_000_000_000, "{:?}", told.counts);
        let text = terminal::text(&told, 1_000);
        assert!(text.contains("had no response at the end"), "{text}");
        assert_eq!(told.counts.lost, 0);
    }

    #[test]
    fn a_request_that_arrived_before_the_trace_is_told_to_nobody() {
        let records = sample::records();
        let begin_ns = records[records.len() / 2].at_ns;
        let mut study = Study::new(sample::kinds(), Bound::P99, begin_ns);
        let mut times = 0;
        let mut count = |timeline: &Timeline| {
            times += 1;
            assert!(timeline.arrived_ns >= begin_ns && timeline.incomplete.is_none());
        };
        records.iter().for_each(|record| study.add(record, &mut count));
        assert!(times > 0);
    }

    #[test]
    fn what_was_written_before_is_not_missing() {
        let mut records = sample::records();
        let before = [1_000, 2_000];
        records.iter_mut().for_each(|record| record.seq += before[record.cpu as usize]);
        let mut study = Study::new(sample::kinds(), Bound::P99, records[0].at_ns).begins(&before);
        records.iter().for_each(|record| study.add(record, &mut |_| ()));
        assert_eq!(study.lost(), 0);
        let end = LogEnd { wall_s: 16.0, ..LogEnd::default() };
        let told = study.end(Ended { service: String::new(), end, names: Names::default(), notes: vec![] });
        assert!(told.diagnosis.requests > 0 && told.diagnosis.incomplete == 0, "{:?}", told.diagnosis);
    }
}
