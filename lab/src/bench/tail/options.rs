//! The options of `sidelane-lab bench tail`.

use std::path::PathBuf;

use clap::ValueEnum;

use sidelane_stats::rounds::RoundOptions;

/// Options of `sidelane-lab bench tail`.
#[derive(Clone, Debug)]
pub struct TailOptions {
    /// Limit of rounds, and whether to measure less.
    pub round_options: RoundOptions,
    /// Lane pair from `--lanes`; by default SMT siblings if there are any, else CPUs 0 and 1.
    pub lanes: Option<String>,
    /// Parts from `--part`; all by default.
    pub parts: Option<Vec<Part>>,
    /// Folder that keeps indexes and built servers between runs.
    pub cache: PathBuf,
}

impl TailOptions {
    /// Returns the parts to measure, in their order.
    pub(super) fn parts(&self) -> Vec<Part> {
        let is_wanted = |part: &Part| self.parts.as_ref().is_none_or(|wanted| wanted.contains(part));
        Part::value_variants().iter().copied().filter(is_wanted).collect()
    }
}

/// Part of the bench that can be measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Causes that are planted, and what a trace names
    Planted,
    /// Redis at 20 000 requests a second: whether each is rebuilt
    Redis,
    /// What a trace costs Redis, beside empty programs, perf and bpftrace
    Cost,
    /// A Lucene search server: plain, and with one remedy after the other
    Lucene,
    /// The proxy beside haproxy and nginx
    Proxy,
    /// The same with TLS and two threads
    ProxyTls,
    /// A server that collects garbage: hedged at hazards, and by a timer
    Hazard,
    /// HAProxy in front of two servers: alone, and with hazards
    Haproxy,
}

impl Part {
    /// Returns the name of the part on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Part::Planted => "planted",
            Part::Redis => "redis",
            Part::Cost => "cost",
            Part::Lucene => "lucene",
            Part::Proxy => "proxy",
            Part::ProxyTls => "proxy-tls",
            Part::Hazard => "hazard",
            Part::Haproxy => "haproxy",
        }
    }
}
