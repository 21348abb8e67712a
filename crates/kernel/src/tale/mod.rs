//! A trace: what happened on the way of services' requests (Tailor; thesis "SHIM and Its Applications", chapter 4).
//!
//! The kernel program writes records (`bpf/tale/`, `abi/tale.h`) on each CPU; [`Recorder`] reads them, puts them into
//! one order, and counts what was lost. It concludes nothing.

mod floor;
mod memory;
mod merge;
mod names;
mod options;
mod programs;
mod recorder;
mod ring;

use libbpf_rs::{OpenMapMut, OpenObject};

pub use floor::TaleFloor;
pub use options::{Carrier, TraceOptions};
pub use recorder::{Recorder, TraceError};

use crate::tracepoints::Tracepoints;

const RECORDS: &str = "tale_records";
const SLOTS: &str = "tale_slots";
const CPUS: &str = "tale_cpus";
const THREADS: &str = "tale_threads";
/// Of each CPU, as in `bpf/lanes.h`.
const SLOTS_A_CPU: usize = 2;

/// Gives a map of the trace its size.
pub(crate) fn prepare_map(map: &mut OpenMapMut<'_>, options: &TraceOptions, cpus: usize) -> libbpf_rs::Result<()> {
    match map.name().to_str() {
        Some(RECORDS) => map.set_max_entries(options.records_a_cpu(cpus) * cpus as u32),
        Some(SLOTS) => map.set_max_entries((cpus * SLOTS_A_CPU) as u32),
        Some(CPUS) => map.set_max_entries(cpus as u32),
        _ => Ok(()),
    }
}

/// Leaves out what the trace was not asked for, and what this kernel has no tracepoint for.
pub(crate) fn leave_out(open: &mut OpenObject, options: &TraceOptions) {
    let kernel = Tracepoints::of_kernel();
    for mut program in open.progs_mut() {
        if programs::is_left_out(&program.name().to_string_lossy(), options, &kernel) {
            program.set_autoload(false);
        }
    }
}
