//! Claims: one Sidelane lends a batch lane, one Sidelane moves the threads of a process, and one agent runs per
//! machine.
//!
//! A claim is a locked file in /run. The lock ends with the process (and its guardian, which inherits it), so a claim
//! never outlives its owner. A `sidelane run` claims its batch lanes; an agent claims every CPU that it may give to
//! batch. So they never share a CPU. A `sidelane hurry`, a `run --pin-service` and the agent also claim the processes
//! whose threads they move: `threads.rs`.
//!
//! Each run also claims its request lanes, with files of its own. Several runs may have the same request lane, but none
//! may be a batch lane of another run. If two runs start at once, each gives its file a name before it searches for
//! files of other runs. So at least one run sees the file of the second run.
//!
//! A claim's file gets its name last, when it is locked and the guardian has its undo. So a process that is killed
//! earlier leaves no file behind.

mod threads;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, linkat, open as open_file};
use rustix::io::Errno;
use thiserror::Error;

use crate::Undo;
pub use threads::ThreadClaims;

/// Directory of claim files.
const DIR: &str = "/run";

/// Reason why something cannot be claimed.
#[derive(Debug, Error)]
pub enum ClaimError {
    /// Another Sidelane has the batch lane.
    #[error(
        "cannot use batch lane {cpu}: another sidelane (process {owner}) lends it; wait for its end, or choose other \
         lanes with --lanes"
    )]
    Taken {
        /// CPU number of the batch lane.
        cpu: u32,
        /// Process that has the claim, or "unknown".
        owner: String,
    },
    /// The agent has the CPU.
    #[error(
        "cannot use CPU {cpu}: the agent (process {owner}) manages it; start batch in a cgroup that a [[batch]] of the \
         agent's file names, or stop the agent"
    )]
    Agents {
        /// Number of the CPU.
        cpu: u32,
        /// Process of the agent, or "unknown".
        owner: String,
    },
    /// The lane is a request lane of another run.
    #[error(
        "cannot use batch lane {cpu}: it is a request lane of another sidelane (process {owner}); wait for its end, or \
         choose other lanes with --lanes"
    )]
    Serves {
        /// CPU number of the lane.
        cpu: u32,
        /// Process that has the claim, or "unknown".
        owner: String,
    },
    /// The request lane is a batch lane of another run.
    #[error(
        "cannot use request lane {cpu}: it is a batch lane of another sidelane (process {owner}); wait for its end, or \
         choose other lanes with --lanes"
    )]
    Lent {
        /// CPU number of the lane.
        cpu: u32,
        /// Process that has the claim, or "unknown".
        owner: String,
    },
    /// Another agent runs on this machine.
    #[error("cannot start a second agent: one runs on this machine already (process {owner}); see `sidelane status`")]
    TwoAgents {
        /// Process of the other agent, or "unknown".
        owner: String,
    },
    /// Another Sidelane moves the threads of the process.
    #[error(
        "cannot move threads of process {pid}: another sidelane (process {owner}) moves them already; end that \
         sidelane, or wait for its end"
    )]
    Moved {
        /// Number of the process whose threads are claimed.
        pid: u32,
        /// Process of the other Sidelane, or "unknown".
        owner: String,
    },
    /// The agent places the threads of the process.
    #[error(
        "cannot move threads of process {pid}: the agent (process {owner}) places them; remove may_be_placed of this \
         service from the agent's file and send the agent SIGHUP, or stop the agent"
    )]
    Placed {
        /// Number of the process whose threads are claimed.
        pid: u32,
        /// Process of the agent, or "unknown".
        owner: String,
    },
    /// The file of the claim could not be created or locked.
    #[error("cannot claim {what} at {path}; run as root")]
    Io {
        /// Description of what was to be claimed.
        what: String,
        /// Path of the claim's file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Kind of process that claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimant {
    /// A `sidelane run` or `hurry`, or a mapper of the agent.
    Run,
    /// The agent of the machine.
    Agent,
}

impl Claimant {
    /// Word that follows the process number in the file of an agent's claim.
    const AGENT: &str = "agent";

    fn file_text(self) -> String {
        let pid = std::process::id();
        match self {
            Self::Run => pid.to_string(),
            Self::Agent => format!("{pid} {}", Self::AGENT),
        }
    }
}

/// Subject of a claim.
#[derive(Clone, Copy, Debug)]
enum ClaimTarget {
    /// A batch lane, by CPU number.
    Lane(u32),
    /// A request lane, by CPU number.
    Requests(u32),
    /// The right to move the threads of a process.
    Threads(u32),
    /// The right to be the agent of the machine.
    Agent,
}

/// Subject of a claim, with the path of its file.
#[derive(Clone, Debug)]
struct ClaimFile {
    target: ClaimTarget,
    path: PathBuf,
}

impl ClaimFile {
    fn for_lane(dir: &Path, cpu: u32) -> Self {
        Self { target: ClaimTarget::Lane(cpu), path: dir.join(format!("sidelane-lane-{cpu}.lock")) }
    }

    fn for_request_lane(dir: &Path, cpu: u32) -> Self {
        let path = dir.join(format!("{}{}.lock", Self::request_lane_prefix(cpu), std::process::id()));
        Self { target: ClaimTarget::Requests(cpu), path }
    }

    /// Returns the prefix of the file names of all claims of a request lane.
    fn request_lane_prefix(cpu: u32) -> String {
        format!("sidelane-request-{cpu}-")
    }

    fn for_agent(dir: &Path) -> Self {
        Self { target: ClaimTarget::Agent, path: dir.join("sidelane-agent.lock") }
    }

    fn for_threads(dir: &Path, pid: u32) -> Self {
        Self { target: ClaimTarget::Threads(pid), path: dir.join(format!("sidelane-threads-{pid}.lock")) }
    }

    /// Returns the error for a claim that another process has, from the text of its file.
    fn refusal_error(&self, owner_text: &str) -> ClaimError {
        let owner = parse_owner(owner_text);
        match self.target {
            ClaimTarget::Agent => ClaimError::TwoAgents { owner },
            ClaimTarget::Threads(pid) if owner_text.ends_with(Claimant::AGENT) => ClaimError::Placed { pid, owner },
            ClaimTarget::Threads(pid) => ClaimError::Moved { pid, owner },
            ClaimTarget::Lane(cpu) | ClaimTarget::Requests(cpu) if owner_text.ends_with(Claimant::AGENT) => {
                ClaimError::Agents { cpu, owner }
            }
            ClaimTarget::Lane(cpu) => ClaimError::Taken { cpu, owner },
            ClaimTarget::Requests(cpu) => ClaimError::Lent { cpu, owner },
        }
    }

    /// Fails if another claim of the lane excludes this one.
    fn check_conflicts(&self) -> Result<(), ClaimError> {
        let dir = self.path.parent().unwrap_or(Path::new(DIR));
        match self.target {
            ClaimTarget::Lane(cpu) => match find_locked_file_text(dir, &Self::request_lane_prefix(cpu)) {
                Some(words) => Err(ClaimError::Serves { cpu, owner: parse_owner(&words) }),
                None => Ok(()),
            },
            ClaimTarget::Requests(cpu) => {
                let lane = Self::for_lane(dir, cpu).path;
                locked_file_text(&lane).map_or(Ok(()), |words| Err(self.refusal_error(&words)))
            }
            ClaimTarget::Threads(_) | ClaimTarget::Agent => Ok(()),
        }
    }

    fn io_error(&self, source: io::Error) -> ClaimError {
        let what = match self.target {
            ClaimTarget::Agent => "the machine for an agent".to_owned(),
            ClaimTarget::Threads(pid) => format!("the threads of process {pid}"),
            ClaimTarget::Lane(cpu) => format!("batch lane {cpu}"),
            ClaimTarget::Requests(cpu) => format!("request lane {cpu}"),
        };
        ClaimError::Io { what, path: self.path.clone(), source }
    }

    /// Locks the file of a process that has ended, if it left one.
    fn lock_abandoned_file(&self) -> Result<Option<File>, ClaimError> {
        loop {
            let mut file = match File::options().read(true).write(true).open(&self.path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(self.io_error(error)),
            };
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                let mut words = String::new();
                let _ = file.read_to_string(&mut words);
                return Err(self.refusal_error(words.trim()));
            }
            // The last owner may have removed the file after it was opened here and before it was locked here.
            if is_file_at_path(&file, &self.path) {
                return Ok(Some(file));
            }
        }
    }

    /// Gives the file its name. Returns false if a file of that name exists.
    fn link_file(&self, file: &File) -> Result<bool, ClaimError> {
        let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
        match linkat(CWD, nameless, CWD, &self.path, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(self.io_error(error.into())),
        }
    }
}

/// Returns the text of the claim's file, if the file is locked.
fn locked_file_text(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let is_free = flock(&file, FlockOperation::NonBlockingLockShared).is_ok();
    let mut words = String::new();
    let _ = file.read_to_string(&mut words);
    (!is_free).then(|| words.trim().to_owned())
}

/// Returns the text of the first locked claim file whose name has this prefix.
fn find_locked_file_text(dir: &Path, name_prefix: &str) -> Option<String> {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut named = files.filter(|entry| entry.file_name().to_string_lossy().starts_with(name_prefix));
    named.find_map(|entry| locked_file_text(&entry.path()))
}

fn parse_owner(owner_text: &str) -> String {
    owner_text.split(' ').next().filter(|pid| !pid.is_empty()).unwrap_or("unknown").to_owned()
}

/// A right that lasts until it is dropped: to one batch lane, to serve requests on a lane, to move the threads of a
/// process, or to be the agent. After [`Claim::announce`] the same claim of another process is refused.
#[derive(Debug)]
pub struct Claim {
    title: ClaimFile,
    file: File,
}

impl Claim {
    /// Claims the batch lane `cpu` for a run.
    pub fn take_batch_lane(cpu: u32) -> Result<Self, ClaimError> {
        Self::prepare(ClaimFile::for_lane(Path::new(DIR), cpu), Claimant::Run)
    }

    /// Claims the lane `cpu` for requests; other runs may claim it for requests, too.
    pub fn take_request_lane(cpu: u32) -> Result<Self, ClaimError> {
        Self::prepare(ClaimFile::for_request_lane(Path::new(DIR), cpu), Claimant::Run)
    }

    /// Claims a CPU for the agent.
    pub fn take_cpu_for_agent(cpu: u32) -> Result<Self, ClaimError> {
        Self::prepare(ClaimFile::for_lane(Path::new(DIR), cpu), Claimant::Agent)
    }

    /// Claims the right to move the threads of a process.
    pub fn take_threads(pid: u32, claimant: Claimant) -> Result<Self, ClaimError> {
        Self::prepare(ClaimFile::for_threads(Path::new(DIR), pid), claimant)
    }

    /// Claims to be this machine's agent.
    pub fn take_agent_role() -> Result<Self, ClaimError> {
        Self::prepare(ClaimFile::for_agent(Path::new(DIR)), Claimant::Agent)
    }

    /// Locks a file that has no name yet, or the file that an ended process has left.
    fn prepare(claim_file: ClaimFile, claimant: Claimant) -> Result<Self, ClaimError> {
        claim_file.check_conflicts()?;
        let mut file = match claim_file.lock_abandoned_file()? {
            Some(file) => file,
            None => create_unnamed_file(&claim_file.path).map_err(|error| claim_file.io_error(error))?,
        };
        file.set_len(0)
            .and_then(|()| write!(file, "{}", claimant.file_text()))
            .map_err(|error| claim_file.io_error(error))?;
        Ok(Self { title: claim_file, file })
    }

    /// Gives the claim's file its name. Fails if another process has the claim. Must be called after the guardian has
    /// received [`Claim::undo`].
    pub fn announce(&self) -> Result<(), ClaimError> {
        while !is_file_at_path(&self.file, &self.title.path) && !self.title.link_file(&self.file)? {
            // The file is left over from an ended process. No other process removes it while it is locked here.
            if self.title.lock_abandoned_file()?.is_some() {
                fs::remove_file(&self.title.path).map_err(|error| self.title.io_error(error))?;
            }
        }
        // This second check comes after the file has its name. If two processes claim at once, at least one sees the
        // file of the other process.
        self.title.check_conflicts()
    }

    /// Returns the path of the file that stands for the claim.
    pub fn path(&self) -> &Path {
        &self.title.path
    }

    /// Returns the undo of the claim. If the claim's owner dies, the guardian, which inherited the lock, removes the
    /// file.
    pub fn undo(&self) -> Undo {
        Undo::Claim { file: self.title.path.clone(), inode: Some(inode(&self.file).unwrap_or(0)) }
    }

    /// Returns a second handle on the same lock, for the guardian to hold.
    pub fn duplicate_lock(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The file is removed while this process still has its lock, so it cannot be a new file of another process. A
        // guardian may have removed the file already.
        if is_file_at_path(&self.file, &self.title.path) {
            let _ = fs::remove_file(&self.title.path);
        }
    }
}

/// Creates a locked file beside `path`, without a name if the file system can do so. Only its owner may open it: any
/// process that could open it could lock it after the owner's end.
fn create_unnamed_file(path: &Path) -> io::Result<File> {
    let dir = path.parent().unwrap_or(Path::new(DIR));
    let (flags, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    let file = match open_file(dir, flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => open_file(path, flags | OFlags::CREATE | OFlags::EXCL, mode),
        opened => opened,
    };
    let file = File::from(file?);
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

fn is_file_at_path(file: &File, path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| Some(found.ino()) == inode(file))
}

fn inode(file: &File) -> Option<u64> {
    file.metadata().ok().map(|found| found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes and announces a claim of a batch lane.
    fn take_lane_claim(dir: &Path, cpu: u32, claimant: Claimant) -> Result<Claim, ClaimError> {
        let claim = Claim::prepare(ClaimFile::for_lane(dir, cpu), claimant)?;
        claim.announce()?;
        Ok(claim)
    }

    fn file_count(dir: &Path) -> usize {
        fs::read_dir(dir).unwrap().count()
    }

    #[test]
    fn lane_is_claimed_once_until_its_claim_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let take = |cpu| take_lane_claim(dir.path(), cpu, Claimant::Run);
        let held = take(3).unwrap();
        let refused = take(3).unwrap_err().to_string();
        assert!(refused.contains("lane 3") && refused.contains(&std::process::id().to_string()), "{refused}");
        assert!(take(4).is_ok());
        drop(held);
        assert!(take(3).is_ok());
        assert_eq!(file_count(dir.path()), 0);
    }

    #[test]
    fn no_other_user_can_open_a_claim_and_lock_it() {
        let dir = tempfile::tempdir().unwrap();
        let _lane = take_lane_claim(dir.path(), 3, Claimant::Run).unwrap();
        let requests = Claim::prepare(ClaimFile::for_request_lane(dir.path(), 4), Claimant::Run).unwrap();
        requests.announce().unwrap();
        let modes: Vec<u32> =
            fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().mode()).collect();
        assert_eq!(modes.iter().map(|mode| mode & 0o777).collect::<Vec<_>>(), [0o600; 2]);
    }

    #[test]
    fn claimed_request_lane_cannot_become_a_batch_lane() {
        let dir = tempfile::tempdir().unwrap();
        let requests = |cpu| Claim::prepare(ClaimFile::for_request_lane(dir.path(), cpu), Claimant::Run);
        let (one, of_eleven) = (requests(1).unwrap(), requests(11).unwrap());
        one.announce().unwrap();
        of_eleven.announce().unwrap();
        assert!(matches!(take_lane_claim(dir.path(), 1, Claimant::Run), Err(ClaimError::Serves { cpu: 1, .. })));
        assert!(matches!(take_lane_claim(dir.path(), 1, Claimant::Agent), Err(ClaimError::Serves { cpu: 1, .. })));
        let other =
            ClaimFile { target: ClaimTarget::Requests(1), path: dir.path().join("sidelane-request-1-other.lock") };
        Claim::prepare(other, Claimant::Run).and_then(|other| other.announce()).unwrap();
        drop(one);
        let lent = take_lane_claim(dir.path(), 1, Claimant::Run).unwrap();
        assert!(matches!(requests(1), Err(ClaimError::Lent { cpu: 1, .. })));
        drop((lent, of_eleven));
        assert_eq!(file_count(dir.path()), 0);
    }

    /// Two processes that start at once do not see each other's claim before they announce it.
    #[test]
    fn one_of_two_concurrent_claims_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let requests = Claim::prepare(ClaimFile::for_request_lane(dir.path(), 1), Claimant::Run).unwrap();
        let lane = Claim::prepare(ClaimFile::for_lane(dir.path(), 1), Claimant::Run).unwrap();
        requests.announce().unwrap();
        assert!(matches!(lane.announce(), Err(ClaimError::Serves { cpu: 1, .. })));
    }

    #[test]
    fn request_claim_of_a_killed_process_blocks_no_claim() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("sidelane-request-1-7.lock"), "7").unwrap();
        assert!(take_lane_claim(dir.path(), 1, Claimant::Run).is_ok());
    }

    #[test]
    fn run_on_a_lane_of_the_agent_is_refused_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let _claim = take_lane_claim(dir.path(), 3, Claimant::Agent).unwrap();
        let refused = take_lane_claim(dir.path(), 3, Claimant::Run).unwrap_err().to_string();
        assert!(
            refused.contains(&format!("cannot use CPU 3: the agent (process {})", std::process::id())),
            "{refused}"
        );
    }

    #[test]
    fn unannounced_claim_leaves_no_file_and_blocks_no_claim() {
        let dir = tempfile::tempdir().unwrap();
        let prepare = || Claim::prepare(ClaimFile::for_lane(dir.path(), 3), Claimant::Run).unwrap();
        let (first, second) = (prepare(), prepare());
        assert_eq!(file_count(dir.path()), 0);
        second.announce().unwrap();
        second.announce().unwrap();
        assert!(matches!(first.announce(), Err(ClaimError::Taken { cpu: 3, .. })));
        drop(first);
        assert!(is_file_at_path(&second.file, second.path()), "another claim removes its own file only");
    }

    #[test]
    fn leftover_claim_file_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let title = ClaimFile::for_lane(dir.path(), 3);
        let before = Claim::prepare(title.clone(), Claimant::Run).unwrap();
        fs::write(&title.path, "1").unwrap();
        let after = Claim::prepare(title.clone(), Claimant::Run).unwrap();
        assert!(is_file_at_path(&after.file, &title.path));
        assert!(matches!(before.announce(), Err(ClaimError::Taken { .. })));
        drop(after);
        fs::write(&title.path, "1").unwrap();
        before.announce().unwrap();
        assert!(is_file_at_path(&before.file, &title.path));
    }
}
