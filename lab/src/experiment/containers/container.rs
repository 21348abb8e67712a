//! One container: its cgroups, and a command that a thread starts again in them whenever it ends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::work::{PreparedCommand, Work, WorkFiles};
use crate::experiment::batch;
use sidelane_host::cgroup::BatchGroup;
use sidelane_rollback::groups::kill_group;

/// Interval between attempts to kill a container. One attempt may not suffice: a new process may not have entered the
/// container's cgroups yet.
const KILL_AGAIN: Duration = Duration::from_millis(1);

pub(super) struct Container {
    name: String,
    leaves: Vec<BatchGroup>,
    /// File in which the lab's kernels count their units; `None` for other programs.
    counter: Option<PathBuf>,
    shared: Arc<ContainerState>,
    thread: JoinHandle<Result<()>>,
}

#[derive(Default)]
struct ContainerState {
    ends: AtomicBool,
    /// Number of commands that ended by themselves.
    runs: AtomicU64,
}

impl Container {
    pub(super) fn start(name: &str, cgroups: Vec<BatchGroup>, work: &Work, work_files: &WorkFiles) -> Result<Self> {
        let prepared = work.prepare(work_files, name)?;
        let (counter, shared) = (prepared.counter.clone(), Arc::<ContainerState>::default());
        let (cgroup_files, for_thread) = (cgroup_files(&cgroups)?, Arc::clone(&shared));
        let thread = thread::Builder::new()
            .name(format!("container-{name}"))
            .spawn(move || run_repeatedly(&prepared, &cgroup_files, &for_thread))
            .context("cannot start the thread of a container")?;
        Ok(Self { name: name.to_owned(), leaves: cgroups, counter, shared, thread })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }

    /// Returns the units counted by a lab kernel; for other programs, the number of completed commands.
    pub(super) fn work_done(&self) -> u64 {
        self.counter.as_deref().map_or_else(|| self.shared.runs.load(Ordering::Relaxed), batch::units_done)
    }

    /// Returns the last timestamp that the container's kernel stored; `None` without stamps.
    pub(super) fn last_work_timestamp_ns(&self) -> Option<u64> {
        const STAMP: std::ops::Range<usize> = 24..32;
        let bytes = fs::read(self.counter.as_deref()?).ok()?;
        let stamp_ns = u64::from_ne_bytes(bytes.get(STAMP)?.try_into().ok()?);
        (stamp_ns > 0).then_some(stamp_ns)
    }

    /// Kills all processes of the container, removes its groups, and returns the work that it has done.
    pub(super) fn stop(self) -> Result<u64> {
        self.shared.ends.store(true, Ordering::Relaxed);
        while !self.thread.is_finished() {
            self.leaves.iter().for_each(|leaf| kill_group(&leaf.dir));
            thread::sleep(KILL_AGAIN);
        }
        let done = self.work_done();
        let Ok(ended) = self.thread.join() else { bail!("the thread of container {} has panicked", self.name) };
        for leaf in &self.leaves {
            // Kills processes that the command left behind.
            kill_group(&leaf.dir);
            leaf.remove().with_context(|| format!("cannot remove {}", leaf.dir.display()))?;
        }
        ended.with_context(|| format!("container {}", self.name)).map(|()| done)
    }
}

/// Opens the `cgroup.procs` files through which a process enters the groups.
fn cgroup_files(cgroups: &[BatchGroup]) -> Result<Arc<[File]>> {
    let open = |leaf: &BatchGroup| {
        let file = leaf.dir.join("cgroup.procs");
        OpenOptions::new().write(true).open(&file).with_context(|| format!("cannot open {}", file.display()))
    };
    cgroups.iter().map(open).collect()
}

fn run_repeatedly(prepared: &PreparedCommand, cgroup_files: &Arc<[File]>, shared: &ContainerState) -> Result<()> {
    loop {
        let mut command = prepared.command();
        let cgroup_files = Arc::clone(cgroup_files);
        // SAFETY: between fork and exec, `enter` makes async-signal-safe system calls only.
        unsafe { command.pre_exec(move || enter_cgroups(&cgroup_files)) };
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let status = child.wait()?;
        if shared.ends.load(Ordering::Relaxed) {
            return Ok(());
        }
        ensure!(status.success(), "{command:?} failed ({status})");
        shared.runs.fetch_add(1, Ordering::Relaxed);
    }
}

/// Puts the calling process into the groups, and lets it die with its parent.
fn enter_cgroups(cgroup_files: &[File]) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    cgroup_files.iter().try_for_each(|mut cgroup_file| cgroup_file.write_all(b"0"))
}
