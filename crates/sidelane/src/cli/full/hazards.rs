//! Command line of `sidelane hazards`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sidelane_hazards::WatchedHazards;
use sidelane_hazards::run::HazardsRun;
use sidelane_hazards::run::options::{HazardOptions, NamedServer};
use sidelane_host::units::parse_time;
use sidelane_proxy::run::options::parse_listen;

/// Arguments of `sidelane hazards`.
#[derive(Debug, Args)]
#[command(
    before_help = "\
Drain servers in HAProxy while they have a hazard:
  sidelane hazards --haproxy /run/haproxy/admin.sock --server web/s1=127.0.0.1:9001
Tell other programs, a line of JSON for each hazard:
  sidelane hazards --socket /run/sidelane-hazards.sock --server s1=127.0.0.1:9001",
    after_help = "\
While a server has a hazard, its weight is 0: new requests go to the others. After a restart its weight rises from a tenth \
of the usual one. The last server that HAProxy can use is never drained, and at most half of the servers are drained for \
GC pauses, stops and throttling.

At SIGTERM and Ctrl-C all weights are set back, and also if sidelane is killed. Exit code: 0."
)]
pub struct HazardsArgs {
    /// Server to watch: its name for others (BACKEND/SERVER for HAProxy), and its address on this machine
    #[arg(long = "server", value_name = "NAME=ADDRESS", required = true)]
    pub servers: Vec<NamedServer>,
    /// Runtime socket of the HAProxy in which servers are drained (`stats socket PATH level admin`)
    #[arg(long, value_name = "SOCKET")]
    pub haproxy: Option<PathBuf>,
    /// Also end requests in flight at a server that is drained, so that HAProxy sends them to another one
    #[arg(long)]
    pub resend: bool,
    /// Address at which HAProxy asks for weights (`agent-check`)
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    pub agent_check: Option<SocketAddr>,
    /// Unix socket at which programs read hazards, a line of JSON for each
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Hazards to watch for: jvm-gc, safepoint, stopped, throttled, restart, with commas between; or all (that can be
    /// seen), or none
    #[arg(long, value_name = "HAZARDS", default_value = "all")]
    pub hazard: WatchedHazards,
    /// Number of ready servers that are elsewhere; --haproxy knows it
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub others: usize,
    /// Time in which the weight of a server that comes back rises
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub warm_up: Duration,
    /// Time between two looks for hazards
    #[arg(long, value_name = "TIME", default_value = "200us", value_parser = parse_time)]
    pub poll: Duration,
    /// Address at which Prometheus reads metrics
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    pub metrics: Option<SocketAddr>,
    /// Time after which the command ends [default: never]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub length: Option<Duration>,
}

impl From<HazardsArgs> for HazardsRun {
    fn from(args: HazardsArgs) -> Self {
        Self { metrics: args.metrics, length: args.length, hazards: args.into() }
    }
}

impl From<HazardsArgs> for HazardOptions {
    fn from(args: HazardsArgs) -> Self {
        Self {
            servers: args.servers,
            hazards: args.hazard,
            haproxy: args.haproxy,
            resend: args.resend,
            agent_check: args.agent_check,
            socket: args.socket,
            others: args.others,
            warm_up: args.warm_up,
            poll: args.poll,
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
        args: HazardsArgs,
    }

    #[test]
    fn defaults_are_those_of_the_agents_file() {
        let line = Line::parse_from(["hazards", "--server", "s1=127.0.0.1:1"]);
        let servers = vec!["s1=127.0.0.1:1".parse().unwrap()];
        assert_eq!(HazardOptions::from(line.args), HazardOptions { servers, ..HazardOptions::default() });
    }
}
