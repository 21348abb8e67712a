//! The machine, as every result describes it.

use std::fs;
use std::path::Path;

use crate::lane::cgroup::Hierarchy;
use crate::lane::nap::Nap;
use crate::lane::topology::{PairKind, Topology};
use crate::report::{Machine, Pair};

/// Looks at this machine. `kind` is how its lanes are paired in the run that is reported.
pub fn describe(kind: PairKind) -> Machine {
    let topology = Topology::read(Path::new("/sys")).ok();
    let mut notes: Vec<String> = topology.iter().map(Topology::describe).collect();
    notes.push(format!("nap: {}", Nap::probe()));
    Machine {
        cpu: cpu_model(),
        lanes: topology.map_or(0, |topology| topology.online().len() as u32),
        pair: match kind {
            PairKind::Smt => Pair::Smt,
            PairKind::Declared => Pair::Declared,
        },
        kernel: kernel_release(),
        pmu: has_pmu(),
        gates: gates(),
        notes,
    }
}

/// Whether the kernel offers hardware counters.
pub fn has_pmu() -> bool {
    ["cpu", "cpu_core", "armv8_pmuv3_0"].iter().any(|pmu| Path::new("/sys/bus/event_source/devices").join(pmu).exists())
}

/// The kernel's release, e.g. `6.12.9-amd64`.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned())
}

/// The gates that a session can use here, best first: the holder for every hold, the freezer
/// and affinity for batch that has to leave a lane for long. `sidelane doctor` measures them.
fn gates() -> Vec<String> {
    let hierarchies = Hierarchy::all();
    let all = [
        ("lane holder", Path::new("/sys/kernel/btf/vmlinux").exists()),
        ("cgroup v2 freezer", hierarchies.iter().any(Hierarchy::is_v2)),
        ("cgroup v1 freezer", hierarchies.iter().any(|found| found.controls("freezer"))),
        ("affinity", true),
    ];
    all.iter().filter(|(_, usable)| *usable).map(|(name, _)| (*name).to_owned()).collect()
}
