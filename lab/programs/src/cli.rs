//! The command line: one subcommand a tool.
//!
//! Each tool declares its own options next to its code; this file only lists them.

use clap::Subcommand;

use crate::{
    batch, bounce, echo, faults, index, kv, load, noise, plant, pulse, queries, serve, service_times, sibling, slow_cpu,
};

/// The tools of the lab.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Build a search index from real text of Debian packages
    Index(index::IndexArgs),
    /// Draw a query mix from an index's own terms
    Queries(queries::QueriesArgs),
    /// Serve searches over HTTP
    Serve(serve::ServeArgs),
    /// Serve an embedded key-value store, RocksDB or WiredTiger, in the protocol of Redis
    Kv(kv::KvArgs),
    /// Send requests at Poisson times and measure latency from the intended start
    Load(load::LoadArgs),
    /// Run every query once, in process, and print the service times
    ServiceTimes(service_times::ServiceTimesArgs),
    /// Run batch work that counts its progress in shared memory
    Batch(batch::BatchArgs),
    /// Run a synthetic service: spin, sleep, repeat
    Pulse(pulse::PulseArgs),
    /// Hand a CPU back and forth between two processes
    Bounce(bounce::BounceArgs),
    /// Make the machine noisy: a host that takes the CPUs away, and neighbours
    Noise(noise::NoiseArgs),
    /// Run a service that records when it worked on which request
    EchoServer(echo::server::EchoServerArgs),
    /// Send requests to it on time, some in ways that hide where a request ends
    EchoClient(echo::client::EchoClientArgs),
    /// Run a service in which some requests are slow, of one known cause
    Plant(plant::PlantArgs),
    /// Ask such a service one request at a time, and write the truth down
    Ask(plant::ask::AskArgs),
    /// Run a synthetic service that makes page faults on command
    Faults(faults::FaultsArgs),
    /// Make two CPUs slow each other as the lanes of one core do
    Sibling(sibling::SiblingArgs),
    /// Make a CPU slow, as a little core is
    SlowCpu(slow_cpu::SlowCpuArgs),
}
