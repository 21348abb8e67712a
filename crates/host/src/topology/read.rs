//! Reads a [`Topology`] from sysfs.
//!
//! Kernels, architectures and VMs omit different files, so a missing file is normal and gives a
//! default: one socket, one NUMA node, one lane on each core, all cores alike. A file that exists
//! but cannot be parsed is an error that names the file: a guess could pair batch with the wrong
//! service's lane.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::cpulist::{CpuListError, CpuSet};
use crate::topology::{CoreId, Cpu, CpuKind, Topology};

/// Why the machine's CPUs could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Neither `present` nor `online` exists, or both are empty.
    #[error("no list of CPUs in {}; check that sysfs is mounted there", dir.display())]
    NoCpus {
        /// The directory that should have these files.
        dir: PathBuf,
    },
    /// A file exists but cannot be read.
    #[error("cannot read {}; check its permissions", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file does not have the expected cpulist.
    #[error("{} holds no list of CPUs; check that sysfs is mounted there", path.display())]
    NotAList {
        /// The file.
        path: PathBuf,
        /// The error in the list.
        source: CpuListError,
    },
    /// A file does not have the expected number.
    #[error("{} holds `{text}`, not a number; check that sysfs is mounted there", path.display())]
    NotANumber {
        /// The file.
        path: PathBuf,
        /// Its content.
        text: String,
    },
}

/// Where Intel hybrid processors list their fast and slow CPUs: one PMU device for each kind.
const PERFORMANCE_LISTS: [&str; 1] = ["devices/cpu_core/cpus"];
const EFFICIENCY_LISTS: [&str; 2] = ["devices/cpu_atom/cpus", "devices/cpu_lowpower/cpus"];

/// A CPU with less than this share of the highest capacity is of the slow kind. Known little cores
/// have a sixth to a half; equal cores with different turbo frequencies or binning have over 0.8.
const EFFICIENCY_CAPACITY_PERCENT: u32 = 67;

pub fn topology(sys_root: &Path) -> Result<Topology, ReadError> {
    let sys = Sysfs { root: sys_root };
    let (present, online) = sys.present_and_online()?;
    let nodes = sys.numa_nodes()?;
    let mut cpus = Vec::with_capacity(present.len());
    for id in &present {
        let mut cpu = sys.cpu(id, &online)?;
        cpu.numa_node = node_of(id, &nodes);
        cpus.push(cpu);
    }
    if !sys.mark_hybrid(&mut cpus)? {
        mark_by_capacity(&mut cpus);
    }
    Ok(Topology { cpus, smt_switched_off: sys.smt_switched_off()? })
}

fn node_of(cpu: u32, nodes: &[(u32, CpuSet)]) -> u32 {
    let home = nodes.iter().find(|(_, cpus)| cpus.contains(cpu));
    home.map_or(0, |(node, _)| *node)
}

/// Sets the kinds by the scheduler's capacities, if they differ enough.
fn mark_by_capacity(cpus: &mut [Cpu]) {
    let top = cpus.iter().filter_map(|cpu| cpu.capacity).max().unwrap_or(0);
    let is_slow = |capacity: u32| u64::from(capacity) * 100 < u64::from(top) * u64::from(EFFICIENCY_CAPACITY_PERCENT);
    if !cpus.iter().filter_map(|cpu| cpu.capacity).any(is_slow) {
        return;
    }
    for cpu in cpus {
        cpu.kind = match cpu.capacity {
            Some(capacity) if is_slow(capacity) => CpuKind::Efficiency,
            Some(_) => CpuKind::Performance,
            None => CpuKind::Uniform,
        };
    }
}

/// A sysfs mount; paths are relative to its root.
struct Sysfs<'a> {
    root: &'a Path,
}

impl Sysfs<'_> {
    /// `possible` cannot replace `present`: VMs declare many more possible CPUs than they ever get.
    fn present_and_online(&self) -> Result<(CpuSet, CpuSet), ReadError> {
        let present = self.list("devices/system/cpu/present")?;
        let online = self.list("devices/system/cpu/online")?;
        let (present, online) = match (present, online) {
            (Some(present), Some(online)) => (present, online),
            (Some(only), None) | (None, Some(only)) => (only.clone(), only),
            (None, None) => (CpuSet::default(), CpuSet::default()),
        };
        if online.is_empty() {
            return Err(ReadError::NoCpus { dir: self.root.join("devices/system/cpu") });
        }
        Ok((present.union(&online), online))
    }

    /// One CPU, without its node and its kind, which need the whole machine.
    fn cpu(&self, id: u32, online: &CpuSet) -> Result<Cpu, ReadError> {
        let siblings = self.siblings(id, online)?;
        let file = |name: &str| format!("devices/system/cpu/cpu{id}/{name}");
        Ok(Cpu {
            id,
            online: online.contains(id),
            core: CoreId(siblings.first().unwrap_or(id)),
            package: self.number(&file("topology/physical_package_id"))?.unwrap_or(0),
            numa_node: 0,
            siblings,
            kind: CpuKind::Uniform,
            capacity: self.number(&file("cpu_capacity"))?,
            // Only shown to users, and cpufreq drivers sometimes refuse it (EBUSY, EIO).
            freq_max_khz: self.number(&file("cpufreq/cpuinfo_max_freq")).unwrap_or(None),
        })
    }

    /// The online lanes of the core of CPU `id`, itself included.
    fn siblings(&self, id: u32, online: &CpuSet) -> Result<CpuSet, ReadError> {
        let mut siblings = CpuSet::default();
        if online.contains(id) {
            siblings = self.core_list(id)?.unwrap_or_default().intersection(online);
        }
        siblings.insert(id);
        Ok(siblings)
    }

    /// Kernels before 5.3 have only the older of the two files.
    fn core_list(&self, id: u32) -> Result<Option<CpuSet>, ReadError> {
        let dir = format!("devices/system/cpu/cpu{id}/topology");
        match self.list(&format!("{dir}/core_cpus_list"))? {
            None => self.list(&format!("{dir}/thread_siblings_list")),
            found => Ok(found),
        }
    }

    /// Every NUMA node with its CPUs.
    fn numa_nodes(&self) -> Result<Vec<(u32, CpuSet)>, ReadError> {
        let mut nodes = Vec::new();
        for name in self.names("devices/system/node")? {
            if let Some(node) = node_number(&name) {
                let cpus = self.list(&format!("devices/system/node/{name}/cpulist"))?;
                nodes.push((node, cpus.unwrap_or_default()));
            }
        }
        Ok(nodes)
    }

    /// Sets the kinds by Intel's hybrid lists. False if the machine has no such lists: it is not
    /// hybrid.
    fn mark_hybrid(&self, cpus: &mut [Cpu]) -> Result<bool, ReadError> {
        let fast = self.lists(&PERFORMANCE_LISTS)?;
        let slow = self.lists(&EFFICIENCY_LISTS)?;
        if fast.is_empty() || slow.is_empty() {
            return Ok(false);
        }
        for cpu in cpus {
            if fast.contains(cpu.id) {
                cpu.kind = CpuKind::Performance;
            } else if slow.contains(cpu.id) {
                cpu.kind = CpuKind::Efficiency;
            }
        }
        Ok(true)
    }

    /// `off` can be switched on again; after `forceoff` the machine has to boot without
    /// `nosmt=force`.
    fn smt_switched_off(&self) -> Result<bool, ReadError> {
        let control = self.text("devices/system/cpu/smt/control")?;
        Ok(matches!(control.as_deref(), Some("off" | "forceoff")))
    }

    /// The union of the lists that exist.
    fn lists(&self, paths: &[&str]) -> Result<CpuSet, ReadError> {
        let mut all = CpuSet::default();
        for path in paths {
            all.extend(self.list(path)?.unwrap_or_default().iter());
        }
        Ok(all)
    }

    fn list(&self, path: &str) -> Result<Option<CpuSet>, ReadError> {
        let Some(text) = self.text(path)? else {
            return Ok(None);
        };
        let not_a_list = |source| ReadError::NotAList { path: self.root.join(path), source };
        text.parse().map(Some).map_err(not_a_list)
    }

    /// A number; the kernel writes `-1` for an unknown one.
    fn number(&self, path: &str) -> Result<Option<u32>, ReadError> {
        match self.text(path)? {
            None => Ok(None),
            Some(text) if text == "-1" => Ok(None),
            Some(text) => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(ReadError::NotANumber { path: self.root.join(path), text }),
            },
        }
    }

    /// The entries of a directory; none if there is no such directory.
    fn names(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let path = self.root.join(path);
        let entries = fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        match entries {
            Ok(entries) => Ok(entries.iter().filter_map(|entry| entry.file_name().into_string().ok()).collect()),
            Err(error) if is_absent(&error) => Ok(Vec::new()),
            Err(source) => Err(ReadError::Unreadable { path, source }),
        }
    }

    /// The content of a file without its final line end, or `None` if there is no such file.
    fn text(&self, path: &str) -> Result<Option<String>, ReadError> {
        let path = self.root.join(path);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if is_absent(&error) => Ok(None),
            Err(source) => Err(ReadError::Unreadable { path, source }),
        }
    }
}

/// The number of the node with this directory. Node numbers have gaps on some machines, so they are
/// parsed from the names, not counted.
fn node_number(name: &str) -> Option<u32> {
    name.strip_prefix("node")?.parse().ok()
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
