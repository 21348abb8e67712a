//! Speeds of CPUs, as the kernel reports them.

use std::collections::BTreeMap;
use std::fmt;

use crate::cpulist::CpuSet;
use crate::sysfs::{ReadError, Sysfs};

/// Numbers that tell speed, by CPU: the higher, the faster. CPUs without a number are left out.
pub type Speeds = BTreeMap<u32, u32>;

/// Files in which Intel's hybrid processors list their big CPUs: each kind of core has a PMU.
const BIG_LISTS: [&str; 1] = ["devices/cpu_core/cpus"];
const LITTLE_LISTS: [&str; 2] = ["devices/cpu_atom/cpus", "devices/cpu_lowpower/cpus"];

/// Kind of number that tells the speed of a CPU. Its text is the name of the kernel's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Speed in the scheduler's units, work per cycle included: the fastest CPU has 1024. Mostly on Arm.
    Capacity,
    /// Highest clock of the CPU, in kHz.
    Clock,
    /// Ranking by the firmware (ACPI CPPC). Schedulers use it to prefer the better cores among equal ones.
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

/// All that the kernel reports about the speed of online CPUs.
pub struct CpuSpeeds {
    pub online: CpuSet,
    pub capacities: Speeds,
    pub clocks_khz: Speeds,
    pub rankings: Speeds,
    /// CPUs that the kernel lists as big, and CPUs that it lists as little.
    pub listed: (CpuSet, CpuSet),
}

pub fn read(sys: &Sysfs<'_>, online: &CpuSet) -> Result<CpuSpeeds, ReadError> {
    let listed = |lists| Ok::<_, ReadError>(sys.read_cpu_lists(lists)?.intersection(online));
    Ok(CpuSpeeds {
        online: online.clone(),
        capacities: read_speeds(sys, online, "cpu_capacity")?,
        clocks_khz: read_speeds(sys, online, "cpufreq/cpuinfo_max_freq")?,
        rankings: read_speeds(sys, online, "acpi_cppc/highest_perf")?,
        listed: (listed(&BIG_LISTS)?, listed(&LITTLE_LISTS)?),
    })
}

/// Returns the numbers of the CPUs in `file`. Drivers write 0 for an unknown number, and sometimes refuse a read
/// (EBUSY, EIO): both count as missing.
fn read_speeds(sys: &Sysfs<'_>, online: &CpuSet, file: &str) -> Result<Speeds, ReadError> {
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
