//! Command line of `sidelane proxy`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use sidelane_host::units::parse_time;
use sidelane_proxy::config::Limits;

use crate::cli::common::{JsonFile, RunDirectory, parse_percent};
use sidelane_hazards::WatchedHazards;
use sidelane_proxy::run::ProxyRun;
use sidelane_proxy::run::options::{
    FORWARDED, Hedge, LOG_FORMATS, ONCE_TO, PROTOCOLS, ProxyOptions, THREADS_MAX, parse_listen, parse_server,
};
use sidelane_proxy::tls::TlsFiles;
use sidelane_report::otlp::Destination;
use sidelane_trace::slow_threshold::SlowThreshold;

/// Arguments of `sidelane proxy`.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Proxy HTTP to two servers:
  sidelane proxy --listen :8080 --active 127.0.0.1:9001 --backup 127.0.0.1:9002
Proxy Redis:
  sidelane proxy --listen :6380 --protocol redis --active 127.0.0.1:6379 --backup 127.0.0.1:6381",
    after_help = "\
When a hazard of the active server begins, the best backup takes its place. Requests in flight that are safe to repeat \
are sent to a backup, too. The client gets the first answer that is no failure (429, 5xx). A server that \
fails its requests is out of service, for 30 s at first.

To see where a slow request went: curl localhost:8080/.sidelane/trace/NUMBER, with the NUMBER in the field \
Sidelane-Request of its answer.

At SIGTERM and Ctrl-C the proxy takes no more clients, answers the requests that it has, and ends. Exit code: 0."
)]
pub struct ProxyArgs {
    /// Address for clients: ADDRESS:PORT, or :PORT for every address of this machine
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    pub listen: SocketAddr,
    /// Server that gets the requests
    #[arg(long, value_name = "ADDRESS", value_parser = parse_server)]
    pub active: SocketAddr,
    /// Server that takes its place; give it up to three times, the preferred one first [default: none; hazards are only
    /// counted]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_server)]
    pub backup: Vec<SocketAddr>,
    /// Protocol of clients and servers
    #[arg(long, value_name = "NAME", default_value = "http", value_parser = choice_parser(PROTOCOLS))]
    pub protocol: String,
    /// Hazards to watch for: jvm-gc, safepoint, stopped, throttled, restart, with commas between; or all (that can be
    /// seen), or none
    #[arg(long, value_name = "HAZARDS", default_value = "all")]
    pub hazard: WatchedHazards,
    /// When to send a request to a second server: hazard, timer:TIME (no answer within TIME), none
    #[arg(long, value_name = "WHEN", default_value = "hazard")]
    pub hedge: Hedge,
    /// Methods or commands that are safe to repeat [default: GET,HEAD,OPTIONS; for Redis commands that only read]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub repeat: Vec<String>,
    /// Server for requests that are not safe to repeat: the active one, or always the first (the primary of a replica)
    #[arg(long, value_name = "SERVER", default_value = "active", value_parser = choice_parser(ONCE_TO))]
    pub once_to: String,
    /// X-Forwarded-For, Forwarded and the like: set (write them, and drop the client's), add (to those of clients that
    /// are trusted proxies), off (pass them on unchanged)
    #[arg(long, value_name = "HOW", default_value = "set", value_parser = choice_parser(FORWARDED))]
    pub forwarded: String,
    /// Limit of hedges in the long run, in percent of the requests
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = parse_percent)]
    pub budget: f64,
    /// Limit of hedges at once
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub burst: u64,
    /// Number of requests that warm up a server that comes back
    #[arg(long, value_name = "NUMBER", default_value_t = 200)]
    pub warm_up: u32,
    /// Keep a server in service that fails its requests (5 in a row, or half of them)
    #[arg(long)]
    pub no_outlier_detection: bool,
    /// Time between two looks for hazards
    #[arg(long, value_name = "TIME", default_value = "200us", value_parser = parse_time)]
    pub poll: Duration,
    /// Trace the servers, so that /.sidelane/trace/NUMBER shows their part, too (as root, and for http)
    #[arg(long)]
    pub trace: bool,
    /// Export requests above --slo as OpenTelemetry traces, to a collector (http://HOST:4318) or to the end of a file; a
    /// client's traceparent is their parent
    #[arg(long, value_name = "DESTINATION", requires_all = ["trace", "slo"])]
    pub otlp: Option<Destination>,
    /// Latency above which --otlp exports a request, as in 10ms
    #[arg(long, value_name = "OBJECTIVE", value_parser = SlowThreshold::parse, requires = "otlp")]
    pub slo: Option<SlowThreshold>,
    /// File for the access log, a line for each request; - is standard output; SIGHUP opens the file again
    #[arg(long, value_name = "FILE")]
    pub access_log: Option<PathBuf>,
    /// Form of these lines: text (the combined format, and fields of the proxy) or json
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = choice_parser(LOG_FORMATS), requires = "access_log")]
    pub log_format: String,
    /// Number of threads that serve clients
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = parse_thread_count)]
    pub threads: usize,
    /// File with the certificates for TLS to clients, as PEM; SIGHUP reads it again [default: no TLS]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// File with the private key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Time for the head of a request, from its first byte, and for a TLS handshake
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub head_time: Duration,
    /// Time without a byte after which a connection ends
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub idle_time: Duration,
    /// Time for a server to begin its answer
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub answer_time: Duration,
    /// End the request of a client that has closed its direction
    #[arg(long)]
    pub abort_on_close: bool,
    /// Time for requests in flight and tied connections after SIGTERM or Ctrl-C; a second signal cuts them
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time)]
    pub drain: Duration,
    /// Limit of clients at once [default: as many as open files allow]
    #[arg(long, value_name = "NUMBER")]
    pub clients: Option<usize>,
    /// Address at which Prometheus reads metrics
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    pub metrics: Option<SocketAddr>,
    /// Time after which the proxy ends [default: never]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub length: Option<Duration>,
    /// The summary
    #[command(flatten)]
    pub json: JsonFile,
    /// The directory of the run
    #[command(flatten)]
    pub out: RunDirectory,
}

fn parse_thread_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=THREADS_MAX).contains(count));
    count.ok_or_else(|| format!("it is not a number of threads; write a whole number from 1 to {THREADS_MAX}"))
}

fn choice_parser<T: Copy, const N: usize>(choices: [(&'static str, T); N]) -> PossibleValuesParser {
    PossibleValuesParser::new(choices.map(|(name, _)| name))
}

fn choice_value<T: Copy>(name: &str, choices: &[(&str, T)]) -> T {
    choices.iter().find(|(known, _)| *known == name).expect("the parser knows the choices").1
}

impl From<ProxyArgs> for ProxyRun {
    fn from(args: ProxyArgs) -> Self {
        Self { metrics: args.metrics, length: args.length, proxy: args.into() }
    }
}

impl From<ProxyArgs> for ProxyOptions {
    fn from(args: ProxyArgs) -> Self {
        let limits = Limits {
            head_time: args.head_time,
            idle_time: args.idle_time,
            answer_time: args.answer_time,
            abort_on_close: args.abort_on_close,
            drain: args.drain,
            clients: args.clients,
            ..Limits::default()
        };
        Self {
            listen: args.listen,
            active: args.active,
            backups: args.backup,
            protocol: choice_value(&args.protocol, &PROTOCOLS),
            hazards: args.hazard,
            hedge: args.hedge,
            repeat: args.repeat,
            unsafe_stay: choice_value(&args.once_to, &ONCE_TO),
            forwarded: choice_value(&args.forwarded, &FORWARDED),
            budget_percent: args.budget,
            burst: args.burst,
            warm_up: args.warm_up,
            outlier_detection: !args.no_outlier_detection,
            poll: args.poll,
            trace: args.trace,
            otlp: args.otlp,
            slo: args.slo,
            access_log: args.access_log,
            log_format: choice_value(&args.log_format, &LOG_FORMATS),
            threads: args.threads,
            tls: args.tls_cert.zip(args.tls_key).map(|(cert, key)| TlsFiles { cert, key }),
            limits,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ProxyArgs,
    }

    #[test]
    fn defaults_are_those_of_the_agents_file() {
        let line = Line::parse_from(["proxy", "--listen", ":1", "--active", "127.0.0.1:2"]);
        let (listen, active) = (parse_listen(":1").unwrap(), parse_server("127.0.0.1:2").unwrap());
        assert_eq!(ProxyOptions::from(line.args), ProxyOptions::new(listen, active));
    }
}
