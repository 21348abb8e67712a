//! Number of CPUs that a container wants, read from its cgroup in cgroup version 1 or 2.

use std::fs;
use std::path::{Path, PathBuf};

use sidelane_host::cgroup::Hierarchy;
use sidelane_host::cpulist::CpuSet;

use super::found::{CpuDemand, CpuDemandSource};

/// Kernel's default of `cpu.weight`; `DEFAULT_SHARES` is the default of `cpu.shares`. A default counts as no request,
/// except below a kubelet's cgroup: a kubelet writes these values for a request of one CPU.
const DEFAULT_WEIGHT: u64 = 100;
const DEFAULT_SHARES: u64 = 1024;
/// Shares that a kubelet writes for a pod without a request.
const NO_SHARES: u64 = 2;
const SHARES_MAX: u64 = 262_144;
/// Shares of one CPU.
const SHARES_A_CPU: u64 = 1024;
/// Part of the name of a kubelet's uppermost cgroup, under each driver.
const KUBELETS: &str = "kubepods";

/// Returns the number of CPUs that the container at `path` wants by the limit or request in its cgroup. It counts if
/// the file sets no number.
pub(super) fn cpu_demand(hierarchies: &[Hierarchy], path: &str) -> CpuDemand {
    demand_of(hierarchies, path, online_cpu_count())
}

/// Returns the number of CPUs of the machine, at least one.
fn online_cpu_count() -> u64 {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    text.parse::<CpuSet>().map_or(1, |cpus| cpus.len().max(1) as u64)
}

fn demand_of(hierarchies: &[Hierarchy], path: &str, online_cpus: u64) -> CpuDemand {
    let dirs = |controls: &dyn Fn(&Hierarchy) -> bool| -> Vec<PathBuf> {
        hierarchies.iter().filter(|hierarchy| controls(hierarchy)).map(|hierarchy| hierarchy.dir(path)).collect()
    };
    let (unified, cpu) = (dirs(&Hierarchy::is_v2), dirs(&|hierarchy| hierarchy.has_controller("cpu")));
    let is_pods = path.contains(KUBELETS);
    let limit = unified.iter().find_map(|dir| limit_v2(dir)).or_else(|| cpu.iter().find_map(|dir| limit_v1(dir)));
    let shares = unified.iter().find_map(|dir| shares_v2(dir, is_pods));
    let shares = shares.or_else(|| cpu.iter().find_map(|dir| shares_v1(dir, is_pods)));
    let cpusets = dirs(&|hierarchy| hierarchy.is_v2() || hierarchy.has_controller("cpuset"));
    let (cpus, from) = match (limit, shares) {
        (Some(cpus), _) => (cpus, CpuDemandSource::Limit),
        (None, Some(shares)) => (shares.div_ceil(SHARES_A_CPU), CpuDemandSource::Request),
        (None, None) => {
            (cpusets.iter().find_map(|dir| allowed_cpu_count(dir)).unwrap_or(online_cpus), CpuDemandSource::Unspecified)
        }
    };
    CpuDemand { cpus: cpus.clamp(1, online_cpus) as u32, from }
}

/// Returns the limit of a version 2 cgroup in CPUs, rounded up, from its file `cpu.max`. The file contains `QUOTA
/// PERIOD`; `None` for `max PERIOD`.
fn limit_v2(dir: &Path) -> Option<u64> {
    let text = fs::read_to_string(dir.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    quota_cpus(quota.parse().ok()?, period.parse().ok()?)
}

fn limit_v1(dir: &Path) -> Option<u64> {
    // Without a limit the quota is -1, which does not parse as a number here.
    quota_cpus(number(&dir.join("cpu.cfs_quota_us"))?, number(&dir.join("cpu.cfs_period_us"))?)
}

fn quota_cpus(quota_us: u64, period_us: u64) -> Option<u64> {
    (period_us > 0).then(|| quota_us.div_ceil(period_us))
}

fn shares_v2(dir: &Path, is_pod: bool) -> Option<u64> {
    let weight = number(&dir.join("cpu.weight")).filter(|weight| (1..=10_000).contains(weight))?;
    let shares = shares_from_weight(weight);
    ((is_pod || weight != DEFAULT_WEIGHT) && shares > NO_SHARES).then_some(shares)
}

fn shares_v1(dir: &Path, is_pod: bool) -> Option<u64> {
    number(&dir.join("cpu.shares")).filter(|shares| (is_pod || *shares != DEFAULT_SHARES) && *shares > NO_SHARES)
}

/// Returns the shares from which a container runtime has computed this weight. Runtimes use an older or a newer
/// formula. The older formula is assumed only if it alone yields this weight for a whole number of CPUs.
fn shares_from_weight(weight: u64) -> u64 {
    let whole = |formula: fn(u64) -> u64| {
        (1..=SHARES_MAX / SHARES_A_CPU).map(|cpus| cpus * SHARES_A_CPU).find(|shares| formula(*shares) == weight)
    };
    whole(quadratic_weight).or_else(|| whole(linear_weight)).unwrap_or_else(|| {
        let (mut least, mut most) = (NO_SHARES, SHARES_MAX);
        while least < most {
            let middle = least.midpoint(most);
            if quadratic_weight(middle) < weight { least = middle + 1 } else { most = middle }
        }
        least
    })
}

/// Converts shares to a weight by the older formula. runc before 1.3.2 and crun before 1.23 use it, and a kubelet uses
/// it for its own cgroups.
fn linear_weight(shares: u64) -> u64 {
    1 + (shares - NO_SHARES) * 9_999 / 262_142
}

/// Converts shares to a weight by the newer formula. The logarithm of the weight is a parabola in the logarithm of the
/// shares, through the least, default and largest values of both.
fn quadratic_weight(shares: u64) -> u64 {
    if shares <= NO_SHARES {
        return 1;
    }
    let log = (shares as f64).log2();
    10_f64.powf((log * log + 125.0 * log) / 612.0 - 7.0 / 34.0).ceil() as u64
}

/// Returns the number of CPUs that the cgroup may run on.
fn allowed_cpu_count(dir: &Path) -> Option<u64> {
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

    fn demand_with(controllers: &[&str], files: &[(&str, &str)]) -> (u32, CpuDemandSource) {
        demand_at("/job", controllers, files)
    }

    fn demand_at(path: &str, controllers: &[&str], files: &[(&str, &str)]) -> (u32, CpuDemandSource) {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join(&path[1..]);
        fs::create_dir_all(&group).unwrap();
        files.iter().for_each(|(name, text)| fs::write(group.join(name), text).unwrap());
        let controllers = controllers.iter().map(|name| (*name).to_owned()).collect();
        let hierarchy = Hierarchy { mount: dir.path().to_owned(), root: "/".into(), controllers };
        let demand = demand_of(&[hierarchy], path, 16);
        (demand.cpus, demand.from)
    }

    #[test]
    fn limit_takes_precedence_over_request() {
        let two = [("cpu.max", "150000 100000\n"), ("cpu.weight", "39\n")];
        assert_eq!(demand_with(&[], &two), (2, CpuDemandSource::Limit));
        let half = [("cpu.cfs_quota_us", "50000\n"), ("cpu.cfs_period_us", "100000\n"), ("cpu.shares", "4096\n")];
        assert_eq!(demand_with(&["cpu"], &half), (1, CpuDemandSource::Limit));
    }

    #[test]
    fn request_of_one_cpu_is_1024_shares() {
        let three = [("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n"), ("cpu.shares", "3072\n")];
        assert_eq!(demand_with(&["cpu"], &three), (3, CpuDemandSource::Request));
        // The weight is the one that a kubelet writes for 2 CPUs.
        assert_eq!(
            demand_with(&[], &[("cpu.max", "max 100000\n"), ("cpu.weight", "79\n")]),
            (2, CpuDemandSource::Request)
        );
    }

    #[test]
    fn weights_are_read_by_both_formulas_of_runtimes() {
        // Pairs of `cpu.weight` and wanted CPUs: whole requests by the linear and by the quadratic formula, and other
        // requests.
        let linear = [(39, 1), (79, 2), (118, 3), (157, 4), (313, 8)];
        let quadratic = [(174, 2), (240, 3), (303, 4), (517, 8)];
        let others = [(170, 2), (59, 1), (17, 1)];
        for (weight, cpus) in linear.into_iter().chain(quadratic).chain(others) {
            let file = ("cpu.weight", format!("{weight}\n"));
            assert_eq!(demand_with(&[], &[(file.0, &file.1)]), (cpus, CpuDemandSource::Request), "{weight}");
        }
        assert_eq!(
            (super::quadratic_weight(1_024), super::quadratic_weight(2_000), super::quadratic_weight(SHARES_MAX)),
            (100, 170, 10_000)
        );
        assert_eq!((super::linear_weight(2), super::linear_weight(SHARES_MAX)), (1, 10_000));
    }

    #[test]
    fn kernel_defaults_request_one_cpu_only_in_a_pod() {
        let slice = "/kubepods.slice/kubepods-podf1.slice/cri-containerd-a.scope";
        let weight = [("cpu.max", "max 100000\n"), ("cpu.weight", "100\n")];
        for path in [slice, "/kubelet/kubepods/podf1/a"] {
            assert_eq!(demand_at(path, &[], &weight), (1, CpuDemandSource::Request));
            assert_eq!(demand_at(path, &["cpu"], &[("cpu.shares", "1024\n")]), (1, CpuDemandSource::Request));
            assert_eq!(demand_at(path, &[], &[("cpu.weight", "1\n")]), (16, CpuDemandSource::Unspecified));
        }
        assert_eq!(demand_with(&[], &weight), (16, CpuDemandSource::Unspecified));
    }

    #[test]
    fn container_without_a_request_wants_all_allowed_cpus() {
        let nothing = [("cpu.max", "max 100000\n"), ("cpu.weight", "1\n"), ("cpuset.cpus.effective", "0-3,8\n")];
        assert_eq!(demand_with(&[], &nothing), (5, CpuDemandSource::Unspecified));
        assert_eq!(demand_with(&["cpu"], &[("cpu.shares", "1024\n")]), (16, CpuDemandSource::Unspecified));
        assert_eq!(demand_with(&[], &[]), (16, CpuDemandSource::Unspecified));
    }
}
