//! Claims: one Sidelane a batch lane, and one agent a machine.
//!
//! A claim is a locked file in /run; the lock goes with the process (and its guardian, which
//! inherits it), so a claim never outlives what it stands for. A `sidelane run` claims its batch lanes; an agent
//! claims every CPU that it may give to batch. So neither has a CPU that the other one has.

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
    /// The agent has it.
    #[error(
        "CPU {cpu} belongs to the agent (process {owner}), which shares this machine between services and batch: give \
         it the batch (a group in a tree of [[batch]]), leave the CPU out of its file, or stop it"
    )]
    Agents {
        /// The lane.
        cpu: u32,
        /// The agent, or "unknown".
        owner: String,
    },
    /// There is an agent.
    #[error(
        "an agent runs on this machine already (process {owner}), and there is room for one: see `sidelane status`"
    )]
    TwoAgents {
        /// It, or "unknown".
        owner: String,
    },
    /// The file could not be made or locked.
    #[error("cannot claim {what} at {path}, which takes root")]
    Io {
        /// What was to be claimed.
        what: String,
        /// The claim's file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Who claims a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimant {
    /// A `sidelane run`.
    Run,
    /// The agent.
    Agent,
}

impl Claimant {
    /// Follows the process in the file of an agent's claim.
    const AGENT: &str = "agent";

    fn words(self) -> String {
        let pid = std::process::id();
        match self {
            Self::Run => pid.to_string(),
            Self::Agent => format!("{pid} {}", Self::AGENT),
        }
    }
}

/// The right to use one batch lane, or to be the agent, until dropped.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    file: File,
}

impl Claim {
    /// Claims the batch lane `cpu`.
    pub fn take(cpu: u32) -> Result<Self, ClaimError> {
        Self::take_in(Path::new(DIR), cpu, Claimant::Run)
    }

    /// Claims a CPU for the agent.
    pub fn take_for_agent(cpu: u32) -> Result<Self, ClaimError> {
        Self::take_in(Path::new(DIR), cpu, Claimant::Agent)
    }

    /// Claims to be this machine's agent.
    pub fn to_be_the_agent() -> Result<Self, ClaimError> {
        Self::lock(&Path::new(DIR).join("sidelane-agent.lock"), "to be the agent", Claimant::Agent)?
            .map_err(|owner| ClaimError::TwoAgents { owner: process_of(&owner) })
    }

    fn take_in(dir: &Path, cpu: u32, claimant: Claimant) -> Result<Self, ClaimError> {
        let path = dir.join(format!("sidelane-lane-{cpu}.lock"));
        Self::lock(&path, &format!("batch lane {cpu}"), claimant)?.map_err(|owner| {
            let is_agents = owner.ends_with(Claimant::AGENT);
            let owner = process_of(&owner);
            if is_agents { ClaimError::Agents { cpu, owner } } else { ClaimError::Taken { cpu, owner } }
        })
    }

    /// Locks the file, or says what is in it.
    fn lock(path: &Path, what: &str, claimant: Claimant) -> Result<Result<Self, String>, ClaimError> {
        let failed = |source| ClaimError::Io { what: what.to_owned(), path: path.to_owned(), source };
        loop {
            let mut file = open(path).map_err(failed)?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                let mut owner = String::new();
                let _ = file.read_to_string(&mut owner);
                return Ok(Err(owner.trim().to_owned()));
            }
            // The last owner may have removed the file between our open and our lock.
            let still_there = fs::metadata(path).is_ok_and(|found| Some(found.ino()) == inode(&file));
            if still_there {
                file.set_len(0).and_then(|()| write!(file, "{}", claimant.words())).map_err(failed)?;
                return Ok(Ok(Self { path: path.to_owned(), file }));
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

/// The process in a claim's file.
fn process_of(owner: &str) -> String {
    owner.split(' ').next().filter(|pid| !pid.is_empty()).unwrap_or("unknown").to_owned()
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
        let take = |cpu| Claim::take_in(dir.path(), cpu, Claimant::Run);
        let claim = take(3).unwrap();
        let refused = take(3).unwrap_err().to_string();
        assert!(refused.contains("lane 3") && refused.contains(&std::process::id().to_string()), "{refused}");
        assert!(take(4).is_ok());
        drop(claim);
        assert!(take(3).is_ok());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_run_is_told_that_the_agent_has_its_lane() {
        let dir = tempfile::tempdir().unwrap();
        let _claim = Claim::take_in(dir.path(), 3, Claimant::Agent).unwrap();
        let refused = Claim::take_in(dir.path(), 3, Claimant::Run).unwrap_err().to_string();
        assert!(refused.contains(&format!("CPU 3 belongs to the agent (process {})", std::process::id())), "{refused}");
    }
}
