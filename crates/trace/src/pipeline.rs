//! Pipeline from records to the report of a trace: timelines, their diagnosis, and pictures of some requests.

use sidelane_timeline::builder::{Builder, Settings};
use sidelane_timeline::diagnoser::{Diagnoser, DiagnoserSettings, Objective};
use sidelane_timeline::ending::UnansweredRequest;
use sidelane_timeline::record::{Kinds, Record};
use sidelane_timeline::timeline::Timeline;
use sidelane_tracker::requests::{self as kernel, number_within_service};

use super::excerpt::Excerpt;
use super::exemplars::Exemplars;
use super::log::LogEnd;
use super::otlp::SlowRequest;
use super::recent::Recent;
use super::report::{Counts, TraceReport, UnansweredCounts};
use super::slow_threshold::SlowThreshold;
use super::text::Names;
use super::timeline_view::timeline_view;
use sidelane_diagnostics::note::Note;
use sidelane_requests::RequestNote;
use sidelane_requests::{Times, request_notes};

/// Time for which records are kept for the excerpt of a request. Its timeline is made when all its records must have
/// arrived, at most a second after its end.
const RECENT_NS: u64 = 5_000_000_000;
/// The most records that are kept for excerpts: 32 MB.
const RECENT_MAX: usize = 1 << 19;

/// A running trace. Its memory is bounded, whatever the length of the trace.
pub struct Pipeline {
    builder: Builder,
    requests: Requests,
    begin_ns: u64,
    threshold: SlowThreshold,
}

/// Data that is kept of requests.
struct Requests {
    diagnoser: Diagnoser,
    recent: Recent,
    exemplars: Exemplars,
    latency: Times,
    cut: UnansweredCounts,
    /// Latency above which a request is slow, in nanoseconds; `None` if no objective was given.
    limit_ns: Option<u64>,
    /// Earliest arrival time of requests that count.
    from_ns: u64,
    /// Arrival time before which requests count.
    until_ns: u64,
}

/// What is known at the end of a trace, besides its records.
pub struct Ended {
    /// Name of the service, as the user wrote it.
    pub service: String,
    /// Unix time at which `CLOCK_MONOTONIC` was 0, in nanoseconds; `None` if unknown.
    pub epoch_ns: Option<u64>,
    /// Length, losses and cost of the trace.
    pub end: LogEnd,
    /// Names of threads.
    pub names: Names,
    /// Notes on what was degraded or failed.
    pub notes: Vec<Note>,
}

impl Pipeline {
    /// Creates a trace in which the kinds `recorded` are recorded from `begin_ns` on. Requests that arrived before do
    /// not count, since some of their records are missing.
    pub fn new(recorded: Kinds, threshold: SlowThreshold, begin_ns: u64) -> Self {
        let settings = Settings { kinds: recorded, ..Settings::default() };
        let requests = Requests {
            diagnoser: Diagnoser::new(DiagnoserSettings {
                objective: objective(threshold),
                kinds: recorded,
                ..DiagnoserSettings::default()
            }),
            recent: Recent::new(RECENT_NS, RECENT_MAX),
            exemplars: Exemplars::default(),
            latency: Times::default(),
            cut: UnansweredCounts::default(),
            limit_ns: threshold.limit_ns(),
            from_ns: begin_ns,
            until_ns: u64::MAX,
        };
        Self { builder: Builder::new(settings), requests, begin_ns, threshold }
    }

    /// Restricts the trace to requests that arrive from `from_ns` on and before `until_ns`.
    pub fn with_time_range(mut self, from_ns: u64, until_ns: u64) -> Self {
        (self.requests.from_ns, self.requests.until_ns) = (from_ns, until_ns);
        self
    }

    /// Sets, by number of the CPU, how many records each CPU wrote before its first record of this trace.
    pub fn with_records_before_trace(mut self, written: &[u32]) -> Self {
        (0..).zip(written).for_each(|(cpu, seq)| self.builder.set_seq_before_trace(cpu, *seq));
        self
    }

    /// Sets the process id of the tracer, so that waits for the tracer's threads have a cause of their own.
    pub fn with_tracer_pid(mut self, pid: u32) -> Self {
        self.builder.set_tracer_pid(pid);
        self
    }

    /// Returns the number of missing records, found by gaps in the sequence numbers.
    pub fn lost_records(&self) -> u64 {
        self.builder.counts().lost
    }

    /// Processes a record. Calls `each` with the requests that are now complete and that count.
    pub fn add(&mut self, record: &Record, on_timeline: &mut dyn FnMut(&Timeline)) {
        let Self { builder, requests, .. } = self;
        requests.recent.push(record);
        builder.push(*record, &mut |timeline| requests.add_timeline(&timeline, on_timeline));
        builder.take_unanswered().for_each(|unanswered| requests.count_unanswered(&unanswered));
    }

    /// Advances the time: no record from before `until_ns` comes any more. Requests become complete by this even if no
    /// record follows.
    pub fn advance(&mut self, until_ns: u64, on_timeline: &mut dyn FnMut(&Timeline)) {
        let Self { builder, requests, .. } = self;
        builder.advance(until_ns, &mut |timeline| requests.add_timeline(&timeline, on_timeline));
    }

    /// Ends the trace, and returns its report.
    pub fn end(mut self, ended: Ended) -> TraceReport {
        let Self { builder, requests, .. } = &mut self;
        builder.finish(&mut |timeline| requests.add_timeline(&timeline, &mut |_| ()));
        builder.take_unanswered().for_each(|unanswered| requests.count_unanswered(&unanswered));
        requests.cut.one_way += builder.one_way_connections();
        let counts = self.counts(&ended.end);
        let streams = self.stream_notes();
        let Ended { service, epoch_ns, end, names, mut notes } = ended;
        notes.extend(streams.map(Note::from));
        let mut diagnosis = self.requests.diagnoser.diagnose(&names);
        let numbers = diagnosis.findings.iter_mut().flat_map(|finding| &mut finding.examples);
        numbers.for_each(|number| *number = number_within_service(*number));
        let excerpts = self.requests.exemplars.into_slowest_first();
        let slow = excerpts.iter().filter(|excerpt| excerpt.timeline.latency_ns() > diagnosis.slo_ns);
        let slow_requests = slow.map(SlowRequest::from_excerpt).collect();
        let views = excerpts.iter().map(|excerpt| timeline_view(excerpt, &names, self.begin_ns)).collect();
        TraceReport {
            service,
            threshold: self.threshold,
            wall_s: end.wall_s,
            begin_ns: self.begin_ns,
            epoch_ns,
            diagnosis,
            bars: self.requests.diagnoser.latency_bars(),
            latency: self.requests.latency,
            cut: self.requests.cut,
            requests: views,
            slow_requests,
            names,
            counts,
            cpu_percent: end.cpu_percent,
            notes,
        }
    }

    /// Returns notes to the user about responses that are streams.
    fn stream_notes(&self) -> impl Iterator<Item = RequestNote> + use<> {
        let known = self.builder.counts();
        request_notes(&kernel::Counts::default(), known.whole + known.incomplete, known.streamed)
    }

    fn counts(&self, end: &LogEnd) -> Counts {
        let known = self.builder.counts();
        let (from_ns, until_ns) = (self.requests.from_ns, self.requests.until_ns);
        let end_ns = from_ns.saturating_add((end.wall_s * 1e9) as u64);
        let waiting =
            || self.builder.waiting_arrivals_ns().filter(|arrived_ns| (from_ns..until_ns).contains(arrived_ns));
        let counts = Counts {
            records: known.records,
            lost: end.lost.max(known.lost),
            left_out: end.left_out.unwrap_or(0),
            open: waiting().count() as u64,
            oldest_open_ns: waiting().min().map_or(0, |arrived_ns| end_ns.saturating_sub(arrived_ns)),
            ..Counts::default()
        };
        if (from_ns, until_ns) != (self.begin_ns, u64::MAX) {
            // Requests without a response have no known arrival time, so they cannot be counted for a part of the
            // trace.
            return counts;
        }
        Counts { unanswered: known.unanswered, given_up: known.given_up, unknown: known.unknown, ..counts }
    }
}

fn objective(threshold: SlowThreshold) -> Objective {
    threshold.limit_ns().map_or(Objective::Percentile(0.99), Objective::Latency)
}

impl Requests {
    fn count_unanswered(&mut self, unanswered: &UnansweredRequest) {
        if (self.from_ns..self.until_ns).contains(&unanswered.arrived_ns) {
            self.cut.add(unanswered, self.limit_ns);
        }
    }

    fn add_timeline(&mut self, timeline: &Timeline, on_timeline: &mut dyn FnMut(&Timeline)) {
        if !(self.from_ns..self.until_ns).contains(&timeline.arrived_ns) {
            return;
        }
        self.diagnoser.add(timeline);
        if timeline.incomplete.is_some() {
            return;
        }
        on_timeline(timeline);
        self.latency.record(timeline.latency_ns());
        self.exemplars.add_candidate(timeline, || Excerpt::from_timeline(timeline, &self.recent));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sidelane_timeline::record::Kind;

    use super::super::{sample, terminal};
    use super::*;

    fn report(records: &[Record], wall_s: f64) -> TraceReport {
        let begin_ns = sample::build_sample().begin_ns;
        let threshold = SlowThreshold::Limit(Duration::from_millis(2));
        let mut pipeline = Pipeline::new(sample::kinds(), threshold, begin_ns);
        records.iter().for_each(|record| pipeline.add(record, &mut |_| ()));
        let end = LogEnd { wall_s, ..LogEnd::default() };
        pipeline.end(Ended { service: "port:8080".into(), epoch_ns: None, end, names: Names::default(), notes: vec![] })
    }

    #[test]
    fn requests_without_a_response_are_counted_and_reported() {
        let all = sample::records();
        let number = all.iter().find(|record| record.kind == Kind::RequestFinished).unwrap().request;
        // After this time, the service in the test sends no responses.
        let is_answer = |record: &&Record| matches!(record.kind, Kind::Sent | Kind::RequestFinished);
        let stuck_ns = all.iter().find(|record| record.request > number + 290 && is_answer(record)).unwrap().at_ns;
        let mut records: Vec<Record> =
            all.iter().filter(|record| record.at_ns < stuck_ns || !is_answer(record)).copied().collect();
        sample::number_records(&mut records);
        let report = report(&records, 20.0);
        assert!(report.counts.open > 0 && report.counts.oldest_open_ns > 4_000_000_000, "{:?}", report.counts);
        let text = terminal::render_report(&report, 1_000);
        assert!(text.contains("had no response at the end"), "{text}");
        assert_eq!(report.counts.lost, 0);
    }

    #[test]
    fn a_request_that_arrived_before_the_trace_does_not_count() {
        let records = sample::records();
        let begin_ns = records[records.len() / 2].at_ns;
        let mut pipeline = Pipeline::new(sample::kinds(), SlowThreshold::P99, begin_ns);
        let mut times = 0;
        let mut count = |timeline: &Timeline| {
            times += 1;
            assert!(timeline.arrived_ns >= begin_ns && timeline.incomplete.is_none());
        };
        records.iter().for_each(|record| pipeline.add(record, &mut count));
        assert!(times > 0);
    }

    #[test]
    fn records_written_before_the_begin_are_not_lost() {
        let mut records = sample::records();
        let before = [1_000, 2_000];
        records.iter_mut().for_each(|record| record.seq += before[record.cpu as usize]);
        let mut pipeline =
            Pipeline::new(sample::kinds(), SlowThreshold::P99, records[0].at_ns).with_records_before_trace(&before);
        records.iter().for_each(|record| pipeline.add(record, &mut |_| ()));
        assert_eq!(pipeline.lost_records(), 0);
        let end = LogEnd { wall_s: 16.0, ..LogEnd::default() };
        let names = Names::default();
        let report = pipeline.end(Ended { service: String::new(), epoch_ns: None, end, names, notes: vec![] });
        assert!(report.diagnosis.requests > 0 && report.diagnosis.incomplete == 0, "{:?}", report.diagnosis);
    }
}
