//! Parts of the object that belong to a trace: the programs that are loaded, and the sizes of its maps.

use libbpf_rs::{OpenMapMut, OpenObject};

use super::options::TraceOptions;
use super::programs::is_left_out;
use crate::tracepoints::Tracepoints;

pub(super) const RINGS: &str = "trace_rings";
pub(super) const CPUS: &str = "trace_cpus";
pub(super) const THREADS: &str = "trace_threads";

/// Sets the size of a map of the trace.
pub(crate) fn set_trace_map_size(
    map: &mut OpenMapMut<'_>,
    options: &TraceOptions,
    cpus: usize,
) -> libbpf_rs::Result<()> {
    match map.name().to_str() {
        Some(RINGS) => map.set_max_entries(options.records_per_cpu(cpus) * cpus as u32),
        Some(CPUS) => map.set_max_entries(cpus as u32),
        _ => Ok(()),
    }
}

/// Leaves out programs that the trace does not need, and programs whose tracepoint this kernel lacks. It works on
/// names, so that other objects with programs of the same names can be prepared in the same way.
pub fn disable_unneeded_programs(object: &mut OpenObject, options: &TraceOptions) {
    let kernel = Tracepoints::of_kernel();
    for mut program in object.progs_mut() {
        if is_left_out(&program.name().to_string_lossy(), options, &kernel) {
            program.set_autoload(false);
        }
    }
}
