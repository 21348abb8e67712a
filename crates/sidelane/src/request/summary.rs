//! What watching the requests came to, for people and for programs.

use std::fmt;

use serde_json::{Map, json};

use super::source::Source;
use super::window::{Times, Window};
use crate::machine;
use crate::note::{Note, written};
use sidelane_host::topology::PairKind;
use sidelane_report::{Detail, ResultFile, Row, Unit};

/// The figures of one watch. Everything was measured in it.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The service, as the user named it.
    pub service: String,
    /// Where the requests were learned from.
    pub source: Source,
    /// How long they were watched.
    pub wall_s: f64,
    /// What they came to.
    pub window: Window,
    /// What was degraded or went wrong.
    pub notes: Vec<Note>,
}

impl Summary {
    /// The figures as a result of one row.
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
            for (percentile, value) in figures(times) {
                row.put(&format!("{name}_{percentile}_ns"), value);
            }
        }
        for (percentile, value) in figures(&window.queue_len) {
            row.put(&format!("queue_len_{percentile}_count"), value);
        }
        result.rows.push(row);
        result.notes = written(&self.notes);
        result
    }

    fn put_counts(&self, row: &mut Row) {
        let window = &self.window;
        row.put("wall_s", self.wall_s);
        row.put("requests_count", window.count() as f64);
        row.put("requests_per_s", self.rate());
        row.put("threads_count", window.threads.len() as f64);
        row.put("waited_count", window.waited as f64);
        row.put("co_run_ns", window.co_run_ns as f64);
        row.put("dropped_count", window.counts.dropped as f64);
        row.put("unanswered_count", window.counts.unanswered as f64);
        row.put("unasked_count", window.counts.unasked as f64);
        row.put("late_sends_count", window.late_sends as f64);
        row.put("joined_count", window.counts.joined as f64);
        row.put("began_count", window.counts.began as f64);
        row.put("streamed_count", window.streamed as f64);
        row.put("parked_count", window.counts.parked as f64);
    }

    fn rate(&self) -> Option<f64> {
        (self.wall_s > 0.0).then(|| self.window.count() as f64 / self.wall_s)
    }
}

/// The percentiles that are shown, and the maximum.
fn figures(times: &Times) -> [(&'static str, Option<f64>); 4] {
    let percentile = |p| times.percentile_ns(p).map(|ns| ns as f64);
    let max = (times.histogram.count() > 0).then_some(times.max_ns as f64);
    [("p50", percentile(50.0)), ("p95", percentile(95.0)), ("p99", percentile(99.0)), ("max", max)]
}

impl Summary {
    /// The figures for people: the first line has what matters most.
    pub fn text(&self, detail: Detail) -> String {
        let lines = if detail == Detail::Quiet { 1 } else { usize::MAX };
        self.to_string().split_inclusive('\n').take(lines).collect()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = &self.window;
        writeln!(
            f,
            "sidelane: {} requests of {} in {:.1} s ({}), {}",
            window.count(),
            self.service,
            self.wall_s,
            Unit::PerS.human_or_missing(self.rate()),
            self.source
        )?;
        for (name, times) in
            [("server time", &window.server), ("queueing", &window.queueing), ("latency", &window.latency)]
        {
            writeln!(f, "  {name:<12}{}", line(times, Unit::Ns))?;
        }
        writeln!(
            f,
            "  {:<12}{}; {} waited for another one",
            "queue",
            line(&window.queue_len, Unit::Count),
            window.waited
        )?;
        writeln!(f, "  {:<12}{}", "threads", window.threads.len())?;
        let counts = &window.counts;
        writeln!(
            f,
            "  {:<12}{} records dropped, {} requests unanswered, {} sends unasked for, {} late",
            "unmatched", counts.dropped, counts.unanswered, counts.unasked, window.late_sends
        )?;
        self.notes.iter().try_for_each(|note| writeln!(f, "  {:<12}{note}", "note"))
    }
}

fn line(times: &Times, unit: Unit) -> String {
    let shown = figures(times).map(|(name, value)| format!("{name} {}", unit.human_or_missing(value)));
    shown.join("  ")
}

#[cfg(test)]
mod tests {
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
        Summary { service: "port:1".into(), source: Source::Sockets, wall_s: 2.0, window, notes: vec![] }
    }

    #[test]
    fn people_read_units() {
        let text = summary().to_string();
        assert!(text.starts_with("sidelane: 1 requests of port:1 in 2.0 s"), "{text}");
        assert!(text.contains("server time p50 99.") && text.contains("queueing    p50 "), "{text}");
    }

    #[test]
    fn programs_read_keys_with_units() {
        let row = summary().to_result().rows.remove(0);
        assert!(row.keys().all(|key| Unit::of_key(key).is_some()));
        assert_eq!(row.get("requests_per_s"), Some(0.5));
        assert_eq!(row.get("latency_max_ns"), Some(110_000.0));
    }
}
