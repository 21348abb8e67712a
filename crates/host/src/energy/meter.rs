//! One meter: a file with a counter of microjoules, opened once.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::sysfs::ReadError;

/// A meter that does not work.
#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    /// It cannot be read.
    #[error(
        "cannot read the energy meter {label} ({}) any more, so energy is not measured; see the kernel's log",
        path.display()
    )]
    Lost {
        /// The meter.
        label: String,
        /// Its file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// It went back although its range is unknown: it was reset to 0.
    #[error(
        "the energy meter {label} went back from {before_uj} to {now_uj} µJ, so energy is not measured; let no other \
         program reset it"
    )]
    WentBack {
        /// The meter.
        label: String,
        /// What it read before.
        before_uj: u64,
        /// What it reads now.
        now_uj: u64,
    },
}

/// A meter since it was opened.
#[derive(Debug)]
pub struct Meter {
    label: String,
    path: PathBuf,
    file: File,
    counter: Counter,
}

impl Meter {
    /// Opens the one in the file `path`. After `range_uj`, if it is known, it starts again at 0.
    pub fn open(label: String, path: PathBuf, range_uj: Option<u64>) -> Result<Self, ReadError> {
        let unreadable = |source| ReadError::Unreadable { path: path.clone(), source };
        let file = File::open(&path).map_err(unreadable)?;
        let now_uj = read_uj(&file).map_err(unreadable)?;
        Ok(Self { label, path, file, counter: Counter { last_uj: now_uj, range_uj, used_uj: 0 } })
    }

    /// Its name.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// What it has counted since it was opened.
    pub fn used_uj(&mut self) -> Result<u64, MeterError> {
        let Self { label, path, file, counter } = self;
        let lost = |source| MeterError::Lost { label: label.clone(), path: path.clone(), source };
        let now_uj = read_uj(file).map_err(lost)?;
        let before_uj = counter.last_uj;
        let went_back = || MeterError::WentBack { label: label.clone(), before_uj, now_uj };
        counter.advance(now_uj).ok_or_else(went_back)
    }
}

/// Reads the file from its begin, by which sysfs asks the hardware again.
fn read_uj(file: &File) -> io::Result<u64> {
    let mut text = [0; 32];
    let length = file.read_at(&mut text, 0)?;
    let number = std::str::from_utf8(&text[..length]).ok().and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a number of microjoules"))
}

/// A counter that may start again at 0.
#[derive(Debug)]
struct Counter {
    last_uj: u64,
    /// The highest value it takes.
    range_uj: Option<u64>,
    used_uj: u64,
}

impl Counter {
    /// What is used in all, when it reads `now_uj`; `None` if it went back for an unknown reason.
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
    fn a_counter_that_starts_again_goes_on() {
        let mut counter = counter(900, Some(1000));
        assert_eq!(counter.advance(960), Some(60));
        assert_eq!(counter.advance(30), Some(60 + 40 + 30));
        assert_eq!(counter.advance(30), Some(130));
        assert_eq!(counter.advance(1000), Some(130 + 970));
        assert_eq!(counter.advance(0), Some(1100));
    }

    #[test]
    fn a_counter_that_goes_back_without_a_range_is_not_believed() {
        assert_eq!(counter(900, None).advance(899), None);
        // It was beyond its range.
        assert_eq!(counter(900, Some(800)).advance(10), None);
    }

    proptest! {
        #[test]
        fn energy_is_exact_over_any_number_of_wraps(
            range_uj in 1u64..1 << 40,
            start in 0u64..1 << 40,
            steps in proptest::collection::vec(0u64..1 << 40, 0..50),
        ) {
            // What the hardware has counted in all; it shows that modulo its range.
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
