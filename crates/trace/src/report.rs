//! Report of a trace, from which the output for terminal, page, JSON, Perfetto and OTLP is made.

use serde_json::{Map, Value, json};

use sidelane_host::topology::PairKind;
use sidelane_report::trace::{CauseText, TimelineView, TraceSection};
use sidelane_report::{ResultFile, Row, Unit};
use sidelane_timeline::cause::Cause;
use sidelane_timeline::diagnosis::{Bar, Diagnosis, Finding};
use sidelane_timeline::ending::{Ending, UnansweredRequest};

use super::otlp::SlowRequest;
use super::slow_threshold::SlowThreshold;
use super::terminal;
use super::text::Names;
use sidelane_diagnostics::machine;
use sidelane_diagnostics::note::{Note, notes_as_text};
use sidelane_requests::Times;

/// Results of a trace that has ended.
#[derive(Debug)]
pub struct TraceReport {
    /// Name of the service, as the user wrote it.
    pub service: String,
    /// Definition of a slow request.
    pub threshold: SlowThreshold,
    /// Length of the trace in seconds.
    pub wall_s: f64,
    /// Begin of the trace, in nanoseconds of `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    /// Unix time at which `CLOCK_MONOTONIC` was 0, in nanoseconds; `None` if unknown.
    pub epoch_ns: Option<u64>,
    /// Causes of the slow requests.
    pub diagnosis: Diagnosis,
    /// Latencies of all requests.
    pub latency: Times,
    /// Distribution of all requests by latency and cause.
    pub bars: Vec<Bar>,
    /// Pictures of some requests, the slowest first.
    pub requests: Vec<TimelineView>,
    /// Slow requests among these.
    pub slow_requests: Vec<SlowRequest>,
    /// Names of threads.
    pub names: Names,
    /// Numbers of records and requests that were read, and that are missing.
    pub counts: Counts,
    /// Requests that ended without a response for which their client waited.
    pub cut: UnansweredCounts,
    /// CPU time of the tracer, in percent of one CPU; `None` if this process did not trace.
    pub cpu_percent: Option<f64>,
    /// Notes on what was degraded or failed.
    pub notes: Vec<Note>,
}

/// Numbers of records and requests that were read, and that are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of records that were read.
    pub records: u64,
    /// Number of records that were lost before they were read.
    pub lost: u64,
    /// Number of events for which the kernel did not run its program. Each may have been a record.
    pub left_out: u64,
    /// Number of requests that a thread had received and that had no response when the trace ended.
    pub open: u64,
    /// Time since the arrival of the oldest request without a response, in nanoseconds.
    pub oldest_open_ns: u64,
    /// Number of requests without a response for an unknown reason.
    pub unanswered: u64,
    /// Number of requests that were given up: they had no event for a long time, or there were too many.
    pub given_up: u64,
    /// Number of responses to requests whose start was not recorded.
    pub unknown: u64,
}

/// Requests that ended without a response for which their client waited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnansweredCounts {
    /// Waiting times of clients that closed their connection before a response came.
    pub abandoned: Times,
    /// Number of waits in `abandoned` that were longer than the objective; 0 if no objective was given.
    pub abandoned_slow: u64,
    /// Number of requests whose connection the service closed.
    pub closed_by_service: u64,
    /// Number of messages that ask for no response: the client closed right after the message, or sent further messages
    /// without a response.
    pub one_way: u64,
}

impl UnansweredCounts {
    /// Counts a request that ended without a response because its connection ended.
    pub fn add(&mut self, unanswered: &UnansweredRequest, limit_ns: Option<u64>) {
        match unanswered.ending {
            Ending::Abandoned => {
                self.abandoned.record(unanswered.waited_ns());
                self.abandoned_slow += u64::from(limit_ns.is_some_and(|limit_ns| unanswered.waited_ns() > limit_ns));
            }
            Ending::ClosedByService => self.closed_by_service += 1,
            Ending::NoAnswerWanted => self.one_way += 1,
            Ending::Unknown => (),
        }
    }
}

/// Returns a time as text for users.
pub(super) fn human_ns(ns: u64) -> String {
    Unit::Ns.human(ns as f64)
}

/// Returns a number as text for users.
pub(super) fn human_count(count: u64) -> String {
    Unit::Count.human(count as f64)
}

impl TraceReport {
    /// Returns the results of the trace, for JSON and for the page.
    pub fn to_result(&self) -> ResultFile {
        let mut result = ResultFile::new(machine::describe(PairKind::Declared), self.settings());
        result.rows.push(self.summary_row());
        result.rows.extend(self.diagnosis.findings.iter().map(row));
        result.histograms = vec![self.latency.to_histogram("latency")];
        result.notes = notes_as_text(&self.notes);
        result.trace = Some(self.trace());
        result
    }

    fn settings(&self) -> Map<String, Value> {
        let settings = json!({
            "title": format!("Why requests of {} were slow", self.service),
            "finding": terminal::headline(self),
            "explanation": [
                "The time of a request is from its first segment until the last of its response left for the network \
                 device. All of it is divided among causes, without gap or overlap.",
                "The lost time of a slow request is its time above that of a usual request. The share of a cause is \
                 its part of the lost time of all slow requests. \"Not explained\" is time that no record explains.",
            ],
            "service": self.service,
            "slow_is_longer_than_us": self.limit_us(),
            "slow_by": self.threshold.name(),
        });
        match settings {
            Value::Object(settings) => settings,
            _ => unreachable!("an object was written above"),
        }
    }

    fn limit_us(&self) -> f64 {
        self.diagnosis.slo_ns as f64 / 1e3
    }

    fn summary_row(&self) -> Row {
        let percentile = |percentile| self.latency.percentile_ns(percentile).map(|ns| ns as f64);
        let mut row = Row::new("trace");
        row.put("traced_s", self.wall_s);
        row.put("requests_count", self.diagnosis.requests as f64);
        row.put("slow_count", self.diagnosis.slow as f64);
        row.put("p50_ns", percentile(50.0));
        row.put("p99_ns", percentile(99.0));
        row.put("p999_ns", percentile(99.9));
        row.put("max_ns", (self.latency.max_ns > 0).then_some(self.latency.max_ns as f64));
        row.put("records_count", self.counts.records as f64);
        row.put("lost_records_count", self.counts.lost as f64);
        row.put("broken_requests_count", self.diagnosis.incomplete as f64);
        row.put("left_out_runs_count", self.counts.left_out as f64);
        row.put("open_requests_count", self.counts.open as f64);
        row.put("oldest_open_ns", (self.counts.open > 0).then_some(self.counts.oldest_open_ns as f64));
        row.put("unanswered_requests_count", self.counts.unanswered as f64);
        self.put_unanswered(&mut row);
        row.put("given_up_requests_count", self.counts.given_up as f64);
        row.put("unknown_responses_count", self.counts.unknown as f64);
        row.put("normal_ns", (self.diagnosis.normal_ns > 0).then_some(self.diagnosis.normal_ns as f64));
        row.put("tracer_cpu_percent", self.cpu_percent);
        let tracer = &self.diagnosis.tracer;
        row.put("delayed_by_tracer_count", tracer.delayed as f64);
        row.put("longest_delay_by_tracer_ns", tracer.longest_ns as f64);
        row.put("slow_by_tracer_alone_count", tracer.made_slow as f64);
        row.put("tracer_share_of_lost_time_percent", tracer.share(self.diagnosis.tail_ns) * 100.0);
        row
    }

    fn put_unanswered(&self, row: &mut Row) {
        let abandoned = &self.cut.abandoned;
        let count = abandoned.histogram.count();
        row.put("abandoned_requests_count", count as f64);
        row.put("abandoned_beyond_objective_count", self.cut.abandoned_slow as f64);
        row.put("abandoned_after_p50_ns", abandoned.percentile_ns(50.0).map(|ns| ns as f64));
        row.put("abandoned_after_max_ns", (count > 0).then_some(abandoned.max_ns as f64));
        row.put("closed_by_service_requests_count", self.cut.closed_by_service as f64);
        row.put("one_way_messages_count", self.cut.one_way as f64);
    }

    fn trace(&self) -> TraceSection {
        TraceSection {
            limit_us: self.limit_us(),
            limit_name: self.threshold.name(),
            length_us: self.wall_s * 1e6,
            causes: self.causes().into_iter().map(CauseText::from).collect(),
            found: self.diagnosis.findings.clone(),
            cannot_tell: self.diagnosis.cannot_tell.clone(),
            spread: self.bars.clone(),
            requests: self.requests.clone(),
        }
    }

    /// Returns every cause that appears anywhere in the report.
    fn causes(&self) -> Vec<Cause> {
        let found = |cause| self.diagnosis.findings.iter().any(|finding| finding.cause == cause);
        let missing = |cause| self.diagnosis.cannot_tell.iter().any(|missing| missing.cause == cause);
        let drawn = |cause| self.bars.iter().flat_map(|bar| &bar.time).any(|part| part.cause == cause);
        let used = |cause| drawn(cause) || found(cause) || missing(cause);
        Cause::ALL.into_iter().filter(|cause| used(*cause)).collect()
    }
}

fn row(finding: &Finding) -> Row {
    let mut row = Row::new(finding.cause.name());
    row.put("slow_requests_count", finding.requests as f64);
    row.put("lost_time_ns", finding.tail_ns as f64);
    row.put("share_of_lost_time_percent", finding.share_percent);
    row
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn result_has_all_that_the_page_shows_with_units_in_keys() {
        let result = sample::report().to_result();
        let json = serde_json::to_value(&result).unwrap();
        let row = &json["rows"][0];
        assert_eq!((&row["setting"], row["requests_count"].as_u64()), (&json!("trace"), Some(300)));
        assert_eq!(json["rows"][1]["setting"], Cause::SendBuffer.name());
        let trace = &json["trace"];
        let keys: Vec<&str> = trace.as_object().unwrap().keys().map(String::as_str).collect();
        let wanted = ["limit_us", "limit_name", "length_us", "causes", "found", "cannot_tell", "spread", "requests"];
        assert_eq!(keys, wanted);
        assert_eq!(trace["found"][0]["cause"], "send-buffer");
        assert!(trace["found"][0]["advice"].as_str().unwrap().contains("TCP_NODELAY"), "{}", trace["found"][0]);
        let slowest = &trace["requests"][0];
        assert!(slowest["latency_us"].as_f64() > trace["limit_us"].as_f64());
        let time: f64 = slowest["time"].as_array().unwrap().iter().map(|part| part["us"].as_f64().unwrap()).sum();
        assert!((time - slowest["latency_us"].as_f64().unwrap()).abs() < 1e-3);
    }

    #[test]
    fn each_cause_that_is_drawn_is_in_the_legend() {
        let trace = sample::report().to_result().trace.unwrap();
        let known = |cause: Cause| trace.causes.iter().any(|words| words.cause == cause);
        assert!(trace.spread.iter().flat_map(|bar| &bar.time).all(|part| known(part.cause)));
        assert!(trace.requests.iter().flat_map(|request| &request.spans).all(|span| known(span.cause)));
        assert!(trace.found.iter().all(|found| known(found.cause)));
        assert!(trace.cannot_tell.iter().all(|missing| known(missing.cause)));
    }
}
