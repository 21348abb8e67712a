//! Which cores are big and which are little.
//!
//! Problem. A long request gains from a faster core, if there is one. Kernels tell in several places how fast CPUs are,
//! and no machine has all of them. Cores that are built alike differ a little, too: of each processor some are better
//! than others, and its firmware ranks them. Nothing is gained by a move between those.
//!
//! Approach. What the kernel tells is read once (`told`). The places are looked at in turn, the one that knows most
//! first (`found`). Numbers part the CPUs at their widest step, if it is wide enough (`step`). The first place that
//! tells cores apart is believed, and named. If none does, all cores are equal, and it is said what was looked at. Who
//! knows better gives two lists.

use std::fmt;
use std::path::Path;

use crate::cpulist::CpuSet;
use crate::sysfs::{ReadError, Sysfs};

mod found;
mod step;
#[cfg(test)]
mod tests;
mod told;

pub use told::Measure;

/// The big and the little cores of a machine, by their CPUs: both lanes of a core are in one list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    /// CPUs of big cores: online, and at least one.
    pub big: CpuSet,
    /// CPUs of little cores: online, and at least one.
    pub little: CpuSet,
    /// The mean speed of the little CPUs in thousandths of the big ones': by their capacity, else by their highest
    /// clocks, which do not say how much a core does in a cycle. `None` where neither is known.
    pub little_speed_milli: Option<u32>,
    /// How it is known.
    pub source: Source,
}

/// How it is known which cores are big. Its text is for output: `cpu_capacity: 446 to 1024`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// By a number of each CPU.
    Measured {
        /// What it measures.
        measure: Measure,
        /// The slowest CPU's.
        low: u32,
        /// The fastest CPU's.
        high: u32,
    },
    /// By the lists of the PMUs of Intel's hybrid processors.
    Lists,
    /// By the user.
    Given,
}

/// No place that was looked at tells cores apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all cores are equal ({looked_at}); if some of them are faster, name them with --big CPUS --little CPUS")]
pub struct AllEqual {
    /// The places, and what was there.
    pub looked_at: String,
}

/// Why there are no big and little cores.
#[derive(Debug, thiserror::Error)]
pub enum CoresError {
    /// The machine has none.
    #[error(transparent)]
    AllEqual(#[from] AllEqual),
    /// The machine could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A given list is empty.
    #[error("{option} names no CPU; name the CPUs of both kinds, as in --big 0,1 --little 2-5")]
    Empty {
        /// The list.
        option: &'static str,
    },
    /// CPUs are in both lists.
    #[error("CPUs {cpus} are in --big and in --little; name each CPU in one of them")]
    Overlap {
        /// These CPUs.
        cpus: CpuSet,
    },
    /// CPUs of a list are offline, or do not exist.
    #[error(
        "{option} names CPUs {cpus}, which are not online; use some of {online}, or switch a CPU on with \
         `echo 1 > /sys/devices/system/cpu/cpuN/online`"
    )]
    Offline {
        /// The list.
        option: &'static str,
        /// These CPUs.
        cpus: CpuSet,
        /// The CPUs online.
        online: CpuSet,
    },
}

impl Cores {
    /// Those of the machine under `sys_root`, normally `/sys`.
    ///
    /// # Errors
    ///
    /// If all cores are equal, or a file that exists cannot be parsed.
    pub fn find(sys_root: &Path) -> Result<Self, CoresError> {
        let sys = Sysfs::new(sys_root);
        let (_, online) = sys.present_and_online()?;
        Ok(Self::among(&sys, &online)??)
    }

    /// Those among the CPUs `online`.
    pub(crate) fn among(sys: &Sysfs<'_>, online: &CpuSet) -> Result<Result<Self, AllEqual>, ReadError> {
        Ok(found::found(&told::read(sys, online)?))
    }

    /// Those that a user gives.
    ///
    /// # Errors
    ///
    /// If a list is empty or has CPUs that are not online, or a CPU is in both.
    pub fn given(big: &CpuSet, little: &CpuSet, online: &CpuSet) -> Result<Self, CoresError> {
        check_given("--big", big, online)?;
        check_given("--little", little, online)?;
        let cpus = big.intersection(little);
        if !cpus.is_empty() {
            return Err(CoresError::Overlap { cpus });
        }
        Ok(Self { big: big.clone(), little: little.clone(), little_speed_milli: None, source: Source::Given })
    }
}

fn check_given(option: &'static str, cpus: &CpuSet, online: &CpuSet) -> Result<(), CoresError> {
    let offline = cpus.difference(online);
    if cpus.is_empty() {
        Err(CoresError::Empty { option })
    } else if !offline.is_empty() {
        Err(CoresError::Offline { option, cpus: offline, online: online.clone() })
    } else {
        Ok(())
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { big, little, little_speed_milli, source } = self;
        write!(f, "big CPUs {big}, little CPUs {little}")?;
        if let Some(milli) = little_speed_milli {
            write!(f, " with {}.{} % of their speed", milli / 10, milli % 10)?;
        }
        write!(f, " ({source})")
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured { measure, low, high } => write!(f, "{measure}: {low} to {high}"),
            Self::Lists => f.write_str("PMUs cpu_core and cpu_atom"),
            Self::Given => f.write_str("given"),
        }
    }
}
