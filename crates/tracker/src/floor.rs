//! The floor under the tracker's cost: kernel programs that do nothing at the same places.

use anyhow::{Context, Result};
use libbpf_rs::{Link, Object, ObjectBuilder};

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/floor.bpf.o"));

/// The loaded programs.
pub struct Floor {
    object: Object,
}

impl Floor {
    pub fn load() -> Result<Self> {
        let open = ObjectBuilder::default().open_memory(PROGRAM).context("cannot read the embedded program")?;
        Ok(Self { object: open.load().context("cannot load an empty kernel program")? })
    }

    /// Attaches them for as long as the result lives.
    pub fn attach(&self) -> Result<Vec<Link>> {
        self.object.progs_mut().map(|program| program.attach().context("cannot attach an empty program")).collect()
    }
}
