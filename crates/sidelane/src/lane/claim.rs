//! Claims: one Sidelane a batch lane.
//!
//! A claim is a locked file in /run; the lock goes with the process (and its guardian, which
//! inherits it), so a claim never outlives what it stands for.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use crate::undo::Undo;

/// Where claims lie.
const DIR: &str = "/run";

/// Why a lane cannot be claimed.
#[derive(Debug, Error)]
pub enum ClaimError {
    /// Somebody else has it.
    #[error(
        "batch lane {cpu} is already lent by another sidelane (process {owner}): wait for it, or choose other lanes with --lanes"
    )]
    Taken {
        /// The lane.
        cpu: u32,
        /// Its owner, or "unknown".
        owner: String,
    },
    /// The file could not be made or locked.
    #[error("cannot claim batch lane {cpu} at {path}, which takes root")]
    Io {
        /// The lane.
        cpu: u32,
        /// The claim's file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The right to use one batch lane, until dropped.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    file: File,
}

impl Claim {
    /// Claims the batch lane `cpu`.
    pub fn take(cpu: u32) -> Result<Self, ClaimError> {
        Self::take_in(Path::new(DIR), cpu)
    }

    fn take_in(dir: &Path, cpu: u32) -> Result<Self, ClaimError> {
        let path = dir.join(format!("sidelane-lane-{cpu}.lock"));
        let failed = |source| ClaimError::Io { cpu, path: path.clone(), source };
        loop {
            let mut file = open(&path).map_err(failed)?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                let mut owner = String::new();
                let _ = file.read_to_string(&mut owner);
                let owner = if owner.trim().is_empty() { "unknown".to_owned() } else { owner.trim().to_owned() };
                return Err(ClaimError::Taken { cpu, owner });
            }
            // The last owner may have removed the file between our open and our lock.
            let still_there = fs::metadata(&path).is_ok_and(|found| Some(found.ino()) == inode(&file));
            if still_there {
                file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).map_err(failed)?;
                return Ok(Self { path, file });
            }
        }
    }

    /// The file that stands for the claim.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How the claim is given up if its owner has died: who inherited the lock removes the file.
    pub fn undo(&self) -> Undo {
        Undo::Claim { file: self.path.clone(), inode: inode(&self.file).unwrap_or(0) }
    }

    /// A second handle on the same lock, for the guardian to hold.
    pub fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Removed while still locked, so nobody else's new file is hit; unless a guardian has removed it already.
        if fs::metadata(&self.path).is_ok_and(|found| Some(found.ino()) == inode(&self.file)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn inode(file: &File) -> Option<u64> {
    file.metadata().ok().map(|found| found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_lent_once_and_again_after_it_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let claim = Claim::take_in(dir.path(), 3).unwrap();
        let refused = Claim::take_in(dir.path(), 3).unwrap_err().to_string();
        assert!(refused.contains("lane 3") && refused.contains(&std::process::id().to_string()), "{refused}");
        assert!(Claim::take_in(dir.path(), 4).is_ok());
        drop(claim);
        assert!(Claim::take_in(dir.path(), 3).is_ok());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
