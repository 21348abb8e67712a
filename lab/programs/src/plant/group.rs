//! A cgroup for the service alone: to freeze it, or to limit its CPU time.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Cgroup that this process created for itself alone.
#[derive(Debug, Clone)]
pub struct PlantCgroup {
    path: PathBuf,
    is_v2: bool,
}

impl PlantCgroup {
    /// Makes a cgroup that can be frozen. It prefers cgroup v2, where the kernel reports freezing.
    pub fn new_freezable() -> Result<Self> {
        let (mount, is_v2) = cgroup_v2_mount()
            .map(|mount| (mount, true))
            .or_else(|| Some((cgroup_v1_mount("freezer")?, false)))
            .context("there is no cgroup freezer here")?;
        Self::make(&mount, is_v2)
    }

    /// Makes a cgroup that may run for `quota_us` in each `period_us`. It has the highest weight: on a busy CPU a group
    /// of ordinary weight would not use up its quota.
    pub fn with_quota(quota_us: u64, period_us: u64) -> Result<Self> {
        let (mount, is_v2) = cgroup_v1_mount("cpu")
            .map(|mount| (mount, false))
            .or_else(|| Some((cgroup_v2_mount()?, true)))
            .context("there is no cgroup controller of CPU time here")?;
        let group = Self::make(&mount, is_v2)?;
        if is_v2 {
            group.write_control_file("cpu.max", &format!("{quota_us} {period_us}"))?;
            group.write_control_file("cpu.weight", "10000")?;
        } else {
            group.write_control_file("cpu.cfs_period_us", &period_us.to_string())?;
            group.write_control_file("cpu.cfs_quota_us", &quota_us.to_string())?;
            group.write_control_file("cpu.shares", "262144")?;
        }
        Ok(group)
    }

    fn make(mount: &Path, is_v2: bool) -> Result<Self> {
        let path = mount.join(format!("sidelane-plant-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make the group {}; run as root", path.display()))?;
        Ok(Self { path, is_v2 })
    }

    /// Moves this process into the group.
    pub fn enter(&self) -> Result<()> {
        self.write_control_file("cgroup.procs", &std::process::id().to_string())
    }

    /// Freezes the cgroup if `frozen`, else thaws it.
    pub fn set_frozen(&self, frozen: bool) -> Result<()> {
        match (self.is_v2, frozen) {
            (true, _) => self.write_control_file("cgroup.freeze", if frozen { "1" } else { "0" }),
            (false, true) => self.write_control_file("freezer.state", "FROZEN"),
            (false, false) => self.write_control_file("freezer.state", "THAWED"),
        }
    }

    /// Returns the number of periods in which the group used up its quota.
    pub fn times_throttled(&self) -> Result<u64> {
        let path = self.path.join("cpu.stat");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let times = text.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.parse().ok());
        times.with_context(|| format!("{} does not say how often it was throttled", path.display()))
    }

    /// Waits until the group is empty, and removes it.
    pub fn remove(&self) {
        while self.path.exists() && fs::remove_dir(&self.path).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn write_control_file(&self, file: &str, text: &str) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {text} to {}", path.display()))
    }
}

/// Returns the mount point of a controller of cgroup v1.
fn cgroup_v1_mount(controller: &str) -> Option<PathBuf> {
    find_mount(|kind, options| kind == "cgroup" && options.split(',').any(|option| option == controller))
}

fn cgroup_v2_mount() -> Option<PathBuf> {
    find_mount(|kind, _| kind == "cgroup2")
}

fn find_mount(matches_kind_and_options: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (path, kind, options) = (words.next()?, words.next()?, words.next()?);
        matches_kind_and_options(kind, options).then(|| path.into())
    })
}
