//! CPU throttling of a server's cgroup.
//!
//! The kernel counts a throttled period when the period is over, so the first one is seen at its end. A group that used
//! up its quota in one period usually does so in the next ones. So it counts as throttled until two periods have passed
//! without throttling.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sidelane_host::cgroup::Hierarchy;

/// Default length of a period, if the cgroup has no file for it.
const PERIOD: Duration = Duration::from_millis(100);

/// Cgroups with a CPU quota.
pub(super) struct Throttled {
    /// For each cgroup: the path of cpu.stat, and the last value of nr_throttled.
    groups: Vec<(PathBuf, u64)>,
    period: Duration,
    seen_at: Option<Instant>,
}

impl Throttled {
    /// Finds the cgroups of the processes, and those above them, that have a CPU quota. Returns `None` if there are
    /// none.
    pub(super) fn find(pids: &BTreeSet<u32>) -> Option<Self> {
        let hierarchies = Hierarchy::all().into_iter().filter(|found| found.is_v2() || found.has_controller("cpu"));
        let mut dirs = BTreeSet::new();
        for hierarchy in hierarchies {
            let own = pids.iter().filter_map(|pid| hierarchy.dir_of(*pid));
            dirs.extend(own.flat_map(|dir| dir.ancestors().map(Path::to_owned).collect::<Vec<_>>()));
        }
        let with_quota: Vec<PathBuf> = dirs.into_iter().filter(|dir| has_quota(dir)).collect();
        let period = with_quota.iter().map(|dir| read_quota_period(dir)).max()?;
        let groups = with_quota.into_iter().map(|dir| dir.join("cpu.stat"));
        let groups = groups.filter_map(|file| Some((file.clone(), read_throttled_count(&file)?))).collect();
        Some(Self { groups, period, seen_at: None })
    }

    /// Returns whether any of the cgroups is throttled.
    pub(super) fn check_throttled(&mut self) -> bool {
        for (file, before) in &mut self.groups {
            let now = read_throttled_count(file).unwrap_or(*before);
            if std::mem::replace(before, now) < now {
                self.seen_at = Some(Instant::now());
            }
        }
        self.seen_at.is_some_and(|at| at.elapsed() < 2 * self.period)
    }
}

fn has_quota(dir: &Path) -> bool {
    let v2 = fs::read_to_string(dir.join("cpu.max")).is_ok_and(|text| !text.starts_with("max"));
    let v1 = fs::read_to_string(dir.join("cpu.cfs_quota_us")).is_ok_and(|text| !text.starts_with('-'));
    v2 || v1
}

fn read_quota_period(dir: &Path) -> Duration {
    let v2 = fs::read_to_string(dir.join("cpu.max")).ok();
    let v1 = fs::read_to_string(dir.join("cpu.cfs_period_us")).ok();
    let text = v2.as_deref().and_then(|text| text.split_whitespace().nth(1)).or(v1.as_deref());
    text.and_then(|text| text.trim().parse().ok()).map_or(PERIOD, Duration::from_micros)
}

fn read_throttled_count(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttling_lasts_for_two_periods_without_throttling() {
        let dir = tempfile::tempdir().unwrap();
        let stat = |count: u64| fs::write(dir.path().join("cpu.stat"), format!("nr_periods 9\nnr_throttled {count}\n"));
        fs::write(dir.path().join("cpu.max"), "50000 100000\n").unwrap();
        stat(3).unwrap();
        assert!(has_quota(dir.path()) && read_quota_period(dir.path()) == PERIOD);
        let file = dir.path().join("cpu.stat");
        let mut group = Throttled { groups: vec![(file.clone(), 3)], period: Duration::from_secs(3600), seen_at: None };
        assert!(!group.check_throttled());
        stat(4).unwrap();
        assert!(group.check_throttled() && group.check_throttled());
        group.period = Duration::ZERO;
        assert!(!group.check_throttled());
    }
}
