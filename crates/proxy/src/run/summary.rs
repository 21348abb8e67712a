//! Final result of a proxy, as text and as JSON.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use sidelane_diagnostics::machine;
use sidelane_host::topology::PairKind;
use sidelane_report::{LatencyHistogram, ResultFile, Row};

use super::describe_unfinished_work;
use super::options::ProxyOptions;
use crate::edge::State;
use crate::request_table::BOUNDS_NS;

/// Final result of a proxy.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    version: &'static str,
    listen: SocketAddr,
    servers: Vec<SocketAddr>,
    hedge: String,
    /// Number of swaps by hazard, without zeros.
    swaps: serde_json::Map<String, serde_json::Value>,
    /// Requests and tunnels that were unfinished at the time limit of the drain, or at a second signal.
    cut_at_end: CutAtEnd,
    #[serde(flatten)]
    state: State,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct CutAtEnd {
    requests: usize,
    tunnels: usize,
}

impl Summary {
    fn write_slow_requests(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slow = self.state.slow_requests;
        if slow.exported + slow.not_exported == 0 {
            return Ok(());
        }
        write!(f, "slow       {} requests exported (--otlp)", slow.exported)?;
        if slow.not_exported > 0 {
            write!(f, ", {} not: the destination did not take them in time", slow.not_exported)?;
        }
        writeln!(f)
    }

    pub(super) fn new(options: &ProxyOptions, state: State) -> Self {
        let swaps = state.swaps().filter(|(_, count)| *count > 0);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            listen: options.listen,
            servers: options.servers().collect(),
            hedge: options.hedge.to_string(),
            swaps: swaps.map(|(hazard, count)| (hazard.name().to_owned(), count.into())).collect(),
            cut_at_end: CutAtEnd { requests: state.in_flight, tunnels: state.tunnels },
            state,
        }
    }
}

impl Summary {
    /// Returns the counts and times as a result of one row.
    pub fn to_result(&self) -> ResultFile {
        let counts = &self.state.counts;
        let settings = json!({
            "listen": self.listen.to_string(),
            "servers": self.servers.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "hedge": self.hedge,
        });
        let settings = settings.as_object().cloned().unwrap_or_default();
        let mut result = ResultFile::new(machine::describe(PairKind::Declared), settings);
        let mut row = Row::new("proxy");
        let answered = (counts.answered > 0).then_some(counts.answered as f64);
        row.put("latency_mean_us", answered.map(|answered| counts.answered_ns as f64 / 1e3 / answered));
        for (key, count) in [
            ("requests_count", counts.requests),
            ("answered_count", counts.answered),
            ("failed_count", counts.failed),
            ("cut_count", counts.cut),
            ("left_count", counts.left),
            ("hedges_count", counts.hedges),
            ("wins_count", counts.wins),
            ("sent_again_count", counts.sent_again),
        ] {
            row.put(key, count as f64);
        }
        result.rows.push(row);
        let bounds = BOUNDS_NS.iter().chain(BOUNDS_NS.last());
        let buckets = bounds.zip(counts.durations.buckets).map(|(ns, count)| (*ns, count));
        result.histograms = vec![LatencyHistogram::new("latency, to the next bound", buckets)];
        result
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.state.counts;
        let of_requests = |count: u64| 100.0 * count as f64 / counts.requests.max(1) as f64;
        write!(f, "requests   {}: {} answered", counts.requests, counts.answered)?;
        let troubles = [(counts.failed, "failed"), (counts.cut, "cut off"), (counts.left, "abandoned by the client")];
        for (count, what) in troubles.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, ", {count} {what}")?;
        }
        writeln!(f)?;
        if counts.hedges > 0 {
            let (more_percent, won) = (of_requests(counts.hedges), counts.wins);
            write!(f, "hedges     {} ({more_percent:.2} % more requests), {won} answered first", counts.hedges)?;
            if counts.failed_hedges > 0 {
                write!(f, ", {} with a failure", counts.failed_hedges)?;
            }
            writeln!(f)?;
        }
        if counts.refused > 0 {
            writeln!(f, "refused    {} hedges: the budget (--budget) was used up", counts.refused)?;
        }
        if counts.dropped > 0 {
            let wasted = Duration::from_nanos(counts.wasted_ns);
            writeln!(
                f,
                "wasted     {} answers dropped because another came first, after {wasted:.1?} at servers",
                counts.dropped
            )?;
        }
        if !self.swaps.is_empty() {
            writeln!(f, "swaps      {}", self.describe_swaps())?;
        }
        if counts.sent_again > 0 {
            writeln!(f, "sent again {} copies after a server was lost", counts.sent_again)?;
        }
        for server in self.state.by_server.iter().filter(|server| server.counts.ejections > 0) {
            let (address, ejections) = (server.address, server.counts.ejections);
            writeln!(f, "ejected    {address}, {ejections} times: it failed its requests")?;
        }
        if counts.warm_ups > 0 {
            writeln!(f, "warmed up  {} times, with {} requests", counts.warm_ups, counts.warm_up_requests)?;
        }
        if counts.tied > 0 {
            let what = "for example after AUTH, or WebSockets; requests on them are not counted";
            writeln!(f, "tied       {} connections to one server, {what}", counts.tied)?;
        }
        if self.state.local_connect_errors > 0 {
            let what = "this machine had no open files (ulimit -n) or ports left";
            writeln!(f, "not made   {} connections to servers: {what}", self.state.local_connect_errors)?;
        }
        if self.state.turned_away > 0 {
            writeln!(f, "turned away {} clients, because there were too many", self.state.turned_away)?;
        }
        if self.state.handshakes_failed > 0 {
            let what = "plain HTTP, no common version of TLS, a certificate that the client refused, or --head-time";
            writeln!(f, "no TLS     {} clients, whose handshake failed: {what}", self.state.handshakes_failed)?;
        }
        if self.state.log_lines_lost > 0 {
            let what = "the disk was full, failed or too slow";
            writeln!(f, "not logged {} requests (--access-log): {what}", self.state.log_lines_lost)?;
        }
        self.write_slow_requests(f)?;
        if let Some(cut) = describe_unfinished_work(&self.state) {
            writeln!(f, "cut at end {cut} that did not end within --drain")?;
        }
        writeln!(f, "active     {}: {}", self.state.active, self.state.why)
    }
}

impl Summary {
    fn describe_swaps(&self) -> String {
        let words: Vec<String> = self.swaps.iter().map(|(hazard, count)| format!("{count} by {hazard}")).collect();
        words.join(", ")
    }
}
