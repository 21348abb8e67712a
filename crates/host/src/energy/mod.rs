//! Energy that the CPUs use, if hardware counts it.
//!
//! Two sources are tried, each in a file of its own: `powercap` (RAPL, of Intel and AMD) and `hwmon` (boards with
//! meters). The first one with meters of the CPUs is used. The sum contains no part twice. If one meter fails, there
//! is no sum: the missing energy would look like a saving.

use std::fmt;
use std::path::Path;

use crate::sysfs::{ReadError, Sysfs};

mod hwmon;
mod meter;
mod powercap;
#[cfg(test)]
mod tests;

pub use meter::MeterError;

use meter::Meter;

/// Open energy meters of a machine. Their text is for output: `powercap: package-0, package-1`.
#[derive(Debug)]
pub struct Energy {
    place: &'static str,
    meters: Vec<Meter>,
}

/// Reason why energy is not measured.
#[derive(Debug, thiserror::Error)]
pub enum EnergyError {
    /// The machine has no energy meter of the CPUs.
    #[error(
        "energy is not measured ({looked_at}); use a machine whose processor or board has energy meters, or in a \
         virtual machine ask its host"
    )]
    NoMeter {
        /// Text that names each source and its content.
        looked_at: String,
    },
    /// A meter's file could not be read. Kernels show the energy of processors to root only.
    #[error("energy is not measured, because a meter cannot be read; run as root")]
    Unreadable(#[from] ReadError),
}

/// Function that opens the meters of one source, or returns a text about what the source contains instead.
type MeterSource = fn(&Sysfs<'_>) -> Result<Result<Vec<Meter>, String>, ReadError>;

/// Sources of energy meters, in order of preference.
const PLACES: [(&str, MeterSource); 2] =
    [("powercap", powercap::open_powercap_meters), ("hwmon", hwmon::open_hwmon_meters)];

impl Energy {
    /// Opens the meters of the machine under `sys_root`, normally `/sys`, and starts to count.
    ///
    /// # Errors
    ///
    /// If there is no meter of the CPUs, or one that is there cannot be read.
    pub fn open(sys_root: &Path) -> Result<Self, EnergyError> {
        let sys = Sysfs::new(sys_root);
        let mut looked_at = Vec::new();
        for (place, meters) in PLACES {
            match meters(&sys)? {
                Ok(meters) => return Ok(Self { place, meters }),
                Err(what) => looked_at.push(what),
            }
        }
        Err(EnergyError::NoMeter { looked_at: looked_at.join("; ") })
    }

    /// Returns the joules used since the meters were opened. Meters of processors restart at 0 after some 65 kJ or
    /// more, minutes on a busy server. Without a call at least once a minute, energy is missing.
    ///
    /// # Errors
    ///
    /// If a meter cannot be read any more, or went back.
    pub fn joules(&mut self) -> Result<f64, MeterError> {
        let mut sum_uj = 0;
        for meter in &mut self.meters {
            sum_uj += meter.used_uj()?;
        }
        Ok(sum_uj as f64 / 1e6)
    }
}

impl fmt::Display for Energy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<&str> = self.meters.iter().map(Meter::label).collect();
        write!(f, "{}: {}", self.place, labels.join(", "))
    }
}
