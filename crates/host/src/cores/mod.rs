//! Division of a machine's cores into big and little ones.
//!
//! Problem. A long request gains from a faster core, if there is one. Kernels report the speed of CPUs in several
//! places, and no machine has all of them. Equal cores differ a little, too: firmware ranks the better ones of a
//! processor. A move between equal cores gains nothing.
//!
//! Approach. `speeds` reads once what the kernel reports. `found` tries the sources in turn, the most informative one
//! first. `step` divides CPUs at the widest step between their numbers, if it is wide enough. The first source that
//! distinguishes cores is used, and named. If none does, all cores are equal, and the error lists the sources. A user
//! can name the CPUs of both kinds instead.

use std::fmt;
use std::path::Path;

use crate::cpulist::CpuSet;
use crate::sysfs::{ReadError, Sysfs};

mod found;
mod speeds;
mod step;
#[cfg(test)]
mod tests;

pub use speeds::Measure;

/// Big and little cores of a machine, by their CPUs: all lanes of a core are in the same list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    /// CPUs of big cores: online, and at least one.
    pub big: CpuSet,
    /// CPUs of little cores: online, and at least one.
    pub little: CpuSet,
    /// Mean speed of little CPUs in thousandths of the mean speed of big CPUs: by capacity, else by highest clock,
    /// which ignores work per cycle. `None` if CPUs report neither number.
    pub little_speed_milli: Option<u32>,
    /// Source of the division into big and little cores.
    pub source: Source,
}

/// Source of the division into big and little cores. Its text is for output: `cpu_capacity: 446 to 1024`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A number that the kernel reports for each CPU.
    Measured {
        /// Kind of the number.
        measure: Measure,
        /// Number of the slowest CPU.
        low: u32,
        /// Number of the fastest CPU.
        high: u32,
    },
    /// Lists of CPUs that the PMUs of Intel's hybrid processors have.
    Lists,
    /// Lists of CPUs that the user gave.
    Given,
}

/// Error: no source distinguishes the cores.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot find big and little cores: all cores are equal ({looked_at}); if some are faster, name them with --big \
     CPUS --little CPUS"
)]
pub struct AllEqual {
    /// Text that names each source and its content.
    pub looked_at: String,
}

/// Reason why there are no big and little cores.
#[derive(Debug, thiserror::Error)]
pub enum CoresError {
    /// All cores of the machine are equal.
    #[error(transparent)]
    AllEqual(#[from] AllEqual),
    /// A file about the machine's CPUs could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A list of CPUs that the user gave is empty.
    #[error("{option} names no CPU; name the CPUs of both kinds, as in --big 0,1 --little 2-5")]
    Empty {
        /// Option of the empty list: `--big` or `--little`.
        option: &'static str,
    },
    /// CPUs are in the lists of both `--big` and `--little`.
    #[error("CPUs {cpus} are in both --big and --little; name each CPU in one of them")]
    Overlap {
        /// CPUs that are in the lists of both `--big` and `--little`.
        cpus: CpuSet,
    },
    /// CPUs of a list that the user gave are offline, or do not exist.
    #[error(
        "{option} names CPUs {cpus}, which are not online; name some of {online}, or switch a CPU on with `echo 1 > \
         /sys/devices/system/cpu/cpuN/online`"
    )]
    Offline {
        /// Option of the list: `--big` or `--little`.
        option: &'static str,
        /// CPUs of the list that are not online.
        cpus: CpuSet,
        /// Online CPUs of the machine.
        online: CpuSet,
    },
}

impl Cores {
    /// Finds the big and little cores of the machine under `sys_root`, normally `/sys`.
    ///
    /// # Errors
    ///
    /// If all cores are equal, or a file that exists cannot be parsed.
    pub fn find(sys_root: &Path) -> Result<Self, CoresError> {
        let sys = Sysfs::new(sys_root);
        let (_, online) = sys.present_and_online()?;
        Ok(Self::find_among(&sys, &online)??)
    }

    /// Finds the big and little cores among the CPUs `online`.
    pub(crate) fn find_among(sys: &Sysfs<'_>, online: &CpuSet) -> Result<Result<Self, AllEqual>, ReadError> {
        Ok(found::find_cores(&speeds::read(sys, online)?))
    }

    /// Makes a division from the lists of CPUs that a user gives.
    ///
    /// # Errors
    ///
    /// If a list is empty or has CPUs that are not online, or a CPU is in `big` and in `little`.
    pub fn from_user_lists(big: &CpuSet, little: &CpuSet, online: &CpuSet) -> Result<Self, CoresError> {
        check_user_list("--big", big, online)?;
        check_user_list("--little", little, online)?;
        let cpus = big.intersection(little);
        if !cpus.is_empty() {
            return Err(CoresError::Overlap { cpus });
        }
        Ok(Self { big: big.clone(), little: little.clone(), little_speed_milli: None, source: Source::Given })
    }
}

fn check_user_list(option: &'static str, cpus: &CpuSet, online: &CpuSet) -> Result<(), CoresError> {
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
