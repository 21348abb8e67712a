//! The minimum cost of Sidelane's kernel programs, measured with empty programs at the same tracepoints.

use anyhow::{Context, Result};
use libbpf_rs::{Link, Object, ObjectBuilder, OpenObject};
use sidelane_tracker::trace::{TraceOptions, disable_unneeded_programs};

static OF_TRACKING: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/floor.bpf.o"));
static OF_A_TRACE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trace_floor.bpf.o"));

/// Loaded kernel programs that do nothing.
pub struct EmptyPrograms {
    object: Object,
}

impl EmptyPrograms {
    /// Loads empty programs for the tracepoints of a context switch and a wakeup.
    pub fn for_tracking() -> Result<Self> {
        Self::load(open(OF_TRACKING)?)
    }

    /// Loads one empty program for each program of a trace with these options.
    pub fn for_trace(options: &TraceOptions) -> Result<Self> {
        let mut programs = open(OF_A_TRACE)?;
        disable_unneeded_programs(&mut programs, options);
        Self::load(programs)
    }

    fn load(programs: OpenObject) -> Result<Self> {
        Ok(Self { object: programs.load().context("cannot load the empty kernel programs")? })
    }

    /// Attaches the empty programs until the returned links are dropped.
    pub fn attach(&self) -> Result<Vec<Link>> {
        let loaded = self.object.progs_mut().filter(|program| program.autoload());
        loaded.map(|program| program.attach().context("cannot attach an empty kernel program")).collect()
    }
}

fn open(object: &[u8]) -> Result<OpenObject> {
    ObjectBuilder::default().open_memory(object).context("cannot read the embedded empty programs")
}
