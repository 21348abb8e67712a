//! Description of the machine, which every result contains.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use sidelane_host::cgroup::Hierarchy;
use sidelane_host::nap::Nap;
use sidelane_host::topology::{PairKind, Topology};
use sidelane_report::{Machine, Pair};
use sidelane_tracker::stolen::longest_steal_gap_ns;

/// Returns a description of this machine. `kind` is how the lanes of the run are paired.
pub fn describe(pair_kind: PairKind) -> Machine {
    let topology = Topology::read(Path::new("/sys")).ok();
    let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut machine = Machine {
        cpu: cpu_model(&cpu_info),
        lanes: topology.as_ref().map_or(0, |topology| topology.online().len() as u32),
        pair: match pair_kind {
            PairKind::Smt => Pair::Smt,
            PairKind::Declared => Pair::Declared,
        },
        kernel: kernel_release(),
        virtual_machine: Some(is_virtual_machine(&cpu_flags(&cpu_info))),
        pmu: has_pmu(),
        gates: usable_gates(),
        stolen_percent: None,
        stolen_gap_max_us: None,
        notes: topology.iter().map(Topology::describe).chain([format!("nap: {}", Nap::probe())]).collect(),
    };
    store_steal_time(&mut machine);
    machine
}

/// Total time of the machine's CPUs in clock ticks, and the part that the hypervisor took.
#[derive(Clone, Copy)]
struct CpuTimes {
    all: u64,
    stolen: u64,
}

impl CpuTimes {
    fn now() -> Option<Self> {
        /// Index of the steal time in a line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. The
        /// times user and nice include the time of guests.
        const STEAL: usize = 7;
        let text = fs::read_to_string("/proc/stat").ok()?;
        let ticks: Vec<u64> = text.lines().next()?.split_whitespace().skip(1).flat_map(str::parse).collect();
        Some(Self { all: ticks.get(..=STEAL)?.iter().sum(), stolen: ticks[STEAL] })
    }
}

static AT_START: OnceLock<Option<CpuTimes>> = OnceLock::new();

/// Starts to count the time that the hypervisor takes. The program calls it once, when it starts.
pub fn begin_steal_measurement() {
    AT_START.get_or_init(CpuTimes::now);
}

/// Stores in `machine` the time that the hypervisor took since [`begin_steal_measurement`].
pub fn store_steal_time(machine: &mut Machine) {
    let since = AT_START.get().copied().flatten().zip(CpuTimes::now());
    let spent = since.map(|(then, now)| (now.stolen.saturating_sub(then.stolen), now.all.saturating_sub(then.all)));
    machine.stolen_percent = spent.filter(|(_, all)| *all > 0).map(|(stolen, all)| stolen as f64 * 100.0 / all as f64);
    machine.stolen_gap_max_us = longest_steal_gap_ns().map(|ns| ns as f64 / 1e3);
}

/// Returns whether the kernel offers hardware counters.
pub fn has_pmu() -> bool {
    ["cpu", "cpu_core", "armv8_pmuv3_0"].iter().any(|pmu| Path::new("/sys/bus/event_source/devices").join(pmu).exists())
}

/// Returns the kernel's release, e.g. `6.12.9-amd64`.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Returns the flags of the first CPU in /proc/cpuinfo.
pub fn cpu_flags(cpu_info: &str) -> Vec<&str> {
    let line = cpu_info.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    line.map(|(_, flags)| flags.split_whitespace().collect()).unwrap_or_default()
}

/// Returns whether these flags are those of a CPU in a virtual machine.
pub fn is_virtual_machine(flags: &[&str]) -> bool {
    flags.contains(&"hypervisor")
}

fn cpu_model(cpu_info: &str) -> String {
    let model = cpu_info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned())
}

/// Returns the gates that work on this machine, in order of preference: the holder for every hold, the freezer and
/// affinity for batch that has to leave a lane for long. `sidelane doctor` measures them.
fn usable_gates() -> Vec<String> {
    let hierarchies = Hierarchy::all();
    let all = [
        ("lane holder", Path::new("/sys/kernel/btf/vmlinux").exists()),
        ("cgroup v2 freezer", hierarchies.iter().any(Hierarchy::is_v2)),
        ("cgroup v1 freezer", hierarchies.iter().any(|found| found.has_controller("freezer"))),
        ("affinity", true),
    ];
    all.iter().filter(|(_, usable)| *usable).map(|(name, _)| (*name).to_owned()).collect()
}
