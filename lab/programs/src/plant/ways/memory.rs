//! A planted cause: memory that is used for the first time.

use std::ptr;

use anyhow::{Context, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::clock::{Nanos, now_ns};
use crate::plant::way::{PlantArgs, PlantedCause};

/// Size of the memory: several huge pages, like a growing heap.
const BYTES: usize = 16 << 20;

/// Memory that is given back to the kernel before each use.
pub struct Faults {
    start: *mut u8,
    length_ns: Nanos,
}

impl Faults {
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping chosen by the kernel; nothing else refers to it.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), BYTES, protection, MapFlags::PRIVATE) };
        let start: *mut u8 = start.context("no memory")?.cast();
        // SAFETY: the mapping was made just above. A kernel without huge pages refuses, and fills in small ones.
        let _ = unsafe { madvise(start.cast(), BYTES, Advice::LinuxHugepage) };
        Ok(Self { start, length_ns: args.delay_ns() })
    }
}

impl PlantedCause for Faults {
    fn strike(&mut self) -> Result<()> {
        let end_ns = now_ns() + self.length_ns;
        while now_ns() < end_ns {
            // SAFETY: the mapping is private and anonymous, and there is no reference into it.
            unsafe { madvise(self.start.cast(), BYTES, Advice::LinuxDontNeed) }
                .context("pages cannot be given back")?;
            for at in (0..BYTES).step_by(rustix::param::page_size()) {
                // SAFETY: the address is inside the mapping, which lives as long as the process.
                unsafe { self.start.add(at).write_volatile(1) };
            }
        }
        Ok(())
    }
}
