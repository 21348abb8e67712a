//! The command line of `sidelane proxy`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use sidelane_host::units::parse_time;
use sidelane_proxy::config::Limits;

use super::common::{JsonFile, parse_percent};
use crate::proxy::Wanted;
use crate::proxy::options::{FORWARDED, Hedge, ONCE_TO, PROTOCOLS, ProxyOptions, Watched, parse_listen, parse_server};

/// Arguments of `sidelane proxy`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sidelane proxy --listen :8080 --active 127.0.0.1:9001 --backup 127.0.0.1:9002
  sidelane proxy --listen :8080 --active 127.0.0.1:9001 --backup 127.0.0.1:9002 --hazard jvm-gc,restart
  sidelane proxy --listen :6380 --active 127.0.0.1:6379 --protocol redis

When a hazard of the active server begins, it and the backup change places, and requests in flight that are safe to \
repeat are sent to the new active server, too. The first answer that is no failure (429, 5xx) counts. GET /.sidelane/tale/NUMBER, with the number of \
an answer's field Sidelane-Request, tells what became of a request. Exit code: 0 after SIGTERM or SIGINT.")]
pub struct ProxyArgs {
    /// Where clients come: ADDRESS:PORT, or :PORT for every address of this machine
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    pub listen: SocketAddr,
    /// The server that is asked at first
    #[arg(long, value_name = "ADDRESS", value_parser = parse_server)]
    pub active: SocketAddr,
    /// The server that takes its place [default: none: hazards are only counted]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_server)]
    pub backup: Option<SocketAddr>,
    /// What clients and servers speak
    #[arg(long, value_name = "NAME", default_value = "http", value_parser = names(PROTOCOLS))]
    pub protocol: String,
    /// What is watched for: jvm-gc, safepoint, stopped, throttled, restart; all that can be seen; none
    #[arg(long, value_name = "HAZARDS", default_value = "all")]
    pub hazard: Watched,
    /// When requests are sent to both servers: hazard, timer:TIME (once they have waited for so long), none
    #[arg(long, value_name = "WHEN", default_value = "hazard")]
    pub hedge: Hedge,
    /// Methods or commands that are safe to repeat [default: GET,HEAD,OPTIONS; for redis commands that only read]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub repeat: Vec<String>,
    /// Where requests go that are not safe to repeat: the active server, or always the first, as for a replica
    #[arg(long, value_name = "WHERE", default_value = "active", value_parser = names(ONCE_TO))]
    pub once_to: String,
    /// What servers are told of clients, for http: set (X-Forwarded-For, Forwarded and the like are the proxy's alone), add
    /// (clients are trusted proxies: theirs stay), off
    #[arg(long, value_name = "HOW", default_value = "set", value_parser = names(FORWARDED))]
    pub forwarded: String,
    /// How many more requests servers get in the long run, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = parse_percent)]
    pub budget: f64,
    /// How many hedges there may be at once
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub burst: u64,
    /// How many requests warm up a server that comes back
    #[arg(long, value_name = "NUMBER", default_value_t = 200)]
    pub warm_up: u32,
    /// How often hazards are looked for
    #[arg(long, value_name = "TIME", default_value = "200us", value_parser = parse_time)]
    pub poll: Duration,
    /// Trace the servers: what GET /.sidelane/tale/NUMBER tells has their part, too (needs root, and http)
    #[arg(long)]
    pub trace: bool,
    /// How long the head of a request may take from its first byte on
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub head_time: Duration,
    /// How long a connection may be silent
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub idle_time: Duration,
    /// How long servers may take to begin an answer
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub answer_time: Duration,
    /// A client that closes its direction gets no answer: the request is ended at its servers
    #[arg(long)]
    pub abort_on_close: bool,
    /// How long requests in flight and tied connections may go on after SIGTERM or Ctrl-C; a second one ends them
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time)]
    pub drain: Duration,
    /// How many clients there may be at once [default: as many as open files allow]
    #[arg(long, value_name = "NUMBER")]
    pub clients: Option<usize>,
    /// Where Prometheus reads
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    pub metrics: Option<SocketAddr>,
    /// For how long [default: until it is ended]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub length: Option<Duration>,
    /// The summary
    #[command(flatten)]
    pub json: JsonFile,
}

fn names<T: Copy, const N: usize>(choices: [(&'static str, T); N]) -> PossibleValuesParser {
    PossibleValuesParser::new(choices.map(|(name, _)| name))
}

fn named<T: Copy>(name: &str, choices: &[(&str, T)]) -> T {
    choices.iter().find(|(known, _)| *known == name).expect("the parser knows the choices").1
}

impl From<ProxyArgs> for Wanted {
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
            backup: args.backup,
            protocol: named(&args.protocol, &PROTOCOLS),
            hazards: args.hazard,
            hedge: args.hedge,
            repeat: args.repeat,
            unsafe_stay: named(&args.once_to, &ONCE_TO),
            forwarded: named(&args.forwarded, &FORWARDED),
            budget_percent: args.budget,
            burst: args.burst,
            warm_up: args.warm_up,
            poll: args.poll,
            trace: args.trace,
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
