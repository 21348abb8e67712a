//! A planted cause: reads from a disk, past the page cache.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result};

use crate::clock::{Nanos, now_ns};
use crate::plant::cause::{PlantArgs, PlantedCause};
use crate::rng::Rng;

/// Size of one read, large enough that the disk takes longer than the system call.
const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 32;

/// Buffer of one read, aligned as every disk accepts it.
#[repr(align(4096))]
struct Block([u8; BLOCK]);

/// Random reads from a file without the page cache.
pub struct DiskReads {
    file: File,
    rng: Rng,
    length_ns: Nanos,
}

impl DiskReads {
    /// Writes the file and opens it. The file is already unlinked when this returns, so it need not be removed.
    pub fn prepare(args: &PlantArgs) -> Result<Self> {
        let path = args.dir.join(format!("sidelane-plant-{}", std::process::id()));
        let file =
            create_filled_file(&path).with_context(|| format!("cannot make a file in {} (--dir)", args.dir.display()));
        let _ = std::fs::remove_file(&path);
        Ok(Self { file: file?, rng: Rng::new(1, 0), length_ns: args.delay_ns() })
    }
}

fn create_filled_file(path: &Path) -> Result<File> {
    let mut file = File::create(path)?;
    (0..BLOCKS).try_for_each(|_| file.write_all(&[1; BLOCK]))?;
    file.sync_all()?;
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    direct.context("its file system cannot be read past the page cache")
}

impl PlantedCause for DiskReads {
    fn disturb_request(&mut self) -> Result<()> {
        let end_ns = now_ns() + self.length_ns;
        let mut block = Box::new(Block([0; BLOCK]));
        while now_ns() < end_ns {
            let at = self.rng.below(BLOCKS) * BLOCK;
            self.file.read_exact_at(&mut block.0, at as u64).context("cannot read from the disk")?;
        }
        Ok(())
    }
}
