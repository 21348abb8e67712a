//! The workloads and the load that Sidelane's experiments run on: what `sidelane-lab` starts as processes of its own.
//!
//! Nothing here depends on gates or policies. There is a latency-critical service with a
//! realistic spread of demands (`index`, `queries`, `serve`), embedded key-value stores as services
//! (`kv`), an open-loop client (`load`), batch work whose progress can be read (`batch`), two CPUs
//! that behave like the lanes of one core (`sibling`), a slow one (`slow_cpu`), and small tools for measurements.

mod batch;
mod bounce;
mod cli;
mod clock;
mod corpus;
mod echo;
mod faults;
mod index;
mod kv;
mod load;
mod noise;
mod numbers;
mod place;
mod plant;
mod poisson;
mod pulse;
mod queries;
mod resp;
mod rng;
mod search;
mod serve;
mod server;
mod service_times;
mod sibling;
mod signals;
mod slow_cpu;
mod summary;
mod zipfian;

pub use cli::Command;

/// Runs one of the programs.
///
/// # Errors
/// What it could not do.
pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Index(args) => index::run(&args),
        Command::Queries(args) => queries::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Kv(args) => kv::run(&args),
        Command::Load(args) => load::run(&args),
        Command::ServiceTimes(args) => service_times::run(&args),
        Command::Batch(args) => batch::run(&args),
        Command::Pulse(args) => pulse::run(&args),
        Command::Bounce(args) => bounce::run(&args),
        Command::Noise(args) => noise::run(&args),
        Command::EchoServer(args) => echo::server::run(&args),
        Command::EchoClient(args) => echo::client::run(&args),
        Command::Plant(args) => plant::run(&args),
        Command::Ask(args) => plant::ask::run(&args),
        Command::Faults(args) => faults::run(&args),
        Command::Sibling(args) => sibling::run(&args),
        Command::SlowCpu(args) => slow_cpu::run(&args),
    }
}
