//! Output of a trace for Perfetto: a track for each kept request, for each thread of these requests, and for each lane.
//! Arrows show wakeups and the paths of requests.

use std::collections::BTreeMap;

use sidelane_report::perfetto::{TraceBuilder, Track};
use sidelane_report::trace::{Arrow, ArrowKind, Occupant, RowKind, TimelineView, ViewRow};

use super::report::TraceReport;

impl TraceReport {
    /// Returns the trace in Perfetto's format.
    pub fn to_perfetto_trace(&self) -> TraceBuilder {
        let mut trace = TraceBuilder::new(&format!("sidelane trace: {}", self.service), self.begin_ns);
        let mut tracks = Tracks::new(&mut trace);
        let mut requests: Vec<&TimelineView> = self.requests.iter().collect();
        requests.sort_by(|one, other| one.arrived_us.total_cmp(&other.arrived_us));
        for request in requests {
            let drawn = DrawnRequest { request, arrived_ns: self.begin_ns + (request.arrived_us * 1e3).round() as u64 };
            drawn.add_request(&mut trace, tracks.requests);
            drawn.collect_turns(&mut tracks);
            drawn.add_arrows(&mut trace, &mut tracks);
        }
        tracks.add_turns(&mut trace);
        trace
    }
}

/// A request's picture as on the page, and the request's arrival time, from which the picture's times count.
struct DrawnRequest<'a> {
    request: &'a TimelineView,
    arrived_ns: u64,
}

impl DrawnRequest<'_> {
    fn to_trace_ns(&self, us: f64) -> u64 {
        self.arrived_ns.saturating_add_signed((us * 1e3).round() as i64)
    }

    fn add_request(&self, trace: &mut TraceBuilder, requests: Track) {
        let track = trace.add_slice_track_below(requests, &format!("request {}", self.request.number));
        for span in &self.request.spans {
            let cause = span.cause.name();
            let words = if span.words.is_empty() { cause.to_owned() } else { format!("{cause}: {}", span.words) };
            trace.add_slice(track, (self.to_trace_ns(span.from_us), self.to_trace_ns(span.to_us)), &words);
        }
    }

    /// Adds the turns to the tracks. Interrupts are left out: they lie within turns of threads and would hide them.
    fn collect_turns(&self, tracks: &mut Tracks) {
        for row in &self.request.rows {
            let turns = tracks.turns.entry(Tracks::track_key(row)).or_default();
            for block in row.blocks.iter().filter(|block| block.who != Occupant::Interrupt) {
                let to_ns = self.to_trace_ns(block.to_us);
                let turn = turns.entry(self.to_trace_ns(block.from_us)).or_insert((to_ns, block.words.clone()));
                turn.0 = turn.0.max(to_ns);
            }
        }
    }

    fn add_arrows(&self, trace: &mut TraceBuilder, tracks: &mut Tracks) {
        for arrow in &self.request.arrows {
            tracks.arrows += 1;
            let words = self.arrow_text(arrow);
            for (us, row) in [(arrow.from_us, arrow.from_row), (arrow.to_us, arrow.to_row)] {
                let track = tracks.get_or_add(trace, &Tracks::track_key(&self.request.rows[row]));
                trace.add_instant(track, self.to_trace_ns(us), &words, &[tracks.arrows]);
            }
        }
    }

    fn arrow_text(&self, arrow: &Arrow) -> String {
        match arrow.kind {
            ArrowKind::Wake => format!("wake-up: {}", arrow.words),
            ArrowKind::Flow => format!("request {}: {}", self.request.number, arrow.words),
        }
    }
}

/// Key of a track: whether it is a lane, and its name.
type Key = (bool, String);

/// Tracks of threads and lanes, which several requests share.
struct Tracks {
    requests: Track,
    threads: Track,
    lanes: Track,
    known: BTreeMap<Key, Track>,
    /// Turns on each track: begin, end, name. Overlapping requests have the same turns, and each turn is drawn once.
    turns: BTreeMap<Key, BTreeMap<u64, (u64, String)>>,
    arrows: u64,
}

impl Tracks {
    fn new(trace: &mut TraceBuilder) -> Self {
        Self {
            requests: trace.add_slice_track("requests"),
            threads: trace.add_slice_track("threads"),
            lanes: trace.add_slice_track("lanes"),
            known: BTreeMap::new(),
            turns: BTreeMap::new(),
            arrows: 0,
        }
    }

    fn track_key(row: &ViewRow) -> Key {
        (row.of == RowKind::Lane, format!("{} {}", row.name, row.detail).trim_end().to_owned())
    }

    fn get_or_add(&mut self, trace: &mut TraceBuilder, key: &Key) -> Track {
        let parent = if key.0 { self.lanes } else { self.threads };
        *self.known.entry(key.clone()).or_insert_with(|| trace.add_slice_track_below(parent, &key.1))
    }

    /// Adds turns to the trace. Slices of one track may not overlap. If only a turn's end is recorded, the turn begins
    /// where the last turn ended.
    fn add_turns(&mut self, trace: &mut TraceBuilder) {
        for (key, turns) in std::mem::take(&mut self.turns) {
            let track = self.get_or_add(trace, &key);
            let mut done_ns = 0;
            for (from_ns, (to_ns, words)) in turns {
                let from_ns = from_ns.max(done_ns);
                if from_ns < to_ns {
                    trace.add_slice(track, (from_ns, to_ns), &words);
                    done_ns = to_ns;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sidelane_report::perfetto::read::{TrackValue, arrows, tracks as tracks_of};

    use super::super::sample;
    use super::*;

    #[test]
    fn requests_threads_and_lanes_have_tracks() {
        let report = sample::report();
        let read = tracks_of(&report.to_perfetto_trace());
        for name in ["requests", "threads", "lanes", "server thread 100", "lane 0", "lane 1"] {
            assert!(read.contains_key(name), "{name}: {:?}", read.keys().take(9).collect::<Vec<_>>());
        }
        let slowest = &report.requests[0];
        let events = &read[&format!("request {}", slowest.number)];
        assert_eq!(events.len(), 2 * slowest.spans.len());
        let ns = |us: f64| report.begin_ns + (us * 1e3).round() as u64;
        let (arrived_ns, ended_ns) = (ns(slowest.arrived_us), ns(slowest.arrived_us + slowest.latency_us));
        assert_eq!((events[0].0, events.last().unwrap().0), (arrived_ns, ended_ns));
        let waits = |(_, event): &(u64, Option<TrackValue>)| matches!(event, Some(TrackValue::Began(name)) if name.starts_with("response in the send buffer"));
        assert!(events.iter().any(waits), "{events:?}");
    }

    #[test]
    fn slices_of_a_track_do_not_overlap() {
        let mut trace = TraceBuilder::new("a trace", 0);
        let mut tracks = Tracks::new(&mut trace);
        let turns = tracks.turns.entry((true, "lane 0".to_owned())).or_default();
        turns.extend([(10, (30, "one".to_owned())), (20, (40, "other".to_owned())), (25, (35, "third".to_owned()))]);
        tracks.add_turns(&mut trace);
        let began = |words: &str| Some(TrackValue::Began(words.to_owned()));
        assert_eq!(tracks_of(&trace)["lane 0"], [(10, began("one")), (30, None), (30, began("other")), (40, None)]);
    }

    #[test]
    fn each_arrow_joins_two_moments() {
        let joined = arrows(&sample::report().to_perfetto_trace());
        assert!(!joined.is_empty());
        for (number, ends) in joined {
            let [(from_ns, from), (to_ns, to)] = &ends[..] else { panic!("arrow {number}: {ends:?}") };
            assert!(from == to && from_ns <= to_ns, "{ends:?}");
        }
    }
}
