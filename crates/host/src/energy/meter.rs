//! An energy meter: a file with a counter of microjoules, opened once.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::sysfs::ReadError;

/// Error of an energy meter.
#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    /// The meter cannot be read any more.
    #[error(
        "cannot read the energy meter {label} ({}) any more, so energy is not measured; see the kernel's log",
        path.display()
    )]
    Lost {
        /// Name of the meter.
        label: String,
        /// File of the meter.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The meter went back although its range is unknown: it was reset to 0.
    #[error(
        "the energy meter {label} went back from {before_uj} to {now_uj} µJ, so energy is not measured; let no other \
         program reset it"
    )]
    WentBack {
        /// Name of the meter.
        label: String,
        /// Previous reading of the meter, in microjoules.
        before_uj: u64,
        /// Current reading of the meter, in microjoules.
        now_uj: u64,
    },
}

/// An open energy meter, which counts from the time at which it was opened.
#[derive(Debug)]
pub struct Meter {
    label: String,
    path: PathBuf,
    file: File,
    counter: Counter,
}

impl Meter {
    /// Opens the meter in the file `path`. `range_uj` is the reading after which the meter restarts at 0, if known.
    pub fn open(label: String, path: PathBuf, range_uj: Option<u64>) -> Result<Self, ReadError> {
        let unreadable = |source| ReadError::Unreadable { path: path.clone(), source };
        let file = File::open(&path).map_err(unreadable)?;
        let now_uj = read_uj(&file).map_err(unreadable)?;
        Ok(Self { label, path, file, counter: Counter { last_uj: now_uj, range_uj, used_uj: 0 } })
    }

    /// Returns the name of the meter.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the energy counted since the meter was opened, in microjoules.
    pub fn used_uj(&mut self) -> Result<u64, MeterError> {
        let Self { label, path, file, counter } = self;
        let lost = |source| MeterError::Lost { label: label.clone(), path: path.clone(), source };
        let now_uj = read_uj(file).map_err(lost)?;
        let before_uj = counter.last_uj;
        let went_back = || MeterError::WentBack { label: label.clone(), before_uj, now_uj };
        counter.advance(now_uj).ok_or_else(went_back)
    }
}

/// Reads a meter's file from its beginning, so that sysfs asks the hardware again.
fn read_uj(file: &File) -> io::Result<u64> {
    let mut text = [0; 32];
    let length = file.read_at(&mut text, 0)?;
    let number = std::str::from_utf8(&text[..length]).ok().and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a number of microjoules"))
}

/// A counter of microjoules that may restart at 0.
#[derive(Debug)]
struct Counter {
    last_uj: u64,
    /// Highest value of the counter before it restarts at 0; `None` if unknown.
    range_uj: Option<u64>,
    used_uj: u64,
}

impl Counter {
    /// Takes the reading `now_uj` and returns the energy used so far; `None` if the counter went back for an unknown
    /// reason.
    fn advance(&mut self, now_uj: u64) -> Option<u64> {
        let step_uj = match now_uj.checked_sub(self.last_uj) {
            Some(step_uj) => step_uj,
            None => self.range_uj?.checked_sub(self.last_uj)? + now_uj,
        };
        self.last_uj = now_uj;
        self.used_uj += step_uj;
        Some(self.used_uj)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counter(last_uj: u64, range_uj: Option<u64>) -> Counter {
        Counter { last_uj, range_uj, used_uj: 0 }
    }

    #[test]
    fn counter_continues_after_a_restart_at_zero() {
        let mut counter = counter(900, Some(1000));
        assert_eq!(counter.advance(960), Some(60));
        assert_eq!(counter.advance(30), Some(60 + 40 + 30));
        assert_eq!(counter.advance(30), Some(130));
        assert_eq!(counter.advance(1000), Some(130 + 970));
        assert_eq!(counter.advance(0), Some(1100));
    }

    #[test]
    fn decreasing_counter_without_a_range_gives_no_energy() {
        assert_eq!(counter(900, None).advance(899), None);
        // The previous reading was beyond the range.
        assert_eq!(counter(900, Some(800)).advance(10), None);
    }

    proptest! {
        #[test]
        fn energy_is_exact_over_any_number_of_wraps(
            range_uj in 1u64..1 << 40,
            start in 0u64..1 << 40,
            steps in proptest::collection::vec(0u64..1 << 40, 0..50),
        ) {
            // Energy that the hardware has counted in all; a reading shows it modulo the range.
            let mut whole_uj = start % range_uj;
            let start_uj = whole_uj;
            let mut counter = counter(whole_uj, Some(range_uj));
            for step in steps {
                whole_uj += step % range_uj;
                prop_assert_eq!(counter.advance(whole_uj % range_uj), Some(whole_uj - start_uj));
            }
        }
    }
}
