//! How many CPUs a container wants: what its group says, in either version.

use std::fs;
use std::path::{Path, PathBuf};

use sidelane_host::cgroup::Hierarchy;
use sidelane_host::cpulist::CpuSet;

use super::found::{Wanted, WantedFrom};

/// What a group's share of the CPUs is where nobody has said anything, in both versions.
const DEFAULT_WEIGHT: u64 = 100;
const DEFAULT_SHARES: u64 = 1024;
/// What a kubelet writes for who has asked for nothing.
const NO_SHARES: u64 = 2;
/// A CPU, in shares.
const SHARES_A_CPU: u64 = 1024;

/// What the container at `path` wants, if the file does not say it.
pub(super) fn wanted(hierarchies: &[Hierarchy], path: &str) -> Wanted {
    wanted_of(hierarchies, path, online())
}

/// How many CPUs the machine has; at least one.
fn online() -> u64 {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    text.parse::<CpuSet>().map_or(1, |cpus| cpus.len().max(1) as u64)
}

fn wanted_of(hierarchies: &[Hierarchy], path: &str, online: u64) -> Wanted {
    let dirs = |controls: &dyn Fn(&Hierarchy) -> bool| -> Vec<PathBuf> {
        hierarchies.iter().filter(|hierarchy| controls(hierarchy)).map(|hierarchy| hierarchy.dir(path)).collect()
    };
    let (unified, cpu) = (dirs(&Hierarchy::is_v2), dirs(&|hierarchy| hierarchy.controls("cpu")));
    let limit = unified.iter().find_map(|dir| limit_v2(dir)).or_else(|| cpu.iter().find_map(|dir| limit_v1(dir)));
    let shares = unified.iter().find_map(|dir| shares_v2(dir)).or_else(|| cpu.iter().find_map(|dir| shares_v1(dir)));
    let cpusets = dirs(&|hierarchy| hierarchy.is_v2() || hierarchy.controls("cpuset"));
    let (cpus, from) = match (limit, shares) {
        (Some(cpus), _) => (cpus, WantedFrom::Limit),
        (None, Some(shares)) => (shares.div_ceil(SHARES_A_CPU), WantedFrom::Request),
        (None, None) => (cpusets.iter().find_map(|dir| allowed(dir)).unwrap_or(online), WantedFrom::Nobody),
    };
    Wanted { cpus: cpus.clamp(1, online) as u32, from }
}

/// `QUOTA PERIOD`, or `max PERIOD`.
fn limit_v2(dir: &Path) -> Option<u64> {
    let text = fs::read_to_string(dir.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    cpus_of(quota.parse().ok()?, period.parse().ok()?)
}

fn limit_v1(dir: &Path) -> Option<u64> {
    // Without a limit the quota is -1.
    cpus_of(number(&dir.join("cpu.cfs_quota_us"))?, number(&dir.join("cpu.cfs_period_us"))?)
}

fn cpus_of(quota_us: u64, period_us: u64) -> Option<u64> {
    (period_us > 0).then(|| quota_us.div_ceil(period_us))
}

/// A runtime makes shares of 2 to 262144 weights of 1 to 10000.
fn shares_v2(dir: &Path) -> Option<u64> {
    let weight = number(&dir.join("cpu.weight")).filter(|weight| (1..=10_000).contains(weight))?;
    let shares = 2 + (weight - 1) * 262_142 / 9_999;
    (weight != DEFAULT_WEIGHT && shares > NO_SHARES).then_some(shares)
}

fn shares_v1(dir: &Path) -> Option<u64> {
    number(&dir.join("cpu.shares")).filter(|shares| *shares != DEFAULT_SHARES && *shares > NO_SHARES)
}

/// How many CPUs it may run on.
fn allowed(dir: &Path) -> Option<u64> {
    let lists = ["cpuset.cpus.effective", "cpuset.effective_cpus"].into_iter();
    let mut texts = lists.filter_map(|file| fs::read_to_string(dir.join(file)).ok());
    let cpus = texts.find_map(|text| text.parse::<CpuSet>().ok())?;
    Some(cpus.len() as u64).filter(|count| *count > 0)
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(controllers: &[&str], files: &[(&str, &str)]) -> (u32, WantedFrom) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("job")).unwrap();
        files.iter().for_each(|(name, text)| fs::write(dir.path().join("job").join(name), text).unwrap());
        let controllers = controllers.iter().map(|name| (*name).to_owned()).collect();
        let hierarchy = Hierarchy { mount: dir.path().to_owned(), root: "/".into(), controllers };
        let wanted = wanted_of(&[hierarchy], "/job", 16);
        (wanted.cpus, wanted.from)
    }

    #[test]
    fn a_limit_counts_before_a_request() {
        let two = [("cpu.max", "150000 100000\n"), ("cpu.weight", "39\n")];
        assert_eq!(wants(&[], &two), (2, WantedFrom::Limit));
        let half = [("cpu.cfs_quota_us", "50000\n"), ("cpu.cfs_period_us", "100000\n"), ("cpu.shares", "4096\n")];
        assert_eq!(wants(&["cpu"], &half), (1, WantedFrom::Limit));
    }

    #[test]
    fn a_request_is_a_share_of_1024_a_cpu() {
        let three = [("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n"), ("cpu.shares", "3072\n")];
        assert_eq!(wants(&["cpu"], &three), (3, WantedFrom::Request));
        // A kubelet's weight for 2 CPUs.
        assert_eq!(wants(&[], &[("cpu.max", "max 100000\n"), ("cpu.weight", "79\n")]), (2, WantedFrom::Request));
    }

    #[test]
    fn who_says_nothing_wants_all_that_it_may_use() {
        let nothing = [("cpu.max", "max 100000\n"), ("cpu.weight", "1\n"), ("cpuset.cpus.effective", "0-3,8\n")];
        assert_eq!(wants(&[], &nothing), (5, WantedFrom::Nobody));
        assert_eq!(wants(&["cpu"], &[("cpu.shares", "1024\n")]), (16, WantedFrom::Nobody));
        assert_eq!(wants(&[], &[]), (16, WantedFrom::Nobody));
    }
}
