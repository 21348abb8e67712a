//! Result of `sidelane requests`, as text and as JSON.

use std::fmt;

use serde_json::{Map, json};

use super::source::Source;
use super::window::{Times, Window};
use sidelane_diagnostics::machine;
use sidelane_diagnostics::note::{Note, notes_as_text};
use sidelane_host::topology::PairKind;
use sidelane_report::{Detail, ResultFile, Row, Series, TimeBins, Unit};

/// Measured figures of one observation of requests.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Name of the service, as given by the user.
    pub service: String,
    /// Kind of source of the requests.
    pub source: Source,
    /// Duration of the observation in seconds.
    pub wall_s: f64,
    /// Statistics of the requests.
    pub window: Window,
    /// Notes about degraded or failed parts of the observation.
    pub notes: Vec<Note>,
    /// Latencies over time in microseconds.
    pub latencies: TimeBins,
}

impl Summary {
    /// Converts the figures into a result with one row.
    pub fn to_result(&self) -> ResultFile {
        let mut settings = Map::new();
        settings.insert("service".into(), json!(self.service));
        settings.insert("source".into(), json!(self.source.to_string()));
        let mut result = ResultFile::new(machine::describe(PairKind::Declared), settings);
        let mut row = Row::new("requests");
        self.put_counts(&mut row);
        let window = &self.window;
        for (name, times) in [("server", &window.server), ("queueing", &window.queueing), ("latency", &window.latency)]
        {
            for (percentile, value) in percentiles_and_max(times) {
                row.put(&format!("{name}_{percentile}_ns"), value);
            }
        }
        for (percentile, value) in percentiles_and_max(&window.abandoned) {
            row.put(&format!("abandoned_after_{percentile}_ns"), value);
        }
        for (percentile, value) in percentiles_and_max(&window.queue_len) {
            row.put(&format!("queue_len_{percentile}_count"), value);
        }
        result.rows.push(row);
        result.series = self.over_time().into_iter().collect();
        result.histograms = vec![
            window.latency.to_histogram("latency"),
            window.server.to_histogram("server time"),
            window.queueing.to_histogram("queueing"),
        ];
        result.notes = notes_as_text(&self.notes);
        result
    }

    fn over_time(&self) -> Option<Series> {
        let signals = [self.latencies.to_signal("latency", Unit::Us)?, self.latencies.to_rate("requests")?];
        Some(Series {
            title: "Requests over time".to_owned(),
            caption: "Requests at the time at which they were read, at most 50 ms after their response. The line of \
                      the latency is the mean of a bin, the band its lowest and highest request."
                .to_owned(),
            signals: signals.to_vec(),
        })
    }

    fn put_counts(&self, row: &mut Row) {
        let window = &self.window;
        row.put("wall_s", self.wall_s);
        row.put("requests_count", window.answered_count() as f64);
        row.put("requests_per_s", self.requests_per_s());
        row.put("threads_count", window.threads.len() as f64);
        row.put("waited_count", window.waited as f64);
        row.put("co_run_ns", window.co_run_ns as f64);
        row.put("dropped_count", window.counts.dropped as f64);
        row.put("unanswered_count", window.unanswered() as f64);
        row.put("abandoned_count", window.abandoned.histogram.count() as f64);
        row.put("closed_by_service_count", window.closed_by_service as f64);
        row.put("one_way_count", window.one_way as f64);
        row.put("unasked_count", window.counts.unasked as f64);
        row.put("late_sends_count", window.late_sends as f64);
        row.put("joined_pieces_count", window.counts.joined as f64);
        row.put("connections_began_count", window.counts.began as f64);
        row.put("streamed_count", window.streamed as f64);
        row.put("parked_count", window.counts.parked as f64);
    }

    fn requests_per_s(&self) -> Option<f64> {
        (self.wall_s > 0.0).then(|| self.window.answered_count() as f64 / self.wall_s)
    }
}

/// Returns p50, p95, p99 and the maximum, each with its name.
fn percentiles_and_max(times: &Times) -> [(&'static str, Option<f64>); 4] {
    let percentile = |p| times.percentile_ns(p).map(|ns| ns as f64);
    let max = (times.histogram.count() > 0).then_some(times.max_ns as f64);
    [("p50", percentile(50.0)), ("p95", percentile(95.0)), ("p99", percentile(99.0)), ("max", max)]
}

impl Summary {
    /// Formats the figures as text. With [`Detail::Quiet`] it returns only the first line, which is the most important.
    pub fn text(&self, detail: Detail) -> String {
        let lines = if detail == Detail::Quiet { 1 } else { usize::MAX };
        self.to_string().split_inclusive('\n').take(lines).collect()
    }
}

impl fmt::Display for Summary {
    /// Writes the figures as text, and leaves out rows of the table that are empty or zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "sidelane: {}", self.headline())?;
        let rows = if self.window.answered_count() > 0 { self.table_rows() } else { Vec::new() };
        let rows = rows.into_iter().chain(self.abandoned_text().map(|abandoned| ("abandoned", abandoned)));
        let rows = rows.chain(self.unmatched_text().map(|unmatched| ("unmatched", unmatched)));
        let notes = self.notes.iter().map(|note| ("note", note.to_string()));
        rows.chain(notes).try_for_each(|(name, text)| writeln!(f, "  {name:<12}{text}"))
    }
}

impl Summary {
    fn headline(&self) -> String {
        let Self { service, wall_s, source, .. } = self;
        match self.window.answered_count() {
            0 => format!(
                "{service} answered no request in {wall_s:.1} s; send it its usual traffic during the \
                          measurement"
            ),
            requests => format!(
                "{} of {service} in {wall_s:.1} s ({}), {source}",
                if requests == 1 {
                    "1 request".to_owned()
                } else {
                    format!("{} requests", Unit::Count.human(requests as f64))
                },
                Unit::PerS.human_or_missing(self.requests_per_s())
            ),
        }
    }

    fn table_rows(&self) -> Vec<(&'static str, String)> {
        let window = &self.window;
        let times = [("latency", &window.latency), ("server time", &window.server), ("queueing", &window.queueing)];
        let mut rows: Vec<_> = times.map(|(name, times)| (name, format_times(times, Unit::Ns))).into();
        if window.waited > 0 || window.queue_len.max_ns > 1 {
            let waited = Unit::Count.human(window.waited as f64);
            rows.push((
                "queue",
                format!("{}; {waited} waited for another request", format_times(&window.queue_len, Unit::Count)),
            ));
        }
        rows.push(("threads", window.threads.len().to_string()));
        rows
    }

    /// Formats the count and waiting time of requests whose clients closed the connection early; `None` if there are
    /// none.
    fn abandoned_text(&self) -> Option<String> {
        let abandoned = &self.window.abandoned;
        let count = abandoned.histogram.count();
        let requests = if count == 1 { "request" } else { "requests" };
        let said =
            || format!("{} {requests}, after {}", Unit::Count.human(count as f64), format_times(abandoned, Unit::Ns));
        (count > 0).then(said)
    }

    /// Formats the counts of records that were lost, or of sends and requests without a counterpart; `None` if all are
    /// zero.
    fn unmatched_text(&self) -> Option<String> {
        let counts = &self.window.counts;
        let parts = [
            (counts.dropped, "record dropped", "records dropped"),
            (self.window.closed_by_service, "request closed by the service", "requests closed by the service"),
            (self.window.one_way, "message that wanted no response", "messages that wanted no response"),
            (self.window.unanswered(), "request unanswered", "requests unanswered"),
            (counts.unasked, "response part without a recorded request", "response parts without a recorded request"),
            (
                self.window.late_sends,
                "response part after its request was counted",
                "response parts after their requests were counted",
            ),
        ];
        let said = parts.into_iter().filter(|(count, ..)| *count > 0).map(|(count, one, many)| {
            format!("{} {}", Unit::Count.human(count as f64), if count == 1 { one } else { many })
        });
        let said = said.collect::<Vec<_>>().join(", ");
        (!said.is_empty()).then_some(said)
    }
}

fn format_times(times: &Times, unit: Unit) -> String {
    let shown = percentiles_and_max(times).map(|(name, value)| format!("{name} {}", unit.human_or_missing(value)));
    shown.join("  ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sidelane_timeline::ending::Ending;

    use super::super::records::Request;
    use super::*;

    fn summary() -> Summary {
        let mut window = Window::default();
        window.add(&Request {
            arrived_ns: 0,
            started_ns: 10_000,
            finished_ns: 110_000,
            queue_len: 1,
            ..Request::default()
        });
        Summary {
            service: "port:1".into(),
            source: Source::Sockets,
            wall_s: 2.0,
            window,
            notes: vec![],
            latencies: TimeBins::new(Duration::from_millis(50)),
        }
    }

    #[test]
    fn text_shows_values_with_units() {
        let text = summary().to_string();
        assert!(text.starts_with("sidelane: 1 request of port:1 in 2.0 s"), "{text}");
        assert!(text.contains("server time p50 99.") && text.contains("queueing    p50 "), "{text}");
    }

    #[test]
    fn empty_and_zero_lines_are_left_out() {
        let mut summary = summary();
        let text = summary.to_string();
        assert!(!text.contains("unmatched") && !text.contains("queue  "), "{text}");
        summary.window.counts.unanswered = 2;
        assert!(summary.to_string().contains("unmatched   2 requests unanswered\n"), "{summary}");
        summary.window.add(&Request { finished_ns: 50_000_000, ending: Some(Ending::Abandoned), ..Request::default() });
        summary.window.add(&Request { ending: Some(Ending::NoAnswerWanted), ..Request::default() });
        let text = summary.to_string();
        assert!(text.contains("abandoned   1 request, after p50 ") && text.contains("max 50.0 ms"), "{text}");
        assert!(text.contains("unmatched   1 message that wanted no response\n"), "{text}");
        assert_eq!(summary.window.answered_count(), 1, "neither counts as answered");
        summary.window = Window::default();
        let text = summary.to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("port:1 answered no request in 2.0 s; send it"), "{text}");
    }

    #[test]
    fn json_keys_have_units() {
        let row = summary().to_result().rows.remove(0);
        assert!(row.keys().all(|key| Unit::from_key(key).is_some()));
        assert_eq!(row.get("requests_per_s"), Some(0.5));
        assert_eq!(row.get("latency_max_ns"), Some(110_000.0));
    }
}
