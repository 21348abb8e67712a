//! Verbs that a build without the feature `full` lacks: all but those that lend lanes.

mod agent;
mod estimate;
mod hazards;
mod hurry;
mod look;
mod proxy;
mod sim;
mod top;
mod trace;

use clap::Subcommand;

pub use agent::{Agent, AgentArgs, AgentFile, ShowArgs, StatusArgs};
pub use estimate::EstimateArgs;
pub use hazards::HazardsArgs;
pub use hurry::HurryArgs;
pub use look::{ListArgs, ObserveArgs, Outputs, ReportArgs, RequestsArgs};
pub use proxy::ProxyArgs;
pub use sim::SimArgs;
pub use top::TopArgs;
pub use trace::TraceArgs;

/// Verbs that observe, decide, explain and hedge.
#[derive(Debug, Subcommand)]
pub enum FullVerb {
    /// Find out what batch would get beside a service, and what requests would pay, without changing anything
    Estimate(EstimateArgs),
    /// Measure a service's requests: number, latency, server time and queueing
    Requests(RequestsArgs),
    /// List the signals of a service, and where they are found
    List(ListArgs),
    /// Read signals of running programs as fast as the caches allow: tags, counters and rates
    Observe(ObserveArgs),
    /// Find out why a service's requests are slow, request by request, and what to do about it
    Trace(TraceArgs),
    /// Compare runs that --out has kept, or show an observation or a trace again from its log
    Report(ReportArgs),
    /// Run an experiment on a simulated machine, with the same policies
    Sim(SimArgs),
    /// Proxy requests to a server, and to a backup while the server is in a GC pause, throttled, stopped or restarting
    Proxy(Box<ProxyArgs>),
    /// Drain servers in HAProxy, or tell other programs, while a server is in a GC pause, throttled, stopped or
    /// restarting
    Hazards(HazardsArgs),
    /// Move a service's long-running requests to big cores, on a machine with big and little ones
    Hurry(HurryArgs),
    /// Share the machine between services and batch containers, as a file says
    Agent(AgentArgs),
    /// Show what runs where and why, from the running agent
    Status(StatusArgs),
    /// Watch lanes, services and batch live, from the running agent or a run
    Top(TopArgs),
}
