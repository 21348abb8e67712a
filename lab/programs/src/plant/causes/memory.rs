//! A planted cause: memory that is used for the first time.

use anyhow::Result;

use crate::clock::{Nanos, now_ns};
use crate::faults::Pages;
use crate::plant::cause::{PlantArgs, PlantedCause};

/// Size of the memory: several huge pages, like a growing heap.
const BYTES: usize = 16 << 20;

/// Memory that is given back to the kernel before each use.
pub struct PageFaults {
    pages: Pages,
    length_ns: Nanos,
}

impl PageFaults {
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        Ok(Self { pages: Pages::map_huge(BYTES)?, length_ns: args.delay_ns() })
    }
}

impl PlantedCause for PageFaults {
    fn disturb_request(&mut self) -> Result<()> {
        let end_ns = now_ns() + self.length_ns;
        while now_ns() < end_ns {
            self.pages.fault_all_pages()?;
        }
        Ok(())
    }
}
