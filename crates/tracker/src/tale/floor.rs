//! The floor under a trace's cost: kernel programs that do nothing at the same tracepoints.

use libbpf_rs::{Link, Object, ObjectBuilder};

use super::options::TraceOptions;
use super::parts::leave_out;
use super::recorder::TraceError;
use crate::tracker::TrackerError;
use crate::tracker::error::bpf;

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tale_floor.bpf.o"));

/// The loaded programs.
pub struct TaleFloor {
    object: Object,
}

impl TaleFloor {
    /// Loads as many as a trace with these options has.
    pub fn load(options: &TraceOptions) -> Result<Self, TraceError> {
        let mut open = ObjectBuilder::default().open_memory(PROGRAM).map_err(bpf("read the embedded program"))?;
        leave_out(&mut open, options);
        Ok(Self { object: open.load().map_err(bpf("load an empty kernel program"))? })
    }

    /// Attaches them for as long as the result lives.
    pub fn attach(&self) -> Result<Vec<Link>, TraceError> {
        let loaded = self.object.progs_mut().filter(|program| program.autoload());
        let links = loaded.map(|program| program.attach().map_err(bpf("attach an empty program")));
        Ok(links.collect::<Result<_, TrackerError>>()?)
    }
}
