//! What the kernel tells of the speed of CPUs.

use std::collections::BTreeMap;
use std::fmt;

use crate::cpulist::CpuSet;
use crate::sysfs::{ReadError, Sysfs};

/// The CPUs with a number, and their numbers: the higher, the faster.
pub type Speeds = BTreeMap<u32, u32>;

/// Where Intel's hybrid processors list their CPUs: a PMU for each kind of core.
const BIG_LISTS: [&str; 1] = ["devices/cpu_core/cpus"];
const LITTLE_LISTS: [&str; 2] = ["devices/cpu_atom/cpus", "devices/cpu_lowpower/cpus"];

/// A number of each CPU that says how fast it is. Its text is the name of the kernel's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Speed in the scheduler's units, cycles and work in a cycle included: the fastest CPU has 1024. Arm, mostly.
    Capacity,
    /// The highest clock, in kHz.
    Clock,
    /// The firmware's ranking (ACPI CPPC), by which schedulers prefer the better ones of equal cores, too.
    Ranking,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Capacity => "cpu_capacity",
            Self::Clock => "cpuinfo_max_freq",
            Self::Ranking => "acpi_cppc/highest_perf",
        })
    }
}

/// All that was told of the CPUs that are online.
pub struct CpuSpeeds {
    pub online: CpuSet,
    pub capacities: Speeds,
    pub clocks_khz: Speeds,
    pub rankings: Speeds,
    /// CPUs that are listed as those of big and of little cores.
    pub listed: (CpuSet, CpuSet),
}

pub fn read(sys: &Sysfs<'_>, online: &CpuSet) -> Result<CpuSpeeds, ReadError> {
    let listed = |lists| Ok::<_, ReadError>(sys.lists(lists)?.intersection(online));
    Ok(CpuSpeeds {
        online: online.clone(),
        capacities: speeds(sys, online, "cpu_capacity")?,
        clocks_khz: speeds(sys, online, "cpufreq/cpuinfo_max_freq")?,
        rankings: speeds(sys, online, "acpi_cppc/highest_perf")?,
        listed: (listed(&BIG_LISTS)?, listed(&LITTLE_LISTS)?),
    })
}

/// The CPUs' numbers in `file`. Drivers write 0 for an unknown one, and sometimes refuse a read (EBUSY, EIO): both count
/// as missing.
fn speeds(sys: &Sysfs<'_>, online: &CpuSet, file: &str) -> Result<Speeds, ReadError> {
    let mut speeds = Speeds::new();
    for cpu in online {
        match sys.number(&format!("devices/system/cpu/cpu{cpu}/{file}")) {
            Ok(Some(speed)) if speed > 0 => _ = speeds.insert(cpu, speed),
            Ok(_) | Err(ReadError::Unreadable { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(speeds)
}
