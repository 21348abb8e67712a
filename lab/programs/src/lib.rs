//! Workloads and load of Sidelane's experiments: programs that `sidelane-lab` starts as processes of their own.
//!
//! No program here depends on gates or policies. The services are a text search with realistic request times (`index`,
//! `queries`, `serve`) and embedded key-value stores (`kv`). `load` is an open-loop client, and `batch` is batch work
//! whose progress other processes can read. `sibling` makes two CPUs behave like the lanes of one core, and `slow_cpu`
//! slows a CPU. The other programs are small tools for measurements.
//!
//! # Invariants
//!
//! - Latency counts from the intended start (`lab/tests/open_loop.rs`: `stall_delays_all_requests_due_during_it`).
//! - The noise maker ends with the process that started it (`lab/tests/noise.rs`: `noise_maker_ends_with_its_parent`).
//! - `sibling`: a program loses only time in which both lanes worked (`lab/tests/sibling.rs`:
//!   `programs_lose_the_requested_time_only_beside_a_sibling`), and the end of the emulation removes its kernel program
//!   and threads (`lab/tests/sibling.rs`: `killed_sibling_leaves_nothing_behind`).
//! - `slow_cpu`: a request that moves to another CPU loses time only for its time on the slow CPU
//!   (`lab/tests/slow_cpu.rs`: `moved_request_loses_only_for_its_time_on_the_slow_cpu`).
//! - `kv`: a store keeps the written values (`lab/tests/kv.rs`: `rocksdb_reads_back_written_values`,
//!   `wiredtiger_reads_back_written_values`).
//! - `plant`: a planted cause lasts as long as requested, and its cgroups are removed when the service ends
//!   (`lab/tests/plant.rs`: `unprivileged_causes_last_as_long_as_requested`,
//!   `cgroups_delay_the_service_and_are_removed_after_it`).

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
mod plant;
mod poisson;
mod pulse;
mod queries;
mod resp;
mod rng;
mod scheduling;
mod search;
mod serve;
mod server;
mod service_times;
mod sibling;
mod signals;
mod slow_cpu;
mod summary;
mod zipfian;

pub use cli::LabCommand;

/// Runs one of the lab's programs.
///
/// # Errors
/// Returns the error of the step that failed.
pub fn run(command: LabCommand) -> anyhow::Result<()> {
    match command {
        LabCommand::Index(args) => index::run(&args),
        LabCommand::Queries(args) => queries::run(&args),
        LabCommand::Serve(args) => serve::run(&args),
        LabCommand::Kv(args) => kv::run(&args),
        LabCommand::Load(args) => load::run(&args),
        LabCommand::ServiceTimes(args) => service_times::run(&args),
        LabCommand::Batch(args) => batch::run(&args),
        LabCommand::Pulse(args) => pulse::run(&args),
        LabCommand::Bounce(args) => bounce::run(&args),
        LabCommand::Noise(args) => noise::run(&args),
        LabCommand::EchoServer(args) => echo::server::run(&args),
        LabCommand::EchoClient(args) => echo::client::run(&args),
        LabCommand::Plant(args) => plant::run(&args),
        LabCommand::Ask(args) => plant::ask::run(&args),
        LabCommand::Faults(args) => faults::run(&args),
        LabCommand::Sibling(args) => sibling::run(&args),
        LabCommand::SlowCpu(args) => slow_cpu::run(&args),
    }
}
