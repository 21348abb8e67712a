//! Reader of a [`Topology`] from sysfs.
//!
//! A missing file gives a default: one socket, one NUMA node, one lane on each core, all cores alike. A file that
//! exists but cannot be parsed is an error: a guess could pair batch with the wrong service's lane.

use crate::cores::Cores;
use crate::cpulist::CpuSet;
use crate::sysfs::{ReadError, Sysfs};
use crate::topology::{CoreId, Cpu, CpuKind, Topology};

pub fn read_topology(sys: &Sysfs<'_>) -> Result<Topology, ReadError> {
    let (present, online) = sys.present_and_online()?;
    let nodes = numa_nodes(sys)?;
    let cores = Cores::find_among(sys, &online)?.ok();
    let mut cpus = Vec::with_capacity(present.len());
    for id in &present {
        let siblings = siblings(sys, id, &online)?;
        let package = format!("devices/system/cpu/cpu{id}/topology/physical_package_id");
        cpus.push(Cpu {
            id,
            online: online.contains(id),
            core: CoreId(siblings.first().unwrap_or(id)),
            package: sys.number(&package)?.unwrap_or(0),
            numa_node: numa_node_of(id, &nodes),
            siblings,
            kind: kind_of(id, cores.as_ref()),
        });
    }
    Ok(Topology { cpus, smt_switched_off: is_smt_switched_off(sys)? })
}

fn numa_node_of(cpu: u32, nodes: &[(u32, CpuSet)]) -> u32 {
    let home = nodes.iter().find(|(_, cpus)| cpus.contains(cpu));
    home.map_or(0, |(node, _)| *node)
}

fn kind_of(cpu: u32, cores: Option<&Cores>) -> CpuKind {
    match cores {
        Some(cores) if cores.big.contains(cpu) => CpuKind::Big,
        Some(cores) if cores.little.contains(cpu) => CpuKind::Little,
        _ => CpuKind::Uniform,
    }
}

/// Returns the online lanes of the core of CPU `id`, itself included.
fn siblings(sys: &Sysfs<'_>, id: u32, online: &CpuSet) -> Result<CpuSet, ReadError> {
    let mut siblings = CpuSet::default();
    if online.contains(id) {
        siblings = read_core_lanes(sys, id)?.unwrap_or_default().intersection(online);
    }
    siblings.insert(id);
    Ok(siblings)
}

/// Reads the lanes of a CPU's core. Kernels before 5.3 have only the older of the two files.
fn read_core_lanes(sys: &Sysfs<'_>, id: u32) -> Result<Option<CpuSet>, ReadError> {
    let dir = format!("devices/system/cpu/cpu{id}/topology");
    match sys.list(&format!("{dir}/core_cpus_list"))? {
        None => sys.list(&format!("{dir}/thread_siblings_list")),
        found => Ok(found),
    }
}

/// Returns all NUMA nodes with their CPUs.
fn numa_nodes(sys: &Sysfs<'_>) -> Result<Vec<(u32, CpuSet)>, ReadError> {
    let mut nodes = Vec::new();
    for name in sys.names("devices/system/node")? {
        if let Some(node) = parse_numa_node_number(&name) {
            let cpus = sys.list(&format!("devices/system/node/{name}/cpulist"))?;
            nodes.push((node, cpus.unwrap_or_default()));
        }
    }
    Ok(nodes)
}

/// Parses the number of a NUMA node from the name of its directory. Node numbers have gaps on some machines, so the
/// position in the listing is not the number.
fn parse_numa_node_number(name: &str) -> Option<u32> {
    name.strip_prefix("node")?.parse().ok()
}

/// Whether SMT is switched off. `off` can be switched on again; after `forceoff` the machine has to boot without
/// `nosmt=force`.
fn is_smt_switched_off(sys: &Sysfs<'_>) -> Result<bool, ReadError> {
    let control = sys.text("devices/system/cpu/smt/control")?;
    Ok(matches!(control.as_deref(), Some("off" | "forceoff")))
}
