//! How much energy the CPUs use, where hardware counts it.
//!
//! Two places are looked at, each in a file of its own: `powercap` (RAPL, of Intel and AMD) and `hwmon` (boards with
//! meters). The first that has meters of the CPUs counts. What is added up has no part twice. If one meter fails, there
//! is no sum: a part of the energy would look like a saving.

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

/// The meters of a machine, open. Its text is for output: `powercap: package-0, package-1`.
#[derive(Debug)]
pub struct Energy {
    place: &'static str,
    meters: Vec<Meter>,
}

/// Why energy is not measured.
#[derive(Debug, thiserror::Error)]
pub enum EnergyError {
    /// There is no meter.
    #[error(
        "energy is not measured ({looked_at}): use a machine whose processor or board has meters, and in a virtual \
         machine ask its host"
    )]
    NoMeter {
        /// The places, and what was there.
        looked_at: String,
    },
    /// A file could not be read. Kernels show the energy of processors to root only.
    #[error("energy is not measured, because a meter cannot be read; try it as root")]
    Unreadable(#[from] ReadError),
}

/// Opens the meters of one place, or says what there is instead.
type MeterSource = fn(&Sysfs<'_>) -> Result<Result<Vec<Meter>, String>, ReadError>;

/// The places in their order.
const PLACES: [(&str, MeterSource); 2] = [("powercap", powercap::meters), ("hwmon", hwmon::meters)];

impl Energy {
    /// Opens the meters of the machine under `sys_root`, normally `/sys`. From now on they count.
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

    /// Joules since the meters were opened. Meters of processors start again at 0 after some 65 kJ or more, minutes on a
    /// busy server: this has to be called at least once a minute, or energy is missing.
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
